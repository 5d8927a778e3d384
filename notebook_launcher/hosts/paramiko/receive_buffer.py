"""What arrives in a channel, on its way to a local connection: given to it at once, or kept for a thread that waits.

paramiko's thread puts what it receives into a buffer, and wakes the thread that reads it. For a key that is pressed,
waking that thread takes as long as all else that Python does with the answer; in a download, the two threads take turns
at the interpreter. So paramiko's thread itself gives what arrives to the local connection, as much as that takes
without waiting. The rest goes through the buffer.
"""

from __future__ import annotations

import socket
import threading
import time
from array import array
from typing import Any, cast

from notebook_launcher.hosts.paramiko.library import paramiko
from notebook_launcher.hosts.paramiko.receive_window import ReceiveWindow

_AT_ONCE = getattr(socket, "MSG_DONTWAIT", None)  # Windows has none: all goes through the buffer there
_OWN = {"_lock", "_cv", "_buffer", "_event", "_closed"}  # what paramiko's buffer has, and this one uses


class ReceiveBuffer(paramiko.buffered_pipe.BufferedPipe):  # type: ignore[type-arg]
    """The buffer of a channel, with the window that says how much the far end may send ahead.

    The channel has made it already, and paramiko's thread may be filling it: ``ReceiveBuffer.of`` only changes what it
    does.
    """

    # paramiko's own
    _lock: threading.Lock
    _cv: threading.Condition
    _buffer: array[int]
    _event: threading.Event | None
    _closed: bool

    _window: ReceiveWindow
    _near: socket.socket | None = None
    _in_hand = True  # whether the reader may have data that the local connection did not get yet
    _due = 0  # bytes that the far end is to be allowed

    @classmethod
    def of(cls, channel: paramiko.Channel, window: ReceiveWindow) -> ReceiveBuffer | None:
        """Turn a channel's buffer into one, with all that has arrived; ``None``: paramiko's own is not as it was."""
        found = channel.in_buffer
        if type(found) is not paramiko.buffered_pipe.BufferedPipe or not vars(found).keys() >= _OWN:
            return None
        buffer = cast("Any", found)
        buffer._window = window
        buffer.__class__ = cls
        return cast("ReceiveBuffer", buffer)

    def pass_on(self, near: socket.socket) -> None:
        """Give what arrives to a local connection, whenever the reader has nothing more to give to it.

        From then on ``read`` also returns nothing if more is due to the far end.
        """
        with self._lock:
            self._near = near if _AT_ONCE is not None else None

    def take_due(self) -> int:
        """Return how many more bytes the far end is to be allowed, once."""
        with self._lock:
            due, self._due = self._due, 0
            return due

    def feed(self, data: bytes) -> None:
        """Take what has arrived; only paramiko's thread calls this, and it never waits here.

        Nor does it send: what the far end is to be allowed it leaves to the reader, as the far end may read nothing.
        """
        with self._lock:
            # once the channel is closed, the connection may be, too, and its number may be another one's
            is_next = not (self._in_hand or self._buffer or self._closed)
            if self._near is not None and is_next and (given := _given(self._near, data)):
                self._due += self._window.received(given, time.monotonic())
                data = data[given:]
            self._buffer.frombytes(data)
            if data and self._event is not None:
                self._event.set()
            if data or self._due:
                self._cv.notify_all()

    def read(self, nbytes: int, timeout: float | None = None) -> bytes:
        """Return what waits, as the buffer of paramiko does, at most ``nbytes``. Raises ``PipeTimeout``."""
        with self._lock:
            self._in_hand = False
            if not self._cv.wait_for(self._is_worth_reading, timeout):
                raise paramiko.buffered_pipe.PipeTimeout
            data = self._buffer[:nbytes].tobytes()
            del self._buffer[:nbytes]
            if self._event is not None and not self._buffer and not self._closed:
                self._event.clear()
            self._in_hand = bool(data)
            self._due += self._window.received(len(data), time.monotonic()) if data else 0
            return data

    def _is_worth_reading(self) -> bool:
        return bool(self._buffer or self._closed or (self._due and self._near is not None))


def _given(near: socket.socket, data: bytes) -> int:
    """Return how many bytes a connection has taken without waiting; a broken one takes none, as its writer will see."""
    try:
        return near.send(data, _AT_ONCE or 0)
    except OSError:
        return 0
