"""Getting in once: every secret is asked for once, and given only to the machine that it was typed for.

Keys, certificates, agents and jumps are tried on real sshds, which the tests start on 127.0.0.1; passwords and
questions on servers of paramiko's, because a real one would need accounts with passwords.
"""

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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import paramiko
import psutil  # type: ignore[import-untyped]
import pytest
from paramiko.common import AUTH_FAILED, AUTH_PARTIALLY_SUCCESSFUL, AUTH_SUCCESSFUL
from paramiko.server import InteractiveQuery

from notebook_launcher.core.errors import AuthenticationFailed, ConnectionFailed, HostKeyChanged, HostKeyUnknown
from notebook_launcher.hosts.base import Onward
from notebook_launcher.hosts.paramiko import login as ssh_auth
from notebook_launcher.hosts.paramiko.connection import ParamikoHost, connect
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.hosts.ssh_config import Destination, SshSettings, resolve

pytestmark = pytest.mark.timeout(30)

HOST_KEY = paramiko.ECDSAKey.generate()
ME = getpass.getuser()


class User:
    """Gives answers one after the other, the last one again and again, and notes what was asked."""

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


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys of whoever runs the tests stay out of them."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


# --- servers of passwords and questions ----------------------------------------------------------------------


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
        time.sleep(0.3)

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
        self.stage = 0
        self.round = 0
        self.wrong = False

    def get_allowed_auths(self, username: str) -> str:
        return self.door.stages[self.stage]

    def _judge(self, right: bool) -> int:
        if not right:
            return AUTH_FAILED
        self.stage += 1
        if self.stage < len(self.door.stages):
            return AUTH_PARTIALLY_SUCCESSFUL
        self.stage -= 1
        return AUTH_SUCCESSFUL

    def check_auth_none(self, username: str) -> int:
        self.door.users.append(username)
        return AUTH_FAILED

    def check_auth_password(self, username: str, password: str) -> int:
        self.door.got.append(password)
        return self._judge(password == self.door.password)

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self.door.got.append(key.get_base64())
        wanted = self.door.key
        right = wanted is not None and key.get_base64() == wanted.get_base64()
        # asked about a key, and then given its signature: it counts once
        return self._judge(right) if len(self.door.stages) > 1 else (AUTH_SUCCESSFUL if right else AUTH_FAILED)

    def check_auth_interactive(self, username: str, submethods: str) -> InteractiveQuery | int:
        self.round, self.wrong = 0, False
        return self._ask()

    def _ask(self) -> InteractiveQuery | int:
        if self.round == len(self.door.rounds):
            return self._judge(not self.wrong)
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
    with contextlib.suppress(OSError):
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
    connect(door.settings(**others), credentials).close()


KBD = "keyboard-interactive"
CODE = Round(("Verification code: ",), ("123456",))


@pytest.mark.parametrize("method", ["password", KBD])
def test_a_password_is_asked_for_once_however_many_connections(a_door: Open, method: str) -> None:
    door, user = a_door(method), User("sesame")
    credentials = Credentials(user)
    for _ in range(4):
        enter(door, credentials)
    assert len(user.asked) == 1
    assert door.got == ["sesame"] * 4


@pytest.mark.parametrize(("first", "then"), [("password", KBD), (KBD, "password")])
def test_a_password_serves_both_methods(a_door: Open, first: str, then: str) -> None:
    door, user = a_door(first), User("sesame")
    credentials = Credentials(user)
    enter(door, credentials)
    door.stages = (then,)
    enter(door, credentials)
    assert len(user.asked) == 1


@pytest.mark.parametrize("other", [{"port": 1}, {"user": "bob"}, {"proxy_jump": ("jump",)}, {"hostname": "other"}])
def test_another_account_is_another_account(other: dict[str, Any]) -> None:
    login = SshSettings("login", "login", "alice")
    assert replace(login, **other).account != login.account
    assert replace(login, hostname="LOGIN", host_key_alias="x", destination="y").account == login.account
    assert replace(login, **other, shares_secrets_with=login.account).account == login.account


@pytest.mark.parametrize("method", ["password", KBD])
def test_a_password_typed_for_one_machine_is_never_sent_to_another(a_door: Open, method: str) -> None:
    one, other = a_door(method), a_door(method, password="else", rounds=[Round(right=("else",))])
    user = User("sesame", "else")
    credentials = Credentials(user)
    enter(one, credentials)
    enter(other, credentials)
    enter(one, credentials)
    assert one.got == ["sesame", "sesame"]
    assert other.got == ["else"]
    assert len(user.asked) == 2


def test_a_compute_node_gets_the_login_nodes_password_and_nothing_is_asked_again(a_door: Open) -> None:
    login, node, user = a_door("password"), a_door(KBD), User("sesame")
    settings, credentials = login.settings(), Credentials(user)
    with ParamikoHost(connect(settings, credentials), Destination("login"), settings, credentials) as host:
        key = f"{HOST_KEY.get_name()} {HOST_KEY.get_base64()}"
        for asking in (False, True):
            link = host.link(Onward("node1", ("127.0.0.1", node.port), (), (key,), None, asking))
            assert link.alive
            link.close()
    assert len(user.asked) == 1
    assert node.got == ["sesame"] * 2
    assert node.users == ["alice"] * 2


