"""The last launch once more, or a saved one: what is repeated, what is added, and what there is to repeat."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from notebook_launcher import launch as launch_module
from notebook_launcher.cli.app import run
from notebook_launcher.cli.commands.again import remember_launch
from notebook_launcher.core import local_state
from notebook_launcher.core.errors import WalltimeRefused
from notebook_launcher.planning.plan import Plan
from notebook_launcher.profiles import load_profile

PROFILE = """
[environments.tf-gpu]
container = "/images/tf.sif"
[environments.mkl]
container = "/images/mkl.sif"
"""


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path))
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "uni.toml").write_text(PROFILE)


def remember(*words: str) -> None:
    local_state.remember("launches", socket.gethostname(), json.dumps(words))


@pytest.mark.parametrize(
    ("flags", "environment", "command", "submitted"),
    [
        ([], [], "--dry-run -- tf-gpu", ["--time=2:00:00", "container=/images/tf.sif"]),
        (["-t", "30"], [], "-t 30 --dry-run -- tf-gpu", ["--time=30", "container=/images/tf.sif"]),
        ([], ["--", "mkl"], "--dry-run -- mkl", ["--time=2:00:00", "container=/images/mkl.sif"]),
        (["--mem=5G"], ["--", "mkl"], "--mem=5G --dry-run -- mkl", ["--mem=5G", "container=/images/mkl.sif"]),
    ],
)
def test_what_is_added_is_appended_and_the_last_value_of_a_flag_counts(
    flags: list[str], environment: list[str], command: str, submitted: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    remember("--cluster", "uni", "-t", "2h", "--gpus", "1", "--", "tf-gpu")
    assert run(["again", *flags, "--dry-run", *environment]) == 0
    said = capsys.readouterr()
    assert said.err == f"launch-notebook --cluster uni -t 2h --gpus 1 {command}\n"
    assert [part for part in submitted if part not in said.out] == []


def test_a_flag_that_only_the_cluster_knows_takes_the_place_of_the_earlier_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    remember("--cluster", "uni", "--container-image=old", "--fresh-nodes", "-t", "2h", "--", "tf-gpu")
    assert run(["again", "--container-image=new", "--dry-run"]) == 0
    said = capsys.readouterr()
    shown = "--cluster uni --fresh-nodes -t 2h --container-image=new --dry-run -- tf-gpu"
    assert said.err.startswith(f"launch-notebook {shown}\n")
    assert "--container-image=new" in said.out and "--container-image=old" not in said.out


def test_a_login_node_that_was_typed_when_asked_is_not_asked_for_again() -> None:
    remember_launch(["-t", "2h", "--", "tf-gpu"], "alice@login")
    words = json.loads(local_state.remembered("launches", socket.gethostname()) or "")
    assert words == ["-t", "2h", "--host", "alice@login", "--", "tf-gpu"]


def test_a_dry_run_is_not_what_is_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--cluster", "uni", "--dry-run", "--", "tf-gpu"]) == 0
    assert run(["again"]) == 2
    error = capsys.readouterr().err
    assert "No launch from this machine is remembered." in error and "→ start one" in error


@pytest.mark.parametrize("damaged", ["[1]", "{}", "no json", "null"])
def test_a_damaged_memory_is_none(damaged: str, capsys: pytest.CaptureFixture[str]) -> None:
    local_state.remember("launches", socket.gethostname(), damaged)
    assert run(["again"]) == 2
    assert "No launch" in capsys.readouterr().err


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that would be launched; nothing is contacted."""
    done: list[str] = []

    def launch(plan: Plan, *arguments: Any) -> None:
        done.append(plan.command)
        arguments[-1]()  # the job is queued

    monkeypatch.setattr(launch_module, "launch", launch)
    return done


