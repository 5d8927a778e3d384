"""One finding of a check: what was looked at, how it is, and a hint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from notebook_launcher.core.errors import LauncherError

Result = Literal["ok", "fault", "warning", "unknown", "skipped"]


@dataclass(frozen=True)
class Finding:
    """What came of one check: the result, what was found, and for a fault or a warning what to do about it.

    ``who`` would stumble over a fault.
    """

    result: Result
    found: str
    hint: str = ""
    who: str = "A launch"


def ok(found: str) -> Finding:
    """Return that all is well."""
    return Finding("ok", found)


def fault(found: str, hint: str) -> Finding:
    """Return something that a launch will stumble over."""
    return Finding("fault", found, hint)


def warning(found: str, hint: str) -> Finding:
    """Return something that a launch gets over, and that somebody should look at."""
    return Finding("warning", found, hint)


def unknown(found: str, hint: str = "") -> Finding:
    """Return that it could not be found out."""
    return Finding("unknown", found, hint)


def of_error(error: LauncherError) -> Finding:
    """Return an error as a fault, with its own hint, and with the last line of a log that is not ours."""
    theirs = [line.strip() for line in error.log if line.strip() and "notebook-launcher:" not in line]
    log = f" The log's last word: {theirs[-1]}" if theirs else ""
    return fault(f"{error.what} {error.why}".strip() + log, error.hint or "see docs/errors.md")
