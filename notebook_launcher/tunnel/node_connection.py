"""The connection to one compute node, opened on its own thread; the outcome arrives in the inbox."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from notebook_launcher.core.frozen import Frozen
from notebook_launcher.hosts.base import Route
from notebook_launcher.tunnel.forwarding import Endpoint, check_jupyter

SLOW_AFTER = 4.0  # seconds after which the user is told which route is being tried


class RouteOpened(Frozen):
    """The route to the node is open."""

    by: NodeConnection


class RouteSlow(Frozen):
    """A route to the node is still being tried: ``name``."""

    by: NodeConnection
    name: str


class JupyterAnswered(Frozen):
    """Jupyter answers through the tunnel."""

    by: NodeConnection
    local_port: int


class NodeUnconnected(Frozen):
    """The node, or Jupyter on it, could not be reached."""

    by: NodeConnection
    error: Exception


class NodeConnection:
    """A connection to one node. ``find`` opens a route, after ``pause`` seconds, and returns its name and the route.

    ``find`` calls its argument with the name of each route that it tries, with "" for an attempt that needs no note.
    """

    def __init__(
        self,
        inbox: queue.SimpleQueue[object],
        find: Callable[[Callable[[str], None]], tuple[str, Route]],
        pause: float,
    ) -> None:
        self._inbox, self._find = inbox, find
        self._over = threading.Event()
        self._patience: threading.Timer | None = None
        self.route: Route | None = None
        self.route_name = ""
        threading.Thread(target=self._open, args=(pause,), daemon=True).start()

    def _open(self, pause: float) -> None:
        if self._over.wait(pause):
            return
        try:
            self.route_name, self.route = self._find(self._try)
        except Exception as error:
            self._inbox.put(NodeUnconnected(self, error))
            return
        finally:
            self._end_patience()
        self._inbox.put(RouteOpened(self))
        if self._over.is_set():
            self.route.close()

    def _try(self, name: str) -> None:
        self._end_patience()
        if not name:
            return
        self._patience = threading.Timer(SLOW_AFTER, self._inbox.put, [RouteSlow(self, name)])
        self._patience.daemon = True
        self._patience.start()

    def _end_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()

    def use(self, local_port: int, endpoint: Endpoint, token: str) -> None:
        """Query Jupyter through the tunnel until it answers."""

        def wait_for_answer() -> None:
            try:
                check_jupyter(local_port, endpoint, token)
            except Exception as error:
                self._inbox.put(NodeUnconnected(self, error))
            else:
                self._inbox.put(JupyterAnswered(self, local_port))

        threading.Thread(target=wait_for_answer, daemon=True).start()

    def close(self) -> None:
        """Close the connection; if it is still being opened, it is closed afterwards."""
        self._over.set()
        if self.route is not None:
            self.route.close()
