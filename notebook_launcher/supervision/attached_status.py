"""Shows the status of an attached session when it changes: its time left, its use, and idleness."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from datetime import datetime

from notebook_launcher.core import events
from notebook_launcher.core.request import Request
from notebook_launcher.core.text import printable
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.core.usage_samples import Sample
from notebook_launcher.jobs.cancel import command_to_repeat
from notebook_launcher.jobs.time_left import walltime_end, walltime_of
from notebook_launcher.schedulers.base import JobStatus
from notebook_launcher.session.context import Context, job_of
from notebook_launcher.session.record import Session

WARN_AT = (900.0, 300.0, 60.0)  # seconds before the end
#: a warning is shown only if the walltime is so many times longer: in a session of ten minutes, it would be useless
LONGER_BY = 4 / 3
REPEAT_AFTER = 60.0  # seconds by which the end must move beyond a warning for it to be shown again
STALE = 60.0  # seconds after which a sample is outdated
GRACE = 60.0  # seconds for which a job may still run after its walltime


class AttachedStatus:
    """The time left and the use of a running session: takes reports as they come, and shows them at ``refresh``.

    Nothing is shown before the session is attached, or after the job was requeued.
    """

    def __init__(self, context: Context, session: Session) -> None:
        self._context, self._session = context, session
        self._request = Request(session.record.flags)
        self._warns = session.record.program not in ("notebook", "script")  # there, the user has nothing to save
        self.job_requeued()

    def job_requeued(self) -> None:
        """Forget everything about the run, because the job does not run (any more)."""
        self._attached = False
        self._running_since: float | None = None  # when the job was first known to run (monotonic)
        self._started: str | None = None  # when the job started, by its own record
        self._status: JobStatus | None = None  # the scheduler's, while it runs
        self._sample: Sample | None = None
        self._shown: tuple[datetime | None, Sample | None] = (None, None)
        self._warned: set[float] = set()
        self._idle: Mapping[str, object] | None = None
        self._idle_shown: Mapping[str, object] | None = None

    def job_started(self, started: Mapping[str, object]) -> None:
        """Handle the job's ``started.json``."""
        self._running_since = time.monotonic()
        self._started = str(started.get("started") or "") or None

    def status_changed(self, status: JobStatus) -> None:
        """Handle the scheduler's status of the running job; its walltime may have changed."""
        self._status = status

    def usage_sampled(self, sample: Sample) -> None:
        """Handle the newest sample, unless it is outdated."""
        if self._is_fresh(sample):
            self._sample = sample

    def _is_fresh(self, sample: Sample) -> bool:
        return (self._context.clock() - sample.time).total_seconds() <= STALE

    def idle_reported(self, report: Mapping[str, object] | None) -> None:
        """Handle the job's report that nobody uses it; ``None``: it is used again."""
        self._idle = report

    def unsaved_reported(self, report: Mapping[str, object]) -> None:
        """Show the documents that pages of JupyterLab could not save, if there are any."""
        listed = report.get("paths")
        paths = tuple(printable(path) for path in listed if isinstance(path, str)) if isinstance(listed, list) else ()
        if paths and self._attached:
            self._context.view.show(events.NotSaved(self._session.id, job_of(self._session).id, paths))

    def attach(self) -> None:
        """Start showing the status."""
        self._attached = True
        self.refresh()

    def refresh(self) -> None:
        """Show what is due now; to be called every second, and after every report."""
        if self._attached:
            end, now = self.end, self._context.clock()
            self._show(end, now)
            self._warn(end, now)
            self._show_idle()

    @property
    def end(self) -> datetime | None:
        """The end of the walltime, on the cluster's clock; ``None``: no limit, or not known."""
        now = self._context.clock()
        end = walltime_end(self._request, self._status, self._started, now)
        return end.astimezone(now.tzinfo) if end else None

    def seconds_left(self) -> float | None:
        """Return for how many more seconds the job can run at most; ``None``: not known."""
        end, walltime = self.end, walltime_of(self._request, self._status)
        if end is not None:
            return (end - self._context.clock()).total_seconds() + GRACE
        if self._running_since is None or walltime.is_unlimited:
            return None
        return self._running_since + walltime.total_seconds() - time.monotonic() + GRACE

    def _show(self, end: datetime | None, now: datetime) -> None:
        if self._shown == (end, self._sample):
            return
        self._shown = (end, self._sample)
        job, sample = job_of(self._session).id, self._sample
        ends, left = (end.isoformat(timespec="seconds"), _seconds(end, now)) if end else (None, None)
        event = events.Attached(self._session.id, job, ends, left)
        if sample is not None and self._is_fresh(sample):
            event = dataclasses.replace(
                event,
                sampled=sample.time.isoformat(timespec="seconds"),
                cpu_cores=sample.cpu_cores,
                memory_mib=sample.memory_mib,
                gpus=sample.gpus,
            )
        self._context.view.show(event)

    def _warn(self, end: datetime | None, now: datetime) -> None:
        """Show the warning that is due, once; after a late reconnection, only the latest one is shown."""
        walltime = walltime_of(self._request, self._status)
        if end is None or walltime.is_unlimited or not self._warns:
            return
        left = (end - now).total_seconds()
        self._warned = {before for before in self._warned if left <= before + REPEAT_AFTER}
        due = {before for before in WARN_AT if left <= before and walltime.total_seconds() >= before * LONGER_BY}
        if left > 0 and due - self._warned:
            job, ends = job_of(self._session).id, end.isoformat(timespec="seconds")
            go_on = command_to_repeat(self._context, self._session)
            self._context.view.show(events.TimeLeft(self._session.id, job, ends, _seconds(end, now), go_on))
        self._warned |= due

    def _show_idle(self) -> None:
        if self._idle == self._idle_shown:
            return
        self._idle_shown, report = self._idle, self._idle
        if report is None:
            self._context.view.show(events.Note("The session is used again."))
            return
        now = self._context.clock()
        ends = parse_iso(str(report.get("ends") or ""), now)
        at = ends.astimezone(now.tzinfo).isoformat(timespec="seconds") if ends else None
        text = str(report.get("message") or "Nobody uses the session.")
        self._context.view.show(events.Idle(self._session.id, job_of(self._session).id, text, at))


def _seconds(end: datetime, now: datetime) -> int:
    return max(0, round((end - now).total_seconds()))
