"""How long a session still has: from what the scheduler or the job said, on the cluster's clock."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta

from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.request import Request, parse_walltime
from notebook_launcher.core.timestamps import moment
from notebook_launcher.schedulers.base import JobStatus


def end_of(request: Request, status: JobStatus | None, started: str | None, now: datetime) -> datetime | None:
    """Return when a running job's walltime is over, with a zone; ``None``: it has no limit, or does not run yet.

    ``status``: the scheduler's word, which counts first: a walltime may have been changed since, and the time in which
    a job was suspended is not of it. ``started``: what the job noted in ``started.json``, for a scheduler that is
    silent. ``now``: the cluster's clock, for its zone.
    """
    told = status if status and not status.state.waits else None
    walltime = walltime_of(request, status)
    if told and walltime and (ends := moment(told.ends, now)):
        return ends
    start = moment(told.start if told else None, now) or moment(started, now)
    return start + walltime if start and walltime else None


def walltime_of(request: Request, status: JobStatus | None) -> timedelta | None:
    """Return how long a job may run: the scheduler's word counts before what was asked; ``None``: no limit."""
    with contextlib.suppress(UsageError):  # a word of the scheduler's that is no walltime says nothing
        return parse_walltime(status.walltime or "") if status else request.walltime
    return request.walltime
