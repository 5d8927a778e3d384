"""Shows the list of sessions as a table that fits a terminal of 80 columns, and uses a wider one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from notebook_launcher.cli.views.clock import clock, parse_iso
from notebook_launcher.cli.views.tables import print_table
from notebook_launcher.core import events
from notebook_launcher.core.quantities import time_left
from notebook_launcher.core.text import printable
from notebook_launcher.jobs.session_choice import describe_progress, typed_command

if TYPE_CHECKING:
    from rich.console import Console

_MOST_NAMED = 5  # damaged directories that are listed by name

_HEADINGS = ("Session", "State", "Node", "Job", "Left", "Environment")
_WHOLE = ("Session", "Left")  # columns that are never cut off
_STATE = 12  # columns of the terminal, at least
_STYLES = {"running": "green", "starting": "cyan", "pending": "yellow", "suspended": "yellow", "unknown": "magenta"}


class SessionListView:
    """Collects sessions until the list is complete, and prints it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._entries: list[events.SessionEntry] = []

    def show(self, event: events.SessionEntry | events.ListDone, now: datetime) -> None:
        """Handle one event. ``now`` has the reader's zone."""
        if isinstance(event, events.SessionEntry):
            self._entries.append(event)
            return
        entries, self._entries = self._entries[::-1], []  # reversed: active and new sessions last, next to the prompt
        if entries:
            self._table(entries, now)
        for text, style in _below(event, entries):
            self._line(text, style)
        if event.active and self._console.is_terminal:
            running = [one.session for one in entries if one.state == "running"]
            name = (running or [one.session for one in entries])[-1]
            name = name if name[-4:].isdecimal() else name[-4:]  # four digits could be a job id
            self._commands(
                f"Reconnect: {typed_command('connect', event.arguments, name)}",
                f"End: {typed_command('stop', event.arguments, name)}",
            )

    def _line(self, text: str, style: str = "") -> None:
        folded = self._console.is_terminal
        self._console.print(printable(text), style=style, soft_wrap=not folded, highlight=False, markup=False)

    def _commands(self, *commands: str) -> None:
        """Print commands to copy: on one line if they fit, and never folded."""
        line = "   ".join(commands)
        for text in [line] if len(line) < self._console.width else commands:
            self._console.print(printable(text), style="dim", soft_wrap=True, highlight=False, markup=False)

    def _table(self, entries: list[events.SessionEntry], now: datetime) -> None:
        from rich.table import Table
        from rich.text import Text

        rows = [_row(one, now) for one in entries]
        shown = [place for place in range(len(_HEADINGS)) if place < 2 or any(row[place] for row in rows)]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for place in shown:
            heading, is_whole = _HEADINGS[place], _HEADINGS[place] in _WHOLE
            justify: Literal["left", "right"] = "right" if heading == "Left" else "left"
            table.add_column(
                heading,
                no_wrap=is_whole,
                overflow="fold",
                justify=justify,
                min_width=_STATE if heading == "State" else None,
            )
        for one, row in zip(entries, rows, strict=True):
            style = _STYLES.get(one.state, "dim")
            table.add_row(*(Text(printable(row[place]), style=style if place == 1 else "") for place in shown))
        print_table(self._console, table)


def _row(entry: events.SessionEntry, now: datetime) -> tuple[str, ...]:
    where = f" on {entry.cluster}" if entry.cluster else ""
    job = "" if entry.job is None or entry.job == entry.session else f"{entry.job}{where}"
    environment = ", ".join(filter(None, [entry.runs, describe_progress(entry), entry.environment]))
    if purpose := entry.purpose or ("shell" if entry.program == "shell" else ""):
        environment = f"{purpose} ({environment})" if environment else purpose
    return (
        entry.session,
        state_in_words(entry, now),
        entry.node or "",
        job,
        "" if entry.seconds_left is None else time_left(entry.seconds_left),
        environment,
    )


def state_in_words(entry: events.SessionEntry, now: datetime) -> str:
    """Return a session's state and the reason: ``pending: 12 jobs are ahead``, ``ended 14:02: shut down``."""
    ended = parse_iso(entry.ended)
    state = "ended" if entry.state == "gone" and ended else entry.state  # a launcher cancelled it
    at = f" {_past(ended, now)}" if state == "ended" and ended else ""
    about = "" if entry.detail == "stopped" else entry.detail  # on request: nothing to explain
    return f"{state}{at}{f': {about}' if about else ''}"


def _past(at: datetime, now: datetime) -> str:
    """Return a time of the last days, with its day if it was not today."""
    at = at.astimezone(now.tzinfo)
    return f"{at:%a %H:%M}" if timedelta(0) < now.date() - at.date() < timedelta(days=7) else clock(at, now)


def _below(event: events.ListDone, entries: list[events.SessionEntry]) -> list[tuple[str, str]]:
    """Return the texts below the table, or in place of it, each with a style."""
    lines = []
    if not entries:
        lines.append((f"There is no session on {event.where}. Start one: {typed_command('', event.arguments)}", ""))
    if event.hidden:
        older = "1 that ended" if event.hidden == 1 else f"{event.hidden} that ended"
        lines.append(
            (f"Not shown: {older} more than a day ago. All: {typed_command('list', event.arguments, '--all')}", "dim")
        )
    if event.unreadable:
        count = len(event.unreadable)
        which = "1 record is damaged" if count == 1 else f"{count} records are damaged"
        more = f", and {count - _MOST_NAMED} more" if count > _MOST_NAMED else ""
        lines.append((f"{which}: {', '.join(event.unreadable[:_MOST_NAMED])}{more}", "yellow"))
    return lines
