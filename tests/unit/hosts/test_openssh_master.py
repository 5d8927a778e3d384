"""What is special about the SSH engine over the system's ``ssh``: its master, its questions, what it leaves behind.

What it has in common with every host is in ``test_hosts.py``.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from notebook_launcher.core.errors import AuthenticationFailed, ConnectionFailed, ConnectionLost
from notebook_launcher.hosts.engine_choice import gather
from notebook_launcher.hosts.openssh import askpass
from notebook_launcher.hosts.openssh import master as ssh_master
from notebook_launcher.hosts.openssh.askpass import Asker
from notebook_launcher.hosts.openssh.host import OpenSshHost
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.hosts.ssh_config import Destination, resolve
from tests.unit.hosts.test_remote_host import (
    Server,
    User,
    accepts,
    asking,
    end_connections,
    no_agent,
    running,
    server,
    wait_until,
)

__all__ = ["asking", "no_agent", "server"]

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
def sockets(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for sockets, which is empty before and after."""
    tmp_path_factory.getbasetemp()  # pytest's own is where it was
    folder = Path(f"/tmp/nl-test-{os.getpid()}")  # a short name
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield folder
    left = list(folder.iterdir())
    subprocess.run(["rm", "-rf", folder], check=True)
    assert left == []


# --- questions -----------------------------------------------------------------------------------------------

PASSPHRASE = "Enter passphrase for key '/home/alice/.ssh/token_code': "
PASSWORD = "alice@token.example.org's password: "


class Somebody(User):
    """Gives one answer after the other."""

    def __init__(self, *answers: str | None, agrees: bool = False) -> None:
        super().__init__(agrees=agrees)
        self.answers = list(answers)

    def secret(self, text: str, *, echo: bool = False) -> str | None:
        self.asked.append(text)
        return self.answers.pop(0) if self.answers else None


class Login:
    """An asker for each login in turn, with one memory."""

    def __init__(self, folder: Path, user: User) -> None:
        self.folder, self.user = folder, user
        self.memory: dict[str, str] = {}
        self.declined = 0
        self.count = 0

    def new(self, place: str = "login", *, like: str = "", asking: bool = True) -> Asker:
        self.count += 1
        asker = Asker(
            str(self.folder / f"ask{self.count}"),
            self.user,
            self.memory,
            place,
            like=like,
            like_host="login",
            asking=asking,
            on_declined=self.decline,
        )
        asker.close()
        return asker

    def decline(self) -> None:
        self.declined += 1


@pytest.mark.parametrize("question", [PASSPHRASE, PASSWORD, "(alice@login) Password: ", "Password: ", "Password:"])
def test_a_secret_that_opened_the_door_is_asked_for_once(tmp_path: Path, question: str) -> None:
    login = Login(tmp_path, Somebody("secret"))
    first = login.new()
    assert first.answer("", question) == "secret"
    first.remember()
    assert login.new().answer("", question) == "secret"
    assert login.user.asked == [question]


@pytest.mark.parametrize("question", [PASSPHRASE, PASSWORD])
def test_a_secret_that_opened_nothing_is_not_remembered(tmp_path: Path, question: str) -> None:
    login = Login(tmp_path, Somebody("wrong", "right"))
    assert login.new().answer("", question) == "wrong"
    assert login.new().answer("", question) == "right"


def test_a_secret_that_was_refused_is_asked_for_anew(tmp_path: Path) -> None:
    login = Login(tmp_path, Somebody("old", "mistyped", "new"))
    first = login.new()
    first.answer("", PASSWORD)
    first.remember()
    second = login.new()
    assert [second.answer("", PASSWORD) for _ in range(3)] == ["old", "mistyped", "new"]
    second.remember()
    assert login.new().answer("", PASSWORD) == "new"


@pytest.mark.parametrize(
    "question",
    [
        "(alice@login) Verification code: ",
        "(alice@login) One-time password (OATH) for `alice': ",
        "(alice@login) Passcode or option (1-3): ",
        "(alice@login) Your token: ",
        "(alice@login) New password: ",
        "(alice@login) Retype new password: ",
        "Enter PIN for ED25519-SK key /home/alice/.ssh/id_ed25519_sk: ",
        "Enter PIN for 'smart card': ",
    ],
)
def test_what_is_good_only_once_is_asked_for_each_time(tmp_path: Path, question: str) -> None:
    login = Login(tmp_path, Somebody("1", "2"))
    first = login.new()
    assert first.answer("", question) == "1"
    first.remember()
    assert login.memory == {}
    assert login.new().answer("", question) == "2"


