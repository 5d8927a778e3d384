"""A terminal elsewhere: the user's terminal lent to a command on every host, and the script that is the shell there.

What lends the terminal is a small program in a real terminal (pexpect); the SSH server is a real sshd. The container
command is a stand-in that notes how it was called, as in ``test_jobscripts.py``.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import psutil  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner

from notebook_launcher import shell as trial
from notebook_launcher.cli.app import run
from notebook_launcher.cli.commands import shell as shelling
from notebook_launcher.cli.commands.shell import shell
from notebook_launcher.hosts import terminal
from notebook_launcher.hosts.base import OUTPUT_BEGINS, command_line
from notebook_launcher.planning.plan import Plan
from notebook_launcher.schedulers.base import JobRef
from notebook_launcher.schedulers.local import Local
from notebook_launcher.schedulers.slurm.commands import Slurm
from tests.conftest import wait_until
from tests.unit.hosts.test_remote_host import Server, end_connections, no_agent, server  # noqa: F401  # fixtures
from tests.unit.jobscripts.test_sshd import BASH, JOBSCRIPTS, LIKE_APPTAINER, Job, boxed, image, job, permissions  # noqa: F401

pytestmark = pytest.mark.timeout(60)

# what a story does, without the story: SIGINT and SIGTERM are noted, SIGTERM ends it
LENDS = """
import signal, sys, termios
from notebook_launcher.core.errors import LauncherError
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.hosts.base import Nobody

kind, config, how, *command = sys.argv[1:]
if kind == "local":
    host = LocalHost()
else:
    from notebook_launcher.hosts.openssh.host import OpenSshHost
    from notebook_launcher.hosts.paramiko.connection import ParamikoHost
    from notebook_launcher.hosts.paramiko.login import Credentials
    from notebook_launcher.hosts.ssh_config import Destination
    engine = {"paramiko": ParamikoHost, "openssh": OpenSshHost}[kind]
    host = engine.open(Destination("server", config_file=config), Credentials(Nobody()))
heard = []
signal.signal(signal.SIGINT, lambda *_: heard.append("INT"))
signal.signal(signal.SIGTERM, lambda *_: heard.append("TERM"))
before = termios.tcgetattr(0) if how == "terminal" else None
sys.stderr.write("BEGIN\\n")
try:
    run = host.terminal if how == "terminal" else host.pass_through
    code = run(command, login_shell=True, until=lambda: "TERM" in heard)
except LauncherError as error:
    code = type(error).__name__
same = how != "terminal" or termios.tcgetattr(0) == before
sys.stderr.write(f"\\nCODE {code} HEARD {heard} SAME {same}\\n")
host.close()
"""


class Lender:
    """The program above, in a terminal, lending it to a command."""

    def __init__(self, kind: str, config: str, *command: str, rows: int = 30, columns: int = 111) -> None:
        env = {**os.environ, "TERM": "vt220", "HOME": "/nowhere"}
        words = ["-c", LENDS, kind, config, "terminal", *command]
        self.child = pexpect.spawn(sys.executable, words, dimensions=(rows, columns), timeout=20, env=env)
        self.child.delaybeforesend = 0
        self.child.expect(b"BEGIN")

    def see(self, pattern: str) -> None:
        self.child.expect(pattern.encode())

    def report(self) -> str:
        """Wait for the end and return what the program found then."""
        self.child.expect(rb"CODE [^\r\n]*")
        report = self.child.after.decode()
        self.child.expect(pexpect.EOF)
        return str(report)


Lend = Callable[..., Lender]


@pytest.fixture(params=["local", "paramiko", "openssh"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lend(kind: str, server: Server) -> Iterator[Lend]:  # noqa: F811
    lenders: list[Lender] = []

    def lend(*command: str, **size: int) -> Lender:
        lenders.append(Lender(kind, server.config, *command, **size))
        return lenders[-1]

    yield lend
    for lender in lenders:
        lender.child.close(force=True)


def running(mark: str) -> list[psutil.Process]:
    """The processes that have this in their arguments, but for those that only hand it on."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if mark in words and words[0] == "sleep":
            found.append(process)
    return found


