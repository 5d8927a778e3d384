"""The connection to one compute node, made on a thread of its own; what becomes of it arrives in the inbox."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from notebook_launcher.hosts.base import Route
from notebook_launcher.tunnel.forwarding import Endpoint, check_jupyter


@dataclass(frozen=True)
class RouteOpened:
    """There is a route to the node."""

    by: NodeConnection


@dataclass(frozen=True)
class JupyterAnswered:
    """Jupyter answers through the tunnel."""

    by: NodeConnection
    local_port: int


@dataclass(frozen=True)
class NodeUnconnected:
    """The node, or Jupyter on it, was not reached."""

    by: NodeConnection
    error: Exception


class NodeConnection:
    """A connection to one node. ``find`` opens its route, after a ``pause`` in seconds, and returns its name and it."""

    def __init__(self, inbox: queue.SimpleQueue[object], find: Callable[[], tuple[str, Route]], pause: float) -> None:
        self._inbox, self._find = inbox, find
        self._over = threading.Event()
        self.route: Route | None = None
        self.route_name = ""
        threading.Thread(target=self._open, args=(pause,), daemon=True).start()

    def _open(self, pause: float) -> None:
        if self._over.wait(pause):
            return
        try:
            self.route_name, self.route = self._find()
        except Exception as error:
            self._inbox.put(NodeUnconnected(self, error))
            return
        self._inbox.put(RouteOpened(self))
        if self._over.is_set():
            self.route.close()

    def use(self, local_port: int, endpoint: Endpoint, token: str) -> None:
        """Ask Jupyter through the tunnel until it answers."""

        def reach() -> None:
            try:
                check_jupyter(local_port, endpoint, token)
            except Exception as error:
                self._inbox.put(NodeUnconnected(self, error))
            else:
                self._inbox.put(JupyterAnswered(self, local_port))

        threading.Thread(target=reach, daemon=True).start()

    def close(self) -> None:
        """Close it; one that is still being made is closed as soon as it stands."""
        self._over.set()
        if self.route is not None:
            self.route.close()
