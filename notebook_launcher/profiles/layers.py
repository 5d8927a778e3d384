"""TOML files that are merged as layers; the file and the line of each key can be found."""

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
# values that should be in quotes: words and times, but not numbers
_BARE = r"""[^\s"'\[{#\d][^"'#]*?|\d+[A-Za-z]+|(?:\d+-)?\d+(?::\d+)+"""
_DAY = r"(?:(\d\d?)\.(\d\d?)\.(\d{4})|\d+[-/.]\d+[-/.]\d+)"
_LONGEST_LINE = 200  # characters; a mistake in a longer line is not analysed
_DEEPEST = 50  # levels of nested tables and lists; no profile has ten
# parts have a limited length, so that the search takes linear time; a key with longer parts has fewer of them
_DEEP_KEY = re.compile(
    rf"""(?<![\w-])(?:(?:[\w-]{{1,99}}|"(?:\\.|[^"\\]){{0,99}}"|'[^']{{0,99}}')[ \t]*\.[ \t]*){{{_DEEPEST}}}"""
)
BUNDLED = " (bundled)"  # the end of the name of a layer that comes with the launcher
_CONTINUED = 500  # the most continuation lines; keys after more of them have no line number

#: former names of keys that are still accepted
_NEW_NAMES = {"stream": "route"}


class Layer(Frozen):
    """One parsed file. ``name``: its name in messages, such as its path; ``text``: kept to find the lines of keys."""

    name: str
    data: Mapping[str, Any]
    text: str = field(default="", repr=False)

    @property
    def digest(self) -> str:
        """The SHA-256 of the text, in hexadecimal digits."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def line_of(self, keys: Sequence[str]) -> int | None:
        """Return the line number of a key, or of the nearest table above it; ``None`` if there is none.

        A table in an array is named by its index, from 0: ``("translations", "1", "note")``.
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
    """Return a TOML file as a layer. Raises ``ProfileError`` if it cannot be read; with the line if it is not TOML."""
    try:
        return parse_layer(path.read_bytes(), name or str(path))
    except (OSError, ValueError) as error:  # ValueError: its name contains a NUL
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ProfileError(
            f"{name or path} cannot be read.", why=why, hint="check the name, and that the file is yours"
        ) from None


def parse_layer(content: bytes, name: str) -> Layer:
    """Return the content of a TOML file as a layer. Raises ``ProfileError`` with the line if it is not TOML."""
    try:
        text = content.decode("utf-8-sig")  # editors on Windows may write a byte order mark
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
    """Return the data in a TOML text. Raises ``ValueError`` if it is invalid, or has unreasonable keys or values.

    ``tomllib`` needs quadratic time for a key of many parts, and accepts hexadecimal numbers of any length, which
    Python then refuses to print.
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
    """Return the data with former names of keys replaced by the present ones."""
    return {new if (new := _NEW_NAMES.get(key, key)) not in data else key: value for key, value in data.items()}


def _place_of_mistake(text: str, words: str) -> tuple[int, str, str]:
    """Return the line number of an error of ``tomllib``, its message with the line's text, and a hint."""
    lines = text.splitlines() or [""]
    position = re.search(r"\(at line (\d+), column \d+\)", words)
    number = min(int(position[1]), len(lines)) if position else len(lines)
    mistake, line = re.sub(r"\s*\(at .*\)", "", words), lines[number - 1].strip()
    short = line if len(line) <= _LONGEST_LINE else ""
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
    """Return the parts of a dotted TOML key; an empty tuple for an invalid key."""
    return tuple(_parts(name)) if re.fullmatch(_NAME, name) else ()


def plain_value(text: str) -> Any:
    """Return a value as a user typed it: a number, a list and the like as in TOML, otherwise the text itself.

    ``None`` for an empty text. A walltime stays a text, although TOML would accept some as a time of day.
    """
    if not text:
        return None
    try:
        value = tomllib.loads(f"it = {text}")
    except (ValueError, RecursionError):
        return text
    return value["it"] if len(value) == 1 and isinstance(value["it"], str | int | float | list | dict) else text


def merge(layers: Sequence[Layer]) -> dict[str, Any]:
    """Merge the layers, of which the last one has precedence: tables are merged, everything else is replaced."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = _merged(merged, layer.data)
    return merged


def origin(layers: Sequence[Layer], keys: Sequence[str]) -> str:
    """Return the file, and the line if known, of a key in the topmost layer that has it.

    If no layer has the key, return those of its table.
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
    """Return whether a table has this key; an item of a list counts as present, since lists are replaced as a whole."""
    for key in keys:
        if isinstance(data, list):
            return True
        if not isinstance(data, Mapping) or key not in data:
            return False
        data = data[key]
    return True


def _places(text: str) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the path of every table and key in a valid TOML text, with its line number, from 1.

    ``tomllib`` reports no positions, and tomlkit groups the tables of an array even if others are between them. So
    lines are collected until they are valid TOML, which is the case only at the end of a statement.
    """
    table: tuple[str, ...] = ()
    arrays: dict[tuple[str, ...], int] = {}  # the index of the last table of each array
    lines: list[str] = []
    continued = 0
    for number, line in enumerate(text.split("\n"), 1):
        lines.append(f"{line}\n")
        try:
            statement: Any = tomllib.loads("".join(lines))
        except (ValueError, RecursionError):  # a value that continues
            continued += 1
            if continued > _CONTINUED:  # for each of them, all lines of the value were parsed again
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
    """Return the path of a table, with the index of the last table after each array of tables."""
    key_path: tuple[str, ...] = ()
    for part in name:
        key_path = (*key_path, part)
        if key_path in arrays:
            key_path = (*key_path, str(arrays[key_path]))
    return key_path


def _parts(name: str) -> list[str]:
    """Split a dotted key: ``environments."tf gpu".env`` has three parts."""
    return [next(iter(tomllib.loads(f"{part} = 0"))) if part[0] in "\"'" else part for part in re.findall(_PART, name)]