def test_a_password_is_given_to_no_other_place_and_a_passphrase_is(tmp_path: Path) -> None:
    login = Login(tmp_path, Somebody("password", "passphrase", "other"))
    first = login.new()
    first.answer("", "Password: ")
    first.answer("", PASSPHRASE)
    first.remember()
    second = login.new("node")
    assert second.answer("", PASSPHRASE) == "passphrase"
    assert second.answer("", "Password: ") == "other"


def test_a_compute_node_gets_the_password_of_its_login_node(tmp_path: Path) -> None:
    login = Login(tmp_path, Somebody("of the jump", "password", "123456", "other"))
    first = login.new()
    for question in ("alice@jump's password: ", "(alice@login) Password: ", "(alice@login) Code: "):
        first.answer("", question)
    first.remember()
    second = login.new("node", like="login", asking=False)
    assert second.answer("", "(alice@node) Password: ") == "password"
    assert second.answer("", "(alice@node) Code: ") is None
    assert login.new("node", like="login").answer("", "(alice@node) Code: ") == "other"


def test_where_nobody_may_be_asked_only_what_is_known_is_given(tmp_path: Path) -> None:
    login = Login(tmp_path, Somebody("secret", agrees=True))
    first = login.new()
    first.answer("", PASSPHRASE)
    first.remember()
    second = login.new(asking=False)
    assert second.answer("", PASSPHRASE) == "secret"
    assert second.answer("", PASSPHRASE) is None
    assert login.declined == 0, "without a passphrase ssh takes the next key"
    assert second.answer("", "Are you sure you want to continue connecting (yes/no/[fingerprint])? ") == "no"
    assert second.answer("", PASSWORD) is None
    assert (login.declined, second.declined) == (1, PASSWORD)
    assert len(login.user.asked) == 1


@pytest.mark.parametrize("agrees", [True, False])
def test_the_question_about_a_host_key(tmp_path: Path, agrees: bool) -> None:
    question = (
        "The authenticity of host 'login (192.0.2.1)' can't be established.\nED25519 key fingerprint is SHA256:abc.\n"
        "This key is not known by any other names.\n"
        "Are you sure you want to continue connecting (yes/no/[fingerprint])? "
    )
    login = Login(tmp_path, Somebody(agrees=agrees))
    assert login.new().answer("", question) == ("yes" if agrees else "no")
    (asked,) = login.user.asked
    assert "SHA256:abc" in asked
    assert asked.endswith("\nIs it the right one?")
    assert "yes/no" not in asked


def test_a_yes_or_no_and_a_notice(tmp_path: Path) -> None:
    login = Login(tmp_path, Somebody(agrees=True))
    assert login.new().answer("confirm", "Allow use of key?") == "yes"
    login.user.agrees = False
    assert login.new().answer("confirm", "Allow use of key?") is None
    assert login.new().answer("none", "Confirm user presence for key") is None
    assert len(login.user.asked) == 2


@pytest.mark.parametrize("answer", ["secret", "sécret with 'quotes' and $(x)", "", None])
def test_the_program_brings_the_question_and_the_answer(tmp_path: Path, answer: str | None) -> None:
    user = Somebody(answer)
    asker = Asker(str(tmp_path / "ask"), user, {}, "login", asking=True, on_declined=lambda: None)
    question = "Ünusual question\nin two lines: "
    command = [sys.executable, "-I", "-S", askpass.__file__, str(tmp_path / "ask"), question]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    asker.close()
    assert user.asked == [question]
    assert (done.returncode, done.stdout) == ((1, "") if answer is None else (0, f"{answer}\n"))
    assert done.stderr == ""


