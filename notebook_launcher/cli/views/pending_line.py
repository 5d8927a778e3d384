"""The waiting line: what it says, and when that is worth a line of its own where nothing can update in place."""

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

_FRESH = timedelta(minutes=1)  # how old an estimate may be without that being said
_MARKS, _MARKS_PER_SECOND = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", 12.5
_MOVED = timedelta(minutes=2)  # by how much an estimate has to move to be shown again where every line stays


def with_explanation(verb: str, explanation: str) -> str:
    """Return what a job does and why: some explanations have a verb themselves (``waits until …``, ``is held …``)."""
    return explanation if explanation.startswith(("waits ", "is ")) else f"{verb}: {explanation}"


def pending_parts(event: events.Pending, now: datetime) -> list[str]:
    """Return what there is to say of a job that waits, the most important first. ``now`` has a zone."""
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
    """Whether an event says something that the last one did not; an estimate that shifts a little is no news."""
    if last is None or (event.state, event.explanation, event.action) != (last.state, last.explanation, last.action):
        return True
    at, before = parse_iso(event.estimate), parse_iso(last.estimate)
    if at is None or before is None:
        return event.estimate != last.estimate
    return abs(at - before) >= max(_MOVED, abs(at - now) / 10)


class PendingLine:
    """One line with the time elapsed; where it does not fit the terminal, a line for each part."""

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
    """A pending line that is there until ``stop``, behind a mark that turns; ``parts`` may change meanwhile.

    rich's ``Status`` does the same, but shows nothing for 0.08 s, after it has imported all that tables need.
    """

    def __init__(self, console: Console, parts: Callable[[], list[str]]) -> None:
        from rich.live import Live

        self.parts, self._console = parts, console
        self._began = time.monotonic()
        self._live = Live(self, console=console, refresh_per_second=_MARKS_PER_SECOND, transient=True)
        self._live.start(refresh=True)

    def stop(self) -> None:
        """Take it away."""
        self._live.stop()

    def typed(self) -> None:
        """ENTER was pressed, which has moved the cursor to the next line: draw anew in the same place."""
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