# --- the user's terminal, lent -----------------------------------------------------------------------------------


def test_a_terminal_elsewhere_is_like_one_here(lend: Lend) -> None:
    lender = lend("bash", "--norc", "-i")
    lender.child.send(b"stty size; echo $TERM; stty -a | grep -c -- -isig\n")
    lender.see(r"30 111\r\nvt220\r\n0\r\n")
    lender.child.setwinsize(40, 90)
    lender.child.send(b"sleep 0.3; stty size\n")
    lender.see("40 90\r\n")
    lender.child.send(b"echo begun; sleep 50 || echo over\n")
    lender.see("begun\r\n")
    time.sleep(0.2)
    lender.child.send(b"\x03")
    lender.see(r"\^C")
    lender.child.send(b"exit 43\n")
    assert lender.report() == "CODE 43 HEARD [] SAME True"


def test_a_command_that_is_not_there(lend: Lend) -> None:
    assert lend("no-such-command").report() == "CODE 127 HEARD [] SAME True"


def test_every_byte_passes_both_ways_however_many(lend: Lend) -> None:
    everything = bytes(range(256)) * 1000
    program = (
        "import hashlib, os, sys, tty; tty.setraw(0); os.write(1, b'GO'); got = b''\n"
        "while len(got) < 256000: got += os.read(0, 65536)\n"
        "os.write(1, hashlib.sha256(got).hexdigest().encode() + bytes(range(256)) + b'END')"
    )
    lender = lend(sys.executable, "-c", program)
    lender.see("GO")
    for start in range(0, len(everything), 2000):
        lender.child.send(everything[start : start + 2000])
    lender.child.expect_exact(hashlib.sha256(everything).hexdigest().encode() + bytes(range(256)) + b"END")
    assert lender.report() == "CODE 0 HEARD [] SAME True"


def test_much_comes_out_while_nothing_is_read(lend: Lend) -> None:
    """A command that prints without end and reads nothing can still be interrupted."""
    lender = lend("sh", "-c", "trap : INT; yes 123456789; exit 5")
    lender.child.send(b"typed ahead " * 1000)
    lender.see("123456789\r\n123456789")
    lender.child.send(b"\x03")
    assert lender.report() == "CODE 5 HEARD [] SAME True"


def test_a_word_from_outside_ends_it(lend: Lend, mark: str) -> None:
    lender = lend("sh", "-c", f"echo here; exec sleep {mark}")
    lender.see("here")
    began = time.monotonic()
    os.kill(lender.child.pid, 15)
    assert lender.report() == "CODE -1 HEARD ['TERM'] SAME True"
    wait_until(lambda: not running(mark), 5, "the command has ended")
    assert time.monotonic() - began < 4


def test_when_we_are_killed_the_command_ends_as_well(lend: Lend, mark: str) -> None:
    lender = lend("sh", "-c", f"echo here; exec sleep {mark}")
    lender.see("here")
    began = time.monotonic()
    os.kill(lender.child.pid, 9)
    wait_until(lambda: not running(mark), 10, "the command has ended")
    print(f"the command had ended {time.monotonic() - began:.2f} s after the kill")


@pytest.mark.parametrize("kind", ["paramiko", "openssh"], indirect=True)
def test_a_connection_that_breaks(lend: Lend, server: Server) -> None:  # noqa: F811
    """Also out of an editor: the terminal shows the usual screen and the cursor again."""
    lender = lend("sh", "-c", r"printf '\033[?10'; sleep 0.2; printf '49h\033[?25l'; echo here; exec sleep 4712")
    lender.see("here")
    began = time.monotonic()
    end_connections(server, set())
    lender.child.expect_exact(b"\x1b[?1049l\x1b[?25h")
    assert lender.report() == "CODE ConnectionLost HEARD [] SAME True"
    assert time.monotonic() - began < 10


