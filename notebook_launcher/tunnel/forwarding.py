"""The tunnel: local ports that lead to a session's compute node, and to Jupyter on its 127.0.0.1.

A port stays open while the launcher is attached, even if the connection behind it breaks: an open browser tab works
again after reconnecting, and no other program can take the port meanwhile and receive its data.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from notebook_launcher.core.errors import JupyterSilent, LauncherError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.hosts.base import ByteStream, Route
from notebook_launcher.hosts.delegated_connection import DelegatedConnection, DelegationFailed

if TYPE_CHECKING:
    from http.client import HTTPResponse

ROUTE_TIMEOUT = 600.0  # seconds that a connection waits for a route to the node; browsers give up after 240
ANSWER_WITHIN = 15.0  # seconds for a whole response of Jupyter
SILENT_FOR = 5.0  # seconds without a byte of a response
MOST_BYTES = 256 * 1024  # of a response of Jupyter
ENGINES = ("dask", "ray")  # the possible kinds of workers
LOOPBACK, LOOPBACK6 = "127.0.0.1", "::1"


class Workers(Frozen):
    """The Dask or Ray workers that the job has started, as in ``endpoint.json``; see the event ``workers_ready``."""

    engine: str
    scheduler: str
    nodes: int
    workers: int
    threads: int
    memory_mib: int
    dashboard: int

    @classmethod
    def from_file(cls, endpoint: Mapping[str, object]) -> Workers | None:
        """Return the workers that ``endpoint.json`` describes, ``None`` if there are none or the values are invalid."""
        engine = next((name for name in ENGINES if name in endpoint), "")
        data = endpoint.get(engine)
        if not isinstance(data, Mapping) or not isinstance(scheduler := data.get("scheduler"), str):
            return None
        numbers = [data.get(name) for name in ("nodes", "workers", "threads", "memory_mib", "dashboard")]
        if not all(type(number) is int and 0 <= number < 2**40 for number in numbers):
            return None
        nodes, workers, threads, memory, port = (int(number) for number in numbers if isinstance(number, int))
        return cls(engine, scheduler[:200], nodes, workers, threads, memory, port if port < 65536 else 0)


class Endpoint(Frozen):
    """Where Jupyter listens: an address and port as seen from the node, and the path prefix of its URLs."""

    port: int
    base_url: str = "/"
    secure: bool = False
    address: str = "127.0.0.1"
    workers: Workers | None = None
    has_apps: bool = False  # whether there are programs beside Jupyter (``--app``)

    @classmethod
    def from_file(cls, data: Mapping[str, object]) -> Endpoint:
        """Parse ``endpoint.json``. Raises ``JupyterSilent`` if it has no port."""
        port = data.get("port")
        if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536:
            raise JupyterSilent("The port file of the session holds no port.", why=json.dumps(dict(data))[:200])
        address, base_url = data.get("address"), data.get("base_url")
        return cls(
            port,
            # any other address could lead the browser, and the token, to another machine
            base_url if isinstance(base_url, str) and base_url.startswith("/") else "/",
            data.get("secure") is True,
            address if isinstance(address, str) and address else "127.0.0.1",
            Workers.from_file(data),
            data.get("apps") is True,
        )

    @property
    def is_private(self) -> bool:
        """Whether only the node itself can reach it."""
        return self.address == "localhost" or self.address.startswith("127.") or ":" in self.address

    def url(self, local_port: int, token: str, place: str = "") -> str:
        """Return the address for the browser. ``place``: a folder or notebook to open, below JupyterLab's folder."""
        scheme, tree = "https" if self.secure else "http", f"/tree/{quote(place)}" if place else ""
        return f"{scheme}://127.0.0.1:{local_port}{self.base_url}lab{tree}?token={quote(token, safe='')}"


class PortOwner(Enum):
    """Whose program listens on a port of the node."""

    YOURS = "yours"
    OTHERS = "others"
    NOBODY = "nobody"
    UNKNOWN = "unknown"


class PortChecked(Frozen):
    """Whose program listens on a port of ``node``; ``requested``: the local port to forward it to."""

    node: str
    port: int
    requested: int
    owner: PortOwner


def read_port(word: str) -> tuple[int, int] | None:
    """Parse ``6006`` or ``6006:16006``, a port of the node and the local one (0: the same); else ``None``."""
    numbers = [int(part) if part.isascii() and part.isdecimal() and len(part) < 6 else 0 for part in word.split(":")]
    if len(numbers) > 2 or not all(0 < number < 65536 for number in numbers):
        return None
    return numbers[0], numbers[1] if len(numbers) == 2 else 0


def port_error(port: int) -> str:
    """Return why a local port cannot be opened."""
    with contextlib.suppress(OSError), socket.socket() as attempt:
        try:
            attempt.bind(("127.0.0.1", port))
        except PermissionError:
            return f"Port {port} of this machine is kept for the system, as those below 1024 are."
    return f"Port {port} of this machine is taken."


