"""The settings of the terminal on standard input."""

from __future__ import annotations

import contextlib
import sys


class Terminal:
    """The settings of the terminal on standard input, to be put back: a question without echo may be cut off."""

    def __init__(self) -> None:
        self._before = None
        try:
            import termios
        except ImportError:  # Windows
            return
        with contextlib.suppress(termios.error, OSError, ValueError):
            self._before = termios.tcgetattr(sys.stdin.fileno())

    def restore(self) -> None:
        """Put them back."""
        self.echo(True)

    def echo(self, shown: bool) -> bool:
        """Show what is typed, or not; return whether that could be done."""
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
