"""Shows a session's state and usage with small graphs of block characters, and the lines of its log."""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from notebook_launcher.cli.views.batch import counts_text
from notebook_launcher.cli.views.clock import clock, parse_iso
from notebook_launcher.cli.views.pending_line import with_explanation
from notebook_launcher.core import events
from notebook_launcher.core.quantities import duration, time_left
from notebook_launcher.core.text import printable
from notebook_launcher.jobs.session_choice import describe_progress
from notebook_launcher.usage.series import shrunk

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.live import Live
    from rich.text import Text

BLOCKS, LETTERS = "▁▂▃▄▅▆▇█", "_.-:=+*#"
PIPE_COLUMNS = 80  # of a graph with its numbers, if the output is not a terminal
TALLEST = 4  # rows of a graph
REPORT_ROWS = 3  # of each graph of a whole session: a report may be longer than the terminal
_NUMBERS = 6  # columns of a number

_PROGRAMS = {"jupyterlab": "JupyterLab", "shell": "a shell"}
_STATES = {
    "pending": "waits",
    "starting": "starts",
    "running": "runs",
    "suspended": "is suspended",
    "completing": "is ending",
    "ended": "has ended",
    "gone": "is gone",
    "unknown": "may run",
}
_STATE_STYLES = {
    "running": "bold green",
    "starting": "bold green",
    "pending": "bold yellow",
    "suspended": "bold yellow",
}
_UNIT_STYLES = {"%": "green", "GiB": "cyan", "W": "yellow", "cores": "magenta"}

InspectionEvent: TypeAlias = events.Status | events.LogLine | events.FileWritten


class UsageView:
    """Shows a session; on a terminal each update is drawn over the last one."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._has_shown = False

    def show(self, event: InspectionEvent) -> None:
        """Show one event."""
        if isinstance(event, events.LogLine):
            _print_line(event.text if event.task is None else f"{event.task}: {event.text}")
        elif isinstance(event, events.FileWritten):
            self.pause()
            self._console.print(printable(event.text), soft_wrap=True, highlight=False, markup=False)
        elif self._console.is_terminal:
            self._draw(event)
        elif self._has_shown:
            self._print([_status_line(event, _now())])
        else:
            self._has_shown = True
            self._print(_Picture(event, _encodes_blocks(self._console)).lines(_now()))

    def pause(self) -> None:
        """Keep what is drawn on the screen, because something else is to be printed below."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self, event: events.Status) -> None:
        from rich.live import Live

        picture = _Picture(event, _encodes_blocks(self._console))
        if event.whole_session:  # shown once, and may be longer than the terminal
            self._console.print(picture)
        elif self._live is None:
            self._live = Live(picture, console=self._console, refresh_per_second=1)
            self._live.start(refresh=True)
        else:
            self._live.update(picture, refresh=True)

    def _print(self, lines: Sequence[tuple[str, str]]) -> None:
        for text, _ in lines:
            self._console.print(text.rstrip(), soft_wrap=True, highlight=False, markup=False)


def _print_line(text: str) -> None:
    """Print a line of a log: made safe on a terminal, otherwise unchanged."""
    if sys.stdout.isatty():
        text = printable(text.rstrip("\r").rpartition("\r")[2])  # of a progress bar, only its last state
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _one(text: str) -> str:
    """Return text that is safe to show, on one line."""
    return printable(text).replace("\n", " ")


def _hanging(text: Text, console: Console, width: int) -> list[Text]:
    """Fold text between words; further lines are indented to the start of the fact."""
    indent = len(_SUBJECT.match(text.plain)[0])  # type: ignore[index]
    first = text.wrap(console, width, overflow="fold")[0]
    rest = text.plain[len(first) :].lstrip()
    below = text[len(text) - len(rest) :].wrap(console, width - indent, overflow="fold")
    for line in below:
        line.pad_left(indent)
    return [first, *(below if rest else ())]


#: the indent and the name of a fact, before its text
_SUBJECT = re.compile(r"(  (asked for |log +|directory |  \| )?)?")


def _encodes_blocks(console: Console) -> bool:
    try:
        BLOCKS.encode(console.encoding)
    except (UnicodeError, LookupError):
        return False
    return True


def _now() -> datetime:
    return datetime.now().astimezone()


