"""The frame around a command's output on a remote host: a line before it, and one after it with the exit code.

A shell's start-up files may print, end the shell, replace it or redirect its output. So only what is within the frame
is the command's output, and without a frame there is no result. The framed output may contain anything, even a log that
others write: so each frame has marks of its own, which nobody can guess.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import LoginSetupFailed
from notebook_launcher.hosts import login_setup
from notebook_launcher.hosts.login_setup import LoginSetup

WAITS = 900  # seconds for which a shell waits for a command
BEGINS_WITHIN = 90.0  # seconds for a shell's start-up files; as long as any command may take
_KEPT = 20_000  # bytes of the output before a frame that are kept: the last ones show why none begins

# The frame is printed by a bash of its own: `exec` drops the options, traps and ~/.bash_logout of the shell before it,
# and dash would drop exported functions. A bash that believes it was started by sshd reads ~/.bashrc, unless it was
# started by another bash: --norc prevents that for the frame, and SHLVL (`exec` subtracts one) for the command. The
# file that BASH_ENV names may take time, so the frame's bash does not read it; the command gets BASH_ENV, passed as $1.
# (--posix would prevent that, too, but an exported SHELLOPTS passes it on to the command, and it complains of every
# exported function with a name like `x-y`.) `builtin` and `command`: an exported function may have the same name.
_BASH_ENV: Final = 'builtin unset BASH_ENV; [[ -z $1 ]] || builtin export BASH_ENV="$1"; builtin shift; '
_BOTH: Final = (
    'builtin echo {begins}; builtin command -- "$@" && code=0 || code=$?; '
    'builtin echo "{ends} $code"; builtin exit "$code"'
)
_BEGINNING: Final = 'builtin echo {begins}; builtin export SHLVL=3; builtin exec "$@"'
# Waits for a command on its input: the number of its words, and the words, each followed by a zero byte. The rest of
# the input is the command's. The command's standard error comes after its output. A line confirms that all words have
# arrived: without it, nothing was run. -t has priority over TMOUT. The variables have our prefix: one with another name
# might be an exported one, which the command would get with our value.
_WAITING: Final = (
    "builtin echo {begins}; launch_notebook_words=(); "
    'IFS= builtin read -r -t {waits} -d "" launch_notebook_count || builtin exit 0; '
    "while ((${{#launch_notebook_words[@]}} < launch_notebook_count)); do "
    'IFS= builtin read -r -t {waits} -d "" launch_notebook_word || builtin exit 1; '
    'launch_notebook_words+=("$launch_notebook_word"); done; builtin echo {taken}; '
    "builtin exec {{launch_notebook_out}}>&1; "
    'errors=$(builtin command -- "${{launch_notebook_words[@]}}" 2>&1 >&$launch_notebook_out '
    "{{launch_notebook_out}}>&-) && code=0 || code=$?; "
    'builtin echo "{ends} $code"; builtin printf "%s\\n%s\\n" "$errors" {over}'
)
# what starts the frame's bash: our own scripts do not need the file that BASH_ENV names for users' scripts (and it may
# print), while a login shell passes on what its start-up files have exported
_WITHOUT_BASH_ENV: Final = ("env", "BASH_ENV=", "bash", "--norc", "-c")
_LOGIN_SHELL: Final = (
    'case $(builtin declare -p BASH_ENV 2>/dev/null) in *x" BASH_ENV="*) ;; *) BASH_ENV= ;; esac; '
    f'builtin exec {" ".join(_WITHOUT_BASH_ENV)} "$1" launch-notebook "$BASH_ENV" "${{@:2}}"'
)


class NoFrame(OSError):
    """No frame began: no command was run, or its output went somewhere else."""


class Readable(Protocol):
    """Something to receive bytes from."""

    def settimeout(self, seconds: float | None, /) -> None:
        """Set the timeout of each call."""

    def recv(self, count: int, /) -> bytes:
        """Return up to ``count`` bytes, none at the end."""


class Frame:
    """The frame around the output of one command. ``setup``: lines that a login shell runs before it."""

    def __init__(self, setup: LoginSetup = login_setup.NONE) -> None:
        name = f"--notebook-launcher-{secrets.token_hex(8)}"
        self._setup, self._setup_mark = setup, f"{name}-setup--"
        self._before = b""
        #: on a line of its own before the output
        self.begins = f"{name}--"
        #: after the output, with the exit code; it ends the last line, which may have no newline before it
        self.ends = f"{name}-ended--"
        self._taken, self._over = f"{name}-taken--\n", f"{name}-over--"
        #: the last line that a waiting shell prints, after its command
        self.last_line = f"\n{self._over}\n".encode()

    def command_line(self, argv: Sequence[str], *, login_shell: bool, end: bool = True) -> str:
        """Return the argument list as one line for a remote shell, with its output framed.

        Without ``end``, only the beginning is marked, for a command that takes over the byte stream.
        """
        script = _BASH_ENV + (_BOTH if end else _BEGINNING).format(begins=self.begins, ends=self.ends)
        if login_shell:
            start = self._setup.script(self._setup_mark) + _LOGIN_SHELL
            return _as_line(["bash", "-l", "-c", start, "launch-notebook", script, *_unfoldable(argv)])
        return _as_line([*_WITHOUT_BASH_ENV, script, "launch-notebook", "", *_unfoldable(argv)])

    def waiting_line(self, *, login_shell: bool = True) -> str:
        """Return the line that makes a shell wait for ``words`` on its input; ``read_answer`` reads its output."""
        marks = {"begins": self.begins, "taken": self._taken.rstrip(), "ends": self.ends, "over": self._over}
        script = _BASH_ENV + _WAITING.format(**marks, waits=WAITS)
        if not login_shell:
            return _as_line([*_WITHOUT_BASH_ENV, script, "launch-notebook", ""])
        start = self._setup.script(self._setup_mark) + _LOGIN_SHELL
        return _as_line(["bash", "-l", "-c", start, "launch-notebook", script])

    @staticmethod
    def words(argv: Sequence[str]) -> bytes:
        """Return a command in the form in which a waiting shell reads it."""
        return b"".join(os.fsencode(word) + b"\0" for word in (str(len(argv)), *argv))

    def is_taken(self, text: str) -> bool:
        """Whether a waiting shell has received its whole command, by what it printed after the beginning."""
        return self._taken in text

    def read_answer(self, text: str) -> CommandResult | None:
        """Return the result of a waiting shell, from what it printed after the beginning; ``None``: not complete."""
        _, taken, text = text.partition(self._taken)  # before it: output of what start-up files have left running
        if not taken:
            return None
        end = re.search(rf"{self.ends} (\d{{1,3}})\n", text, re.ASCII)
        if end is None or not text.endswith(f"\n{self._over}\n"):
            return None
        errors = text[end.end() :].removesuffix(f"{self._over}\n")
        return CommandResult(int(end[1]), text[: end.start()], errors.removesuffix("\n") and errors)

    def read(self, text: str) -> tuple[str, int | None] | None:
        """Return the output within the frame and the exit code, which is ``None`` if the frame does not end.

        Returns ``None`` instead of both if there is no frame.
        """
        _, begun, rest = text.partition(f"{self.begins}\n")
        if not begun:
            return None
        end = re.search(rf"{self.ends} (\d{{1,3}})\n", rest, re.ASCII)
        return (rest[: end.start()], int(end[1])) if end else (rest, None)

    def keep(self, printed: bytes | bytearray) -> None:
        """Keep the end of what was printed before the frame, for ``setup_failure``."""
        self._before = (self._before + printed)[-_KEPT:]

    def setup_failure(self, label: str) -> LoginSetupFailed | None:
        """Return the error if no frame began because of a line of the setup, according to the output that was kept."""
        return self._setup.failure(self._setup_mark, self._before.decode(errors="replace"), label)

    def skip_to_beginning(self, channel: Readable) -> None:
        """Receive all that comes before a command's own output, however much, within ``BEGINS_WITHIN`` seconds.

        Sets the channel's timeout. Raises ``NoFrame``, or what receiving raises.
        """
        begins_by = time.monotonic() + BEGINS_WITHIN
        mark, last, before = f"{self.begins}\n".encode(), b"", bytearray()
        try:
            while last != mark:
                left = begins_by - time.monotonic()
                if left <= 0:
                    raise NoFrame("its start-up files take too long")
                channel.settimeout(left)
                byte = channel.recv(1)
                if not byte:
                    raise NoFrame("it ended at once")
                last = (last + byte)[-len(mark) :]
                before += byte
                if len(before) > 2 * _KEPT:
                    del before[:-_KEPT]
        finally:
            self.keep(before)


class FramedLines:
    """The lines within a frame. ``exit_code``: set at its end. Raises ``NoFrame`` if no frame begins."""

    def __init__(self, frame: Frame, lines: Iterable[str]) -> None:
        self._begins = frame.begins
        self._end = re.compile(rf"{frame.ends} (\d{{1,3}})\Z", re.ASCII)
        self._lines = iter(lines)
        self.exit_code: int | None = None

    def __iter__(self) -> Iterator[str]:
        if not any(line.endswith(self._begins) for line in self._lines):
            raise NoFrame("the login shell there runs no commands")
        for line in self._lines:
            if end := self._end.search(line):
                self.exit_code = int(end[1])
                if end.start():
                    yield line[: end.start()]
                return
            yield line


def command_line(argv: Sequence[str], *, login_shell: bool, setup: LoginSetup = login_setup.NONE) -> str:
    """Return the argument list as one line for a remote shell, whichever shell that is.

    ``login_shell``: run it in ``bash -l``, which does not interpret the arguments as code. ``setup``: what that shell
    runs first.
    """
    words = _unfoldable(argv)
    return _as_line(login_setup.login_shell_command(words, setup) if login_shell else words)


# csh, which may be the user's login shell, cannot quote a newline
_UNFOLD = 'for word do printf -v word %b "$word"; words+=("$word"); done; exec "${words[@]}"'
_PLAIN = re.compile(r"[\w@%+:,./-][\w@%+:,./=-]*", re.ASCII)  # zsh and tcsh expand a word that begins with =


def _unfoldable(argv: Sequence[str]) -> Sequence[str]:
    if not any("\n" in word for word in argv):
        return argv
    return ["bash", "-c", _UNFOLD, "unfold", *(word.replace("\\", r"\\").replace("\n", r"\n") for word in argv)]


def _as_line(words: Sequence[str]) -> str:
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    r"""Quote a word for sh, csh and fish: csh expands ``!`` even within quotes, and fish interprets ``\\`` there."""
    return word if _PLAIN.fullmatch(word) else "'" + re.sub(r"['!\\]", r"'\\\g<0>'", word) + "'"