class Tunnel:
    """The ports of one session. ``run_over`` sets their route to the node, repeatedly while the session lives.

    Connections that arrive while there is no route wait for one, at most ``ROUTE_TIMEOUT`` seconds.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._route: Route | None = None
        self._servers: dict[object, list[Any]] = {}  # by name; one for each address on which its port is open
        self.address = "127.0.0.1"  # of the node, to which forwarded ports lead
        self._closed = False

    def run_over(self, route: Route) -> None:
        """Use this route from now on; the tunnel owns it, and closes the old route with its connections."""
        with self._changed:
            old, self._route = self._route, route
            closed = self._closed
            self._changed.notify_all()
        for one in (old, route if closed else None):
            if one is not None:
                one.close()

    def jupyter(self, endpoint: Endpoint, preferred: int = 0) -> int:
        """Return the local port that leads to Jupyter; it stays the same if Jupyter moves to another node or port.

        ``preferred``: the port to use if it is free; 0: any.
        """
        self.address = endpoint.address
        return self._open("jupyter", (endpoint.address, endpoint.port), preferred)

    def forward(self, port: int, local: int = 0) -> int:
        """Return a local port that leads to a port of the node, on the address where Jupyter listens.

        It is ``local`` or, if that is 0, the same port if it is free.
        """
        return self._open((port, local or port), (self.address, port), local or port)

    def app(self, name: str, port: int) -> int:
        """Return the local port that leads to a program's port of the node; it stays the same if the program moves."""
        return self._open(("app", name), (self.address, port), port)

    def addresses(self, local_port: int) -> tuple[str, str]:
        """Return two addresses of a forwarded port for the browser: one with a host name of its own, and a plain one.

        Browsers send the cookies of a host name to all of its ports. With a host name of its own, a program gets
        neither JupyterLab's cookies, which belong to 127.0.0.1, nor those of other forwarded programs. Not every
        browser and program accepts such a name.
        """
        return f"http://port-{local_port}.localhost:{local_port}", f"http://localhost:{local_port}"

    def _open(self, name: object, target: tuple[str, int], preferred: int = 0) -> int:
        servers = self._servers.get(name)
        if servers is None:
            # browsers may try ::1 for localhost first, where another user of this machine could be listening
            hosts = (LOOPBACK,) if name == "jupyter" else (LOOPBACK, LOOPBACK6)
            from notebook_launcher.tunnel.local_ports import open_port  # imported late, because it is slow to load

            servers = self._servers[name] = open_port(self.connect, hosts, preferred)
            for server in servers:
                server.name = name
                threading.Thread(target=server.serve_forever, args=(0.1,), name="tunnel", daemon=True).start()
        with self._changed:
            for server in servers:
                server.target = target
            self._changed.notify_all()
        return int(servers[0].local_port)

    @property
    def jupyter_port(self) -> int:
        """The local port that leads to Jupyter; 0: none is open."""
        servers = self._servers.get("jupyter")
        return int(servers[0].local_port) if servers else 0

    @property
    def alive(self) -> bool:
        """Whether the tunnel works now, as far as known."""
        route = self._route
        return route is not None and route.alive

    def pause_forwarding(self) -> None:
        """Make new connections wait, because Jupyter moves to another node, until ``jupyter`` or ``app`` is called."""
        with self._changed:
            for name, servers in self._servers.items():
                if name == "jupyter" or (isinstance(name, tuple) and name[0] == "app"):
                    for server in servers:
                        server.target = None

    def connect(
        self,
        local: socket.socket,
        target: Callable[[], tuple[str, int] | None],
        wanted: Callable[[], bool] = lambda: True,
    ) -> ByteStream | DelegatedConnection:
        """Open a connection to the node's ``target``, as soon as there is a route and the target is known.

        ``local``: the local connection that it is for, which another process may carry (``Route.delegate``).
        ``wanted``: whether it is still needed. Raises ``OSError``.
        """
        deadline = time.monotonic() + ROUTE_TIMEOUT
        while time.monotonic() < deadline:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or None not in (self._route, target()), 1.0)
                route, address = self._route, target()
            if self._closed:
                break
            # without the lock: a silent route may take seconds to answer, and another one may be set meanwhile
            if route is None or address is None or not route.alive:
                if not wanted():
                    break
                if route is not None and address is not None:
                    self._wait_for_another(route, 1.0)
                continue
            try:
                return route.delegate(local, address) or route.open(address)
            except (ConnectionRefusedError, PermissionError, DelegationFailed):  # refused, or delegated already
                raise
            except OSError:  # the route has just broken, or is silent; it may soon be replaced
                self._wait_for_another(route, 0.5)
        raise TimeoutError("there is no route to the node")

    def _wait_for_another(self, route: Route | None, seconds: float) -> None:
        """Wait until there is a route other than this one, for at most so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._route is not route, seconds)

    def close(self) -> None:
        """Close every port and connection; may be called twice."""
        with self._changed:
            self._closed = True
            route, self._route = self._route, None
            self._changed.notify_all()
        while self._servers:
            _, servers = self._servers.popitem()
            for server in servers:
                with contextlib.suppress(OSError):
                    server.shutdown()
                    server.server_close()
        if route is not None:
            route.close()


class SameMachine(Tunnel):
    """The tunnel of a job on this machine: its ports are local already, unless another number is requested."""

    def _open(self, name: object, target: tuple[str, int], preferred: int = 0) -> int:
        if name == "jupyter" or preferred in (0, target[1]):
            return target[1]
        return super()._open(name, target, preferred)

    def addresses(self, local_port: int) -> tuple[str, str]:
        """Return the addresses of a port; if we did not open it, no name, which may lead to another user's ``::1``."""
        if any(server.local_port == local_port for servers in self._servers.values() for server in servers):
            return super().addresses(local_port)
        return f"http://{LOOPBACK}:{local_port}", ""


