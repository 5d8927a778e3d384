"""What every host offers: run a command, write and read small files, follow a stream of lines, open a byte stream."""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import ConnectionFailed, ConnectionLost, HostCommandFailed, UsageError

RUN_TIMEOUT = 90.0  # seconds; a slow login node with a long profile script answers well within
MAX_FILE = 4 * 1024 * 1024  # bytes; the files of a session are far smaller


class Prompts(Protocol):
    """Asks the user; given by the command line. Where nobody can be asked, ``secret`` returns ``None``."""

    @property
    def asks(self) -> bool:
        """Whether there is somebody to ask."""

    def secret(self, text: str, *, echo: bool = False) -> str | None:
        """Ask for a password or the like. ``echo``: it may be seen while it is typed."""

    def confirm(self, text: str) -> bool | None:
        """Ask for yes or no; no where nobody can be asked."""

    def dismiss(self) -> None:
        """End the question that stands, if any, without an answer."""


class Nobody:
    """Prompts where nobody can be asked."""

    asks = False

    def secret(self, text: str, *, echo: bool = False) -> str | None:
        """Return no answer."""
        return None

    def confirm(self, text: str) -> bool | None:
        """Return no."""
        return False

    def dismiss(self) -> None:
        """Nothing: no question stands."""


class ByteStream(Protocol):
    """The part of a ``socket.socket`` that an SSH connection and a tunnel need."""

    def send(self, data: bytes, /) -> int:
        """Send some of the data and return how much."""

    def sendall(self, data: bytes, /) -> None:
        """Send all of the data."""

    def recv(self, count: int, /) -> bytes:
        """Return up to ``count`` bytes, none at the end. Raises ``OSError`` where it broke before its end."""

    def shutdown(self, how: int, /) -> None:
        """End one direction (``socket.SHUT_WR``: no more is sent, and the far end is told) and keep the other."""

    def close(self) -> None:
        """Close both directions."""

    def settimeout(self, seconds: float | None, /) -> None:
        """Bound each call in time."""


@dataclass(frozen=True)
class NextHop:
    """An SSH server behind a host: what leads to it, who it must be, and how to get in.

    ``address``: where it listens, as the host sees it. Without one, ``command`` is run on the host (by a login shell)
    and speaks SSH on its standard input and output. ``host_keys``: the keys that it must have one of (``type base64``),
    from somebody trusted; none: what known_hosts has under ``name``. ``key``: a private key in OpenSSH's format that
    was made for this server; without one we get in as at the host. ``asking``: whether the user may be asked for a
    secret that is not known yet.
    """

    name: str
    address: tuple[str, int] | None = None
    command: tuple[str, ...] = ()
    host_keys: tuple[str, ...] = ()
    key: str | None = field(default=None, repr=False)
    asking: bool = True


class Route(ABC):
    """An SSH connection at whose far end TCP connections are made."""

    @abstractmethod
    def open(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        """Open a TCP connection from the far end to an address. Raises ``OSError`` where that fails."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether the connection stands, as far as is known without asking the far end."""

    @abstractmethod
    def close(self) -> None:
        """Close it and all that runs over it; may be called twice."""


class LineStream(ABC):
    """A running command whose output lines go to a function, and whose standard input stays open.

    ``on_line`` gets each line without its end, ``on_end`` is called once, with a reason, when no more will come.
    Both are called on a thread of the stream's own.
    """

    @abstractmethod
    def close(self) -> None:
        """Close its input, which ends it, and stop calling the functions."""


OnLine = Callable[[str], None]
OnEnd = Callable[[str], None]


class Runs(Protocol):
    """Whatever runs commands to their end: a host, or something that stands before one."""

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", login_shell: bool = False, timeout: float = RUN_TIMEOUT
    ) -> CommandResult:
        """Run a command, as ``Host.run``."""


