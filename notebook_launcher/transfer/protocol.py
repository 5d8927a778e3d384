"""The protocol of ``jobscripts/login/copy.sh`` over one process of a host: arguments, data, a reply."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from notebook_launcher.core.errors import ConnectionLost, HostCommandFailed
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.package_data import job_script
from notebook_launcher.hosts.base import ByteStream, Host

CHUNK = 256 * 1024  # bytes; larger ones are not faster
CALL_EVERY = 1.0  # seconds at most between two calls of ``meanwhile``
POLL_EVERY = 0.1  # seconds, in a call that may block for long
MOST_REPLY = 1024 * 1024 * 1024  # bytes; the list of a copy of millions of files is smaller
TEST_AFTER = 15.0  # seconds of silence after which the connection is tested
SILENT_FOR = 600.0  # seconds that the far end may be silent, besides the time to read its files
SLOWEST_DISK = 20e6  # bytes per second at which it reads them, at least

# On one line, for csh; byte by byte, so that nothing after the script is lost.
_BEGIN = ["bash", "-c", 'LC_ALL=C; export LC_ALL; IFS= read -r -d "" script; eval "$script"']


_Result = TypeVar("_Result")


def call_polling(
    call: Callable[[], _Result], poll: Callable[[], None] | None, discard: Callable[[_Result], object] = lambda _: None
) -> _Result:
    """Make a call that may block for long on a thread of its own, with ``poll`` called several times a second.

    Raises what the call raises. An exception from ``poll`` leaves the call to itself; a result that comes all the same
    is passed to ``discard``, perhaps twice. Without ``poll``, the call is made on this thread: there, an interrupt ends
    what the host waits for.
    """
    if poll is None:
        return call()
    results: list[_Result] = []
    errors: list[BaseException] = []
    left: list[bool] = []

    def make_call() -> None:
        try:
            results.append(call())
        except BaseException as error:  # raised below, if anybody is still there
            errors.append(error)
        if left and results:
            discard(results[0])

    # no locks: the main thread may be interrupted anywhere
    thread = threading.Thread(target=make_call, name="call", daemon=True)
    thread.start()
    try:
        thread.join(POLL_EVERY)
        while thread.is_alive():
            poll()
            thread.join(POLL_EVERY)
    except BaseException:
        left.append(True)
        if results:
            discard(results[0])
        raise
    if errors:
        raise errors[0]
    return results[0]


class Reply(Frozen):
    """The reply of a verb: its data, its exit code (0: success), and its standard error."""

    data: bytes
    code: int = 0
    stderr: str = ""

    def fields(self) -> list[str]:
        """Return the null-separated fields."""
        return [os.fsdecode(word) for word in self.data.split(b"\0")[:-1]]

    def lines(self) -> list[str]:
        """Return the lines."""
        return [os.fsdecode(line) for line in self.data.split(b"\n") if line]


class Wire:
    """A running verb on a host; a context manager that ends it. Raises ``ConnectionLost`` if the connection breaks.

    ``reads``: how many bytes it has to read before it can reply, which takes time. ``meanwhile``: called repeatedly
    while it is started, and while waiting for the reply; an exception from it ends the verb.
    """

    def __init__(
        self,
        host: Host,
        verb: str,
        arguments: Sequence[str],
        *,
        reads: int = 0,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        self._host = host
        self._patience = SILENT_FOR + reads / SLOWEST_DISK
        self._meanwhile = meanwhile
        self._tried = 0.0
        self._tail = b""
        self._stream: ByteStream = call_polling(lambda: host.open_process(_BEGIN), meanwhile, _close)
        self._stream.settimeout(min(TEST_AFTER, CALL_EVERY) if meanwhile else TEST_AFTER)
        header = [_script(), str(len(arguments) + 1).encode(), verb.encode(), *map(os.fsencode, arguments)]
        try:
            self.send(b"".join(word + b"\0" for word in header))
        except BrokenPipeError:  # before it received its arguments: there is no reply that says why
            self._close()
            raise self._lost() from None
        except BaseException:
            self._close()
            raise

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        _close(self._stream)

    def send(self, data: bytes | memoryview) -> None:
        """Send all of the data. Raises ``BrokenPipeError`` if the verb has ended: its reply says why."""
        rest, since = memoryview(data), time.monotonic()
        while rest:
            try:
                count = self._stream.send(bytes(rest[:CHUNK]))
            except TimeoutError:
                self._check_alive(since)
                continue
            except (OSError, EOFError):  # the latter from paramiko, while it sends
                raise BrokenPipeError from None
            if not count:
                raise BrokenPipeError
            rest, since = rest[count:], time.monotonic()

    def end_data(self) -> None:
        """Signal the end of the data."""
        with contextlib.suppress(OSError, EOFError):
            self._stream.shutdown(socket.SHUT_WR)

    def receive(self, count: int = CHUNK) -> bytes:
        """Return received data of the reply, at most ``count`` bytes; nothing at its end."""
        since = time.monotonic()
        while True:
            if self._meanwhile:
                self._meanwhile()
            try:
                data = self._stream.recv(count)
                break
            except TimeoutError:
                self._check_alive(since, self._meanwhile)
            except (OSError, EOFError):  # the latter from paramiko, while it sends
                raise self._lost() from None
        self._tail = (self._tail + data)[-4096:]
        return data

    def read(self, count: int) -> bytes:
        """Return the next bytes of the reply, fewer at its end; for ``tarfile``."""
        parts, missing = [], count
        while missing and (data := self.receive(min(missing, CHUNK))):
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def reply(self, most: int | None = None) -> Reply:
        """Return the rest of the reply. Raises ``HostCommandFailed`` if it has more than ``most`` bytes."""
        data = bytearray()
        # a verb that ended without reading all of its data resets the stream after its reply
        with contextlib.suppress(ConnectionLost):
            while part := self.receive():
                data += part
                if len(data) > (MOST_REPLY if most is None else most):
                    raise HostCommandFailed(f"{self._host.label} answers with more than it was asked for.")
        # earlier data may contain the beginning of the last line
        last = re.search(rb"\0(\d+) ([^\0]*)\n\Z", self._tail)
        if last is None:
            raise self._lost()
        return Reply(bytes(data[: max(0, len(data) - len(last[0]))]), int(last[1]), last[2].decode(errors="replace"))

    def _check_alive(self, since: float, meanwhile: Callable[[], None] | None = None) -> None:
        """Raise ``ConnectionLost`` if the host does not answer, ``HostCommandFailed`` after a long silence."""
        if time.monotonic() - since > self._patience:
            what = f"{self._host.label} has done nothing for the copy for {self._patience / 60:.0f} minutes."
            raise HostCommandFailed(what, hint="check its disk, then type the same command to continue from there")
        now = time.monotonic()
        if self._meanwhile and now - max(since, self._tried) < TEST_AFTER:
            return
        self._tried = now
        try:
            call_polling(lambda: self._host.run(["true"], timeout=TEST_AFTER), meanwhile)
        except (ConnectionLost, HostCommandFailed):
            raise self._lost() from None

    def _lost(self) -> ConnectionLost:
        return ConnectionLost(f"The connection to {self._host.label} is lost.")


def _close(stream: ByteStream) -> None:
    """Close a stream, over which there may be no connection any more."""
    with contextlib.suppress(OSError, EOFError):
        stream.close()


@functools.cache
def _script() -> bytes:
    return job_script("copy.sh").read_bytes()


def call_verb(
    host: Host,
    verb: str,
    *arguments: str,
    data: bytes = b"",
    reads: int = 0,
    meanwhile: Callable[[], None] | None = None,
) -> Reply:
    """Run a verb with its data, and return its reply; ``reads`` and ``meanwhile`` as of a ``Wire``."""
    with Wire(host, verb, arguments, reads=reads, meanwhile=meanwhile) as wire, _sending(wire, data):
        return wire.reply()


@contextlib.contextmanager
def _sending(wire: Wire, data: bytes) -> Iterator[None]:
    """Send during the block: a reply may begin before everything is sent, and both sides would block otherwise."""

    def send() -> None:
        # any error shows in the reply
        with contextlib.suppress(OSError, ConnectionLost, HostCommandFailed):
            wire.send(data)
            wire.end_data()

    thread = threading.Thread(target=send, name="copy names", daemon=True)
    thread.start()
    yield
    thread.join(TEST_AFTER)


def names(arguments: Sequence[str]) -> bytes:
    """Return names as the data of a verb."""
    return b"".join(os.fsencode(word) + b"\0" for word in arguments)
