"""The interface of every host: run a command, write and read small files, follow lines, open a byte stream."""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Protocol, runtime_checkable

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.hosts import file_writing
from notebook_launcher.hosts.delegated_connection import DelegatedConnection
from notebook_launcher.hosts.login_setup import NONE, LoginSetup

RUN_TIMEOUT = 90.0  # seconds; enough for a slow login node with a long profile script
MAX_FILE = 4 * 1024 * 1024  # bytes; the files of a session are far smaller


class Prompts(Protocol):
    """Asks the user; implemented by the command line. Without a terminal, ``secret`` returns ``None``."""

    @property
    def asks(self) -> bool:
        """Whether there is a terminal to ask on."""

    def secret(self, text: str, *, echo: bool = False) -> str | None:
        """Ask for a password or the like. ``echo``: show it while it is typed."""

    def confirm(self, text: str) -> bool | None:
        """Ask for yes or no; no if there is no terminal."""

    def dismiss(self) -> None:
        """Close an open prompt, if any, without an answer."""


class NoPrompts:
    """Prompts without a terminal: every answer is missing."""

    asks = False

    def secret(self, text: str, *, echo: bool = False) -> str | None:
        """Return no answer."""
        return None

    def confirm(self, text: str) -> bool | None:
        """Return no."""
        return False

    def dismiss(self) -> None:
        """Do nothing."""


class ByteStream(Protocol):
    """The subset of ``socket.socket`` that SSH connections and tunnels need."""

    def send(self, data: bytes, /) -> int:
        """Send some of the data and return how much."""

    def sendall(self, data: bytes, /) -> None:
        """Send all of the data."""

    def recv(self, count: int, /) -> bytes:
        """Return up to ``count`` bytes, none at the end. Raises ``OSError`` if the stream broke before its end."""

    def shutdown(self, how: int, /) -> None:
        """Shut down one direction (``socket.SHUT_WR``: send no more, and tell the far end) and keep the other."""

    def close(self) -> None:
        """Close both directions."""

    def settimeout(self, seconds: float | None, /) -> None:
        """Set the timeout of each call."""


@runtime_checkable
class PassesOn(Protocol):
    """A stream that can itself send received data to a local connection, without a thread that waits for it."""

    def pass_on(self, near: socket.socket, /) -> None:
        """Send received data to ``near``, as much as it accepts without waiting; ``recv`` returns the rest, in order.

        The caller must send to ``near`` all that ``recv`` returns before it calls ``recv`` again.
        """


class NextHop(Frozen):
    """An SSH server behind a host: how to reach it, its host keys, and how to authenticate.

    ``address``: where it listens, as seen from the host. Without one, ``command`` is run on the host (by a login shell)
    and speaks SSH on its standard input and output. ``host_keys``: the server must have one of these (``type base64``),
    which come from a trusted source; if empty, known_hosts decides, by ``name``. ``key``: a private key in OpenSSH's
    format for this server; without one the credentials of the host are used. ``asking``: whether the user may be asked
    for further secrets.
    """

    name: str
    address: tuple[str, int] | None = None
    command: tuple[str, ...] = ()
    host_keys: tuple[str, ...] = ()
    key: str | None = field(default=None, repr=False)
    asking: bool = True


