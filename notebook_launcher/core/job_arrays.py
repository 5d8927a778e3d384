"""The tasks of a job array, as sbatch's manual writes them under ``--array``: ``0-15``, ``1,3,5-9:2``, ``0-99%4``."""

from __future__ import annotations

import re

from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.text import printable

MOST_TASKS = 100_000  # the largest MaxArraySize that is in use is far below
_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::([1-9]\d{0,8}))?)?", re.A)
_AT_ONCE = re.compile(r"[1-9]\d{0,8}", re.A)


def task_numbers(text: str | None) -> tuple[int, ...]:
    """Return the numbers of the tasks, each once, in their order. Raises ``UsageError`` for another text."""
    listed, percent, at_once = (text or "").replace(" ", "").partition("%")
    parts = [_PART.fullmatch(part) for part in listed.split(",")]
    if not all(parts) or (percent and not _AT_ONCE.fullmatch(at_once)):
        raise _not_an_array(text)
    found: set[int] = set()
    for part in filter(None, parts):
        numbers = range(int(part[1]), int(part[2] or part[1]) + 1, int(part[3] or 1))
        if not numbers:
            raise _not_an_array(text)
        if len(found) + len(numbers) > MOST_TASKS:
            raise UsageError(f"The job array {printable(text or '')[:40]} has more than {MOST_TASKS} tasks.")
        found.update(numbers)
    return tuple(sorted(found))


def _not_an_array(text: str | None) -> UsageError:
    return UsageError(
        f"“{printable(text or '')[:40]}” does not say which tasks a job array has.",
        why="Tasks are numbers from 0, single or in ranges, separated by commas.",
        hint="for example: --array 0-3, or --array 0-99%4 for four at a time",
    )
