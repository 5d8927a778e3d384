"""The list of sessions as a table that fits a terminal of 80 columns, and uses a wider one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from notebook_launcher.cli.views.clock import clock, moment
from notebook_launcher.core.events import launch as events
from notebook_launcher.core.text import printable
from notebook_launcher.jobs.session_index import how_far

if TYPE_CHECKING:
    from rich.console import Console

_UNFOLDED = 1000  # columns; what a program reads is not folded
_MOST_NAMED = 5  # damaged directories that are named

_HEADINGS = ("Session", "State", "Node", "Job", "Left", "Environment")
_WHOLE = ("Session", "Left")  # which are of no use in parts
_STATE = 12  # columns at least
_STYLES = {"running": "green", "starting": "cyan", "waiting": "yellow", "suspended": "yellow", "unknown": "magenta"}


class Listing:
    """Keeps sessions until the list is complete, and prints it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._seen: list[events.SessionSeen] = []

    def show(self, event: events.SessionSeen | events.Listed, now: datetime) -> None:
        """Take one event. ``now`` has the reader's zone."""
        if isinstance(event, events.SessionSeen):
            self._seen.append(event)
            return
        seen, self._seen = self._seen, []
        if seen:
            self._table(seen, now)
        for text, style in _below(event, seen):
            self._line(text, style)
        if event.live and self._console.is_terminal:
            name = next((one.session for one in seen if one.state == "running"), seen[0].session)
            name = name if name[-4:].isdecimal() else name[-4:]  # which would be the number of a job
            self._commands(f"Come back: {_typed('connect', event, name)}", f"End: {_typed('stop', event, name)}")

    def _line(self, text: str, style: str = "") -> None:
        folded = self._console.is_terminal
        self._console.print(printable(text), style=style, soft_wrap=not folded, highlight=False, markup=False)

    def _commands(self, *commands: str) -> None:
        """Print commands to copy: on one line where they fit, and never folded by us."""
        line = "   ".join(commands)
        for text in [line] if len(line) < self._console.width else commands:
            self._console.print(printable(text), style="dim", soft_wrap=True, highlight=False, markup=False)

    def _table(self, seen: list[events.SessionSeen], now: datetime) -> None:
        from rich.table import Table
        from rich.text import Text

        rows = [_row(one, now) for one in seen]
        shown = [place for place in range(len(_HEADINGS)) if place < 2 or any(row[place] for row in rows)]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for place in shown:
            heading, is_whole = _HEADINGS[place], _HEADINGS[place] in _WHOLE
            justify: Literal["left", "right"] = "right" if heading == "Left" else "left"
            table.add_column(heading, no_wrap=is_whole, overflow="fold", justify=justify,
                             min_width=_STATE if heading == "State" else None)  # fmt: skip
        for one, row in zip(seen, rows, strict=True):
            style = _STYLES.get(one.state, "dim")
            table.add_row(*(Text(printable(row[place]), style=style if place == 1 else "") for place in shown))
        width = self._console.width
        if not self._console.is_terminal:
            self._console.width = _UNFOLDED
        self._console.print(table)
        self._console.width = width


def _row(seen: events.SessionSeen, now: datetime) -> tuple[str, ...]:
    where = f" on {seen.cluster}" if seen.cluster else ""
    job = "" if seen.job is None or seen.job == seen.session else f"{seen.job}{where}"
    environment = ", ".join(filter(None, [seen.notebook, how_far(seen), seen.environment]))
    if purpose := seen.purpose or ("shell" if seen.program == "shell" else ""):
        environment = f"{purpose} ({environment})" if environment else purpose
    return (seen.session, state_in_words(seen, now), seen.node or "", job, left(seen.seconds_left), environment)


def state_in_words(seen: events.SessionSeen, now: datetime) -> str:
    """Return what a session does, and why: ``waiting: its begin time``, ``ended 14:02: shut down``."""
    ended = moment(seen.ended)
    at = f" {_past(ended, now)}" if seen.state == "ended" and ended else ""
    if seen.state == "waiting" and seen.about.startswith("waits "):
        return f"waiting {seen.about.removeprefix('waits ')}"
    about = "" if seen.about == "stopped" else seen.about  # by somebody's word: nothing to explain
    return f"{seen.state}{at}{f': {about}' if about else ''}"


def _past(at: datetime, now: datetime) -> str:
    """Return a time of the last days by its day."""
    at = at.astimezone(now.tzinfo)
    return f"{at:%a %H:%M}" if timedelta(0) < now.date() - at.date() < timedelta(days=7) else clock(at, now)


def left(seconds: int | None) -> str:
    """Return a time that is left: ``14 min``, ``1:42 h`` from an hour on, ``2 d 3 h`` from a day on."""
    if seconds is None:
        return ""
    minutes = seconds // 60
    if minutes >= 24 * 60:
        return f"{minutes // 1440} d {minutes % 1440 // 60} h"
    return f"{minutes // 60}:{minutes % 60:02d} h" if minutes >= 60 else f"{minutes} min"


def _typed(command: str, event: events.Listed, *words: str) -> str:
    return " ".join(filter(None, ["launch-notebook", command, event.arguments, *words]))


def _below(event: events.Listed, seen: list[events.SessionSeen]) -> list[tuple[str, str]]:
    """Return what is said below the table, or in its place, each with a style."""
    lines = []
    if not seen:
        lines.append((f"There is no session on {event.where}. Start one: {_typed('', event)}", ""))
    if event.hidden:
        older = "1 that ended" if event.hidden == 1 else f"{event.hidden} that ended"
        lines.append((f"Not shown: {older} more than a day ago. All: {_typed('list', event, '--all')}", "dim"))
    if event.damaged:
        count = len(event.damaged)
        which = "1 record is damaged" if count == 1 else f"{count} records are damaged"
        more = f", and {count - _MOST_NAMED} more" if count > _MOST_NAMED else ""
        lines.append((f"{which}: {', '.join(event.damaged[:_MOST_NAMED])}{more}", "yellow"))
    return lines
