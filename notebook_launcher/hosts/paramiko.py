"""A login node over SSH by paramiko: one authenticated transport for every command, stream and tunnel."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import cast

from notebook_launcher.answer import Answer
from notebook_launcher.errors import ConnectionFailed, ConnectionLost, HostCommandFailed
from notebook_launcher.hosts.base import (
    OUTPUT_BEGINS,
    RUN_TIMEOUT,
    ByteStream,
    Host,
    LineStream,
    Link,
    OnEnd,
    OnLine,
    Onward,
    command_line,
)
from notebook_launcher.hosts.ssh_auth import Credentials, authenticate
from notebook_launcher.hosts.ssh_library import paramiko
from notebook_launcher.hosts.ssh_settings import Destination, SshSettings, resolve
from notebook_launcher.hosts.ssh_trust import check_host_key, known_keys, preferred_algorithms

DEAD_AFTER = 60  # seconds in which no byte of ours is acknowledged
PATIENCE_FOR_ANSWERS = 600  # seconds that the user may take to find a second factor; paramiko's own limit is 30
KEEPALIVE = 15  # seconds; below the idle limits of firewalls and NAT boxes

# What goes wrong is told by our errors; paramiko's own log lines would land on the user's terminal.
for _noisy in ("paramiko", "sshtunnel"):
    logging.getLogger(_noisy).addHandler(logging.NullHandler())
    logging.getLogger(_noisy).propagate = False


def connect(
    settings: SshSettings, credentials: Credentials, over: ByteStream | None = None, vouched: Iterable[str] = ()
) -> paramiko.Transport:
    """Return an authenticated transport to a server whose host key was checked.

    ``over``: an open byte stream to it, else the way that the settings tell. ``vouched``: see ``check_host_key``.
    Raises ``ConnectionFailed``, ``HostKeyChanged``, ``HostKeyUnknown`` or ``AuthenticationFailed``.
    """
    stream = over or _open_way(settings, credentials)
    transport = None
    try:
        transport = paramiko.Transport(cast(socket.socket, stream))
        transport.auth_timeout = PATIENCE_FOR_ANSWERS
        options = transport.get_security_options()
        options.key_types = preferred_algorithms(known_keys(settings), options.key_types)
        transport.start_client(timeout=settings.connect_timeout)
        check_host_key(settings, transport.get_remote_server_key(), credentials.prompts, vouched)
        authenticate(transport, settings, credentials)
        transport.set_keepalive(KEEPALIVE)
    except BaseException as error:
        if transport is not None:
            transport.close()
        stream.close()
        if isinstance(error, paramiko.SSHException | EOFError | OSError):
            raise ConnectionFailed(f"{settings.destination} does not speak SSH with us.", why=str(error)) from None
        raise
    return transport


def _open_way(settings: SshSettings, credentials: Credentials) -> ByteStream:
    if settings.proxy_jump:
        return _through_jumps(settings, credentials)
    if settings.proxy_command:
        command = _expanded(settings.proxy_command, settings)
        return cast(ByteStream, _ProxyCommand(["/bin/sh", "-c", f"exec {command}"]))
    try:
        connection = socket.create_connection((settings.hostname, settings.port), settings.connect_timeout)
    except (socket.gaierror, UnicodeError) as error:  # UnicodeError: "a..b" is no name at all
        raise ConnectionFailed(
            f"The name {settings.hostname} is not known.",
            why=str(error),
            mend="is it spelled right, and is there a network (or a VPN to be switched on)?",
        ) from None
    except OSError as error:
        raise ConnectionFailed(
            f"{settings.hostname} port {settings.port} cannot be reached.",
            why=str(error),
            mend="is there a network (or a VPN to be switched on)? is the port right?",
        ) from None
    # Nagle's algorithm against delayed acknowledgements cost 40 ms on every small request through the tunnel
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux: a cut network ends every call, and not after a quarter of an hour
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * DEAD_AFTER)
    return connection


class _ProxyCommand(paramiko.ProxyCommand):
    """A proxy command in a session of its own: Ctrl-C in our terminal must not cut the way that ends the job."""

    def __init__(self, argv: list[str]) -> None:
        self.cmd = argv
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, bufsize=0, start_new_session=True)  # fmt: skip
        self.timeout = None

    def close(self) -> None:
        """End the command; it may have ended already."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2)


def _through_jumps(settings: SshSettings, credentials: Credentials) -> ByteStream:
    stream: ByteStream | None = None
    hops = [resolve(Destination.parse(hop, config_file=settings.config_file)) for hop in settings.proxy_jump]
    for hop, onward in zip(hops, [*hops[1:], settings], strict=True):
        if stream is not None:  # the jump's own way is the stream so far
            hop = dataclasses.replace(hop, proxy_jump=(), proxy_command=None)
        transport = connect(hop, credentials, stream)
        stream = _tcp_channel(transport, (onward.hostname, onward.port), settings.connect_timeout, hop.destination)
    return cast(ByteStream, stream)


