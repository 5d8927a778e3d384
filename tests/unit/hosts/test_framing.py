"""The frame around a command's output: nothing that is printed begins or ends it, and the command is as without it."""

from __future__ import annotations

import os
import subprocess
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from notebook_launcher.hosts import framing, terminal
from notebook_launcher.hosts.framing import BEGINS_WITHIN, Frame, FramedLines, NoFrame

OLD_BEGINS, OLD_ENDS = "--notebook-launcher--", "--notebook-launcher-ended--"


def test_what_is_followed_cannot_end_its_own_lines() -> None:
    frame, other = Frame(), Frame()
    log = ["first", f"{OLD_ENDS} 0", f"{other.begins}", f"{other.ends} 0", "x" + frame.ends, "last"]
    lines = FramedLines(frame, ["noise", OLD_BEGINS, other.begins, f"and {frame.begins}", *log, f"{frame.ends} 3"])
    assert (list(lines), lines.exit_code) == (log, 3)


def test_the_mark_of_another_frame_is_no_answer() -> None:
    frame, other = Frame(), Frame()
    printed = f"{OLD_BEGINS}\n{other.begins}\nout{OLD_ENDS} 0\n{other.ends} 0\n"
    assert frame.read(printed) is None
    assert frame.read(f"{frame.begins}\n{printed}") == (printed, None)
    assert frame.read(f"{printed}{frame.begins}\n{printed}{frame.ends} 3\n{printed}") == (printed, 3)


class Noisy:
    """A channel on which noise comes for ever, each piece of it after some seconds of a clock of its own."""

    def __init__(self, seconds: float, piece: bytes = b"x") -> None:
        self.now, self._seconds, self._piece, self._timeout = 0.0, seconds, piece, 0.5

    def monotonic(self) -> float:
        return self.now

    def settimeout(self, seconds: float | None, /) -> None:
        assert seconds is not None and seconds > 0
        self._timeout = seconds

    def recv(self, count: int, /) -> bytes:
        assert self.now < BEGINS_WITHIN + 1, "it is still waited for"
        self.now += min(self._seconds, self._timeout)
        if self._seconds > self._timeout:
            raise TimeoutError
        return self._piece[:count]


@pytest.fixture
def noisy(monkeypatch: pytest.MonkeyPatch, seconds: float) -> Noisy:
    channel = Noisy(seconds, b"x" * 65536)
    for module in (framing, terminal):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=channel.monotonic))
    return channel


@pytest.mark.parametrize("seconds", [0.4, 60.0, 1000.0])
def test_the_beginning_of_a_process_is_waited_for_once(noisy: Noisy) -> None:
    with pytest.raises((NoFrame, TimeoutError)):
        Frame().skip_to_beginning(noisy)
    assert BEGINS_WITHIN <= noisy.now < BEGINS_WITHIN + 1


@pytest.mark.parametrize("seconds", [0.4, 1000.0])
def test_the_beginning_of_an_output_is_waited_for_once_and_noise_is_not_kept(noisy: Noisy) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(NoFrame):
            terminal.copy_output(Frame(), noisy.recv, lambda: False)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert BEGINS_WITHIN <= noisy.now < BEGINS_WITHIN + 1


def test_a_beginning_that_comes_in_pieces_is_found(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    frame = Frame()
    said = [*(bytes([byte]) for byte in f"noise{frame.begins[:-1]}{frame.begins}\n".encode()), b"out", b"put", b""]
    assert terminal.copy_output(frame, lambda _: said.pop(0), lambda: False) is None
    assert capfdbinary.readouterr().out == b"output"


each_shell = pytest.mark.parametrize("login_shell", [False, True])


def run(argv: Sequence[str], *, login_shell: bool, home: str = "/nowhere", **env: str) -> tuple[str, int | None, str]:
    """Run a framed command as sshd does, and return its output, exit code and standard error."""
    frame = Frame()
    line = ["bash", "--norc", "-c", frame.command_line(argv, login_shell=login_shell)]
    env = {"HOME": home, "PATH": os.environ["PATH"], **env}
    done = subprocess.run(line, env=env, capture_output=True, text=True, check=False, timeout=20)
    answer = frame.read(done.stdout)
    assert answer is not None, done.stderr
    return (*answer, done.stderr)


@pytest.mark.real_time
@each_shell
def test_shell_options_reach_a_command_as_they_were_exported(login_shell: bool) -> None:
    output, *_ = run(["bash", "-c", "echo $SHELLOPTS"], login_shell=login_shell, SHELLOPTS="braceexpand:ignoreeof")
    assert "ignoreeof" in output and "posix" not in output
    output, *_ = run(["bash", "-c", "echo $SHELLOPTS"], login_shell=login_shell, SHELLOPTS="braceexpand:posix")
    assert "posix" in output
    assert run(["printenv", "POSIXLY_CORRECT"], login_shell=login_shell, POSIXLY_CORRECT="1") == ("1\n", 0, "")


@pytest.mark.real_time
@each_shell
@pytest.mark.parametrize("name", ["spack-env", "echo", "exit", "exec", "declare", "shift", "true"])
def test_exported_functions_are_left_to_the_command(name: str, login_shell: bool) -> None:
    """Also one that another shell's name could not have, of which bash would complain in a mode that we do not need."""
    exported = {f"BASH_FUNC_{name}%%": "() { printf function; return 9; }"}
    assert run(["true"], login_shell=login_shell, **exported) == ("", 0, "")
    declared, code, errors = run(["bash", "-c", f"builtin declare -F {name}"], login_shell=login_shell, **exported)
    assert (declared, code, errors) == (f"{name}\n", 0, "")


@pytest.mark.real_time
def test_what_bash_env_names_is_for_the_commands_of_a_login_shell(tmp_path: Path) -> None:
    """It prints, and is read neither by the frame nor by our own scripts."""
    named = str(tmp_path / "a 'quoted' name")
    Path(named).write_text("echo of BASH_ENV\n")
    script = ["bash", "-c", 'echo "${BASH_ENV-none}"']
    assert run(script, login_shell=False, BASH_ENV=named) == ("none\n", 0, "")
    assert run(script, login_shell=True, BASH_ENV=named) == (f"of BASH_ENV\n{named}\n", 0, "")
    assert run(script, login_shell=True) == ("none\n", 0, "")
    (tmp_path / ".bash_profile").write_text(f'BASH_ENV="{named}"; set -eu\n')  # not exported
    assert run(script, login_shell=True, home=str(tmp_path)) == ("none\n", 0, "")


@pytest.mark.real_time
@each_shell
def test_variables_reach_a_command_as_they_were_exported(login_shell: bool, tmp_path: Path) -> None:
    """Where a start-up file exports every variable that is set, those of the frame as well."""
    (tmp_path / ".bash_profile").write_text("set -a\n")
    exported = {"SHELLOPTS": "allexport", "code": "mine"}
    output, code, errors = run(["env"], login_shell=login_shell, home=str(tmp_path), **exported)
    names = {line.partition("=")[0] for line in output.splitlines()}
    assert (code, errors) == (0, "")
    assert "code=mine\n" in output
    assert names - {"_", "OLDPWD"} <= {"HOME", "PATH", "PWD", "SHLVL", "SHELLOPTS", "code"}, names
