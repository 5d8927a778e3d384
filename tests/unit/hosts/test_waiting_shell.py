"""A login shell that was started before its command is known: the same as one that is started for it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import psutil
import pytest

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import HostCommandFailed, LauncherError, LoginSetupFailed
from notebook_launcher.hosts import waiting_shell
from notebook_launcher.hosts.base import Host
from notebook_launcher.hosts.framing import Frame
from notebook_launcher.hosts.login_setup import LoginSetup
from notebook_launcher.hosts.paramiko.login import Credentials
from tests.doubles import wait_until
from tests.ssh_server import NASTY, Account, Open, Server, User, account_at, end_connections, running

pytestmark = [pytest.mark.timeout(60), pytest.mark.real_time]


def started(host: Host) -> Host:
    """Prepare a login shell, and wait until it waits."""
    host.prepare_login_shell()
    waiting = getattr(host, "_waiting", None)
    for one in (waiting._login_shell, *waiting._others) if waiting else ():
        if one:
            one._thread.join(20)
    return host


def shell_of(host: Host) -> psutil.Process:
    """Return the process that waits."""
    if not host.remote:
        pytest.skip("on this machine none waits")
    mark = host._waiting._login_shell._frame.begins  # type: ignore[attr-defined]
    (found,) = [
        p
        for p in psutil.process_iter(["cmdline"])
        if (words := p.info["cmdline"] or [])[1:3] == ["--norc", "-c"] and mark in words[3]
    ]
    return found


def test_a_command_is_the_same_in_a_shell_that_has_waited(host: Host) -> None:
    script = 'printf "%s\\0" "$@"; cat; echo "one  two " >&2; echo >&2; exit 3'
    argv, stdin = ["bash", "-c", script, "-", *NASTY], bytes(range(1, 128)) * 2000
    expected = host.run(argv, stdin=stdin, login_shell=True)
    answer = started(host).run_prepared(argv, stdin=stdin)
    assert (answer.exit_code, answer.stdout) == (3, expected.stdout)
    assert answer.stderr.split() == expected.stderr.split() == ["one", "two"]


def test_a_script_is_the_same_in_a_shell_that_has_waited(host: Host) -> None:
    script = b'printf "%s\\0" "$@"; shopt -q login_shell && echo login; echo "one  two" >&2; cat; exit 3\nread\n'
    expected = host.run_script("bash", script, NASTY)
    host.prepare_shells(2)
    answers = [started(host).run_script("bash", script, NASTY) for _ in range(3)]  # the last one without
    assert [(one.exit_code, one.stdout, one.stderr.split()) for one in (expected, *answers)] == [
        (3, "".join(f"{word}\0" for word in NASTY) + "read\n", ["one", "two"])
    ] * 4


def test_it_is_used_once(host: Host) -> None:
    started(host)
    for number in "12":
        assert host.run_prepared(["echo", number]) == CommandResult(0, f"{number}\n")


def test_a_missing_command(host: Host) -> None:
    answer = started(host).run_prepared(["no-such-command"])
    assert answer.exit_code == 127 and "no-such-command" in answer.stderr


def test_a_command_that_takes_too_long(host: Host) -> None:
    with pytest.raises(HostCommandFailed, match="did not answer within 1 s"):
        started(host).run_prepared(["sleep", "20.125"], timeout=1.0)


def test_start_up_files_that_take_too_long(of_the_sshd: Account, open_host: Open) -> None:
    """Another login shell would take as long: it is not tried."""
    of_the_sshd.has(bash_profile="sleep 20.25\n")
    with open_host(of_the_sshd.server.destination(), Credentials(User())) as host:
        host.login_setup = LoginSetup(("true",), "uni.toml")
        host.prepare_login_shell()
        began = time.monotonic()
        with pytest.raises(HostCommandFailed, match="did not answer within 1 s") as caught:
            host.run_prepared(["echo"], timeout=1.0)
        assert time.monotonic() - began < 10 and "uni.toml" in caught.value.why
        assert not caught.value.may_have_run


def test_a_script_that_takes_too_long_does_not_blame_the_login_shell(host: Host) -> None:
    """Its shell has run no start-up file, and no line of ``login_setup``."""
    host.login_setup = LoginSetup(("true",), "uni.toml")
    host.prepare_shells(1)
    with pytest.raises(HostCommandFailed, match="did not answer within 1 s") as caught:
        started(host).run_script("sh", b"sleep 20.375", [], timeout=1.0)
    assert not caught.value.why


def test_slow_start_up_files_leave_the_command_its_time(of_the_sshd: Account, open_host: Open) -> None:
    of_the_sshd.has(bash_profile="sleep 5.75\n")
    with open_host(of_the_sshd.server.destination(), Credentials(User())) as host:
        host.prepare_login_shell()
        assert host.run_prepared(["sh", "-c", "sleep 1.25; echo here"], timeout=6.5).stdout == "here\n"


def test_a_server_with_few_sessions_has_one_more_without_it(server: Server, open_host: Open, tmp_path: Path) -> None:
    with account_at(server, tmp_path, "MaxSessions 2\n") as few:
        few.has()
        with open_host(few.server.destination(), Credentials(User())) as host:
            started(host)
            with contextlib.closing(host.open_process(["cat"])):
                assert host.run(["echo", "here"]).stdout == "here\n"


@pytest.mark.parametrize("start_up", ["", "sleep 1.25\n"])
def test_such_a_server_runs_the_first_command_though_shells_start(
    server: Server, open_host: Open, tmp_path: Path, start_up: str
) -> None:
    """A login shell that still runs its start-up files cannot be ended: the command waits for that."""
    with account_at(server, tmp_path, "MaxSessions 2\n") as few:
        few.has(bash_profile=start_up)
        with open_host(few.server.destination(), Credentials(User())) as host:
            host.prepare_login_shell()
            host.prepare_shells(0 if start_up else 2)
            with contextlib.closing(host.open_process(["cat"])):
                assert host.run(["echo", "here"]).stdout == "here\n"


def test_a_shell_that_waits_makes_room_before_one_that_starts(server: Server, open_host: Open, tmp_path: Path) -> None:
    """The login shell's start-up files take long: it goes on, and is there for its command."""
    with account_at(server, tmp_path, "MaxSessions 2\n") as few:
        few.has(bash_profile="sleep 5.25\n")
        with open_host(few.server.destination(), Credentials(User())) as host:
            host.prepare_shells(1)
            host._waiting._others[0]._thread.join(20)  # type: ignore[attr-defined]
            host.prepare_login_shell()
            login_shell = host._waiting._login_shell  # type: ignore[attr-defined]
            time.sleep(0.5)
            began = time.monotonic()
            assert host.run(["echo", "here"]).stdout == "here\n"
            assert time.monotonic() - began < 4.5 and not login_shell.waits
            assert host._waiting._login_shell is login_shell  # type: ignore[attr-defined]
            assert host.run_prepared(["echo", "there"]).stdout == "there\n"
            assert login_shell.took > 5


