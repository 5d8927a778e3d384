"""The waiting line: its text, and when a change deserves a new line if nothing can update in place."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from notebook_launcher.cli.views.clock import ago, clock, parse_iso
from notebook_launcher.cli.views.errors import elapsed
from notebook_launcher.core import events
from notebook_launcher.core.quantities import stopwatch
from notebook_launcher.core.text import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment
    from rich.text import Text

_FRESH = timedelta(minutes=1)  # the age of an estimate is mentioned if it is older
_MARKS, _MARKS_PER_SECOND = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", 12.5
_MOVED = timedelta(minutes=2)  # an estimate that has changed by less gets no new line


def with_explanation(verb: str, explanation: str) -> str:
    """Return what a job does and why: some explanations contain a verb already (``waits until …``, ``is held …``)."""
    return explanation if explanation.startswith(("waits ", "is ")) else f"{verb}: {explanation}"


def pending_parts(event: events.Pending, now: datetime) -> list[str]:
    """Return texts on a pending job, the most important first. ``now`` has a zone."""
    verb = "is suspended" if event.state == "SUSPENDED" else "waits"
    parts = [f"job {event.job} {with_explanation(verb, event.explanation)}"]
    if event.estimate:
        parts.append(_estimate(event, now))
    if event.action:
        parts.append(f"→ {event.action}")
    return parts


def _estimate(event: events.Pending, now: datetime) -> str:
    at = parse_iso(event.estimate)
    if at is None:
        return f"starts ≈ {event.estimate}"
    text = f"starts ≈ {clock(at, now)}" if at > now - _FRESH else f"it was expected to start at {clock(at, now)}"
    read = parse_iso(event.as_of) or now
    return f"{text}, as of {ago(read, now)}" if now - read >= _FRESH else text


def is_news(event: events.Pending, last: events.Pending | None, now: datetime) -> bool:
    """Whether an event differs from the last one by more than a small change of the estimate."""
    if last is None or (event.state, event.explanation, event.action) != (last.state, last.explanation, last.action):
        return True
    at, before = parse_iso(event.estimate), parse_iso(last.estimate)
    if at is None or before is None:
        return event.estimate != last.estimate
    return abs(at - before) >= max(_MOVED, abs(at - now) / 10)


class PendingLine:
    """One line with the elapsed time; if it does not fit the terminal, a line for each part."""

    def __init__(self, parts: Callable[[], list[str]]) -> None:
        self._parts = parts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        stamp = f"{stopwatch(elapsed())}  "
        parts = [printable(part) for part in self._parts()]
        line = stamp + "; ".join(parts)
        if len(line) <= options.max_width:
            yield Text(line, no_wrap=True)
        else:
            yield Text(stamp + "\n".join(parts), overflow="fold")


class WaitingLine:
    """A pending line with a spinner, shown until ``stop``; ``parts`` may change meanwhile.

    rich's ``Status`` does the same, but imports all that tables need, and shows nothing for the first 0.08 s.
    """

    def __init__(self, console: Console, parts: Callable[[], list[str]]) -> None:
        from rich.live import Live

        self.parts, self._console = parts, console
        self._began = time.monotonic()
        self._live = Live(self, console=console, refresh_per_second=_MARKS_PER_SECOND, transient=True)
        self._live.start(refresh=True)

    def stop(self) -> None:
        """Remove the line."""
        self._live.stop()

    def typed(self) -> None:
        """Redraw in the same place after ENTER, which has moved the cursor to the next line."""
        from rich.control import Control

        self._console.control(Control.move(0, -1))
        self._live.refresh()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.segment import Segment

        mark = _MARKS[int((time.monotonic() - self._began) * _MARKS_PER_SECOND) % len(_MARKS)]
        room = options.update_width(options.max_width - 2)
        for line in console.render_lines(PendingLine(self.parts), room, pad=False):
            yield Segment(f"{mark} ", console.get_style("status.spinner"))
            yield from line
            yield Segment.line()
            mark = " "
