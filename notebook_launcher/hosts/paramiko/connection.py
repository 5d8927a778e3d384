"""A login node over SSH by paramiko: one authenticated transport for every command, stream and tunnel."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import logging
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import cast

from notebook_launcher.core.command_result import Answer
from notebook_launcher.core.errors import ConnectionFailed, HostCommandFailed
from notebook_launcher.core.text import printable
from notebook_launcher.hosts.base import (
    OUTPUT_BEGINS,
    RUN_TIMEOUT,
    ByteStream,
    Host,
    HostLink,
    LineStream,
    Link,
    OnEnd,
    OnLine,
    Onward,
    RemoteHost,
    command_line,
    on_a_lifeline,
)
from notebook_launcher.hosts.paramiko.host_keys import check_host_key, known_keys, restrict, vouched_keys
from notebook_launcher.hosts.paramiko.library import paramiko
from notebook_launcher.hosts.paramiko.login import Credentials, authenticate, refusal
from notebook_launcher.hosts.paramiko.userauth import HungUp, Impatient
from notebook_launcher.hosts.ssh_config import Destination, SshSettings, resolve
from notebook_launcher.hosts.terminal import AT_ONCE, LOOK_EVERY, check_terminal, lend, pass_on, window_size, write_all

_PROHIBITED = 1  # RFC 4254, 5.1: SSH_OPEN_ADMINISTRATIVELY_PROHIBITED
DEAD_AFTER = 60  # seconds in which no byte of ours is acknowledged
MOST_JUMPS = 10  # one behind the other, each found in the configuration of the next
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
    while True:
        asked = credentials.asked
        try:
            return _connect(settings, credentials, over or _open_way(settings, credentials), vouched)
        except Impatient as error:
            # who looks for a telephone takes longer than a server waits; what was typed by then is not asked for again
            if over is not None or credentials.asked == asked:
                raise refusal(settings, error.tried, (), str(error)) from None
        except HungUp as error:
            raise refusal(settings, error.tried, (), str(error)) from None


def _connect(
    settings: SshSettings, credentials: Credentials, stream: ByteStream, vouched: Iterable[str] = ()
) -> paramiko.Transport:
    """Do what ``connect`` does, once, over a stream that is closed if it fails. Raises also ``HungUp``."""
    transport = None
    try:
        transport = paramiko.Transport(cast(socket.socket, stream if hasattr(stream, "_closed") else _AsSocket(stream)))
        known = vouched_keys(vouched) or known_keys(settings)
        restrict(transport.get_security_options(), settings, known)
        transport.start_client(timeout=settings.connect_timeout)
        check_host_key(settings, transport.get_remote_server_key(), credentials, vouched)
        if not transport.is_active():
            raise Impatient("it did not wait for the host key to be compared")
        authenticate(transport, settings, credentials)
        transport.set_keepalive(KEEPALIVE)
    except BaseException as error:
        last_word = stream.last_word() if isinstance(stream, _ProxyCommand) else None
        if transport is not None:
            transport.close()
        stream.close()
        if not isinstance(error, paramiko.SSHException | EOFError | OSError):
            raise
        if last_word is not None:
            what = f"The ProxyCommand that leads to {settings.destination} has ended."
            raise ConnectionFailed(what, why=last_word) from None
        raise ConnectionFailed(f"{settings.destination} does not speak SSH with us.", why=str(error)) from None
    return transport


class _AsSocket:
    """A byte stream as paramiko wants its socket: it knows whether it was closed, and its errors have numbers."""

    def __init__(self, stream: ByteStream) -> None:
        self.send, self.sendall, self._recv = stream.send, stream.sendall, stream.recv
        self.settimeout, self._close, self._closed = stream.settimeout, stream.close, False

    def recv(self, count: int) -> bytes:
        """Return what has come. Raises ``OSError``."""
        try:
            return self._recv(count)
        except TimeoutError:
            raise
        except OSError as error:  # of one without a number paramiko's thread dies, and all who wait for it wait on
            raise ConnectionResetError(errno.ECONNRESET, str(error)) from None

    def close(self) -> None:
        """Close it; it may have been closed already."""
        self._closed = True
        self._close()


def _open_way(settings: SshSettings, credentials: Credentials, jumps: int = 0) -> ByteStream:
    """Open a byte stream to a server as the settings tell. ``jumps``: how many lie behind us."""
    if settings.proxy_jump:
        return _through_jumps(settings, credentials, jumps)
    if settings.proxy_command:
        return _ProxyCommand(_expanded(settings.proxy_command, settings), settings.destination)
    return _tcp_connection(settings)


def _tcp_connection(settings: SshSettings) -> socket.socket:
    for attempt in range(settings.connection_attempts):
        if attempt:
            time.sleep(1)
        try:
            connection = _try_addresses(settings)
            break
        except (socket.gaierror, UnicodeError) as error:  # UnicodeError: "a..b" is no name at all
            raise ConnectionFailed(
                f"The name {settings.hostname} is not known.",
                why=str(error),
                mend="is it spelled right, and is there a network (or a VPN to be switched on)?",
            ) from None
        except OSError as error:
            problem = str(error)
    else:
        raise ConnectionFailed(
            f"{settings.hostname} port {settings.port} cannot be reached.",
            why=problem,
            mend="is there a network (or a VPN to be switched on)? is the port right?",
        )
    # Nagle's algorithm against delayed acknowledgements cost 40 ms on every small request through the tunnel
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux: a cut network ends every call, and not after a quarter of an hour
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


class _ProxyCommand:
    """A proxy command as a ``ByteStream``: its standard input and output at one end of a pair of sockets.

    paramiko's own never notices that the command has ended, and does not run on Windows. In a session of its own:
    Ctrl-C in our terminal must not cut the way that ends the job.
    """

    def __init__(self, command: str, leads_to: str) -> None:
        ours, theirs = socket.socketpair()
        windows = os.name == "nt"
        shell = os.environ.get("COMSPEC", "cmd.exe") if windows else _shell()
        argv: str | list[str] = f'"{shell}" /d /s /c "{command}"' if windows else [shell, "-c", f"exec {command}"]
        ends: int = subprocess.PIPE if windows else theirs.fileno()
        try:
            self._child = subprocess.Popen(
                argv, stdin=ends, stdout=ends, stderr=subprocess.PIPE, bufsize=0, start_new_session=True
            )
        except OSError as error:
            ours.close()
            theirs.close()
            raise ConnectionFailed(
                f"The ProxyCommand that leads to {leads_to} cannot be run.", why=str(error)
            ) from None
        if windows:  # where a socket is no file
            for carry in (_carry_in, _carry_out):
                threading.Thread(target=carry, args=(self._child, theirs), daemon=True).start()
        else:
            theirs.close()
        self._said = b""
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self.send, self.sendall, self.recv = ours.send, ours.sendall, ours.recv
        self.shutdown, self.settimeout, self.fileno = ours.shutdown, ours.settimeout, ours.fileno
        self._socket = ours

    def _listen(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in self._child.stderr or ():
                self._said = line.strip() or self._said

    def last_word(self) -> str | None:
        """Return the last line that the command has said as an error; ``None`` while it runs."""
        try:
            code = self._child.wait(0.5)  # its output ends a moment before it does
        except subprocess.TimeoutExpired:
            return None
        self._listener.join(0.5)  # what it has started may hold its standard error open
        return printable(self._said.decode(errors="replace")) or f"exit code {code}"

    def close(self) -> None:
        """Close the stream and end the command with all that it has started; it may have ended already."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(0.2)  # its input has ended, and so has it, mostly
        with contextlib.suppress(OSError):
            if hasattr(os, "killpg"):  # not on Windows
                os.killpg(self._child.pid, signal.SIGTERM)
            elif self._child.poll() is None:
                self._child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(2)


