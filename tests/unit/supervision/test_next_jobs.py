"""How a session with a next job ends: at its walltime it goes on, whatever the scheduler says, or if it is silent."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from notebook_launcher.cli.views.next_job import next_job_text
from notebook_launcher.core import events
from notebook_launcher.core.errors import CancelFailed, SchedulerSilent
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles import ClusterProfile
from notebook_launcher.schedulers.base import JobRef, JobStatus, State
from notebook_launcher.session.record import Session, SessionRecord
from notebook_launcher.supervision import next_jobs, supervisor
from notebook_launcher.supervision.end_check import EndChecked
from notebook_launcher.supervision.next_jobs import _RenewingSupervisor
from notebook_launcher.supervision.renewal import HandedOver
from notebook_launcher.supervision.supervisor import Finished
from notebook_launcher.tunnel.page_saving import PagesSaved
from tests.doubles import RecordingView

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)
STOPPED = {"cause": "stopped", "message": "SIGTERM", "ended": "2026-11-21T12:00:00Z"}


def session(name: str, job: str) -> Session:
    return Session(SessionRecord(name, NOW, "slurm", {"time": "1:00:00"}, "/log"), f"/s/{name}", JobRef(job))


class Attached(_RenewingSupervisor):
    """Attached to a job that ends at ``end``; what it would ask the cluster for is played."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, end: datetime, begun: bool, final: object) -> None:
        self.view = RecordingView()
        self._context: Any = SimpleNamespace(clock=lambda: NOW, view=self.view)
        self._session, self._job, self._run = session("first", "7"), JobRef("7"), {}
        self._attached_status: Any = SimpleNamespace(end=end)
        self.pauses = 0
        self._tunnel: Any = SimpleNamespace(pause_forwarding=self.pause_forwarding)
        self._pausing = self._before = None
        self.attached = True
        self.calls: list[str] = []
        self.renewal: Any = SimpleNamespace(
            next_session=session("next", "8"), has_begun=lambda: begun, give_up=lambda: self.calls.append("give up")
        )

        def final_status(*_arguments: object) -> object:
            self.calls.append("asked")
            if isinstance(final, Exception):
                raise final
            return final

        monkeypatch.setattr(next_jobs, "SAVED_WITHIN", 0.01)
        monkeypatch.setattr(supervisor, "final_status", final_status)

    def pause_forwarding(self) -> None:
        self.pauses += 1

    def _hand_over(self, *, still_runs: bool) -> Any:
        raise HandedOver(self._session, None, SimpleNamespace(jupyter_port=0), None, [], None, still_runs)  # type: ignore[arg-type]


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("record", [STOPPED, {"cause": None, "message": "killed without a word"}])
def test_at_the_walltime_nobody_is_asked(monkeypatch: pytest.MonkeyPatch, begun: bool, record: dict[str, Any]) -> None:
    failed = JobStatus(JobRef("7"), State.FAILED)  # as PBS calls what a signal has ended
    attached = Attached(monkeypatch, end=NOW + timedelta(seconds=5), begun=begun, final=SchedulerSilent("Nothing."))
    with pytest.raises(HandedOver):
        attached._job_ended(record, failed)
    assert attached.calls == []
    assert ("Waiting for the next job, 8." in attached.view.notes) != begun
    assert attached.pauses == (record is STOPPED)


@pytest.mark.parametrize("begun", [True, False])
def test_before_that_a_silent_scheduler_ends_it_unless_the_next_job_runs(
    monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    attached = Attached(monkeypatch, end=NOW + timedelta(hours=1), begun=begun, final=SchedulerSilent("Nothing."))
    with pytest.raises(HandedOver if begun else SchedulerSilent):
        attached._job_ended(STOPPED, None)
    assert attached.calls == ["asked"]


def test_what_was_shut_down_does_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    attached = Attached(monkeypatch, end=NOW, begun=True, final=None)
    with pytest.raises(Finished):
        attached._job_ended({"cause": "finished"}, None)


def test_the_job_that_costs_is_cancelled_before_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    attached = Attached(monkeypatch, end=NOW, begun=False, final=None)

    def cancel(_context: object, gone: Session, _text: str = "") -> None:
        attached.calls.append(gone.id)
        raise CancelFailed("Job 7 is still there.")

    monkeypatch.setattr("notebook_launcher.supervision.jupyter.cancel_job", cancel)
    with pytest.raises(CancelFailed):
        attached._cancel()
    assert attached.calls == ["first", "give up"]


def test_who_ends_a_busy_session_is_told_of_the_next_job(monkeypatch: pytest.MonkeyPatch) -> None:
    attached = Attached(monkeypatch, end=NOW, begun=False, final=None)
    attached._sure_until, attached._ours, attached._end_check = 1.0, False, SimpleNamespace(told=lambda: None)
    ends = "to end the session and its job anyway"
    for text in (f"{ends} and cancel the queued next job, or d", f"{ends}, or d"):
        attached._end_checked(EndChecked(("train.ipynb",), PagesSaved(), 1.0))
        assert attached.view.notes.splitlines()[-1].count(text) == 1
        attached.renewal.next_session = None


def test_what_the_previous_job_used_is_asked_for_on_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session's name alone would look for it on the default cluster."""
    attached = Attached(monkeypatch, end=NOW, begun=True, final=None)
    attached._context.target = LaunchTarget(ClusterProfile(), "uni", None, "slurm")
    attached._session = replace(attached._session, record=replace(attached._session.record, continues="before"))
    attached._node, attached._before = "node1", SimpleNamespace(local_port=8888, previous=None)  # type: ignore[assignment]
    attached._show_ready(8888, "http://127.0.0.1:8888/")
    shown = next_job_text(attached.view.one(events.Continued), NOW)
    assert shown.endswith("bill --cluster uni before")
