"""A template written into a folder of the user's, with what it needs beside it, and the line to type next."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from notebook_launcher import submit
from notebook_launcher.cli.app import run
from notebook_launcher.core import events
from notebook_launcher.core.errors import UsageError
from notebook_launcher.planning.target import LaunchOptions, LocalMachine
from notebook_launcher.scripts.save import save_files
from notebook_launcher.scripts.templates import template_named
from tests.paths import JOBSCRIPTS

LAPTOP, LOGIN = LocalMachine("laptop"), LocalMachine("login", ("slurm",))
LSF = LocalMachine("login", ("lsf",))
TRAINING = {f"training/{path.name}": path.read_bytes() for path in (JOBSCRIPTS / "training").glob("*.py")}
TRAIN = ("-t", "30", "--cluster", "here")


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o027)
    yield
    os.umask(before)


def saved(template: str, options: LaunchOptions, here: LocalMachine, folder: str) -> events.TemplateSaved:
    event, _ = submit.save_template(template_named(template), options, here, Path(folder))
    return event


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_template_is_written_with_what_it_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["jobscript", "train", *TRAIN, "--to", "a lesson/one"]) == 0
    folder = tmp_path / "a lesson" / "one"
    assert capsys.readouterr().out.splitlines() == [
        "Written: a lesson/one/train.sh, a lesson/one/training/",
        "To submit it:  cd 'a lesson/one' && launch-notebook submit train.sh --cluster here",
    ]
    there = files_in(folder)
    script = there.pop("train.sh")
    assert script.startswith(b"#!/bin/bash -l\n") and b"#SBATCH --time=30\n" in script and there == TRAINING
    modes = [(folder / name).stat().st_mode & 0o777 for name in ("train.sh", "training/train_ddp.py")]
    assert modes == [0o750, 0o640], "as the user's umask allows"
    # another one into the same folder finds its files there
    assert run(["jobscript", "train-multi-gpu", *TRAIN, "--to", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        f"Written: {folder}/train-multi-gpu.sh",
        f"Already there, and the same: {folder}/training/",
    ]


def test_nothing_of_the_users_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = tmp_path / "training" / "plan.py"
    changed.parent.mkdir()
    changed.write_text("mine\n")
    assert run(["jobscript", "train", *TRAIN, "--to", "."]) == 2
    error = capsys.readouterr().err
    assert "Other files of the same name are there already: training/plan.py" in error
    assert "Nothing was written." in error and "--force" in error
    assert files_in(tmp_path) == {"training/plan.py": b"mine\n"}
    assert run(["jobscript", "train", *TRAIN, "--to", ".", "--force", "--json"]) == 0
    (event,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (event["event"], event["folder"], event["unchanged"]) == ("template_saved", ".", [])
    assert set(event["written"]) == {"train.sh", *TRAINING} == files_in(tmp_path).keys()
    assert files_in(tmp_path)["training/plan.py"] == TRAINING["training/plan.py"]


@pytest.mark.parametrize("to", ["", "file", "file/below"])
def test_what_is_no_folder_is_refused(tmp_path: Path, to: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("x")
    assert run(["jobscript", "train", *TRAIN, "--to", to]) == 2
    assert "--to" in capsys.readouterr().err and files_in(tmp_path) == {"file": b"x"}


def test_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "training").symlink_to("elsewhere")
    with pytest.raises(UsageError, match=r"folders or links .*: training/a\.py"):
        save_files(Path(), {"training/a.py": b"1"}, force=True)
    (tmp_path / "b.sh").symlink_to("elsewhere/new")
    with pytest.raises(UsageError, match="links"):
        save_files(Path(), {"b.sh": b"1"}, force=True)
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize(
    ("template", "options", "here", "command", "on_login"),
    [
        ("train", LaunchOptions(), LOGIN, "cd new && sbatch train.sh", ""),
        ("train-array", LaunchOptions(), LOGIN, "cd new && sbatch train-array.sh", ""),
        ("train-array", LaunchOptions(), LSF, "cd new && bsub < train-array.sh", ""),
        ("train", LaunchOptions(), LAPTOP, "", "sbatch train.sh"),
        (
            "train",
            LaunchOptions(host="bob@login"),
            LAPTOP,
            "launch-notebook submit new/train.sh --with new/training --host bob@login",
            "",
        ),
        ("first-job", LaunchOptions(host="login"), LAPTOP, "launch-notebook submit new/first-job.sh --host login", ""),
        (
            "train-array",
            LaunchOptions(host="login"),
            LAPTOP,
            "launch-notebook submit new/train-array.sh --with new/training --host login",
            "",
        ),
        (
            "train-array",
            LaunchOptions(cluster="dtu"),
            LAPTOP,
            "launch-notebook copy new/train-array.sh new/training login: --cluster dtu",
            "bsub < train-array.sh",
        ),
    ],
)
def test_what_to_type_next(
    template: str, options: LaunchOptions, here: LocalMachine, command: str, on_login: str
) -> None:
    event = saved(template, options, here, "new")
    assert (event.command, event.on_login) == (command, on_login)


def test_in_the_current_folder_there_is_nowhere_to_go() -> None:
    assert saved("first-job", LaunchOptions(), LOGIN, ".").command == "sbatch first-job.sh"


def test_a_training_that_is_elsewhere_is_not_written() -> None:
    options = LaunchOptions(arguments=("TRAINING=/sw/training",))
    event = saved("train", options, LOGIN, "new")
    assert event.written == ("train.sh",) and "/sw/training" in Path("new/train.sh").read_text()


def test_what_is_printed_alone_says_what_it_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["jobscript", "train", *TRAIN]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("#!/bin/bash -l\n# train: ") and printed.out.endswith("\nexit 99\n")
    assert printed.err == "train needs the folder training beside it. To write both: add --to FOLDER\n"
    assert run(["jobscript", "first-job", *TRAIN]) == 0
    assert capsys.readouterr().err == ""
