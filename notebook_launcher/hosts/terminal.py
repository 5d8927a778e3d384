"""Attaches the user's terminal, in raw mode, to a command with a terminal of its own, and restores it afterwards."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from notebook_launcher.core.errors import UsageError
from notebook_launcher.hosts import framing
from notebook_launcher.hosts.framing import Frame, NoFrame

POLL_EVERY = 0.5  # seconds between two calls of ``until``
AT_ONCE = 65536  # bytes, at most, to read at once, or to buffer for a command that does not read
_KEYBOARD, _SCREEN = 0, 1
_BROKEN_PIPE = 128 + 13
_ENDS_WITHIN = 2.0  # seconds for a command whose terminal was closed

# modes that a full-screen program sets: application cursor keys, the alternate screen, mouse tracking, bracketed paste;
# and the cursor, which is visible by default
_SWITCHED = re.compile(rb"\x1b\[\?([0-9;]+)([hl])")
_BEGUN = re.compile(rb"\x1b(\[(\?[0-9;]{0,30})?)?\Z")  # the rest of the sequence comes with the next read
_MODES = (b"1", b"47", b"1000", b"1002", b"1003", b"1006", b"1047", b"1049", b"2004")
_CURSOR = b"25"

Until = Callable[[], bool]


class RemoteTerminal(Protocol):
    """A command's own terminal, from our side."""

    def fileno(self) -> int:
        """Return a descriptor that ``select`` reports as readable when there is data, or the end."""

    def read(self) -> bytes | None:
        """Return the received data, nothing at the end; ``None``: nothing at the moment."""

    def write(self, data: bytes) -> int:
        """Send some of what was typed, without waiting, and return how much. Raises ``OSError`` at the end."""

    def resize(self, columns: int, rows: int) -> None:
        """Set the size of its window."""


def check_terminal() -> None:
    """Raise ``UsageError`` if there is no terminal to attach."""
    try:
        import termios  # noqa: F401
    except ImportError:
        raise UsageError(
            "A terminal on a compute node cannot be opened from Windows.",
            hint="run one command instead (shell --command …), or take WSL",
        ) from None
    if not os.isatty(_KEYBOARD):
        raise UsageError(
            "There is no terminal here to open a shell in.", hint="run one command: launch-notebook shell --command '…'"
        )


def window_size() -> tuple[int, int]:
    """Return the columns and rows of the user's terminal."""
    with contextlib.suppress(OSError):
        size = os.get_terminal_size(_KEYBOARD)
        if size.columns and size.lines:
            return size.columns, size.lines
    return shutil.get_terminal_size()


def attach_terminal(far: RemoteTerminal, until: Until) -> bool:
    """Copy bytes between the user's terminal and a command's until the command ends; return whether it did.

    Returns false if ``until`` (called twice a second) returned true, or if the user's terminal is gone. The user's
    terminal is always restored.
    """
    screen = _Screen()
    with _raw(), _resizes() as resized:
        try:
            return _carry(far, screen, resized, until)
        finally:
            screen.reset()


def _carry(far: RemoteTerminal, screen: _Screen, resized: int, until: Until) -> bool:
    typed = b""
    while not until():
        listening = [far.fileno(), resized, *([_KEYBOARD] if len(typed) < AT_ONCE else [])]
        # a channel's descriptor reports received data, but not whether it accepts more
        ready, _, _ = select.select(listening, [], [], 0.01 if typed else POLL_EVERY)
        if resized in ready:
            os.read(resized, AT_ONCE)
            far.resize(*window_size())
        if far.fileno() in ready:
            data = far.read()
            if data == b"":
                return True
            if data and not screen.write(data):
                return False
        if _KEYBOARD in ready:
            keys = _read_keyboard()
            if keys == b"":
                return False
            typed += keys or b""
        if typed:
            try:
                typed = typed[far.write(typed) :]
            except (OSError, EOFError):  # it has ended (or broken, with paramiko); read its last output
                typed = b""
    return False


def _read_keyboard() -> bytes | None:
    """Return what was typed, nothing if the terminal is gone; ``None``: nothing at the moment."""
    try:
        return os.read(_KEYBOARD, AT_ONCE)
    except BlockingIOError:  # another process has made it non-blocking
        return None
    except OSError:
        return b""


class _Screen:
    """Writes a command's output to the terminal."""

    def __init__(self) -> None:
        self._resets: dict[bytes, bytes] = {}  # what resets each mode that is set
        self._begun = b""

    def write(self, data: bytes) -> bool:
        """Write output; return whether the terminal is still there."""
        seen = self._begun + data
        for switched in _SWITCHED.finditer(seen):
            self._track_modes(switched[1].split(b";"), on=switched[2] == b"h")
        begun = _BEGUN.search(seen[-40:])
        self._begun = begun[0] if begun else b""
        return write_all(_SCREEN, data)

    def _track_modes(self, modes: Sequence[bytes], *, on: bool) -> None:
        for mode in modes:
            if mode == _CURSOR and not on:
                self._resets[mode] = b"\x1b[?25h"
            elif mode in _MODES and on:
                self._resets[mode] = b"\x1b[?%sl" % mode
            else:
                self._resets.pop(mode, None)

    def reset(self) -> None:
        """Reset the modes that are still set, because the program was cut off."""
        if self._resets:
            write_all(_SCREEN, b"".join(self._resets.values()) + b"\x1b[m\r\n")