def test_a_node_that_may_not_ask_does_not(a_door: Open) -> None:
    login, node, user = a_door("password"), a_door(KBD, rounds=[CODE]), User("sesame", "123456")
    settings, credentials = login.settings(), Credentials(user)
    with ParamikoHost(connect(settings, credentials), Destination("login"), settings, credentials) as host:
        key = f"{HOST_KEY.get_name()} {HOST_KEY.get_base64()}"
        with pytest.raises(AuthenticationFailed):
            host.link(Onward("node1", ("127.0.0.1", node.port), (), (key,), None, asking=False))
        assert len(user.asked) == 1
        host.link(Onward("node1", ("127.0.0.1", node.port), (), (key,))).close()
    assert len(user.asked) == 2


@pytest.mark.parametrize("method", ["password", KBD])
def test_a_password_that_is_good_no_more_is_given_once_and_then_asked_for(a_door: Open, method: str) -> None:
    door, user = a_door(method), User("sesame", "new")
    credentials = Credentials(user)
    enter(door, credentials)
    door.password, door.rounds = "new", [Round(right=("new",))]
    enter(door, credentials)
    assert door.got == ["sesame", "sesame", "new"]
    assert len(user.asked) == 2


@pytest.mark.parametrize("methods", ["password", KBD, f"{KBD},password"])
def test_a_known_password_that_is_refused_is_sent_only_once(a_door: Open, methods: str) -> None:
    door, user = a_door(methods), User("sesame")
    credentials = Credentials(user)
    enter(door, credentials)
    door.password, door.rounds = "new", [Round(right=("new",))]
    user.answers, door.got = [], []
    with pytest.raises(AuthenticationFailed):
        enter(door, credentials)
    assert door.got == ["sesame"]


def test_what_is_called_a_password_and_is_good_only_once_is_not_given_again(a_door: Open) -> None:
    door, user = a_door(KBD), User("one", "two", "three")
    credentials = Credentials(user)
    for word in ("one", "two", "three"):
        door.rounds = [Round(right=(word,))]
        enter(door, credentials)
    assert door.got == ["one", "one", "two", "three"]
    assert len(user.asked) == 3


def test_a_code_is_asked_for_each_time_and_the_password_once(a_door: Open) -> None:
    door, user = a_door(KBD, rounds=[Round(), CODE]), User("sesame", "123456")
    credentials = Credentials(user)
    enter(door, credentials)
    enter(door, credentials)
    assert [text.partition(") ")[2] for text in user.asked] == ["Password: ", *["Verification code: "] * 2]
    assert door.got == ["sesame", "123456"] * 2


def test_two_passwords_in_one_login_are_two(a_door: Open) -> None:
    """As where the second one is a token's: the first is known the next time, and not given in its place."""
    door, user = a_door(KBD, rounds=[Round(), Round(right=("token",))]), User("sesame", "token")
    credentials = Credentials(user)
    enter(door, credentials)
    enter(door, credentials)
    assert door.got == ["sesame", "token"] * 2
    assert len(user.asked) == 3


def test_a_wrong_code_does_not_send_the_password_again_and_again(a_door: Open) -> None:
    door, user = a_door(KBD, rounds=[Round(), CODE]), User("sesame", "123456")
    credentials = Credentials(user)
    enter(door, credentials)
    user.answers, door.got = ["wrong", "sesame", "123456"], []
    enter(door, credentials)
    assert door.got == ["sesame", "wrong", "sesame", "123456"]
    user.answers, door.got = ["123456"], []
    enter(door, credentials)
    assert door.got == ["sesame", "123456"]


def test_a_password_that_has_to_be_changed_is_not_kept(a_door: Open) -> None:
    change = Round(("New password: ", "Retype new password: "), ("new", "new"))
    door, user = a_door(KBD, rounds=[Round(), change]), User("sesame", "new")
    credentials = Credentials(user)
    enter(door, credentials)
    door.rounds = [Round(right=("new",))]
    enter(door, credentials)
    assert door.got == ["sesame", "new", "new", "new"]


@pytest.mark.parametrize(
    ("question", "kept"),
    [
        ("Password: ", True), ("alice's password: ", True), ("Mot de passe : ", True), ("Contraseña: ", True),
        ("Passwort: ", True), ("LDAP Password:", True), ("One-time password (OATH) for `alice': ", False),
        ("Passcode or option (1-3): ", False), ("Verification code: ", False), ("Password + OTP: ", False),
        ("Token: ", False), ("Duo passcode: ", False), ("Second factor password: ", False), ("PIN: ", False),
        ("What is your name? ", False), ("Password and verification code: ", False),
    ],
)  # fmt: skip
def test_which_answers_are_kept(a_door: Open, question: str, kept: bool) -> None:
    door, user = a_door(KBD, rounds=[Round((question,))]), User("sesame")
    credentials = Credentials(user)
    enter(door, credentials)
    enter(door, credentials)
    assert len(user.asked) == (1 if kept else 2)


def test_the_words_around_a_question_may_say_that_it_is_a_code(a_door: Open) -> None:
    door, user = a_door(KBD, rounds=[Round(instructions="Enter your one-time password.")]), User("sesame")
    credentials = Credentials(user)
    enter(door, credentials)
    enter(door, credentials)
    assert len(user.asked) == 2


def test_what_is_typed_openly_is_no_password_and_is_shown(a_door: Open) -> None:
    door, user = a_door(KBD, rounds=[Round(("Password or name: ",), shown=True), CODE]), User("sesame", "123456")
    credentials = Credentials(user)
    enter(door, credentials)
    user.answers = ["sesame", "123456"]
    enter(door, credentials)
    assert user.echoed == [True, False] * 2


