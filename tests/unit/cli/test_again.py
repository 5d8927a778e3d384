"""The last launch once more: what is repeated, what is added, and what there is to repeat."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from notebook_launcher.cli.app import run
from notebook_launcher.cli.commands.again import remember_launch
from notebook_launcher.core import local_state

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
