"""The terminal: its settings, and the stream on which the user sees a question."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TextIO

_TERMINAL = "CONOUT$" if sys.platform == "win32" else "/dev/tty"


class Terminal:
    """The settings of the terminal on standard input, for restoring them if a question without echo is interrupted."""

    def __init__(self) -> None:
        self._before = None
        try:
            import termios
        except ImportError:  # Windows
            return
        with contextlib.suppress(termios.error, OSError, ValueError):
            self._before = termios.tcgetattr(sys.stdin.fileno())

    def restore(self) -> None:
        """Restore the settings."""
        self.echo(True)

    def echo(self, shown: bool) -> bool:
        """Switch echoing of input on or off; return whether that was possible."""
        if self._before is None:
            return False
        import termios

        settings = list(self._before)
        if not shown:
            settings[3] &= ~termios.ECHO
        with contextlib.suppress(termios.error, OSError, ValueError):
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, settings)
            return True
        return False


@contextlib.contextmanager
def question_output(usual: TextIO) -> Iterator[TextIO]:
    """Yield the stream on which the user sees a question: the usual one, or the terminal if that one is redirected.

    Raises ``OSError`` if the terminal cannot be written to.
    """
    if usual.isatty():
        yield usual
        return
    with os.fdopen(_open_terminal(), "w", encoding=usual.encoding or "utf-8", errors="replace") as terminal:
        yield terminal


def _open_terminal() -> int:
    with contextlib.suppress(OSError):
        # O_NOCTTY: it must not become the controlling terminal of a process that has none
        return os.open(_TERMINAL, os.O_WRONLY | getattr(os, "O_NOCTTY", 0))
    return os.dup(sys.stdin.fileno())  # standard input is a terminal, which is open for writing as well
