"""Whose program is at the other end of a connection, and a server that serves its own user's programs alone.

For servers made with Tornado: JupyterLab (``jupyter_server_config.py``) and the dashboard of Dask (``dask_node.py``).
Runs in whatever Python the session's environment has.
"""

import contextlib
import errno
import ipaddress
import os
import socket
import struct
from pathlib import Path

from tornado.httpserver import HTTPServer

CONNECTED, LISTENING = "01", "0A"  # states of a socket, as /proc/net/tcp has them
# linux/netlink.h, linux/sock_diag.h and linux/inet_diag.h
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, HEADER_SIZE = 4, 20, 1, 16
ANY_STATE, NO_COOKIE = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
OVERFLOW = 65534  # the number of all users that a user namespace does not have
NOBODY = -1  # the owner of a socket that its program has closed, where the kernel has forgotten whose it was
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def is_root_seen(path="/proc/self/uid_map") -> bool:
    """Is root itself known here by its number? Not so in the namespace in which a staged environment is seen."""
    with contextlib.suppress(OSError, ValueError):
        return any(int(row.split()[1]) == 0 for row in Path(path).read_text(encoding="ascii").splitlines())
    return True


def tcp_sockets(having=("",)):
    """Yield the local and the remote address, the state, the owner and the inode of each TCP socket of this machine.

    ``having``: only those with one of these addresses, at either end; a node may have thousands of others.

    Linux tells this to everybody. An owner outside of a container's user namespace has the number 65534 there, and who
    runs this the one of ``os.geteuid``. Raises ``OSError`` if too many files are open.
    """
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with Path(table).open(encoding="ascii") as rows:
                next(rows, "")
                for row in rows:
                    if not any(address in row for address in having):
                        continue
                    fields = row.split()
                    yield fields[1], fields[2], fields[3], int(fields[7]), int(fields[9])
        except OSError as error:
            if error.errno in NO_ROOM:  # a socket that is not seen would pass for another machine's
                raise


def names_of(address: str, port: int) -> set:
    """Return how these tables write an address; an IPv4 one may be that of an IPv6 socket as well."""
    ip = ipaddress.ip_address(address)
    both = [ip] if ip.version == 6 else [ip, ipaddress.ip_address("::ffff:" + address)]
    words = [struct.unpack(f"={len(one.packed) // 4}I", one.packed) for one in both]
    return {"".join(f"{word:08X}" for word in each) + f":{port:04X}" for each in words}


def owner_of(local: tuple, remote: tuple) -> "int | None":
    """Return the owner of this machine's TCP socket with exactly these ends, or ``NOBODY``; the kernel is asked for it.

    That takes microseconds. To print its tables, the kernel goes through room for as many connections as the node's
    memory could hold, which takes milliseconds each time, while the server waits. ``None`` says nothing: the tables may
    still list the socket, such as one that is bound to a device, and some systems answer no such question.
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
        # Otherwise it is not the kernel's, or an error, or a listener that would take such a connection.
        if sender == 0 and struct.unpack_from("=H", answer, 4)[0] == SOCK_DIAG_BY_FAMILY and answer[20:24] == ports:
            uid, inode = struct.unpack_from("=II", answer, 80)
            return NOBODY if uid == inode == 0 else uid
    return None


def stranger_behind(connection: socket.socket) -> "int | None":
    """Return the number of another user of this node whose program made this connection; ``None``: it is none.

    Programs of root are let in: some SSH servers connect as root, and root can read the token anyway. ``NOBODY``: the
    socket has been closed. Such a one may be called root's, and has no inode; its state may have been read before that.
    """
    peer, us = connection.getpeername(), os.geteuid()
    owner = owner_of(peer[:2], connection.getsockname()[:2])
    if owner is not None:
        return None if owner in (0, us) else owner
    here, there, is_listed = names_of(*connection.getsockname()[:2]), names_of(*peer[:2]), False
    for _ in range(3):  # a table may change while it is read
        for local, remote, state, owner, inode in tcp_sockets(there):
            if local in there and remote in here:
                # a socket may be closed while its row is printed: first its inode, and then root as its owner
                if owner == 0 and (inode == 0 or (state != CONNECTED and us != 0)):
                    return NOBODY
                return None if owner in (0, us) else owner
            is_listed = is_listed or (local in here and remote in there)
    if is_listed and ipaddress.ip_address(peer[0]).is_loopback:
        return NOBODY
    # It comes from another machine, or it was there and is no more: what it has sent could still be read.
    is_open = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == int(CONNECTED, 16)
    return None if is_open else NOBODY


def turn_strangers_away(warn) -> None:
    """Close at once what another user of this node connects to this server, whatever token or cookie comes with it.

    Both can be stolen: a browser sends cookies to every port of a machine's name, and an open tab sends the token to
    whoever has the port now that led to this session. All ways to this server end in a program of its user's: sshd
    gives up root before it connects. ``warn``: takes a sentence with ``%d`` and a number.
    """
    if not Path("/proc/net/tcp").exists():
        return
    serve, known = HTTPServer.handle_stream, set()

    def handle_stream(server: HTTPServer, stream, address):
        if stream.socket.family not in (socket.AF_INET, socket.AF_INET6):  # an extension's own server
            return serve(server, stream, address)
        try:
            stranger = stranger_behind(stream.socket)
        except OSError:  # it has hung up
            stranger = NOBODY
        if stranger is None:
            return serve(server, stream, address)
        stream.close()
        if stranger >= 0 and stranger not in known:
            known.add(stranger)
            if stranger == OVERFLOW and not is_root_seen():
                return warn("notebook-launcher: a program of root or of another user was turned away")
            warn("notebook-launcher: a program of another user (%d) was turned away", stranger)
        return None

    HTTPServer.handle_stream = handle_stream