def _shell() -> str:
    """Return the user's shell, which OpenSSH runs proxy commands with."""
    shell = os.environ.get("SHELL", "")
    return shell if os.access(shell, os.X_OK) else "/bin/sh"


def _carry_in(child: subprocess.Popen[bytes], theirs: socket.socket) -> None:
    with contextlib.suppress(OSError, ValueError):
        while child.stdin and (data := theirs.recv(65536)):
            child.stdin.write(data)
    with contextlib.suppress(OSError, ValueError):
        if child.stdin:
            child.stdin.close()


def _carry_out(child: subprocess.Popen[bytes], theirs: socket.socket) -> None:
    with contextlib.suppress(OSError, ValueError):
        while child.stdout and (data := child.stdout.read(65536)):
            theirs.sendall(data)
    with contextlib.suppress(OSError):
        theirs.shutdown(socket.SHUT_RDWR)


def _through_jumps(settings: SshSettings, credentials: Credentials, jumps: int) -> ByteStream:
    """Jump from host to host. The first one is reached as its own settings tell, perhaps by a jump as well."""
    if jumps > MOST_JUMPS:
        raise ConnectionFailed(
            f"The jump hosts on the way to {settings.destination} lead in a circle.",
            mend=f"see ProxyJump in your ssh configuration: ssh -G {settings.destination}",
        )
    hops = [resolve(Destination.parse(hop, config_file=settings.config_file)) for hop in settings.proxy_jump]
    patience = settings.connect_timeout
    hops = [dataclasses.replace(hop, connect_timeout=min(hop.connect_timeout, patience)) for hop in hops]
    stream: ByteStream | None = None
    for number, (hop, onward) in enumerate(zip(hops, [*hops[1:], settings], strict=True)):
        if stream is not None:  # the jump's own way is the stream so far
            hop = dataclasses.replace(hop, proxy_jump=settings.proxy_jump[:number], proxy_command=None)
        transport = _connect(hop, credentials, stream or _open_way(hop, credentials, jumps + 1))
        stream = _jump(transport, (onward.hostname, onward.port), patience, hop.destination)
    return cast(ByteStream, stream)


