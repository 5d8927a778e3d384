"""A bench's folder: locked, compared with what is asked for now, begun anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from notebook_launcher.bench import journal
from notebook_launcher.cli.views.bench import report_lines
from notebook_launcher.core.errors import (
    BenchIncomplete,
    UsageError,
)
from tests.unit.bench.fake_cluster import (
    CELLS,
    BenchView,
    FakeCluster,
    Killed,
    killed,
    now,
    run,
    states,
    write_notebook,
)


def about(folder: Path) -> dict[str, Any]:
    return {"folder": folder, "notebook": "n.ipynb", "digest": "d", "place": "practice", "asked": "", "now": now()}


def test_a_second_launcher_at_the_same_folder_is_refused(fake: FakeCluster, tmp_path: Path) -> None:
    with (
        journal.lock_folder(**about(tmp_path / "bench-tiny")),
        pytest.raises(UsageError, match="Another launch-notebook uses the bench"),
    ):
        run()
    assert fake.queued == []


@pytest.mark.parametrize("change", ["notebook", "helper"])
def test_a_changed_notebook_is_refused_unless_the_bench_starts_over(fake: FakeCluster, change: str) -> None:
    run("EPOCHS=1")
    if change == "notebook":
        write_notebook([*CELLS, {**CELLS[1], "id": "d", "source": "print(1)"}])
    else:
        Path("helper.py").write_text("x = 2\n")
    with pytest.raises(UsageError, match="was changed since") as caught:
        run("EPOCHS=1")
    assert "--output" in caught.value.hint
    assert "--fresh" in caught.value.hint
    run("EPOCHS=1", output=Path("other"))
    run("EPOCHS=1", fresh=True)
    assert fake.epochs == [1, 1, 1]
    (aside,) = Path().glob("bench-tiny.2*")
    assert (aside / "runs" / "EPOCHS=1" / "results.jsonl").exists()


def test_a_corrected_notebook_may_continue_where_nothing_had_a_result(fake: FakeCluster) -> None:
    fake.exit_of = lambda _session: {"cause": "notebook-failed", "message": "Cell 1 failed.", "exit_code": 1}
    view = BenchView()
    with pytest.raises(BenchIncomplete) as caught:
        run("EPOCHS=1,2", view=view)
    assert caught.value.why.count("Cell 1 failed.") == 1
    assert caught.value.why.startswith("all 2: ")
    assert "the others" not in caught.value.hint
    assert "no results" in report_lines(view.report)[0]
    write_notebook([*CELLS, {**CELLS[1], "id": "d", "source": "print(1)"}])
    fake.exit_of = lambda _session: {"cause": "finished"}
    assert "what failed is run again" in run("EPOCHS=1,2").text
    assert set(states().values()) == {"done"}
    assert fake.epochs == [1, 2, 1, 2]
    run("EPOCHS=1,2")  # it is the notebook of these results now
    write_notebook(CELLS)
    with pytest.raises(UsageError, match="was changed since"):
        run("EPOCHS=1,2")


def test_new_outputs_in_the_notebook_are_no_change(fake: FakeCluster) -> None:
    run("EPOCHS=1")
    output = {"output_type": "stream", "name": "stdout", "text": "hello"}
    write_notebook([CELLS[0], {**CELLS[1], "outputs": [output], "execution_count": 3}])
    run("EPOCHS=1")
    assert len(fake.queued) == 1


def test_another_place_and_another_notebook_are_refused(fake: FakeCluster) -> None:
    run("EPOCHS=1")
    with pytest.raises(UsageError, match="of another place, practice"):
        run("EPOCHS=1", at="elsewhere")
    write_notebook(CELLS, "other.ipynb")
    with pytest.raises(UsageError, match=r"of another notebook, tiny\.ipynb"):
        run("EPOCHS=1", notebook="other.ipynb", output=Path("bench-tiny"))


def test_a_folder_of_something_else_and_a_damaged_journal_are_refused(fake: FakeCluster) -> None:
    Path("full").mkdir()
    Path("full/thesis.tex").write_text("mine")
    with pytest.raises(UsageError, match="is not empty, and is not"):
        run(output=Path("full"))
    run("EPOCHS=1")
    Path("bench-tiny/bench.json").write_text('{"version": 1, "id"')
    with pytest.raises(UsageError, match=r"bench\.json cannot be read"):
        run("EPOCHS=1")
    run("EPOCHS=1", fresh=True)
    assert len(fake.queued) == 2


def test_other_flags_beside_the_matrix_are_refused(fake: FakeCluster) -> None:
    run("EPOCHS=1", flags={"mem": "4G", "time": "5"}, words=("tf-gpu",))
    run("EPOCHS=1,2", flags={"mem": "4G", "time": "9", "mail-user": "a@b"}, words=("tf-gpu",))
    for flags, words in (({"mem": "64G"}, ("tf-gpu",)), ({"mem": "4G"}, ("tf-mkl",)), ({}, ("tf-gpu",))):
        with pytest.raises(UsageError, match="made with other options beside the matrix") as caught:
            run("EPOCHS=3", flags=flags, words=words)  # type: ignore[arg-type]
        assert "Then: --mem=4G -- tf-gpu. Now: " in caught.value.why
        assert "--output" in caught.value.hint
        assert "--fresh" in caught.value.hint
    assert fake.epochs == [1, 2]


def test_fresh_forgets_no_job_that_goes_on(fake: FakeCluster) -> None:
    fake.after_queueing = killed
    with pytest.raises(Killed):
        run("EPOCHS=1")
    fake.after_queueing = lambda _session: None
    fake.exit_of = lambda _session: None
    with pytest.raises(UsageError, match="has a job in the queue or running on practice") as caught:
        run("EPOCHS=1", fresh=True)
    (session,) = fake.queued
    assert f"launch-notebook stop --cluster practice {session}" in caught.value.hint
    assert states() == {"EPOCHS=1": "queued"}
    with pytest.raises(UsageError, match="on practice"):  # of another place nobody here can tell
        run("EPOCHS=1", fresh=True, at="elsewhere")
    fake.files[session]["exit"] = {"cause": "stopped"}
    fake.exit_of = lambda _session: {"cause": "finished"}
    run("EPOCHS=1", fresh=True)
    assert states() == {"EPOCHS=1": "done"}
    assert len(fake.queued) == 2


def test_what_a_killed_launcher_has_half_written_is_swept_away(fake: FakeCluster) -> None:
    Path("bench-tiny").mkdir()
    Path("bench-tiny/.bench.json.ab12").write_text("{")
    run("EPOCHS=1")
    assert states() == {"EPOCHS=1": "done"}
    assert not Path("bench-tiny/.bench.json.ab12").exists()