def test_titles_and_instructions_are_shown_with_the_question_and_a_round_without_questions_is_answered(
    a_door: Open,
) -> None:
    rounds = [
        Round((), (), "Welcome", "Have your telephone ready."),
        Round(("Option: \x1b[31m", "Code: "), ("1", "2"), "Duo", "1. Push\n2. Call\x1b]0;pwned\x07"),
    ]
    door, user = a_door(KBD, rounds=rounds), User("1", "2")
    enter(door, user)
    assert user.asked == [
        "Welcome\nHave your telephone ready.\nDuo\n1. Push\n2. Call\n(login) Option: ",
        "(login) Code: ",
    ]
    assert door.got == ["1", "2"]


def test_rounds_without_end_are_given_up(a_door: Open) -> None:
    door, user = a_door(KBD, rounds=[Round((), ())] * 10_000), User("x")
    with pytest.raises(AuthenticationFailed):
        enter(door, user)
    assert user.asked == []


@pytest.mark.parametrize("wrong", ["password", KBD])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_as_many_prompts_as_the_user_wants(a_door: Open, wrong: str, times: int) -> None:
    door, user = a_door(wrong), User("wrong")
    with pytest.raises(AuthenticationFailed):
        enter(door, user, password_prompts=times)
    assert len(user.asked) == times


@pytest.mark.parametrize("answer", [None, ""])
def test_nobody_is_asked_for_more_than_one_thing_when_nobody_answers(a_door: Open, answer: str | None) -> None:
    door, user = a_door(f"{KBD},password"), User(answer)
    with pytest.raises(AuthenticationFailed):
        enter(door, user, password_prompts=1)
    assert len(user.asked) == (1 if answer is None else 2)


def test_batch_mode_asks_nothing(a_door: Open) -> None:
    door, user = a_door(f"{KBD},password"), User("sesame")
    with pytest.raises(AuthenticationFailed, match="does not let alice in") as caught:
        enter(door, user, batch=True)
    assert user.asked == []
    assert "BatchMode" in caught.value.mend


@pytest.mark.parametrize(
    ("methods", "tried"),
    [
        (("password", KBD), ["password", KBD]),
        ((KBD, "password"), [KBD, "password"]),
        ((KBD,), [KBD]),
        (("publickey",), []),
    ],
)
def test_methods_in_the_users_order(a_door: Open, methods: tuple[str, ...], tried: list[str]) -> None:
    door = a_door(f"{KBD},password,publickey", password="no", rounds=[Round(right=("no",))])
    user = User("wrong")
    with pytest.raises(AuthenticationFailed):
        enter(door, user, methods=methods, password_prompts=1)
    assert [KBD if ") Pass" in text else "password" for text in user.asked] == tried


def test_one_method_after_the_other_and_the_same_one_twice(a_door: Open) -> None:
    door = a_door("password", KBD, "password", rounds=[CODE])
    user = User("sesame", "123456", "sesame")
    credentials = Credentials(user)
    enter(door, credentials)
    assert door.got == ["sesame", "123456", "sesame"]


# --- a server that does not wait -----------------------------------------------------------------------------


def hanging_up_once(door: Door) -> Callable[[], object]:
    """While the first question is answered, as a server does whose LoginGraceTime is over."""
    left = [door.hang_up]
    return lambda: left and left.pop()()


@pytest.mark.parametrize("stages", [("password",), (KBD,), ("password", KBD)])
def test_an_answer_for_which_the_server_did_not_wait_is_not_asked_for_again(
    a_door: Open, stages: tuple[str, ...]
) -> None:
    door = a_door(*stages)
    user = User("sesame", meanwhile=hanging_up_once(door))
    enter(door, user)
    assert len(user.asked) == 1
    assert len(door.transports) == 2


def test_a_code_that_was_not_sent_is_used_and_the_password_before_it_too(a_door: Open) -> None:
    door = a_door(KBD, rounds=[Round(), CODE])
    user = User("sesame", "123456")
    user.meanwhile = lambda: len(user.asked) == 2 and door.hang_up()
    enter(door, user)
    assert len(user.asked) == 2
    assert door.got == ["sesame", "sesame", "123456"]


def test_a_code_that_was_sent_is_never_sent_again(a_door: Open) -> None:
    pin = Round(("PIN: ",), ("0000",))
    door = a_door(KBD, rounds=[CODE, pin])
    user = User("123456", "0000", "123456")
    user.meanwhile = lambda: len(user.asked) == 2 and door.hang_up()
    enter(door, user)
    assert [text.partition(") ")[2] for text in user.asked] == [*CODE.questions, *pin.questions, *CODE.questions]
    enter(door, Credentials(User("123456", "0000")))


