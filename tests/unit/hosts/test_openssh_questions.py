"""Questions of the system's ssh: which secret is asked for when, and which is remembered."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from notebook_launcher.core.errors import AuthenticationFailed
from notebook_launcher.hosts.base import NoPrompts
from notebook_launcher.hosts.openssh import askpass, master
from notebook_launcher.hosts.openssh.askpass import AskpassServer
from notebook_launcher.hosts.openssh.host import OpenSshHost
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.hosts.ssh_config import Destination
from tests.ssh_server import ENGINES, Server, User
from tests.unit.hosts.openssh_sockets import sockets

__all__ = ["sockets"]

pytestmark = [pytest.mark.timeout(60), pytest.mark.real_time]


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

    def new(
        self, place: str = "login", *, like: str = "", asking: bool = True, has_jumps: bool = False, names: bool = True
    ) -> AskpassServer:
        self.count += 1
        asker = AskpassServer(
            str(self.folder / f"ask{self.count}"),
            self.user,
            self.memory,
            place,
            like=like,
            like_host="login",
            asking=asking,
            on_declined=self.decline,
            has_jumps=has_jumps,
            names_servers=lambda: names,
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


@pytest.mark.parametrize(
    ("place", "has_jumps", "question"),
    [
        ("node", False, PASSPHRASE),
        ("node", False, "Password: "),
        ("login", True, "Password: "),
        ("login", False, PASSPHRASE),
    ],
    ids=[
        "a node for a passphrase",
        "a node for the login's password",
        "a jump host for it",
        "the login for a passphrase",
    ],
)
def test_an_old_ssh_names_no_server_so_none_gets_what_another_may_have_been_meant_by(
    tmp_path: Path, place: str, has_jumps: bool, question: str
) -> None:
    login = Login(tmp_path, Somebody("password", "passphrase", "typed for this one"))
    first = login.new(names=False)
    for one in ("Password: ", PASSPHRASE):
        first.answer("", one)
    first.remember()
    second = login.new(place, like="login", names=False, has_jumps=has_jumps)
    assert second.answer("", question) == "typed for this one"


def test_with_an_old_ssh_the_only_server_of_a_login_gets_again_what_it_was_given(tmp_path: Path) -> None:
    login = Login(tmp_path, Somebody("password"))
    first = login.new(names=False)
    first.answer("", "Password: ")
    first.remember()
    assert login.new(names=False, asking=False).answer("", "Password: ") == "password"


def test_which_ssh_names_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ssh"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for version, names in (
        ("OpenSSH_8.0p1, OpenSSL 1.1.1k  FIPS 25 Mar 2021", False),
        ("OpenSSH_8.4p1 Debian-5+deb11u3, OpenSSL 1.1.1w", False),
        ("OpenSSH_for_Windows_8.1p1, LibreSSL 3.0.2", False),
        ("Sun_SSH_2.4", False),
        ("OpenSSH_8.5p1, LibreSSL 3.3.5", True),
        ("OpenSSH_10.0p2 Debian-7, OpenSSL 3.5.1", True),
    ):
        program.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
        program.chmod(0o755)
        master.prompts_name_servers.cache_clear()
        assert master.prompts_name_servers() is names, version
    master.prompts_name_servers.cache_clear()


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
    asker = AskpassServer(str(tmp_path / "ask"), user, {}, "login", asking=True, on_declined=lambda: None)
    question = "Ünusual question\nin two lines: "
    command = [sys.executable, "-I", "-S", askpass.__file__, str(tmp_path / "ask"), question]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    asker.close()
    assert user.asked == [question]
    assert (done.returncode, done.stdout) == ((1, "") if answer is None else (0, f"{answer}\n"))
    assert done.stderr == ""


def test_the_program_without_a_launcher(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", askpass.__file__, str(tmp_path / "ask"), "Password: "]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


@pytest.mark.parametrize("asking", ["password"], indirect=True)
def test_a_password_that_is_typed_wrong_first(asking: Destination) -> None:
    user = Somebody("wrong", "opén")
    with OpenSshHost.open(asking, Credentials(user)) as host:
        host.reconnect()
    assert len(user.asked) == 2


@pytest.mark.parametrize("engine", list(ENGINES))
@pytest.mark.parametrize("asking", ["password", "keyboard-interactive"], indirect=True)
def test_without_a_terminal_a_login_that_asks_says_that_it_needs_one(asking: Destination, engine: str) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        ENGINES[engine](asking, Credentials(NoPrompts()))
    assert "run the command in a terminal" in caught.value.hint


@pytest.mark.parametrize("engine", list(ENGINES))
def test_without_a_terminal_a_locked_key_says_that_it_needs_one(server: Server, tmp_path: Path, engine: str) -> None:
    destination = server.client_with(tmp_path, IdentityFile=str(server.folder / "locked_key"))
    with pytest.raises(AuthenticationFailed) as caught:
        ENGINES[engine](destination, Credentials(NoPrompts()))
    assert "run the command in a terminal" in caught.value.hint


@pytest.mark.parametrize("asking", ["keyboard-interactive"], indirect=True)
def test_a_code_is_asked_for_at_each_login(asking: Destination) -> None:
    user = Somebody("opén", "opén")
    with OpenSshHost.open(asking, Credentials(user)) as host:
        host.reconnect()
    assert len(user.asked) == 2


@pytest.mark.parametrize("asking", ["password"], indirect=True)
def test_whoever_takes_their_time_is_waited_for(asking: Destination, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master, "LOGIN_TIMEOUT", 1.0)

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
        host.open_route(server.onward("address", key=None)).close()
    stop.set()
    watcher.join()
    assert len(user.asked) == 1
    assert seen.empty(), seen.get()
