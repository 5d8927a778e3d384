"""The next job of a session, in a sentence."""

from __future__ import annotations

from datetime import datetime

from notebook_launcher.cli.views.clock import clock_of
from notebook_launcher.core import events


def next_job_text(event: events.Renewed | events.Continued, now: datetime) -> str:
    """Return what is shown when it is queued, and when it has taken over, on the clock of ``now``."""
    if isinstance(event, events.Renewed):
        begins = f", from {clock_of(event.begins, now)} at the earliest" if event.begins else ""
        may_run = f"it may run for {event.walltime}{begins}"
        return f"The next job is queued: job {event.job}; {may_run}  (session {event.session})"
    return (
        f"Job {event.job} on {event.node} continues at the same address. Its kernels are new: run your cells again. "
        f"What the previous job used: launch-notebook bill {event.continues}"
    )
