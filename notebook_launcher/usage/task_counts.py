"""How many tasks of a job array wait, run and have ended, by what each has recorded in its own directory. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from notebook_launcher.core import events
from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.request import Request
from notebook_launcher.core.timestamps import parse_iso

FINISHED = "finished"  # the cause in the exit.json of a task whose script ended with exit code 0
_STOPPED = "stopped"  # that of one that got a signal: it does not know why
_SLACK = 20.0  # seconds: the scheduler counts the walltime from before the script's start

#: files of tasks (``started.json``, ``exit.json``) by the task's number
TaskFiles = Mapping[int, Mapping[str, object]]


def count_tasks(total: int, started: TaskFiles, exits: TaskFiles, flags: Mapping[str, str | None]) -> events.TaskCounts:
    """Return how many of ``total`` tasks there are in each state. ``flags``: as submitted, for the walltime.

    A task that was stopped counts as cancelled, or as failed if it has reached its walltime.
    """
    walltime = _walltime(flags)
    ends = [_end(record, ran_for(started.get(number, {}), record), walltime) for number, record in exits.items()]
    running = len(started.keys() - exits.keys())
    return events.TaskCounts(
        tasks=total,
        waiting=max(0, total - running - len(exits)),
        running=running,
        finished=ends.count("finished"),
        failed=ends.count("failed"),
        cancelled=ends.count("cancelled"),
    )


def ran_for(started: Mapping[str, object], ended: Mapping[str, object]) -> float | None:
    """Return the seconds from a task's ``started.json`` to its ``exit.json``; ``None``: not known."""
    first, last = parse_iso(str(started.get("started") or "")), parse_iso(str(ended.get("ended") or ""))
    if first is None or last is None or not (first.tzinfo and last.tzinfo):
        return None
    return max(0.0, (last - first).total_seconds())


def _end(record: Mapping[str, object], seconds: float | None, walltime: float | None) -> str:
    if record.get("cause") == FINISHED:
        return "finished"
    used_up = walltime is not None and seconds is not None and seconds >= walltime - _SLACK
    return "cancelled" if record.get("cause") == _STOPPED and not used_up else "failed"


def _walltime(flags: Mapping[str, str | None]) -> float | None:
    """Return the walltime in seconds; ``None``: no limit, or a damaged record."""
    with contextlib.suppress(UsageError, OverflowError):
        walltime = Request(flags).walltime
        return None if walltime.is_unlimited else walltime.total_seconds()
    return None
