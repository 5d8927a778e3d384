"""Requests a reply from a server while it is silent, and closes the connection if none comes (keepalive).

A machine that loses power or its network does not close its connections, and TCP alone gives up only after a quarter of
an hour.
"""

from __future__ import annotations

import contextlib
import threading

from cryptography.exceptions import InvalidTag

from notebook_launcher.hosts.paramiko.library import paramiko

#: seconds, count: a dead server is noticed within 50 s. The pause is below the idle limits of firewalls and NAT routers
ALIVE_EVERY, ALIVE_TRIES = 10.0, 3

#: the possible replies to our requests; nothing else that we send gets them
_ANSWERS = (paramiko.common.MSG_REQUEST_SUCCESS, paramiko.common.MSG_REQUEST_FAILURE, paramiko.common.MSG_UNIMPLEMENTED)


class Keepalive:
    """Requests a reply from the server of a transport while it sends nothing.

    The transport is closed if several requests in a row get no reply, and the server is known to reply to them. This
    counts the pauses since the server last sent something, not the seconds: when a suspended launcher continues, the
    clock has gone on, and data from the server may be waiting.

    Create it before the transport starts; otherwise it would miss the first message.
    """

    def __init__(self, transport: paramiko.Transport) -> None:
        self._transport = transport
        self._pauses, self._answers = 0, False
        self._asking: threading.Thread | None = None
        self._read = transport.packetizer.read_message
        transport.packetizer.read_message = self._heard  # type: ignore[method-assign]

    def _heard(self) -> tuple[int, paramiko.Message]:
        try:
            kind, message = self._read()
        except InvalidTag:  # the code that uses the connection expects paramiko's errors
            raise paramiko.SSHException("a packet was changed on its way") from None
        self._pauses = 0
        self._answers = self._answers or kind in _ANSWERS
        return kind, message

    def begin(self) -> None:
        """Send the first request, and more from now on; call it once the transport is authenticated."""
        self._answers = False
        self._send()
        threading.Thread(target=self._run, name="ssh-alive", daemon=True).start()

    def _run(self) -> None:
        """Send a request after each pause in which nothing arrived, until the transport ends."""
        while self._transport.is_active():
            self._transport.join(ALIVE_EVERY)  # a transport is a thread
            if self._pauses > ALIVE_TRIES and self._answers:
                self._transport.close()
            elif self._pauses:
                self._ask()
            self._pauses += 1

    def _ask(self) -> None:
        """Send a request, unless one is still being sent: that may take long if the server reads nothing."""
        if self._asking is None or not self._asking.is_alive():
            self._asking = threading.Thread(target=self._send, name="ssh-alive", daemon=True)
            self._asking.start()

    def _send(self) -> None:
        """Send a request of a type that no server knows; it has to reply with a failure (RFC 4254, section 4)."""
        request = paramiko.Message()
        request.add_byte(bytes([paramiko.common.MSG_GLOBAL_REQUEST]))
        request.add_string("keepalive@notebook-launcher")
        request.add_boolean(True)
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
            self._transport._send_user_message(request)  # type: ignore[attr-defined]
