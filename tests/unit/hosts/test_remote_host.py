"""One suite that every host has to pass: over child processes, and over both SSH engines against a real sshd.

The sshd is Debian's, started by the tests on 127.0.0.1 as whoever runs them, with a configuration, host key and user
key of its own. Password servers are paramiko's, because a real one would need a real account with a password.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import queue
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import paramiko
import psutil  # type: ignore[import-untyped]
import pytest
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL
from paramiko.server import InteractiveQuery

from notebook_launcher.core.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    ConnectionLost,
    HostCommandFailed,
    HostKeyChanged,
    HostKeyUnknown,
)
from notebook_launcher.hosts.base import ByteStream, Host, Onward
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.hosts.openssh.host import OpenSshHost
from notebook_launcher.hosts.paramiko.connection import ParamikoHost
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.hosts.ssh_config import Destination

pytestmark = pytest.mark.timeout(30)

NASTY = [
    "", " ", "a b", "'", '"', "a'b\"c", "$HOME", "$(touch pwned)", "`touch pwned`", "; touch pwned", "&& touch pwned",
    "a\nb", "*", "?", "~", "\\", "\\n", "!x", "# no comment", "é ü 雪", "-n", "--", "a\tb", "{a,b}", "<x", ">x", "|cat",
]  # fmt: skip


class User:
    """Somebody who knows the secrets, and counts how often they are asked."""

    def __init__(self, secret: str | None = None, *, agrees: bool = False) -> None:
        self.answer = secret
        self.agrees = agrees
        self.asked: list[str] = []

    def secret(self, text: str, *, echo: bool = False) -> str | None:
        self.asked.append(text)
        return self.answer

    def confirm(self, text: str) -> bool:
        self.asked.append(text)
        return self.agrees


def wait_until(condition: Callable[[], object], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


# --- a real sshd ---------------------------------------------------------------------------------------------


@dataclass
class Server:
    """A running sshd, and the folder with the configuration of a client that trusts it.

    ``port2``: another of its. ``closed_port``: one where it forwards no connections.
    """

    folder: Path
    port: int
    port2: int
    closed_port: int
    pid: int
    program: str

    @property
    def host_key(self) -> str:
        return (self.folder / "host_key.pub").read_text()

    @property
    def user_key(self) -> str:
        return (self.folder / "user_key").read_text()

    def connections(self) -> set[psutil.Process]:
        """The processes that serve a connection."""
        return set(psutil.Process(self.pid).children(recursive=True))

    def onward(self, way: str, **others: object) -> Onward:
        """Return this server as one behind a host: at an address, or as what a command speaks."""
        known = {"name": "node", "host_keys": (self.host_key,), "key": self.user_key}
        if way == "address":
            return Onward(**(known | {"address": ("127.0.0.1", self.port2)} | others))  # type: ignore[arg-type]
        command = (self.program, "-i", "-f", str(self.folder / "sshd_config"))
        return Onward(**(known | {"command": command} | others))  # type: ignore[arg-type]

    @property
    def config(self) -> str:
        return str(self.folder / "config")

    def destination(self, name: str = "server") -> Destination:
        return Destination(name, config_file=self.config)

    def client_with(self, folder: Path, **options: str) -> Destination:
        """Return a destination whose client configuration differs from the usual one in these options."""
        usual = {
            "HostName": "127.0.0.1",
            "Port": str(self.port),
            "User": getpass.getuser(),
            "IdentityFile": str(self.folder / "user_key"),
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": str(self.folder / "known_hosts"),
            "GlobalKnownHostsFile": "none",
            "StrictHostKeyChecking": "ask",
            "ConnectTimeout": "10",
        }
        lines = [f"  {name} {value}\n" for name, value in (usual | options).items()]
        (folder / "config").write_text("Host server\n" + "".join(lines))
        return Destination("server", config_file=str(folder / "config"))


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> str:
    """Make a key pair and return its public half."""
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "", "-f", path], check=True)
    return path.with_name(f"{path.name}.pub").read_text().strip()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    sshd = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/sbin:/usr/local/sbin")
    if not sshd or not shutil.which("ssh-keygen"):
        pytest.fail("these tests need OpenSSH's server; on Debian and Ubuntu: apt-get install openssh-server")
    if os.geteuid() == 0:  # Debian's sshd wants it, and only its system service makes it
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    folder = tmp_path_factory.mktemp("sshd")
    host_key = make_key(folder / "host_key")
    make_key(folder / "second_host_key", "ecdsa")
    allowed = [make_key(folder / "user_key"), make_key(folder / "locked_key", passphrase="opén sesame")]
    make_key(folder / "other_key")
    (folder / "authorized_keys").write_text("\n".join(allowed) + "\n")
    with contextlib.ExitStack() as free:
        listeners = [free.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        port, port2, closed_port = (listener.getsockname()[1] for listener in listeners)
    (folder / "sshd_config").write_text(
        f"HostKey {folder}/host_key\nHostKey {folder}/second_host_key\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nPidFile none\nStrictModes no\n"
        "UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n"
        "ListenAddress 127.0.0.1\nMaxStartups 100\nMaxSessions 100\nLogLevel VERBOSE\nPrintMotd no\n"
        f"Match LocalPort {closed_port}\n  AllowTcpForwarding no\n"
    )
    with (folder / "log").open("w") as log:
        ports = [word for number in (port, port2, closed_port) for word in ("-p", str(number))]
        daemon = subprocess.Popen([sshd, "-D", "-e", "-f", folder / "sshd_config", *ports], stderr=log)
    server = Server(folder, port, port2, closed_port, daemon.pid, sshd)
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}\n")
    server.client_with(folder)
    if not wait_until(lambda: daemon.poll() is not None or accepts(port)) or daemon.poll() is not None:
        pytest.fail(f"sshd did not start: {(folder / 'log').read_text()}")
    yield server
    daemon.terminate()
    daemon.wait()


def accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys of whoever runs the tests stay out of them."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


# --- the hosts -----------------------------------------------------------------------------------------------


Open = Callable[[Destination, Credentials], Host]
ENGINES: dict[str, Open] = {"paramiko": ParamikoHost.open, "openssh": OpenSshHost.open}


@pytest.fixture(scope="module", params=["local", *ENGINES])
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    """Each host in turn. One connection serves the whole suite, as it serves a whole session."""
    user = User()
    if request.param == "local":
        with LocalHost(user) as local:
            yield local
    else:
        server: Server = request.getfixturevalue("server")
        with ENGINES[request.param](server.destination(), Credentials(user)) as remote:
            yield remote
    assert user.asked == []


@pytest.fixture(params=list(ENGINES))
def open_host(request: pytest.FixtureRequest) -> Open:
    """Opens a host over each SSH engine in turn."""
    return ENGINES[request.param]


def end_connections(server: Server, but: set[psutil.Process]) -> None:
    """End the processes of the server that serve connections, as a network that breaks would."""
    # the server's first: a command that ended before would be told of, as a good end
    for process in sorted(server.connections() - but, key=lambda process: not process.name().startswith("sshd")):
        with contextlib.suppress(psutil.Error):
            process.kill()


def running(mark: str) -> list[str]:
    """Return the command lines of all processes that have this word in them."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if any(mark in word for word in words):
                found.append(" ".join(words))
    return found


