"""Channels of a transport as a socket, as lines, or as a remote terminal, and functions that read and write them."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from notebook_launcher.core.interrupts import Uninterrupted
from notebook_launcher.hosts.base import (
    ByteStream,
    LineStream,
    OnEnd,
    OnLine,
)
from notebook_launcher.hosts.framing import Frame, FramedLines
from notebook_launcher.hosts.output import Output, lines_of
from notebook_launcher.hosts.paramiko.library import paramiko
from notebook_launcher.hosts.paramiko.receive_buffer import ReceiveBuffer
from notebook_launcher.hosts.paramiko.receive_window import FIRST, ReceiveWindow
from notebook_launcher.hosts.terminal import (
    AT_ONCE,
    write_all,
)

PACKET = 32 * 1024  # bytes; the largest packet that OpenSSH accepts
_PROHIBITED = 1  # RFC 4254, 5.1: SSH_OPEN_ADMINISTRATIVELY_PROHIBITED
_NEVER = 1 << 62  # bytes
_MSG_DATA = paramiko.common.MSG_CHANNEL_DATA
_DATA = struct.Struct(">BII")  # RFC 4254, 5.2: the kind of a message with data, the channel and the length

_round_trips: WeakKeyDictionary[paramiko.Transport, float] = WeakKeyDictionary()  # the shortest, in seconds


def open_channel(transport: paramiko.Transport, address: tuple[str, int], timeout: float) -> ByteStream:
    """Open a TCP connection from the far end.

    Raises ``ConnectionRefusedError`` or ``PermissionError`` if the far end refuses, else another ``OSError``."""
    began = time.monotonic()
    try:
        with Uninterrupted(give_up=transport.close):
            origin = ("127.0.0.1", 0)
            channel = transport.open_channel("direct-tcpip", address, origin, window_size=FIRST, timeout=timeout)
    except paramiko.ChannelException as error:
        no = PermissionError if error.code == _PROHIBITED else ConnectionRefusedError
        raise no(error.text) from None
    except (paramiko.SSHException, EOFError) as error:
        broken = TimeoutError if transport.is_active() else ConnectionResetError
        raise broken(str(error) or "the SSH connection broke") from None
    now = time.monotonic()
    _round_trips[transport] = round_trip = min(now - began, _round_trips.get(transport, timeout))
    return ChannelBytes(channel, ReceiveWindow(round_trip, now))


def _send_message(transport: Any, message: paramiko.Message) -> None:
    """Send a message, after a key exchange if there is one; usually at once. Raises as paramiko does."""
    with transport.clear_to_send_lock:
        if transport.clear_to_send.is_set():
            transport.packetizer.send_message(message)
            return
    transport._send_user_message(message)  # this waits for the end of the key exchange


def uninterrupted(channel: paramiko.Channel) -> Uninterrupted:
    """Return a block for calls on a channel: an interrupt must not leave paramiko's locks locked.

    Closing the channel ends its waits, unless the network accepts no data: then the transport is closed.
    """
    return Uninterrupted(channel.close, channel.get_transport().close)


def close_channel(channel: paramiko.Channel) -> None:
    """Close a channel, even if its transport is broken or breaks meanwhile; after an interrupt, without a long wait."""
    with (
        Uninterrupted(give_up=channel.get_transport().close, closing=True),
        contextlib.suppress(paramiko.SSHException, EOFError, OSError),
    ):
        channel.close()


def _broken(error: Exception) -> ConnectionResetError:
    return ConnectionResetError(str(error) or "the SSH connection broke")


class ChannelBytes:
    """A channel as a socket that reports a broken connection; with paramiko's, the far end seems to have finished.

    ``window``: how much the far end may send ahead; by default 2 MB, as in paramiko.
    """

    def __init__(self, channel: paramiko.Channel, window: ReceiveWindow | None = None) -> None:
        self._channel = channel
        self.settimeout = channel.settimeout
        self._receive_buffer = ReceiveBuffer.of(channel, window) if window is not None else None
        if self._receive_buffer is not None:
            channel.in_window_threshold = _NEVER  # so that paramiko never enlarges the window itself

    def pass_on(self, near: socket.socket) -> None:
        """Send received data to a local connection as far as it accepts them at once; ``recv`` returns the rest."""
        if self._receive_buffer is not None:
            self._receive_buffer.pass_on(near)

    def send(self, data: bytes) -> int:
        """Send some of the data, and return how much. Raises ``OSError``."""
        try:
            with uninterrupted(self._channel):
                return self._channel.send(data)
        except (paramiko.SSHException, EOFError) as error:
            raise _broken(error) from None

    def shutdown(self, how: int) -> None:
        """Shut down one direction, or both. Raises ``OSError``."""
        try:
            with uninterrupted(self._channel):
                self._channel.shutdown(how)
        except (paramiko.SSHException, EOFError) as error:
            raise _broken(error) from None

    def close(self) -> None:
        """Close both directions."""
        close_channel(self._channel)

    def sendall(self, data: bytes | memoryview) -> None:
        """Send all of the data, without copying the whole rest for each packet as paramiko does. Raises ``OSError``."""
        if len(data) <= PACKET and self._send_at_once(data):
            return
        rest = memoryview(data)
        while rest:
            sent = self.send(bytes(rest[:PACKET]))
            if not sent:
                raise ConnectionResetError("the channel was closed")
            rest = rest[sent:]

    def _send_at_once(self, data: bytes | memoryview) -> bool:
        """Send data in one packet, in half of paramiko's time; return false if the window has no room for it."""
        channel, count = self._channel, len(data)
        try:
            with uninterrupted(channel):
                with channel.lock:
                    room = min(channel.out_window_size, channel.out_max_packet_size - _DATA.size)
                    if channel.closed or channel.eof_sent or not 0 < count <= room:
                        return False
                    channel.out_window_size -= count
                head = _DATA.pack(_MSG_DATA, channel.remote_chanid, count)
                _send_message(channel.get_transport(), paramiko.Message(head + data))
                return True
        except (paramiko.SSHException, EOFError) as error:
            raise _broken(error) from None

    def recv(self, count: int) -> bytes:
        """Return the received data. Raises ``ConnectionResetError`` if the transport broke."""
        while True:
            with uninterrupted(self._channel):
                data = self._channel.recv(count)
                more = 0 if self._receive_buffer is None else self._receive_buffer.take_due()
                if more:
                    self._allow(more)
            if not data and not more and not self._channel.eof_received:
                raise ConnectionResetError("the SSH connection broke")
            if data or not more:
                return data

    def _allow(self, count: int) -> None:
        """Allow the far end to send ``count`` more bytes."""
        channel = self._channel
        if channel.closed or channel.eof_received:
            return
        message = paramiko.Message()
        message.add_byte(bytes([paramiko.common.MSG_CHANNEL_WINDOW_ADJUST]))
        message.add_int(channel.remote_chanid)
        message.add_int(count)
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):  # data already sent can still be received
            _send_message(channel.get_transport(), message)


