"""Reads the students of a class from a file with their user names on the cluster. Pure except for reading the file."""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from notebook_launcher.core.bounded_read import read_at_most
from notebook_launcher.core.errors import RosterInvalid
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.suggestions import as_hint, similar
from notebook_launcher.core.text import one_line

MOST_BYTES = 1024 * 1024
MOST_STUDENTS = 5000
_LONGEST_NAME = 80  # characters of a person's name
_DELIMITERS = (",", ";", "\t")
_USER_COLUMNS, _NAME_COLUMN = ("user", "username", "login"), "name"
#: a valid user name; it becomes part of commands and of comma-separated lists
USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}", re.A)
_HINT = "a line for each student: the user name on the cluster, or user,name with these words as the first line"


class Student(Frozen):
    """One student. ``user``: the user name on the cluster; ``name``: the person's name, by default the same."""

    user: str
    name: str


def read_roster(path: Path) -> tuple[Student, ...]:
    """Return the students listed in a file. Raises ``RosterInvalid``, which names the line."""
    try:
        content = read_at_most(path.expanduser(), MOST_BYTES)
    except OSError as error:
        raise RosterInvalid(
            f"The list of students {path} cannot be read.", why=error.strerror or str(error), hint=_missing(path)
        ) from None
    if content is None:
        raise RosterInvalid(f"{path} is larger than {MOST_BYTES // 1024} KiB.", hint=_HINT)
    try:
        text = content.decode("utf-8-sig")  # a spreadsheet may begin with a byte order mark
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    return parse_roster(text, str(path))


def parse_roster(text: str, source: str) -> tuple[Student, ...]:
    """Return the students in a list: CSV with a column ``user`` and optionally ``name``, or one user name per line.

    ``source``: the list's name in messages. Raises ``RosterInvalid``.
    """
    rows = list(_rows(text, source))
    if not rows:
        raise RosterInvalid(f"{source} names no students.", hint=_HINT)
    user_at, name_at, has_heading = _columns([cell.casefold() for cell in rows[0][1]])
    found: dict[str, Student] = {}
    lines: dict[str, int] = {}
    for line, cells in rows[has_heading:]:
        student = _student(cells, user_at, name_at, f"{source}, line {line}")
        if student.user in found:
            raise RosterInvalid(
                f"{source}, line {line}: {student.user} is there twice, also on line {lines[student.user]}.",
                hint="leave one of the two out",
            )
        found[student.user], lines[student.user] = student, line
    if not found:
        raise RosterInvalid(f"{source} names no students.", hint=_HINT)
    if len(found) > MOST_STUDENTS:
        raise RosterInvalid(f"{source} names {len(found)} students.", why=f"{MOST_STUDENTS} at most can be watched.")
    return tuple(found.values())


def _rows(text: str, source: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each line that is neither empty nor a comment, and its cells."""
    first = next((line for line in text.splitlines() if line.strip() and not line.startswith("#")), "")
    delimiter = max(_DELIMITERS, key=first.count)
    reader = csv.reader(text.splitlines(), delimiter=delimiter, skipinitialspace=True)
    try:
        for row in reader:
            cells = [one_line(cell) for cell in row]
            if any(cells) and not cells[0].startswith("#"):
                yield reader.line_num, cells
    except csv.Error as error:
        raise RosterInvalid(f"{source}, line {reader.line_num}, is not CSV.", why=str(error), hint=_HINT) from None


def _columns(heading: Sequence[str]) -> tuple[int, int | None, bool]:
    """Return the columns of the user and of the name, and whether the first line is a heading."""
    user_at = next((heading.index(word) for word in _USER_COLUMNS if word in heading), None)
    if user_at is not None:
        return user_at, heading.index(_NAME_COLUMN) if _NAME_COLUMN in heading else None, True
    return 0, 1 if len(heading) > 1 else None, False


def _student(cells: Sequence[str], user_at: int, name_at: int | None, where: str) -> Student:
    user = cells[user_at] if user_at < len(cells) else ""
    if not USER.fullmatch(user):
        what = f"“{user}” is not a user's name on a cluster" if user else "there is no user's name"
        raise RosterInvalid(f"{where}: {what}.", hint=_HINT)
    name = cells[name_at] if name_at is not None and name_at < len(cells) else ""
    return Student(user, name[:_LONGEST_NAME] or user)


def _missing(path: Path) -> str:
    there: list[str] = []
    with contextlib.suppress(OSError):  # the folder does not exist or is not readable
        there = [one.name for one in path.parent.iterdir() if one.is_file()]
    return as_hint(str(path.with_name(name)) for name in similar(path.name, there)) or _HINT