def test_an_unused_code_is_given_to_no_other_account_and_not_after_a_minute(
    a_door: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials = Credentials(User("x"))
    credentials.keep_unused(("alice", "a", "22"), "Code: ", "123456", time.monotonic())
    assert credentials.take_unused(("alice", "b", "22"), "Code: ") is None
    assert credentials.take_unused(("alice", "a", "22"), "PIN: ") is None
    assert credentials.take_unused(("alice", "a", "22"), "Code: ") == "123456"
    assert credentials.take_unused(("alice", "a", "22"), "Code: ") is None
    credentials.keep_unused(("alice", "a", "22"), "Code: ", "123456", time.monotonic() - ssh_auth.UNUSED_FOR - 1)
    assert credentials.take_unused(("alice", "a", "22"), "Code: ") is None


def test_a_server_that_hangs_up_again_and_again_is_given_up(a_door: Open) -> None:
    door = a_door("password")
    user = User("sesame")

    def serve_nobody() -> None:
        door.hang_up()
        door.stages = (KBD,)
        door.rounds = [Round(("Code: ",))]

    user.meanwhile = lambda: serve_nobody() if len(user.asked) < 4 else None
    enter(door, user)
    assert len(user.asked) <= 4


def test_a_server_that_hangs_up_for_another_reason_is_not_asked_again(a_door: Open) -> None:
    class Rude(Keeper):
        def check_auth_password(self, username: str, password: str) -> int:
            self.door.hang_up()
            return AUTH_FAILED

    door, user = a_door("password"), User("sesame")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "Keeper", Rude)
        with pytest.raises(AuthenticationFailed, match="does not let alice in"):
            enter(door, user)
    assert len(user.asked) == 1
    assert len(door.transports) == 1


# --- real servers --------------------------------------------------------------------------------------------


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "", *more: str) -> str:
    """Make a key pair and return its public half."""
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
                "ListenAddress": "127.0.0.1",
                "LogLevel": "VERBOSE",
            }
            text = "".join(f"{name} {value}\n" for name, value in (usual | options).items())
            (folder / "sshd_config").write_text(text)
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            with (folder / "log").open("w") as log:
                command = [sshd, "-D", "-e", "-f", folder / "sshd_config", "-p", str(port)]
                server = Sshd(folder, port, subprocess.Popen(command, stderr=log))
            stack.callback(server.daemon.wait)
            stack.callback(server.daemon.terminate)
            assert wait_until(lambda: "Server listening" in server.log), server.log
            return server

        yield start


