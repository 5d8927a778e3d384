"""A shell on a host, started in advance, that waits for one command; a login shell has read its start-up files by then.

A command with input takes three round trips over SSH: for a channel, for the command, and for its input, which may only
follow then. With a shell that was started while the launcher did something else, it takes one, and a login shell's
start-up files, which may take seconds, have been read.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import LauncherError
from notebook_launcher.hosts.framing import WAITS, Frame, NoFrame, Readable
from notebook_launcher.hosts.login_setup import NONE, LoginSetup
from notebook_launcher.hosts.output import Output

ROOM_AFTER = 0.5  # seconds for a server to notice that a session has ended
ROOM_WITHIN = 20.0  # seconds for a login shell to read its start-up files before it makes room
USED_WITHIN = WAITS / 2  # seconds from its start, by the wall clock; an older shell may have ended, and is not used
_thread = threading.local()


class Stream(Readable, Protocol):
    """A command's input and output: the methods of ``ByteStream`` that are needed here."""

    def sendall(self, data: bytes, /) -> None:
        """Send all of the data."""

    def shutdown(self, how: int, /) -> None:
        """Shut down one direction."""

    def close(self) -> None:
        """Close both directions."""


class NotYetStarted(TimeoutError):
    """The shell's start-up files took longer than the command's timeout; it was not run."""


class WaitingShell:
    """One shell. ``start`` starts a line in the remote shell, and returns its input and output as a stream."""

    def __init__(self, start: Callable[[str], Stream], setup: LoginSetup, *, login_shell: bool = True) -> None:
        #: what it runs at its start, for messages
        self.setup = setup
        self._name = "login shell" if login_shell else "shell"
        self._frame, self._began = Frame(setup), time.time()
        self._line = self._frame.waiting_line(login_shell=login_shell)
        self._stream: Stream | None = None
        self._lock = threading.Lock()
        self._closed = False
        #: seconds that its start took
        self.took = 0.0
        self._thread = threading.Thread(target=self._start, args=(start,), name="waiting shell", daemon=True)
        self._thread.start()

    def _start(self, start: Callable[[str], Stream]) -> None:
        _thread.starts_shell = True
        began, stream = time.monotonic(), None
        with contextlib.suppress(LauncherError, OSError):  # the next command will find out why
            stream = start(self._line)
            self._frame.skip_to_beginning(stream)
            self.took = time.monotonic() - began
            with self._lock:
                if not self._closed:
                    self._stream, stream = stream, None
        if stream is not None:
            stream.close()

    def run(self, argv: Sequence[str], stdin: bytes, timeout: float) -> CommandResult | None:
        """Run the command, once; ``None``: the shell cannot be used, and nothing was run.

        ``timeout``: seconds for the start-up files, if they still run, and again for the command.
        Raises ``NotYetStarted``, after which nothing was run either. After ``TimeoutError``, ``TooMuchOutput``,
        ``NoFrame`` (the shell ended without an answer) or another ``OSError`` the command may have been run.
        """
        self._thread.join(timeout)
        deadline = time.monotonic() + timeout  # for the command alone; start-up files had as long
        with self._lock:
            stream, self._stream, self._closed = self._stream, None, True
        if self._thread.is_alive():  # another shell would take as long
            raise NotYetStarted
        if stream is None:
            return None
        with contextlib.closing(stream):
            if not 0 <= time.time() - self._began < USED_WITHIN:
                return None
            stream.settimeout(timeout)
            sent = self._frame.words(argv) + stdin
            # on a thread of its own: a command may fill its output before it has read its input
            threading.Thread(target=_send, args=(stream, sent), name="input", daemon=True).start()
            return self._answer(stream, deadline)

    def _answer(self, stream: Stream, deadline: float) -> CommandResult | None:
        """Return the result, ``None`` if the shell ended before it had received the whole command."""
        output, last, tail = Output(), self._frame.last_line, b""
        while (left := deadline - time.monotonic()) > 0:  # the deadline holds even if data still arrive
            stream.settimeout(left)
            data = stream.recv(65536)
            if not data:
                if self._frame.is_taken(output.text()):
                    raise NoFrame(f"the {self._name} there ended without an answer")
                return None
            output.add(data)
            tail = (tail + data)[-len(last) :]
            if tail == last and (answer := self._frame.read_answer(output.text())):
                return answer
        raise TimeoutError

    @property
    def waits(self) -> bool:
        """Whether it has read its start-up files."""
        return self._stream is not None

    def close(self, within: float = 0.0) -> None:
        """End the shell, if it still waits; may be called twice.

        If its start-up files are still running, it ends after them, as no server ends a command whose client has gone;
        this waits for that, for at most ``within`` seconds.
        """
        with self._lock:
            stream, self._stream, self._closed = self._stream, None, True
        if stream is not None:
            stream.close()
        elif within:
            self._thread.join(within)


class WaitingShells:
    """The shells that wait on one host: a login shell, and others. ``start``: as for ``WaitingShell``."""

    def __init__(self, start: Callable[[str], Stream]) -> None:
        self._start = start
        self._login_shell: WaitingShell | None = None
        self._others: list[WaitingShell] = []

    def start_login_shell(self, setup: LoginSetup) -> None:
        """Start a login shell, and end the one that waits."""
        if before := self.take_login_shell():
            before.close()
        self._login_shell = WaitingShell(self._start, setup)

    def start_shells(self, count: int) -> None:
        """Start shells that are not login shells."""
        self._others += [WaitingShell(self._start, NONE, login_shell=False) for _ in range(count)]

    def take_login_shell(self) -> WaitingShell | None:
        """Return the login shell for its command, if there is one."""
        taken, self._login_shell = self._login_shell, None
        return taken

    def take_shell(self) -> WaitingShell | None:
        """Return a shell that is not a login shell for its command, if there is one."""
        with contextlib.suppress(IndexError):
            return self._others.pop()
        return None

    def close(self, within: float = 0.0) -> bool:
        """End all of them, and return whether there were any. ``within``: as in ``WaitingShell.close``, for all."""
        shells, self._others = self._others, []
        login_shell = self.take_login_shell()
        shells = [*shells, login_shell] if login_shell else shells
        by = time.monotonic() + within
        for one in shells:
            one.close(max(0.0, by - time.monotonic()))
        return bool(shells)

    def make_room(self) -> bool:
        """End shells because the server refuses another session, and return whether there were any.

        Shells that wait make room at once; only if there are none, the others are ended, after their start-up files.
        """
        if getattr(_thread, "starts_shell", False):  # the server refuses one of these shells
            return False
        there_were = self._close_waiting() or self.close(ROOM_WITHIN)
        if there_were:
            time.sleep(ROOM_AFTER)
        return there_were

    def _close_waiting(self) -> bool:
        """End the shells that have read their start-up files, and return whether there were any."""
        waiting = [one for one in self._others if one.waits]
        for one in waiting:
            with contextlib.suppress(ValueError):  # it was taken just now
                self._others.remove(one)
        there = self._login_shell  # another thread may take it meanwhile
        if there and there.waits and (login_shell := self.take_login_shell()):
            waiting.append(login_shell)
        for one in waiting:
            one.close()
        return bool(waiting)


def _send(stream: Stream, data: bytes) -> None:
    with contextlib.suppress(OSError):  # a shell, or a command, that ends without reading its input
        stream.sendall(data)
        stream.shutdown(socket.SHUT_WR)
