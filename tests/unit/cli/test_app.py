"""Words in another order than they are meant, and flags of another command."""

from __future__ import annotations

import subprocess
import sys

import pytest

from notebook_launcher.cli.app import cli, run


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        (["--help", "list"], "launch-notebook list [OPTIONS]"),
        (["-h", "course", "list"], "launch-notebook course list [OPTIONS]"),
        (["--cluster", "uni", "--help", "stop"], "launch-notebook stop [OPTIONS]"),
        (["--help"], "launch-notebook [OPTIONS] COMMAND"),
        (["help"], "launch-notebook [OPTIONS] COMMAND"),
        (["help", "stop"], "launch-notebook stop [OPTIONS]"),
        (["help", "course", "list"], "launch-notebook course list [OPTIONS]"),
        (["--help", "-t", "2:00:00"], "launch-notebook [OPTIONS] COMMAND"),
        (["launch", "-h"], "launch-notebook launch [NOTEBOOK] [OPTIONS] [-- ENVIRONMENT [IMAGE]]\n"),
        (["classroom"], "launch-notebook classroom [OPTIONS] COMMAND"),
        (["run", "-h"], "launch-notebook run [OPTIONS] NOTEBOOK [-- ENVIRONMENT [IMAGE]]\n"),
    ],
)
def test_help_of_a_command_that_comes_after_it(
    words: list[str], usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 0
    assert capsys.readouterr().out.startswith(f"Usage: {usage}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["-t"],
            "-t needs a value.\n  → for example: launch-notebook -t 2:00:00 --gpus 1   or see: ",
        ),
        (["run", "-t"], "“run”: -t needs a value.\n  → for example: launch-notebook run "),
        (["--renew", "x"], "Invalid value for '--renew': “x” is not a number from 0 to 20."),
        (["env", "foo"], "“env” has no command “foo”.\n  It has: list, "),
    ],
)
def test_what_is_typed_wrong_is_named_with_an_example(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    assert capsys.readouterr().err.startswith(f"launch-notebook: {message}")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["list", "--uv", "x"], "it is a flag of: a launch, bench, doctor, jobscript, run, shell or submit"),
        (["stop", "--follow"], "it is a flag of: launch-notebook connect or logs or run"),
        (["list", "--alll"], "did you mean --all?"),
        (["list", "--no-such-flag-anywhere"], "see: launch-notebook list --help"),
    ],
)
def test_a_flag_of_another_command_is_named_as_that(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    error = capsys.readouterr().err
    assert f"“{words[0]}” has no flag {words[1]}." in error and f"→ {hint}\n" in error


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--name", "x"], "did you mean --job-name? --name is a flag of: launch-notebook env or init"),
        (["-n", "4", "--name=x"], "did you mean --job-name? --name is a flag of: launch-notebook env or init"),
        (["--nmae", "x"], "did you mean --job-name?"),
        (["-name", "x"], "did you mean --job-name x?"),
        (["-nmae", "x"], "did you mean --job-name x?"),
        (["-time", "1:00:00"], "did you mean --time 1:00:00?"),
        (["-gpus", "2", "--open"], "did you mean --gpus?"),
        (["-pgpu", "tf"], "launch-notebook … -- tf"),
        (["run", "--name", "x"], "did you mean --job-name?"),
        (["submit", __file__, "-array", "0-3"], "did you mean --array 0-3?"),
    ],
)
def test_a_mistyped_flag(words: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    assert f"→ {hint}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [(["-t", "1:00:00"], "No job was started."), (["connect"], "The session keeps running."), (["list"], "")],
)
def test_ctrl_c_before_a_command_has_begun(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(**_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "main", interrupted)
    run(words)
    assert " ".join(capsys.readouterr().err.split()) == f"launch-notebook: Interrupted. {why}".strip()


def test_ctrl_c_once_more_while_the_first_is_answered_prints_no_traceback() -> None:
    program = (
        "from notebook_launcher.cli import app, main\n"
        "from notebook_launcher.cli.views import errors\n"
        "def interrupted(*_, **__): raise KeyboardInterrupt\n"
        "app.cli.main = errors.report = interrupted\n"
        "main(['list'])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
