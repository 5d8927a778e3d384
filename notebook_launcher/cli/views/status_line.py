"""The status line below the address while attached to a session: time left and usage, above the input line.

A line cannot be updated in place while the user types on it: the terminal's echo would be overwritten, and ENTER moves
the cursor. So the status line is one line above the cursor, and redrawing it does not depend on the cursor's column.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from notebook_launcher.cli.views.runs import cell_parts
from notebook_launcher.core import events
from notebook_launcher.core.quantities import steady_gigabytes, time_left
from notebook_launcher.core.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from notebook_launcher.core.usage_samples import GpuSample

STALE = 60.0  # seconds after which a sample is no longer shown as current
SOON, SOONER = 900, 300  # seconds left below which the time is yellow, and red
_MANY = 4  # GPUs; for more, only the mean is shown

_SAVE, _RESTORE = "\x1b7", "\x1b8"
_UP, _START, _ERASE_LINE, _ERASE_BELOW = "\x1b[1A", "\x1b[1G", "\x1b[2K", "\x1b[0J"


def left_part(seconds: float | None) -> str:
    """Return the time left in words: ``1 h 42 min left``; "" if there is no limit."""
    if seconds is None:
        return ""
    return f"{time_left(seconds)} left" if seconds > 0 else "the time is over"


def use_parts(event: events.Attached) -> list[str]:
    """Return the values of a sample, the most important first."""
    parts = [*_gpu_parts(event.gpus)]
    if event.cpu_cores is not None:
        parts.append(f"CPU {event.cpu_cores:.1f} cores")
    if event.memory_mib is not None:
        parts.append(f"memory {steady_gigabytes(event.memory_mib)} GiB")
    return parts


def _gpu_parts(gpus: Sequence[GpuSample]) -> list[str]:
    known = [gpu.percent for gpu in gpus if gpu.percent is not None]
    if not gpus:
        return []
    if len(gpus) > _MANY:
        return [f"{len(gpus)} GPUs {sum(known) / len(known):.0f} %"] if known else []
    shown = " ".join("?" if gpu.percent is None else f"{gpu.percent:.0f} %" for gpu in gpus)
    parts = [f"{'GPU' if len(gpus) == 1 else 'GPUs'} {shown}"] if known else []
    used, most = gpus[0].memory_mib, gpus[0].memory_total_mib
    if len(gpus) == 1 and used is not None and most is not None:
        parts.append(f"{steady_gigabytes(used)} of {most / 1024:.0f} GiB")
    return parts


def fitted(parts: Sequence[str], width: int) -> str:
    """Join the parts that fit into ``width`` columns; the first part is cut off if necessary."""
    line = ""
    for part in filter(None, parts):
        longer = f"{line} · {part}" if line else part
        if len(longer) > width:
            break
        line = longer
    first = next(filter(None, parts), "")
    return line or (f"{first[: width - 1]}…" if first else "")


class StatusLine:
    """Draws the line on a terminal every second. Call ``hide`` before printing anything else, ``show`` afterwards.

    ``clock``: returns seconds, and continues while a laptop sleeps.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.time) -> None:
        self._console, self._clock = console, clock
        self._event: events.Attached | None = None
        self._cell: events.NotebookProgress | None = None
        self._cell_at = 0.0
        self._updated_at = self._sampled_at = 0.0
        self._sampled: str | None = None
        self._trouble = ""
        self._tasks: Sequence[str] = ()
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._abandoned = False  # not a threading.Event: a signal may interrupt the thread that holds its lock
        self._visible = False
        self._drawn = ""
        self._thread: threading.Thread | None = None

    def update(self, event: events.Attached) -> None:
        """Update the session's data."""
        with self._lock:
            self._event, self._updated_at = event, self._clock()
            if event.sampled != self._sampled:
                self._sampled, self._sampled_at = event.sampled, self._updated_at
        self._redraw()

    def update_notebook(self, event: events.NotebookProgress) -> None:
        """Update the progress of a notebook, which is shown first."""
        with self._lock:
            self._cell, self._cell_at = event, self._clock()
        self._redraw()

    def update_tasks(self, parts: Sequence[str]) -> None:
        """Update the progress of a job array's tasks, which is shown first."""
        with self._lock:
            self._tasks = parts
        self._redraw()

    def set_trouble(self, text: str) -> None:
        """Show a problem first; "": it is over."""
        with self._lock:
            self._trouble = text
        self._redraw()

    @property
    def seconds_left(self) -> float | None:
        """The seconds left of the walltime; ``None``: no limit, or not known."""
        if self._event is None or self._event.seconds_left is None:
            return None
        return max(0.0, self._event.seconds_left - (self._clock() - self._updated_at))

    def text(self, width: int) -> str:
        """Return the current text of the line."""
        cell = cell_parts(self._cell, self._clock() - self._cell_at) if self._cell else []
        parts = [self._trouble, *cell, *self._tasks, left_part(self.seconds_left)]
        if self._event is not None and self._sampled and self._clock() - self._sampled_at <= STALE:
            parts += use_parts(self._event)
        return printable(fitted(parts, width)).replace("\n", " ")

    def show(self) -> None:
        """Draw the line, and keep it up to date, unless it is empty."""
        with self._lock:
            if self._visible or self._abandoned or self._over.is_set() or not self.text(79):
                return
            self._drawn = self._styled()
            self._write(f"{self._drawn}\n")
            self._visible = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep_up_to_date, name="status line", daemon=True)
            self._thread.start()

    def hide(self) -> None:
        """Remove the line and the input line, and leave the cursor where the line began."""
        with self._lock:
            if self._visible:
                self._visible = False
                self._write(f"{_UP}{_START}{_ERASE_BELOW}")

    def typed(self) -> None:
        """Redraw in the same place, without the typed text, after a line was typed, which has moved the cursor."""
        with self._lock:
            if self._visible:
                self._write(_UP)
                self.hide()
                self.show()

    def close(self) -> None:
        """Remove the line permanently."""
        self._over.set()
        self.hide()

    def abandon(self) -> None:
        """Write nothing from now on, because the terminal is gone, and do not wait for a write in progress.

        A signal handler may call it at any point of the other methods.
        """
        self._abandoned = True
        self._visible = False

    def _keep_up_to_date(self) -> None:
        while not self._over.wait(1.0 - self._clock() % 1.0) and not self._abandoned:
            self._redraw()

    def _redraw(self) -> None:
        with self._lock:
            if not self._visible:
                return
            styled = self._styled()
            if styled != self._drawn:
                self._drawn = styled
                self._write(f"{_SAVE}{_UP}{_START}{_ERASE_LINE}{styled}{_RESTORE}")

    def _styled(self) -> str:
        from rich.text import Text

        line = Text(self.text(self._console.width - 1), style="dim")
        left = self.seconds_left
        if self._trouble:
            line.stylize("not dim yellow", 0, len(self._trouble))
        if left is not None and left <= SOON and (start := line.plain.find(left_part(left))) >= 0:
            line.stylize(
                "not dim bold red" if left <= SOONER else "not dim yellow", start, start + len(left_part(left))
            )
        with self._console.capture() as drawn:
            self._console.print(line, end="", no_wrap=True, overflow="crop", highlight=False)
        return drawn.get()

    def _write(self, text: str) -> None:
        try:
            self._console.file.write(text)
            self._console.file.flush()
        except (OSError, ValueError):  # the terminal is gone; a signal reports that as well
            self.abandon()


def how_it_ends(started_here: bool, *, interactive: bool) -> str:
    """Return a text on what the keys do while the address is shown."""
    if not interactive:
        return "Ctrl-C ends the session and its job." if started_here else "Ctrl-C detaches; the session goes on."
    if started_here:
        return "ENTER or Ctrl-C ends the session and its job; d and ENTER detaches: it runs on."
    return "ENTER ends the session and its job; Ctrl-C detaches: it runs on."
