"""Servers to log in at: of passwords and questions, and a real sshd for keys; and somebody who answers."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paramiko
import pytest
from paramiko.common import AUTH_FAILED, AUTH_PARTIALLY_SUCCESSFUL, AUTH_SUCCESSFUL
from paramiko.server import InteractiveQuery

from notebook_launcher.hosts.paramiko.connection import open_transport
from notebook_launcher.hosts.paramiko.host import ParamikoHost
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.hosts.ssh_config import Destination, SshSettings
from tests.doubles import wait_until
from tests.ports import free_port
from tests.ssh_server import QUICK_KEY_EXCHANGE

HOST_KEY = paramiko.ECDSAKey.generate()

ME = getpass.getuser()


class User:
    """Gives answers one after the other, the last one again and again, and notes what was asked."""

    asks = True

    def __init__(self, *answers: str | None, agrees: bool = False, meanwhile: Callable[[], object] | None = None):
        self.answers = list(answers)
        self.agrees = agrees
        self.meanwhile = meanwhile
        self.asked: list[str] = []
        self.echoed: list[bool] = []

    def secret(self, text: str, *, echo: bool = False) -> str | None:
        self.asked.append(text)
        self.echoed.append(echo)
        if self.meanwhile:
            self.meanwhile()
        if not self.answers:
            return None
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def confirm(self, text: str) -> bool:
        self.asked.append(text)
        return self.agrees

    def dismiss(self) -> None:
        pass


@dataclass(frozen=True)
class Round:
    """A round of questions, and the answers that are right."""

    questions: tuple[str, ...] = ("Password: ",)
    right: tuple[str, ...] = ("sesame",)
    title: str = ""
    instructions: str = ""
    shown: bool = False


@dataclass
class Door:
    """A server, what opens it, and what it was given. ``stages``: the methods that it wants one after the other."""

    stages: Sequence[str] = ("password",)
    password: str = "sesame"
    rounds: Sequence[Round] = (Round(),)
    key: paramiko.PKey | None = None
    got: list[object] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    transports: list[paramiko.Transport] = field(default_factory=list)
    port: int = 0

    def close(self) -> None:
        for transport in self.transports:
            transport.close()

    def hang_up(self) -> None:
        """End all connections, and give the client the time to notice."""
        self.close()
        time.sleep(0.6)

    def settings(self, **others: Any) -> SshSettings:
        known = Path(os.environ["TEST_KNOWN_HOSTS"])
        with known.open("a") as file:
            file.write(f"[127.0.0.1]:{self.port} {HOST_KEY.get_name()} {HOST_KEY.get_base64()}\n")
        usual: dict[str, Any] = {"identity_agent": "none", "user_known_hosts": (known,), "connect_timeout": 5.0}
        return SshSettings(**({"destination": "login", "hostname": "127.0.0.1", "user": "alice"} | usual
                              | {"port": self.port} | others))  # fmt: skip


class Keeper(paramiko.ServerInterface):
    """One connection to a door."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.context = 0
        self.round = 0
        self.wrong = False

    def get_allowed_auths(self, username: str) -> str:
        return self.door.stages[self.context]

    def _result(self, right: bool) -> int:
        if not right:
            return AUTH_FAILED
        self.context += 1
        if self.context < len(self.door.stages):
            return AUTH_PARTIALLY_SUCCESSFUL
        self.context -= 1
        return AUTH_SUCCESSFUL

    def check_auth_none(self, username: str) -> int:
        self.door.users.append(username)
        return AUTH_FAILED

    def check_auth_password(self, username: str, password: str) -> int:
        self.door.got.append(password)
        return self._result(password == self.door.password)

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self.door.got.append(key.get_base64())
        wanted = self.door.key
        right = wanted is not None and key.get_base64() == wanted.get_base64()
        # asked about a key, and then given its signature: it counts once
        return self._result(right) if len(self.door.stages) > 1 else (AUTH_SUCCESSFUL if right else AUTH_FAILED)

    def check_auth_interactive(self, username: str, submethods: str) -> InteractiveQuery | int:
        self.round, self.wrong = 0, False
        return self._ask()

    def _ask(self) -> InteractiveQuery | int:
        if self.round == len(self.door.rounds):
            return self._result(not self.wrong)
        this = self.door.rounds[self.round]
        return InteractiveQuery(this.title, this.instructions, *((text, this.shown) for text in this.questions))

    def check_auth_interactive_response(self, responses: list[str]) -> InteractiveQuery | int:
        self.door.got.extend(responses)
        self.wrong |= tuple(responses) != self.door.rounds[self.round].right
        self.round += 1
        return self._ask()

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.common.OPEN_SUCCEEDED

    def check_channel_direct_tcpip_request(self, chanid: int, origin: object, destination: tuple[str, int]) -> int:
        threading.Thread(target=self._carry, args=(destination,), daemon=True).start()
        return paramiko.common.OPEN_SUCCEEDED

    def _carry(self, destination: tuple[str, int]) -> None:
        channel = self.door.transports[-1].accept(5) or self.door.transports[0].accept(5)
        if channel:
            with socket.create_connection(destination) as far:
                back = threading.Thread(target=_copy, args=(far, channel), daemon=True)
                back.start()
                _copy(channel, far)


