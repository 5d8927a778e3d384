"""A connection of this machine that another process carries to the far end of a route."""

from __future__ import annotations

from abc import ABC, abstractmethod


class DelegatedConnection(ABC):
    """A local connection that another process carries, which has its own descriptor of the socket."""

    @abstractmethod
    def wait(self) -> None:
        """Wait until it has ended. Raises ``OSError`` if it broke before its end."""


class DelegationFailed(OSError):
    """The other process got a connection but did not confirm that it carries it, so nobody else may use it."""
