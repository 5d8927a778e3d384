"""The finding of one check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from notebook_launcher.core.errors import LauncherError
from notebook_launcher.core.frozen import Frozen

Result = Literal["ok", "fault", "warning", "unknown", "skipped"]


class Finding(Frozen):
    """The finding of one check: the result, what was found, and a hint for a fault or a warning.

    ``who``: who would be affected by a fault; ``students``: or else, which students could not launch.
    """

    result: Result
    found: str
    hint: str = ""
    who: str = "A launch"
    students: tuple[str, ...] = ()


def ok(found: str) -> Finding:
    """Return a finding without problems."""
    return Finding("ok", found)


def fault(found: str, hint: str, *, who: str = "A launch", students: Sequence[str] = ()) -> Finding:
    """Return a finding that would make a launch fail; for the rest, see ``Finding``."""
    return Finding("fault", found, hint, who, tuple(students))


def warning(found: str, hint: str) -> Finding:
    """Return a finding that somebody should look at, but that does not stop a launch."""
    return Finding("warning", found, hint)


def unknown(found: str, hint: str = "") -> Finding:
    """Return a finding for a check that had no result."""
    return Finding("unknown", found, hint)


def of_error(error: LauncherError) -> Finding:
    """Return an error as a fault, with its own hint, and the last line of its log that is not from the launcher."""
    theirs = [line.strip() for line in error.log if line.strip() and "notebook-launcher:" not in line]
    log = f" The log's last line: {theirs[-1]}" if theirs else ""
    return fault(f"{error.what} {error.why}".strip() + log, error.hint or "see docs/errors.md")