def test_a_keyboard_that_says_nothing_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program that reads there may be quicker, and may have made it so that nobody waits."""
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    monkeypatch.setattr(terminal, "_KEYBOARD", ours)
    assert terminal._read_keyboard() is None
    os.close(theirs)
    assert terminal._read_keyboard() == b""
    os.close(ours)


class Breaks:
    """A command whose connection breaks under what is sent, as paramiko tells it; its end is still to be read."""

    def __init__(self) -> None:
        self.ours, self.end = os.pipe()

    def fileno(self) -> int:
        return self.ours

    def read(self) -> bytes | None:
        return os.read(self.ours, 100)

    def write(self, data: bytes) -> int:
        os.close(self.end)
        raise EOFError

    def resize(self, columns: int, rows: int) -> None:
        pass


def test_a_connection_that_breaks_under_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard, fingers = os.pipe()
    resized, teller = os.pipe()
    os.write(fingers, b"x")
    monkeypatch.setattr(terminal, "_KEYBOARD", keyboard)
    assert terminal._carry(Breaks(), terminal._Screen(), resized, lambda: False) is True
    for descriptor in (keyboard, fingers, resized, teller):
        os.close(descriptor)


# --- a command without a terminal --------------------------------------------------------------------------------


Pass = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def passing(server: Server) -> Iterator[Pass]:  # noqa: F811
    children = []

    def passing(kind: str, *command: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-c", LENDS, kind, server.config, "pass", *command]
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        children.append(child)
        return child

    yield passing
    for child in children:
        child.kill()
        child.communicate()


@pytest.fixture
def mark() -> str:
    """How long a command of this test sleeps, and of no other test that runs now."""
    return f"47{os.getpid()}.{next(_NUMBERS)}"


_NUMBERS = itertools.count()


def test_the_output_of_a_command(kind: str, passing: Pass) -> None:
    """Its own bytes and nothing else, its errors apart; and what it reads has ended."""
    script = "cat; printf '\\000\\377 out'; printf 'mistake' >&2; exit 9"
    output, errors = passing(kind, "sh", "-c", script).communicate(timeout=20)
    assert output == b"\x00\xff out"
    assert b"mistake" in errors
    assert b"CODE 9 HEARD [] SAME True" in errors


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_command_ends_with_us_and_all_that_it_has_started(
    kind: str, passing: Pass, mark: str, how: signal.Signals
) -> None:
    child = passing(kind, "bash", "-c", f"sleep {mark} & echo here; sleep {mark}; echo after")
    assert child.stdout is not None and child.stdout.readline() == b"here\n"
    wait_until(lambda: len(running(mark)) == 2, 5, "all of it runs")
    child.send_signal(how)
    wait_until(lambda: not running(mark), 10, "the command has ended")
    assert b"after" not in child.communicate(timeout=10)[0]


def test_what_does_not_listen_ends_as_well(passing: Pass, mark: str) -> None:
    child = passing("local", "bash", "-c", f"(trap '' TERM; exec sleep {mark}) & echo here; sleep {mark}")
    assert child.stdout is not None and child.stdout.readline() == b"here\n"
    wait_until(lambda: len(running(mark)) == 2, 5, "all of it runs")
    child.send_signal(signal.SIGTERM)
    assert b"CODE -1 " in child.communicate(timeout=10)[1]
    assert not running(mark)


def test_what_a_command_leaves_behind_ends_with_it(kind: str, passing: Pass, mark: str) -> None:
    """As it does in a step of Slurm's."""
    child = passing(kind, "sh", "-c", f"sleep {mark} & echo here")
    assert b"CODE 0 " in child.communicate(timeout=10)[1]
    wait_until(lambda: not running(mark), 5, "nothing runs")