def wait_until(condition: Callable[[], object], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture(scope="module")
def server(start: Start) -> Sshd:
    return start(MaxAuthTries="3")


def get_in(destination: Destination, user: User | Credentials | None = None) -> None:
    credentials = user if isinstance(user, Credentials) else Credentials(user or User())
    with ParamikoHost.open(destination, credentials) as host:
        assert host.run(["echo", "in"]).stdout == "in\n"


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("ed25519", ()), ("rsa", ()), ("ecdsa", ()), ("ecdsa", ("-b", "521")), ("rsa", ("-m", "PEM")),
        ("ecdsa", ("-m", "PEM")), ("ecdsa", ("-m", "PKCS8")), ("ed25519", ("-Z", "aes256-gcm@openssh.com")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("passphrase", ["", "opén sesame"])
def test_keys_of_every_format(server: Sshd, tmp_path: Path, kind: str, more: tuple[str, ...], passphrase: str) -> None:
    server.allow(make_key(tmp_path / "key", kind, passphrase, *more))
    user = User("wrong", passphrase)
    credentials = Credentials(user)
    for _ in range(2):
        get_in(server.config(tmp_path / "config", IdentityFile=str(tmp_path / "key")), credentials)
    assert user.asked == ([f"Passphrase for {tmp_path}/key: "] * 2 if passphrase else [])


@pytest.mark.parametrize("beside", [True, False])
def test_a_locked_key_that_the_server_does_not_want_stays_locked(server: Sshd, tmp_path: Path, beside: bool) -> None:
    make_key(tmp_path / "locked", passphrase="opén sesame")
    if not beside:  # OpenSSH's format has the public half in the open
        (tmp_path / "locked.pub").unlink()
    server.allow(make_key(tmp_path / "open"))
    user = User("opén sesame")
    get_in(server.config(tmp_path / "config", IdentityFile=f"{tmp_path}/locked;{tmp_path}/open"), user)
    assert user.asked == []


def test_a_locked_key_is_not_asked_about_when_an_earlier_one_opens(server: Sshd, tmp_path: Path) -> None:
    server.allow(make_key(tmp_path / "open"), make_key(tmp_path / "locked", passphrase="opén sesame"))
    user = User("opén sesame")
    get_in(server.config(tmp_path / "config", IdentityFile=f"{tmp_path}/open;{tmp_path}/locked"), user)
    assert user.asked == []


@pytest.mark.parametrize("prompts", ["2", "3"])
def test_after_wrong_passphrases_the_next_key_has_its_turn_and_nobody_is_asked_again(
    server: Sshd, tmp_path: Path, prompts: str
) -> None:
    server.allow(make_key(tmp_path / "locked", passphrase="opén sesame"), make_key(tmp_path / "open"))
    user = User("wrong")
    credentials = Credentials(user)
    files = f"{tmp_path}/locked;{tmp_path}/open"
    for _ in range(2):
        get_in(server.config(tmp_path / "config", IdentityFile=files, NumberOfPasswordPrompts=prompts), credentials)
    assert len(user.asked) == int(prompts)


def test_a_key_that_has_been_replaced_is_read_anew(server: Sshd, tmp_path: Path) -> None:
    destination = server.config(tmp_path / "config", IdentityFile=f"{tmp_path}/key")
    credentials = Credentials(User("opén sesame"))
    for _ in range(2):
        server.allow(make_key(tmp_path / "key", passphrase="opén sesame"))
        get_in(destination, credentials)
        (tmp_path / "key").unlink()
        (tmp_path / "key.pub").unlink()
    assert credentials.asked == 2


@pytest.mark.parametrize("content", [b"", b"\0\1", b"no key", b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n"])
def test_damaged_keys_are_passed_over(server: Sshd, tmp_path: Path, content: bytes) -> None:
    for name in ("damaged", "damaged.pub", "damaged-cert.pub", "open-cert.pub"):
        (tmp_path / name).write_bytes(content)
    server.allow(make_key(tmp_path / "open"))
    files = f"{tmp_path}/damaged;{tmp_path}/not-there;{tmp_path};{tmp_path}/open"
    get_in(server.config(tmp_path / "config", IdentityFile=files, CertificateFile=f"{tmp_path}/damaged"))


def test_the_server_does_not_wait_for_a_passphrase(start: Start, tmp_path: Path) -> None:
    """A real LoginGraceTime: the key that was unlocked meanwhile is used in a second connection."""
    impatient = start(LoginGraceTime="1")
    impatient.allow(make_key(tmp_path / "locked", passphrase="opén sesame"))
    user = User("opén sesame", meanwhile=lambda: time.sleep(2))
    get_in(impatient.config(tmp_path / "config", IdentityFile=f"{tmp_path}/locked"), user)
    assert len(user.asked) == 1


def test_the_server_does_not_wait_for_the_host_key_to_be_compared(start: Start, tmp_path: Path) -> None:
    impatient = start(LoginGraceTime="1")
    impatient.allow(make_key(tmp_path / "key"))

    class Careful(User):
        def confirm(self, text: str) -> bool:
            time.sleep(2)
            return super().confirm(text)

    user = Careful(agrees=True)
    known = str(tmp_path / "new")
    get_in(impatient.config(tmp_path / "config", IdentityFile=f"{tmp_path}/key", UserKnownHostsFile=known), user)
    assert len(user.asked) == 1


def test_the_servers_last_word_is_told(server: Sshd, tmp_path: Path) -> None:
    for number in range(4):
        make_key(tmp_path / f"key{number}")
    server.allow("")
    files = ";".join(f"{tmp_path}/key{number}" for number in range(4))
    with pytest.raises(AuthenticationFailed) as caught:
        get_in(server.config(tmp_path / "config", IdentityFile=files))
    assert "Too many authentication failures" in caught.value.why
    assert "key0" in caught.value.why


def test_two_keys_are_wanted(start: Start, tmp_path: Path) -> None:
    both = start(AuthenticationMethods="publickey,publickey")
    both.allow(make_key(tmp_path / "one"), make_key(tmp_path / "two", passphrase="opén sesame"))
    user = User("opén sesame")
    get_in(both.config(tmp_path / "config", IdentityFile=f"{tmp_path}/one;{tmp_path}/two"), user)
    assert len(user.asked) == 1


def test_no_key_is_offered_where_the_user_does_not_want_it(server: Sshd, tmp_path: Path) -> None:
    server.allow(make_key(tmp_path / "key"))
    with pytest.raises(AuthenticationFailed, match="does not let") as caught:
        get_in(server.config(tmp_path / "config", IdentityFile=f"{tmp_path}/key", PubkeyAuthentication="no"))
    assert "nothing" in caught.value.why


# --- certificates --------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("kind", "passphrase"), [("ed25519", ""), ("ed25519", "opén sesame"), ("rsa", ""), ("ecdsa", "")]
)
@pytest.mark.parametrize("where", ["beside", "named"])
def test_certificates(
    certifying: Sshd, authority: Path, tmp_path: Path, kind: str, passphrase: str, where: str
) -> None:
    make_key(tmp_path / "key", kind, passphrase)
    options = {"IdentityFile": f"{tmp_path}/key"}
    if where == "named":
        options["CertificateFile"] = str(certify(authority, tmp_path / "key", "elsewhere.pub"))
    else:
        certify(authority, tmp_path / "key")
    user = User(passphrase)
    get_in(certifying.config(tmp_path / "config", **options), user)
    assert len(user.asked) == (1 if passphrase else 0)
    assert "Accepted publickey" in certifying.log


def test_a_certificate_does_not_keep_its_key_from_being_used(server: Sshd, authority: Path, tmp_path: Path) -> None:
    server.allow(make_key(tmp_path / "key"))
    certify(authority, tmp_path / "key")
    get_in(server.config(tmp_path / "config", IdentityFile=f"{tmp_path}/key"))


# --- the agent -----------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("ed25519", "environment"), ("rsa", "environment"), ("ecdsa", "environment"), ("ed25519", "path"),
        ("ed25519", "variable"), ("ed25519", "default word"),
    ],
)  # fmt: skip
def test_the_agents_key(
    server: Sshd, agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, how: str
) -> None:
    server.allow(make_key(tmp_path / "key", kind))
    add(agent, tmp_path / "key")
    monkeypatch.setenv("SSH_AUTH_SOCK" if how in ("environment", "default word") else "MY_AGENT", str(agent))
    word = {"path": str(agent), "variable": "$MY_AGENT", "default word": "SSH_AUTH_SOCK"}.get(how)
    destination = server.config(tmp_path / "config", IdentityFile=f"{tmp_path}/none", IdentityAgent=word or "remove")
    if word is None:
        config = tmp_path / "config"
        config.write_text(config.read_text().replace("  IdentityAgent remove\n", ""))
    get_in(destination)


@pytest.mark.parametrize("value", ["none", "/no/such/agent", "$NO_SUCH_VARIABLE"])
def test_an_agent_that_is_not_wanted_or_not_there(
    server: Sshd, agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    server.allow(make_key(tmp_path / "key"))
    add(agent, tmp_path / "key")
    monkeypatch.setenv("SSH_AUTH_SOCK", str(agent))
    with pytest.raises(AuthenticationFailed):
        get_in(server.config(tmp_path / "config", IdentityFile=f"{tmp_path}/none", IdentityAgent=value))


@pytest.mark.parametrize("answer", [b"", b"\0\0\0\1\5", b"\0\0\0\5\x0c\0\0\0\x09", b"\xff\xff\xff\xff"])
def test_a_broken_agent_is_passed_over(server: Sshd, tmp_path: Path, answer: bytes) -> None:
    server.allow(make_key(tmp_path / "key"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "broken"))
        listener.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection = listener.accept()[0]
                connection.recv(100)
                connection.sendall(answer)
                connection.close()

        threading.Thread(target=serve, daemon=True).start()
        options = {"IdentityFile": f"{tmp_path}/key", "IdentityAgent": f"{tmp_path}/broken"}
        get_in(server.config(tmp_path / "config", **options))


@pytest.mark.parametrize("only", ["yes", "no"])
def test_of_many_keys_in_the_agent_the_named_one_comes_first(
    server: Sshd, agent: Path, tmp_path: Path, only: str
) -> None:
    """The server hangs up after three; the key's file is locked, and the agent has it open."""
    keys = [tmp_path / f"key{number}" for number in range(8)]
    for key in keys:
        make_key(key)
    add(agent, *keys)
    server.allow(public(keys[7]))
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "opén sesame", "-f", keys[7]], check=True)
    options = {"IdentityAgent": str(agent), "IdentitiesOnly": only}
    for identity in (keys[7], Path(f"{keys[7]}.pub")):
        user = User("opén sesame")
        get_in(server.config(tmp_path / "config", IdentityFile=str(identity), **options), user)
        assert user.asked == []
    if only == "yes":
        with pytest.raises(AuthenticationFailed) as caught:
            get_in(server.config(tmp_path / "config", IdentityFile=f"{keys[0]}.pub", **options))
        assert "key0" in caught.value.why
        assert "key1" not in caught.value.why


