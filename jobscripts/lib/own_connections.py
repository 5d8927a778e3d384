"""Finds out whose program is at the other end of a connection, so that a server can serve only its own user's.

For servers made with Tornado: JupyterLab (``jupyter_server_config.py``) and the dashboard of Dask (``dask_node.py``).
Runs in any Python that the session's environment has.
"""

import contextlib
import errno
import ipaddress
import os
import socket
import struct
from pathlib import Path

from tornado.httpserver import HTTPServer

CONNECTED, LISTENING = "01", "0A"  # states of a socket in /proc/net/tcp
# linux/netlink.h, linux/sock_diag.h and linux/inet_diag.h
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, HEADER_SIZE = 4, 20, 1, 16
ANY_STATE, NO_COOKIE = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
OVERFLOW = 65534  # the uid of all users that are not mapped in a user namespace
NOBODY = -1  # the owner of a closed socket whose owner the kernel no longer knows
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def is_root_seen(path="/proc/self/uid_map") -> bool:
    """Whether root is mapped in this user namespace; not so in the one in which a staged environment is mounted."""
    with contextlib.suppress(OSError, ValueError):
        return any(int(row.split()[1]) == 0 for row in Path(path).read_text(encoding="ascii").splitlines())
    return True


def tcp_sockets(having=("",)):
    """Yield the local and remote address, the state, the owner and the inode of each TCP socket of this machine.

    ``having``: only those with one of these addresses at either end; a node may have thousands of others.

    Every user may read this on Linux. In a container's user namespace, an owner who is not mapped has the uid 65534,
    and the user who runs this has that of ``os.geteuid``. Raises ``OSError`` if too many files are open.
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
            if error.errno in NO_ROOM:  # an overlooked socket would count as another machine's
                raise


def names_of(address: str, port: int) -> set:
    """Return an address as these tables write it; an IPv4 address may also belong to an IPv6 socket."""
    ip = ipaddress.ip_address(address)
    both = [ip] if ip.version == 6 else [ip, ipaddress.ip_address("::ffff:" + address)]
    words = [struct.unpack(f"={len(one.packed) // 4}I", one.packed) for one in both]
    return {"".join(f"{word:08X}" for word in each) + f":{port:04X}" for each in words}


def owner_of(local: tuple, remote: tuple) -> "int | None":
    """Return the owner of this machine's TCP socket with exactly these ends, or ``NOBODY``, by querying the kernel.

    That takes microseconds (sock_diag(7)). Reading the tables takes milliseconds while the server waits, because the
    kernel walks through a hash table sized for the node's memory. ``None``: unknown; the tables may still list the
    socket, for instance if it is bound to a device, and some systems do not support the query.
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
        # Otherwise the answer is not the kernel's, an error, or about a listener that would accept the connection.
        if sender == 0 and struct.unpack_from("=H", answer, 4)[0] == SOCK_DIAG_BY_FAMILY and answer[20:24] == ports:
            uid, inode = struct.unpack_from("=II", answer, 80)
            return NOBODY if uid == inode == 0 else uid
    return None


def stranger_behind(connection: socket.socket) -> "int | None":
    """Return the uid of another user of this node whose program made this connection; ``None`` if there is none.

    Programs of root are accepted: some SSH servers connect as root, and root can read the token anyway. ``NOBODY``: the
    socket has been closed. A closed socket may be listed with root as its owner and inode 0, perhaps with an old state.
    """
    peer, us = connection.getpeername(), os.geteuid()
    owner = owner_of(peer[:2], connection.getsockname()[:2])
    if owner is not None:
        return None if owner in (0, us) else owner
    here, there, is_listed = names_of(*connection.getsockname()[:2]), names_of(*peer[:2]), False
    for _ in range(3):  # the table may change while it is read
        for local, remote, state, owner, inode in tcp_sockets(there):
            if local in there and remote in here:
                # a socket may be closed while its row is printed: then its inode is 0, and its owner becomes root
                if owner == 0 and (inode == 0 or (state != CONNECTED and us != 0)):
                    return NOBODY
                return None if owner in (0, us) else owner
            is_listed = is_listed or (local in here and remote in there)
    if is_listed and ipaddress.ip_address(peer[0]).is_loopback:
        return NOBODY
    # The connection is from another machine, or has been closed, though data that it has sent could still be read.
    is_open = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == int(CONNECTED, 16)
    return None if is_open else NOBODY


def turn_strangers_away(warn) -> None:
    """Close at once connections of other users of this node to this server, whatever token or cookie they send.

    Both can be stolen: a browser sends cookies to every port of a host name, and an open tab sends the token to
    whoever now has the port that led to this session. All routes to this server end in a program of its user: sshd
    drops root's privileges before it connects. ``warn``: takes a sentence with ``%d`` and a uid.
    """
    if not Path("/proc/net/tcp").exists():
        return
    serve, known = HTTPServer.handle_stream, set()

    def handle_stream(server: HTTPServer, stream, address):
        if stream.socket.family not in (socket.AF_INET, socket.AF_INET6):  # a Unix socket of an extension
            return serve(server, stream, address)
        try:
            stranger = stranger_behind(stream.socket)
        except OSError:  # it has disconnected
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
