"""Whose master is taken, and what is left when it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from notebook_launcher.core.errors import AuthenticationFailed, ConnectionFailed, ConnectionLost
from notebook_launcher.hosts.engine_choice import gather
from notebook_launcher.hosts.openssh import master
from notebook_launcher.hosts.openssh.host import OpenSshHost
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.hosts.ssh_config import Destination, resolve
from tests.doubles import wait_until
from tests.ssh_server import Server, User, accepts, end_connections, running
from tests.unit.hosts.openssh_sockets import sockets

__all__ = ["sockets"]

pytestmark = [pytest.mark.timeout(60), pytest.mark.real_time]


@pytest.fixture
def users_master(server: Server, tmp_path: Path) -> Iterator[tuple[Destination, Path]]:
    """A configuration with a ControlPath, and the user's own master on it."""
    path = Path(f"/tmp/nl-users-{os.getpid()}%x")
    destination = server.client_with(tmp_path, ControlPath=f"/tmp/nl-users-{os.getpid()}%%x", ControlPersist="yes")
    subprocess.run(["ssh", "-F", str(destination.config_file), "-M", "-N", "-f", "server"], check=True)
    yield destination, path
    control = ["ssh", "-F", str(destination.config_file), "-O", "exit", "server"]
    subprocess.run(control, check=False, stderr=subprocess.DEVNULL)


def test_the_users_master_is_taken_and_left(server: Server, users_master: tuple[Destination, Path]) -> None:
    destination, path = users_master
    before = server.connections()
    with OpenSshHost.open(destination, Credentials(User())) as host:
        assert host.run(["echo", "in"]).stdout == "in\n"
        assert server.connections() - before <= set(psutil.Process(server.pid).children(recursive=True))
        host.reconnect()
        assert host.run(["echo", "still"]).stdout == "still\n"
        link = host.open_route(server.onward("address"))
        link.close()
    assert gather(resolve(destination)).live_master == str(path)
    assert not host.alive or host.run(["true"]).exit_code == 0  # closing ends nothing that is the user's


def test_after_the_users_master_comes_one_of_our_own(
    server: Server, users_master: tuple[Destination, Path], sockets: Path
) -> None:
    destination, path = users_master
    with OpenSshHost.open(destination, Credentials(User())) as host:
        assert list(sockets.iterdir()) == []
        subprocess.run(
            ["ssh", "-F", str(destination.config_file), "-O", "exit", "server"], check=True, capture_output=True
        )
        assert wait_until(lambda: not host.alive)
        with pytest.raises(ConnectionLost):
            host.run(["true"])
        host.reconnect()
        assert host.run(["echo", "own"]).stdout == "own\n"
        assert len(list(sockets.iterdir())) == 1
        assert not path.exists()


def test_a_users_master_that_leads_nowhere_is_not_taken(
    server: Server, users_master: tuple[Destination, Path], sockets: Path, tmp_path: Path
) -> None:
    """Its network is gone, and it does not know that yet."""
    destination, _ = users_master
    server.client_with(tmp_path, ControlPath=f"/tmp/nl-users-{os.getpid()}%%x", ConnectTimeout="2")
    stopped = [p for p in server.connections() if p.create_time() > time.time() - 20]
    for process in stopped:
        process.suspend()
    try:
        with OpenSshHost.open(destination, Credentials(User())) as host:
            assert host.run(["echo", "own"]).stdout == "own\n"
            assert len(list(sockets.iterdir())) == 1
    finally:
        for process in stopped:
            with contextlib.suppress(psutil.NoSuchProcess):  # it may have ended by itself
                process.resume()


@pytest.mark.parametrize(
    "options",
    [
        {"RemoteCommand": "echo remote", "RequestTTY": "force"},
        {"LogLevel": "QUIET"},
        {"ControlMaster": "auto", "ControlPath": "/tmp/nl-none-%C", "ControlPersist": "yes"},
        {"ForkAfterAuthentication": "yes", "SessionType": "none"},
        {"LocalCommand": "touch /tmp/nl-local-command", "PermitLocalCommand": "yes"},
        {"Compression": "yes", "SendEnv": "*", "ForwardAgent": "yes", "ForwardX11": "yes"},
    ],
    ids=lambda options: ",".join(options),
)
def test_what_the_configuration_says_for_people_does_no_harm(
    server: Server, tmp_path: Path, options: dict[str, str]
) -> None:
    with OpenSshHost.open(server.client_with(tmp_path, **options), Credentials(User())) as host:
        assert host.run(["echo", "in"]).stdout == "in\n"
    assert not Path("/tmp/nl-local-command").exists()
    assert list(Path("/tmp").glob("nl-none-*")) == []


