"""Sends and receives packets encrypted with AES-GCM in half the time that paramiko takes.

A key that is pressed is a small packet each way, and most of what the tunnel adds to its round trip is Python's time
for the two. paramiko builds and reads packets in steps that suit all its ciphers. The cipher that the launcher prefers,
and that nearly every server has, needs few of them (RFC 4253, section 6; RFC 5647, section 7). Others are left to
paramiko.
"""

from __future__ import annotations

import socket
import struct
import threading
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from notebook_launcher.hosts.paramiko.library import paramiko

BLOCK, TAG = 16, 16  # bytes
LEAST_PADDING = 4  # bytes
MOST = 256 * 1024  # bytes of a packet, as in OpenSSH; a limit, because the received length is not authenticated yet
_LENGTH, _HEAD, _NUMBER = struct.Struct(">I"), struct.Struct(">IB"), struct.Struct(">Q")
# paramiko's padding is random, which takes a system call and hides no more: each packet has its own nonce
_PADDING = [bytes(count) for count in range(BLOCK + 4)]


class Gcm:
    """A key for one direction, with its nonces: four fixed bytes, and a counter of the packets."""

    def __init__(self, key: AESGCM, first_nonce: bytes) -> None:
        self._key, self._fixed = key, first_nonce[:4]
        self._next = _NUMBER.unpack(first_nonce[4:])[0]

    def encrypt(self, plain: bytes, length: bytes) -> bytes:
        """Return the next packet after its length, with the tag that authenticates both."""
        return self._key.encrypt(self._nonce(), plain, length)

    def decrypt(self, sealed: bytes, length: bytes) -> bytes:
        """Return the plain text of the next packet. Raises ``InvalidTag``."""
        return self._key.decrypt(self._nonce(), sealed, length)

    def _nonce(self) -> bytes:
        number = self._next
        self._next = (number + 1) & 0xFFFF_FFFF_FFFF_FFFF
        return self._fixed + _NUMBER.pack(number)


class Packets(paramiko.packet.Packetizer):
    """Sends and receives the packets of a transport; without compression, which the launcher never asks for.

    With AES-GCM, it counts the bytes itself, and has the keys renewed after ``REKEY_BYTES``. A packet has at least 36
    bytes, so this limit is reached before ``REKEY_PACKETS``. New keys for another kind of cipher end the connection.
    """

    _out: Gcm | None = None
    _in: Gcm | None = None
    _sent = _received = 0  # bytes under the current keys
    _number = 0  # of the next packet that arrives
    _is_complete = False

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self._sending = threading.RLock()  # packets leave in the order of their nonces

    def complete_handshake(self) -> None:
        """End the timeout of the handshake; the transport calls this after each message."""
        if not self._is_complete:
            super().complete_handshake()
            self._is_complete = True

    def set_outbound_cipher(self, *keys: Any, **named: Any) -> None:
        """Send with these keys from now on."""
        super().set_outbound_cipher(*keys, **named)
        self._out, self._sent = _gcm(named, "iv_out", self._out), 0

    def set_inbound_cipher(self, *keys: Any, **named: Any) -> None:
        """Receive with these keys from now on."""
        super().set_inbound_cipher(*keys, **named)
        self._in, self._received = _gcm(named, "iv_in", self._in), 0

    def reset_seqno_in(self) -> None:
        """Count the packets that arrive from 0 again."""
        super().reset_seqno_in()
        self._number = 0

    def send_message(self, data: paramiko.Message) -> None:
        """Send a message as a packet. Raises ``EOFError``."""
        with self._sending:
            if self._out is None:
                super().send_message(data)
                return
            payload = data.asbytes()
            padding = BLOCK + 3 - (len(payload) + 4) % BLOCK
            head = _HEAD.pack(1 + len(payload) + padding, padding)
            length = head[:4]
            packet = length + self._out.encrypt(b"".join((head[4:], payload, _PADDING[padding])), length)
            self.write_all(packet)
            self._sent += len(packet)
            if self._sent >= self.REKEY_BYTES:
                self._renew_keys()

    def read_message(self) -> tuple[int, paramiko.Message]:
        """Return the kind of the next message, and the message. Raises ``SSHException``, ``EOFError`` and others."""
        if self._in is None:
            kind, message = super().read_message()
            self._number = message.seqno + 1
            return kind, message
        length = self.read_all(4, check_rekey=True)
        (size,) = _LENGTH.unpack(length)
        if size % BLOCK or not BLOCK <= size <= MOST:
            raise paramiko.SSHException(f"a packet of {size} bytes")
        plain = self._in.decrypt(self.read_all(size + TAG), length)
        padding = plain[0]
        if not LEAST_PADDING <= padding < size:
            raise paramiko.SSHException(f"a packet of {size} bytes with {padding} of padding")
        payload = plain[1 : size - padding]
        if not payload:
            raise paramiko.SSHException("a packet without content")
        message = paramiko.Message(payload[1:])
        message.seqno = self._number
        self._number = (self._number + 1) & 0xFFFF_FFFF
        self._received += 4 + size + TAG
        if self._received >= self.REKEY_BYTES:
            if self._received >= self.REKEY_BYTES + self.REKEY_BYTES_OVERFLOW_MAX:
                raise paramiko.SSHException("the server does not renew the keys")
            self._renew_keys()
        return payload[0], message

    def _renew_keys(self) -> None:
        """Make the transport's thread request new keys, once; other packets may be sent meanwhile."""
        if not self.need_rekey():
            self._trigger_rekey()  # type: ignore[attr-defined]


def _gcm(named: dict[str, Any], nonce: str, before: Gcm | None) -> Gcm | None:
    """Return the key that a transport sets, if it is for AES-GCM. Raises ``SSHException``."""
    key, first = named.get("block_engine"), named.get(nonce)
    if isinstance(key, AESGCM) and first is not None:
        return Gcm(key, first)
    if before is not None:  # packets under the old key are missing in paramiko's count, which other ciphers need
        raise paramiko.SSHException("the new keys are for another kind of cipher")
    return None
