"""A terminal elsewhere: the user's terminal lent to a command on every host, and a command without one.

What lends the terminal is a small program in a real terminal (pexpect); the SSH server is a real sshd.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pexpect
import psutil  # type: ignore[import-untyped]
import pytest

from notebook_launcher.hosts import terminal
from notebook_launcher.hosts.framing import Frame
from tests.doubles import wait_until
from tests.ssh_server import Server, end_connections

pytestmark = [pytest.mark.timeout(60), pytest.mark.real_time]


# what a story does, without the story: SIGINT and SIGTERM are noted, SIGTERM ends it
LENDS = """
import signal, sys, termios
from notebook_launcher.core.errors import LauncherError
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.hosts.base import NoPrompts
from notebook_launcher.hosts.login_setup import LoginSetup

kind, config, how, *command = sys.argv[1:]
if kind == "local":
    host = LocalHost()
else:
    from notebook_launcher.hosts.openssh.host import OpenSshHost
    from notebook_launcher.hosts.paramiko.host import ParamikoHost
    from notebook_launcher.hosts.paramiko.login import Credentials
    from notebook_launcher.hosts.ssh_config import Destination
    engine = {"paramiko": ParamikoHost, "openssh": OpenSshHost}[kind]
    host = engine.open(Destination("server", config_file=config), Credentials(NoPrompts()))
    host.login_setup = LoginSetup(("export PREPARED=yes",))
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
        self.child.expect(rb"CODE [^\r\n]*[\r\n]")  # the whole line, of which a part may come first
        report = self.child.after.decode().rstrip()
        self.child.expect(pexpect.EOF)
        return str(report)


Lend = Callable[..., Lender]


