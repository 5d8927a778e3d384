"""TOML files merged in layers: each key of the result knows its file and line."""

from __future__ import annotations

import functools
import hashlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from notebook_launcher.core.errors import ProfileError
from notebook_launcher.core.frozen import Frozen

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # the same module under its older name

_PART = r"""(?:[\w-]+|"(?:\\.|[^"\\])*"|'[^']*')"""
_NAME = rf"{_PART}(?:\s*\.\s*{_PART})*"
# values that should have been in quotes: words, and times; no numbers
_BARE = r"""[^\s"'\[{#\d][^"'#]*?|\d+[A-Za-z]+|(?:\d+-)?\d+(?::\d+)+"""
_DAY = r"(?:(\d\d?)\.(\d\d?)\.(\d{4})|\d+[-/.]\d+[-/.]\d+)"
_LONGEST = 200  # characters of a line with a mistake that is understood
_DEEPEST = 50  # tables and lists in each other; no profile has ten
# with parts of a limited length, so that it is sought in no more than the length's time; fewer fit with longer ones
_DEEP_KEY = re.compile(
    rf"""(?<![\w-])(?:(?:[\w-]{{1,99}}|"(?:\\.|[^"\\]){{0,99}}"|'[^']{{0,99}}')[ \t]*\.[ \t]*){{{_DEEPEST}}}"""
)
BUNDLED = " (bundled)"  # ends the name of a layer that comes with the launcher
_CONTINUED = 500  # lines that a value may span; keys after longer ones have no line number

#: former names of keys, which are still accepted
_NEW_NAMES = {"stream": "route"}


class Layer(Frozen):
    """One parsed file. ``name``: its name in messages, such as its path; ``text`` is kept to find lines in it."""

    name: str
    data: Mapping[str, Any]
    text: str = field(default="", repr=False)

    @property
    def digest(self) -> str:
        """The SHA-256 of the text, in hexadecimal digits."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def line_of(self, keys: Sequence[str]) -> int | None:
        """Return the line number of a key, or of the nearest table above it; ``None`` without any.

        A table of an array is named by its number, from 0: ``("translations", "1", "note")``.
        """
        key_paths = (tuple(keys[:count]) for count in range(len(keys), 0, -1))
        return next((self._lines[key_path] for key_path in key_paths if key_path in self._lines), None)

    @functools.cached_property
    def _lines(self) -> dict[tuple[str, ...], int]:
        lines: dict[tuple[str, ...], int] = {}
        for key_path, number in _places(self.text):
            lines.setdefault(key_path, number)
        return lines


def read_layer(path: Path, name: str | None = None) -> Layer:
    """Return a TOML file as a layer. Raises ``ProfileError``, with the line if it is not TOML."""
    try:
        return parse_layer(path.read_bytes(), name or str(path))
    except (OSError, ValueError) as error:  # ValueError: a NUL in its name
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ProfileError(
            f"{name or path} cannot be read.", why=why, hint="check the name, and that the file is yours"
        ) from None


def parse_layer(content: bytes, name: str) -> Layer:
    """Return the content of a TOML file as a layer. Raises ``ProfileError``."""
    try:
        text = content.decode("utf-8-sig")  # Windows' editor begins a file with a byte order mark
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ProfileError(
            f"{name}:{line} cannot be read: it is not UTF-8.", why=str(error), hint="save it as UTF-8 in your editor"
        ) from None
    try:
        return Layer(name, _with_new_names(_parsed(text)), text)
    except (ValueError, RecursionError) as error:  # RecursionError: thousands of brackets
        line, why, hint = _place_of_mistake(text, str(error))
        raise ProfileError(f"{name}:{line} is not TOML.", why=why, hint=hint) from None


def _parsed(text: str) -> dict[str, Any]:
    """Return the data in a TOML text. Raises ``ValueError`` for an invalid one, and for what would take long to read.

    ``tomllib`` reads a key of many parts in the square of their number, and hexadecimal numbers of any length, which
    Python then refuses to show.
    """
    if found := _DEEP_KEY.search(text):
        raise ValueError(f"A key has too many parts (at line {text[: found.start()].count(chr(10)) + 1}, column 1)")
    data: dict[str, Any] = tomllib.loads(text)
    inside: list[tuple[Any, int]] = [(data, 0)]
    while inside:
        value, depth = inside.pop()
        if depth > _DEEPEST:
            raise ValueError("Tables or lists are nested too deeply")
        if isinstance(value, int) and value.bit_length() > 63:
            raise ValueError("A number is too large")
        below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        inside += [(item, depth + 1) for item in below]
    return data


def _with_new_names(data: dict[str, Any]) -> dict[str, Any]:
    """Return a file's keys by their present names."""
    return {new if (new := _NEW_NAMES.get(key, key)) not in data else key: value for key, value in data.items()}