def check_jupyter(local_port: int, endpoint: Endpoint, token: str, patience: float = 20.0) -> None:
    """Query Jupyter's status through the tunnel until it answers, for at most ``patience`` seconds.

    Raises ``JupyterSilent`` if it does not, or rejects our token.
    """
    import http.client

    deadline = time.monotonic() + patience
    pause = 0.01
    while True:
        try:
            with jupyter_answer(local_port, endpoint, token, "api/status") as answer:
                status = answer.status
        except (OSError, http.client.HTTPException) as error:
            problem: LauncherError = JupyterSilent(
                "JupyterLab runs, but does not answer through the tunnel.", why=repr(error)
            )
        else:
            if status == 200:
                return
            problem = JupyterSilent(
                f"What listens on the session's port answers {status} and not as our JupyterLab would.",
                hint="another program may have taken the port; start again",
            )
            if status in (401, 403):
                raise problem
        if time.monotonic() > deadline:
            raise problem
        time.sleep(pause)  # Jupyter writes its port file about 10 ms before it answers
        pause = min(2 * pause, 0.5)


def port_owner(local_port: int, endpoint: Endpoint, token: str, port: int) -> PortOwner:
    """Return whose program listens on a port of the node, as Jupyter there reports it: every user there can see that.

    ``UNKNOWN`` if Jupyter does not answer, or does not know: in an older session, or on a system other than Linux.
    """
    import http.client

    try:
        with jupyter_answer(local_port, endpoint, token, f"api/notebook-launcher/ports/{port}") as answer:
            found = json.loads(answer.read(MOST_BYTES)) if answer.status == 200 else None
        return PortOwner(found["owner"]) if isinstance(found, dict) else PortOwner.UNKNOWN
    except (OSError, http.client.HTTPException, ValueError, KeyError, RecursionError):
        return PortOwner.UNKNOWN


@contextlib.contextmanager
def jupyter_answer(
    port: int, endpoint: Endpoint, token: str, path: str, timeout: float = ANSWER_WITHIN, body: bytes | None = None
) -> Iterator[HTTPResponse]:
    """Yield Jupyter's response. ``timeout``: seconds for all of it, of which at most 5 without a byte.

    ``body``: sent with POST; without one, the request is a GET. Raises ``OSError`` or ``HTTPException``, also after the
    response was used, if it was cut off.
    """
    import http.client

    connection = http.client.HTTPConnection(LOOPBACK, port)
    plain = socket.create_connection((LOOPBACK, port), min(timeout, SILENT_FOR))
    with contextlib.closing(plain), _closed_after(plain, timeout), contextlib.closing(connection):
        connection.sock = _secured(plain) if endpoint.secure else plain
        method, headers = "GET" if body is None else "POST", {"Authorization": f"token {token}"}
        connection.request(method, f"{endpoint.base_url}{path}", body, headers)
        yield connection.getresponse()


def _secured(plain: socket.socket) -> socket.socket:
    import ssl

    # the certificate is for the node's public name, and the tunnel is protected by SSH
    return ssl._create_unverified_context().wrap_socket(plain)  # noqa: S323


@contextlib.contextmanager
def _closed_after(connection: socket.socket, seconds: float) -> Iterator[None]:
    """Cut a connection off after so many seconds, because its own timeout begins anew with each byte.

    Raises ``TimeoutError`` at the end of the block if the connection was cut off.
    """
    cut_off = threading.Event()
    with connection.dup() as same:  # a TLS connection takes over the other descriptor

        def cut() -> None:
            cut_off.set()
            with contextlib.suppress(OSError):  # the far end has closed it already
                same.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(seconds, cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
    if cut_off.is_set():
        raise TimeoutError(f"there is no whole answer after {seconds:.0f} s")