def test_a_refused_launch_is_not_what_is_repeated(
    launched: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--cluster", "uni", "-t", "2h"]) == 0

    def refuse(*_arguments: object) -> None:
        raise WalltimeRefused("The walltime is longer than is allowed there.")

    with monkeypatch.context() as refusing:
        refusing.setattr(launch_module, "launch", refuse)
        assert run(["--cluster", "uni", "-t", "90-0"]) == WalltimeRefused.exit_code
    assert run(["again"]) == 0
    assert capsys.readouterr().err.endswith("launch-notebook --cluster uni -t 2h\n")
    assert launched == ["--cluster uni -t 2h"] * 2


def test_a_launch_is_saved_in_its_profile_and_found_by_its_name(
    launched: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--cluster", "uni", "-t", "2h", "--save", "big", "--gpus", "1", "--", "tf-gpu"]) == 0
    assert load_profile("uni").presets == {"big": "-t 2h --gpus 1 -- tf-gpu"}
    said = "".join(capsys.readouterr())
    assert "uni.toml" in said and "\n  launch-notebook again big --cluster uni\n" in said
    for typed in (["again", "big"], ["again", "big", "--cluster", "uni"], ["--cluster", "uni", "again", "big"]):
        assert run(typed) == 0
    assert run(["again", "big", "-t", "30", "--", "mkl"]) == 0
    assert len(launched) == 5 and len(set(launched[:4])) == 1
    assert launched[4] == "--cluster uni -t 30 --gpus 1 -- mkl"


@pytest.mark.parametrize(
    ("typed", "repeated"),
    [
        (["--json", "clusters", "use", "here"], "The command comes first: clusters."),
        (["--cluster", "here", "copy", "x", "y"], "The command comes first: copy."),
    ],
)
def test_what_is_repeated_is_never_another_command(
    launched: list[str], typed: list[str], repeated: str, capsys: pytest.CaptureFixture[str]
) -> None:
    remember(*typed)
    assert run(["again"]) == 2
    assert repeated in "".join(capsys.readouterr()) and launched == []


def test_the_name_of_the_command_itself_is_not_repeated(launched: list[str]) -> None:
    assert run(["--cluster", "uni", "launch", "-t", "1h", "--save", "big"]) == 0
    assert load_profile("uni").presets == {"big": "-t 1h"}
    assert run(["again"]) == run(["again", "big"]) == 0 and len(set(launched)) == 1


def test_a_notebook_stays_in_front_of_what_is_added(
    tmp_path: Path, launched: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "clusters" / "uni.toml").write_text('presets.train = "train.ipynb -t 2h -- mkl"\n' + PROFILE)
    assert run(["again", "train", "--gpus", "1"]) == 0
    assert "launch-notebook train.ipynb -t 2h --cluster uni --gpus 1 -- mkl\n" in capsys.readouterr().err
    assert "--open-at train.ipynb" in launched[0] and "--cluster uni" in launched[0]


def test_a_preset_without_its_cluster_gets_it(tmp_path: Path, launched: list[str]) -> None:
    (tmp_path / "config.toml").write_text('cluster = "uni"\n')
    assert run(["--gpus", "1", "--save=big"]) == 0
    assert load_profile("uni").presets == {"big": "--gpus 1"}
    (tmp_path / "config.toml").write_text('cluster = "here"\n')
    assert run(["again", "big"]) == 0
    assert "--cluster uni" in launched[1]


def test_a_launch_that_cannot_be_saved_is_not_started(
    tmp_path: Path, launched: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "clusters" / "uni.toml").write_text('presets.big = "--gpus 1"\n' + PROFILE)
    assert run(["--cluster", "uni", "--save", "big", "-t", "1h"]) == 2
    assert "There is a preset “big” already." in capsys.readouterr().err
    assert launched == [] and load_profile("uni").presets == {"big": "--gpus 1"}


def test_a_dry_run_saves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--cluster", "uni", "--save", "big", "--dry-run"]) == 0
    assert "A dry run saves nothing" in "".join(capsys.readouterr())
    assert load_profile("uni").presets == {}
