"""Reads the ``#SBATCH`` lines of a job script as ``sbatch`` does, and writes them. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.sbatch_options import BY_NAME, FLAGS, FULFILLED, is_flag_name, no_such_flag

_DIRECTIVE = re.compile(r"#SBATCH(?:\s+(?P<words>.*))?")
_BY_LETTER = {flag.letter: flag for flag in FLAGS if flag.letter}
_OTHERS = re.compile(r"#(BSUB|PBS|\$)\s", re.A)  # for LSF, PBS and Grid Engine


class Directives(Frozen):
    """The flags that a script asks for, by long name. ``others``: the marks of other schedulers' lines in it.

    ``is_marked``: whether it has ``#SBATCH`` lines at all.
    """

    flags: Mapping[str, str | None]
    others: tuple[str, ...] = ()
    is_marked: bool = True


def read_directives(text: str) -> Directives:
    """Return the flags of a script's ``#SBATCH`` lines above its first command, as sbatch's manual defines them.

    If a flag occurs twice, the last one counts. Flags that the launcher implements itself are left out. Raises
    ``UsageError`` for a line that sbatch would refuse.
    """
    flags: dict[str, str | None] = {}
    others, is_marked = [], False
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            break
        if match := _DIRECTIVE.fullmatch(line.rstrip()):
            is_marked = True
            for name, value in _flags_in(_words(match["words"] or "", number), number):
                flags.pop(name, None)
                flags[name] = value
        elif other := _OTHERS.match(line):
            others.append(f"#{other[1]}")
    own = {name: value for name, value in flags.items() if name not in FULFILLED}
    return Directives(own, tuple(dict.fromkeys(others)), is_marked)


def filled_in(text: str, flags: Mapping[str, str | None]) -> str:
    """Return a script with these flags as its ``#SBATCH`` lines; flags that the launcher implements itself are kept.

    Lines that do not change keep their place and comments; the other flags follow the last ``#SBATCH`` line.
    """
    head, body = _split(text)
    lines: list[str] = []
    left, place = dict(flags), 0
    for number, line in enumerate(head, 1):
        match = _DIRECTIVE.fullmatch(line.rstrip())
        if match is None:
            place = place or (len(lines) + 1 if number == 1 else 0)
            lines.append(line)
            continue
        of_line = dict(_flags_in(_words(match["words"] or "", number), number))
        kept = {name: left.pop(name, value) for name, value in of_line.items() if name in left or name in FULFILLED}
        if kept == of_line:
            lines.append(line)
        elif kept:
            lines.append(_written(kept, _comment(match["words"] or "")))
        place = len(lines)
    lines.insert(place, "".join(_written({name: value}) for name, value in sorted(left.items())))
    return "".join([*lines, *body])


def _written(flags: Mapping[str, str | None], comment: str = "") -> str:
    words = (f"--{name}" if value is None else f"--{name}={_quoted(value)}" for name, value in flags.items())
    return f"#SBATCH {' '.join(words)}{comment}\n"


def _comment(words: str) -> str:
    found = re.search(r"\s+#[^\"']*$", words)
    return found[0] if found else ""


def _split(text: str) -> tuple[list[str], list[str]]:
    """Return the lines above a script's first command, and the others, each with its end."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    place = next((place for place, line in enumerate(lines) if line.strip() and line.lstrip()[0] != "#"), len(lines))
    return lines[:place], lines[place:]


def _quoted(value: str) -> str:
    return value if re.fullmatch(r"[^\s\"'#\\]+", value) else shlex.quote(value)


def _words(text: str, number: int) -> list[str]:
    """Split a line as sbatch does: by blanks, with quotes; what follows a ``#`` is a comment."""
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        raise _wrong(number, "it has a quote without its counterpart") from None


def _flags_in(words: Sequence[str], number: int) -> Iterator[tuple[str, str | None]]:
    left = list(words)
    while left:
        word = left.pop(0)
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            flag = BY_NAME.get(name)
            if flag is None and not is_flag_name(name):
                raise no_such_flag(name, f"Line {number} of the script has it.")
            if flag is not None and flag.argument == "required" and not equals:
                yield name, _value(left, number, word)
            else:
                yield name, value if equals else None
        elif word.startswith("-") and word[1:2] in _BY_LETTER:
            flag, rest = _BY_LETTER[word[1]], word[2:].removeprefix("=")
            if flag.argument == "required":
                yield flag.name, rest or _value(left, number, word)
            else:
                yield flag.name, rest or None
        else:
            raise _wrong(number, f"“{word}” is not a flag of sbatch")


def _value(left: list[str], number: int, flag: str) -> str:
    if not left:
        raise _wrong(number, f"{flag} needs a value")
    return left.pop(0)


def _wrong(number: int, why: str) -> UsageError:
    return UsageError(
        f"Line {number} of the script, an #SBATCH line, cannot be read: {why}.",
        hint="correct that line; a flag of the command line replaces it only where it can be read",
    )
