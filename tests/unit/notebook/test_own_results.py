"""The results of earlier runs that go with the bundled notebook that compares them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from notebook_launcher.notebook import own_results as module
from notebook_launcher.notebook.prepare import prepare

LINE = '{"name": "fit"}\n'
SESSION = "20261122-101500-k3f7"


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_run(folder: str, session: str = SESSION, text: str = LINE, age: float = 0.0) -> Path:
    """A folder as ``run`` leaves it; ``age``: seconds."""
    path = Path(folder)
    path.mkdir(parents=True)
    (path / "run.json").write_text(json.dumps({"session": session}))
    (path / "train.ipynb").write_text("{}")
    (path / "results.jsonl").write_text(text)
    os.utime(path / "results.jsonl", (1e9 - age, 1e9 - age))
    return path


def sent(runs: str = "runs", pairs: tuple[tuple[str, str], ...] = (), extra: tuple[Path, ...] = ()) -> set[str]:
    return set(prepare("compare", pairs, extra, Path(runs)).dependencies) - {"timing.py"}


def test_results_of_runs_and_benches_go_along_and_it_is_said() -> None:
    write_run("runs/train-1")
    write_run("bench-tiny/runs/cores=1 gpus=0")
    prepared = prepare("compare", (), (), Path("runs"))
    assert set(prepared.dependencies) == {
        "timing.py",
        "runs/train-1/results.jsonl",
        "runs/bench-tiny.cores=1 gpus=0/results.jsonl",
    }
    (note,) = (note for note in prepared.notes if "Sent along" in note)
    assert "what 2 runs recorded, 32 bytes of results.jsonl from runs and bench-tiny/runs." in note or (
        "from bench-tiny/runs and runs." in note
    )


def test_results_in_another_folder_go_along_where_it_is_named() -> None:
    write_run("elsewhere/train-1")
    assert sent("elsewhere") == {"runs/train-1/results.jsonl"}
    assert sent() == set()


def test_only_what_a_run_of_the_users_has_recorded_goes_along(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    strange = write_run("runs/without-a-session", session="../../etc")
    (write_run("runs/a-link") / "results.jsonl").unlink()
    Path("runs/a-link/results.jsonl").symlink_to(secret)
    Path("runs/a-linked-folder").symlink_to(strange, target_is_directory=True)
    unrecorded = Path("runs/unrecorded")
    unrecorded.mkdir()
    (unrecorded / "results.jsonl").write_text(LINE)
    write_run("runs/empty", text="")
    assert sent() == set()


def test_there_is_a_bound_and_the_newest_go_along(monkeypatch: pytest.MonkeyPatch) -> None:
    for age in range(4):
        write_run(f"runs/train-{age}", age=age)
    monkeypatch.setattr(module, "MOST", 2)
    assert sent() == {"runs/train-0/results.jsonl", "runs/train-1/results.jsonl"}
    assert "Left out: 2 older ones." in module.own_results(Path("runs")).note
    monkeypatch.setattr(module, "LARGEST", len(LINE))
    assert sent() == {"runs/train-0/results.jsonl"}


def test_who_says_what_is_compared_has_nothing_else_sent() -> None:
    write_run("runs/train-1")
    assert sent(pairs=(("RESULTS", "other/*.jsonl"),)) == set()
    mine = Path("mine.jsonl")
    mine.write_text(LINE)
    assert sent(extra=(mine,)) == {"mine.jsonl"}


def test_nothing_is_sent_with_another_notebook_or_the_users_own() -> None:
    write_run("runs/train-1")
    assert "runs/train-1/results.jsonl" not in prepare("hello", (), (), Path("runs")).dependencies
    Path("compare.ipynb").write_bytes(prepare("hello", ()).content)
    assert sent() == set()


def test_without_results_a_note_says_how_to_have_some() -> None:
    notes = " ".join(prepare("compare", (), (), Path("runs")).notes)
    assert "There are no results to compare in runs or bench-*/runs here." in notes
    assert "--with FILE" in notes
