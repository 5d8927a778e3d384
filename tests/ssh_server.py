"""A real sshd on 127.0.0.1, hosts over both engines that connect to it, and a user who knows the secrets.

The sshd is Debian's, started by the tests as the current user, with its own configuration, host key and user key.
"""

from __future__ import annotations

import contextlib
import dataclasses
import getpass
import os
import queue
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import paramiko
import psutil  # type: ignore[import-untyped]
import pytest
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL
from paramiko.server import InteractiveQuery

from notebook_launcher.hosts.base import ByteStream, Host, NextHop
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.hosts.openssh.host import OpenSshHost
from notebook_launcher.hosts.paramiko.host import ParamikoHost
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.hosts.ssh_config import Destination
from tests.doubles import wait_until
from tests.ports import free_port

NASTY = [
    "", " ", "a b", "'", '"', "a'b\"c", "$HOME", "$(touch pwned)", "`touch pwned`", "; touch pwned", "&& touch pwned",
    "a\nb", "*", "?", "~", "\\", "\\n", "!x", "# no comment", "é ü 雪", "-n", "--", "a\tb", "{a,b}", "<x", ">x", "|cat",
]  # fmt: skip


#: the key exchange algorithms of the tests' servers: all except post-quantum ones, which ssh would prefer; Debian's
#: builds need a tenth of a second of processor time for these on both sides
QUICK_KEY_EXCHANGE = "-sntrup*,mlkem*"


class User:
    """Prompts that know the secrets, and count the questions."""

    asks = True

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

    def dismiss(self) -> None:
        pass


@dataclass
class Server:
    """A running sshd, and the folder with the configuration of a client that trusts it.

    ``port2``: a second port of it. ``closed_port``: a port to which it does not allow forwarding.
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

    def onward(self, way: str, **others: object) -> NextHop:
        """Return this server as the next hop behind a host: at an address, or through a command."""
        known = {"name": "node", "host_keys": (self.host_key,), "key": self.user_key}
        if way == "address":
            return NextHop(**(known | {"address": ("127.0.0.1", self.port2)} | others))  # type: ignore[arg-type]
        command = (self.program, "-i", "-f", str(self.folder / "sshd_config"))
        return NextHop(**(known | {"command": command} | others))  # type: ignore[arg-type]

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
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-a", "1", "-C", "", "-f", path], check=True)
    return path.with_name(f"{path.name}.pub").read_text().strip()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    sshd = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/sbin:/usr/local/sbin")
    if not sshd or not shutil.which("ssh-keygen"):
        pytest.fail("these tests need OpenSSH's server; on Debian and Ubuntu: apt-get install openssh-server")
    if os.geteuid() == 0:  # Debian's sshd requires it, and only its system service creates it
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    folder = tmp_path_factory.mktemp("sshd")
    host_key = make_key(folder / "host_key")
    make_key(folder / "second_host_key", "ecdsa")
    allowed = [make_key(folder / "user_key"), make_key(folder / "locked_key", passphrase="opén sesame")]
    make_key(folder / "other_key")
    (folder / "authorized_keys").write_text("\n".join(allowed) + "\n")
    port, port2, closed_port = free_port(), free_port(), free_port()
    (folder / "sshd_config").write_text(
        f"HostKey {folder}/host_key\nHostKey {folder}/second_host_key\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nPidFile none\nStrictModes no\n"
        "UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n"
        f"SetEnv HOME={Path.home()}\n"
        f"KexAlgorithms {QUICK_KEY_EXCHANGE}\n"
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


@dataclass
class Account:
    """An account with a separate home, at an sshd that runs commands with the current user's real shell."""

    server: Server
    home: Path

    def has(self, **files: str) -> None:
        """Write start-up files into its home, named without their dots."""
        shutil.rmtree(self.home, ignore_errors=True)
        for name, text in files.items():
            path = self.home / f".{name}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.home.mkdir(exist_ok=True)


@contextlib.contextmanager
def account_at(server: Server, folder: Path, sshd_config: str = "") -> Iterator[Account]:
    """Start a second sshd with the keys of a running one, and with the home in this folder."""
    (folder / "home").mkdir()
    usual = (server.folder / "sshd_config").read_text().replace(f"HOME={Path.home()}\n", f"HOME={folder}/home\n")
    (folder / "sshd_config").write_text(sshd_config + usual)
    for name in ("user_key", "locked_key", "host_key", "host_key.pub"):
        (folder / name).write_bytes((server.folder / name).read_bytes())
        (folder / name).chmod(0o600)
    port = free_port()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {server.host_key}")
    with (folder / "log").open("w") as log:
        argv = [server.program, "-D", "-e", "-f", folder / "sshd_config", "-p", str(port)]
        daemon = subprocess.Popen(argv, stderr=log)
    there = dataclasses.replace(server, folder=folder, port=port, pid=daemon.pid)
    there.client_with(folder)
    try:
        assert wait_until(lambda: accepts(port)), (folder / "log").read_text()
        yield Account(there, folder / "home")
    finally:
        daemon.terminate()
        daemon.wait()


def accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the user's own ssh-agent out of the tests."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


Open = Callable[[Destination, Credentials], Host]

ENGINES: dict[str, Open] = {"paramiko": ParamikoHost.open, "openssh": OpenSshHost.open}


@pytest.fixture(scope="module", params=["local", *ENGINES])
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    """Each host in turn. One connection is used for all tests, as it is for a whole session."""
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
    """A function that opens a host, for each SSH engine in turn."""
    return ENGINES[request.param]


def end_connections(server: Server, but: set[psutil.Process]) -> None:
    """Kill the server's processes that serve connections, as if the network had failed."""
    # the server's first: otherwise the end of a command would be reported as normal
    servers, commands = [], []
    for process in server.connections() - but:
        with contextlib.suppress(psutil.Error):  # it may end meanwhile
            (servers if process.name().startswith("sshd") else commands).append(process)
    for process in (*servers, *commands):
        with contextlib.suppress(psutil.Error):
            process.kill()


def running(mark: str) -> list[str]:
    """Return the command lines of all processes that contain this word."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if any(mark in word for word in words):
                found.append(" ".join(words))
    return found


class Follower:
    """Records what a stream reports."""

    def __init__(self) -> None:
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.ends: queue.SimpleQueue[str] = queue.SimpleQueue()

    def next(self) -> str:
        return self.lines.get(timeout=10)


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that sends everything back, and closes when the other side does."""

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
    """Send the data, close the sending direction, and return what comes back until the end."""
    stream.settimeout(20)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(read_all(stream)))
    reader.start()
    stream.sendall(data)
    stream.shutdown(socket.SHUT_WR)
    reader.join()
    return received[0] if received else b""


class PasswordServer(paramiko.ServerInterface):
    """Accepts a password, or the answer to a question followed by a code."""

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
    """A trusted server that asks for a password (or a question)."""
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
