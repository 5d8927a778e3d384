"""The control socket of an ``ssh`` master, in the protocol that OpenSSH documents as ``PROTOCOL.mux``.

Every command and connection is a request on it. So a command needs no local process and does not appear in process
lists, and a refused connection is reported as such.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from notebook_launcher.hosts.delegated_connection import DelegatedConnection, DelegationFailed
from notebook_launcher.hosts.output import Output, lines_of

LOCAL_TIMEOUT = 10.0  # seconds; a master answers from memory within milliseconds
#: ssh's message if a server forbids forwarding
PROHIBITED = "administratively prohibited"

_HELLO, _VERSION = 0x00000001, 4
_NEW_SESSION, _ALIVE_CHECK, _CONNECT = 0x10000002, 0x10000004, 0x10000008
_DENIED, _FAILED, _EXITED, _ALIVE, _OPENED = 0x80000002, 0x80000003, 0x80000004, 0x80000005, 0x80000006
_MOST_MESSAGE = 256 * 1024  # bytes, as OpenSSH limits its own
_NO_ESCAPE_CHARACTER = 0xFFFFFFFF


def _number(value: int) -> bytes:
    return struct.pack(">I", value)


def _text(value: str) -> bytes:
    data = os.fsencode(value)
    return _number(len(data)) + data


class Refused(OSError):
    """The master or the far end refused the request."""


class _Control:
    """One connection to a master's control socket. Raises ``OSError`` if the master is gone or refuses.

    ``timeout``: seconds for each request and its whole reply.
    """

    def __init__(self, path: str, timeout: float = LOCAL_TIMEOUT) -> None:
        self._timeout = timeout
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.settimeout(timeout)
            self._socket.connect(path)
            self._send(_number(_HELLO) + _number(_VERSION))
            if self._receive(time.monotonic() + timeout)[:2] != (_HELLO, _VERSION):
                raise OSError("the master speaks another version")
        except BaseException:
            self._socket.close()
            raise

    def request(self, kind: int, body: bytes = b"", descriptors: Sequence[int] = ()) -> int:
        """Send a request, pass open files, and return the kind of the reply."""
        deadline = time.monotonic() + self._timeout
        self._socket.settimeout(self._timeout)
        self._send(_number(kind) + _number(0) + body)
        for descriptor in descriptors:
            socket.send_fds(self._socket, [b"\0"], [descriptor])
        answer, _, rest = self._receive(deadline)
        if answer in (_DENIED, _FAILED):
            raise Refused(rest[4:].decode(errors="replace").lstrip("\0"))
        return answer

    def exit_code(self, timeout: float) -> int | None:
        """Wait for the exit code of the session; ``None`` if the session ended without one."""
        deadline = time.monotonic() + max(timeout, 0.001)
        try:
            while True:
                kind, _, rest = self._receive(deadline)
                if kind == _EXITED:
                    return int.from_bytes(rest[:4], "big")
        except ConnectionError:
            return None

    def wait_for_end(self) -> None:
        """Wait until the master closes this connection, as it does when the request is over."""
        self._socket.settimeout(None)
        with contextlib.suppress(OSError):
            while self._socket.recv(_MOST_MESSAGE):
                pass

    def close(self) -> None:
        self._socket.close()

    def _send(self, packet: bytes) -> None:
        self._socket.sendall(_number(len(packet)) + packet)

    def _receive(self, deadline: float) -> tuple[int, int, bytes]:
        size = int.from_bytes(self._exactly(4, deadline), "big")
        if size > _MOST_MESSAGE:
            raise ConnectionResetError("the ssh master sent an invalid reply")
        packet = self._exactly(size, deadline)
        return int.from_bytes(packet[:4], "big"), int.from_bytes(packet[4:8], "big"), packet[8:]

    def _exactly(self, count: int, deadline: float) -> bytes:
        data = b""
        while len(data) < count:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("the ssh master does not finish its reply")
            self._socket.settimeout(left)
            part = self._socket.recv(count - len(data))
            if not part:
                raise ConnectionResetError("the ssh master is gone")
            data += part
        return data


class Master:
    """A master that answers on its control socket. Raises ``OSError`` if none does."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._control = _Control(path)
        self._lock = threading.Lock()
        if not self.answers():
            self._control.close()
            raise ConnectionRefusedError("the ssh master does not answer")

    def answers(self) -> bool:
        """Whether it answers, without asking the far end; a master that is about to exit does not."""
        with self._lock, contextlib.suppress(OSError):
            return self._control.request(_ALIVE_CHECK) == _ALIVE
        return False

    def connect(self, address: tuple[str, int], timeout: float) -> Channel:
        """Open a TCP connection from the far end.

        Raises ``PermissionError`` if forwarding is forbidden, else another ``OSError``, with the reason if known.
        """
        try:
            return Channel(self, _CONNECT, _text("") + _text(address[0]) + _number(address[1]), timeout)
        except Refused as error:
            raise self._why_not(error) from None

    def delegate(self, local: socket.socket, address: tuple[str, int], timeout: float) -> Carried:
        """Let the master connect ``local`` to an address. Raises what ``connect`` raises, and ``DelegationFailed``."""
        try:
            return Carried(self, local, _text("") + _text(address[0]) + _number(address[1]), timeout)
        except Refused as error:
            raise self._why_not(error) from None

    def _why_not(self, error: Refused) -> OSError:
        reason = self.last_refusal() or str(error)
        return (PermissionError if PROHIBITED in reason else ConnectionRefusedError)(reason)

    def last_refusal(self) -> str:
        """Return why the far end refused a connection, "" if the master does not report that."""
        return ""

    def session(self, command: str, timeout: float, errors: int | None = None) -> Channel:
        """Run a command at the far end; ``errors``: an open file for its standard error."""
        no_terminal_x11_agent_subsystem = 4 * _number(0)
        request = (
            _text("") + no_terminal_x11_agent_subsystem + _number(_NO_ESCAPE_CHARACTER) + _text("dumb") + _text(command)
        )
        if errors is not None:
            return Channel(self, _NEW_SESSION, request, timeout, (errors,))
        with Path(os.devnull).open("wb") as nowhere:
            return Channel(self, _NEW_SESSION, request, timeout, (nowhere.fileno(),))

    def close(self) -> None:
        """Disconnect from the master; sessions over it stay open."""
        self._control.close()