def test_much_is_said_as_an_error_and_read_slowly(kind: str, passing: Pass) -> None:
    script = "echo first >&2; sleep 0.7; exec >&-; head -c 300000 /dev/zero >&2; exit 3"
    child = passing(kind, "sh", "-c", script)
    assert child.stderr is not None
    said, waited = b"", False
    while b"CODE" not in said and (piece := os.read(child.stderr.fileno(), 65536)):
        said += piece
        if b"\0" in piece and not waited:
            time.sleep(1.3)
            waited = True
    assert b"first" in said and said.count(b"\0") == 300000
    assert b"CODE 3 " in said
    child.communicate(timeout=10)


def test_nobody_reads_the_output_to_its_end(kind: str, passing: Pass) -> None:
    child = passing(kind, "yes", "4715")
    assert child.stdout is not None and child.stdout.readline() == b"4715\n"
    child.stdout.close()
    assert child.stderr is not None and b"CODE 141 " in child.stderr.read()
    child.wait(10)


WORDS = [
    "a!b",
    "!",
    "'!'",
    "\\!x",
    "it's",
    "two\nlines\\n\n",
    "",
    "$HOME `x` $(x)",
    "\\\\",
    "=ls",
    "a*?{b,c}~",
    "Größe",
]


@pytest.mark.parametrize("login_shell", [False, True])
@pytest.mark.parametrize("words", [WORDS, [word for word in WORDS if "\n" not in word]])
@pytest.mark.parametrize("shell", ["sh", "bash", "zsh", "tcsh"])
def test_a_word_reaches_a_command_whatever_the_login_shell(shell: str, words: list[str], login_shell: bool) -> None:
    if not shutil.which(shell):
        pytest.skip(f"there is no {shell} here")
    line = command_line(["printf", "<%s>", *words], login_shell=login_shell)
    done = subprocess.run([shell, "-c", line], capture_output=True, text=True, check=False, timeout=20)
    assert done.stdout == f"{OUTPUT_BEGINS}\n" + "".join(f"<{word}>" for word in words)


# --- the commands ------------------------------------------------------------------------------------------------


def test_a_step_with_a_terminal() -> None:
    words = Slurm().terminal_step(JobRef("7", "snowy"), ["bash", "/s p/shell.sh"])
    assert words[words.index("srun") :] == [
        "srun", "--clusters=snowy", "--jobid=7", "--overlap", "--pty", "--quiet", "--mpi=none", "--nodes=1",
        "--ntasks=1", "--relative=0", "--cpu-bind=none", "--", "bash", "/s p/shell.sh",
    ]  # fmt: skip
    assert Local("/root").terminal_step(JobRef("7"), ["bash", "x"]) == ["bash", "x"]