def _copy(source: Any, sink: Any) -> None:
    with contextlib.suppress(OSError, EOFError):  # the latter from paramiko, while it sends to a client that has gone
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


Open = Callable[..., Door]


@pytest.fixture
def a_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Servers, as many as a test wants."""
    monkeypatch.setenv("TEST_KNOWN_HOSTS", str(tmp_path / "doors"))
    with contextlib.ExitStack() as stack:

        def open_door(*stages: str, **others: Any) -> Door:
            door = Door(stages or ("password",), **others)
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            door.port = listener.getsockname()[1]
            threading.Thread(target=serve, args=(door, listener), daemon=True).start()
            stack.callback(door.close)
            return door

        def serve(door: Door, listener: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while True:
                    transport = paramiko.Transport(listener.accept()[0])
                    transport.add_server_key(HOST_KEY)
                    door.transports.append(transport)
                    with contextlib.suppress(paramiko.SSHException, EOFError):
                        transport.start_server(threading.Event(), Keeper(door))

        yield open_door


def enter(door: Door, user: User | Credentials, **others: Any) -> None:
    credentials = user if isinstance(user, Credentials) else Credentials(user)
    open_transport(door.settings(**others), credentials).close()


KBD = "keyboard-interactive"

CODE = Round(("Verification code: ",), ("123456",))


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "", *more: str) -> str:
    """Make a key pair and return its public half."""
    more = ("-a", "1", *more) if passphrase else more
    more = ("-b", "2048", *more) if kind == "rsa" else more  # quick
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", path.name, "-f", path, *more], check=True)
    return path.with_name(f"{path.name}.pub").read_text().strip()


def public(path: Path) -> str:
    return path.with_name(f"{path.name}.pub").read_text().strip()


@dataclass
class Sshd:
    """A real sshd with a host key of its own, and what it has logged."""

    folder: Path
    port: int
    daemon: subprocess.Popen[bytes]

    @property
    def host_key(self) -> str:
        return public(self.folder / "host_key")

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def known(self, path: Path) -> Path:
        path.write_text(f"[127.0.0.1]:{self.port} {self.host_key}\n")
        return path

    def allow(self, *keys: str) -> None:
        (self.folder / "authorized_keys").write_text("\n".join(keys) + "\n")

    def config(self, path: Path, **options: str) -> Destination:
        """Return a destination as the user's configuration describes it; ``;`` stands between several values."""
        usual = {
            "HostName": "127.0.0.1",
            "Port": str(self.port),
            "UserKnownHostsFile": str(self.known(path.with_name("known_real"))),
            "GlobalKnownHostsFile": "none",
            "IdentityFile": "none",
            "IdentityAgent": "none",
            "ConnectTimeout": "10",
        }
        lines = [f"  {name} {value}" for name, values in (usual | options).items() for value in values.split(";")]
        path.write_text("\n".join(["Host server", *lines, ""]))
        return Destination("server", config_file=str(path))