@pytest.fixture(params=["local", "paramiko", "openssh"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def attach_terminal(kind: str, server: Server) -> Iterator[Lend]:
    lenders: list[Lender] = []

    def attach_terminal(*command: str, **size: int) -> Lender:
        lenders.append(Lender(kind, server.config, *command, **size))
        return lenders[-1]

    yield attach_terminal
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


def test_a_terminal_elsewhere_is_like_one_here(attach_terminal: Lend) -> None:
    lender = attach_terminal("bash", "--norc", "-i")
    lender.child.send(b"stty size; echo $TERM; stty -a | grep -c -- -isig\n")
    lender.see(r"30 111\r\nvt220\r\n0\r\n")
    lender.child.setwinsize(40, 90)
    lender.child.send(b"until stty size | grep '40 90'; do sleep 0.1; done\n")
    lender.see("40 90\r\n")
    lender.child.send(b"echo begun; sleep 50 || echo over\n")
    lender.see("begun\r\n")
    time.sleep(0.2)
    lender.child.send(b"\x03")
    lender.see(r"\^C")
    lender.child.send(b"exit 43\n")
    assert lender.report() == "CODE 43 HEARD [] SAME True"


def test_a_terminal_elsewhere_has_what_the_profile_prepares(attach_terminal: Lend, kind: str) -> None:
    lender = attach_terminal("bash", "-c", 'echo "prepared: ${PREPARED-no}"')
    lender.see(f"prepared: {'no' if kind == 'local' else 'yes'}")
    assert lender.report() == "CODE 0 HEARD [] SAME True"


def test_a_command_that_is_not_there(attach_terminal: Lend) -> None:
    assert attach_terminal("no-such-command").report() == "CODE 127 HEARD [] SAME True"


def test_every_byte_passes_both_ways_however_many(attach_terminal: Lend) -> None:
    everything = bytes(range(256)) * 1000
    program = (
        "import hashlib, os, sys, tty; tty.setraw(0); os.write(1, b'GO'); got = b''\n"
        "while len(got) < 256000: got += os.read(0, 65536)\n"
        "os.write(1, hashlib.sha256(got).hexdigest().encode() + bytes(range(256)) + b'END')"
    )
    lender = attach_terminal(sys.executable, "-c", program)
    lender.see("GO")
    for start in range(0, len(everything), 2000):
        lender.child.send(everything[start : start + 2000])
    lender.child.expect_exact(hashlib.sha256(everything).hexdigest().encode() + bytes(range(256)) + b"END")
    assert lender.report() == "CODE 0 HEARD [] SAME True"


def test_much_comes_out_while_nothing_is_read(attach_terminal: Lend) -> None:
    """A command that prints without end and reads nothing can still be interrupted."""
    lender = attach_terminal("sh", "-c", "trap : INT; yes 123456789; exit 5")
    # a terminal goes on showing while somebody types
    typing = threading.Thread(target=lender.child.send, args=(b"typed ahead " * 1000,))
    typing.start()
    lender.see("123456789\r\n123456789")
    while typing.is_alive():
        lender.see("123456789\r\n123456789")
    lender.child.send(b"\x03")
    assert lender.report() == "CODE 5 HEARD [] SAME True"


def test_a_word_from_outside_ends_it(attach_terminal: Lend, mark: str) -> None:
    lender = attach_terminal("sh", "-c", f"echo here; exec sleep {mark}")
    lender.see("here")
    began = time.monotonic()
    os.kill(lender.child.pid, 15)
    assert lender.report() == "CODE -1 HEARD ['TERM'] SAME True"
    wait_until(lambda: not running(mark), what="the command has ended")
    assert time.monotonic() - began < 20


def test_when_we_are_killed_the_command_ends_as_well(attach_terminal: Lend, mark: str) -> None:
    lender = attach_terminal("sh", "-c", f"echo here; exec sleep {mark}")
    lender.see("here")
    began = time.monotonic()
    os.kill(lender.child.pid, 9)
    wait_until(lambda: not running(mark), what="the command has ended")
    print(f"the command had ended {time.monotonic() - began:.2f} s after the kill")


@pytest.mark.parametrize("kind", ["paramiko", "openssh"], indirect=True)
def test_a_connection_that_breaks(attach_terminal: Lend, server: Server) -> None:
    """Also out of an editor: the terminal shows the usual screen and the cursor again."""
    lender = attach_terminal(
        "sh", "-c", r"printf '\033[?10'; sleep 0.2; printf '49h\033[?25l'; echo here; exec sleep 4712"
    )
    lender.see("here")
    began = time.monotonic()
    end_connections(server, set())
    lender.child.expect_exact(b"\x1b[?1049l\x1b[?25h")
    assert lender.report() == "CODE ConnectionLost HEARD [] SAME True"
    assert time.monotonic() - began < 20


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
def passing(server: Server) -> Iterator[Pass]:
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
    wait_until(lambda: len(running(mark)) == 2, what="all of it runs")
    child.send_signal(how)
    wait_until(lambda: not running(mark), what="the command has ended")
    assert b"after" not in child.communicate(timeout=30)[0]


def test_what_does_not_listen_ends_as_well(passing: Pass, mark: str) -> None:
    child = passing("local", "bash", "-c", f"(trap '' TERM; exec sleep {mark}) & echo here; sleep {mark}")
    assert child.stdout is not None and child.stdout.readline() == b"here\n"
    wait_until(lambda: len(running(mark)) == 2, what="all of it runs")
    child.send_signal(signal.SIGTERM)
    assert b"CODE -1 " in child.communicate(timeout=30)[1]
    assert not running(mark)


def test_what_a_command_leaves_behind_ends_with_it(kind: str, passing: Pass, mark: str) -> None:
    """As it does in a step of Slurm's."""
    child = passing(kind, "sh", "-c", f"sleep {mark} & echo here")
    assert b"CODE 0 " in child.communicate(timeout=30)[1]
    wait_until(lambda: not running(mark), what="nothing runs")


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
    child.communicate(timeout=30)


def test_nobody_reads_the_output_to_its_end(kind: str, passing: Pass) -> None:
    child = passing(kind, "yes", "4715")
    assert child.stdout is not None and child.stdout.readline() == b"4715\n"
    child.stdout.close()
    assert child.stderr is not None and b"CODE 141 " in child.stderr.read()
    child.wait(30)


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
@pytest.mark.parametrize("shell", ["sh", "bash", "zsh", "tcsh", "fish", "ksh"])
def test_a_word_reaches_a_command_whatever_the_login_shell(shell: str, words: list[str], login_shell: bool) -> None:
    if not shutil.which(shell):
        pytest.skip(f"there is no {shell} here")
    frame = Frame()
    line = frame.command_line(["printf", "<%s>", *words], login_shell=login_shell)
    done = subprocess.run([shell, "-c", line], capture_output=True, text=True, check=False, timeout=20)
    assert frame.read(done.stdout) == ("".join(f"<{word}>" for word in words), 0)
