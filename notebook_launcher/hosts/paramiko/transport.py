"""paramiko's transport, but one that keeps reading during a key exchange."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from notebook_launcher.hosts.paramiko.library import paramiko


class Transport(paramiko.Transport):
    """A transport that postpones its own replies to the end of a key exchange.

    RFC 4253 (section 7.1) forbids them during it. paramiko's transport waits on the thread that has to read the new
    keys: if a server closes a channel during the exchange, it gets no reply, and the connection breaks after half a
    minute.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._postponed: list[paramiko.Message] = []
        self.clear_to_send = _Flag(self._send_postponed)

    def _send_user_message(self, message: paramiko.Message) -> None:
        if threading.current_thread() is not self:
            super()._send_user_message(message)  # type: ignore[misc]  # not in the type stubs; it waits
            return
        with self.clear_to_send_lock:
            if self.clear_to_send.is_set():
                self.packetizer.send_message(message)
            else:
                self._postponed.append(message)

    def _send_postponed(self) -> None:
        postponed, self._postponed = self._postponed, []
        for message in postponed:
            self.packetizer.send_message(message)


class _Flag(threading.Event):
    """An event that calls ``then`` when it is set; paramiko sets it while it holds the lock for sending."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__()
        self._then = then

    def set(self) -> None:
        super().set()
        self._then()
