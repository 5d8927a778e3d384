"""The frame around a command's output on a remote host: a line before it, and one after it with the exit code.

A shell's start-up files may print, end the shell, replace it or redirect its output. So only what stands within the
frame is an answer, and no frame is no answer. This module is pure: arguments and text in, text out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

#: on a line of its own before a command's output
OUTPUT_BEGINS = "--notebook-launcher--"
#: after it, with the exit code; at the end of the last line, which may have no newline
OUTPUT_ENDS = "--notebook-launcher-ended--"

BEGINS_WITHIN = 90.0  # seconds for a shell's start-up files; as long as any command may take

_END = re.compile(rf"{OUTPUT_ENDS} (\d{{1,3}})\n", re.ASCII)
_END_OF_LINE = re.compile(rf"{OUTPUT_ENDS} (\d{{1,3}})\Z", re.ASCII)
_MOST_LINE = 1024  # bytes of a line before the frame that are kept

# The frame is printed by a bash of its own: `exec` drops the options, traps and ~/.bash_logout of the shell before it,
# and dash would drop exported functions. A bash that believes it was started by sshd reads ~/.bashrc, unless it was
# started by another bash: --norc prevents that for the frame, and SHLVL (`exec` subtracts one) for the command. With
# --posix the frame does not read what BASH_ENV names, which takes time, but leaves it to the command.
# `command`: of that name may be an exported function as well, which is not meant.
_BOTH: Final = f'echo {OUTPUT_BEGINS}; code=0; command -- "$@" || code=$?; echo "{OUTPUT_ENDS} $code"; exit "$code"'
_BEGINNING: Final = f'echo {OUTPUT_BEGINS}; export SHLVL=3; exec "$@"'
# our own scripts need nothing of what BASH_ENV names for the scripts of users, and it may print
_OURS_ONLY: Final = "unset BASH_ENV; "


class NoFrame(OSError):
    """No frame began: no command was run, or its output went somewhere else."""


class Readable(Protocol):
    """What bytes can be received from."""

    def recv(self, count: int, /) -> bytes:
        """Return up to ``count`` bytes, none at the end."""


def command_line(argv: Sequence[str], *, login_shell: bool, framed: bool = True, end: bool = True) -> str:
    """Return the argument list as one line for a remote shell, whichever shell that is.

    ``bash -l`` makes it a login shell, and does not interpret the arguments as code. ``framed``: the output is framed;
    without ``end`` only its beginning is marked, for a command that takes over the stream of bytes.
    """
    if any("\n" in word for word in argv):
        argv = ["bash", "-c", _UNFOLD, "unfold", *(word.replace("\\", r"\\").replace("\n", r"\n") for word in argv)]
    if framed:
        frame = ("" if login_shell else _OURS_ONLY) + (_BOTH if end else _BEGINNING)
        argv = ["bash", "--norc", "--posix", "-c", frame, "launch-notebook", *argv]
    if login_shell:
        argv = ["bash", "-l", "-c", 'exec "$@"', "launch-notebook", *argv]
    return " ".join(map(_quoted, argv))


# csh, as a login shell, cannot quote a newline
_UNFOLD = 'for word do printf -v word %b "$word"; words+=("$word"); done; exec "${words[@]}"'
_PLAIN = re.compile(r"[\w@%+:,./-][\w@%+:,./=-]*", re.ASCII)  # zsh and tcsh expand a word that begins with =


def _quoted(word: str) -> str:
    r"""Quote a word for sh, csh and fish: csh expands ``!`` within quotes as well, and fish reads ``\\`` there."""
    return word if _PLAIN.fullmatch(word) else "'" + re.sub(r"['!\\]", r"'\\\g<0>'", word) + "'"


def read_frame(text: str) -> tuple[str, int | None] | None:
    """Return the output within the frame, and the exit code: ``None`` if the frame does not end.

    ``None`` instead of both: there is no frame.
    """
    _, begun, rest = text.partition(f"{OUTPUT_BEGINS}\n")
    if not begun:
        return None
    ends = list(_END.finditer(rest))
    return (rest[: ends[-1].start()], int(ends[-1][1])) if ends else (rest, None)


def skip_to_frame(channel: Readable) -> None:
    """Receive all that comes before a command's own output. Raises ``NoFrame``, or what receiving raises."""
    line = b""
    while not line.endswith(f"{OUTPUT_BEGINS}\n".encode()):
        line = b"" if line.endswith(b"\n") else line
        byte = channel.recv(1)
        if not byte:
            raise NoFrame("it ended at once")
        line = (line + byte)[-_MOST_LINE:]


class FramedLines:
    """The lines within a frame. ``exit_code``: once they have ended. Raises ``NoFrame`` if they end before it."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self.exit_code: int | None = None

    def __iter__(self) -> Iterator[str]:
        if not any(line.endswith(OUTPUT_BEGINS) for line in self._lines):
            raise NoFrame("the login shell there runs no commands")
        for line in self._lines:
            if end := _END_OF_LINE.search(line):
                self.exit_code = int(end[1])
                if end.start():
                    yield line[: end.start()]
                return
            yield line
