"""Data received in a channel for a local connection: sent to it at once, or kept for a thread that waits for them.

paramiko's thread puts received data into a buffer, and wakes the thread that reads it. For a key that is pressed,
waking that thread takes as long as everything else that Python does with the response; in a download, the two threads
take turns at the interpreter. So paramiko's thread itself sends received data to the local connection, as much as that
accepts without waiting. The rest goes through the buffer.
"""

from __future__ import annotations

import socket
import threading
import time
from array import array
from typing import Any, cast

from notebook_launcher.hosts.paramiko.library import paramiko
from notebook_launcher.hosts.paramiko.receive_window import ReceiveWindow

_AT_ONCE = getattr(socket, "MSG_DONTWAIT", None)  # not on Windows, where all data go through the buffer
_OWN = {"_lock", "_cv", "_buffer", "_event", "_closed"}  # attributes of paramiko's buffer that this one uses


class ReceiveBuffer(paramiko.buffered_pipe.BufferedPipe):  # type: ignore[type-arg]
    """The buffer of a channel, with the window that limits how much the far end may send ahead.

    The channel has created its buffer already, and paramiko's thread may be filling it, so ``ReceiveBuffer.of`` only
    changes its class.
    """

    # paramiko's own
    _lock: threading.Lock
    _cv: threading.Condition
    _buffer: array[int]
    _event: threading.Event | None
    _closed: bool

    _window: ReceiveWindow
    _near: socket.socket | None = None
    _in_hand = True  # whether the reader may have data that it has not sent to the local connection yet
    _due = 0  # bytes by which to enlarge the far end's window

    @classmethod
    def of(cls, channel: paramiko.Channel, window: ReceiveWindow) -> ReceiveBuffer | None:
        """Turn a channel's buffer into a ``ReceiveBuffer``, with its data; ``None`` if paramiko has another buffer."""
        found = channel.in_buffer
        if type(found) is not paramiko.buffered_pipe.BufferedPipe or not vars(found).keys() >= _OWN:
            return None
        buffer = cast("Any", found)
        buffer._window = window
        buffer.__class__ = cls
        return cast("ReceiveBuffer", buffer)

    def pass_on(self, near: socket.socket) -> None:
        """Send received data to a local connection, whenever the reader has nothing left to send to it.

        From then on, ``read`` also returns, without data, when ``take_due`` has something to return.
        """
        with self._lock:
            self._near = near if _AT_ONCE is not None else None

    def take_due(self) -> int:
        """Return (once) how many more bytes the far end is to be allowed."""
        with self._lock:
            due, self._due = self._due, 0
            return due

    def feed(self, data: bytes) -> None:
        """Take received data; only paramiko's thread calls this, and it never waits here.

        Window adjustments are left to the reader's thread, because sending them waits if the far end reads nothing.
        """
        with self._lock:
            # when the channel is closed, the connection may be, too, and its descriptor may belong to another one
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
        """Return at most ``nbytes`` of buffered data, as paramiko's buffer does. Raises ``PipeTimeout``."""
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
    """Send without waiting, and return how many bytes were sent: 0 if the connection broke, as its writer will see."""
    try:
        return near.send(data, _AT_ONCE or 0)
    except OSError:
        return 0
