"""Shows a class: on a terminal as a table that updates in place, otherwise only changed states; and its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from notebook_launcher.classroom.page import ClassRow, class_rows, counts_in_words, gpus_in_words
from notebook_launcher.cli.views.tables import print_table
from notebook_launcher.core import events
from notebook_launcher.core.quantities import counted
from notebook_launcher.core.text import listed, printable

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.table import Table

ClassEvent: TypeAlias = events.ClassSeen | events.ClassPage | events.ClassCollected | events.ClassEnded

_STYLES = {
    **dict.fromkeys(("failed", "unknown"), "bold red"),
    **dict.fromkeys(("not_started", "pending", "suspended"), "yellow"),
    **dict.fromkeys(("running", "starting"), "green"),
    "idle": "magenta",
}
_WIDE = 120  # columns: a terminal at least as wide shows the node and the job
_LEAST_OF_NAME = 12  # columns


class ClassroomView:
    """Shows a class; on a terminal each update is drawn over the last one."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._last: dict[str, tuple[str, str]] | None = None

    def show(self, event: ClassEvent) -> None:
        """Show one event."""
        if isinstance(event, events.ClassSeen):
            self._seen(event)
        elif isinstance(event, events.ClassPage):
            self._line("The table is on this page, which only your own browser can open; Ctrl-C ends it:")
            self._line(event.address, "bold", whole=True)
        else:
            self.pause()
            for text, style in _collected(event) if isinstance(event, events.ClassCollected) else _ended(event):
                self._line(text, style)

    def pause(self) -> None:
        """Keep what is drawn on the screen, because something else is to be printed below."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _seen(self, event: events.ClassSeen) -> None:
        if self._console.is_terminal:
            self._draw(event)
            return
        rows = {row.name: row for row in class_rows(event)}
        now = {name: (row.state, row.detail) for name, row in rows.items()}
        if self._last is None:
            print_table(self._console, _table(list(rows.values()), wide=True))
        else:
            for name in (name for name, state in now.items() if state != self._last.get(name)):
                row = rows[name]
                self._line(": ".join([name, ", ".join(filter(None, (row.word, row.detail)))]))
        if now != self._last:
            for text, _ in _below(event):
                self._line(text)
        self._last = now

    def _draw(self, event: events.ClassSeen) -> None:
        from rich.live import Live

        picture = _picture(event, self._console)
        if self._live is None:
            self._live = Live(picture, console=self._console, auto_refresh=False, vertical_overflow="visible")
            self._live.start(refresh=True)
        else:
            self._live.update(picture, refresh=True)

    def _line(self, text: str, style: str = "", *, whole: bool = False) -> None:
        folded = self._console.is_terminal and not whole
        self._console.print(printable(text), style=style, soft_wrap=not folded, highlight=False, markup=False)


def _picture(event: events.ClassSeen, console: Console) -> Group:
    """Return the table and the text below it, no higher than the terminal: students who are fine are left out first."""
    from rich.console import Group
    from rich.text import Text

    rows, below = class_rows(event), _below(event)
    room = max(5, console.height - len(below) - 3)
    shown, wide = min(room, len(rows)), console.width >= _WIDE
    table = _table(rows[:shown], wide=wide)
    if len(console.render_lines(table)) - 1 > room:  # some rows are folded: show more students instead
        table = _table(rows[:shown], wide=wide, columns=console.width)
    lines: list[Table | Text] = [table] if rows else []
    if len(rows) > shown:
        lines.append(Text(f"… and {len(rows) - shown} more; to see all: --once, --html or --page", style="dim"))
    return Group(*lines, *(Text(printable(text), style=style) for text, style in below))


def _table(rows: list[ClassRow], *, wide: bool, columns: int | None = None) -> Table:
    """Return the students as a table. ``columns``: give each student one line of this width, cutting off long texts."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    headings = ("Student", "State", "Time", *(("Node", "Job") if wide else ()), "")
    for heading in headings:
        table.add_column(heading, overflow="fold", no_wrap=columns is not None or heading in ("State", "Time"))
    cells = [(row.name, row.word, row.when, *((row.node, row.job) if wide else ()), row.detail) for row in rows]
    most = _widths([headings, *cells], columns) if columns else [None] * len(headings)
    for row, texts in zip(rows, cells, strict=True):
        shown = [Text(text) for text in texts]
        shown[1].stylize(_STYLES.get(row.state, "dim"))
        for text, width in zip(shown, most, strict=True):
            if width is not None:
                text.truncate(width, overflow="ellipsis")
        table.add_row(*shown)
    return table


def _widths(rows: Sequence[Sequence[str]], columns: int) -> list[int | None]:
    """Return the widths of the first and last column that leave the others whole; ``None``: their natural width."""
    from rich.cells import cell_len

    widest = [max(map(cell_len, texts)) for texts in zip(*rows, strict=True)]
    room = columns - sum(widest[1:-1]) - 2 * len(widest)
    name = max(_LEAST_OF_NAME, min(widest[0], room // 2), min(widest[0], room - widest[-1]))
    return [name, *[None] * (len(widest) - 2), max(1, room - name)]


def _below(event: events.ClassSeen) -> list[tuple[str, str]]:
    """Return the texts below the table, or in place of it, each with a style."""
    parts = [f"{count} {word}" for _, word, count in counts_in_words(event)]
    lines = [(f"{event.title}: {', '.join(parts) or 'nobody is in the class yet'}.", "bold")]
    if gpus := gpus_in_words(event):
        lines.append((gpus, ""))
    if event.problem:
        lines.append((event.problem, "yellow"))
    return lines


def _collected(event: events.ClassCollected) -> list[tuple[str, str]]:
    lines = [(event.conclusion, "green")] if event.conclusion else []
    if event.without:
        lines.append((f"Without results: {listed(event.without, 20)}.", "yellow"))
    if event.refused:
        lines.append((f"Left out: {'; '.join(event.refused[:10])}.", "yellow"))
    return [*lines, (f"The report is in {event.html}, its numbers are in {event.table}.", "")]


def _ended(event: events.ClassEnded) -> list[tuple[str, str]]:
    lines = []
    if event.ended:
        lines.append((f"{counted(len(event.ended), 'session')} ended: {listed(event.ended, 20)}.", "green"))
    if event.asked:
        lines.append((f"Asked to end themselves: {listed(event.asked, 20)}.", "green"))
    if event.refused:
        lines.append((f"You may not end the sessions of {listed(event.refused, 20)}. {event.why}".strip(), "yellow"))
    return lines or [("The class has no sessions.", "")]
