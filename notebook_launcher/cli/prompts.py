"""Asks for secrets, lines, and yes or no on the terminal, if there is one."""

from __future__ import annotations

import sys
import threading

from notebook_launcher.cli.views.base import BaseView
from notebook_launcher.cli.views.terminal import question_output
from notebook_launcher.core.text import printable

_ANSWERS = {"yes": True, "y": True, "no": False, "n": False}
_ATTEMPTS = 3


class TerminalPrompts:
    """Asks on the terminal; the status line is hidden meanwhile.

    While the view reads the keyboard, it also reads the answer: two readers would take lines from each other. Questions
    go to the terminal even if standard output or standard error is redirected.
    """

    def __init__(self, view: BaseView, *, interactive: bool) -> None:
        self._view = view
        self._interactive = interactive and sys.stdin.isatty()
        # If several threads asked at once, an answer could go to the wrong prompt, and the next line would be taken for
        # a command to the session.
        self._one_at_a_time = threading.Lock()

    @property
    def asks(self) -> bool:
        """Whether there is a terminal."""
        return self._interactive

    def secret(self, text: str, *, echo: bool = False) -> str | None:
        """Ask for a secret; ``None`` without a terminal or an answer. ``echo``: show it while it is typed."""
        if not self._interactive:
            return None
        import getpass

        with self._one_at_a_time, self._view.paused():
            if echo:
                return self._line(printable(text))
            if self._view.listening:
                return self._view.next_line(text, echo=False)
            try:
                return getpass.getpass(printable(text))
            except EOFError:
                return None

    def line(self, text: str) -> str | None:
        """Ask for a line, and return it stripped; ``None`` without a terminal or an answer."""
        answer = self.secret(text, echo=True)
        if answer is None and self._interactive:
            sys.stderr.write("\n")  # Ctrl-D leaves the cursor after the prompt
        return None if answer is None else answer.strip()

    def dismiss(self) -> None:
        """Close an open prompt, if any, without an answer."""
        self._view.dismiss()

    def confirm(self, text: str) -> bool | None:
        """Ask for yes or no (a letter is enough); ``None`` without a terminal, or after three other answers."""
        if not self._interactive:
            return None
        question = f"{printable(text)} [yes/no] "
        with self._one_at_a_time, self._view.paused():
            for _ in range(_ATTEMPTS):
                answer = self._line(question)
                if answer is None:
                    break
                if answer.strip().lower() in _ANSWERS:
                    return _ANSWERS[answer.strip().lower()]
                question = "Please type yes or no, and ENTER: "
        return None

    def _line(self, question: str) -> str | None:
        if self._view.listening:
            return self._view.next_line(question, echo=True)
        try:
            if sys.stdout.isatty() and sys.stderr.isatty():  # it asks on either
                return input(question)
            with question_output(sys.stderr) as output:
                output.write(question)
                output.flush()
                return input()
        except (EOFError, OSError):
            return None
