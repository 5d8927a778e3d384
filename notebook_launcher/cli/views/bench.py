"""Shows a bench: on a terminal in lines that update in place, otherwise with a line for each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from notebook_launcher.cli.views.errors import elapsed
from notebook_launcher.core import events
from notebook_launcher.core.quantities import stopwatch
from notebook_launcher.core.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

MOST_LINES = 6  # running combinations in the live view


class BenchView:
    """Shows one bench on a console. ``aside``: the console for steps if nothing can update in place."""

    def __init__(self, console: Console, aside: Console) -> None:
        self._console, self._aside = console, aside
        self._live: Live | None = None
        self._step: events.BenchProgress | None = None
        self._since: dict[str, float] = {}  # when each combination was first seen running

    def show(self, event: events.BenchProgress | events.BenchReported) -> None:
        """Show the progress, or where the report is."""
        if isinstance(event, events.BenchReported):
            self.stop()
            for line in report_lines(event):
                self._print(self._console, line)
            return
        now = elapsed()
        self._step = event
        self._since = {name: self._since.get(name, now) for name in event.running}
        in_place = self._console.is_terminal and not self._console.is_dumb_terminal
        if not in_place or _lasts(event):
            self.stop()
            self._print(self._aside, event.what if in_place else f"{event.what} ({counts(event)})")
        if in_place and (event.waiting or event.running):
            self._update()

    def stop(self) -> None:
        """Remove the live lines; the next step shows them again."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _update(self) -> None:
        from rich.live import Live

        if self._live is None:
            self._live = Live(console=self._console, get_renderable=self._lines, refresh_per_second=2, transient=True)
            self._live.start()
        self._live.refresh()

    def _lines(self) -> Text:
        from rich.text import Text

        step = self._step
        if step is None:
            return Text("")
        lines = [f"{stopwatch(elapsed())}  {counts(step)}"]
        lines += [f"  {name}  {stopwatch(elapsed() - self._since[name])}" for name in step.running[:MOST_LINES]]
        if len(step.running) > MOST_LINES:
            lines.append(f"  and {len(step.running) - MOST_LINES} more")
        lines += [] if _lasts(step) else [f"  {step.what}"]
        return Text(printable("\n".join(lines)), no_wrap=True, overflow="ellipsis")

    def _print(self, console: Console, text: str) -> None:
        soft = not console.is_terminal
        console.print(printable(text), soft_wrap=soft, highlight=False, markup=False)


def counts(step: events.BenchProgress) -> str:
    """Return the number of combinations in each state: ``4 of 12 done, 1 failed, 4 run, 3 wait``."""
    total = len(step.waiting) + len(step.running) + len(step.done) + len(step.failed)
    parts = [f"{len(step.done)} of {total} done"]
    parts += [f"{len(step.failed)} failed"] if step.failed else []
    parts += [f"{len(step.running)} run"] if step.running else []
    parts += [f"{len(step.waiting)} wait"] if step.waiting else []
    return ", ".join(parts)


def _lasts(step: events.BenchProgress) -> bool:
    """Whether a step gets a permanent line: a failure does."""
    return " failed: " in step.what


def report_lines(event: events.BenchReported) -> list[str]:
    """Return lines on where the report is, and on the outcome, for instance why there are no results."""
    results = {0: "no results", 1: "one result"}.get(event.rows, f"{event.rows} results")
    paths = (f"  {path}" for path in (event.html, event.markdown, event.csv))
    return [f"The report has {results}:", *paths, *filter(None, [event.conclusion])]