@pytest.mark.parametrize("kind", ["ed25519", "rsa"])
@pytest.mark.parametrize("where", ["in the agent", "named", "beside"])
def test_certificates_for_the_agents_keys(
    certifying: Sshd, authority: Path, agent: Path, tmp_path: Path, where: str, kind: str
) -> None:
    make_key(tmp_path / "key", kind)
    certificate = certify(authority, tmp_path / "key", None if where != "named" else "elsewhere.pub")
    add(agent, tmp_path / "key")
    (tmp_path / "key").unlink()
    options = {"IdentityAgent": str(agent), "IdentityFile": f"{tmp_path}/key"}
    if where == "named":
        options["CertificateFile"] = str(certificate)
    elif where == "in the agent":
        certificate.unlink()
    get_in(certifying.config(tmp_path / "config", **options))


# --- jumps ---------------------------------------------------------------------------------------------------


@dataclass
class Chain:
    """Three sshds, each with its own host key and user key, and a configuration in which they stand one behind another.

    Only ``first`` is found by its address: ``second`` jumps by ``first``, ``third`` by ``second``.
    """

    folder: Path
    servers: tuple[Sshd, Sshd, Sshd]

    def write(self, **jumps: str) -> None:
        text = ""
        for name, server in zip(("first", "second", "third"), self.servers, strict=True):
            key, known = self.folder / f"key_{name}", self.folder / f"known_{name}"
            if not key.exists():
                server.allow(make_key(key))
            text += (
                f"Host {name}\n  HostName 127.0.0.1\n  Port {server.port}\n  IdentityFile {key}\n"
                f"  UserKnownHostsFile {server.known(known)}\n  ProxyJump {jumps.get(name, 'none')}\n"
            )
        common = (
            "Host *\n  GlobalKnownHostsFile none\n  IdentitiesOnly yes\n  IdentityAgent none\n  ConnectTimeout 10\n"
        )
        (self.folder / "config").write_text(text + common)

    def destination(self, name: str) -> Destination:
        return Destination(name, config_file=str(self.folder / "config"))


@pytest.fixture(scope="module")
def three(start: Start) -> tuple[Sshd, Sshd, Sshd]:
    return start(), start("ecdsa"), start("rsa")


@pytest.fixture
def chain(three: tuple[Sshd, Sshd, Sshd], tmp_path: Path) -> Chain:
    return Chain(tmp_path, three)


def logins(server: Sshd) -> int:
    return server.log.count("Accepted publickey")


@pytest.mark.parametrize(
    "jumps",
    [
        {"third": "first,second"},
        {"second": "first", "third": "second"},
        {"second": "third", "third": "first,second"},  # of a list, only the first one's own way counts
        {"third": "first,ssh://127.0.0.1:{port}"},
    ],
    ids=["a list", "each its own", "a list, and a way of its own", "an address"],
)
def test_one_jump_after_the_other(chain: Chain, jumps: dict[str, str]) -> None:
    port = chain.servers[1].port
    chain.write(**{name: value.format(port=port) for name, value in jumps.items()})
    if "{port}" in jumps["third"]:
        known = chain.servers[1].known(chain.folder / "k")
        with (chain.folder / "config").open("a") as config:
            config.write(f"Host 127.0.0.1\n  IdentityFile {chain.folder}/key_second\n  UserKnownHostsFile {known}\n")
    before = [logins(server) for server in chain.servers]
    get_in(chain.destination("third"))
    assert [logins(server) for server in chain.servers] == [count + 1 for count in before]


