"""The client side of SSH's authentication protocol (RFC 4252, RFC 4256): one request, one reply.

paramiko's own client does not suffice. It asks the user on the thread that reads the connection, so that it does not
notice a server that hangs up, and Ctrl-C leaves the prompt open. It always signs, so that a key must be unlocked even
if the server then refuses it. And it requests the service again with each request, which costs a round trip.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence

from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.interrupts import Uninterrupted
from notebook_launcher.hosts.paramiko.library import paramiko

_SERVICE_REQUEST, _SERVICE_ACCEPT = 5, 6
_REQUEST, _FAILURE, _SUCCESS, _BANNER = 50, 51, 52, 53
_METHOD_SPECIFIC, _INFO_RESPONSE = 60, 61
_CERTIFICATE = "-cert-v01@"  # between the key type and the domain
_RSA_SIGNATURES = ("rsa-sha2-512", "rsa-sha2-256")
_LONGEST_SILENCE = 600.0  # seconds without a reply; a push to a telephone may take that long

Sign = Callable[[bytes, str], bytes]


class ServerHungUp(Exception):
    """The server (or the network) closed the connection before the login was complete; the text is its last message.

    ``tried``: the methods tried by then.
    """

    tried: tuple[str, ...] = ()


class ServerTimedOut(ServerHungUp):
    """The server closed the connection while the user was being asked for something."""


class Verdict(Frozen):
    """The reply to a request: ``success``, or the methods ``left`` to try; ``partial``: the last method succeeded."""

    success: bool = False
    partial: bool = False
    left: tuple[str, ...] = ()


class InfoRequest(Frozen):
    """A round of keyboard-interactive prompts, each with whether its answer may be shown while it is typed."""

    title: str
    instructions: str
    questions: tuple[tuple[str, bool], ...]


class Expired(Frozen):
    """The password was right, but must be changed first."""


class Acceptable(Frozen):
    """The server would accept a signature of this key."""


class Dialogue(paramiko.auth_handler.AuthHandler):
    """Replaces a transport's own authentication. Every method raises ``ServerHungUp``."""

    def __init__(
        self, transport: paramiko.Transport, user: str, rsa_signatures: Sequence[str] = _RSA_SIGNATURES
    ) -> None:
        super().__init__(transport)
        self._rsa_signatures = rsa_signatures or _RSA_SIGNATURES
        self.username = user
        self._received: queue.SimpleQueue[tuple[int, paramiko.Message] | None] = queue.SimpleQueue()
        self._last_message = ""
        transport._parse_disconnect = self._on_disconnect  # type: ignore[attr-defined]
        transport.auth_handler = self

    # --- called on the thread that reads the connection

    @property
    def _handler_table(self) -> dict[int, Callable[[paramiko.Message], None]]:
        heard = (_SERVICE_ACCEPT, _FAILURE, _METHOD_SPECIFIC)
        table = {number: lambda message, number=number: self._received.put((number, message)) for number in heard}
        return {**table, _SUCCESS: self._on_success, _BANNER: lambda _: None}

    def _on_success(self, message: paramiko.Message) -> None:
        self.auth_method = self.auth_method or "none"
        super()._parse_userauth_success(message)  # type: ignore[misc]  # the channels may open before the reply is read
        self._received.put((_SUCCESS, message))

    def _on_disconnect(self, message: paramiko.Message) -> None:
        message.get_int()
        self._last_message = _text(message)

    def abort(self) -> None:
        """Wake the waiting thread: the connection has ended."""
        self._received.put(None)

    # --- called by the thread that logs in

    @property
    def alive(self) -> bool:
        """Whether the server has not hung up, as far as is known."""
        return self.transport.is_active()

    def begin(self) -> Verdict:
        """Request the service and the list of methods in one round trip: by RFC 4253, 10, a client need not wait."""
        self._send(_SERVICE_REQUEST, "ssh-userauth")
        self._send_request("none")
        self._receive()
        reply = self._reply()
        return reply if isinstance(reply, Verdict) else Verdict()

    def request(self, method: str, *fields: str | bytes | bool) -> Verdict | InfoRequest | Expired | Acceptable:
        """Request authentication by a method."""
        self._send_request(method, *fields)
        return self._reply()

    def _send_request(self, method: str, *fields: str | bytes | bool) -> None:
        self.auth_method = method
        self._send(_REQUEST, self.username or "", "ssh-connection", method, *fields)

    def answer(self, answers: list[str]) -> Verdict | InfoRequest | Expired | Acceptable:
        """Answer a round of prompts."""
        self._send(_INFO_RESPONSE, len(answers), *answers)
        return self._reply()

    def query_key(self, blob: bytes) -> Verdict | InfoRequest | Expired | Acceptable:
        """Ask whether a signature of this key would be accepted; a locked key need not be unlocked for that."""
        return self.request("publickey", False, self._algorithm(blob), blob)

    def sign_in(self, blob: bytes, sign: Sign) -> Verdict | InfoRequest | Expired | Acceptable:
        """Authenticate with a signature. Also raises what ``sign`` raises."""
        algorithm = self._algorithm(blob)
        fields = (self.username or "", "ssh-connection", "publickey", True, algorithm, blob)
        signed = _message(_REQUEST, *fields)
        session = paramiko.Message()
        session.add_string(self.transport.session_id or b"")
        signature = sign(session.asbytes() + signed.asbytes(), algorithm.partition(_CERTIFICATE)[0])
        return self.request("publickey", True, algorithm, blob, signature)

    def _algorithm(self, blob: bytes) -> str:
        """Return the signature algorithm for a key: RSA has several, and the server lists those that it accepts."""
        kind = _text(paramiko.Message(blob))
        if not kind.startswith("ssh-rsa"):
            return kind
        extensions: dict[str, bytes] = self.transport.server_extensions  # type: ignore[attr-defined]
        accepted = extensions.get("server-sig-algs", b"").decode(errors="replace").split(",")
        chosen = next((name for name in self._rsa_signatures if name in accepted), self._rsa_signatures[0])
        return chosen + kind.removeprefix("ssh-rsa")  # a certificate's suffix stays

    def _send(self, number: int, *fields: str | bytes | bool | int) -> None:
        try:
            with Uninterrupted(give_up=self.transport.close), self.transport.lock:
                self.transport._send_message(_message(number, *fields))  # type: ignore[attr-defined]
        except (EOFError, OSError, paramiko.SSHException) as error:
            raise ServerHungUp(self._last_message or str(error)) from None

    def _receive(self) -> tuple[int, paramiko.Message]:
        deadline = time.monotonic() + _LONGEST_SILENCE
        while time.monotonic() < deadline:
            try:
                heard = self._received.get(timeout=0.5)  # repeated: on Windows, an endless wait ignores Ctrl-C
            except queue.Empty:
                if self.alive:
                    continue
                heard = None
            if heard is None:
                error = self.transport.get_exception()
                raise ServerHungUp(self._last_message or str(error or "it closed the connection"))
            return heard
        raise ServerHungUp(f"no reply came within {_LONGEST_SILENCE:.0f} s")

    def _reply(self) -> Verdict | InfoRequest | Expired | Acceptable:
        number, message = self._receive()
        if number == _SUCCESS:
            return Verdict(success=True)
        if number == _METHOD_SPECIFIC:
            if self.auth_method == "publickey":
                return Acceptable()
            return Expired() if self.auth_method == "password" else _info_request(message)
        left = tuple(name for name in _text(message).split(",") if name)
        return Verdict(partial=message.get_boolean(), left=left)


def _info_request(message: paramiko.Message) -> InfoRequest:
    title, instructions, _language = _text(message), _text(message), _text(message)
    count = min(message.get_int(), 100)  # it may be wrong: prompts beyond the end of the message are read as empty
    return InfoRequest(title, instructions, tuple((_text(message), message.get_boolean()) for _ in range(count)))


def _text(message: paramiko.Message) -> str:
    return message.get_binary().decode(errors="replace")


def _message(number: int, *fields: str | bytes | bool | int) -> paramiko.Message:
    message = paramiko.Message()
    message.add_byte(bytes([number]))
    for field in fields:
        if isinstance(field, bool):
            message.add_boolean(field)
        elif isinstance(field, int):
            message.add_int(field)
        else:
            message.add_string(field)
    return message