def test_forwards_of_the_configuration_are_not_made(server: Server, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    options = {"LocalForward": f"{port} 127.0.0.1:22", "ExitOnForwardFailure": "yes"}
    with OpenSshHost.open(server.client_with(tmp_path, **options), Credentials(User())):
        assert not accepts(port)


def test_a_broken_configuration(server: Server, tmp_path: Path) -> None:
    destination = server.client_with(tmp_path, NoSuchOption="yes")
    with pytest.raises(ConnectionFailed, match="configuration"):
        OpenSshHost.open(destination, Credentials(User()))


def test_a_server_that_is_silent_is_not_waited_for_long(server: Server, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        destination = server.client_with(tmp_path, Port=str(listener.getsockname()[1]), ConnectTimeout="1")
        began = time.monotonic()
        with pytest.raises(ConnectionFailed):
            OpenSshHost.open(destination, Credentials(User()))
        assert time.monotonic() - began < 15


@pytest.mark.parametrize(
    ("hop", "what"),
    [("127.0.0.1", r"127\.0\.0\.1 port \d+ cannot be reached"), ("no-such-hop.invalid", "name no-such-hop")],
)
def test_a_jump_that_fails_is_the_one_that_is_named(server: Server, tmp_path: Path, hop: str, what: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    destination = server.client_with(tmp_path, ProxyJump=f"{hop}:{port}")
    with pytest.raises(ConnectionFailed, match=what):
        OpenSshHost.open(destination, Credentials(User()))


def test_a_command_that_leads_nowhere_says_why(server: Server) -> None:
    command = ("sh", "-c", "echo 'srun: error: no such job' >&2; exit 1")
    with (
        OpenSshHost.open(server.destination(), Credentials(User())) as host,
        pytest.raises(ConnectionFailed) as caught,
    ):
        host.open_route(server.onward("command", command=command))
    assert caught.value.why == "srun: error: no such job"


def test_a_refused_connection_says_why(server: Server) -> None:
    with OpenSshHost.open(server.destination(), Credentials(User())) as host:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        with pytest.raises(OSError, match="Connection refused"):
            host.open_stream(("127.0.0.1", port))


OPENS = """
import sys, time
from notebook_launcher.hosts.base import NextHop, NoPrompts
from notebook_launcher.hosts.openssh.host import OpenSshHost
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.hosts.ssh_config import Destination
config, port, key, host_key, folder = sys.argv[1:]
import tempfile; tempfile.tempdir = folder
host = OpenSshHost.open(Destination("server", config_file=config), Credentials(NoPrompts()))
link = host.open_route(NextHop("node", ("127.0.0.1", int(port)), host_keys=(host_key,), key=open(key).read()))
stream = host.stream(["sh", "-c", "echo up; cat"], lambda line: print(line, flush=True), print)
time.sleep(60)
"""


def of(folder: Path) -> list[str]:
    """The processes that have to do with a folder for sockets, but for the launcher itself."""
    return [line for line in running(f"{folder}/{master._PREFIX}") if "import tempfile" not in line]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_launcher_that_is_killed_leaves_nothing(server: Server, sockets: Path, number: signal.Signals) -> None:
    before = server.connections()
    arguments = [server.config, str(server.port2), str(server.folder / "user_key"), server.host_key, str(sockets)]
    launcher = subprocess.Popen(
        [sys.executable, "-c", OPENS, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert launcher.stdout is not None
    assert launcher.stdout.readline() == "up\n"
    assert len([line for line in of(sockets) if line.startswith("/")]) >= 2
    launcher.send_signal(number)
    launcher.wait()
    assert wait_until(lambda: not of(sockets)), of(sockets)
    assert wait_until(lambda: not list(sockets.iterdir()))
    assert wait_until(lambda: not server.connections() - before)


@pytest.mark.parametrize("asking", ["password"], indirect=True)
def test_a_launcher_that_is_killed_while_it_asks_leaves_nothing(asking: Destination, sockets: Path) -> None:
    waits = "class Waits:\n    def secret(self, text):\n        print('asked', flush=True); time.sleep(60)\n"
    program = OPENS.replace("NoPrompts()", "Waits()").replace("config, port", f"{waits}config, port")
    launcher = subprocess.Popen(
        [sys.executable, "-c", program, str(asking.config_file), "1", "-", "-", str(sockets)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert launcher.stdout is not None
    assert launcher.stdout.readline() == "asked\n"
    launcher.kill()
    launcher.wait()
    assert wait_until(lambda: not of(sockets)), of(sockets)
    assert wait_until(lambda: not list(sockets.iterdir()))


def test_the_master_is_out_of_the_terminals_reach(server: Server, sockets: Path) -> None:
    with OpenSshHost.open(server.destination(), Credentials(User())):
        masters = [p for p in psutil.Process().children(recursive=True) if p.name() == "ssh"]
        assert masters
        assert all(os.getsid(p.pid) != os.getsid(0) for p in masters)
        (folder,) = sockets.iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {p.stat().st_mode & 0o077 for p in folder.iterdir()} <= {0, 0o055, 0o044}


def test_a_login_that_fails_leaves_nothing(server: Server, tmp_path: Path, sockets: Path) -> None:
    destination = server.client_with(tmp_path, IdentityFile=str(server.folder / "other_key"))
    with pytest.raises(AuthenticationFailed):
        OpenSshHost.open(destination, Credentials(User()))
    assert list(sockets.iterdir()) == []
    assert wait_until(lambda: not of(sockets)), of(sockets)  # what ssh has started sees that the launcher is gone


def test_an_interrupt_while_it_asks_leaves_nothing(server: Server, tmp_path: Path, sockets: Path) -> None:
    class Interrupts(User):
        def secret(self, text: str, *, echo: bool = False) -> str | None:
            os.kill(os.getpid(), signal.SIGINT)
            return None

    destination = server.client_with(tmp_path, IdentityFile=str(server.folder / "locked_key"))
    with pytest.raises(KeyboardInterrupt):
        OpenSshHost.open(destination, Credentials(Interrupts()))
    assert list(sockets.iterdir()) == []
    assert wait_until(lambda: not of(sockets)), of(sockets)  # what ssh has started sees that the launcher is gone


def test_what_others_left_behind_is_swept_away(server: Server, sockets: Path) -> None:
    old, new, held, strange = (sockets / f"{master._PREFIX}{name}" for name in ("old", "new", "held", "strange"))
    for folder in (old, new, held, strange):
        folder.mkdir()
        (folder / "ctl").write_text("")
        if folder != strange:
            (folder / "lock").write_text("")
    import fcntl

    with (held / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for folder in (old, held, strange):
            os.utime(folder, (time.time() - 3600,) * 2)
        OpenSshHost.open(server.destination(), Credentials(User())).close()
    assert sorted(sockets.iterdir()) == sorted([new, held, strange])
    for folder in (new, held, strange):
        subprocess.run(["rm", "-rf", folder], check=True)


@pytest.mark.parametrize("name", ["x" * 60, "with space", "per%cent", "quo'te"])
def test_a_folder_with_a_name_that_ssh_would_not_take_is_not_taken(
    server: Server, sockets: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = sockets / name
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with OpenSshHost.open(server.destination(), Credentials(User())) as host:
        assert host.run(["echo", "in"]).stdout == "in\n"
        assert list(folder.iterdir()) == []
    folder.rmdir()


def test_a_connection_that_breaks_leaves_nothing(server: Server, sockets: Path) -> None:
    before = server.connections()
    host = OpenSshHost.open(server.destination(), Credentials(User()))
    end_connections(server, before)
    assert wait_until(lambda: not host.alive)
    assert wait_until(lambda: not list(sockets.iterdir()))
    host.close()
    assert wait_until(lambda: not of(sockets)), of(sockets)  # what ssh has started sees that the launcher is gone
