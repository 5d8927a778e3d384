"""Prompts that count what was asked."""

from __future__ import annotations

from collections.abc import Callable

from notebook_launcher.hosts.base import Prompts


class CountedPrompts:
    """Prompts that know how often somebody was asked for a secret.

    ``unwanted``: whether a question that comes now is one that nobody needs an answer to any more.
    """

    def __init__(self, prompts: Prompts) -> None:
        self._prompts = prompts
        self.count = 0
        self.unwanted: Callable[[], bool] = lambda: False

    def secret(self, text: str, *, echo: bool = False) -> str | None:
        """Pass the question on, unless it comes too late."""
        if self.unwanted():
            return None
        self.count += 1
        return self._prompts.secret(text, echo=echo)

    @property
    def asks(self) -> bool:
        """Whether there is somebody to ask."""
        return self._prompts.asks

    def confirm(self, text: str) -> bool | None:
        """Pass the question on."""
        return self._prompts.confirm(text)

    def dismiss(self) -> None:
        """End the question that stands, if any, without an answer."""
        self._prompts.dismiss()
