"""TOML files laid over each other: each key of the result knows the file and the line that it comes from."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from notebook_launcher.errors import ProfileError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # the same module under its older name

_TABLE = re.compile(r"\s*\[\[?\s*(?P<name>[^\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"\s*(?P<key>[^=#]+?)\s*=")


@dataclass(frozen=True)
class Layer:
    """One file, read. ``name``: what the user calls it, a path or the like; ``text`` is kept to find lines in."""

    name: str
    data: Mapping[str, Any]
    text: str = field(default="", repr=False)

    @property
    def digest(self) -> str:
        """The SHA-256 of the text, in hexadecimal digits."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def line_of(self, keys: Sequence[str]) -> int | None:
        """Return the number of the line that sets a key, or of the nearest table above it; ``None`` without any."""
        table: list[str] = []
        best: tuple[int, int] | None = None
        for number, line in enumerate(self.text.splitlines(), 1):
            if header := _TABLE.match(line):
                table = _parts(header["name"])
                place = table
            elif assignment := _KEY.match(line):
                place = [*table, *_parts(assignment["key"])]
            else:
                continue
            same = _same_beginning(place, keys)
            if same and same == len(place) and (best is None or same > best[0]):
                best = (same, number)
        return best[1] if best else None


def read_layer(path: Path, name: str | None = None) -> Layer:
    """Return a TOML file as a layer. Raises ``ProfileError``, with the line where it is not TOML."""
    try:
        return parse_layer(path.read_bytes(), name or str(path))
    except OSError as error:
        raise ProfileError(f"{name or path} cannot be read.", why=error.strerror or str(error)) from None


def parse_layer(content: bytes, name: str) -> Layer:
    """Return the content of a TOML file as a layer. Raises ``ProfileError``."""
    try:
        text = content.decode("utf-8")
        return Layer(name, tomllib.loads(text), text)
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(
            f"{name} is not TOML.", why=str(error), mend='texts stand in quotes: time = "2:00:00"'
        ) from None
    except UnicodeDecodeError as error:
        raise ProfileError(f"{name} cannot be read.", why=str(error)) from None


def merge(layers: Sequence[Layer]) -> dict[str, Any]:
    """Return what the layers come to, the last one on top: tables are merged, everything else is replaced."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = _merged(merged, layer.data)
    return merged


def origin(layers: Sequence[Layer], keys: Sequence[str]) -> str:
    """Return the file, and the line where it is known, that the uppermost layer with this key has it from."""
    for layer in reversed(layers):
        if _has(layer.data, keys):
            line = layer.line_of(keys)
            return f"{layer.name}:{line}" if line else layer.name
    return layers[-1].name


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        mine = result.get(key)
        result[key] = _merged(mine, value) if isinstance(mine, Mapping) and isinstance(value, Mapping) else value
    return result


def _has(data: Any, keys: Sequence[str]) -> bool:
    """Whether a table has the key; a place in a list counts as the list, which is replaced as a whole."""
    for key in keys:
        if isinstance(data, list):
            return True
        if not isinstance(data, Mapping) or key not in data:
            return False
        data = data[key]
    return True


def _parts(name: str) -> list[str]:
    """Split a dotted key: ``environments."tf gpu".env`` has three parts."""
    return [part.strip().strip("\"'") for part in re.findall(r"\"[^\"]*\"|'[^']*'|[^.]+", name)]


def _same_beginning(place: Sequence[str], keys: Sequence[str]) -> int:
    count = 0
    for mine, theirs in zip(place, keys, strict=False):
        if mine != theirs:
            break
        count += 1
    return count
