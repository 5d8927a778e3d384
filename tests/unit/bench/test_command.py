"""A bench from its matrix to its report, and mistakes that show before anything is contacted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from notebook_launcher.bench.combinations import records_times
from notebook_launcher.core import events
from notebook_launcher.core.errors import (
    BenchIncomplete,
    EnvironmentUnknown,
    NotebookInvalid,
    UsageError,
)
from notebook_launcher.notebook.prepare import prepare
from notebook_launcher.schedulers.local import Local
from tests.unit.bench.fake_cluster import (
    FakeCluster,
    run,
    states,
    write_notebook,
)


@pytest.mark.real_time
def test_all_combinations_run_some_at_once_and_are_reported(fake: FakeCluster) -> None:
    view = run("env=tf-gpu,tf-mkl cores=1,4 gpus=0,1", flags={"time": "5"}, at_once=3)
    assert len(fake.queued) == 8
    assert fake.most == 3
    assert fake.connections == 1
    assert fake.places == 1
    assert set(states().values()) == {"done"}
    assert fake.flags[fake.queued[1]] == {"time": "5", "ntasks": "1", "cpus-per-task": "1", "gpus": "1"}
    assert view.report.rows == 8
    for name in ("html", "md", "csv"):
        text = Path("bench-tiny", f"report.{name}").read_text()
        assert "tf-mkl" in text
    assert Path("bench-tiny").stat().st_mode & 0o777 == 0o700
    assert Path("bench-tiny/bench.json").stat().st_mode & 0o777 == 0o600
    last = view.steps[-1]
    assert (last.waiting, last.running, len(last.done), last.failed) == ((), (), 8, ())


def test_a_second_call_queues_nothing_and_does_not_even_connect(fake: FakeCluster) -> None:
    run()
    view = run()
    assert len(fake.queued) == 6
    assert fake.connections == 1
    assert "nothing is queued" in view.text
    assert view.report.rows == 6


@pytest.mark.parametrize(
    ("code", "noted"),
    [
        ("print(1)", True),
        ("import timing\ntiming.measure(print).record()", False),
        ("open(os.environ['NBL_RESULTS'], 'a')", False),
        ("import steps", False),  # which records them
        ("import helper", True),
    ],
)
def test_a_notebook_that_records_no_times_is_noted_before_its_jobs(fake: FakeCluster, code: str, noted: bool) -> None:
    Path("steps.py").write_text("import timing\n")
    write_notebook([{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": code}])
    view = run("cores=1")
    texts = [event.text if isinstance(event, events.Note) else event.name for event in view.events]
    notes = [place for place, text in enumerate(texts) if text.startswith("tiny.ipynb seems to record no times")]
    assert len(notes) == noted and all(place < texts.index("bench_progress") for place in notes)
    assert len(fake.queued) == 1


@pytest.mark.parametrize(("name", "does"), [("hello", False), ("beginner-torch", True)])
def test_of_a_bundled_notebook_it_is_known_whether_it_records_times(name: str, does: bool) -> None:
    assert records_times(prepare(name, ())) == does


def test_a_larger_matrix_adds_to_what_is_there(fake: FakeCluster) -> None:
    run("EPOCHS=1,2")
    run("EPOCHS=2,3")
    assert fake.epochs == [1, 2, 3]
    assert list(states()) == ["EPOCHS=1", "EPOCHS=2", "EPOCHS=3"]
    assert "EPOCHS=1" in Path("bench-tiny/report.md").read_text()


def test_parameters_for_all_and_an_environment_for_all(fake: FakeCluster) -> None:
    run("cores=1", pairs=(("EPOCHS", "3"),), words=("tf-mkl",))
    (session,) = fake.queued
    assert fake.parameters[session] == {"EPOCHS": 3}
    assert fake.sessions[session].record.environment == "tf-mkl"


def test_only_what_the_matrix_has_is_run_again_and_counts(fake: FakeCluster) -> None:
    fake.fail_with(1)
    with pytest.raises(BenchIncomplete, match="1 of 1 combinations failed"):
        run("EPOCHS=1")
    run("EPOCHS=2", retry_failed=True)
    assert fake.epochs == [1, 2]
    assert states() == {"EPOCHS=1": "failed", "EPOCHS=2": "done"}


def test_results_of_earlier_runs_do_not_go_along(fake: FakeCluster) -> None:
    """Each run would report an old file of results as its own, and what a bench writes would change what is sent."""
    for name in ("results.jsonl", "runs/a/run.json", "bench-old/report.csv", "tuesday/bench.json", "data/x.csv"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("x")
    view = run("EPOCHS=1", dependencies=(Path(),), output=Path("mine"))
    run("EPOCHS=1,2", dependencies=(Path(),), output=Path("mine"))  # its own folder is no change either
    assert fake.epochs == [1, 2]
    assert {frozenset(sent) for sent in fake.sent} == {frozenset({"helper.py", "data/x.csv"})}
    note = next(line for line in view.text.splitlines() if "Not sent with the notebook" in line)
    for name in ("results.jsonl", "runs/a/run.json", "bench-old/report.csv", "tuesday/bench.json"):
        assert name in note


def test_all_combinations_share_one_copy_of_what_is_sent(fake: FakeCluster) -> None:
    Path("big.bin").write_bytes(b"x" * 100_000)
    run("EPOCHS=1,2,3", dependencies=(Path("big.bin"),))
    assert len({id(sent["big.bin"]) for sent in fake.sent}) == 1


@pytest.mark.parametrize("matrix", ["cores=1,2", "gpus=0,1", "mem=1G,2G EPOCHS=1"])
def test_an_axis_without_effect_here_is_refused_before_anything_is_queued(fake: FakeCluster, matrix: str) -> None:
    fake.scheduler = Local("/sessions")
    with pytest.raises(UsageError, match="no effect on this machine"):
        run(matrix)
    assert fake.queued == []


def test_on_this_machine_one_job_runs_at_a_time_and_a_note_says_so(fake: FakeCluster) -> None:
    fake.scheduler = Local("/sessions")
    view = run("EPOCHS=1,2,3", at_once=3)
    assert fake.most == 1
    assert len(fake.queued) == 3
    assert "one job runs at a time" in view.text


@pytest.mark.parametrize(
    ("options", "kind", "told"),
    [
        ({"matrix": "cores=1", "flags": {"ntasks": "4"}}, UsageError, "--ntasks is given beside the matrix"),
        ({"matrix": "env=tf-gpu", "words": ("tf-mkl",)}, UsageError, "after -- as well"),
        ({"matrix": "env=nothing"}, EnvironmentUnknown, "no environment “nothing”"),
        ({"matrix": "LAYERS=1"}, NotebookInvalid, "LAYERS"),
        ({"matrix": "EPOCHS=1", "notebook": "none.ipynb"}, NotebookInvalid, "none.ipynb"),
        ({"matrix": "EPOCHS=1", "at_once": 0}, UsageError, "--at-once"),
        ({"matrix": "EPOCHS=1", "baseline": "cores=1"}, UsageError, "No combination of the matrix is “cores=1”"),
        ({"matrix": f"EPOCHS={','.join(map(str, range(101)))}"}, UsageError, "101 combinations"),
    ],
)
def test_mistakes_are_errors_before_anything_is_contacted(
    fake: FakeCluster, options: dict[str, Any], kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=told):
        run(**options)
    assert fake.connections == 0
    assert not Path("bench-tiny").exists()
