"""Lines of a profile that a login shell runs before each command: what they set is there, what they print is not."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from notebook_launcher.core.errors import HostCommandFailed, LoginSetupFailed
from notebook_launcher.doctor.bounded_command import run_bounded
from notebook_launcher.hosts import framing
from notebook_launcher.hosts.base import Host
from notebook_launcher.hosts.framing import Frame, command_line
from notebook_launcher.hosts.login_setup import LoginSetup, login_shell_command
from notebook_launcher.hosts.paramiko.login import Credentials
from tests.practice_cluster.layout import NOISE
from tests.ssh_server import NASTY, Account, Open, User, read_all

pytestmark = [pytest.mark.timeout(60), pytest.mark.real_time]

ROOT = Path(__file__).parents[3]
PROFILE = "/home/me/.config/notebook-launcher/clusters/uni.toml:4"
MODULE = """\
module() { echo "Loading $2"; echo "note on $2" >&2; [[ $2 != nope ]] || { echo 'no such module' >&2; return 1; }
  export LOADED="${LOADED:+$LOADED:}$2"; }
"""
SHOW = ["bash", "-c", 'echo "$LOADED"; cat']


def setup(*lines: str) -> LoginSetup:
    return LoginSetup(lines, PROFILE, "uni")


@pytest.fixture
def log_in(of_the_sshd: Account, open_host: Open) -> Iterator[Callable[..., Host]]:
    """Log in where a start-up file makes up a module command, by each engine, with these lines in the profile."""
    of_the_sshd.has(bash_profile=MODULE)
    with contextlib.ExitStack() as stack:

        def opened(*lines: str) -> Host:
            host = stack.enter_context(open_host(of_the_sshd.server.destination(), Credentials(User())))
            host.login_setup = setup(*lines)
            return host

        yield opened


def test_what_the_lines_set_is_there_and_what_they_print_is_in_no_answer(log_in: Callable[..., Host]) -> None:
    noise = "printf '\\033[2J 7\\n'; printf 'half a line'; printf 'half an error' >&2"
    host = log_in("module load slurm", noise, "read -r stolen; module load 'it is'", "exec </dev/null >/dev/null 2>&1")
    answer = host.run(SHOW, stdin=b"input\n", login_shell=True)
    assert (answer.exit_code, answer.stdout, answer.stderr) == (0, "slurm:it is\ninput\n", "")
    assert host.run(["bash", "-c", "exit 7"], login_shell=True).exit_code == 7
    assert host.run(SHOW, stdin=b"in").stdout == "\nin", "only a login shell runs them"
    assert read_all(host.open_process(["bash", "-c", 'echo "$LOADED"'], login_shell=True)) == b"slurm:it is\n"
    assert run_bounded(host, ["printenv", "LOADED"], 20.0) == (0, ["slurm:it is", ""])


def test_what_is_passed_through_has_what_the_lines_set(
    log_in: Callable[..., Host], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert log_in("module load slurm").pass_through(["printenv", "LOADED"], login_shell=True) == 0
    assert capfdbinary.readouterr() == (b"slurm\n", b"")


FAILING = {
    "fails": ("module load nope", "failed with exit code 1", "Loading nope note on nope no such module"),
    "is no bash": ("module (load", "failed with exit code", "syntax error"),
    "is not found": ("no-such-command", "failed with exit code 127", "no-such-command: command not found"),
    "ends the shell": ("echo before; exit 3", "ends or replaces the login shell", "before"),
    "ends it by an option": ("set -eu; echo $NOT_SET", "ends or replaces the login shell", "NOT_SET: unbound variable"),
    "replaces the shell": ("exec true", "or replaces the login shell", "nothing"),
}


@pytest.mark.parametrize(("line", "what", "printed"), FAILING.values(), ids=list(FAILING))
def test_a_line_that_fails_is_named_with_its_file_and_what_it_printed(
    log_in: Callable[..., Host], monkeypatch: pytest.MonkeyPatch, line: str, what: str, printed: str
) -> None:
    monkeypatch.setattr(framing, "BEGINS_WITHIN", 5.0)
    host = log_in("module load first", line, "touch ~/never")
    for ask in (
        lambda: host.run(["echo", "x"], login_shell=True),
        lambda: host.open_process(["cat"], login_shell=True),
        lambda: host.pass_through(["echo", "x"], login_shell=True),
        lambda: run_bounded(host, ["echo", "x"], 20.0),
    ):
        with pytest.raises(LoginSetupFailed) as caught:
            ask()
        error = caught.value
        assert error.what.startswith("A line of login_setup ") and what in error.what
        assert error.what.endswith(f" on server: {line}")
        assert error.why.startswith(f"It is in {PROFILE}. It printed") and printed in error.why
        assert "Loading first" not in error.why
        assert error.hint.startswith("correct it: launch-notebook clusters edit uni ")
    assert host.run(["bash", "-c", "[[ ! -e ~/never ]]"]).exit_code == 0
    assert host.run(["echo", "x"]).stdout == "x\n"


def test_a_line_that_hangs_ends_at_the_commands_limit_and_is_suspected(log_in: Callable[..., Host]) -> None:
    with pytest.raises(HostCommandFailed, match="sbatch did not answer within 1 s") as caught:
        log_in("sleep 60").run(["sbatch"], login_shell=True, timeout=1.0)
    assert caught.value.why == f"login_setup of {PROFILE} runs before it: does a line of it hang?"


def test_a_login_shell_that_swallows_commands_is_not_taken_for_a_fault_of_the_lines(
    of_the_sshd: Account, log_in: Callable[..., Host]
) -> None:
    host = log_in("module load slurm")
    of_the_sshd.has(bash_profile="exit 0\n")
    with pytest.raises(HostCommandFailed, match="Your login shell on server runs no commands"):
        host.run(["echo", "x"], login_shell=True)


# --- the script, by whichever shell is the user's ----------------------------------------------------------------


SHELLS = {"bash": ["--norc"], "dash": [], "zsh": ["-f"], "csh": ["-f"], "tcsh": ["-f"], "fish": ["--no-config"]}


def by(shell: str, line: str, home: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a line as sshd does, by one of these shells."""
    argv = [shell, *SHELLS[shell], "-c", line]
    env = {"HOME": str(home), "PATH": os.environ["PATH"], **env}
    return subprocess.run(argv, env=env, input="", capture_output=True, text=True, check=False, timeout=20)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_lines_run_in_bash_whatever_the_users_shell_is(shell: str, tmp_path: Path) -> None:
    if not shutil.which(shell):
        pytest.skip(f"there is no {shell} here")
    (tmp_path / ".bash_profile").write_text(MODULE)
    lines = ["module load 'it'\\''s !x'", "[[ -n $LOADED ]] && export MORE=$'a\\tb' # a remark", 'set -- "${@: -1}" x']
    frame = Frame(setup(*lines))
    words = ["printf", "<%s>", *NASTY]
    done = by(
        shell, frame.command_line(["bash", "-c", 'echo "$LOADED $MORE"; "$@"', "x", *words], login_shell=True), tmp_path
    )
    expected = "it's !x a\tb\n" + "".join(f"<{word}>" for word in NASTY)
    assert frame.read(done.stdout) == (expected, 0), done
    line = command_line(["printenv", "LOADED"], login_shell=True, setup=setup(*lines))
    assert by(shell, line, tmp_path).stdout.endswith("\nit's !x\n")