def test_a_step_takes_nothing_from_the_users_variables(tmp_path: Path) -> None:
    (tmp_path / "srun").write_text('#!/bin/sh\nenv; printf "one\\nsrun: error: n1: task 0: Exited with exit code 5\\n'
                                   'srun: error: Unable to create step\\n" >&2; exit 5\n')  # fmt: skip
    (tmp_path / "srun").chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_CONF": "/etc/here", "SLURM_JOB_ID": "3", "SLURM_NTASKS": "9",
           "SRUN_CPUS_PER_TASK": "4", "SLURM_MEM_PER_NODE": "1", "MINE": "stays"}  # fmt: skip
    done = subprocess.run(
        Slurm().terminal_step(JobRef("7"), ["x"]), env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 5
    assert "SLURM_CONF=/etc/here" in done.stdout and "MINE=stays" in done.stdout
    assert re.findall("^(SLURM_(?!CONF).*|SRUN.*)=", done.stdout, re.M) == []
    assert done.stderr == "one\nsrun: error: Unable to create step\n", "that a command failed is no error of srun's"


def test_no_shell_into_a_pipe(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["shell"]) == 2
    assert "in a terminal, not in a pipe" in capfd.readouterr().err
    assert run(["shell", "--json"]) == 2
    assert "speaks no JSON" in capfd.readouterr().out


def test_a_session_or_a_job_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["shell", "abc", "-t", "5", "--command", "true"]) == 2
    assert "only one of the two" in capfd.readouterr().err
    assert run(["shell", "-c", "nvidia-smi", "--command", "true"]) == 2
    assert "two commands" in capfd.readouterr().err
    assert run(["shell", "-c", "nvidia-smi", "-c", " "]) == 2
    assert "empty" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "cores", "command"),
    [
        (["-c", "4"], "4", None),
        (["-c", "nproc"], None, "nproc"),
        (["--cpus-per-task=4", "-c", "nproc"], "4", "nproc"),
        (["--cpus-per-task=four", "--command", "nproc"], "four", "nproc"),
    ],
)
def test_a_number_after_c_means_cores(
    monkeypatch: pytest.MonkeyPatch, words: list[str], cores: str | None, command: str | None
) -> None:
    def note(plan: Plan, wish: trial.Wish, *_: object) -> int:
        asked.append((plan.request.flags.get("cpus-per-task"), wish.command))
        return 0

    asked: list[object] = []
    monkeypatch.setattr(trial, "trial", note)
    monkeypatch.setattr(trial, "shell_in_session", lambda _place, _prefix, wish, *_: asked.append((None, wish.command)))
    monkeypatch.setattr(shelling, "_check_terminal", lambda _where: None)
    run(["shell", *words])
    assert asked == [(cores, command)]


def test_the_help_tells_both_kinds() -> None:
    text = CliRunner().invoke(shell, ["--help"], obj={}).output
    assert "shell -t 0:10:00 --gpus 1 -- tf-gpu" in text


# --- shell.sh ----------------------------------------------------------------------------------------------------


def prepared(job: Job, *lines: str) -> Job:  # noqa: F811
    """A session's directory as it is while its job runs."""
    job.ask(*lines)
    for name in ("shell.sh", "lib.sh", "containers.sh", "image.sh"):
        (job.dir / name).write_bytes((JOBSCRIPTS / name).read_bytes())
    (job.dir / "runtime").mkdir()
    (job.dir / "runtime" / "folder").write_text(f"{job.work}\n")
    (job.dir / "session.json").write_text('{"id":"x","environment":"tf-gpu"}\n')
    return job


def output_of(job: Job, command: str, where: str = "inside") -> subprocess.CompletedProcess[str]:  # noqa: F811
    words = [BASH, str(job.dir / "shell.sh"), str(job.dir), where, command]
    return subprocess.run(words, env=job.env, cwd=job.root, capture_output=True, text=True, check=False, timeout=20)


def opened(job: Job, where: str = "inside") -> pexpect.spawn:  # noqa: F811
    child = pexpect.spawn(BASH, [str(job.dir / "shell.sh"), str(job.dir), where], env={**job.env, "TERM": "dumb"},
                          cwd=str(job.root), encoding="utf-8", timeout=10, dimensions=(24, 200))  # fmt: skip
    child.delaybeforesend = 0
    return child


def marks(job: Job) -> list[str]:  # noqa: F811
    return sorted(path.name for path in (job.dir / "runtime").iterdir() if path.name not in ("folder", "first-shell"))


NODE = os.uname().nodename.partition(".")[0]


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_what_a_shell_leaves_in_the_background_ends_with_it(boxed: Job, where: str) -> None:  # noqa: F811
    """What it left would hold the container, the step and the job; and a program may not want to end."""
    prepared(boxed, image(boxed), "gpu=none")
    stays = "nohup setsid bash -c 'trap \"\" TERM; echo $$ >left; exec sleep 300' >/dev/null 2>&1 & "
    done = output_of(boxed, f"{stays} sleep 301 & until [ -s left ]; do sleep 0.05; done; kill -9 $$", where)
    assert done.returncode == 137
    left = int((boxed.work / "left").read_text())
    wait_until(lambda: not psutil.pid_exists(left) or psutil.Process(left).status() == "zombie", 2, "its end")
    assert re.fullmatch(r"notebook-launcher: ended what still ran in the background \([2-9]\)\n", done.stderr)


