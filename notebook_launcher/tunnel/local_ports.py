"""The listening ports of a tunnel: sshtunnel's servers with their defects fixed.

Imported where a port is opened, and not before: sshtunnel takes its time to load.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sshtunnel

from notebook_launcher.core import local_sockets
from notebook_launcher.core.errors import NodeUnreachable
from notebook_launcher.hosts.base import ByteStream, PassesOn
from notebook_launcher.hosts.delegated_connection import DelegatedConnection

CHUNK = 256 * 1024  # bytes copied at once
ATTEMPTS = 20  # to find a number that is free on both loopback addresses
NO_IPV6 = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # nobody has an address ``::1`` here

#: opens a connection to the node: for which local one, where it leads, and whether anybody still waits for it. Raises
#: ``OSError``
Connect = Callable[
    [socket.socket, Callable[[], tuple[str, int] | None], Callable[[], bool]], ByteStream | DelegatedConnection
]


class ConnectionHandler(sshtunnel._ForwardHandler):  # type: ignore[misc]
    """One connection. sshtunnel's own closes both directions when one has ended, and loses data."""

    def handle(self) -> None:
        """Refuse another user's connection; relay any other to the node."""
        from_stranger = local_sockets.is_from_another_user(self.request)
        name = self.server.name
        holds_secret = name == "jupyter" or (isinstance(name, tuple) and name[0] == "app")
        if from_stranger or (from_stranger is None and holds_secret):
            _reset(self.request)
            return
        # Nagle's algorithm with delayed acknowledgements costs up to 40 ms
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            here = self.request
            far = self.server.connect(here, lambda: self.server.target, lambda: not _has_hung_up(here))
        except OSError:
            _reset(self.request)
        else:
            _wait(self.request, far) if isinstance(far, DelegatedConnection) else relay(self.request, far)


class PortServer(sshtunnel._ThreadingForwardServer):  # type: ignore[misc]
    """One listening port. sshtunnel's own queues five connections, and a page opens more at once."""

    request_queue_size = 128
    daemon_threads = True
    # on Windows this would let another program share the port
    allow_reuse_address = os.name != "nt"
    connect: Connect
    target: tuple[str, int] | None = None
    name: object = None  # of the port: ``jupyter``, ``app`` and which, or its numbers

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection. Raises ``OSError``; after a moment if too many files are open."""
        try:
            return super().get_request()  # type: ignore[no-any-return]
        except OSError as error:
            local_sockets.wait_for_room(error)
            raise


class PortServer6(PortServer):
    """One on an IPv6 address."""

    address_family = socket.AF_INET6


def open_port(connect: Connect, hosts: Sequence[str], preferred: int) -> list[Any]:
    """Return servers on one port of all ``hosts``: ``preferred``, or else a free one. Raises ``NodeUnreachable``."""
    for port in (preferred, *[0] * ATTEMPTS):
        try:
            return _open_on_all(connect, hosts, port)
        except OSError as error:
            problem = error
    raise NodeUnreachable("The tunnel's local port could not be opened.", why=str(problem))


def _open_on_all(connect: Connect, hosts: Sequence[str], port: int) -> list[Any]:
    opened = [_open(connect, hosts[0], port)]
    try:
        for host in hosts[1:]:
            opened.append(_open(connect, host, opened[0].local_port))
    except OSError as error:
        if error.errno not in NO_IPV6:
            opened[0].server_close()
            raise
    return opened


def _open(connect: Connect, host: str, port: int) -> Any:
    kind = PortServer6 if ":" in host else PortServer
    # without a logger sshtunnel makes one that writes to the user's terminal
    server = kind((host, port), ConnectionHandler, logger=logging.getLogger("sshtunnel"))
    server.connect = connect
    return server


def relay(near: socket.socket, far: ByteStream) -> None:
    """Copy bytes both ways until both directions have ended, each by itself.

    A connection that breaks on one side is reset on the other too, and never closed as if it were complete: a truncated
    download must not look complete.
    """
    broken = threading.Event()
    if isinstance(far, PassesOn):
        far.pass_on(near)

    def carry(source: Any, sink: Any) -> None:
        try:
            for data in _received(source):
                sink.sendall(data)
            if not broken.is_set():
                sink.shutdown(socket.SHUT_WR)
        except Exception:  # not only an OSError: paramiko has others
            if not broken.is_set():
                broken.set()
                _break(far, is_written=sink is not far)
                with contextlib.suppress(OSError):  # wakes the other direction, as ``_break`` does
                    near.shutdown(socket.SHUT_RD)

    outward = threading.Thread(target=carry, args=(near, far), daemon=True)
    outward.start()
    carry(far, near)
    outward.join()
    with contextlib.suppress(Exception):
        far.close()
    if broken.is_set():
        _reset(near)


def _break(far: ByteStream, *, is_written: bool) -> None:
    """Close the connection to the node, and wake the threads that use it; a TCP connection is reset.

    ``is_written``: whether a thread may be sending to it, which only its end wakes. Closed without a reset, what has
    been sent would look complete there, and a program that has filled the buffers would wait for minutes to send more:
    the room that was made by the last read is not reported once reading has ended.
    """
    how = socket.SHUT_RDWR
    with contextlib.suppress(Exception):
        if isinstance(far, socket.socket):
            _reset_when_closed(far)
            how = socket.SHUT_RDWR if is_written else socket.SHUT_RD
        far.shutdown(how)
    with contextlib.suppress(Exception):
        far.close()


def _wait(near: socket.socket, far: DelegatedConnection) -> None:
    """Wait until another process has carried a connection to its end; it is reset if it broke, as ``relay`` does."""
    try:
        far.wait()
    except OSError:
        _reset(near)


def _received(source: Any) -> Iterator[bytes | memoryview]:
    """Yield what arrives, up to its end. Each piece is overwritten by the next one, where the source can do that."""
    if not hasattr(source, "recv_into"):
        while data := source.recv(CHUNK):
            yield data
        return
    buffer = bytearray(CHUNK)
    view = memoryview(buffer)
    while count := source.recv_into(buffer):
        yield view[:count]


def _has_hung_up(connection: socket.socket) -> bool:
    """Whether the other end has closed a connection from which nothing was read yet; does not block."""
    try:
        readable, _, _ = select.select([connection], [], [], 0)
        return bool(readable) and not connection.recv(1, socket.MSG_PEEK)
    except ValueError:  # more connections than select supports
        return False
    except OSError:
        return True


def _reset(connection: socket.socket) -> None:
    """Close a connection with a reset."""
    with contextlib.suppress(OSError):
        _reset_when_closed(connection)
        connection.close()


def _reset_when_closed(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("hh" if os.name == "nt" else "ii", 1, 0))
