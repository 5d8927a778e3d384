"""The time that a session has left, from the scheduler or the job's record, on the cluster's clock."""

from __future__ import annotations

import contextlib
from datetime import datetime

from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.request import Request
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.core.walltime import Walltime
from notebook_launcher.schedulers.base import JobStatus


def walltime_end(request: Request, status: JobStatus | None, started: str | None, now: datetime) -> datetime | None:
    """Return when a running job's walltime ends, with a zone; ``None``: it has no limit, or has not started yet.

    ``status``: the scheduler's, which takes precedence: the walltime may have been changed since, and excludes the time
    for which the job was suspended. ``started``: from the job's ``started.json``, for a scheduler that does not answer.
    ``now``: the cluster's clock, for its zone.
    """
    started_status = status if status and not status.state.waits else None
    walltime = walltime_of(request, status)
    if started_status and not walltime.is_unlimited and (ends := parse_iso(started_status.ends, now)):
        return ends
    start = parse_iso(started_status.start if started_status else None, now) or parse_iso(started, now)
    if start and not walltime.is_unlimited:
        with contextlib.suppress(OverflowError):  # an end after the last year that Python supports counts as none
            return (start + walltime).astimezone(now.tzinfo)
    return None


def walltime_of(request: Request, status: JobStatus | None) -> Walltime:
    """Return a job's walltime: the scheduler's value takes precedence over the requested one."""
    with contextlib.suppress(UsageError):  # ignore a value that is not a walltime
        return Walltime.parse(status.walltime or "") if status else request.walltime
    return request.walltime
