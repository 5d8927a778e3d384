"""Shows an error: a sentence, the evidence, what to type next, and the end of the log."""

from __future__ import annotations

import io
import sys
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from notebook_launcher.core.errors import LauncherError
from notebook_launcher.core.text import finite, printable

if TYPE_CHECKING:
    from notebook_launcher.core.events import Event

_PREFIX = "launch-notebook: "
EVENTS_VERSION = 2  # of the schema of --json: raised when a field changes its meaning or is removed

_BEGAN = time.monotonic()  # this module is imported as soon as the command begins to run


def elapsed() -> float:
    """Return the number of seconds since the command began to run."""
    return time.monotonic() - _BEGAN


def json_line(event: Event) -> str:
    """Return an event as one line of ``--json``."""
    import json

    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    head = {"event": event.name, "version": EVENTS_VERSION, "time": now, "elapsed": round(elapsed(), 3)}
    return json.dumps(finite({**head, **event.data()}), allow_nan=False)


def report(error: LauncherError, *, as_json: bool) -> int:
    """Show an error (on stderr, or as an event on stdout) and return its exit code."""
    try:
        _show(error, as_json=as_json)
    except OSError:  # the reader of our output, or the terminal, is gone
        sys.stdout = sys.stderr = io.StringIO()  # otherwise the interpreter would try again, and print an error
    return error.exit_code


def _show(error: LauncherError, *, as_json: bool) -> None:
    if as_json:
        from notebook_launcher.core.events import Problem

        problem = Problem(error.kind, error.what, error.why, error.hint, error.log, error.exit_code)
        print(json_line(problem), flush=True)
    elif sys.stderr.isatty():
        _in_colour(error)
    else:
        sys.stderr.write("".join(f"{line}\n" for line in error_lines(error)))


def error_lines(error: LauncherError) -> list[str]:
    """Return the error as lines of plain text."""
    lines = [f"{_PREFIX}{error.what}"]
    if error.why:
        lines.append(f"  {error.why}")
    if error.log:
        lines.append("  The end of the job's log:")
        lines += [f"  | {line}" for line in error.log]
    if error.hint:
        lines.append(f"  → {error.hint}")
    return [printable(line).replace("\n", "\n  ") for line in lines]


def _in_colour(error: LauncherError) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False, emoji=False)
    for line in error_lines(error):
        style = "bold red" if line.startswith("launch-notebook") else "dim" if line.startswith("  |") else ""
        for part in _folded(line, console.width):
            console.print(Text(part, style=style), soft_wrap=True)


def _folded(text: str, width: int) -> list[str]:
    from notebook_launcher.cli.views.folding import fixed, folded

    below = "  | " if text.startswith("  |") else "    " if text.startswith("  →") else "  "
    first, *others = text.replace(_PREFIX, fixed(_PREFIX), 1).split("\n")  # not alone on its line before a long path
    return [*folded(first, width, below), *(part for line in others for part in folded(line, width, "  "))]
