"""Real logins, whose shell reads start-up files that print, or let no command answer."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from notebook_launcher.core.errors import LoginShellSilent
from notebook_launcher.hosts import framing
from notebook_launcher.hosts.base import Host
from notebook_launcher.hosts.framing import Frame
from notebook_launcher.hosts.login_shell import Silence, explain, probe
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.transfer.protocol import call_verb
from tests.ssh_server import Account, Follower, Open, User, read_all, there_and_back

pytestmark = [pytest.mark.timeout(60), pytest.mark.real_time]


@pytest.fixture
def account(of_the_sshd: Account) -> Account:
    of_the_sshd.has()
    return of_the_sshd


@pytest.fixture
def log_in(account: Account, open_host: Open) -> Iterator[Callable[[], Host]]:
    """Log in at the account, by each engine."""
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(open_host(account.server.destination(), Credentials(User())))


SETS = "export SITE=set; where() { :; }; export -f where\n"
PRINTS = "echo of .bashrc; echo of .bashrc >&2; printf 'and half a line'\n"


def test_what_bashrc_prints_is_part_of_no_answer(account: Account, log_in: Callable[[], Host], tmp_path: Path) -> None:
    """bash reads it for each command of an sshd, and so does a bash that such a command becomes."""
    account.has(
        bashrc=PRINTS, bash_profile=f"{PRINTS}. ~/.bashrc; export SITE=set; where() {{ :; }}; export -f where\n"
    )
    host = log_in()
    script = "cat; echo err >&2; exit 3"
    for login_shell in (False, True):
        answer = host.run(["bash", "-c", script], stdin="ä\r\n\0".encode(), login_shell=login_shell)
        assert (answer.exit_code, answer.stdout) == (3, "ä\r\n\0")
        assert host.run(["true"], login_shell=login_shell).stdout == ""
        data = os.urandom(100_000)
        assert there_and_back(host.open_process(["bash", "-c", "cat"], login_shell=login_shell), data) == data
    found = host.run(["bash", "-c", 'echo "$SITE"; declare -F where'], login_shell=True)
    assert found.stdout == "set\nwhere\n"
    follower = Follower()
    host.stream(["bash", "-c", "echo first; printf last; exit 5"], follower.lines.put, follower.ends.put)
    assert follower.ends.get(timeout=30) == "exit code 5"
    assert [follower.next(), follower.next()] == ["first", "last"]
    assert follower.lines.empty()
    (tmp_path / "file").write_bytes(b"content")
    reply = call_verb(host, "list", str(tmp_path / "file"))
    assert (reply.code, b"of .bashrc" in reply.data) == (0, False)


def test_what_a_shell_prints_at_its_end_is_part_of_no_answer(account: Account, log_in: Callable[[], Host]) -> None:
    account.has(bashrc="trap 'echo at the end' EXIT\n", bash_logout="echo out\n", bash_profile="trap 'echo end' EXIT\n")
    host = log_in()
    for login_shell in (False, True):
        assert host.run(["printf", "x"], login_shell=login_shell).stdout == "x"
        follower = Follower()
        host.stream(["printf", "x"], follower.lines.put, follower.ends.put)
        assert follower.ends.get(timeout=30)
        assert (follower.next(), follower.lines.empty()) == ("x", True)


def test_what_bash_env_prints_is_not_in_the_bytes_of_a_copy(account: Account, log_in: Callable[[], Host]) -> None:
    account.has(
        bashrc="export BASH_ENV=~/.env\n", bash_profile=". ~/.bashrc", env="echo of BASH_ENV; echo 1 >>~/.read\n"
    )
    host = log_in()
    assert host.run(["ls"], login_shell=True).stdout == ""
    assert (account.home / ".read").read_text() == "1\n"  # by the login shell, and not once more for the frame
    assert read_all(host.open_process(["bash", "-c", "echo copy"])) == b"copy\n"
    assert host.run(["bash", "-c", "echo $BASH_ENV"], login_shell=True).stdout.endswith(f"{account.home}/.env\n")


SWALLOW = {
    "another shell": "exec sh\n",
    "the end": "case $- in *i*) ;; *) exit ;; esac\n",
    "nowhere": "exec >/dev/null\n",
}


@pytest.mark.parametrize("line", SWALLOW.values(), ids=list(SWALLOW))
@pytest.mark.parametrize("file", ["bash_profile", "bashrc"])
def test_a_login_shell_that_runs_no_commands_is_no_answer(
    account: Account, log_in: Callable[[], Host], monkeypatch: pytest.MonkeyPatch, file: str, line: str
) -> None:
    monkeypatch.setattr(framing, "BEGINS_WITHIN", 0.5)
    account.has(**{file: line})
    host = log_in()  # neither engine runs a command for that
    for login_shell in (False, True) if file == "bashrc" else (True,):
        for ask in (
            lambda: host.run(["echo", "x"], login_shell=login_shell),  # noqa: B023
            lambda: host.open_process(["cat"], login_shell=login_shell),  # noqa: B023
            lambda: host.pass_through(["echo", "x"], login_shell=login_shell),  # noqa: B023
        ):
            with pytest.raises(LoginShellSilent, match="Your login shell on server runs no commands") as caught:
                ask()
            assert f"~/.{file}" in caught.value.hint or f"/.{file}" in caught.value.why
    if file == "bash_profile":
        assert host.run(["echo", "x"]).stdout == "x\n"
    elif not line.startswith("exec sh"):  # which reads on, as long as there may be input
        ends: queue.SimpleQueue[str] = queue.SimpleQueue()
        host.stream(["echo", "x"], pytest.fail, ends.put)
        assert "runs no commands" in ends.get(timeout=30)


@pytest.fixture
def home_of_anybody() -> Iterator[Path]:
    """A home that everybody may read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def as_anybody(home: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Run a line as sshd does, and not as root, from whom bash takes no format of its trace."""
    nobody: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "SSH_CLIENT": "127.0.0.1 1 1"}
    argv = ["bash", "-c", line]
    return subprocess.run(argv, env=env, cwd="/", input="", capture_output=True, text=True, check=False, **nobody)


@pytest.mark.parametrize(
    ("file", "line", "how", "shown"),
    [
        ("bash_profile", "exec sh -l", "ends or replaces it", "exec sh -l"),
        ("bash_profile", "exit 0", "ends or replaces it", "exit 0"),
        ("bash_profile", "exec >/dev/null", "redirects its output", "exec"),
        ("bashrc", "exec >/dev/null", "redirects its output", "exec"),
    ],
)
def test_the_line_that_lets_no_command_answer_is_named(
    home_of_anybody: Path, file: str, line: str, how: str, shown: str
) -> None:
    (home_of_anybody / ".bash_logout").write_text("logout=1\n")
    (home_of_anybody / f".{file}").write_text(f"site=1\n[ -n x ] && {line}\nsite=2\n")
    frame = Frame()
    done = as_anybody(home_of_anybody, probe(frame))
    silence = Silence("server", login_shell=file == "bash_profile", printed="")
    error = explain(silence, frame, done.stdout, done.stderr)
    assert error.why == f"Line 2 of ~/.{file} {how}: {shown}"
    assert "$- == *i*" in error.hint