Start = Callable[..., Sshd]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Start sshds, as many as a test wants; each lives as long as this file's tests."""
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if not sshd or not shutil.which("ssh-agent"):
        pytest.fail("these tests need OpenSSH; on Debian and Ubuntu: apt-get install openssh-server openssh-client")
    if os.geteuid() == 0:  # Debian's sshd wants it, and only its system service makes it
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with contextlib.ExitStack() as stack:

        def start(kind: str = "ed25519", **options: str) -> Sshd:
            folder = tmp_path_factory.mktemp("sshd")
            make_key(folder / "host_key", kind)
            usual = {
                "HostKey": f"{folder}/host_key",
                "AuthorizedKeysFile": f"{folder}/authorized_keys",
                "PidFile": "none",
                "StrictModes": "no",
                "UsePAM": "no",
                "PasswordAuthentication": "no",
                "KbdInteractiveAuthentication": "no",
                "PermitRootLogin": "yes",
                "SetEnv": f"HOME={Path.home()}",  # of the tests, with no start-up files
                "ListenAddress": "127.0.0.1",
                "KexAlgorithms": QUICK_KEY_EXCHANGE,
                "LogLevel": "VERBOSE",
            }
            text = "".join(f"{name} {value}\n" for name, value in (usual | options).items())
            (folder / "sshd_config").write_text(text)
            port = free_port()
            with (folder / "log").open("w") as log:
                command = [sshd, "-D", "-e", "-f", folder / "sshd_config", "-p", str(port)]
                server = Sshd(folder, port, subprocess.Popen(command, stderr=log))
            stack.callback(server.daemon.wait)
            stack.callback(server.daemon.terminate)
            assert wait_until(lambda: "Server listening" in server.log), server.log
            return server

        yield start


@pytest.fixture(scope="module")
def server(start: Start) -> Sshd:
    return start(MaxAuthTries="3")


def get_in(destination: Destination, user: User | Credentials | None = None) -> None:
    credentials = user if isinstance(user, Credentials) else Credentials(user or User())
    with ParamikoHost.open(destination, credentials) as host:
        assert host.run(["echo", "in"]).stdout == "in\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("authority") / "authority"
    make_key(path)
    return path


@pytest.fixture(scope="module")
def certifying(start: Start, authority: Path) -> Sshd:
    server = start(TrustedUserCAKeys=f"{authority}.pub")
    server.allow("")
    return server


def certify(authority: Path, key: Path, name: str | None = None) -> Path:
    """Sign a key; OpenSSH names the certificate after it, a ``name`` puts it elsewhere."""
    subprocess.run(["ssh-keygen", "-q", "-s", authority, "-I", "id", "-n", ME, f"{key}.pub"], check=True)
    made = key.with_name(f"{key.name}-cert.pub")
    return made.rename(key.with_name(name)) if name else made


@pytest.fixture
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A real ssh-agent, and the path of its socket."""
    path = tmp_path_factory.mktemp("a") / "agent"  # short: a socket's path may have 107 bytes
    with subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL) as process:
        assert wait_until(path.exists)
        yield path
        process.terminate()


def add(agent: Path, *keys: Path) -> None:
    environment = {**os.environ, "SSH_AUTH_SOCK": str(agent)}
    subprocess.run(["ssh-add", "-q", *keys], env=environment, check=True)


@pytest.fixture(scope="module")
def host_keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("other")
    return {"OTHER": make_key(folder / "other"), "RSA": make_key(folder / "rsa", "rsa")}
