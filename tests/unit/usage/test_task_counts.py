"""How many tasks of a job array are in each state, by the files that they have written."""

from __future__ import annotations

import pytest

from notebook_launcher.core import events
from notebook_launcher.usage.task_counts import count_tasks


def at(minute: int) -> str:
    return f"2026-11-21T12:{minute:02}:00Z"


def test_each_task_is_counted_once() -> None:
    started = {number: {"started": at(0)} for number in range(5)}
    ends = ["finished", "script-failed", "stopped", "no-such-cause"]
    exits = {number: {"cause": cause, "ended": at(1)} for number, cause in enumerate(ends)}
    counts = events.TaskCounts(tasks=9, waiting=4, running=1, finished=1, failed=2, cancelled=1)
    assert count_tasks(9, started, exits, {"time": "5"}) == counts


@pytest.mark.parametrize(
    ("began", "minutes", "limit", "failed"),
    [(at(0), 5, "5", 1), (at(0), 4, "5", 0), (at(0), 5, "unlimited", 0), (at(0), 5, "x", 0), ("damaged", 5, "5", 0)],
)
def test_one_that_was_stopped_has_failed_if_it_reached_its_walltime(
    began: str, minutes: int, limit: str, failed: int
) -> None:
    counts = count_tasks(1, {1: {"started": began}}, {1: {"cause": "stopped", "ended": at(minutes)}}, {"time": limit})
    assert (counts.failed, counts.cancelled) == (failed, 1 - failed)