class Host(ABC):
    """A place where commands run. Commands are argument lists; nothing that a user typed reaches a shell unquoted."""

    #: what the user calls it, for messages
    label: str = "this machine"
    #: whether commands travel over a network
    remote: bool = False
    #: how we logged in: ``key ~/.ssh/id_ed25519``; empty where that is not known
    entered_by: str = ""

    @abstractmethod
    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", login_shell: bool = False, timeout: float = RUN_TIMEOUT
    ) -> CommandResult:
        """Run a command to its end.

        ``login_shell``: with the environment that a login gives (PATH to the scheduler, ``module``). Raises
        ``ConnectionLost`` when the connection breaks, ``HostCommandFailed`` after ``timeout`` seconds.
        """

    @abstractmethod
    def stream(self, argv: Sequence[str], on_line: OnLine, on_end: OnEnd) -> LineStream:
        """Start a command and follow its output. It ends when the stream is closed, or we die."""

    @abstractmethod
    def open_stream(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        """Open a TCP connection *from this host* to an address. Raises ``OSError`` where that fails."""

    @abstractmethod
    def open_process(self, argv: Sequence[str], *, login_shell: bool = False) -> ByteStream:
        """Run a command on this host and return its standard input and output as one stream of bytes.

        The stream begins with the command's own output. The command ends when the stream is closed, or we die.
        """

    def terminal(
        self, argv: Sequence[str], *, login_shell: bool = False, until: Callable[[], bool] = lambda: False
    ) -> int:
        """Run a command with the user's terminal attached, and return its exit code.

        It has a terminal of its own: every key goes there, Ctrl-C too, and the window's size. The user's terminal is
        given back as it was on every way out. The command ends when the connection does, or we die, or ``until`` (asked
        twice a second) says so; that returns -1. Raises ``ConnectionLost``, or ``UsageError`` without a terminal.
        """
        raise UsageError(f"No terminal can be opened on {self.label}.")

    def pass_through(
        self, argv: Sequence[str], *, login_shell: bool = False, until: Callable[[], bool] = lambda: False
    ) -> int:
        """Run a command without a terminal and without input, its output on ours, and return its exit code.

        It ends when the connection does, or we die, or ``until`` (asked twice a second) says so; that returns -1.
        Raises ``ConnectionLost``.
        """
        raise UsageError(f"Nothing can be run with its output here on {self.label}.")

    @abstractmethod
    def open_route(self, hop: NextHop | None = None) -> Route:
        """Return an SSH connection to a server behind this host, or (``None``) a route whose far end is this host.

        Raises ``ConnectionFailed``, ``AuthenticationFailed``, ``HostKeyChanged`` or ``HostKeyUnknown``.
        """

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether the connection to the host stands, as far as is known without asking it."""

    @abstractmethod
    def reconnect(self, timeout: float = 10.0, replace: Callable[[], bool] = lambda: True) -> None:
        """Reconnect to the host, and drop the old connection once the new one stands.

        ``timeout``: seconds for the network's part. ``replace``: asked once the new connection stands; where it says
        no, the new one is dropped. Secrets that were given before are not asked for again. What runs over the old
        connection (streams, routes) ends with it. Raises what opening the host raised.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connection, if there is one; may be called twice."""

    def write_files(self, directory: str, files: Mapping[str, bytes], *, timeout: float = RUN_TIMEOUT) -> None:
        """Make ``directory`` (0700) if need be and write ``files`` into it (0600), each one whole or not at all.

        The contents travel over standard input and so never show in an argument. Raises ``HostCommandFailed``.
        """
        argv = ["sh", "-c", _WRITE_FILES, "write-files", directory]
        answer = self.run(argv, stdin=_archive(files), timeout=timeout)
        if answer.exit_code != 0:
            raise HostCommandFailed(
                f"The session's files could not be written in {directory} on {self.label}.",
                why=answer.stderr.strip(),
                hint="is there room in your home folder? see: quota -s; df -h ~",
            )

    def read_file(self, path: str) -> bytes | None:
        """Return a file's content (at most 4 MiB of it), ``None`` where it cannot be read."""
        answer = self.run(["head", "-c", str(MAX_FILE), path])
        return answer.stdout.encode() if answer.exit_code == 0 else None

    def tail(self, path: str, lines: int = 15) -> list[str]:
        """Return the last lines of a file, none where it cannot be read."""
        answer = self.run(["tail", "-n", str(lines), path])
        return answer.stdout.splitlines() if answer.exit_code == 0 else []

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RemoteHost(Host):
    """A host over a connection; one thread at a time reconnects."""

    remote = True

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._made = 0  # how often it reconnected

    def reconnect(self, timeout: float = 10.0, replace: Callable[[], bool] = lambda: True) -> None:
        """Reconnect, unless another thread has done so meanwhile."""
        before = self._made
        if not self._one_at_a_time.acquire(timeout=timeout):
            raise ConnectionFailed(f"A connection to {self.label} is being made already.")
        try:
            if self._made == before or not self.alive:
                self._made += self._replaced(timeout, replace)
        finally:
            self._one_at_a_time.release()

    def open_stream(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        """Have the login node make the connection; where it allows none, a command there does."""
        try:
            return self._connected(address, timeout)
        except PermissionError:
            return self.open_process(relay_command(address))

    def open_process(self, argv: Sequence[str], *, login_shell: bool = False) -> ByteStream:
        """Run a command in a channel of its own."""
        stream = self._started(argv, login_shell=login_shell)
        stream.settimeout(RUN_TIMEOUT)
        try:
            skip_what_shells_say(stream)
        except OSError as error:
            stream.close()
            raise HostCommandFailed(f"{argv[0]} says nothing on {self.label}.", why=str(error)) from None
        stream.settimeout(None)
        return stream

    def _lost(self) -> ConnectionLost:
        return ConnectionLost(f"The connection to {self.label} is lost.")

    @abstractmethod
    def _connected(self, address: tuple[str, int], timeout: float) -> ByteStream:
        """Forward a TCP connection; raises ``PermissionError`` where the login node forwards none, else ``OSError``."""

    @abstractmethod
    def _started(self, argv: Sequence[str], *, login_shell: bool) -> ByteStream:
        """Start a command, and return its input and output from the first byte on."""

    @abstractmethod
    def _replaced(self, timeout: float, replace: Callable[[], bool]) -> bool:
        """Make a new connection, and tell whether it has replaced the old one."""


def skip_what_shells_say(channel: ByteStream) -> None:
    """Read away what start-up files of a shell print before a command's own output. Raises ``OSError`` at the end."""
    line = b""
    while not line.endswith(f"{OUTPUT_BEGINS}\n".encode()):
        line = b"" if line.endswith(b"\n") else line
        byte = channel.recv(1)
        if not byte:
            raise OSError("it ended at once")
        line = (line + byte)[-1024:]


class HostRoute(Route):
    """A route whose far end is the host itself; it lives and ends with the host's own connection."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def open(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        """Open a connection from the host."""
        return self._host.open_stream(address, timeout)

    @property
    def alive(self) -> bool:
        """Whether the host's connection stands."""
        return self._host.alive

    def close(self) -> None:
        """Nothing: the connection is the host's."""


def relay_command(address: tuple[str, int]) -> list[str]:
    """Return the command that connects its standard input and output to an address.

    For login nodes whose SSH server forwards no TCP connections. Ends when its input does.
    """
    return ["bash", "-c", _RELAY, "relay", address[0], str(address[1])]


_RELAY = 'exec 3<>"/dev/tcp/$1/$2" || exit 1; cat <&3 & cat >&3; kill $! 2>/dev/null'

# tar, because one stream then carries all files and their modes; POSIX sh, because a login shell may be anything.
# Unpacked beside and moved into place: a full disk leaves no half a file under its name. -m: dated now, because some
# sites remove what looks old. On one line: csh, as a login shell, cannot quote more than one.
_WRITE_FILES = (
    'umask 077; mkdir -p -- "$1" && chmod 700 -- "$1" && cd -- "$1" && new=$(mktemp -d .new.XXXXXX) || exit 1; '
    'tar -x -p -m -f - -C "$new" && mv -f -- "$new"/* .; code=$?; rm -rf -- "$new"; exit $code'
)


def _archive(files: Mapping[str, bytes]) -> bytes:
    import io
    import tarfile

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


#: stands alone on a line before a command's own output: start-up files of a shell may print as well
OUTPUT_BEGINS = "--notebook-launcher--"


def command_line(argv: Sequence[str], *, login_shell: bool, marked: bool = True) -> str:
    """Return the argument list as one line for a remote shell, whatever shell that is.

    A login shell is made by ``bash -l``, which hands its arguments on without reading them as code. The output begins
    with the line ``OUTPUT_BEGINS`` where it is to be ``marked``.
    """
    mark = f"echo {OUTPUT_BEGINS}; " if marked else ""
    if any("\n" in word for word in argv):
        argv = ["bash", "-c", _UNFOLD, "unfold", *(word.replace("\\", r"\\").replace("\n", r"\n") for word in argv)]
    if login_shell:
        argv = ["bash", "-l", "-c", f'{mark}exec "$@"', "launch-notebook", *argv]
    return ("" if login_shell else mark) + " ".join(map(_quoted, argv))


# csh, as a login shell, cannot quote a line's end
_UNFOLD = 'for word do printf -v word %b "$word"; words+=("$word"); done; exec "${words[@]}"'
_PLAIN = re.compile(r"[\w@%+:,./-][\w@%+:,./=-]*", re.ASCII)  # zsh and tcsh expand a word that begins with =


def _quoted(word: str) -> str:
    """Quote a word for sh and csh; to csh a ``!`` is its history between quotes as well."""
    return word if _PLAIN.fullmatch(word) else "'" + re.sub("['!]", r"'\\\g<0>'", word) + "'"


def on_a_lifeline(argv: Sequence[str]) -> list[str]:
    """Return the command that runs another one without input, and ends it when its own input ends.

    It ends with all that it has started. No SSH server ends what runs without a terminal when the connection breaks;
    but it closes its input.
    """
    return ["bash", "-c", _LIFELINE, "lifeline", *argv]


# set -m: the command gets a process group of its own. The guard, once it has begun, is waited for. Three seconds: srun
# ends its step on the first signal, and would leave it on SIGKILL. What bash says of a killed child is of no interest.
_LIFELINE = (
    'exec 3<&0; set -m; "$@" </dev/null 3<&- & child=$!; set +m; '
    '{ read -r _ <&3; trap "" TERM; kill -- "-$child"; '
    'for _ in {1..30}; do kill -0 -- "-$child" || exit; sleep 0.1; done; kill -KILL -- "-$child"; } 2>/dev/null & '
    "guard=$!; exec 3<&-; "
    '{ wait "$child"; code=$?; kill "$guard"; wait "$guard"; kill -- "-$child"; } 2>/dev/null; exit "$code"'
)
