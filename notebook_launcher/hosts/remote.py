"""What both engines have in common: each command's output has a frame, and a waiting shell is used if there is one."""

from __future__ import annotations

import contextlib
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import ConnectionFailed, ConnectionLost, HostCommandFailed, LoginShellSilent
from notebook_launcher.hosts import login_shell as login_shells
from notebook_launcher.hosts.base import RUN_TIMEOUT, ByteStream, Host
from notebook_launcher.hosts.commands import relay_command
from notebook_launcher.hosts.framing import Frame, NoFrame
from notebook_launcher.hosts.output import TooMuchOutput
from notebook_launcher.hosts.waiting_shell import NotYetStarted, WaitingShell, WaitingShells


class RemoteHost(Host):
    """A host over a connection; only one thread at a time reconnects."""

    remote = True

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._made = 0  # the number of reconnections
        self._waiting = WaitingShells(self._started)

    def reconnect(self, timeout: float = 10.0, replace: Callable[[], bool] = lambda: True) -> None:
        """Reconnect, unless another thread has just done so."""
        before = self._made
        if not self._one_at_a_time.acquire(timeout=timeout):
            raise ConnectionFailed(f"A connection to {self.label} is being made already.")
        try:
            if self._made == before or not self.alive:
                self.end_login_shell()
                self._made += self._replaced(timeout, replace)
        finally:
            self._one_at_a_time.release()

    def open_stream(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        """Let the login node open the connection; if it forbids forwarding, run a relay command there instead."""
        try:
            return self._connected(address, timeout)
        except PermissionError:
            return self.open_process(relay_command(address))

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", login_shell: bool = False, timeout: float = RUN_TIMEOUT
    ) -> CommandResult:
        """Run a command in a channel of its own; also raises ``LoginShellSilent`` and ``LoginSetupFailed``."""
        frame, began = Frame(self.login_setup), time.monotonic()
        try:
            done = self._completed(frame.command_line(argv, login_shell=login_shell), argv[0], stdin, timeout)
        except HostCommandFailed as error:
            error.why = self.login_setup.named_in(error.why) if login_shell else error.why
            raise
        took = time.monotonic() - began
        answer = frame.read(done.stdout)
        if answer is None:
            frame.keep(done.stdout.encode())
            raise self._silent(frame, done.stderr or done.stdout, login_shell=login_shell)
        if login_shell:
            self._note_login_shell(took)
        output, code = answer
        if code is None:
            what = f"{argv[0]} was ended on {self.label} before it had finished."
            raise HostCommandFailed(what, why=done.stderr.strip()[-500:])
        return CommandResult(code, output, done.stderr)

    def _note_login_shell(self, took: float) -> None:
        self.login_shell_took = took if self.login_shell_took is None else min(took, self.login_shell_took)

    def prepare_login_shell(self) -> None:
        """Start a login shell that waits for a command."""
        self._waiting.start_login_shell(self.login_setup)

    def run_prepared(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = RUN_TIMEOUT) -> CommandResult:
        """Run a command in the login shell that waits, or else in a channel of its own."""
        waiting, began = self._waiting.take_login_shell(), time.monotonic()
        answer = self._run_in(waiting, argv, stdin, timeout)
        if waiting and answer:
            self._note_login_shell(waiting.took + time.monotonic() - began)
        return answer or super().run_prepared(argv, stdin=stdin, timeout=timeout)

    def prepare_shells(self, count: int) -> None:
        """Start shells (not login shells) that wait for one command each."""
        self._waiting.start_shells(count)

    def run_script(
        self, shell: str, script: bytes, words: Sequence[str], *, timeout: float = RUN_TIMEOUT
    ) -> CommandResult:
        """Run a script in a shell that waits, or else in a channel of its own."""
        answer = self._run_in(self._waiting.take_shell(), [shell, "-s", "--", *words], script, timeout)
        return answer or super().run_script(shell, script, words, timeout=timeout)

    def _run_in(
        self, waiting: WaitingShell | None, argv: Sequence[str], stdin: bytes, timeout: float
    ) -> CommandResult | None:
        """Run a command in a waiting shell; ``None``: there is none, or it cannot be used, and nothing was run."""
        if waiting is None:
            return None
        try:
            return waiting.run(argv, stdin, timeout)
        except TimeoutError as error:
            what = f"{argv[0]} did not answer within {timeout:.0f} s on {self.label}."
            late = HostCommandFailed(what, why=waiting.setup.named_in(""))
            late.may_have_run = not isinstance(error, NotYetStarted)
            raise late from None
        except TooMuchOutput as error:
            raise error.as_error(argv[0], self.label) from None
        except OSError as error:
            if not self.alive:
                raise self._lost() from None
            raise HostCommandFailed(f"{argv[0]} was not answered on {self.label}.", why=str(error)) from None

    def end_login_shell(self) -> None:
        """End the waiting shells, if there are any."""
        self._waiting.close()

    def _make_room(self) -> bool:
        """End the waiting shells, and return whether there were any: some servers allow only two sessions at once."""
        return self._waiting.make_room()

    def open_process(self, argv: Sequence[str], *, login_shell: bool = False) -> ByteStream:
        """Run a command in a channel of its own."""
        frame = Frame(self.login_setup)
        stream = self._started(frame.command_line(argv, login_shell=login_shell, end=False))
        try:
            frame.skip_to_beginning(stream)
        except (NoFrame, TimeoutError):
            stream.close()
            raise self._silent(frame, "", login_shell=login_shell) from None
        except OSError as error:
            stream.close()
            raise HostCommandFailed(f"{argv[0]} says nothing on {self.label}.", why=str(error)) from None
        stream.settimeout(None)
        return stream

    def _silent(self, unanswered: Frame, printed: str, *, login_shell: bool) -> LoginShellSilent:
        """Return the error for a command without a result, after inspecting the shell's start-up files."""
        if failed := unanswered.setup_failure(self.label):
            return failed
        frame, probed = Frame(), CommandResult(0)
        with contextlib.suppress(HostCommandFailed):
            probed = self._completed(login_shells.probe(frame), "bash", b"", login_shells.PROBE_WITHIN)
        silence = login_shells.Silence(self.label, login_shell, printed)
        return login_shells.explain(silence, frame, probed.stdout, probed.stderr)

    def _lost(self) -> ConnectionLost:
        return ConnectionLost(f"The connection to {self.label} is lost.")

    @abstractmethod
    def _completed(self, line: str, name: str, stdin: bytes, timeout: float) -> CommandResult:
        """Run a line in the remote shell to completion, and return all that it printed.

        ``name``: the command's name in messages. Raises ``ConnectionLost``, or ``HostCommandFailed`` after ``timeout``
        seconds.
        """

    @abstractmethod
    def _connected(self, address: tuple[str, int], timeout: float) -> ByteStream:
        """Open a TCP connection from the host. Raises ``PermissionError`` if that is forbidden, else ``OSError``."""

    @abstractmethod
    def _started(self, line: str) -> ByteStream:
        """Start a line in the remote shell, and return its input and output from the first byte on."""

    @abstractmethod
    def _replaced(self, timeout: float, replace: Callable[[], bool]) -> bool:
        """Open a new connection, and return whether it replaced the old one."""
