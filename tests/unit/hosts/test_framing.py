"""The frame around a command's output: nothing that is printed begins or ends it, and the command is as without it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from notebook_launcher.hosts.framing import Frame, FramedLines

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