def _jump(transport: paramiko.Transport, address: tuple[str, int], timeout: float, label: str) -> ByteStream:
    """Open a connection onward; when it is closed, the one to the jump host is as well."""
    try:
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


def _expanded(command: str, settings: SshSettings) -> str:
    tokens = {
        "%h": settings.hostname,
        "%p": str(settings.port),
        "%r": settings.user,
        "%n": settings.destination.rpartition("@")[2],
        "%k": settings.host_key_alias or settings.destination.rpartition("@")[2],
        "%%": "%",
    }
    return re.sub("%.", lambda found: tokens.get(found[0], found[0]), command)


def link_onward(host: Host, onward: Onward, settings: SshSettings, credentials: Credentials) -> Link:
    """Return a link to a server behind a host, entered as ``settings`` and ``credentials`` say. Raises as ``connect``.

    ``settings`` are those of the way that we came: the name that the host has for the server is not one that our own
    ssh configuration knows. It is given the same secrets: a compute node has the accounts of its login node.
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
        shares_secrets_with=settings.account,
    )
    if onward.key is not None:
        credentials = Credentials.of_key(onward.key)
        settings = dataclasses.replace(settings, methods=("publickey",), batch=True)
    try:
        if onward.address is not None:
            stream = host.open_stream(onward.address, settings.connect_timeout)
        else:
            stream = host.open_process(onward.command, login_shell=True)
    except (OSError, HostCommandFailed) as error:
        raise ConnectionFailed(f"{host.label} makes no connection to {onward.name}.", why=str(error)) from None
    transport = connect(settings, credentials, stream, onward.host_keys)
    return _ParamikoLink(transport)


class _ParamikoLink(Link):
    """A transport of its own."""

    def __init__(self, transport: paramiko.Transport) -> None:
        self._transport = transport

    def open(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        return _open_channel(self._transport, address, timeout)

    @property
    def alive(self) -> bool:
        return self._transport.is_active()

    def close(self) -> None:
        self._transport.close()


def _open_channel(transport: paramiko.Transport, address: tuple[str, int], timeout: float) -> ByteStream:
    """Raise ``ConnectionRefusedError`` or ``PermissionError`` where the far end says no, else another ``OSError``."""
    try:
        channel = transport.open_channel("direct-tcpip", address, ("127.0.0.1", 0), timeout=timeout)
    except paramiko.ChannelException as error:
        no = PermissionError if error.code == _PROHIBITED else ConnectionRefusedError
        raise no(error.text) from None
    except (paramiko.SSHException, EOFError) as error:
        broken = TimeoutError if transport.is_active() else ConnectionResetError
        raise broken(str(error) or "the SSH connection broke") from None
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


class ParamikoHost(RemoteHost):
    """A login node. Made connected by ``open``; every channel runs on its one transport."""

    def __init__(
        self, transport: paramiko.Transport, destination: Destination, settings: SshSettings, credentials: Credentials
    ) -> None:
        super().__init__()
        self.transport = transport
        self.settings = settings
        self.credentials = credentials
        self.label = settings.destination
        self.entered_by = credentials.entered_by
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
        deadline = time.monotonic() + timeout
        channel = self._execute(argv, login_shell=login_shell, timeout=timeout)
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
        if exit_code == -1 and not channel.get_transport().is_active():  # there may be another transport by now
            raise self._lost()
        return Answer(exit_code, _text(output).partition(f"{OUTPUT_BEGINS}\n")[2], _text(errors))

    def _execute(
        self,
        argv: Sequence[str],
        *,
        login_shell: bool,
        timeout: float = RUN_TIMEOUT,
        window: tuple[int, int] | None = None,
    ) -> paramiko.Channel:
        """Start a command; ``window``: in a terminal with so many columns and rows, its output not marked."""
        timeout = min(timeout, self.settings.connect_timeout)
        try:
            channel = self.transport.open_session(timeout=timeout)
            watchdog = threading.Timer(timeout, channel.close)  # paramiko waits without end for the answer
            watchdog.daemon = True
            watchdog.start()
            try:
                if window is not None:
                    channel.get_pty(os.environ.get("TERM", "vt100"), *window)
                channel.exec_command(command_line(argv, login_shell=login_shell, marked=window is None))
            finally:
                watchdog.cancel()
        except (paramiko.SSHException, EOFError, OSError) as error:
            if self.transport.is_active():
                raise HostCommandFailed(f"{self.label} runs no command for us.", why=str(error)) from None
            raise self._lost() from None
        return channel

    def stream(self, argv: Sequence[str], on_line: OnLine, on_end: OnEnd) -> LineStream:
        """Follow a command in a channel of its own."""
        return _ChannelStream(self._execute(argv, login_shell=False), on_line, on_end)

    def terminal(
        self, argv: Sequence[str], *, login_shell: bool = False, until: Callable[[], bool] = lambda: False
    ) -> int:
        """Lend the user's terminal to a command in a channel of its own."""
        check_terminal()
        channel = self._execute(argv, login_shell=login_shell, window=window_size())
        try:
            return self._exit_code(channel) if lend(_ChannelTerminal(channel), until) else -1
        finally:
            channel.close()

    def pass_through(
        self, argv: Sequence[str], *, login_shell: bool = False, until: Callable[[], bool] = lambda: False
    ) -> int:
        """Run a command in a channel of its own, and pass on what it says."""
        channel = self._execute(on_a_lifeline(argv), login_shell=login_shell)
        errors = threading.Thread(target=_pass_on_errors, args=(channel,), daemon=True)
        try:
            errors.start()
            channel.settimeout(LOOK_EVERY)
            cut_off = pass_on(channel.recv, until)
            while cut_off is None and (errors.is_alive() or not channel.status_event.is_set()):
                cut_off = -1 if until() else None  # its errors may be read slowly
                channel.status_event.wait(LOOK_EVERY)
                errors.join(LOOK_EVERY)
            return self._exit_code(channel) if cut_off is None else cut_off
        finally:
            channel.close()

    def _exit_code(self, channel: paramiko.Channel) -> int:
        """Return what a command that has ended has ended with. Raises ``ConnectionLost``."""
        channel.status_event.wait(5)
        if channel.exit_status == -1 and not channel.get_transport().is_active():
            raise self._lost()
        return channel.exit_status if channel.exit_status >= 0 else 255

    def _connected(self, address: tuple[str, int], timeout: float) -> ByteStream:
        return _open_channel(self.transport, address, timeout)

    def _started(self, argv: Sequence[str], *, login_shell: bool) -> ByteStream:
        return _ChannelBytes(self._execute(argv, login_shell=login_shell))

    def link(self, onward: Onward | None = None) -> Link:
        """Make a second transport through this one, or lend this one."""
        if onward is None:
            return HostLink(self)
        return link_onward(self, onward, self.settings, self.credentials)

    @property
    def alive(self) -> bool:
        """Whether the transport is."""
        return self.transport.is_active()

    def _replaced(self, timeout: float, replace: Callable[[], bool]) -> bool:
        """Log in once more, and close the old transport."""
        settings = resolve(self._destination)
        settings = dataclasses.replace(settings, connect_timeout=min(timeout, settings.connect_timeout))
        new = connect(settings, self.credentials)
        if not replace():
            new.close()
            return False
        old, self.transport, self.settings = self.transport, new, settings
        old.close()
        return True

    def close(self) -> None:
        """Close the transport and with it every channel."""
        self.transport.close()


class _ChannelTerminal:
    """A channel with a terminal at its far end, as ``lend`` wants it."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel
        self.fileno = channel.fileno
        channel.settimeout(0.0)

    def read(self) -> bytes | None:
        try:
            return self._channel.recv(AT_ONCE)
        except TimeoutError:
            return None

    def write(self, data: bytes) -> int:
        try:
            return self._channel.send(data)
        except TimeoutError:  # it does not read
            return 0

    def resize(self, columns: int, rows: int) -> None:
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):  # it has ended
            self._channel.resize_pty(columns, rows)


def _pass_on_errors(channel: paramiko.Channel) -> None:
    data: bytes | None = None
    with contextlib.suppress(OSError):
        while data is None or (data and write_all(2, data)):
            try:
                data = channel.recv_stderr(AT_ONCE)
            except TimeoutError:  # silent for as long as the other output may be
                data = None


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
            for _ in itertools.takewhile(lambda line: not line.endswith(OUTPUT_BEGINS), lines):
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