# --- run -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 7, 126, 127, 255])
def test_exit_codes(host: Host, code: int) -> None:
    assert host.run(["sh", "-c", f"exit {code}"]).exit_code == code


def test_the_outputs_are_kept_apart(host: Host) -> None:
    answer = host.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (answer.exit_code, answer.stdout, answer.stderr) == (3, "out\n", "err\n")


def test_a_command_that_is_not_there(host: Host) -> None:
    answer = host.run(["no-such-command-here", "x"])
    assert answer.exit_code == 127
    assert "no-such-command-here" in answer.stderr


@pytest.mark.parametrize("login_shell", [False, True])
def test_nasty_arguments_arrive_as_they_are(host: Host, tmp_path: Path, login_shell: bool) -> None:
    script = 'cd "$1"; shift; for word; do printf "%s\\0" "$word"; done; ls -A'
    answer = host.run(["sh", "-c", script, "sh", str(tmp_path), *NASTY], login_shell=login_shell)
    assert answer.stdout.split("\0") == [*NASTY, ""]


def test_input_arrives_and_ends(host: Host) -> None:
    data = "äbc\n\0\r\nend".encode()
    assert host.run(["cat"], stdin=data).stdout.encode() == data
    assert host.run(["cat"]).stdout == ""


@pytest.mark.timeout(15)
@pytest.mark.parametrize("size", [1 << 20, 5 << 20])
def test_a_large_input_comes_back_whole(host: Host, size: int) -> None:
    data = (b"0123456789abcde\n" * (size // 16))[:size]
    assert host.run(["cat"], stdin=data, timeout=10).stdout.encode() == data


def test_a_large_input_is_read_whole(host: Host) -> None:
    data = os.urandom(1 << 20)
    answer = host.run(["sh", "-c", "sha256sum; echo done >&2"], stdin=data)
    assert answer.stdout.split()[0] == hashlib.sha256(data).hexdigest()
    assert answer.stderr == "done\n"


def test_a_mebibyte_on_both_outputs_at_once(host: Host) -> None:
    script = "head -c 1048576 /dev/zero | tr '\\0' e >&2 & head -c 1048576 /dev/zero | tr '\\0' o; wait"
    answer = host.run(["sh", "-c", script], timeout=20)
    assert answer.stdout == "o" * (1 << 20)
    assert answer.stderr == "e" * (1 << 20)


def test_input_that_nobody_reads(host: Host) -> None:
    answer = host.run(["sh", "-c", "exec <&-; echo early; exit 5"], stdin=b"x" * (1 << 20), timeout=20)
    assert (answer.exit_code, answer.stdout) == (5, "early\n")


@pytest.mark.timeout(8)
@pytest.mark.parametrize(
    "script",
    [
        pytest.param("sleep 20", id="silent"),
        pytest.param("while :; do echo x; sleep 0.2; done", id="talkative"),
        pytest.param("sleep 20 >&-", id="closed output"),
    ],
)
def test_no_command_is_waited_for_without_end(host: Host, script: str) -> None:
    began = time.monotonic()
    with pytest.raises(HostCommandFailed, match="did not answer within 1 s"):
        host.run(["sh", "-c", f"{script}; true"], timeout=1.0)
    assert time.monotonic() - began < 5
    assert host.run(["echo", "still there"]).stdout == "still there\n"


def test_several_commands_at_once(host: Host) -> None:
    answers: queue.SimpleQueue[str] = queue.SimpleQueue()
    threads = [
        threading.Thread(target=lambda n=n: answers.put(host.run(["sh", "-c", f"sleep 0.2; echo {n}"]).stdout))
        for n in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers.get() for _ in threads) == [f"{n}\n" for n in range(5)]


# --- files ---------------------------------------------------------------------------------------------------


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("name", ["new/a/b", "with space", "'quote' $(touch pwned)", "-dash", "ünï"])
def test_files_are_written_for_their_owner_alone(host: Host, tmp_path: Path, name: str) -> None:
    directory = tmp_path / name
    before = os.umask(0o000)
    try:
        host.write_files(str(directory), {"token": b"secret", "empty": b"", "binary": bytes(range(256))})
    finally:
        os.umask(before)
    assert mode(directory) == 0o700
    assert {path.name: (mode(path), path.read_bytes()) for path in directory.iterdir()} == {
        "token": (0o600, b"secret"),
        "empty": (0o600, b""),
        "binary": (0o600, bytes(range(256))),
    }
    assert abs((directory / "token").stat().st_mtime - time.time()) < 60
    if "/" in name:
        assert mode(tmp_path / "new") == 0o700


def test_an_open_folder_is_closed_and_other_files_in_it_stay(host: Host, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "old").write_text("old")
    (tmp_path / "token").write_text("old")
    (tmp_path / "token").chmod(0o644)
    host.write_files(str(tmp_path), {"token": b"new"})
    assert mode(tmp_path) == 0o700
    assert (mode(tmp_path / "token"), (tmp_path / "token").read_text()) == (0o600, "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old", "token"]


def test_a_file_is_never_seen_half(host: Host, tmp_path: Path) -> None:
    size = 1 << 18
    host.write_files(str(tmp_path), {"file": b"a" * size})
    seen: set[bytes] = set()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            seen.add((tmp_path / "file").read_bytes())
            time.sleep(0.001)

    reader = threading.Thread(target=look)
    reader.start()
    for letter in b"bcdef":
        host.write_files(str(tmp_path), {"file": bytes([letter]) * size})
    stop.set()
    reader.join()
    assert {(len(content), len(set(content))) for content in seen} == {(size, 1)}


def test_where_files_cannot_be_written_it_is_told(host: Host, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HostCommandFailed) as caught:
        host.write_files(str(tmp_path / "file" / "below"), {"token": b"x"})
    assert host.label in caught.value.what
    assert "Not a directory" in caught.value.why


def test_what_is_written_shows_in_no_process(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # a tar that takes its time, so that there is something to see
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tar").write_text('#!/bin/sh\nsleep 0.5\nexec /bin/tar "$@"\n')
    (tmp_path / "bin" / "tar").chmod(0o755)
    secret = "token-0123456789-secret"
    seen: list[str] = []
    writer = threading.Thread(target=lambda: host.write_files(str(tmp_path / "s"), {"token": secret.encode()}))
    if isinstance(host, LocalHost):
        monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    writer.start()
    while writer.is_alive():
        seen += running(secret)
    assert seen == []
    assert (tmp_path / "s" / "token").read_text() == secret


def test_a_file_is_read(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "a 'file' $(x)"
    path.write_text("one\r\ntwö\n\n")
    assert host.read_file(str(path)) == "one\r\ntwö\n\n".encode()
    assert host.read_file(str(tmp_path / "not there")) is None
    assert host.read_file(str(tmp_path)) is None
    path.write_text("")
    assert host.read_file(str(path)) == b""


def test_the_end_of_a_file(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"line {n}\n" for n in range(100)))
    assert host.tail(str(path), 2) == ["line 98", "line 99"]
    assert len(host.tail(str(path))) == 15
    assert host.tail(str(tmp_path / "not there")) == []


# --- following a command -------------------------------------------------------------------------------------


class Follower:
    """What a stream told."""

    def __init__(self) -> None:
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.ends: queue.SimpleQueue[str] = queue.SimpleQueue()

    def next(self) -> str:
        return self.lines.get(timeout=10)


def test_lines_come_one_by_one_and_then_the_end_once(host: Host) -> None:
    follower = Follower()
    stream = host.stream(
        ["sh", "-c", "echo one; printf 'twö\\n\\nlast'; exit 3"], follower.lines.put, follower.ends.put
    )
    assert [follower.next() for _ in range(4)] == ["one", "twö", "", "last"]
    assert follower.ends.get(timeout=10)
    stream.close()
    assert follower.ends.empty()
    assert follower.lines.empty()


def test_a_line_comes_when_it_is_written(host: Host) -> None:
    follower = Follower()
    began = time.monotonic()
    stream = host.stream(["sh", "-c", "echo at once; sleep 20"], follower.lines.put, follower.ends.put)
    assert follower.next() == "at once"
    assert time.monotonic() - began < 15
    stream.close()


def test_what_is_sent_arrives(host: Host) -> None:
    follower = Follower()
    stream = host.stream(["sh", "-c", 'while read -r x; do echo "got $x"; done'], follower.lines.put, follower.ends.put)
    for word in ("one", "$(two)", "drei ü"):
        stream.send(word)
        assert follower.next() == f"got {word}"
    stream.close()
    stream.send("after the end")
    stream.close()


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("cat", id="ends with its input"),
        pytest.param("read -r x", id="reads once"),
        pytest.param("while read -r -t 0.2 x || [ $? -gt 128 ]; do :; done", id="as the watch does"),
    ],
)
def test_a_closed_stream_leaves_no_process_and_says_no_more(host: Host, tmp_path: Path, script: str) -> None:
    mark = f"mark-{tmp_path.name}"
    follower = Follower()
    stream = host.stream(["bash", "-c", f"echo up; {script}; true", mark], follower.lines.put, follower.ends.put)
    assert follower.next() == "up"
    assert running(mark)
    stream.close()
    assert wait_until(lambda: not running(mark)), running(mark)
    assert follower.ends.empty()


def test_nasty_arguments_of_a_stream_arrive_as_they_are(host: Host) -> None:
    follower = Follower()
    words = [word for word in NASTY if "\n" not in word]
    host.stream(["sh", "-c", 'for x; do echo "$x"; done'.replace("echo", "printf '%s\\n'"), "sh", *words],
                follower.lines.put, follower.ends.put)  # fmt: skip
    assert [follower.next() for _ in words] == words


# --- a byte stream onward ------------------------------------------------------------------------------------


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that sends everything back, and closes when the other side has."""

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while data := connection.recv(65536):
                connection.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]


def read_all(stream: ByteStream) -> bytes:
    parts = []
    while data := stream.recv(65536):
        parts.append(data)
    return b"".join(parts)


def there_and_back(stream: ByteStream, data: bytes) -> bytes:
    """Send all of the data and say that this was all, and return what comes back until the end."""
    stream.settimeout(20)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(read_all(stream)))
    reader.start()
    stream.sendall(data)
    stream.shutdown(socket.SHUT_WR)
    reader.join()
    return received[0] if received else b""


def test_bytes_there_and_back(host: Host, echo: int) -> None:
    stream = host.open_stream(("127.0.0.1", echo))
    stream.settimeout(10)
    data = os.urandom(200_000)
    received = b""
    sent = 0
    while len(received) < len(data):
        if sent < len(data):
            sent += stream.send(data[sent : sent + 16384])
        received += stream.recv(16384)
    stream.close()
    assert received == data


def test_a_port_where_nobody_listens(host: Host) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(OSError):
        host.open_stream(("127.0.0.1", port), timeout=5)


def test_a_name_that_nobody_knows(host: Host) -> None:
    with pytest.raises(OSError):
        host.open_stream(("no-such-name.invalid", 22), timeout=5)


# --- a command as a byte stream ------------------------------------------------------------------------------


@pytest.mark.parametrize("login_shell", [False, True])
def test_a_commands_bytes_pass_unchanged(host: Host, login_shell: bool) -> None:
    data = bytes(range(256)) * 4096 + os.urandom(1000)
    stream = host.open_process(["cat"], login_shell=login_shell)
    assert there_and_back(stream, data) == data
    stream.close()


def test_a_command_may_speak_first(host: Host) -> None:
    stream = host.open_process(["sh", "-c", "printf 'hello\\n'; cat"])
    stream.settimeout(10)
    assert stream.recv(100) == b"hello\n"
    stream.sendall(b"\0")
    assert stream.recv(100) == b"\0"
    stream.close()


def test_a_closed_stream_ends_its_command(host: Host, tmp_path: Path) -> None:
    mark = f"mark-{tmp_path.name}"
    stream = host.open_process(["bash", "-c", "echo up; cat; true", mark])
    stream.settimeout(10)
    assert stream.recv(100) == b"up\n"
    assert running(mark)
    stream.close()
    stream.close()
    assert wait_until(lambda: not running(mark)), running(mark)


def test_nasty_arguments_of_a_byte_stream_arrive_as_they_are(host: Host) -> None:
    stream = host.open_process(["sh", "-c", 'for word; do printf "%s\\0" "$word"; done', "sh", *NASTY])
    stream.settimeout(10)
    assert read_all(stream).decode().split("\0") == [*NASTY, ""]
    stream.close()


# --- links ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["here", "address", "command"])
def test_a_link_carries_many_connections(host: Host, server: Server, echo: int, way: str) -> None:
    link = host.link(None if way == "here" else server.onward(way))
    assert link.alive
    streams = [link.open(("127.0.0.1", echo), timeout=10) for _ in range(16)]
    data = [os.urandom(100_000) for _ in streams]
    received: dict[int, bytes] = {}
    threads = [
        threading.Thread(target=lambda n=n, s=stream: received.update({n: there_and_back(s, data[n])}))
        for n, stream in enumerate(streams)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [received[n] == data[n] for n in range(16)] == [True] * 16
    for stream in streams:
        stream.close()
    link.close()
    link.close()
    assert host.alive
    assert host.run(["echo", "still there"]).stdout == "still there\n"


@pytest.mark.parametrize("way", ["here", "address"])
def test_a_link_says_when_nobody_listens(host: Host, server: Server, way: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    link = host.link(None if way == "here" else server.onward(way))
    with pytest.raises(OSError):
        link.open(("127.0.0.1", port), timeout=5)
    link.close()


@pytest.mark.parametrize("way", ["address", "command"])
def test_a_server_behind_that_is_another_is_refused(host: Host, server: Server, tmp_path: Path, way: str) -> None:
    with pytest.raises(HostKeyChanged) as caught:
        host.link(server.onward(way, host_keys=(make_key(tmp_path / "key"),)))
    assert "node" in caught.value.what


@pytest.mark.parametrize("way", ["address", "command"])
def test_a_key_that_the_server_behind_does_not_know(host: Host, server: Server, way: str) -> None:
    with pytest.raises(AuthenticationFailed):
        host.link(server.onward(way, key=(server.folder / "other_key").read_text()))


def test_no_server_behind(host: Host, server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    for onward in (
        server.onward("address", address=("127.0.0.1", port)),
        server.onward("command", command=("false",)),
        server.onward("command", command=("no-such-command-here",)),
    ):
        with pytest.raises(ConnectionFailed):
            host.link(onward)
    assert host.run(["echo", "still there"]).stdout == "still there\n"


# --- what only this machine does -----------------------------------------------------------------------------


def test_a_local_command_is_out_of_the_terminals_reach() -> None:
    """Ctrl-C goes to the launcher's own session, and not to what it has started."""
    ours = str(os.getsid(0))
    script = ["sh", "-c", "ps -o sid= -p $$"]
    assert LocalHost().run(script).stdout.strip() not in ("", ours)
    follower = Follower()
    LocalHost().stream(script, follower.lines.put, follower.ends.put)
    assert follower.next().strip() not in ("", ours)


def test_a_local_command_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    mark = f"mark-{tmp_path.name}"
    script = f'bash -c "sleep 20; true" {mark} & wait'
    with pytest.raises(HostCommandFailed):
        LocalHost().run(["bash", "-c", script, mark], timeout=0.5)
    assert wait_until(lambda: not running(mark), 3)


def test_closed_twice() -> None:
    host = LocalHost()
    host.close()
    host.close()


# --- what only a remote host does ----------------------------------------------------------------------------


def test_a_remote_host_can_be_closed_twice_and_then_says_that_it_is_lost(server: Server, open_host: Open) -> None:
    host = open_host(server.destination(), Credentials(User()))
    assert host.remote
    assert host.alive
    host.close()
    host.close()
    assert not host.alive
    with pytest.raises(ConnectionLost):
        host.run(["true"])
    with pytest.raises(ConnectionLost):
        host.stream(["true"], print, print)


def test_a_broken_connection_ends_a_stream(server: Server, open_host: Open) -> None:
    others = server.connections()
    follower = Follower()
    host = open_host(server.destination(), Credentials(User()))
    host.stream(["sh", "-c", "echo up; cat"], follower.lines.put, follower.ends.put)
    assert follower.next() == "up"
    end_connections(server, others)
    assert isinstance(follower.ends.get(timeout=20), str)
    host.close()


def test_a_command_under_which_the_connection_breaks(server: Server, open_host: Open) -> None:
    others = server.connections()
    host = open_host(server.destination(), Credentials(User()))
    threading.Timer(0.5, end_connections, (server, others)).start()
    with pytest.raises(ConnectionLost):
        host.run(["sleep", "20"])
    host.close()


@pytest.mark.parametrize("what", ["open_stream", "open_process", "link", "link onward"])
def test_a_connection_that_breaks_is_no_end_of_data(server: Server, open_host: Open, echo: int, what: str) -> None:
    others = server.connections()
    with open_host(server.destination(), Credentials(User())) as host:
        address = ("127.0.0.1", echo)
        stream = {
            "open_stream": lambda: host.open_stream(address),
            "open_process": lambda: host.open_process(["cat"]),
            "link": lambda: host.link().open(address),
            "link onward": lambda: host.link(server.onward("address")).open(address),
        }[what]()
        stream.settimeout(10)
        stream.sendall(b"hi")
        assert stream.recv(10) == b"hi"
        end_connections(server, others)
        with pytest.raises(OSError) as caught:
            stream.recv(10)
        assert not isinstance(caught.value, TimeoutError)


def test_a_lost_connection_is_made_anew(server: Server, open_host: Open, tmp_path: Path, echo: int) -> None:
    others = server.connections()
    user = User("opén sesame")
    destination = server.client_with(tmp_path, IdentityFile=str(server.folder / "locked_key"))
    with open_host(destination, Credentials(user)) as host:
        here, onward = host.link(), host.link(server.onward("address"))
        end_connections(server, others)
        assert wait_until(lambda: not host.alive and not here.alive and not onward.alive)
        host.reconnect()
        assert host.alive
        assert host.run(["echo", "back"]).stdout == "back\n"
        assert there_and_back(here.open(("127.0.0.1", echo)), b"here is where the host is") != b""
        assert not onward.alive
        host.reconnect()  # also one that stands
        assert host.run(["echo", "again"]).stdout == "again\n"
    assert len(user.asked) == 1


def test_a_server_that_is_gone_cannot_be_reconnected_to(server: Server, open_host: Open, tmp_path: Path) -> None:
    with open_host(server.client_with(tmp_path), Credentials(User())) as host:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            closed = listener.getsockname()[1]
        server.client_with(tmp_path, Port=str(closed))
        with pytest.raises(ConnectionFailed):
            host.reconnect(timeout=3)
        assert host.run(["echo", "the old one stays"]).stdout == "the old one stays\n"


def test_a_login_node_that_forwards_nothing(server: Server, open_host: Open, tmp_path: Path, echo: int) -> None:
    (tmp_path / "known").write_text(f"[127.0.0.1]:{server.closed_port} {server.host_key}")
    destination = server.client_with(tmp_path, Port=str(server.closed_port), UserKnownHostsFile=str(tmp_path / "known"))
    data = os.urandom(100_000)
    with open_host(destination, Credentials(User())) as host:
        for link in (host.link(), host.link(server.onward("address"))):
            stream = link.open(("127.0.0.1", echo))
            stream.settimeout(10)
            sender = threading.Thread(target=stream.sendall, args=(data,))
            sender.start()
            received = b""
            while len(received) < len(data):  # no half-close: the command that connects ends with its input
                part = stream.recv(65536)
                assert part
                received += part
            sender.join()
            assert received == data
            stream.close()
            link.close()


@pytest.mark.parametrize("asking", ["password", "keyboard-interactive"], indirect=True)
@pytest.mark.parametrize("may_ask", [True, False])
@pytest.mark.parametrize("engine", ["local", *ENGINES])
def test_onward_the_user_is_asked_only_where_that_is_meant(
    server: Server, asking: Destination, tmp_path: Path, engine: str, may_ask: bool
) -> None:
    user = User("opén")
    name, key = (tmp_path / "known").read_text().strip().split(" ", 1)
    address = ("127.0.0.1", int(name.rpartition(":")[2]))
    onward = Onward("node", address, host_keys=(key,), asking=may_ask)
    opened = LocalHost(user) if engine == "local" else ENGINES[engine](server.destination(), Credentials(user))
    with opened as host:
        if may_ask:
            host.link(onward).close()
        else:
            with pytest.raises(AuthenticationFailed):
                host.link(onward)
    assert len(user.asked) == may_ask


@pytest.mark.parametrize("way", ["address", "command"])
def test_onward_as_we_came(server: Server, open_host: Open, tmp_path: Path, echo: int, way: str) -> None:
    """Without a key of its own the server behind is entered as the host was, and nothing is asked for twice."""
    user = User("opén sesame")
    destination = server.client_with(tmp_path, IdentityFile=str(server.folder / "locked_key"))
    with open_host(destination, Credentials(user)) as host:
        link = host.link(server.onward(way, key=None))
        assert there_and_back(link.open(("127.0.0.1", echo)), b"through") == b"through"
        link.close()
    assert len(user.asked) == 1


@pytest.mark.parametrize("kind", ["wrong", "unknown", "refused"])
def test_a_host_key_that_is_not_trusted(server: Server, open_host: Open, tmp_path: Path, kind: str) -> None:
    known_hosts = tmp_path / "known_hosts"
    name = f"[127.0.0.1]:{server.port}"
    if kind == "wrong":
        known_hosts.write_text(f"{name} {make_key(tmp_path / 'key')}\n")
    user = User("secret", agrees=False)
    destination = server.client_with(tmp_path, UserKnownHostsFile=str(known_hosts))
    if kind == "unknown":
        destination = server.client_with(tmp_path, UserKnownHostsFile=str(known_hosts), BatchMode="yes")
    with pytest.raises(HostKeyChanged if kind == "wrong" else HostKeyUnknown) as caught:
        open_host(destination, Credentials(user))
    assert "SHA256:" in caught.value.why
    assert len(user.asked) == (1 if kind == "refused" else 0)
    assert "Accepted" not in (server.folder / "log").read_text().splitlines()[-1]


def test_an_unknown_host_key_is_taken_with_a_yes(server: Server, open_host: Open, tmp_path: Path) -> None:
    user = User(agrees=True)
    destination = server.client_with(tmp_path, UserKnownHostsFile=str(tmp_path / "known"))
    with open_host(destination, Credentials(user)) as host:
        assert host.run(["echo", "hi"]).stdout == "hi\n"
    with open_host(destination, Credentials(user)):
        assert len(user.asked) == 1
    assert (tmp_path / "known").read_text() == (server.folder / "known_hosts").read_text()


def test_the_server_is_asked_for_the_host_key_that_is_known(server: Server, open_host: Open, tmp_path: Path) -> None:
    second = (server.folder / "second_host_key.pub").read_text()
    (tmp_path / "known").write_text(f"[127.0.0.1]:{server.port} {second}")
    user = User()
    destination = server.client_with(tmp_path, UserKnownHostsFile=str(tmp_path / "known"))
    open_host(destination, Credentials(user)).close()
    assert user.asked == []


def test_an_encrypted_key_asks_once_for_two_connections(
    server: Server, open_host: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    real = subprocess.Popen.__init__

    def spy(self: object, argv: object, *others: object, **more: object) -> None:
        started.append((argv, more.get("env")))
        real(self, argv, *others, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess.Popen, "__init__", spy)
    user = User("opén sesame")
    credentials = Credentials(user)
    destination = server.client_with(tmp_path, IdentityFile=str(server.folder / "locked_key"))
    with open_host(destination, credentials) as host:
        for _ in range(2):
            assert host.run(["echo", "in"]).stdout == "in\n"
            # another test may be making its key at this moment, whose passphrase is no secret
            assert [line for line in running("sesame") if "ssh-keygen" not in line] == []
            host.reconnect()
    assert len(user.asked) == 1
    assert "locked_key" in user.asked[0]
    assert started
    assert "sesame" not in repr(started)


@pytest.mark.parametrize(("answer", "times"), [("wrong", 3), (None, 1), ("", 1)])
def test_a_wrong_passphrase(server: Server, open_host: Open, tmp_path: Path, answer: str | None, times: int) -> None:
    user = User(answer)
    destination = server.client_with(tmp_path, IdentityFile=str(server.folder / "locked_key"))
    with pytest.raises(AuthenticationFailed):
        open_host(destination, Credentials(user))
    assert len(user.asked) == times


def test_a_key_that_the_server_does_not_know(server: Server, open_host: Open, tmp_path: Path) -> None:
    destination = server.client_with(tmp_path, IdentityFile=str(server.folder / "other_key"))
    with pytest.raises(AuthenticationFailed) as caught:
        open_host(destination, Credentials(User()))
    assert caught.value.what == f"127.0.0.1 does not let {getpass.getuser()} in."
    assert "other_key" in caught.value.why
    assert "ssh server" in caught.value.mend


def test_a_port_that_is_closed_and_a_server_that_is_none(
    server: Server, open_host: Open, tmp_path: Path, echo: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = listener.getsockname()[1]
    with pytest.raises(ConnectionFailed, match=f"port {closed} cannot be reached"):
        open_host(server.client_with(tmp_path, Port=str(closed)), Credentials(User()))
    with pytest.raises(ConnectionFailed, match="does not speak SSH"):
        open_host(server.client_with(tmp_path, Port=str(echo)), Credentials(User()))
    with pytest.raises(ConnectionFailed, match="is not known"):
        open_host(server.client_with(tmp_path, HostName="no-such-name.invalid"), Credentials(User()))


def test_through_a_jump(server: Server, open_host: Open, tmp_path: Path) -> None:
    """The jump is found in the configuration that the user named, as with ``ssh -F``."""
    destination = server.client_with(tmp_path, ProxyJump="hop")
    hop = (server.folder / "config").read_text().replace("Host server", "Host hop")
    (tmp_path / "config").write_text((tmp_path / "config").read_text() + hop)
    with open_host(destination, Credentials(User())) as host:
        assert host.run(["echo", "in"]).stdout == "in\n"


def test_through_a_proxy_command(server: Server, open_host: Open, tmp_path: Path) -> None:
    config = shutil.copy(server.config, tmp_path / "of_the_proxy")
    destination = server.client_with(tmp_path, ProxyCommand=f"ssh -F {config} -W %h:%p server")
    with open_host(destination, Credentials(User())) as host:
        assert host.run(["echo", "in"]).stdout == "in\n"
    assert wait_until(lambda: not running(str(config)))


# --- passwords and questions ---------------------------------------------------------------------------------


class PasswordServer(paramiko.ServerInterface):
    """Lets in whoever knows the password, or answers a question and then knows the code."""

    def __init__(self, methods: str) -> None:
        self.methods = methods

    def get_allowed_auths(self, username: str) -> str:
        return self.methods

    def check_auth_none(self, username: str) -> int:
        return AUTH_FAILED

    def check_auth_password(self, username: str, password: str) -> int:
        return AUTH_SUCCESSFUL if password == "opén" else AUTH_FAILED

    def check_auth_interactive(self, username: str, submethods: str) -> InteractiveQuery:
        return InteractiveQuery("second factor", "", ("Code: ", False))

    def check_auth_interactive_response(self, responses: list[str]) -> int:
        return AUTH_SUCCESSFUL if responses == ["opén"] else AUTH_FAILED


@pytest.fixture
def asking(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Destination]:
    """A server that wants a password (or asks a question), trusted already."""
    key = paramiko.ECDSAKey.generate()
    transports: list[paramiko.Transport] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve() -> None:
            with contextlib.suppress(OSError, paramiko.SSHException, EOFError):
                while True:
                    transport = paramiko.Transport(listener.accept()[0])
                    transports.append(transport)
                    transport.add_server_key(key)
                    transport.start_server(server=PasswordServer(request.param))

        threading.Thread(target=serve, daemon=True).start()
        (tmp_path / "known").write_text(f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n")
        (tmp_path / "config").write_text(
            f"Host server\n  HostName 127.0.0.1\n  Port {port}\n  User alice\n  UserKnownHostsFile {tmp_path}/known\n"
            f"  GlobalKnownHostsFile none\n  IdentityFile {tmp_path}/no-key\n"
        )
        yield Destination("server", config_file=str(tmp_path / "config"))
    for transport in transports:
        transport.close()


@pytest.mark.parametrize("asking", ["password", "publickey,password"], indirect=True)
def test_a_password_is_asked_for_once_for_two_connections(open_host: Open, asking: Destination) -> None:
    user = User("opén")
    credentials = Credentials(user)
    with open_host(asking, credentials) as host:
        host.reconnect()
    assert user.asked == ["alice@127.0.0.1's password: "]


@pytest.mark.parametrize("asking", ["keyboard-interactive", "keyboard-interactive,password"], indirect=True)
def test_a_servers_question_is_passed_on(open_host: Open, asking: Destination) -> None:
    user = User("opén")
    open_host(asking, Credentials(user)).close()
    assert len(user.asked) == 1
    assert user.asked[0].endswith(") Code: ")  # before it, in brackets: where


@pytest.mark.parametrize("asking", ["password", "keyboard-interactive"], indirect=True)
@pytest.mark.parametrize(("answer", "times"), [("wrong", 3), (None, 1)])
def test_whoever_does_not_know_it_stays_outside(
    open_host: Open, asking: Destination, answer: str | None, times: int
) -> None:
    user = User(answer)
    with pytest.raises(AuthenticationFailed, match=r"127\.0\.0\.1 does not let alice in") as caught:
        open_host(asking, Credentials(user))
    assert len(user.asked) == times
    assert "wrong" not in f"{caught.value.what}{caught.value.why}{caught.value.mend}"
