"""An authenticated transport to a server: over TCP, a proxy command or jump hosts, with its host key checked."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import logging
import socket
import struct
import sys
import time
from collections.abc import Iterable
from typing import Any, cast

from notebook_launcher.core.errors import ConnectionFailed
from notebook_launcher.core.interrupts import Uninterrupted
from notebook_launcher.hosts.base import (
    ByteStream,
)
from notebook_launcher.hosts.paramiko.host_keys import check_host_key, expected_keys, known_keys
from notebook_launcher.hosts.paramiko.keepalive import Keepalive
from notebook_launcher.hosts.paramiko.library import paramiko
from notebook_launcher.hosts.paramiko.login import Credentials, authenticate, refusal
from notebook_launcher.hosts.paramiko.negotiation import for_openssh, restrict
from notebook_launcher.hosts.paramiko.packets import Packets
from notebook_launcher.hosts.paramiko.proxy_command import ProxyCommand, expanded
from notebook_launcher.hosts.paramiko.transport import Transport
from notebook_launcher.hosts.paramiko.userauth import ServerHungUp, ServerTimedOut
from notebook_launcher.hosts.refusals import hung_up_before_version, refused_before_login
from notebook_launcher.hosts.ssh_config import Destination, SshSettings, resolve

DEAD_AFTER = 60  # seconds without an acknowledgement of data that we sent

READ_AHEAD = 128 * 1024  # bytes

_SYSTEM_TIMES = sys.platform == "linux" and sys.maxsize > 2**32  # there, a ``timeval`` is two longs

MOST_JUMPS = 10  # in a chain, where the settings of each jump host name another one

# Our errors report what goes wrong; paramiko's own log lines would appear on the user's terminal.
for _noisy in ("paramiko", "sshtunnel"):
    logging.getLogger(_noisy).addHandler(logging.NullHandler())
    logging.getLogger(_noisy).propagate = False


def open_transport(
    settings: SshSettings, credentials: Credentials, over: ByteStream | None = None, expected: Iterable[str] = ()
) -> paramiko.Transport:
    """Return an authenticated transport to a server whose host key was checked.

    ``over``: an open byte stream to it; else one is opened as the settings say. ``expected``: see ``check_host_key``.
    Raises ``ConnectionFailed``, ``HostKeyChanged``, ``HostKeyUnknown`` or ``AuthenticationFailed``.
    """
    while True:
        prompt_count = credentials.prompt_count
        try:
            return _open_once(settings, credentials, over or _open_connection(settings, credentials), expected)
        except ServerTimedOut as error:
            # the user took longer than the server waits; the next attempt uses what was typed
            if over is not None or credentials.prompt_count == prompt_count:
                raise refusal(settings, error.tried, (), str(error)) from None
        except ServerHungUp as error:
            raise refusal(settings, error.tried, (), str(error)) from None


def _open_once(
    settings: SshSettings, credentials: Credentials, stream: ByteStream, expected: Iterable[str] = ()
) -> paramiko.Transport:
    """Try once what ``open_transport`` does, over a stream that is closed on failure. Also raises ``ServerHungUp``."""
    transport, first_lines = None, list[str]()
    try:
        transport = Transport(cast(socket.socket, _AsSocket(stream)), packetizer_class=Packets)
        first_lines, watch = _first_lines(transport), Keepalive(transport)
        known = expected_keys(expected) or known_keys(settings)
        restrict(transport.get_security_options(), settings, known)
        transport.start_client(timeout=settings.connect_timeout)
        check_host_key(settings, transport.get_remote_server_key(), credentials.confirm, expected)
        if not transport.is_active():
            raise ServerTimedOut("it did not wait for the host key to be compared")
        authenticate(transport, settings, credentials)
        watch.begin()
    except BaseException as error:
        last_message = stream.last_message() if isinstance(stream, ProxyCommand) else None
        if transport is not None:
            transport.close()
        stream.close()
        if not isinstance(error, paramiko.SSHException | EOFError | OSError):
            raise
        if refused := refused_before_login(settings.destination, first_lines):
            raise refused from None
        if last_message is not None:
            what = f"The ProxyCommand that leads to {settings.destination} has ended."
            raise ConnectionFailed(what, why=last_message) from None
        if transport is not None and not transport.remote_version and not first_lines and _was_closed(error):
            raise hung_up_before_version(settings.destination, str(error) or "It was closed.") from None
        raise _no_ssh(settings, error) from None
    return transport


def _first_lines(transport: paramiko.Transport) -> list[str]:
    """Return a list that receives the lines which the server sends before SSH begins; paramiko does not keep them."""
    lines: list[str] = []
    packetizer = transport.packetizer
    readline = packetizer.readline

    def note(timeout: float) -> str:
        lines.append(readline(timeout))
        return lines[-1]

    packetizer.readline = note  # type: ignore[method-assign]
    return lines


def _was_closed(error: BaseException) -> bool:
    """Whether the connection failed because the other end closed it, and not because it was slow, for example."""
    seen = error.__cause__ or error.__context__ or error
    if isinstance(error, EOFError | ConnectionError) or isinstance(seen, EOFError | ConnectionError):
        return True
    return "Error reading SSH protocol banner" in str(error) and not isinstance(seen, TimeoutError)


def _no_ssh(settings: SshSettings, error: Exception) -> ConnectionFailed:
    if not isinstance(error, paramiko.ssh_exception.IncompatiblePeer):
        return ConnectionFailed(f"{settings.destination} does not speak SSH.", why=str(error))
    return for_openssh(f"{settings.destination} and paramiko have no algorithm in common.", str(error))


class _AsSocket:
    """A byte stream in the form that paramiko needs: it knows whether it was closed, and its errors have an errno.

    It reads ahead, because paramiko asks for the first bytes of a packet, and then for the rest of it.
    """

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream
        self.send, self.sendall, self._recv = stream.send, stream.sendall, stream.recv
        self._close, self._closed = stream.close, False
        self._ahead, self._at = b"", 0

    def settimeout(self, seconds: float | None) -> None:
        """Set the timeout of each call; on Linux in the kernel, because Python would make two system calls for each."""
        stream = self.stream
        if not (_SYSTEM_TIMES and isinstance(stream, socket.socket)):
            stream.settimeout(seconds)
            return
        # 0 means no timeout; also set if ``seconds`` is 0, when Python makes the socket non-blocking
        microseconds = max(1, int(seconds * 1e6)) if seconds else 0
        timeval = struct.pack("@ll", *divmod(microseconds, 1_000_000))
        for direction in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            stream.setsockopt(socket.SOL_SOCKET, direction, timeval)
        stream.settimeout(None if seconds else seconds)

    def recv(self, count: int) -> bytes:
        """Return the received data. Raises ``OSError``."""
        if self._at == len(self._ahead):
            try:
                self._ahead, self._at = self._recv(max(count, READ_AHEAD)), 0
            except (TimeoutError, BlockingIOError):  # BlockingIOError: a timeout in the kernel
                raise TimeoutError from None
            except OSError as error:  # one without an errno would end paramiko's thread
                raise ConnectionResetError(errno.ECONNRESET, str(error)) from None
        data = self._ahead[self._at : self._at + count]
        self._at += len(data)
        return data

    def close(self) -> None:
        """Close the stream; it may be closed already, and the connection that it uses may break meanwhile."""
        self._closed = True
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
            self._close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _open_connection(settings: SshSettings, credentials: Credentials, jumps: int = 0) -> ByteStream:
    """Open a byte stream to a server as the settings say. ``jumps``: the number of jump hosts so far."""
    if settings.proxy_jump:
        return _through_jumps(settings, credentials, jumps)
    if settings.proxy_command:
        return ProxyCommand(expanded(settings.proxy_command, settings), settings.destination)
    return _tcp_connection(settings)


def _tcp_connection(settings: SshSettings) -> socket.socket:
    for attempt in range(settings.connection_attempts):
        if attempt:
            time.sleep(1)
        try:
            connection = _try_addresses(settings)
            break
        except (socket.gaierror, UnicodeError) as error:  # UnicodeError: "a..b" is not a valid name
            why = str(error)
            if isinstance(error, socket.gaierror):  # the text of EAI_NONAME would only repeat the message
                why = "" if error.errno == socket.EAI_NONAME else error.strerror or ""
            raise ConnectionFailed(
                f"The name {settings.hostname} is not known.",
                why=why,
                hint="check its spelling, and the network (does it need a VPN?)",
            ) from None
        except OSError as error:
            problem = str(error)
    else:
        raise ConnectionFailed(
            f"{settings.hostname} port {settings.port} cannot be reached.",
            why=problem,
            hint="check the port, and the network (does it need a VPN?)",
        )
    # Nagle's algorithm with delayed acknowledgements would delay every small request through the tunnel by 40 ms
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux: if the network is cut, every call ends within this time
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * DEAD_AFTER)
    return connection


def _try_addresses(settings: SshSettings) -> socket.socket:
    """Connect to the first of a name's addresses that answers. Raises ``OSError``."""
    families = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}
    family = families.get(settings.address_family, socket.AF_UNSPEC)
    source = (settings.bind_address, 0) if settings.bind_address else None
    problem = OSError("the name has no address")
    for found in socket.getaddrinfo(settings.hostname, settings.port, family, socket.SOCK_STREAM):
        try:
            return socket.create_connection(found[4][:2], settings.connect_timeout, source)  # type: ignore[arg-type]
        except OSError as error:
            problem = error
    raise problem