def test_a_shell_inside(boxed: Job) -> None:  # noqa: F811
    """~/.bashrc counts, but the environment's programs come first; what is set up leaves no traces."""
    prepared(boxed, image(boxed), "gpu=none", "activate=export ACTIVATED=$INSIDE", "setenv=NASTY=it's")
    (boxed.home / ".bashrc").write_text(
        "export PATH=$HOME/mine:$PATH EDITOR=ed\nlog() { echo my own log; }\nalias rm='rm -i' printf=false\nset -o vi\n"
        "PROMPT_COMMAND=\n"
    )
    boxed.env |= {"JUPYTER_TOKEN": "secret", "XDG_RUNTIME_DIR": "/run/user/0", "TMOUT": "700"}
    boxed.env["PROMPT_COMMAND"] = 'PS1="Apptainer> "; unset PROMPT_COMMAND'
    child = opened(boxed)
    child.expect(rf"\(tf-gpu on {NODE}\) \S+:.*[$#] ")
    assert [name.partition("-")[0] for name in marks(boxed)] == ["inside", "shell"]
    child.sendline('echo "<$ACTIVATED|$NASTY|$EDITOR|$TMOUT|$PWD|$JUPYTER_TOKEN$XDG_RUNTIME_DIR>"')
    child.expect_exact(f"<yes|it's|ed|700|{boxed.work}|>")
    child.sendline("log; type -t alias_of read_settings; alias rm; echo ${PATH%%:*} $(compgen -v want_)")
    child.expect_exact("my own log\r\nalias rm='rm -i'\r\n")
    child.expect_exact(f"{boxed.home}/inside\r\n")
    child.sendline(
        "env | grep NBL_ | grep -vc ^NBL_SHELL_RUN=; (exit 7)"
    )  # but the mark by which its programs are found
    child.expect_exact("\r\n0\r\n")
    child.sendline("exit")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 7
    assert marks(boxed) == []
    session = str(boxed.dir)
    words = (boxed.home / "called").read_text().splitlines()
    assert words[:6] == ["exec", "--bind", session, "--pwd", str(boxed.work), f"{boxed.root}/an image.sif"]


def test_a_shell_outside(boxed: Job) -> None:  # noqa: F811
    prepared(boxed, image(boxed), "activate=export ACTIVATED=yes", "module=not-there")
    child = opened(boxed, "outside")
    child.expect(rf"\(outside the container, {NODE}\) \S+:.*[$#] ")
    child.sendline('echo "<$INSIDE$ACTIVATED>"; kill -HUP $PPID; exit')
    child.expect_exact("\n<>")
    child.expect(pexpect.EOF)
    assert not (boxed.home / "called").exists()


def test_one_command(boxed: Job) -> None:  # noqa: F811
    prepared(boxed, image(boxed), "activate=export ACTIVATED=$INSIDE")
    done = output_of(boxed, "echo \"$ACTIVATED 'it' $(pwd)\"; echo wrong >&2; exit 3")
    assert (done.stdout, done.stderr, done.returncode) == (f"yes 'it' {boxed.work}\n", "wrong\n", 3)
    assert output_of(boxed, 'echo "<$ACTIVATED>"', "outside").stdout == "<>\n"
    assert marks(boxed) == []


def test_no_shell_in_another_image_than_the_environment_demands(boxed: Job) -> None:  # noqa: F811
    (boxed.root / "an image.sif").write_bytes(b"another one")
    prepared(boxed, image(boxed), f"digest=sha256:{hashlib.sha256(b'the one').hexdigest()}")
    done = output_of(boxed, "echo never")
    assert done.stdout == "" and done.returncode != 0
    assert "is not the one that the environment demands" in " ".join(done.stderr.split())
    assert not (boxed.home / "called").exists(), "the container command was not called"
    assert marks(boxed) == []
    (boxed.dir / "session.env").write_text(
        f"{image(boxed)}\ndigest=sha256:{hashlib.sha256(b'another one').hexdigest()}\n"
    )
    assert output_of(boxed, "echo there").stdout == "there\n"


