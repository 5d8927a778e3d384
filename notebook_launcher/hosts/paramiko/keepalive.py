"""Signs of life of a server: asked for while it is silent; a connection on which none comes is closed.

A machine that loses its power or its network closes nothing, and TCP alone gives up after a quarter of an hour.
"""

from __future__ import annotations

import contextlib
import threading

from cryptography.exceptions import InvalidTag

from notebook_launcher.hosts.paramiko.library import paramiko

#: seconds, times: a silent server is noticed within 50 s. The pause is below the idle limits of firewalls and NAT boxes
ALIVE_EVERY, ALIVE_TRIES = 10.0, 3

#: what a server may answer; nothing else is asked
_ANSWERS = (paramiko.common.MSG_REQUEST_SUCCESS, paramiko.common.MSG_REQUEST_FAILURE, paramiko.common.MSG_UNIMPLEMENTED)


class Keepalive:
    """Asks the server of a transport for a sign of life while it sends nothing.

    The transport is closed if several requests in a row bring none, and the server is known to answer such requests.
    It counts the pauses since the server was last heard, not the seconds: when a launcher that was stopped continues,
    the clock has gone on, and the server's data wait.

    It is made before the transport starts, whose thread would miss the first message otherwise.
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
        except InvalidTag:  # whoever uses the connection expects paramiko's errors
            raise paramiko.SSHException("a packet was changed on its way") from None
        self._pauses = 0
        self._answers = self._answers or kind in _ANSWERS
        return kind, message

    def begin(self) -> None:
        """Ask for the first time, and from now on; the transport is authenticated."""
        self._answers = False
        self._send()
        threading.Thread(target=self._run, name="ssh-alive", daemon=True).start()

    def _run(self) -> None:
        """Ask after each pause in which nothing was heard, until the transport ends."""
        while self._transport.is_active():
            self._transport.join(ALIVE_EVERY)  # its thread
            if self._pauses > ALIVE_TRIES and self._answers:
                self._transport.close()
            elif self._pauses:
                self._ask()
            self._pauses += 1

    def _ask(self) -> None:
        """Send a request, unless one still waits to be sent: nothing can be sent while the server reads nothing."""
        if self._asking is None or not self._asking.is_alive():
            self._asking = threading.Thread(target=self._send, name="ssh-alive", daemon=True)
            self._asking.start()

    def _send(self) -> None:
        """Send a request that no server knows: each has to answer that it does not (RFC 4254, section 4)."""
        request = paramiko.Message()
        request.add_byte(bytes([paramiko.common.MSG_GLOBAL_REQUEST]))
        request.add_string("keepalive@notebook-launcher")
        request.add_boolean(True)
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
            self._transport._send_user_message(request)  # type: ignore[attr-defined]