class ChannelTerminal:
    """A channel with a terminal at its far end, for ``attach_terminal``."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel
        self.fileno = channel.fileno
        channel.settimeout(0.0)

    def read(self) -> bytes | None:
        """Return the received data; ``None`` if there is none at the moment."""
        try:
            return self._channel.recv(AT_ONCE)
        except TimeoutError:
            return None

    def write(self, data: bytes) -> int:
        """Send some of the data, and return how much."""
        try:
            return self._channel.send(data)
        except TimeoutError:  # it does not read at the moment
            return 0

    def resize(self, columns: int, rows: int) -> None:
        """Set the size of the remote terminal."""
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):  # it has ended
            self._channel.resize_pty(columns, rows)


def copy_errors(channel: paramiko.Channel) -> None:
    """Copy the command's standard error to our own, until it ends."""
    data: bytes | None = None
    with contextlib.suppress(OSError):
        while data is None or (data and write_all(2, data)):
            try:
                data = channel.recv_stderr(AT_ONCE)
            except TimeoutError:  # it may be as silent as the standard output
                data = None


def send(channel: paramiko.Channel, data: bytes) -> None:
    """Send all of the input, and close it."""
    # the command may end without reading its input, or the connection may break
    with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
        channel.sendall(data)
        channel.shutdown_write()


def drain_until(deadline: float, channel: paramiko.Channel, into: Output) -> None:
    """Read to the end. Raises ``TimeoutError`` at the deadline, even if data still arrive, and ``TooMuchOutput``."""
    data = b"more"
    while data:
        channel.settimeout(max(0.0, deadline - time.monotonic()))
        data = channel.recv(65536)
        into.add(data)


def drain_quietly(receive: Callable[[int], bytes], into: Output) -> None:
    """Read to the end, or until the connection breaks."""
    with contextlib.suppress(OSError):
        while data := receive(65536):
            into.add(data)


def discard_errors(channel: paramiko.Channel) -> None:
    """Read a command's standard error to its end, and drop it: unread, it would fill the window of its output."""
    data: bytes | None = None
    with contextlib.suppress(OSError):
        while data is None or data:
            try:
                data = channel.recv_stderr(65536)
            except TimeoutError:  # set by the reader of the output; it may be 0
                data = None
                time.sleep(0.1)


class ChannelLines(LineStream):
    """The output of a command in a channel, line by line."""

    def __init__(self, channel: paramiko.Channel, frame: Frame, on_line: OnLine, on_end: OnEnd) -> None:
        self._channel, self._frame = channel, frame
        self._closed = False
        threading.Thread(target=self._follow, args=(on_line, on_end), name="watch", daemon=True).start()

    def _follow(self, on_line: OnLine, on_end: OnEnd) -> None:
        reason = "closed"
        try:
            lines = FramedLines(self._frame, lines_of(self._channel.makefile("rb").readline))
            for line in lines:
                if self._closed:
                    return
                on_line(line)
            if lines.exit_code is not None:
                reason = f"exit code {lines.exit_code}"
        except OSError as error:
            reason = str(error)
        if not self._closed:
            on_end(reason)

    def close(self) -> None:
        """Close the channel."""
        self._closed = True
        close_channel(self._channel)  # this also ends the command's input