def test_a_jump_is_left_when_the_way_is_closed_or_cannot_be_made(chain: Chain) -> None:
    def connections() -> int:
        return sum(len(psutil.Process(server.daemon.pid).children()) for server in chain.servers)

    chain.write(third="first,second")
    assert wait_until(lambda: connections() == 0)
    with ParamikoHost.open(chain.destination("third"), Credentials(User())) as host:
        for _ in range(2):
            host.reconnect()
        assert wait_until(lambda: connections() == 3), connections()
    assert wait_until(lambda: connections() == 0)
    (chain.folder / "known_third").write_text("")
    with pytest.raises(HostKeyUnknown):
        get_in(chain.destination("third"))
    assert wait_until(lambda: connections() == 0)


def test_jumps_in_a_circle_come_to_an_end(chain: Chain) -> None:
    chain.write(first="second", second="first", third="second")
    with pytest.raises(ConnectionFailed, match="in a circle"):
        get_in(chain.destination("third"))


def test_the_jump_that_does_not_let_us_in_is_named(chain: Chain) -> None:
    chain.write(third="first,second")
    make_key(chain.folder / "other")
    (chain.folder / "other").replace(chain.folder / "key_second")
    (chain.folder / "key_second.pub").unlink()
    with pytest.raises(AuthenticationFailed) as caught:
        get_in(chain.destination("third"))
    assert "key_second" in caught.value.why
    chain.servers[1].allow(public(chain.folder / "other"))
    get_in(chain.destination("third"))


def test_each_jump_is_asked_for_its_own_password_once(a_door: Open, tmp_path: Path) -> None:
    jump, login = a_door("password"), a_door("password", password="else")
    known = jump.settings().user_known_hosts[0]
    login.settings()
    (tmp_path / "config").write_text(
        f"Host jump\n  Port {jump.port}\nHost login\n  Port {login.port}\n  ProxyJump jump\n"
        f"Host *\n  HostName 127.0.0.1\n  User alice\n  UserKnownHostsFile {known}\n  IdentityAgent none\n"
    )
    user = User("sesame", "else")
    settings, credentials = resolve(Destination("login", config_file=str(tmp_path / "config"))), Credentials(user)
    for _ in range(2):
        connect(settings, credentials).close()
    assert len(user.asked) == 2
    assert (jump.got, login.got) == (["sesame"] * 2, ["else"] * 2)


def test_a_server_behind_a_jump_that_does_not_wait(a_door: Open, tmp_path: Path) -> None:
    jump, login = a_door("password"), a_door(KBD, rounds=[CODE])
    known = jump.settings().user_known_hosts[0]
    login.settings()
    (tmp_path / "config").write_text(
        f"Host jump\n  Port {jump.port}\nHost login\n  Port {login.port}\n  ProxyJump jump\n"
        f"Host *\n  HostName 127.0.0.1\n  User alice\n  UserKnownHostsFile {known}\n  IdentityAgent none\n"
    )
    user = User("sesame", "123456")
    user.meanwhile = lambda: len(user.asked) == 2 and login.hang_up()
    connect(resolve(Destination("login", config_file=str(tmp_path / "config"))), Credentials(user)).close()
    assert len(user.asked) == 2
    assert login.got == ["123456"]


# --- proxy commands, addresses -------------------------------------------------------------------------------


def test_a_proxy_command_that_ends_is_told_at_once(server: Sshd, tmp_path: Path) -> None:
    began = time.monotonic()
    (tmp_path / "dies").write_text("echo first >&2; echo no way to $1 >&2; exit 3")
    with pytest.raises(ConnectionFailed) as caught:
        get_in(server.config(tmp_path / "config", ProxyCommand=f"sh {tmp_path}/dies %h"))
    assert caught.value.why == "no way to 127.0.0.1"
    with pytest.raises(ConnectionFailed) as caught:
        get_in(server.config(tmp_path / "config", ProxyCommand="no-such-command-here"))
    assert "no-such-command-here" in caught.value.why
    with pytest.raises(ConnectionFailed) as caught:
        get_in(server.config(tmp_path / "config", ProxyCommand="sh -c 'sleep 0.1 && exit 3'"))
    assert caught.value.why == "exit code 3"
    assert time.monotonic() - began < 5


def test_a_proxy_command_that_says_nothing_is_given_up_after_the_connect_timeout(server: Sshd, tmp_path: Path) -> None:
    mark = f"61{time.time_ns() % 10**6}"
    began = time.monotonic()
    with pytest.raises(ConnectionFailed):
        get_in(
            server.config(tmp_path / "config", ProxyCommand=f"sh -c 'sleep {mark} & sleep {mark}'", ConnectTimeout="1")
        )
    assert time.monotonic() - began < 6
    assert wait_until(lambda: not sleeping(mark), 3)


def test_a_proxy_command_ends_with_its_connection(server: Sshd, tmp_path: Path) -> None:
    server.allow(make_key(tmp_path / "key"))
    mark = f"62{time.time_ns() % 10**6}"
    server.config(tmp_path / "proxy", IdentityFile=f"{tmp_path}/key")
    command = f"sh -c 'sleep {mark} & exec ssh -F {tmp_path}/proxy -o BatchMode=yes -W %h:%p server'"
    get_in(server.config(tmp_path / "config", IdentityFile=f"{tmp_path}/key", ProxyCommand=command))
    assert wait_until(lambda: not sleeping(mark), 5)


