"""Jobs that fail, wait, or whose results do not come."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from notebook_launcher.bench import follow
from notebook_launcher.core.errors import (
    BenchIncomplete,
    CopyFailed,
)
from notebook_launcher.jobs.session_index import SessionIndex
from notebook_launcher.schedulers.base import JobRef, JobStatus, State
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session
from tests.unit.bench.fake_cluster import (
    FakeCluster,
    run,
    states,
)


def test_what_failed_is_listed_with_why_and_is_run_again_only_with_retry_failed(fake: FakeCluster) -> None:
    fake.fail_with(2)
    with pytest.raises(BenchIncomplete, match="1 of 3 combinations failed") as caught:
        run("EPOCHS=1,2,3")
    assert "EPOCHS=2: " in caught.value.why
    assert "ValueError: no" in caught.value.why
    assert states() == {"EPOCHS=1": "done", "EPOCHS=2": "failed", "EPOCHS=3": "done"}
    assert "ValueError: no" in Path("bench-tiny/report.html").read_text()
    with pytest.raises(BenchIncomplete):
        run("EPOCHS=1,2,3")
    assert fake.epochs == [1, 2, 3]
    fake.exit_of = lambda _session: {"cause": "finished"}
    run("EPOCHS=1,2,3", retry_failed=True)
    assert fake.epochs == [1, 2, 3, 2]
    assert set(states().values()) == {"done"}
    assert sorted(path.name for path in Path("bench-tiny/runs").iterdir()) == [
        "EPOCHS=1",
        "EPOCHS=2",
        "EPOCHS=2-2",
        "EPOCHS=3",
    ]


def test_a_job_that_the_scheduler_puts_back_goes_on(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = iter([{"cause": "stopped", "message": "preempted"}])
    fake.exit_of = lambda _session: next(ends, {"cause": "finished"})

    def final_status(_context: Context, session: Session, _record: object) -> JobStatus:
        fake.files[session.id].clear()  # it runs anew, in the same directory
        return JobStatus(JobRef("1"), State.PENDING)

    monkeypatch.setattr(follow, "final_status", final_status)
    run("EPOCHS=1")
    assert len(fake.queued) == 1
    assert states() == {"EPOCHS=1": "done"}


def test_why_a_job_waits_is_shown_once_and_when_it_changes(fake: FakeCluster) -> None:
    told = iter(["Priority"] * 5 + ["PartitionTimeLimit"] * 5)

    def look(context: Context) -> SessionIndex:
        reason = next(told, "")
        fake.waits = dict.fromkeys(fake.queued, reason) if reason else {}
        return fake.usual_look(context)

    fake.look = look
    view = run("EPOCHS=1,2")
    waits = [line for line in view.text.splitlines() if "other jobs are ahead in the queue" in line]
    assert waits in (
        ["EPOCHS=1, EPOCHS=2 wait: other jobs are ahead in the queue."],
        [f"EPOCHS={number} waits: other jobs are ahead in the queue." for number in (1, 2)],
    )
    for number, session in enumerate(fake.queued, 1):
        never = [line for line in view.text.splitlines() if f"EPOCHS={number} can never start" in line]
        assert len(never) == 1
        assert "its walltime is longer than the partition allows" in never[0]
        assert f"launch-notebook stop --cluster practice {session}" in view.text


def test_results_that_do_not_come_are_left_for_the_next_time(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(context: Context, session: Session, folder: Path) -> None:
        if fake.parameters[session.id]["EPOCHS"] == 1:
            raise CopyFailed("They were not fetched completely.")
        fake.usual_fetch(context, session, folder)

    fake.fetch = fetch
    for _ in range(2):
        with pytest.raises(BenchIncomplete, match="The results of 1 could not be fetched") as caught:
            run("EPOCHS=1,2,3", at_once=1)
        assert "They were not fetched completely." in caught.value.why
        assert states() == {"EPOCHS=1": "queued", "EPOCHS=2": "done", "EPOCHS=3": "done"}
    assert "not fetched" in Path("bench-tiny/report.md").read_text()
    fake.fetch = fake.usual_fetch
    run("EPOCHS=1,2,3")
    assert set(states().values()) == {"done"}
    assert fake.epochs == [1, 2, 3]
    assert "did not come" not in Path("bench-tiny/report.md").read_text()


def test_a_full_disk_here_ends_the_work(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(*_: object) -> None:
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError:
            raise CopyFailed("They cannot be kept.", hint="make room here") from None

    fake.fetch = fetch
    with pytest.raises(CopyFailed) as caught:
        run("EPOCHS=1,2,3", at_once=1)
    assert "run the same command again" in caught.value.hint
    assert fake.epochs == [1]


def test_a_silent_scheduler_is_noted_once_and_waited_for(fake: FakeCluster) -> None:
    looks = iter(range(6))

    def ends(_session: Session) -> dict[str, object] | None:
        fake.silent = next(looks, None) is not None
        return None if fake.silent else {"cause": "finished"}

    fake.exit_of = ends
    view = run("EPOCHS=1")
    assert view.text.count("The scheduler does not answer") == 1
    assert states() == {"EPOCHS=1": "done"}