def _through_jumps(settings: SshSettings, credentials: Credentials, jumps: int) -> ByteStream:
    """Connect through the jump hosts. The settings of the first one apply, which may name another jump host."""
    if jumps > MOST_JUMPS:
        raise ConnectionFailed(
            f"The jump hosts of {settings.destination} form a circle.",
            hint=f"see ProxyJump in your ssh configuration: ssh -G {settings.destination}",
        )
    hops = [resolve(Destination.parse(hop, config_file=settings.config_file)) for hop in settings.proxy_jump]
    patience = settings.connect_timeout
    hops = [dataclasses.replace(hop, connect_timeout=min(hop.connect_timeout, patience)) for hop in hops]
    stream: ByteStream | None = None
    for number, (hop, behind) in enumerate(zip(hops, [*hops[1:], settings], strict=True)):
        if stream is not None:  # the connection to this jump host is the stream so far
            hop = dataclasses.replace(hop, proxy_jump=settings.proxy_jump[:number], proxy_command=None)
        transport = _open_once(hop, credentials, stream or _open_connection(hop, credentials, jumps + 1))
        stream = _jump(transport, (behind.hostname, behind.port), patience, hop.destination)
    return cast(ByteStream, stream)


def _jump(transport: paramiko.Transport, address: tuple[str, int], timeout: float, label: str) -> ByteStream:
    """Open a connection through a jump host; closing it also closes the connection to the jump host."""
    try:
        with Uninterrupted(give_up=transport.close):
            channel = transport.open_channel("direct-tcpip", address, ("127.0.0.1", 0), timeout=timeout)
    except (paramiko.SSHException, EOFError) as error:
        transport.close()
        raise ConnectionFailed(
            f"{label} makes no connection to {address[0]} port {address[1]}.", why=str(error)
        ) from None
    close = channel.close

    def close_both() -> None:
        with contextlib.suppress(EOFError, OSError, paramiko.SSHException):  # two threads may close it at once
            close()
        transport.close()

    channel.close = close_both  # type: ignore[method-assign]
    return channel
