"""Shows a copy: a progress bar on a terminal, otherwise a line now and then; and a sentence at its end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from notebook_launcher.core import events
from notebook_launcher.core.quantities import file_size, time_left
from notebook_launcher.core.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

LINE_EVERY = 10.0  # seconds between two lines if nothing can update in place


class CopyView:
    """Shows one copy on a console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._first: tuple[float, int] | None = None  # the time and the number of bytes at the start of this copy
        self._printed_at = 0.0

    def show(self, event: events.Copying | events.Copied) -> None:
        """Show the progress, or the outcome."""
        if isinstance(event, events.Copied):
            self.stop()
            self._print(_done(event), style="green")
        elif self._console.is_terminal:
            self._update(event)
        else:
            self._print_now_and_then(event)

    def stop(self) -> None:
        """Remove the bar; the next event shows it again."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None

    def _update(self, event: events.Copying) -> None:
        text = _short(printable(event.file).replace("\n", " "), 40 if _is_wide(self._console) else 16)
        if event.files > 1:
            text += f" ({event.files_done + 1 if event.files_done < event.files else event.files} of {event.files})"
        if self._bar is None or self._task is None:
            self._bar = _bar(self._console)
            self._bar.start()
            self._task = self._bar.add_task(text, total=event.bytes, completed=event.bytes_done)
        self._bar.update(self._task, description=text, total=event.bytes, completed=event.bytes_done)

    def _print_now_and_then(self, event: events.Copying) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first, self._printed_at = (now, event.bytes_done), now
            there = f", of which {file_size(event.bytes_done)} are there already" if event.bytes_done else ""
            self._print(f"Copying {_count(event.files)}, {file_size(event.bytes)}{there}")
        if now - self._printed_at < LINE_EVERY or not event.bytes:
            return
        self._printed_at = now
        began, at = self._first
        rate = (event.bytes_done - at) / (now - began)
        left = f", {time_left((event.bytes - event.bytes_done) / rate)} left" if rate > 0 else ""
        share = 100 * event.bytes_done / event.bytes
        self._print(
            f"{file_size(event.bytes_done)} of {file_size(event.bytes)} ({share:.0f} %) are there: "
            f"{rate / 1e6:.0f} MB/s{left}"
        )

    def _print(self, text: str, style: str = "") -> None:
        soft = not self._console.is_terminal
        self._console.print(printable(text), style=style, soft_wrap=soft, highlight=False, markup=False)


def _bar(console: Console) -> Progress:
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    wide = _is_wide(console)
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=40 if wide else 8),
        *([TextColumn("{task.percentage:>3.0f} %")] if wide else []),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
        refresh_per_second=4,
    )


def _is_wide(console: Console) -> bool:
    return console.width >= 100


def _short(name: str, longest: int) -> str:
    half = (longest - 1) // 2
    return name if len(name) <= longest else f"{name[:half]}…{name[-half:]}"


def _done(event: events.Copied) -> str:
    if not event.files and not event.skipped:
        return f"Copied to {_place(event)}: folders only, without files in them."
    if not event.files:
        return f"Nothing to copy: {_files(event.skipped)} already there, with the same checksums."
    rate = (event.bytes - event.resumed) / max(event.seconds, 0.001) / 1e6
    text = f"Copied to {_place(event)}: {_count(event.files)}, {file_size(event.bytes)}, in {event.seconds:.1f} s"
    text += f" ({rate:.0f} MB/s)." if event.bytes > 1e6 else "."
    if event.resumed:
        text += f" {file_size(event.resumed)} of it were there from an earlier attempt."
    if event.skipped:
        text += f" {_files(event.skipped)} there already, and equal."
    return f"{text} The checksums are the same at both ends."


def _place(event: events.Copied) -> str:
    """Return the destination as text; the home on the cluster, typed as ``login:``, by its path."""
    return f"{event.destination}~" if event.destination.endswith(":") else event.destination


def _count(files: int) -> str:
    return "one file" if files == 1 else f"{files} files"


def _files(files: int) -> str:
    return "one file is" if files == 1 else f"{files} files are"