def test_a_command_that_prints_all_the_time_and_takes_too_long(host: Host) -> None:
    began = time.monotonic()
    with pytest.raises(HostCommandFailed, match="did not answer within 1 s"):
        started(host).run_prepared(["bash", "-c", "while :; do printf %100s; done"], timeout=1.0)
    assert time.monotonic() - began < 10


def test_one_that_waited_too_long_is_not_used(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = shell_of(started(host))
    script, now = waits.cmdline()[3], time.time()
    monkeypatch.setattr(time, "time", lambda: now + waiting_shell.USED_WITHIN + 1)
    its_shell = host.run_prepared(["bash", "-c", "tr '\\0' ' ' </proc/$PPID/cmdline"]).stdout
    assert "--notebook-launcher-" in its_shell and script not in its_shell
    wait_until(lambda: not waits.is_running())


def test_one_that_ended_while_it_waited_is_not_used(host: Host) -> None:
    """As where a site ends idle processes of login nodes: nothing was run yet, so another shell runs it."""
    shell_of(started(host)).kill()
    answer = host.run_prepared(["cat"], stdin=b"x" * 1_000_000)
    assert answer == CommandResult(0, "x" * 1_000_000)


def test_a_command_that_ends_its_shell_is_not_run_again(host: Host, tmp_path: Path) -> None:
    pid = str(shell_of(started(host)).pid)
    with pytest.raises(HostCommandFailed) as caught:
        host.run_prepared(["bash", "-c", 'echo run >>"$1"; kill -9 "$2"', "-", str(tmp_path / "runs"), pid])
    assert caught.value.may_have_run
    assert (tmp_path / "runs").read_text() == "run\n"


def test_start_up_files_with_many_errors(of_the_sshd: Account, open_host: Open) -> None:
    """More than an SSH window takes, which the output shares."""
    of_the_sshd.has(bash_profile="head -c 5000000 /dev/zero >&2\n")
    with open_host(of_the_sshd.server.destination(), Credentials(User())) as host:
        assert started(host).run_prepared(["echo", "here"], timeout=20.0).stdout == "here\n"
        assert host._waiting._login_shell is None  # type: ignore[attr-defined]


def test_a_command_that_fills_its_output_before_it_reads(host: Host) -> None:
    script = "head -c 4000000 /dev/zero | tr '\\0' y; wc -c"
    answer = started(host).run_prepared(["bash", "-c", script], stdin=b"x" * 6_000_000, timeout=30.0)
    assert answer.stdout.strip("y").strip() == "6000000" and len(answer.stdout) > 4_000_000


def test_its_start_up_files_have_run(of_the_sshd: Account, open_host: Open) -> None:
    """What they print is no answer, and what they set the command sees; TMOUT ends no shell that waits."""
    files = "echo hello; printf x; echo oops >&2; export SITE=mine TMOUT=1 words=7; umask 0027; set -euf\n"
    of_the_sshd.has(bash_profile=files)
    with open_host(of_the_sshd.server.destination(), Credentials(User())) as host:
        started(host)
        time.sleep(1.5)
        answer = host.run_prepared(["bash", "-c", 'echo "$SITE $TMOUT $words"; umask; env'])
        assert answer.stdout.startswith("mine 1 7\n0027\n") and "launch_notebook" not in answer.stdout
        assert host.login_shell_took is not None


def test_a_line_of_login_setup_that_fails_is_the_error(of_the_sshd: Account, open_host: Open) -> None:
    of_the_sshd.has()
    with open_host(of_the_sshd.server.destination(), Credentials(User())) as host:
        host.login_setup = LoginSetup(("false",), "here", "uni")
        with pytest.raises(LoginSetupFailed):
            started(host).run_prepared(["true"])


def test_a_shell_that_is_not_needed_ends(server: Server, open_host: Open) -> None:
    with open_host(server.destination(), Credentials(User())) as host:
        mark = started(host)._waiting._login_shell._frame.begins  # type: ignore[attr-defined]
        assert running(mark)
    wait_until(lambda: not running(mark))


def test_a_connection_that_breaks_before(server: Server, open_host: Open, tmp_path: Path) -> None:
    others = server.connections()
    with open_host(server.destination(), Credentials(User())) as host:
        started(host)
        end_connections(server, others)
        wait_until(lambda: not host.alive)
        with pytest.raises(LauncherError):
            host.run_prepared(["touch", str(tmp_path / "run")])
    assert not (tmp_path / "run").exists()


def test_a_connection_that_breaks_while_the_command_runs(server: Server, open_host: Open, tmp_path: Path) -> None:
    """Whether the command was run is not known then: it is not run again."""
    runs = tmp_path / "runs"

    def breaks() -> None:
        wait_until(runs.exists)
        end_connections(server, others)

    others = server.connections()
    with open_host(server.destination(), Credentials(User())) as host:
        breaker = threading.Thread(target=breaks)
        started(host)
        breaker.start()
        with pytest.raises(LauncherError):
            host.run_prepared(["bash", "-c", 'echo run >>"$1"; sleep 20.375', "-", str(runs)])
        breaker.join()
    assert runs.read_text() == "run\n"


def test_an_answer_is_complete_only_with_its_last_line() -> None:
    frame = Frame()
    whole = f"left running\n{frame.begins[:-2]}-taken--\nout{frame.ends} 5\nerr\n{frame.begins[:-2]}-over--\n"
    assert all(frame.read_answer(whole[:length]) is None for length in range(len(whole)))
    assert frame.read_answer(whole) == CommandResult(5, "out", "err\n")


@pytest.mark.parametrize("shell", ["sh", "bash", "zsh", "tcsh", "fish"])
def test_any_shell_reads_the_lines_that_start_it(shell: str, tmp_path: Path) -> None:
    """A login shell may be any; `mine` is a line of the profile, whose newline none of them may lose."""
    program = shutil.which(shell)
    if not program:
        pytest.skip(f"there is no {shell} here")
    frame = Frame(LoginSetup(("export MINE='it''s !1'",)))
    for login_shell, mine in ((True, "its !1"), (False, "")):
        done = subprocess.run(
            [program, "-c", frame.waiting_line(login_shell=login_shell)],
            input=frame.words(["sh", "-c", 'echo "$MINE $1"; cat', "-", "a\nb!"]) + b"input",
            capture_output=True,
            env={**os.environ, "HOME": str(tmp_path)},
            check=True,
            timeout=20,
        )
        printed = done.stdout.decode().partition(f"{frame.begins}\n")[2]
        assert frame.read_answer(printed) == CommandResult(0, f"{mine} a\nb!\ninput")
