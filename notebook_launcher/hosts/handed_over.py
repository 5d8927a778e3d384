"""A connection of this machine that another process carries to the far end of a route."""

from __future__ import annotations

from abc import ABC, abstractmethod


class HandedOver(ABC):
    """A local connection that another process carries; it has a socket of its own for it."""

    @abstractmethod
    def wait(self) -> None:
        """Wait until it has ended. Raises ``OSError`` if it broke before its end."""


class HandOverFailed(OSError):
    """The other process was given a connection, and did not say whether it carries it: nobody else may use it."""
