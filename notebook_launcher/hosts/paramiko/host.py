"""A login node over SSH with paramiko: one authenticated transport for every command, stream and tunnel."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Sequence

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import ConnectionFailed, HostCommandFailed
from notebook_launcher.core.interrupts import Uninterrupted
from notebook_launcher.hosts.base import (
    RUN_TIMEOUT,
    ByteStream,
    Host,
    HostRoute,
    LineStream,
    NextHop,
    OnEnd,
    OnLine,
    Route,
)
from notebook_launcher.hosts.commands import bound_to_stdin
from notebook_launcher.hosts.framing import Frame, NoFrame, command_line
from notebook_launcher.hosts.output import Output, TooMuchOutput
from notebook_launcher.hosts.paramiko.channels import (
    ChannelBytes,
    ChannelLines,
    ChannelTerminal,
    copy_errors,
    discard_errors,
    drain_quietly,
    drain_until,
    open_channel,
    send,
    uninterrupted,
)
from notebook_launcher.hosts.paramiko.connection import open_transport
from notebook_launcher.hosts.paramiko.library import paramiko
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.hosts.remote import RemoteHost
from notebook_launcher.hosts.ssh_config import Destination, SshSettings, resolve
from notebook_launcher.hosts.terminal import (
    POLL_EVERY,
    attach_terminal,
    check_terminal,
    copy_output,
    window_size,
)


def open_ssh_route(host: Host, hop: NextHop, settings: SshSettings, credentials: Credentials) -> Route:
    """Return a route to a server behind a host, logging in with ``settings`` and ``credentials``.

    ``settings`` are those of the host: our own ssh configuration does not know the host's name for the server. The
    same secrets are used, because a compute node has the accounts of its login node. Raises what ``open_transport``
    raises.
    """
    settings = dataclasses.replace(
        settings,
        destination=hop.name,
        hostname=hop.name,
        port=22,
        host_key_alias=None,
        proxy_jump=(),
        proxy_command=None,
        batch=settings.batch or not hop.asking,
        shares_secrets_with=settings.account,
    )
    if hop.key is not None:
        credentials = Credentials.of_key(hop.key)
        settings = dataclasses.replace(settings, methods=("publickey",), batch=True)
    try:
        if hop.address is not None:
            stream = host.open_stream(hop.address, settings.connect_timeout)
        else:
            stream = host.open_process(hop.command, login_shell=True)
    except (OSError, HostCommandFailed) as error:
        raise ConnectionFailed(f"{host.label} makes no connection to {hop.name}.", why=str(error)) from None
    transport = open_transport(settings, credentials, stream, hop.host_keys)
    return _ParamikoRoute(transport)


class _ParamikoRoute(Route):
    """A route over a transport of its own."""

    def __init__(self, transport: paramiko.Transport) -> None:
        self._transport = transport

    def open(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        return open_channel(self._transport, address, timeout)

    @property
    def alive(self) -> bool:
        return self._transport.is_active()

    def close(self) -> None:
        self._transport.close()


def _is_refused(error: Exception) -> bool:
    """Whether the server refused a channel. If it refuses two threads at once, paramiko tells only one the reason."""
    return isinstance(error, paramiko.ChannelException) or str(error) == "Unable to open channel."


class ParamikoHost(RemoteHost):
    """A login node. ``open`` connects; every channel runs over its one transport."""

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
    def open(
        cls, destination: Destination, credentials: Credentials, settings: SshSettings | None = None
    ) -> ParamikoHost:
        """Connect and log in; ``settings``: the destination's, if they are known. Raises as ``open_transport``."""
        settings = settings or resolve(destination)
        return cls(open_transport(settings, credentials), destination, settings, credentials)

    def _completed(self, line: str, name: str, stdin: bytes, timeout: float) -> CommandResult:
        """Run a line in a channel of its own."""
        deadline = time.monotonic() + timeout
        channel = self._execute(line, timeout=timeout)
        with uninterrupted(channel):
            return self._answer(channel, name, stdin, deadline, timeout)

    def _answer(
        self, channel: paramiko.Channel, name: str, stdin: bytes, deadline: float, timeout: float
    ) -> CommandResult:
        output, errors = Output(), Output(errors=True)
        # three threads: a command may fill either output before it has read its input
        sender = threading.Thread(target=send, args=(channel, stdin), daemon=True)
        reader = threading.Thread(target=drain_quietly, args=(channel.recv_stderr, errors), daemon=True)
        try:
            channel.settimeout(timeout)
            sender.start()
            reader.start()
            drain_until(deadline, channel, output)
            reader.join(max(0.0, deadline - time.monotonic()))
            if not channel.status_event.wait(max(0.0, deadline - time.monotonic())):
                raise TimeoutError
            exit_code = channel.recv_exit_status()
        except TimeoutError:
            raise HostCommandFailed(f"{name} did not answer within {timeout:.0f} s on {self.label}.") from None
        except TooMuchOutput as error:
            raise error.as_error(name, self.label) from None
        finally:
            channel.close()
        if exit_code == -1 and not channel.get_transport().is_active():  # there may be another transport by now
            raise self._lost()
        return CommandResult(exit_code, output.text(), errors.text())

    def _execute(
        self, line: str, *, timeout: float = RUN_TIMEOUT, window: tuple[int, int] | None = None
    ) -> paramiko.Channel:
        """Start a line in the remote shell; ``window``: in a terminal with so many columns and rows."""
        timeout = min(timeout, self.settings.connect_timeout)
        try:
            with Uninterrupted(give_up=self.transport.close):
                channel = self.transport.open_session(timeout=timeout)
                watchdog = threading.Timer(timeout, channel.close)  # paramiko has no timeout for the answer
                watchdog.daemon = True
                watchdog.start()
                try:
                    if window is not None:
                        channel.get_pty(os.environ.get("TERM", "vt100"), *window)
                    channel.exec_command(line)
                finally:
                    watchdog.cancel()
        except (paramiko.SSHException, EOFError, OSError) as error:
            if self.transport.is_active():
                if _is_refused(error) and self._make_room():
                    return self._execute(line, timeout=timeout, window=window)
                raise HostCommandFailed(f"{self.label} does not run commands.", why=str(error)) from None
            raise self._lost() from None
        return channel

    def stream(self, argv: Sequence[str], on_line: OnLine, on_end: OnEnd) -> LineStream:
        """Follow a command in a channel of its own."""
        frame = Frame()
        return ChannelLines(self._execute(frame.command_line(argv, login_shell=False)), frame, on_line, on_end)

    def terminal(
        self, argv: Sequence[str], *, login_shell: bool = False, until: Callable[[], bool] = lambda: False
    ) -> int:
        """Attach the user's terminal to a command in a channel of its own."""
        check_terminal()
        line = command_line(argv, login_shell=login_shell, setup=self.login_setup)
        channel = self._execute(line, window=window_size())
        try:
            return self._exit_code(channel) if attach_terminal(ChannelTerminal(channel), until) else -1
        finally:
            channel.close()

    def pass_through(
        self, argv: Sequence[str], *, login_shell: bool = False, until: Callable[[], bool] = lambda: False
    ) -> int:
        """Run a command in a channel of its own, and copy its output."""
        frame = Frame(self.login_setup)
        channel = self._execute(frame.command_line(bound_to_stdin(argv), login_shell=login_shell, end=False))
        errors = threading.Thread(target=copy_errors, args=(channel,), daemon=True)
        try:
            errors.start()
            channel.settimeout(POLL_EVERY)
            cut_off = copy_output(frame, channel.recv, until)
            while cut_off is None and (errors.is_alive() or not channel.status_event.is_set()):
                cut_off = -1 if until() else None  # our standard error may be read slowly
                channel.status_event.wait(POLL_EVERY)
                errors.join(POLL_EVERY)
            return self._exit_code(channel) if cut_off is None else cut_off
        except NoFrame:
            raise self._silent(frame, "", login_shell=login_shell) from None
        finally:
            channel.close()

    def _exit_code(self, channel: paramiko.Channel) -> int:
        """Return the exit code of a command that has ended. Raises ``ConnectionLost``."""
        channel.status_event.wait(5)
        if channel.exit_status == -1 and not channel.get_transport().is_active():
            raise self._lost()
        return channel.exit_status if channel.exit_status >= 0 else 255

    def _connected(self, address: tuple[str, int], timeout: float) -> ByteStream:
        return open_channel(self.transport, address, timeout)

    def _started(self, line: str) -> ByteStream:
        channel = self._execute(line)
        threading.Thread(target=discard_errors, args=(channel,), name="standard error", daemon=True).start()
        return ChannelBytes(channel)

    def open_route(self, hop: NextHop | None = None) -> Route:
        """Open a second transport through this one, or share this one."""
        if hop is None:
            return HostRoute(self)
        return open_ssh_route(self, hop, self.settings, self.credentials)

    @property
    def alive(self) -> bool:
        """Whether the transport is active."""
        return self.transport.is_active()

    def _replaced(self, timeout: float, replace: Callable[[], bool]) -> bool:
        """Log in once more, and close the old transport."""
        settings = resolve(self._destination)
        settings = dataclasses.replace(settings, connect_timeout=min(timeout, settings.connect_timeout))
        new = open_transport(settings, self.credentials)
        if not replace():
            new.close()
            return False
        old, self.transport, self.settings = self.transport, new, settings
        old.close()
        return True

    def close(self) -> None:
        """Close the transport and with it every channel."""
        self.end_login_shell()
        self.transport.close()