def sleeping(mark: str) -> bool:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.name() == "sleep" and process.cmdline()[-1] == mark:
                return True
    return False


def test_several_attempts_to_connect(start: Start, tmp_path: Path) -> None:
    late = start()
    late.allow(make_key(tmp_path / "key"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = {"IdentityFile": f"{tmp_path}/key", "HostKeyAlias": "late", "Port": str(port)}
    (tmp_path / "known").write_text(f"late {late.host_key}\n")
    options["UserKnownHostsFile"] = str(tmp_path / "known")
    destination = late.config(tmp_path / "config", ConnectionAttempts="4", **options)

    def lead_there() -> None:
        with socket.create_server(("127.0.0.1", port)) as listener:
            connection = listener.accept()[0]
            with socket.create_connection(("127.0.0.1", late.port)) as far:
                threading.Thread(target=_copy, args=(far, connection), daemon=True).start()
                _copy(connection, far)

    threading.Timer(0.5, lead_there).start()
    get_in(destination)


def test_the_address_to_come_from_and_the_family(server: Sshd, tmp_path: Path) -> None:
    server.allow(make_key(tmp_path / "key"))
    options = {"IdentityFile": f"{tmp_path}/key"}
    get_in(server.config(tmp_path / "config", BindAddress="127.0.0.2", **options))
    assert "from 127.0.0.2 port" in server.log
    with pytest.raises(ConnectionFailed):
        get_in(server.config(tmp_path / "config", AddressFamily="inet6", **options))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("Ciphers", "aes256-ctr"),
        ("MACs", "hmac-sha2-512,umac-64@openssh.com"),
        ("KexAlgorithms", "ecdh-sha2-nistp384"),
        ("Ciphers", "chacha20-poly1305@openssh.com"),  # which we do not have: then ours
    ],
)
def test_algorithms_of_the_configuration(server: Sshd, tmp_path: Path, option: str, value: str) -> None:
    server.allow(make_key(tmp_path / "key"))
    destination = server.config(tmp_path / "config", IdentityFile=f"{tmp_path}/key", **{option: value})
    with ParamikoHost.open(destination, Credentials(User())) as host:
        used = {"Ciphers": host.transport.local_cipher, "MACs": host.transport.local_mac}.get(option)
        assert used is None or used in value or "chacha" in value


# --- host keys, beside the real ssh --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lines",
    [
        "[127.0.0.1]:PORT KEY", "127.0.0.1 KEY", "127.0.0.1 OTHER", "127.0.0.1 RSA", "[127.0.0.1]:PORT OTHER",
        "[127.0.0.1]:PORT RSA", "[127.0.0.1]:PORT RSA|127.0.0.1 KEY", "[127.0.0.1]:PORT OTHER|127.0.0.1 KEY",
        "[127.0.0.1]:PORT OTHER|[127.0.0.1]:PORT KEY", "@revoked 127.0.0.1 KEY|[127.0.0.1]:PORT KEY",
        "@revoked * KEY|[127.0.0.1]:PORT KEY", "@revoked 127.0.0.1 KEY|127.0.0.1 KEY", "@revoked * RSA|127.0.0.1 KEY",
        "* KEY", "*.0.0.1 KEY", "[*]:PORT KEY", "127.0.0.1:PORT KEY", "[127.0.0.1]:1 KEY", "!127.0.0.1,* KEY",
        "![127.0.0.1]:PORT,* KEY", "login,[127.0.0.1]:PORT,127.0.0.2 KEY", "", "# 127.0.0.1 KEY",
        "@cert-authority 127.0.0.1 KEY", "[127.0.0.1]:PORT KEY comment # more", "[127.0.0.1]:PORT nonsense",
    ],
)  # fmt: skip
@pytest.mark.parametrize("strict", ["yes", "accept-new"])
def test_host_keys_are_taken_as_the_real_ssh_takes_them(
    server: Sshd, tmp_path: Path, host_keys: dict[str, str], lines: str, strict: str
) -> None:
    for word, text in {"PORT": str(server.port), "KEY": server.host_key, **host_keys}.items():
        lines = lines.replace(word, text)
    known = tmp_path / "known"
    options = {"UserKnownHostsFile": str(known), "BatchMode": "yes", "PreferredAuthentications": "password"}
    destination = server.config(tmp_path / "config", StrictHostKeyChecking=strict, **options)
    text = lines.replace("|", "\n") + "\n"
    known.write_text(text)
    command = ["ssh", "-F", str(destination.config_file), "-n", "server", "true"]
    said = subprocess.run(command, capture_output=True, check=False, timeout=20, text=True).stderr
    taken = "Permission denied" in said  # which comes after the host key
    assert taken or "Host key verification failed" in said
    written = known.read_text()
    known.write_text(text)
    with pytest.raises((AuthenticationFailed, HostKeyUnknown, HostKeyChanged)) as caught:
        get_in(destination)
    if isinstance(caught.value, AuthenticationFailed):
        assert taken
        assert known.read_text() == written
    else:
        assert not taken or lines.startswith("@revoked 127.0.0.1")  # the one thing in which we are stricter


@pytest.fixture(scope="module")
def host_keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("other")
    return {"OTHER": make_key(folder / "other"), "RSA": make_key(folder / "rsa", "rsa")}
