"""This machine as a host: a login node that the user is logged in to, or any machine with the embedded scheduler."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, BinaryIO

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import HostCommandFailed
from notebook_launcher.core.interrupts import Uninterrupted
from notebook_launcher.hosts.base import (
    RUN_TIMEOUT,
    ByteStream,
    Host,
    HostRoute,
    LineStream,
    NextHop,
    NoPrompts,
    OnEnd,
    OnLine,
    Prompts,
    Route,
)
from notebook_launcher.hosts.commands import bound_to_stdin
from notebook_launcher.hosts.output import Output, TooMuchOutput, lines_of

if TYPE_CHECKING:
    from notebook_launcher.hosts.paramiko.login import Credentials


class LocalHost(Host):
    """Runs commands as child processes, in a session of their own, so that Ctrl-C reaches only the launcher.

    ``login_shell`` has no effect: the user is logged in, with the modules they loaded. ``prompts``: used if a route to
    another machine needs a secret.
    """

    alive = True

    def __init__(self, prompts: Prompts | None = None) -> None:
        self._prompts = prompts
        self._credentials: Credentials | None = None

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", login_shell: bool = False, timeout: float = RUN_TIMEOUT
    ) -> CommandResult:
        """Run a command as a child process; a missing command gives exit code 127, as from a shell."""
        try:
            child = subprocess.Popen(
                argv,
                bufsize=0,  # closing a buffered pipe would wait for the buffer's lock
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except FileNotFoundError:
            return CommandResult(127, stderr=f"{argv[0]}: command not found")
        except OSError as error:
            return CommandResult(126, stderr=f"{argv[0]}: {error.strerror}")
        with child:
            try:
                stdout, stderr = _communicate(child, stdin, timeout)
            except TimeoutError:
                raise HostCommandFailed(f"{argv[0]} did not answer within {timeout:.0f} s on this machine.") from None
            except TooMuchOutput as error:
                raise error.as_error(argv[0], "this machine") from None
            finally:
                if child.returncode is None:
                    _kill(child)
        return CommandResult(child.returncode, stdout, stderr)

    def stream(self, argv: Sequence[str], on_line: OnLine, on_end: OnEnd) -> LineStream:
        """Start a command as a child process and follow its output."""
        return _ChildStream(argv, on_line, on_end)

    def open_stream(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        """Connect a socket."""
        connection = socket.create_connection(address, timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(None)  # the timeout is for connecting only: an open connection may be silent for hours
        return connection

    def open_process(self, argv: Sequence[str], *, login_shell: bool = False) -> ByteStream:
        """Start a child process on one end of a socket pair."""
        return ChildBytes(argv)

    def terminal(
        self, argv: Sequence[str], *, login_shell: bool = False, until: Callable[[], bool] = lambda: False
    ) -> int:
        """Run a child process in a terminal of its own, so that it cannot outlive the launcher."""
        from notebook_launcher.hosts.terminal import run_in_terminal

        return run_in_terminal(argv, until)

    def pass_through(
        self, argv: Sequence[str], *, login_shell: bool = False, until: Callable[[], bool] = lambda: False
    ) -> int:
        """Run a child process that writes to our output."""
        child = subprocess.Popen(bound_to_stdin(argv), stdin=subprocess.PIPE, start_new_session=True)
        with child:
            try:
                while not until():
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        code = child.wait(0.5)
                        return 128 - code if code < 0 else code
                return -1
            finally:
                _end_gently(child)

    def open_route(self, hop: NextHop | None = None) -> Route:
        """Connect to a server from here, with paramiko."""
        if hop is None:
            return HostRoute(self)
        from notebook_launcher.hosts.paramiko.host import open_ssh_route
        from notebook_launcher.hosts.paramiko.login import Credentials
        from notebook_launcher.hosts.ssh_config import Destination, resolve

        if self._credentials is None:
            self._credentials = Credentials(self._prompts or NoPrompts())
        return open_ssh_route(self, hop, resolve(Destination(hop.name)), self._credentials)

    def reconnect(self, timeout: float = 10.0, replace: Callable[[], bool] = lambda: True) -> None:
        """Do nothing, because there is no connection that could break."""

    def close(self) -> None:
        """Do nothing."""


class ChildBytes:
    """A child process's standard input and output as a ``ByteStream``; its standard error is dropped."""

    def __init__(self, argv: Sequence[str]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self.child = subprocess.Popen(
                    argv,
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise HostCommandFailed(f"{argv[0]} cannot be run on this machine.", why=str(error)) from None
        self.send, self.sendall, self.recv = ours.send, ours.sendall, ours.recv
        self.shutdown, self.settimeout, self.fileno = ours.shutdown, ours.settimeout, ours.fileno
        self._socket = ours

    def close(self) -> None:
        """Close the stream and end the process."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(timeout=2)
            except subprocess.TimeoutExpired:
                _kill(self.child)


def _communicate(child: subprocess.Popen[bytes], data: bytes, timeout: float) -> tuple[str, str]:
    """Send a command its input, and return its two outputs. Raises ``TimeoutError`` or ``TooMuchOutput``."""
    deadline = time.monotonic() + timeout
    outputs = {child.stdout: Output(), child.stderr: Output(errors=True)}
    problems: list[TooMuchOutput] = []

    def send() -> None:
        rest = memoryview(data)
        with contextlib.suppress(OSError, ValueError):  # it ended without reading its input, or the pipe was closed
            while child.stdin and rest:
                rest = rest[child.stdin.write(rest) :]
        with contextlib.suppress(OSError, ValueError):
            if child.stdin:
                child.stdin.close()

    def receive(pipe: IO[bytes], output: Output) -> None:
        try:
            while part := pipe.read(65536):
                output.add(part)
        except TooMuchOutput as error:
            problems.append(error)
            _kill(child)
        except ValueError:  # closed after a timeout, while a process that the command left behind still writes
            pass

    threads = [threading.Thread(target=send, daemon=True)]
    threads += [threading.Thread(target=receive, args=one, daemon=True) for one in outputs.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if problems:
        raise problems[0]
    # an interrupt could leave Popen's lock locked, and nothing could wait for the child again
    with Uninterrupted(functools.partial(_kill, child)), contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(max(0.0, deadline - time.monotonic()))
    if child.returncode is None or any(thread.is_alive() for thread in threads):
        _kill(child)
        raise TimeoutError
    stdout, stderr = (output.text() for output in outputs.values())
    return stdout, stderr


def _end_gently(child: subprocess.Popen[bytes]) -> None:
    """Close a command's input, and give the command time to end its child processes."""
    if child.stdin:
        child.stdin.close()
    try:
        child.wait(timeout=5)
    except subprocess.TimeoutExpired:
        _kill(child)


def _kill(child: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """Kill a process with all its children."""
    if hasattr(os, "killpg"):  # not on Windows
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    child.kill()
    child.wait()


class _ChildStream(LineStream):
    def __init__(self, argv: Sequence[str], on_line: OnLine, on_end: OnEnd) -> None:
        self._child = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._closed = False
        threading.Thread(target=self._follow, args=(on_line, on_end), name="watch", daemon=True).start()

    def _follow(self, on_line: OnLine, on_end: OnEnd) -> None:
        output: BinaryIO = self._child.stdout  # type: ignore[assignment]
        for line in lines_of(output.readline):
            if self._closed:
                return
            on_line(line)
        if not self._closed:
            on_end(f"exit code {self._child.wait()}")

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            if self._child.stdin:
                self._child.stdin.close()
        try:
            self._child.wait(timeout=2)
        except subprocess.TimeoutExpired:
            _kill(self._child)