def _status_line(event: events.Status, now: datetime) -> tuple[str, str]:
    """Return a short line for output that cannot update in place."""
    used = [f"{one.label} {_number(one.latest, one.unit)} {one.unit}" for one in event.series if one.latest is not None]
    tasks = [counts_text(event.tasks)] if event.tasks else []
    return _one(f"{now:%H:%M:%S}  {event.session.state}  {', '.join([*tasks, *used])}"), ""


def _app_text(app: events.AppState) -> str:
    """Return a text with the state of a program beside JupyterLab, and its address on this machine."""
    state = "not running" if app.state == "failed" else app.state
    if app.restarts:
        state += f", restarted {'once' if app.restarts == 1 else f'{app.restarts} times'}"
    where = f", {app.url}" if app.url and app.state != "failed" else ""
    why = f". {app.message}" if app.message and app.state != "running" else ""
    return f"{app.title}: {state}{where}{why}"


class _Picture:
    """A session's facts, a graph for each resource that it uses, and notes on it.

    ``blocks``: whether the terminal can show block characters. The time left is updated while it is shown.
    """

    def __init__(self, event: events.Status, blocks: bool) -> None:
        self._event, self._blocks = event, blocks
        self._drawn_at = time.monotonic()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        event, width = self._event, options.max_width
        facts = [
            line for text, style in self._facts(_now()) for line in _hanging(Text(text, style=style), console, width)
        ]
        notes = [line for text in self._notes() for line in Text(text, style="yellow").wrap(console, width)]
        rows = REPORT_ROWS
        if not event.whole_session:
            left = console.size.height - 1 - len(facts) - len(notes) - 3  # 3: a blank line, the heading, the times
            rows = max(1, min(TALLEST, left // max(1, len(event.series))))
        yield from facts
        for text, style in self._graphs(width, rows, _now()):
            head, _, numbers = text.partition("\t")
            yield Text(head, style=style, no_wrap=True, overflow="crop").append(numbers, style="default")
        yield from notes

    def lines(self, now: datetime) -> list[tuple[str, str]]:
        """Return the lines for a program: nothing is folded, and they are the same at any width."""
        graphs = [(text.replace("\t", ""), style) for text, style in self._graphs(PIPE_COLUMNS, 1, now)]
        return [*self._facts(now), *graphs, *((text, "") for text in self._notes())]

    # --- facts

    def _facts(self, now: datetime) -> Iterator[tuple[str, str]]:
        event, session = self._event, self._event.session
        yield _one(self._headline(now)), _STATE_STYLES.get(session.state, "bold")
        about = [
            f"job {session.job}{f' on {session.cluster}' if session.cluster else ''}"
            if session.job
            else "no job is recorded"
        ]
        what = session.purpose or session.runs or _PROGRAMS.get(session.program, session.program)
        about += [word for word in (session.environment, what, describe_progress(session)) if word]
        created = parse_iso(session.created)
        source = f" from {session.launched_from}" if session.launched_from else ""
        about += [f"launched{source} at {clock(created, now)}"] if created else []
        yield _one(f"  {', '.join(about)}"), ""
        if event.tasks:
            yield f"  {counts_text(event.tasks)}", "bold yellow" if event.tasks.failed else ""
        yield _one(f"  asked for {event.flags}"), "dim"
        for app in event.apps:
            yield _one(f"  {_app_text(app)}"), "bold yellow" if app.state == "failed" else ""
            if app.log and app.state != "running":
                yield "    The end of its log:", ""
                yield from ((_one(f"    | {line}"), "dim") for line in app.log)
        if event.idle_stop:
            yield f"  it ends by itself after {duration(event.idle_stop)} without use", "dim"
        of_each = " (%a: the task's number)" if "%a" in event.log else ""
        yield _one(f"  log       {event.log}{of_each}"), "dim"
        if not event.log.startswith(f"{session.directory}/"):
            yield _one(f"  directory {session.directory}"), "dim"

    def _headline(self, now: datetime) -> str:
        session = self._event.session
        state = _STATES.get(session.state, session.state)
        if session.state == "pending" and session.detail:
            return f"Session {session.session} {with_explanation(state, session.detail)}"
        text = f"Session {session.session} {state}"
        if session.node and session.state not in ("ended", "gone"):
            text += f" on {session.node}"
        if session.state in ("running", "starting", "suspended") and session.seconds_left is not None:
            ends = parse_iso(session.ends)
            left = max(0, session.seconds_left - int(time.monotonic() - self._drawn_at))
            text += f"; {time_left(left)} left{f' (until {clock(ends, now)})' if ends else ''}"
        return f"{text}: {session.detail}" if session.detail else text

    def _notes(self) -> list[str]:
        event = self._event
        is_due = event.session.state in ("starting", "running") and not event.tasks  # each task has its own
        nothing = ["  No samples of what it uses are there yet."] if is_due and not event.series else []
        return [*nothing, *(f"  {_one(note)}" for note in event.notes)]

    # --- graphs

    @property
    def _label_width(self) -> int:
        return max((len(one.label) for one in self._event.series), default=0) + 2

    @property
    def _columns(self) -> tuple[str, ...]:
        is_over = self._event.session.state in ("ended", "gone")
        return ("mean", "peak", "of") if is_over else ("now", "mean", "peak", "of")

    @property
    def _numbers_width(self) -> int:
        return _NUMBERS * len(self._columns) + len(" cores")

    def _graphs(self, width: int, rows: int, now: datetime) -> Iterator[tuple[str, str]]:
        """Yield the lines of the graphs; the part after a tab does not have the graph's colour."""
        event, label = self._event, self._label_width
        columns = max(8, width - label - 1 - self._numbers_width)
        if not event.series:
            return
        yield "", ""
        yield " " * (label + 1 + columns) + "".join(name.rjust(_NUMBERS) for name in self._columns), "dim"
        for one in event.series:
            is_low = (one.peak or 0.0) <= _top(one) / rows  # all rows but the lowest would be empty
            lines = graph(shrunk(one.values, columns), _top(one), 1 if is_low else rows, blocks=self._blocks)
            for place, line in enumerate(lines):
                is_last = place == len(lines) - 1
                name = f"  {_one(one.label)}" if is_last else ""
                numbers = self._numbers(one) if is_last else ""
                yield f"{name.ljust(label)} {line.ljust(columns)}\t{numbers}", _UNIT_STYLES.get(one.unit, "")
        drawn = min(columns, max(len(one.values) for one in event.series))
        yield " " * (label + 1) + self._times(drawn, now), "dim"

    def _numbers(self, one: events.Series) -> str:
        values = {"now": one.latest, "mean": one.mean, "peak": one.peak, "of": one.capacity}
        return "".join(_number(values[name], one.unit).rjust(_NUMBERS) for name in self._columns) + f" {_one(one.unit)}"

    def _times(self, columns: int, now: datetime) -> str:
        since, until = parse_iso(self._event.since), parse_iso(self._event.until)
        if since is None or until is None:
            return ""
        first, last = clock(since, now), clock(until, now)
        if len(first) + len(last) + 1 > columns:
            return f"{first} to {last}" if first != last else first
        return first + last.rjust(columns - len(first))


def graph(values: Sequence[float | None], top: float, rows: int, *, blocks: bool = True) -> list[str]:
    """Return a graph as ``rows`` lines, the top line first; 0 is the lowest character, and ``None`` a gap.

    ``top``: the value that fills the whole height.
    """
    levels = BLOCKS if blocks else LETTERS
    steps = [_steps(value, top, rows * len(levels)) for value in values]
    lines = []
    for row in reversed(range(rows)):
        heights = (min(step - row * len(levels), len(levels)) for step in steps)
        lines.append("".join(levels[height - 1] if height > 0 else " " for height in heights))
    return lines


def _steps(value: float | None, top: float, most: int) -> int:
    if value is None:
        return 0
    return max(1, min(most, round(value / top * most))) if top > 0 else 1


def _top(one: events.Series) -> float:
    """Return the value at the top of the graph: the total available, or if unknown, a round number above the peak."""
    peak = one.peak or 0.0
    if one.capacity or peak <= 0:
        return max(one.capacity or 0.0, peak)
    power = 10.0 ** math.floor(math.log10(peak))
    return next(step * power for step in (2, 5, 10, 20) if step * power > peak)


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if unit in ("%", "W") or value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
