"""Texts on the next job of a session, and on the end of the current one."""

from __future__ import annotations

from datetime import datetime

from notebook_launcher.cli.views.clock import clock_of
from notebook_launcher.core import events
from notebook_launcher.core.quantities import time_left_of_warning


def next_job_text(event: events.Renewed | events.Continued, now: datetime) -> str:
    """Return the text shown when the next job is queued, or has taken over; times are by the clock of ``now``."""
    if isinstance(event, events.Renewed):
        begins = f", from {clock_of(event.begins, now)} at the earliest" if event.begins else ""
        may_run = f"it may run for {event.walltime}{begins}"
        return f"The next job is queued: job {event.job}; {may_run}  (session {event.session})"
    return (
        f"Job {event.job} on {event.node} continues at the same address. Its kernels are new: run your cells again. "
        f"What the previous job used: {event.bill}"
    )


def time_left_text(event: events.TimeLeft, next_job: str | None, now: datetime) -> str:
    """Return the warning that a job will end, by the clock of ``now``. ``next_job``: the one that continues it."""
    left = time_left_of_warning(event.seconds_left)
    if next_job:
        return f"{left} left: job {next_job} continues at the same address. Save what you need; its kernels are new."
    return f"{left} left: job {event.job} ends at {clock_of(event.ends, now)}. Save what you need."
