"""Prompts that count how often the user was asked."""

from __future__ import annotations

from collections.abc import Callable

from notebook_launcher.hosts.base import Prompts


class CountedPrompts:
    """Prompts that count how often the user was asked for a secret.

    ``unwanted``: whether the answer to a new prompt is no longer needed.
    """

    def __init__(self, prompts: Prompts) -> None:
        self._prompts = prompts
        self.count = 0
        self.unwanted: Callable[[], bool] = lambda: False

    def secret(self, text: str, *, echo: bool = False) -> str | None:
        """Ask, unless the answer is no longer needed."""
        if self.unwanted():
            return None
        self.count += 1
        return self._prompts.secret(text, echo=echo)

    @property
    def asks(self) -> bool:
        """Whether there is a terminal to ask on."""
        return self._prompts.asks

    def confirm(self, text: str) -> bool | None:
        """Ask."""
        return self._prompts.confirm(text)

    def dismiss(self) -> None:
        """Close an open prompt, if any, without an answer."""
        self._prompts.dismiss()