def _tcp_channel(transport: paramiko.Transport, address: tuple[str, int], timeout: float, label: str) -> ByteStream:
    try:
        return transport.open_channel("direct-tcpip", address, ("127.0.0.1", 0), timeout=timeout)
    except (paramiko.SSHException, EOFError) as error:
        raise ConnectionFailed(
            f"{label} makes no connection to {address[0]} port {address[1]}.", why=str(error)
        ) from None


def _expanded(command: str, settings: SshSettings) -> str:
    tokens = {
        "%h": settings.hostname,
        "%p": str(settings.port),
        "%r": settings.user,
        "%n": settings.destination,
        "%%": "%",
    }
    result, rest = "", command
    while rest:
        token = tokens.get(rest[:2])
        result += token if token is not None else rest[0]
        rest = rest[2 if token is not None else 1 :]
    return result


def link_onward(host: Host, onward: Onward, settings: SshSettings, credentials: Credentials) -> Link:
    """Return a link to a server behind a host, entered as ``settings`` and ``credentials`` say. Raises as ``connect``.

    ``settings`` are those of the way that we came: the name that the host has for the server is not one that our own
    ssh configuration knows.
    """
    settings = dataclasses.replace(
        settings,
        destination=onward.name,
        hostname=onward.name,
        port=22,
        host_key_alias=None,
        proxy_jump=(),
        proxy_command=None,
        batch=settings.batch or not onward.asking,
    )
    if onward.key is not None:
        credentials = Credentials.of_key(onward.key)
        settings = dataclasses.replace(settings, identity_files=(), identities_only=False, batch=True)
    try:
        if onward.address is not None:
            stream = host.open_stream(onward.address, settings.connect_timeout)
        else:
            stream = host.open_process(onward.command, login_shell=True)
    except (OSError, HostCommandFailed) as error:
        raise ConnectionFailed(f"{host.label} makes no connection to {onward.name}.", why=str(error)) from None
    transport = connect(settings, credentials, stream, onward.host_keys)
    return _ParamikoLink(lambda: transport, owned=True)


