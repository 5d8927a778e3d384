"""A way to one compute node, made on a thread while other things happen; what becomes of it arrives in the inbox."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from notebook_launcher.hosts.base import Link
from notebook_launcher.tunnel.forwarding import Endpoint, check_jupyter


@dataclass(frozen=True)
class Opened:
    """There is a link to the node."""

    way: Way


@dataclass(frozen=True)
class Reached:
    """Jupyter answers through the tunnel."""

    way: Way
    local_port: int


@dataclass(frozen=True)
class Failed:
    """The node, or Jupyter on it, is not reached this way."""

    way: Way
    error: Exception


class Way:
    """A way to one node. ``find`` makes it, after a ``pause`` in seconds, and returns which kind it is and the link."""

    def __init__(self, inbox: queue.SimpleQueue[object], find: Callable[[], tuple[str, Link]], pause: float) -> None:
        self._inbox, self._find = inbox, find
        self._over = threading.Event()
        self.link: Link | None = None
        self.stream = ""
        threading.Thread(target=self._open, args=(pause,), daemon=True).start()

    def _open(self, pause: float) -> None:
        if self._over.wait(pause):
            return
        try:
            self.stream, self.link = self._find()
        except Exception as error:
            self._inbox.put(Failed(self, error))
            return
        self._inbox.put(Opened(self))
        if self._over.is_set():
            self.link.close()

    def use(self, local_port: int, endpoint: Endpoint, token: str) -> None:
        """Ask Jupyter through the tunnel until it answers."""

        def reach() -> None:
            try:
                check_jupyter(local_port, endpoint, token)
            except Exception as error:
                self._inbox.put(Failed(self, error))
            else:
                self._inbox.put(Reached(self, local_port))

        threading.Thread(target=reach, daemon=True).start()

    def close(self) -> None:
        """Close it; one that is still being made is closed as soon as it stands."""
        self._over.set()
        if self.link is not None:
            self.link.close()
