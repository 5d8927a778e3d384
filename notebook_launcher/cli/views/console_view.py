"""Prints for people: sentences, and on a terminal a last line that updates in place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from notebook_launcher.cli.views.base import BaseView
from notebook_launcher.cli.views.errors import elapsed
from notebook_launcher.cli.views.folding import print_folded
from notebook_launcher.cli.views.parts import Parts
from notebook_launcher.cli.views.pending_line import WaitingLine
from notebook_launcher.core import events
from notebook_launcher.core.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from notebook_launcher.cli.views.status_line import StatusLine


class ConsoleView(BaseView):
    """Prints sentences; on a terminal the last one updates in place during a wait."""

    def __init__(
        self,
        console: Console,
        *,
        open_browser: bool = False,
        verbose: bool = False,
        notify: bool = False,
        aside: Console | None = None,
    ) -> None:
        self._console = console
        self._aside = aside or console  # for messages that are not results: a program may read the results
        super().__init__(open_browser=open_browser, notify=notify)
        self._parts = Parts(console, self._aside)
        self._verbose = verbose
        self._status: WaitingLine | None = None
        self._last_pending: events.Pending | None = None
        self._asking = False  # a question is on the terminal, and must not be overwritten by a waiting line
        self._status_line: StatusLine | None = None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._close_status_line()
        self._stop_status()
        super().__exit__(kind, error, trace)

    def silence(self) -> None:
        """Show nothing from now on, not even a waiting line."""
        super().silence()
        if self._status_line is not None:
            self._status_line.abandon()
        with contextlib.suppress(OSError):
            self._stop_status()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Write nothing to the terminal while the block runs."""
        self._stop_status()
        self._asking = True
        try:
            yield
        finally:
            self._asking = False
            self._show_status_line()

    @property
    def _has_status_line(self) -> bool:
        return self._in_place and not self._console.is_dumb_terminal and not self._console.legacy_windows

    def _ring(self) -> None:
        if self._console.is_terminal:
            self._console.bell()

    def _terminal_writer(self) -> Callable[[str], None] | None:
        def write(text: str) -> None:
            with contextlib.suppress(OSError, ValueError):
                print(text, end="", file=self._console.file, flush=True)

        return write if self._console.is_terminal else None

    def _open_status_line(self) -> StatusLine:
        from notebook_launcher.cli.views.status_line import StatusLine

        self._status_line = self._status_line or StatusLine(self._console)
        return self._status_line

    def _set_trouble(self, text: str) -> None:
        """Show in the line that updates in place that the network is down; "": it is up again."""
        if self._status_line is not None:
            self._status_line.set_trouble(text)
        elif text:
            self._wait(text)

    def _close_status_line(self) -> None:
        line, self._status_line = self._status_line, None
        if line is not None:
            line.close()

    def _show_status_line(self) -> None:
        if self._status_line is not None and self._status is None and not self._asking and not self._silent:
            self._status_line.show()

    def _line_typed(self) -> None:
        waiting = self._status  # read once: this runs on the keyboard's thread
        if waiting is not None:
            waiting.typed()
        elif self._status_line is not None:
            self._status_line.typed()

    def _say(self, text: str, style: str = "", *, whole: bool = False, aside: bool = False) -> None:
        """Print a sentence, folded between words. ``whole``: do not fold it, because the user may copy from it.

        ``aside``: it is not a result, and goes to standard error if a program may be reading the results.
        """
        console = self._aside if aside else self._console
        text = printable(text)
        self._stop_status()
        stamp = f"[{elapsed():6.2f} s] " if self._verbose else ""
        if whole:
            console.print(stamp + text, style=style, soft_wrap=True, highlight=False, markup=False)
        else:
            print_folded(console, stamp + text, style)
        self._show_status_line()

    def _wait(self, text: str) -> None:
        self._last_pending = None
        if self._in_place:
            self._update(lambda: [text])
        elif not self._asking:
            self._say(capital(text), aside=True)

    @property
    def _in_place(self) -> bool:
        return self._console.is_terminal and not self._verbose

    def _update(self, parts: Callable[[], list[str]]) -> None:
        if self._asking:
            return
        if self._status is None:
            self._stop_status()
            self._status = WaitingLine(self._console, parts)
        self._status.parts = parts

    def _stop_status(self, *, keep_bar: bool = False) -> None:
        self._parts.stop(keep_bar=keep_bar)
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
        if self._status_line is not None:
            self._status_line.hide()


def capital(text: str) -> str:
    """Return the text with its first letter capitalised."""
    return text[0].upper() + text[1:]
