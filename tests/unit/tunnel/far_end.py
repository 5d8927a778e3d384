"""The far end of a tunnel, and routes that lead there: over plain sockets, or over SSH."""

from __future__ import annotations

import contextlib
import hashlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from notebook_launcher.hosts.base import ByteStream, Route
from notebook_launcher.hosts.delegated_connection import DelegatedConnection
from notebook_launcher.hosts.openssh.host import OpenSshHost
from notebook_launcher.hosts.paramiko.host import ParamikoHost
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.tunnel.forwarding import Tunnel
from tests.ssh_server import Server, User, end_connections

PATIENCE = 90.0  # seconds in which anything that should happen has happened; only a failing test waits so long

MIB = 1 << 20


class Far:
    """A server on the node: what it does with a connection is the test's."""

    def __init__(self, act: Callable[[socket.socket], None]) -> None:
        self._act = act
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.address = self._listener.getsockname()
        self.port: int = self.address[1]
        self.connections = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._play, args=(connection,), daemon=True).start()

    def _play(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, threading.BrokenBarrierError):  # the test fails for itself
            self._act(connection)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # wakes who accepts
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def far() -> Iterator[Callable[[Callable[[socket.socket], None]], Far]]:
    started: list[Far] = []

    def start(act: Callable[[socket.socket], None]) -> Far:
        started.append(Far(act))
        return started[-1]

    yield start
    for one in started:
        one.close()


StartFar = Callable[[Callable[[socket.socket], None]], Far]


def echoes(connection: socket.socket) -> None:
    while data := connection.recv(65536):
        connection.sendall(data)


def blocks(mebibytes: int, seed: int = 1) -> Iterator[bytes]:
    base = random.Random(seed).randbytes(MIB - 8)
    for number in range(mebibytes):
        yield number.to_bytes(8, "big") + base


def checksum(pieces: Iterator[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def received(connection: socket.socket) -> Iterator[bytes]:
    while data := connection.recv(MIB):
        yield data


def resets(connection: socket.socket) -> None:
    """Close a connection as a program that has crashed."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


class SocketStream(socket.socket):
    """One connection over a ``SocketRoute``; when that is broken it does not end, it breaks."""

    def __init__(self, link: SocketRoute, connection: socket.socket) -> None:
        super().__init__(fileno=connection.detach())
        self.settimeout(None)
        self._link = link

    def recv_into(self, *arguments: Any) -> int:  # type: ignore[override]
        count = super().recv_into(*arguments)
        if not count and self._link.broken:
            raise ConnectionResetError("the link broke")
        return count


class SocketRoute(Route):
    """A way on which each connection is a socket."""

    def __init__(self, kind: type[SocketStream] = SocketStream) -> None:
        self.broken = self.closed = False
        self.streams: list[SocketStream] = []
        self._kind = kind

    def open(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        stream = self._kind(self, socket.create_connection(address, timeout))
        self.streams.append(stream)
        return stream

    @property
    def alive(self) -> bool:
        return not self.broken and not self.closed

    def breaks(self) -> None:
        self.broken = True
        for stream in self.streams:
            with contextlib.suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.closed = True
        self.breaks()


class SshRoute(Route):
    """A connection of its own to the sshd, as a way."""

    def __init__(self, server: Server) -> None:
        self.host = ParamikoHost.open(server.destination(), Credentials(User()))
        self._link = self.host.open_route()

    def open(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        return self._link.open(address, timeout)

    @property
    def alive(self) -> bool:
        return self._link.alive

    @property
    def channels(self) -> int:
        """How many of its connections are not forgotten yet."""
        return len(self.host.transport._channels)  # type: ignore[attr-defined]

    def breaks(self) -> None:
        """Cut it where it is a socket, as a network does."""
        self.host.transport.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.host.close()


def _is_ssh(process: psutil.Process) -> bool:
    try:
        return bool(process.name() == "ssh")
    except psutil.NoSuchProcess:  # the engine starts others, which end soon
        return False


class OpenSshRoute(Route):
    """The same by the system's ``ssh``."""

    def __init__(self, server: Server) -> None:
        self._server, self._others = server, server.connections()
        running = set(psutil.Process().children(recursive=True))
        self.host = OpenSshHost.open(server.destination(), Credentials(User()))
        started = set(psutil.Process().children(recursive=True)) - running
        self._ssh = next(process for process in started if _is_ssh(process))
        self._link = self.host.open_route()

    def open(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        return self._link.open(address, timeout)

    def delegate(
        self, local: socket.socket, address: tuple[str, int], timeout: float = 20.0
    ) -> DelegatedConnection | None:
        return self._link.delegate(local, address, timeout)

    @property
    def alive(self) -> bool:
        return self._link.alive

    @property
    def channels(self) -> int:
        """How many files ``ssh`` has open: three for each of its connections."""
        return int(self._ssh.num_fds())

    def breaks(self) -> None:
        """End it at the server, whose socket ``ssh`` alone has."""
        end_connections(self._server, self._others)

    def close(self) -> None:
        self.host.close()


AnyRoute = SocketRoute | SshRoute | OpenSshRoute
MakeLink = Callable[[], AnyRoute]


@pytest.fixture(params=["sockets", "paramiko", "openssh"])
def make_route(request: pytest.FixtureRequest) -> Iterator[MakeLink]:
    """Each kind of link in turn."""
    made: list[Route] = []

    def make() -> AnyRoute:
        if request.param == "sockets":
            link: AnyRoute = SocketRoute()
        else:
            link = {"paramiko": SshRoute, "openssh": OpenSshRoute}[request.param](request.getfixturevalue("server"))
        made.append(link)
        return link

    yield make
    for link in made:
        link.close()


@pytest.fixture
def ours() -> Iterator[Tunnel]:
    tunnel = Tunnel()
    yield tunnel
    tunnel.close()


def connects(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), PATIENCE)


def asks(port: int, question: bytes = b"hello") -> bytes:
    """Send something to a far end that echoes, and return the answer."""
    with connects(port) as client:
        client.sendall(question)
        client.shutdown(socket.SHUT_WR)
        return b"".join(received(client))


def gives_when_all_is_said(connection: socket.socket) -> None:
    """CommandResult only after the question's end, as HTTP/1.0 and many small protocols do."""
    question = b"".join(received(connection))
    for piece in blocks(8, len(question)):
        connection.sendall(piece)


def gets_all_after_a_half_close(port: int) -> None:
    with connects(port) as client:
        client.sendall(b"a question")
        client.shutdown(socket.SHUT_WR)
        assert checksum(received(client)) == checksum(blocks(8, len(b"a question")))


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def settled(counts: Callable[[], tuple[int, ...]]) -> tuple[int, ...]:
    """Return what is counted once it does not change any more."""
    before: tuple[int, ...] = ()
    while (now := counts()) != before:
        before = now
        time.sleep(1)
    return now


def is_reset(client: socket.socket) -> bool:
    """Read to the end, and tell whether it was no clean one."""
    try:
        for _ in received(client):
            pass
    except ConnectionResetError:
        return True
    return False
