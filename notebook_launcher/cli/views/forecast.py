"""Shows forecasts and the queue: a sentence, and tables that fit a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from notebook_launcher.cli.views.clock import clock, parse_iso
from notebook_launcher.cli.views.folding import print_folded
from notebook_launcher.cli.views.tables import print_table
from notebook_launcher.core import events
from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.quantities import counted, duration
from notebook_launcher.core.text import printable
from notebook_launcher.core.walltime import Walltime

if TYPE_CHECKING:
    from rich.console import Console


Tabled: TypeAlias = events.Forecast | events.Alternative | events.ForecastDone | events.Queue


class ForecastView:
    """Prints forecasts and queues; variations are collected until all are known."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._variations: list[events.Alternative] = []
        self._can_start = True

    def show(self, event: Tabled, now: datetime) -> None:
        """Print one event. ``now`` has the reader's zone."""
        if isinstance(event, events.Forecast):
            self._forecast(event, now)
        elif isinstance(event, events.Alternative):
            self._variations.append(event)
        elif isinstance(event, events.ForecastDone):
            self._compared(event, now)
        else:
            self._queue(event)

    # --- when ---

    def _forecast(self, event: events.Forecast, now: datetime) -> None:
        self._can_start = not event.what
        if event.what:
            self._line(event.what, "bold red")
            for line in filter(None, (event.why, f"→ {event.hint}" if event.hint else "")):
                self._line(f"  {line}")
        else:
            start = start_of(event.start, event.seconds, now, " your time" if _is_elsewhere(event.start, now) else "")
            text = f"{start}{_place(event)}, with {event.flags}"
            if event.delayed_by:
                self._line(event.delayed_by, "bold yellow")
                if event.start:
                    self._line(f"Without that: {text}")
            else:
                self._line(text[0].upper() + text[1:], "bold green")
        if event.note:
            self._line(event.note, "yellow")

    def _compared(self, event: events.ForecastDone, now: datetime) -> None:
        sooner = [other for other in self._variations if other.sooner]
        if sooner:
            title = "Sooner" if self._can_start else "This would start"
            self._line(f"\n{title}{' (your time)' if _is_elsewhere(event.as_of, now) else ''}:")
            notes = list(dict.fromkeys(other.note for other in sooner if other.note))
            marks = {note: " " + "*" * count for count, note in enumerate(notes, 1)} | {"": ""}
            rows = [
                (start_of(other.start, other.seconds, now), other.flags, _where(other) + marks[other.note])
                for other in sooner
            ]
            self._table(("", "", ""), rows, indent=2)
            for note in notes:
                self._line(f" {marks[note]} {note}")
        for title, others in (
            ("No sooner", [other for other in self._variations if not other.sooner and not other.what]),
            ("Not possible", [other for other in self._variations if other.what]),
        ):
            if others:
                self._line(f"{title}: {'; '.join(other.flags for other in others)}")
        if event.text:
            self._line(f"\n{event.text}" if self._variations else event.text, "dim")
        self._variations.clear()

    # --- queue ---

    def _queue(self, event: events.Queue) -> None:
        rows = [row for partition in event.partitions for row in _partition_rows(partition)]
        headings = ("Partition", "Limit", "", "Free", "Busy", "Out", "Waiting", "GPUs asked")
        self._table(headings, rows, numbers=range(3, 8))
        gpus = [f"{_kind(load)} {_or_unknown(load.free)} of {_all(load)} free" for load in event.gpus]
        self._line(f"\nGPUs in all: {', '.join(gpus)}." if gpus else "")
        if gpus and any(_has(partition.cores) for partition in event.partitions):
            self._line("Cores: those of nodes without GPUs.")
        self._line(_waiting(event))

    # --- both ---

    def _line(self, text: str, style: str = "") -> None:
        print_folded(self._console, printable(text), style)

    def _table(
        self, headings: Sequence[str], rows: Iterable[Sequence[str]], *, indent: int = 0, numbers: Iterable[int] = ()
    ) -> None:
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, show_header=any(headings), pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for place, heading in enumerate(headings):
            table.add_column(heading, justify="right" if place in numbers else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        print_table(self._console, Padding(table, (0, 0, 0, indent), expand=False))


def start_of(start: str | None, seconds: int | None, now: datetime, whose: str = "") -> str:
    """Return when something starts: ``now``, or ``≈ 14:20 (in 1 h 12 min)`` by the reader's clock.

    ``whose``: a remark after the time, on whose clock it refers to.
    """
    if not start or not seconds:
        return "now"
    at = parse_iso(start)
    return f"≈ {clock(at, now) if at else printable(start)}{whose} (in {duration(max(seconds, 60))})"


def _is_elsewhere(time: str | None, now: datetime) -> bool:
    """Whether the cluster is in another time zone than the reader."""
    at = parse_iso(time)
    return at is not None and at.utcoffset() != at.astimezone(now.tzinfo).utcoffset()


def _place(event: events.Forecast) -> str:
    nodes = f" on {event.nodes}" if event.nodes else ""
    return f"{nodes} in partition {event.partition}" if event.partition else nodes


def _where(event: events.Alternative) -> str:
    return f"{event.partition} ({event.nodes})" if event.partition and event.nodes else event.partition or ""


def _walltime(text: str) -> str:
    try:
        return Walltime.parse(text).as_text()
    except UsageError:  # in a form that only the scheduler understands
        return text


def _partition_rows(partition: events.PartitionLoad) -> list[tuple[str, ...]]:
    """Return a row for each type of GPU, and one for the cores of nodes without GPUs."""
    state = "closed" if partition.up is False else "default" if partition.default else ""
    name = f"{partition.name} ({state})" if state else partition.name
    limit = _walltime(partition.walltime) if partition.walltime else ""
    has_cores = _has(partition.cores) or not partition.gpus
    loads = [*partition.gpus, *([partition.cores] if has_cores else [])]
    rows: list[tuple[str, ...]] = []
    for load in loads:
        first = (name, limit) if not rows else ("", "")
        last = (_or_unknown(partition.pending), _or_unknown(partition.pending_gpus)) if not rows else ("", "")
        rows.append((*first, _kind(load), _or_unknown(load.free), _or_unknown(load.busy), str(load.unavailable), *last))
    return rows


def _kind(load: events.ResourceLoad) -> str:
    return load.type or "GPU"


def _has(load: events.ResourceLoad) -> bool:
    return _all(load) != "0"


def _or_unknown(count: int | None) -> str:
    return "?" if count is None else str(count)


def _all(load: events.ResourceLoad) -> str:
    return "?" if load.free is None or load.busy is None else str(load.free + load.busy + load.unavailable)


def _waiting(event: events.Queue) -> str:
    if event.pending is None or event.yours is None:
        return "The scheduler does not report which jobs wait."
    if event.hidden:
        return f"Waiting: {counted(event.yours, 'job')} of yours. Other people's jobs are hidden from you here."
    if not event.pending:
        return "Nothing waits."
    gpus = f" ({counted(event.pending_gpus, 'GPU')} asked for)" if event.pending_gpus else ""
    return f"Waiting: {counted(event.pending, 'job')}{gpus}, {event.yours or 'none'} of them yours."