class Carried(DelegatedConnection):
    """A local connection that the master itself reads from and writes to.

    When the far end has finished sending, the master stops sending, too, and drops the connection.
    """

    def __init__(self, master: Master, local: socket.socket, request: bytes, timeout: float) -> None:
        self._master = master
        self._control = _Control(master.path, timeout)
        try:
            if self._control.request(_CONNECT, request, (local.fileno(), local.fileno())) != _OPENED:
                raise DelegationFailed("the ssh master gave an invalid answer")
        except TimeoutError as error:  # the master may still start to carry the connection
            self._control.close()
            raise DelegationFailed(str(error)) from None
        except BaseException:
            self._control.close()
            local.setblocking(True)  # ssh has changed it, for every process that shares the socket
            raise

    def wait(self) -> None:
        """Wait until it has ended. Raises ``ConnectionResetError`` if the SSH connection broke."""
        with contextlib.closing(self._control):
            self._control.wait_for_end()
        if not self._master.answers():
            raise ConnectionResetError("the SSH connection broke")


class Channel:
    """A command's standard input and output, or a connection, as a ``ByteStream``.

    It has a socket pair for each direction: with a single one, the master could not close only one direction.
    """

    def __init__(
        self, master: Master, kind: int, request: bytes, timeout: float, more_descriptors: Sequence[int] = ()
    ) -> None:
        self._master = master
        self._control = _Control(master.path, timeout)
        self._input, masters_input = socket.socketpair()
        self._output, masters_output = socket.socketpair()
        self.send, self.sendall = self._input.send, self._input.sendall
        try:
            with masters_input, masters_output:
                descriptors = (masters_input.fileno(), masters_output.fileno(), *more_descriptors)
                if self._control.request(kind, request, descriptors) != _OPENED:
                    raise OSError("the ssh master gave an invalid answer")
        except BaseException:
            self.close()
            raise

    def recv(self, count: int) -> bytes:
        """Return the received data. Raises ``ConnectionResetError`` if the SSH connection broke."""
        data = self._output.recv(count)
        if not data:
            self.check_end()
        return data

    def check_end(self) -> None:
        """Raise ``ConnectionResetError`` if the output ended because the SSH connection did."""
        if not self._master.answers():
            raise ConnectionResetError("the SSH connection broke")

    def exit_code(self, timeout: float) -> int | None:
        """Return the exit code of a command that has ended; ``None`` if it has none, or none arrives in time."""
        with contextlib.suppress(TimeoutError):
            return self._control.exit_code(timeout)
        return None

    def communicate(self, data: bytes, errors: socket.socket, deadline: float) -> tuple[str, str, int | None]:
        """Send a command its input, and return its outputs and exit code (``None``: it ended without one).

        All of this concurrently, since a command may fill either output before it has read its input. Raises
        ``TimeoutError`` and ``TooMuchOutput``.
        """
        collected = {self._output: Output(), errors: Output(errors=True)}
        rest = memoryview(data)
        with selectors.DefaultSelector() as selector:
            for readable in collected:
                selector.register(readable, selectors.EVENT_READ)
            selector.register(self._input, selectors.EVENT_WRITE)
            self._input.setblocking(False)
            while selector.get_map():
                ready = selector.select(deadline - time.monotonic())
                if time.monotonic() > deadline:
                    raise TimeoutError
                for key, _ in ready:
                    file: socket.socket = key.fileobj  # type: ignore[assignment]
                    if file is self._input:
                        rest = self._send_some(rest)
                        if not rest:
                            selector.unregister(file)
                    elif part := file.recv(65536):
                        collected[file].add(part)
                    else:
                        selector.unregister(file)
        code = self._control.exit_code(deadline - time.monotonic())
        return collected[self._output].text(), collected[errors].text(), code

    def _send_some(self, rest: memoryview) -> memoryview:
        try:
            rest = rest[self._input.send(rest[:65536]) :]
        except BlockingIOError:
            return rest
        except OSError:  # a command that ends without reading its input
            rest = rest[:0]
        if not rest:
            self.shutdown(socket.SHUT_WR)
        return rest

    def lines(self) -> Iterator[str]:
        """Yield the lines of the output, without their newlines."""
        with self._output.makefile("rb") as output:
            yield from lines_of(output.readline)

    def shutdown(self, how: int) -> None:
        """Shut down one direction, or both."""
        with contextlib.suppress(OSError):  # it has ended already
            if how != socket.SHUT_RD:
                self._input.shutdown(socket.SHUT_WR)
            if how != socket.SHUT_WR:
                self._output.shutdown(socket.SHUT_RD)

    def settimeout(self, seconds: float | None) -> None:
        """Set the timeout of each call."""
        self._input.settimeout(seconds)
        self._output.settimeout(seconds)

    def close(self) -> None:
        """Close both directions; the master then closes its end."""
        self.shutdown(socket.SHUT_RDWR)
        for end in (self._input, self._output, self._control):
            end.close()
