"""How many tasks of a job array are pending, running and ended, by what each has recorded in its own directory."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Mapping
from typing import Literal

from notebook_launcher.core import events
from notebook_launcher.core.bash_options import PLAIN_BASH
from notebook_launcher.core.errors import HostCommandFailed, UsageError
from notebook_launcher.core.job_arrays import task_numbers
from notebook_launcher.core.request import Request
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.hosts.base import Host
from notebook_launcher.session.record import Session, json_object

FINISHED = "finished"  # the cause in the exit.json of a task whose script ended with exit code 0
_STOPPED = "stopped"  # the cause in that of a task that received a signal, whose reason it does not know
_SLACK = 20.0  # seconds: the scheduler's walltime begins before the script does

#: the content of one kind of file, ``started.json`` or ``exit.json``, by the task's number
TaskFiles = Mapping[int, Mapping[str, object]]


_FILE = re.compile(r"(\d{1,9})/(started|exit)\.json (\{.*\})", re.A)
# Each folder is listed, because only then does an NFS client look for new files from other machines. On one line: csh,
# as a login shell, cannot quote a newline. Up to the first zero byte: a bounded read does not count those.
_READ = PLAIN_BASH + (
    'cd -- "$1/tasks" 2>/dev/null || exit 0; '
    "for file in */*.json; do case $file in "
    "*[^0-9]*/*) continue ;; */started.json | */exit.json) ;; *) continue ;; esac; "
    '[ -L "$file" ] && continue; '
    "line=; [ -f \"$file\" ] && { IFS=$'\\n' read -r -d '' -n 16384 line others <\"$file\"; } 2>/dev/null; "
    '[ -z "$line" ] || printf "%s %s\\n" "$file" "$line"; done; exit 0'
)


def read_counts(host: Host, session: Session, *, is_over: bool, timeout: float) -> events.TaskCounts | None:
    """Return how many tasks of a session's job array are in each state.

    ``None`` if the session is not a job array, or its files could not be read. ``is_over``: whether the whole array has
    ended, so that no task is pending or running. ``timeout``: in seconds. Raises ``ConnectionLost``.
    """
    if "array" not in session.record.flags:
        return None
    started: dict[int, Mapping[str, object]] = {}
    exits: dict[int, Mapping[str, object]] = {}
    with contextlib.suppress(UsageError, HostCommandFailed):  # a damaged record; a file server that is not available
        numbers = frozenset(task_numbers(session.record.flags["array"]))
        answer = host.run(["bash", "-c", _READ, "read-tasks", session.directory], timeout=timeout)
        for match in filter(None, map(_FILE.fullmatch, answer.stdout.split("\n"))):
            if (number := int(match[1])) in numbers:
                (started if match[2] == "started" else exits)[number] = json_object(match[3])
        counts = count_tasks(len(numbers), started, exits, session.record.flags)
        return _after_the_end(counts) if is_over else counts
    return None


def _after_the_end(counts: events.TaskCounts) -> events.TaskCounts:
    """Return the counts of an array that has ended: unstarted tasks were cancelled, unfinished ones were killed."""
    cancelled, failed = counts.cancelled + counts.waiting, counts.failed + counts.running
    return dataclasses.replace(counts, waiting=0, running=0, cancelled=cancelled, failed=failed)


def count_tasks(total: int, started: TaskFiles, exits: TaskFiles, flags: Mapping[str, str | None]) -> events.TaskCounts:
    """Return how many of ``total`` tasks are in each state. ``flags``: as submitted, for the walltime.

    A task that was stopped counts as cancelled, or as failed if it has reached its walltime.
    """
    ends = [end_of_task(started.get(number, {}), record, flags) for number, record in exits.items()]
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


def end_of_task(
    started: Mapping[str, object], ended: Mapping[str, object], flags: Mapping[str, str | None]
) -> Literal["finished", "failed", "cancelled"]:
    """Return how a task counts, by its ``started.json`` and ``exit.json``. ``flags``: as submitted."""
    if ended.get("cause") == FINISHED:
        return "finished"
    if ended.get("cause") != _STOPPED:
        return "failed"
    walltime, seconds = _walltime(flags), ran_for(started, ended)
    used_up = walltime is not None and seconds is not None and seconds >= walltime - _SLACK
    return "failed" if used_up else "cancelled"


def _walltime(flags: Mapping[str, str | None]) -> float | None:
    """Return the walltime in seconds; ``None`` if it is unlimited, or the record is damaged."""
    with contextlib.suppress(UsageError, OverflowError):
        walltime = Request(flags).walltime
        return None if walltime.is_unlimited else walltime.total_seconds()
    return None
