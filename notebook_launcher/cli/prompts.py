"""Questions to the user: secrets without echo, yes or no; only where there is a terminal to ask on."""

from __future__ import annotations

import sys

from notebook_launcher.cli.views import BaseView


class TerminalPrompts:
    """Asks on the terminal, with the waiting line out of the way meanwhile."""

    def __init__(self, view: BaseView, *, interactive: bool) -> None:
        self._view = view
        self._interactive = interactive and sys.stdin.isatty()

    def secret(self, text: str) -> str | None:
        """Ask for a secret; ``None`` where there is no terminal."""
        if not self._interactive:
            return None
        import getpass

        with self._view.paused():
            return getpass.getpass(text)

    def confirm(self, text: str) -> bool:
        """Ask for yes or no; the whole word, because the question is about trust."""
        if not self._interactive:
            return False
        with self._view.paused():
            return input(f"{text} [yes/no] ").strip().lower() == "yes"
