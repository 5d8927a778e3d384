"""How long a session still has: from what the scheduler or the job said, on the cluster's clock."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta

from notebook_launcher.errors import UsageError
from notebook_launcher.request import Request, parse_walltime
from notebook_launcher.schedulers.base import JobStatus


def end_of(request: Request, status: JobStatus | None, started: str | None, now: datetime) -> datetime | None:
    """Return when a running job's walltime is over, with a zone; ``None``: it has no limit, or does not run yet.

    ``status``: the scheduler's word, which counts first: a walltime may have been changed since. ``started``: what the
    job noted in ``started.json``, for a scheduler that is silent. ``now``: the cluster's clock, for its zone.
    """
    walltime = walltime_of(request, status)
    start = moment(status.start if status and not status.state.waits else None, now) or moment(started, now)
    return start + walltime if start and walltime else None


def walltime_of(request: Request, status: JobStatus | None) -> timedelta | None:
    """Return how long a job may run: the scheduler's word counts before what was asked; ``None``: no limit."""
    with contextlib.suppress(UsageError):  # a word of the scheduler's that is no walltime says nothing
        return parse_walltime(status.walltime or "") if status else request.walltime
    return request.walltime


def moment(text: str | None, now: datetime) -> datetime | None:
    """Return a time in ISO, ``None`` for what is none; one without a zone is on the cluster's clock, as ``now`` is."""
    try:
        at = datetime.fromisoformat((text or "").replace("Z", "+00:00"))
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=now.tzinfo)