def _place_of_mistake(text: str, words: str) -> tuple[int, str, str]:
    """Return the line of an error of ``tomllib``, its message with the line itself, and a hint."""
    lines = text.splitlines() or [""]
    position = re.search(r"\(at line (\d+), column \d+\)", words)
    number = min(int(position[1]), len(lines)) if position else len(lines)
    mistake, line = re.sub(r"\s*\(at .*\)", "", words), lines[number - 1].strip()
    short = line if len(line) <= _LONGEST else ""
    bare = re.fullmatch(rf"({_NAME})\s*=\s*({_BARE})\s*(#.*)?", short)
    day = re.fullmatch(rf"({_NAME})\s*=\s*{_DAY}\s*(#.*)?", short)
    if re.match("Cannot (overwrite|declare|mutate)", mistake):
        mistake, hint = "This is there twice", "remove one of the two"
    elif day and day[2] and int(day[3]) <= 12:  # 18.12.2026
        hint = f"write {day[1]} = {day[4]}-{int(day[3]):02}-{int(day[2]):02}"
    elif day:
        hint = f"a day is written year-month-day, for example: {day[1]} = 2026-11-22"
    elif bare:  # the most frequent mistake
        hint = f'a text stands in quotes: {bare[1]} = "{bare[2]}"'
    else:
        hint = 'a line is: key = "a text", or a [table]'
    return number, f"{mistake}: {line if len(line) < 100 else line[:100] + '…'}", hint


def key_parts(name: str) -> tuple[str, ...]:
    """Return the parts of a dotted key in a file; none for an invalid key."""
    return tuple(_parts(name)) if re.fullmatch(_NAME, name) else ()


def plain_value(text: str) -> Any:
    """Return a typed value: numbers, lists and the like as in TOML, else a text.

    ``None`` for an empty one. A walltime is a text, although TOML would accept some as a time of day.
    """
    if not text:
        return None
    try:
        value = tomllib.loads(f"it = {text}")
    except (ValueError, RecursionError):
        return text
    return value["it"] if len(value) == 1 and isinstance(value["it"], str | int | float | list | dict) else text


def merge(layers: Sequence[Layer]) -> dict[str, Any]:
    """Return the merged layers, the last one on top: tables are merged, everything else is replaced."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = _merged(merged, layer.data)
    return merged


def origin(layers: Sequence[Layer], keys: Sequence[str]) -> str:
    """Return the file, and the line if known, of the uppermost layer with this key.

    If no layer has the key (it is missing), return those of its table.
    """
    for count in range(len(keys), 0, -1):
        for layer in reversed(layers):
            if has_key(layer.data, keys[:count]):
                line = layer.line_of(keys[:count])
                return f"{layer.name}:{line}" if line else layer.name
    return f"{layers[-1].name}:1" if layers[-1].text else layers[-1].name


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        mine = result.get(key)
        result[key] = _merged(mine, value) if isinstance(mine, Mapping) and isinstance(value, Mapping) else value
    return result


def has_key(data: Any, keys: Sequence[str]) -> bool:
    """Whether a table has the key; an item of a list counts as the list, which is replaced as a whole."""
    for key in keys:
        if isinstance(data, list):
            return True
        if not isinstance(data, Mapping) or key not in data:
            return False
        data = data[key]
    return True


def _places(text: str) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the path of every table and key in a valid TOML text with its line, starting at 1.

    ``tomllib`` has no positions, and tomlkit groups the tables of an array if others are between them. But the lines of
    a single statement are valid TOML, and no fewer lines of it are.
    """
    table: tuple[str, ...] = ()
    arrays: dict[tuple[str, ...], int] = {}  # the number of the table of each array that was begun last
    lines: list[str] = []
    continued = 0
    for number, line in enumerate(text.split("\n"), 1):
        lines.append(f"{line}\n")
        try:
            statement: Any = tomllib.loads("".join(lines))
        except (ValueError, RecursionError):  # a value that continues
            continued += 1
            if continued > _CONTINUED:  # each has taken a look at all of its value
                return
            continue
        keys: list[str] = []
        while isinstance(statement, dict) and len(statement) == 1:
            ((key, statement),) = statement.items()
            keys.append(key)
        begin, is_header = number - len(lines) + 1, lines[0].lstrip().startswith("[")
        if is_header:
            array = (*_numbered(keys[:-1], arrays), keys[-1])
            if isinstance(statement, list):
                arrays[array] = arrays.get(array, -1) + 1
            table = _numbered(keys, arrays)
            yield table, begin
        else:
            yield from (((*table, *keys[:count]), begin) for count in range(1, len(keys) + 1))
        lines = []


def _numbered(name: Sequence[str], arrays: Mapping[tuple[str, ...], int]) -> tuple[str, ...]:
    """Add the number of the last table to the name of an array of tables."""
    key_path: tuple[str, ...] = ()
    for part in name:
        key_path = (*key_path, part)
        if key_path in arrays:
            key_path = (*key_path, str(arrays[key_path]))
    return key_path


def _parts(name: str) -> list[str]:
    """Split a dotted key: ``environments."tf gpu".env`` has three parts."""
    return [next(iter(tomllib.loads(f"{part} = 0"))) if part[0] in "\"'" else part for part in re.findall(_PART, name)]
