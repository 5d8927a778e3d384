"""Limits on a command's output: its machine may be controlled by others, or the command may simply be broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from notebook_launcher.core.errors import HostCommandFailed

MOST_OUTPUT = 64 * 1024 * 1024  # bytes of a command's output; squeue on the largest cluster prints a third of that
MOST_ERRORS = 1024 * 1024  # bytes of its standard error that are kept
MOST_LINE = 1024 * 1024  # bytes of one line of a command that is followed


class TooMuchOutput(Exception):
    """A command has printed more than ``MOST_OUTPUT``."""

    def as_error(self, command: str, label: str) -> HostCommandFailed:
        """Return it as an error for the user. ``label``: the host's name."""
        return HostCommandFailed(
            f"{command} printed more than {MOST_OUTPUT >> 20} MiB on {label}, and was stopped.",
            why="Its output was not read further.",
            hint=f"run it on {label} and look at what it prints",
        )


class Output:
    """A command's output as it arrives. ``errors``: it is the standard error, of which only the beginning is kept."""

    def __init__(self, *, errors: bool = False) -> None:
        self._data = bytearray()
        self._most, self._raises = (MOST_ERRORS, False) if errors else (MOST_OUTPUT, True)

    def add(self, part: bytes) -> None:
        """Add the next part. Raises ``TooMuchOutput``."""
        room = self._most - len(self._data)
        self._data += part[:room]
        if len(part) > room and self._raises:
            raise TooMuchOutput

    def text(self) -> str:
        """Return what has arrived."""
        return self._data.decode(errors="replace")


def lines_of(readline: Callable[[int], bytes]) -> Iterator[str]:
    """Yield the lines of a command that is followed, without newlines; a line that is too long comes in parts."""
    while line := readline(MOST_LINE):
        yield line.decode(errors="replace").rstrip("\n")