class Route(ABC):
    """An SSH connection that opens TCP connections from its far end."""

    @abstractmethod
    def open(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        """Open a TCP connection from the far end to an address. Raises ``OSError`` if that fails."""

    def delegate(
        self, local: socket.socket, address: tuple[str, int], timeout: float = 20.0
    ) -> DelegatedConnection | None:
        """Let another process connect ``local`` to an address; return ``None`` if this route has no such process.

        ``local`` must not be read or written from then on, not even after a ``DelegationFailed``. Raises ``OSError``.
        """
        return None

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether the connection is open, as far as is known without asking the far end."""

    @abstractmethod
    def close(self) -> None:
        """Close it and everything that runs over it; may be called twice."""


class LineStream(ABC):
    """A running command whose output lines go to a callback, and whose standard input stays open.

    ``on_line`` gets each line without its newline, ``on_end`` is called once, with a reason, after the last one.
    Both are called on the stream's own thread.
    """

    @abstractmethod
    def close(self) -> None:
        """Close its input, which ends the command, and stop calling the callbacks."""


OnLine = Callable[[str], None]
OnEnd = Callable[[str], None]


class CommandRunner(Protocol):
    """Anything that runs commands to completion: a host, or a wrapper around one."""

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", login_shell: bool = False, timeout: float = RUN_TIMEOUT
    ) -> CommandResult:
        """Run a command, as ``Host.run``."""


class Host(ABC):
    """Something that runs commands. Commands are argument lists; no user input reaches a shell unquoted."""

    #: its name in messages
    label: str = "this machine"
    #: whether commands run over a network
    remote: bool = False
    #: how the user authenticated: ``key ~/.ssh/id_ed25519``; empty if not known
    entered_by: str = ""
    #: what a login shell on it runs before each command
    login_setup: LoginSetup = NONE
    #: seconds for the fastest answer through a login shell so far, so that a single slow one does not count
    login_shell_took: float | None = None

    @abstractmethod
    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", login_shell: bool = False, timeout: float = RUN_TIMEOUT
    ) -> CommandResult:
        """Run a command to completion.

        ``login_shell``: with the environment of a login shell (PATH to the scheduler, ``module``). Raises
        ``ConnectionLost`` if the connection breaks, ``HostCommandFailed`` after ``timeout`` seconds.
        """

    def prepare_login_shell(self) -> None:  # noqa: B027  # on this machine there is nothing to prepare
        """Start a login shell that makes the next ``run_prepared`` quick; does not wait for it."""

    def end_login_shell(self) -> None:  # noqa: B027
        """End shells that were prepared and not used; may be called even if there are none."""

    def run_prepared(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = RUN_TIMEOUT) -> CommandResult:
        """Run a command to completion in a login shell, as ``run``; uses the prepared one, if there is one."""
        return self.run(argv, stdin=stdin, login_shell=True, timeout=timeout)

    def prepare_shells(self, count: int) -> None:  # noqa: B027  # on this machine there is nothing to prepare
        """Start shells that make ``count`` calls of ``run_script`` quick; does not wait for them."""

    def run_script(
        self, shell: str, script: bytes, words: Sequence[str], *, timeout: float = RUN_TIMEOUT
    ) -> CommandResult:
        """Run a script, which is sent along, in ``shell``, with arguments; uses a prepared shell, if there is one.

        Raises what ``run`` raises.
        """
        return self.run([shell, "-s", "--", *words], stdin=script, timeout=timeout)

    @abstractmethod
    def stream(self, argv: Sequence[str], on_line: OnLine, on_end: OnEnd) -> LineStream:
        """Start a command and follow its output. It ends when the stream is closed or the launcher dies."""

    @abstractmethod
    def open_stream(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        """Open a TCP connection *from this host* to an address. Raises ``OSError`` if that fails."""

    @abstractmethod
    def open_process(self, argv: Sequence[str], *, login_shell: bool = False) -> ByteStream:
        """Run a command on this host and return its standard input and output as one stream of bytes.

        The stream begins with the command's own output. The command ends with the stream, or with the launcher.
        """

    def terminal(
        self, argv: Sequence[str], *, login_shell: bool = False, until: Callable[[], bool] = lambda: False
    ) -> int:
        """Run a command with the user's terminal attached, and return its exit code.

        The command has a terminal of its own, which gets every key, even Ctrl-C, and the window's size. The user's
        terminal is always restored. The command ends when the connection breaks, the launcher dies or ``until`` (called
        twice a second) returns true; in the last case this returns -1. Raises ``ConnectionLost``, or ``UsageError``
        without a terminal.
        """
        raise UsageError(f"No terminal can be opened on {self.label}.")

    def pass_through(
        self, argv: Sequence[str], *, login_shell: bool = False, until: Callable[[], bool] = lambda: False
    ) -> int:
        """Run a command without a terminal or input, copy its output to ours, and return its exit code.

        The command ends when the connection breaks, the launcher dies or ``until`` (called twice a second) returns
        true; in the last case this returns -1. Raises ``ConnectionLost``.
        """
        raise UsageError(f"Nothing can be run with its output here on {self.label}.")

    @abstractmethod
    def open_route(self, hop: NextHop | None = None) -> Route:
        """Return an SSH connection to a server behind this host, or (``None``) a route that ends at this host.

        Raises ``ConnectionFailed``, ``AuthenticationFailed``, ``HostKeyChanged`` or ``HostKeyUnknown``.
        """

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether the connection to the host is open, as far as is known without asking it."""

    @abstractmethod
    def reconnect(self, timeout: float = 10.0, replace: Callable[[], bool] = lambda: True) -> None:
        """Reconnect to the host, and close the old connection once the new one is open.

        ``timeout``: seconds for the network. ``replace``: called once the new connection is open; if it returns false,
        the new one is closed instead. Known secrets are not asked for again. Everything over the old connection
        (streams, routes) ends with it. Raises what opening the host raises.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connection, if there is one; may be called twice."""

    def write_files(self, directory: str, files: Mapping[str, bytes], *, timeout: float = RUN_TIMEOUT) -> None:
        """Create ``directory`` (0700) if necessary and write ``files`` into it (0600), each one atomically.

        The contents are sent on standard input and never appear in an argument. Raises ``HostCommandFailed``, and
        ``FolderUnsafe``, before anything is written, if another user may rename a folder on the way to ``directory``.
        """
        answer = self.run(file_writing.write_command(directory), stdin=file_writing.archive(files), timeout=timeout)
        file_writing.refuse_unwritten(directory, self.label, answer)

    def files_then(
        self, directory: str, files: Mapping[str, bytes], argv: Sequence[str], mark: str
    ) -> tuple[list[str], bytes]:
        """Return a command and its input that do what ``write_files`` does and then run another command.

        A single command saves round trips. ``after_files`` reads its result, by the ``mark``, which must come from
        ``file_writing.make_mark``.
        """
        return file_writing.write_then_command(directory, argv, mark), file_writing.archive(files)

    def after_files(self, directory: str, answer: CommandResult, mark: str) -> CommandResult:
        """Return the result of the other command, from that of the command that ``files_then`` returned.

        Raises what ``write_files`` raises if the files were not written; the other command has not run then.
        """
        wrote, other = file_writing.split_answer(answer, mark)
        file_writing.refuse_unwritten(directory, self.label, wrote)
        return answer if other is None else other

    def refuse_unsafe(self, directory: str) -> None:
        """Raise ``FolderUnsafe`` if another user may rename what ``write_files`` would create in ``directory``.

        Nothing is written, and ``directory`` need not exist.
        """
        answer = self.run(file_writing.refuse_command(directory))
        file_writing.refuse_unsafe(directory, self.label, answer)

    def read_file(self, path: str) -> bytes | None:
        """Return a file's content (at most 4 MiB of it), ``None`` if it cannot be read."""
        answer = self.run(["head", "-c", str(MAX_FILE), path])
        return answer.stdout.encode() if answer.exit_code == 0 else None

    def tail(self, path: str, lines: int = 15) -> list[str]:
        """Return the last lines of a file, none if it cannot be read."""
        answer = self.run(["tail", "-n", str(lines), path])
        return answer.stdout.splitlines() if answer.exit_code == 0 else []

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class HostRoute(Route):
    """A route that ends at the host itself, over the host's own connection."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def open(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        """Open a connection from the host."""
        return self._host.open_stream(address, timeout)

    @property
    def alive(self) -> bool:
        """Whether the host's connection is open."""
        return self._host.alive

    def close(self) -> None:
        """Do nothing, because the connection belongs to the host."""