@pytest.mark.parametrize(
    "options", ["set -eufaC +B", "set -o noglob -o nounset -o errexit -o pipefail; shopt -s failglob"]
)
def test_the_options_of_a_start_up_file_are_no_fault_of_a_line(tmp_path: Path, options: str) -> None:
    (tmp_path / ".bash_profile").write_text(f"{MODULE}{options}\n")
    frame = Frame(setup("module load slurm", "[[ $NOT_SET == x ]] || true", "set -e"))
    done = by("bash", frame.command_line(["env"], login_shell=True), tmp_path)
    output, code = frame.read(done.stdout) or ("", None)
    assert (code, done.stderr) == (0, "")
    assert "LOADED=slurm\n" in output
    names = {line.partition("=")[0] for line in output.splitlines()}
    assert not {name for name in names if name.startswith("launch_notebook")}


def test_a_module_command_is_found_where_only_interactive_shells_have_it(tmp_path: Path) -> None:
    (tmp_path / "init").mkdir()
    (tmp_path / "init" / "bash").write_text(f"{MODULE}MODULEPATH=/sw\n")
    frame = Frame(setup("module load slurm"))
    line = frame.command_line(["printenv", "LOADED"], login_shell=True)
    assert frame.read(by("bash", line, tmp_path, LMOD_PKG=str(tmp_path)).stdout) == ("slurm\n", 0)


def test_the_module_command_is_looked_for_where_a_job_does() -> None:
    in_jobs = (ROOT / "jobscripts" / "lib" / "activate.sh").read_text()
    places = re.search(r"for init in (.+?); do", in_jobs, re.DOTALL)
    assert places
    assert " ".join(places[1].replace("\\\n", " ").split()) in setup("module load slurm").script()


def test_without_lines_a_login_shell_is_as_before() -> None:
    assert LoginSetup().script("mark") == ""
    assert login_shell_command(["ls"], LoginSetup()) == [
        "bash",
        "-l",
        "-c",
        'builtin exec "$@"',
        "launch-notebook",
        "ls",
    ]


def test_in_a_terminal_a_line_that_fails_is_named(tmp_path: Path) -> None:
    done = by("bash", command_line(["echo", "x"], login_shell=True, setup=setup("true", "false # it's")), tmp_path)
    assert done.returncode == 1
    assert done.stdout == "launch-notebook: login_setup failed: false # it's: exit code 1\n"


def test_only_its_own_mark_tells_of_a_failure() -> None:
    one = setup("first", "second")
    assert one.failure("MARK", "noise\n", "login") is None
    assert one.failure("MARK", "MARK 9\nMARK 0\n", "login") is None
    error = one.failure("MARK", "MARK 1\nMARK 2\nred \033[31m\nOTHER 1 failed 3\nMARK 2 failed 1\n", "login")
    assert error is not None
    assert error.what == "A line of login_setup failed with exit code 1 on login: second"
    assert error.why == f"It is in {PROFILE}. It printed: red  OTHER 1 failed 3"


def test_much_noise_before_it_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / ".bash_profile").write_bytes(b"cat ~/noise\n")
    (tmp_path / "noise").write_bytes(NOISE * 20)
    frame = Frame(setup("false"))
    done = subprocess.run(
        ["bash", "-c", frame.command_line(["x"], login_shell=True)],
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]}, capture_output=True, check=False, timeout=20,
    )  # fmt: skip
    frame.keep(done.stdout)
    assert frame.setup_failure("login") is not None