def test_the_program_without_a_launcher(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", askpass.__file__, str(tmp_path / "ask"), "Password: "]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


@pytest.mark.parametrize("asking", ["password"], indirect=True)
def test_a_password_that_is_typed_wrong_first(asking: Destination) -> None:
    user = Somebody("wrong", "opén")
    with OpenSshHost.open(asking, Credentials(user)) as host:
        host.reconnect()
    assert len(user.asked) == 2


@pytest.mark.parametrize("asking", ["keyboard-interactive"], indirect=True)
def test_a_code_is_asked_for_at_each_login(asking: Destination) -> None:
    user = Somebody("opén", "opén")
    with OpenSshHost.open(asking, Credentials(user)) as host:
        host.reconnect()
    assert len(user.asked) == 2


@pytest.mark.parametrize("asking", ["password"], indirect=True)
def test_whoever_takes_their_time_is_waited_for(asking: Destination, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_master, "PATIENCE_FOR_ANSWERS", 1.0)

    class Slow(Somebody):
        def secret(self, text: str, *, echo: bool = False) -> str | None:
            time.sleep(3)
            return super().secret(text)

    OpenSshHost.open(asking, Credentials(Slow("opén"))).close()


def test_no_secret_is_in_a_process_or_a_file(server: Server, tmp_path: Path, sockets: Path) -> None:
    secret = "opén sesame"
    seen: queue.SimpleQueue[str] = queue.SimpleQueue()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    for text in (*process.cmdline(), *process.environ().values()):
                        seen.put(text) if secret in text else None
            with contextlib.suppress(OSError):  # they come and go
                for path in sockets.rglob("*"):
                    seen.put(str(path)) if path.is_file() and secret.encode() in path.read_bytes() else None

    watcher = threading.Thread(target=look)
    watcher.start()
    user = User(secret)
    destination = server.client_with(tmp_path, IdentityFile=str(server.folder / "locked_key"))
    with OpenSshHost.open(destination, Credentials(user)) as host:
        assert host.run(["cat"], stdin=secret.encode()).stdout == secret
        host.link(server.onward("address", key=None)).close()
    stop.set()
    watcher.join()
    assert len(user.asked) == 1
    assert seen.empty(), seen.get()


# --- whose master it is --------------------------------------------------------------------------------------


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
        link = host.link(server.onward("address"))
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
        assert time.monotonic() - began < 6


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
        host.link(server.onward("command", command=command))
    assert caught.value.why == "srun: error: no such job"


def test_a_refused_connection_says_why(server: Server) -> None:
    with OpenSshHost.open(server.destination(), Credentials(User())) as host:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        with pytest.raises(OSError, match="Connection refused"):
            host.open_stream(("127.0.0.1", port))


# --- what is left --------------------------------------------------------------------------------------------

OPENS = """
import sys, time
from notebook_launcher.hosts.base import Nobody, Onward
from notebook_launcher.hosts.openssh.host import OpenSshHost
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.hosts.ssh_config import Destination
config, port, key, host_key, folder = sys.argv[1:]
import tempfile; tempfile.tempdir = folder
host = OpenSshHost.open(Destination("server", config_file=config), Credentials(Nobody()))
link = host.link(Onward("node", ("127.0.0.1", int(port)), host_keys=(host_key,), key=open(key).read()))
stream = host.stream(["sh", "-c", "echo up; cat"], lambda line: print(line, flush=True), print)
time.sleep(60)
"""


def of(folder: Path) -> list[str]:
    """The processes that have to do with a folder for sockets, but for the launcher itself."""
    return [line for line in running(f"{folder}/{ssh_master._PREFIX}") if "import tempfile" not in line]


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
    program = OPENS.replace("Nobody()", "Waits()").replace("config, port", f"{waits}config, port")
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
    assert of(sockets) == []


def test_an_interrupt_while_it_asks_leaves_nothing(server: Server, tmp_path: Path, sockets: Path) -> None:
    class Interrupts(User):
        def secret(self, text: str, *, echo: bool = False) -> str | None:
            os.kill(os.getpid(), signal.SIGINT)
            return None

    destination = server.client_with(tmp_path, IdentityFile=str(server.folder / "locked_key"))
    with pytest.raises(KeyboardInterrupt):
        OpenSshHost.open(destination, Credentials(Interrupts()))
    assert list(sockets.iterdir()) == []
    assert of(sockets) == []


def test_what_others_left_behind_is_swept_away(server: Server, sockets: Path) -> None:
    old, new, held, strange = (sockets / f"{ssh_master._PREFIX}{name}" for name in ("old", "new", "held", "strange"))
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
    assert of(sockets) == []
