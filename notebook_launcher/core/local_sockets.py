"""Whose the TCP sockets of this machine are, as Linux tells everybody; elsewhere it is not known.

A list of all of them takes milliseconds, however few there are: the kernel looks through a table with room for as many
as there may ever be. One connection it finds at once (sock_diag(7)).
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from notebook_launcher.core.frozen import Frozen

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
CONNECTED, LISTENING = "01", "0A"  # states
_DIAG, _BY_FAMILY, _REQUEST = 4, 20, 1  # NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST
_HEADER, _ASKED, _TOLD = "=IHHII", "=BBBxI", "=BBBB"  # of a message; inet_diag_req_v2, inet_diag_msg before the pair
_PAIR = struct.Struct("!HH16s16s")  # the two ports and addresses of inet_diag_sockid, and what follows in it:
_ANY = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)  # any interface and cookie
_WITHIN = 1.0  # seconds; the kernel answers at once


class LocalSocket(Frozen):
    """A socket of this machine: its address and that of its other end, as the kernel writes them, and its owner."""

    local: str
    remote: str
    state: str
    uid: int

    @property
    def port(self) -> int:
        """Its own port."""
        return int(self.local.rpartition(":")[2], 16)


def local_sockets(having: Iterable[str] = ("",)) -> Iterator[LocalSocket]:
    """Yield the TCP sockets of this machine; none where that cannot be read.

    ``having``: only those with one of these addresses, at either end. A machine may have thousands of others.
    """
    having = tuple(having)
    for table in TABLES:
        with contextlib.suppress(OSError):  # another system, or no IPv6
            for row in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                if any(address in row for address in having):
                    fields = row.split()
                    yield LocalSocket(fields[1], fields[2], fields[3], int(fields[7]))


def others_listen(port: int) -> bool:
    """Whether another user's program listens on a port of this machine."""
    us = _our_uid()
    return any(one.state == LISTENING and one.port == port and one.uid != us for one in local_sockets())


def is_from_another_user(connection: socket.socket) -> bool | None:
    """Whether another user of this machine made this connection; not root, who relays, as in a virtual machine.

    ``None``: the other end has been closed already, so nobody knows whose it was. What it has sent can still be read.
    """
    us = _our_uid()
    if us is None or not Path(TABLES[0]).exists():
        return False
    try:
        peer = connection.getpeername()
        if found := _other_end(connection):
            return _is_strange(*found, us)
        here, there, is_listed = _names(connection.getsockname()), _names(peer), False
        for _ in range(3):  # a list may change while it is read
            for one in local_sockets(there):
                if one.local in there and one.remote in here:
                    return _is_strange(one.uid, one.state, us)
                is_listed = is_listed or (one.local in here and one.remote in there)
        if is_listed and ipaddress.ip_address(peer[0]).is_loopback:
            return None  # it has been on this machine
        is_open = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == int(CONNECTED, 16)
        return False if is_open else None  # open, and on no list: it is on another machine
    except OSError:
        return None


def _is_strange(uid: int, state: str, us: int) -> bool | None:
    if uid == 0 and state != CONNECTED and us != 0:
        return None  # one that nobody owns any more is listed as root's
    return uid not in (0, us)


def _other_end(connection: socket.socket) -> tuple[int, str] | None:
    """Return the owner and the state of the socket at a connection's other end, ``None`` if the kernel finds none."""
    peer, own = connection.getpeername(), connection.getsockname()
    ends = [ipaddress.ip_address(one[0]).packed.ljust(16, b"\0") for one in (peer, own)]
    pair = _PAIR.pack(peer[1], own[1], *ends)
    asked = struct.pack(_ASKED, connection.family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + pair + _ANY
    header = struct.pack(_HEADER, struct.calcsize(_HEADER) + len(asked), _BY_FAMILY, _REQUEST, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _DIAG) as kernel:
            kernel.settimeout(_WITHIN)
            kernel.send(header + asked)
            told, (sender, _groups) = kernel.recvfrom(4096)
    except (OSError, AttributeError):  # a sandbox forbids it; or another system
        return None
    return _read_other_end(told, pair) if sender == 0 else None  # the kernel


def _read_other_end(told: bytes, pair: bytes) -> tuple[int, str] | None:
    """Read the kernel's answer. It may be an error, or a socket that listens there after the other one has ended."""
    start = struct.calcsize(_HEADER)
    at = start + struct.calcsize(_TOLD)
    end = at + len(pair) + len(_ANY)
    if len(told) < end + 20 or struct.unpack_from(_HEADER, told)[1] != _BY_FAMILY or told[at : at + len(pair)] != pair:
        return None
    _family, state, _timer, _retries = struct.unpack_from(_TOLD, told, start)
    _expires, _received, _sent, uid, _inode = struct.unpack_from("=IIIII", told, end)
    return uid, f"{state:02X}"


def _our_uid() -> int | None:
    """Return this user's number; ``None`` on Windows, where there is none."""
    return os.getuid() if hasattr(os, "getuid") else None


def _names(address: tuple[str, int]) -> set[str]:
    """Return how the kernel writes an address; an IPv4 one may be that of an IPv6 socket as well."""
    ip = ipaddress.ip_address(address[0])
    both = [ip] if ip.version == 6 else [ip, ipaddress.ip_address(f"::ffff:{ip}")]
    words = [struct.unpack(f"={len(one.packed) // 4}I", one.packed) for one in both]
    return {"".join(f"{word:08X}" for word in each) + f":{address[1]:04X}" for each in words}