def write_all(descriptor: int, data: bytes) -> bool:
    """Write all data to an open file, however little it accepts at once; return whether it could."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # another process has made it non-blocking
            select.select([], [descriptor], [], POLL_EVERY)
        except OSError:
            return False
    return True


def copy_output(frame: Frame, receive: Callable[[int], bytes], until: Until) -> int | None:
    """Copy the output after the beginning of a frame to ours until it ends.

    Returns ``None`` then, and an exit code if it stopped earlier: -1 if ``until`` is true, and that of a shell for a
    broken pipe if nobody reads our output any more. ``receive`` raises ``TimeoutError`` now and then, and another
    ``OSError`` if the connection broke. Raises ``NoFrame`` if the frame does not begin.
    """
    mark, before, begun = f"{frame.begins}\n".encode(), b"", False
    begins_by = time.monotonic() + framing.BEGINS_WITHIN  # a shell may be waiting for input instead
    while not until():
        if not begun and time.monotonic() > begins_by:
            raise NoFrame
        try:
            data = receive(AT_ONCE)
        except TimeoutError:
            continue
        except OSError:
            return None
        if not data and not begun:
            frame.keep(before)
            raise NoFrame
        if not data:
            return None
        if not begun:
            before, found, data = (before + data).partition(mark)
            begun = bool(found)
            if not begun:
                frame.keep(before[: -len(mark)])
                before = before[-len(mark) :]
        if begun and not write_all(_SCREEN, data):
            return _BROKEN_PIPE
    return -1


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """Pass on every key as it is while the block runs, even Ctrl-C."""
    import termios
    import tty

    before = termios.tcgetattr(_KEYBOARD)
    try:
        tty.setraw(_KEYBOARD, termios.TCSADRAIN)
        yield
    finally:
        with contextlib.suppress(termios.error, OSError):
            termios.tcsetattr(_KEYBOARD, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _resizes() -> Iterator[int]:
    """Yield a descriptor that becomes readable when the window's size changes."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)

    def notify(*_: object) -> None:
        with contextlib.suppress(OSError):
            os.write(writable, b".")

    before: Any = None
    is_main = threading.current_thread() is threading.main_thread()  # only there signal handlers can be set
    if is_main:
        before = signal.signal(signal.SIGWINCH, notify)
    try:
        yield readable
    finally:
        if is_main:
            signal.signal(signal.SIGWINCH, before if before is not None else signal.SIG_DFL)
        os.close(readable)
        os.close(writable)


# --- a command on this machine -----------------------------------------------------------------------------------

# A session leader gets the first terminal that it opens as its controlling terminal; "$0" is the terminal's name.
_OWN_TERMINAL = 'exec "$@" 0<>"$0" 1>&0 2>&0'


def run_in_terminal(argv: Sequence[str], until: Until) -> int:
    """Run a command on this machine in a terminal of its own, attached to the user's, and return its exit code.

    It ends with the launcher, because its terminal is closed then. Returns -1 if ``until`` is true. Raises
    ``UsageError`` if there is no terminal.
    """
    check_terminal()
    import pty

    master, slave = pty.openpty()
    try:
        _set_size(master, *window_size())
        child = subprocess.Popen(
            ["/bin/sh", "-c", _OWN_TERMINAL, os.ttyname(slave), *argv],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
    finally:
        os.close(slave)
    far = _Child(master, child)
    try:
        ended = attach_terminal(far, until)
    finally:
        far.close()
        code = _end(child)
    return code if ended else -1


class _Child:
    def __init__(self, master: int, child: subprocess.Popen[bytes]) -> None:
        self._master, self._child = master, child
        os.set_blocking(master, False)

    def fileno(self) -> int:
        return self._master

    def read(self) -> bytes | None:
        try:
            return os.read(self._master, AT_ONCE)
        except BlockingIOError:
            return None
        except OSError:  # how Linux reports that no process has the other end open any more
            return b""

    def write(self, data: bytes) -> int:
        try:
            return os.write(self._master, data)
        except BlockingIOError:
            return 0

    def resize(self, columns: int, rows: int) -> None:
        _set_size(self._master, columns, rows)

    def close(self) -> None:
        os.close(self._master)


def _set_size(descriptor: int, columns: int, rows: int) -> None:
    import fcntl
    import struct
    import termios

    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _end(child: subprocess.Popen[bytes]) -> int:
    """Wait for a command whose terminal was closed, and return its exit code as a shell would."""
    try:
        code = child.wait(_ENDS_WITHIN)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        code = child.wait()
    return 128 - code if code < 0 else code