class _ParamikoLink(Link):
    """A transport, which may be lent: then it is the host's present one, and stays open."""

    def __init__(self, transport: Callable[[], paramiko.Transport], *, owned: bool) -> None:
        self._transport, self._owned = transport, owned

    def open(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        return _open_channel(self._transport(), address, timeout)

    @property
    def alive(self) -> bool:
        return self._transport().is_active()

    def close(self) -> None:
        if self._owned:
            self._transport().close()


def _open_channel(transport: paramiko.Transport, address: tuple[str, int], timeout: float) -> ByteStream:
    try:
        channel = transport.open_channel("direct-tcpip", address, ("127.0.0.1", 0), timeout=timeout)
    except (paramiko.SSHException, EOFError) as error:
        raise OSError(str(error)) from None
    return _ChannelBytes(channel)


class _ChannelBytes:
    """A channel as a socket: one that breaks says so, where paramiko's looks as if the far end had finished."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel
        self.send, self.sendall = channel.send, channel.sendall
        self.settimeout, self.shutdown, self.close = channel.settimeout, channel.shutdown, channel.close

    def recv(self, count: int) -> bytes:
        """Return what has come. Raises ``ConnectionResetError`` where the transport broke."""
        data = self._channel.recv(count)
        if not data and not self._channel.eof_received:
            raise ConnectionResetError("the SSH connection broke")
        return data


def _skip_what_shells_say(channel: paramiko.Channel) -> None:
    """Read away what start-up files of a shell print before a command's own output."""
    line = b""
    while line != f"{OUTPUT_BEGINS}\n".encode():
        line = b"" if line.endswith(b"\n") else line
        byte = channel.recv(1)
        if not byte:
            raise OSError("it ended at once")
        line = (line + byte)[-1024:]


class ParamikoHost(Host):
    """A login node. Made connected by ``open``; every channel runs on its one transport."""

    remote = True

    def __init__(
        self, transport: paramiko.Transport, destination: Destination, settings: SshSettings, credentials: Credentials
    ) -> None:
        self.transport = transport
        self.settings = settings
        self.credentials = credentials
        self.label = settings.destination
        self._destination = destination

    @classmethod
    def open(cls, destination: Destination, credentials: Credentials) -> ParamikoHost:
        """Connect and log in; raises what ``connect`` raises."""
        settings = resolve(destination)
        return cls(connect(settings, credentials), destination, settings, credentials)

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", login_shell: bool = False, timeout: float = RUN_TIMEOUT
    ) -> Answer:
        """Run a command in a channel of its own."""
        channel = self._execute(argv, login_shell=login_shell)
        deadline = time.monotonic() + timeout
        output: list[bytes] = []
        errors: list[bytes] = []
        # three at once: a command may fill either output before it has read its input
        sender = threading.Thread(target=_send, args=(channel, stdin), daemon=True)
        reader = threading.Thread(target=_drain_quietly, args=(channel.recv_stderr, errors), daemon=True)
        try:
            channel.settimeout(timeout)
            sender.start()
            reader.start()
            _drain_until(deadline, channel, output)
            reader.join(max(0.0, deadline - time.monotonic()))
            if not channel.status_event.wait(max(0.0, deadline - time.monotonic())):
                raise TimeoutError
            exit_code = channel.recv_exit_status()
        except TimeoutError:
            raise HostCommandFailed(f"{argv[0]} did not answer within {timeout:.0f} s on {self.label}.") from None
        finally:
            channel.close()
        if exit_code == -1 and not self.transport.is_active():
            raise self._lost()
        return Answer(exit_code, _text(output).partition(f"{OUTPUT_BEGINS}\n")[2], _text(errors))

    def _execute(self, argv: Sequence[str], *, login_shell: bool) -> paramiko.Channel:
        try:
            channel = self.transport.open_session(timeout=self.settings.connect_timeout)
            channel.exec_command(command_line(argv, login_shell=login_shell))
        except (paramiko.SSHException, EOFError, OSError) as error:
            if self.transport.is_active():
                raise HostCommandFailed(f"{self.label} runs no command for us.", why=str(error)) from None
            raise self._lost() from None
        return channel

    def _lost(self) -> ConnectionLost:
        return ConnectionLost(f"The connection to {self.label} is lost.")

    def stream(self, argv: Sequence[str], on_line: OnLine, on_end: OnEnd) -> LineStream:
        """Follow a command in a channel of its own."""
        return _ChannelStream(self._execute(argv, login_shell=False), on_line, on_end)

    def open_stream(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        """Open a ``direct-tcpip`` channel, which the login node connects onward."""
        return _open_channel(self.transport, address, timeout)

    def open_process(self, argv: Sequence[str], *, login_shell: bool = False) -> ByteStream:
        """Run a command in a channel of its own."""
        channel = self._execute(argv, login_shell=login_shell)
        channel.settimeout(RUN_TIMEOUT)
        try:
            _skip_what_shells_say(channel)
        except OSError as error:
            channel.close()
            raise HostCommandFailed(f"{argv[0]} says nothing on {self.label}.", why=str(error)) from None
        channel.settimeout(None)
        return _ChannelBytes(channel)

    def link(self, onward: Onward | None = None) -> Link:
        """Make a second transport through this one, or lend this one."""
        if onward is None:
            return _ParamikoLink(lambda: self.transport, owned=False)
        return link_onward(self, onward, self.settings, self.credentials)

    @property
    def alive(self) -> bool:
        """Whether the transport is."""
        return self.transport.is_active()

    def reconnect(self, timeout: float = 10.0) -> None:
        """Log in once more, and close the old transport."""
        settings = resolve(self._destination)
        settings = dataclasses.replace(settings, connect_timeout=min(timeout, settings.connect_timeout))
        old, self.transport = self.transport, connect(settings, self.credentials)
        self.settings = settings
        old.close()

    def close(self) -> None:
        """Close the transport and with it every channel."""
        self.transport.close()


def _send(channel: paramiko.Channel, data: bytes) -> None:
    with contextlib.suppress(OSError):  # a command that ends without reading its input
        channel.sendall(data)
        channel.shutdown_write()


def _drain_until(deadline: float, channel: paramiko.Channel, into: list[bytes]) -> None:
    """Read to the end. Raises ``TimeoutError`` at the deadline, however much still comes."""
    data = b"more"
    while data:
        channel.settimeout(max(0.0, deadline - time.monotonic()))
        data = channel.recv(65536)
        into.append(data)


def _drain_quietly(receive: Callable[[int], bytes], into: list[bytes]) -> None:
    with contextlib.suppress(OSError):
        while data := receive(65536):
            into.append(data)


def _text(parts: list[bytes]) -> str:
    return b"".join(parts).decode(errors="replace")


class _ChannelStream(LineStream):
    def __init__(self, channel: paramiko.Channel, on_line: OnLine, on_end: OnEnd) -> None:
        self._channel = channel
        self._closed = False
        threading.Thread(target=self._follow, args=(on_line, on_end), name="watch", daemon=True).start()

    def _follow(self, on_line: OnLine, on_end: OnEnd) -> None:
        reason = "closed"
        try:
            lines = (bytes(line).decode(errors="replace").rstrip("\n") for line in self._channel.makefile("rb"))
            for _ in itertools.takewhile(lambda line: line != OUTPUT_BEGINS, lines):
                pass  # what the shell's start-up files say
            for line in lines:
                if self._closed:
                    return
                on_line(line)
        except OSError as error:
            reason = str(error)
        if not self._closed:
            on_end(reason)

    def send(self, line: str) -> None:
        with contextlib.suppress(OSError):
            self._channel.sendall((line + "\n").encode())

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError, EOFError):
            self._channel.shutdown_write()
            self._channel.close()
