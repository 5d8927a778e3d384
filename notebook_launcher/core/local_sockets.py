"""Finds the owners of this machine's TCP sockets, which Linux reports to every user; other systems do not."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from notebook_launcher.core.frozen import Frozen

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
CONNECTED, LISTENING = "01", "0A"  # states
NOBODY = -1  # the owner of a socket that its program has closed, where the kernel no longer knows the owner
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
ROOM_AGAIN_AFTER = 0.1  # seconds

# linux/netlink.h, linux/sock_diag.h and linux/inet_diag.h
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, HEADER_SIZE = 4, 20, 1, 16
ANY_STATE, NO_COOKIE = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


class LocalSocket(Frozen):
    """A socket of this machine: its address and that of its other end, as the kernel writes them, and its owner.

    ``uid``: may be root's if no program has the socket any more. ``inode``: 0 if no program has it.
    """

    local: str
    remote: str
    state: str
    uid: int
    inode: int

    @property
    def port(self) -> int:
        """The port of this machine's end."""
        return int(self.local.rpartition(":")[2], 16)


def local_sockets(having: Iterable[str] = ("",)) -> Iterator[LocalSocket]:
    """Yield the TCP sockets of this machine; none if the system does not list them.

    ``having``: only sockets with one of these addresses at either end, as a machine may have thousands of others.
    Raises ``OSError`` if too many files are open.
    """
    having = tuple(having)
    for table in TABLES:
        for row in _rows(table):
            if any(address in row for address in having):
                fields = row.split()
                yield LocalSocket(fields[1], fields[2], fields[3], int(fields[7]), int(fields[9]))


def _rows(table: str) -> list[str]:
    try:
        return Path(table).read_text(encoding="ascii").splitlines()[1:]
    except OSError as error:
        if error.errno in NO_ROOM:  # a socket that is missed would be taken for another machine's
            raise
        return []  # another system, or no IPv6


def others_listen(port: int) -> bool:
    """Whether another user's program listens on a port of this machine."""
    us = _our_uid()
    return any(one.state == LISTENING and one.port == port and one.uid != us for one in local_sockets())


def owner_of(local: tuple[str, int], remote: tuple[str, int]) -> int | None:
    """Return the user id of the owner of the TCP socket with exactly these ends, or ``NOBODY``; see sock_diag(7).

    ``None``: not known. The tables may still list the socket, for example if it is bound to a device; and some systems
    do not answer this query. It takes microseconds. Printing the tables takes milliseconds, because the kernel goes
    through a hash table whose size depends on the machine's memory; the connections of a page, which are opened at
    once, would wait for each other.
    """
    with contextlib.suppress(AttributeError, OSError, ValueError, struct.error):  # not Linux; an address with a zone
        ends = [ipaddress.ip_address(address) for address, _ in (local, remote)]
        family = socket.AF_INET if {end.version for end in ends} == {4} else socket.AF_INET6
        ports = struct.pack("!HH", local[1], remote[1])
        wanted = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, ANY_STATE) + ports
        wanted += struct.pack("=16s16sIQ", *(end.packed for end in ends), 0, NO_COOKIE)
        header = struct.pack("=IHHII", HEADER_SIZE + len(wanted), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(1)
            kernel.sendto(header + wanted, (0, 0))
            answer, (sender, _groups) = kernel.recvfrom(4096)
        # Otherwise the answer is not the kernel's, or an error, or a listening socket that accepts such connections.
        if sender == 0 and struct.unpack_from("=H", answer, 4)[0] == SOCK_DIAG_BY_FAMILY and answer[20:24] == ports:
            uid, inode = struct.unpack_from("=II", answer, 80)
            return NOBODY if uid == inode == 0 else int(uid)
    return None


def is_from_another_user(connection: socket.socket) -> bool | None:
    """Whether another user of this machine made this connection.

    Root does not count, because its programs relay connections, for example in a virtual machine. ``None``: the other
    end is closed already, and its owner is not known; what it has sent can still be read.
    """
    us = _our_uid()
    if us is None or not Path(TABLES[0]).exists():
        return False
    try:
        peer = connection.getpeername()
        owner = owner_of(peer[:2], connection.getsockname()[:2])
        if owner is not None:
            return _is_strange(owner, us)
        here, there, is_listed = _names(connection.getsockname()), _names(peer), False
        for _ in range(3):  # a list may change while it is read
            for one in local_sockets(there):
                if one.local in there and one.remote in here:
                    # a socket that is closed while its row is printed loses its inode first, and then becomes root's
                    is_open = one.inode != 0 and (one.state == CONNECTED or us == 0)
                    return _is_strange(one.uid if one.uid or is_open else NOBODY, us)
                is_listed = is_listed or (one.local in here and one.remote in there)
        if is_listed and ipaddress.ip_address(peer[0]).is_loopback:
            return None  # the other end was on this machine
        is_open = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == int(CONNECTED, 16)
        return False if is_open else None  # open, and not listed: the other end is on another machine
    except OSError:
        return None


def wait_for_room(error: OSError) -> None:
    """Wait a moment if a connection could not be accepted because too many files are open; else return at once.

    The connection stays in the kernel's queue and is reported again at once, so accepting in a loop would use a core.
    """
    if error.errno in (*NO_ROOM, errno.ENOBUFS):
        time.sleep(ROOM_AGAIN_AFTER)


def _is_strange(owner: int, us: int) -> bool | None:
    return None if owner == NOBODY else owner not in (0, us)


def _our_uid() -> int | None:
    """Return this user's id; ``None`` on Windows, which has none."""
    return os.getuid() if hasattr(os, "getuid") else None


def _names(address: tuple[str, int]) -> set[str]:
    """Return an address in the kernel's notation; an IPv4 address may also be listed as one of an IPv6 socket."""
    ip = ipaddress.ip_address(address[0])
    both = [ip] if ip.version == 6 else [ip, ipaddress.ip_address(f"::ffff:{ip}")]
    words = [struct.unpack(f"={len(one.packed) // 4}I", one.packed) for one in both]
    return {"".join(f"{word:08X}" for word in each) + f":{address[1]:04X}" for each in words}