def test_what_goes_wrong_is_told_as_the_job_tells_it(boxed: Job) -> None:  # noqa: F811
    cases = {
        f"container={boxed.root}/none.sif": "There is no container image",
        "venv=/no/where": "There is no virtual environment in /no/where",
        "activate=no-such-command": "failed with exit code 127",
        "activate=exit 4": "ended the job's shell",
        "module=jupyterlab/4": "There is no 'module' command",
    }
    for line, sentence in cases.items():
        prepared(boxed, line)
        done = output_of(boxed, "echo never")
        assert done.stdout == "" and done.returncode != 0
        assert f"notebook-launcher: {sentence}" in done.stderr or sentence in done.stderr
        assert "the job's log" not in done.stderr, "there is none here"
        child = opened(boxed)
        child.expect_exact(sentence)
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus != 0
        assert marks(boxed) == []
        assert not (boxed.dir / "runtime" / "cause").exists(), "the job itself has not failed"
        for path in (boxed.dir / "runtime").iterdir():
            path.unlink()
        (boxed.dir / "runtime").rmdir()


def test_an_image_without_a_shell(boxed: Job) -> None:  # noqa: F811
    prepared(boxed, image(boxed))
    boxed.env["BREAK"] = "yes"
    done = output_of(boxed, "true")
    assert done.returncode == 255
    assert "could not run bash in" in done.stderr


def test_the_files_of_a_shell_are_the_users_alone(boxed: Job) -> None:  # noqa: F811
    prepared(boxed, image(boxed))
    child = opened(boxed)
    child.expect(r"[$#] ")
    assert {permissions(boxed.dir / "runtime" / name) for name in marks(boxed)} == {0o600}
    child.close(force=True)


# --- the job of a shell ------------------------------------------------------------------------------------------


def test_a_job_for_shells_ends_soon_after_the_last_one(job: Job) -> None:  # noqa: F811
    job.ask("program=shell", "usage=0")
    job.start()
    job.started()
    (job.dir / "shell.sh").write_bytes((JOBSCRIPTS / "shell.sh").read_bytes())
    first, second = opened(job), opened(job)
    for child in (first, second):
        child.expect(r"[$#] ")
    first.sendline("exit")
    first.expect(pexpect.EOF)
    time.sleep(6)
    assert job.process is not None and job.process.poll() is None, "there is another shell"
    os.kill(second.pid, 9)  # without a word
    second.close(force=True)
    began = time.monotonic()
    assert job.exit()["message"] == "The last shell was closed."
    print(f"the job had ended {time.monotonic() - began:.1f} s after its last shell")
    assert time.monotonic() - began < 10
    assert job.processes() == []


def test_a_shell_that_was_open_for_a_moment_counts(job: Job) -> None:  # noqa: F811
    job.ask("program=shell", "usage=0")
    job.start()
    job.started()
    (job.dir / "shell.sh").write_bytes((JOBSCRIPTS / "shell.sh").read_bytes())
    began = time.monotonic()
    assert output_of(job, "true").returncode == 0
    assert job.exit()["message"] == "The last shell was closed."
    assert time.monotonic() - began < 10


def test_a_job_for_shells_does_not_wait_for_ever(job: Job) -> None:  # noqa: F811
    job.ask("program=shell", "usage=0")
    job.env["NBL_FIRST_SHELL_SECONDS"] = "2"
    report = job.run()
    assert (report["cause"], report["message"]) == ("finished", "Nobody opened a shell within 2 seconds.")


def test_a_job_for_shells_answers_signals(job: Job) -> None:  # noqa: F811
    job.ask("program=shell", "usage=0")
    job.start()
    job.started()
    job.send(15)
    assert job.exit()["cause"] == "stopped"
