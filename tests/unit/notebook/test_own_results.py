"""The results of earlier runs that go with the bundled notebook that compares them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from notebook_launcher.core.errors import NotebookInvalid
from notebook_launcher.notebook import own_results as module
from notebook_launcher.notebook.prepare import prepare
from notebook_launcher.transfer.real_folder import RealFolder

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


def nothing_to_compare() -> str:
    """It is refused before anything is submitted; returns why."""
    with pytest.raises(NotebookInvalid, match=r"There is nothing to compare\.") as refused:
        sent()
    assert "launch-notebook run beginner-torch -- torch" in refused.value.hint
    assert "numpy and matplotlib" in refused.value.hint
    return refused.value.why


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
    assert note.endswith("the results of 2 runs, 32 bytes of results.jsonl from runs and bench-tiny/runs.")


def test_results_in_another_folder_go_along_too_where_it_is_named(tmp_path: Path) -> None:
    write_run("elsewhere/train-1")
    nothing_to_compare()
    write_run("runs/train-2")
    both = {"runs/train-1/results.jsonl", "runs/train-2/results.jsonl"}
    assert sent("elsewhere") == sent(str(tmp_path / "elsewhere")) == both
    Path("a-link").symlink_to("elsewhere", target_is_directory=True)
    assert sent("a-link") == both, "whoever names a link means where it leads"
    assert "in runs, nowhere or bench-*/runs here." in note_in_an_empty_folder("nowhere")


def note_in_an_empty_folder(output: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        Path("empty").mkdir()
        patch.chdir("empty")
        return module.own_results(Path(output)).note


def test_only_what_a_run_of_the_users_has_recorded_goes_along(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    elsewhere = write_run("elsewhere/of-a-run")
    write_run("runs/without-a-session", session="../../etc")
    (write_run("runs/a-link") / "results.jsonl").unlink()
    Path("runs/a-link/results.jsonl").symlink_to(secret)
    Path("runs/a-linked-folder").symlink_to(elsewhere.absolute(), target_is_directory=True)
    unrecorded = Path("runs/unrecorded")
    unrecorded.mkdir()
    (unrecorded / "results.jsonl").write_text(LINE)
    write_run("runs/empty", text="")
    nothing_to_compare()


@pytest.mark.parametrize("link", ["runs", "bench-l/runs", "bench-l"])
def test_no_place_is_a_link_and_it_is_said(link: str) -> None:
    write_run("secret/runs/train-1" if link == "bench-l" else "secret/train-1")
    Path(link).parent.mkdir(exist_ok=True)
    Path(link).symlink_to(Path("secret").absolute(), target_is_directory=True)
    nothing_to_compare()
    note, shown = module.own_results(Path("runs")).note, "runs" if link == "runs" else "bench-l/runs"
    assert f"Not looked into, as it is a symbolic link: {shown}. --output DIR names the folder itself." in note


def test_what_is_put_in_the_place_of_results_meanwhile_does_not_go_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = write_run("runs/train-1") / "results.jsonl"
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    is_there = RealFolder.stat

    def swapping(folder: RealFolder, name: str) -> os.stat_result:
        found = is_there(folder, name)
        results.unlink()
        results.symlink_to(secret)
        return found

    monkeypatch.setattr(RealFolder, "stat", swapping)
    nothing_to_compare()


@pytest.mark.parametrize("name", ["run.json", "results.jsonl"])
def test_a_pipe_is_not_waited_for(name: str) -> None:
    folder = write_run("runs/train-1")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    nothing_to_compare()


def test_what_is_too_large_is_named_and_older_ones_go_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST", 2 * 1024 * 1024)
    write_run("runs/large", text=LINE * 200_000)
    left = "Left out (at most 2.0 MiB in all): runs/large/results.jsonl (3.1 MiB). Send it with: --with FILE"
    assert module.own_results(Path("runs")).note == f"No results are sent along to compare. {left}"
    write_run("runs/small", age=60)
    assert sent() == {"runs/small/results.jsonl"}
    note = module.own_results(Path("runs")).note
    assert note.endswith(f"from runs. {left}")
    assert "older" not in note


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


def test_without_results_it_is_refused_with_what_to_do() -> None:
    notes = nothing_to_compare()
    assert "There are no results to compare in runs or bench-*/runs here." in notes
    assert "--with FILE" in notes
