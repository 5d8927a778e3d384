"""A cache of profile tables that were found valid, so that the next command need not import pydantic.

Each is a JSON file in the state folder. It is used only for the same data and the same checks, and only if nobody but
this user can have written it. A file that cannot be read is ignored.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from notebook_launcher import __version__
from notebook_launcher.core import local_state
from notebook_launcher.profiles.models import TABLES, Table

Model = TypeVar("Model", bound=Table)

_MOST_FILES = 50  # the most files that are kept: those that were used last
_NAME = re.compile(r"valid-table-[0-9a-f]{64}\.json")


def recall(model: type[Model], data: Mapping[str, Any]) -> Model | None:
    """Return the table with this data if it was found valid before by the same checks; else ``None``."""
    if not local_state.is_private():
        return None
    try:
        digest = _digest(model, data)
        entry = json.loads(local_state.read_own(_name(digest)) or "{}")
        if entry["digest"] != digest:  # another entry under this name
            return None
        table = _unpacked(entry["table"])
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError, OSError):
        return None
    with contextlib.suppress(OSError):
        os.utime(local_state.state_folder() / _name(digest))  # marks it as used
    return table if isinstance(table, model) else None


def keep(table: Table, data: Mapping[str, Any]) -> None:
    """Store a valid table if possible; failures are ignored, since everything works without it."""
    with contextlib.suppress(OSError):
        local_state.make_state_folder()
        if not local_state.is_private():
            return
        digest = _digest(type(table), data)
        text = json.dumps({"digest": digest, "table": _packed(table)})
        if _unpacked(json.loads(text)["table"]) == table:
            local_state.write_own(_name(digest), text)
            _remove_oldest()


def _remove_oldest() -> None:
    paths = [path for path in local_state.state_folder().iterdir() if _NAME.fullmatch(path.name)]
    for path in sorted(paths, key=lambda path: path.lstat().st_mtime)[:-_MOST_FILES]:
        with contextlib.suppress(OSError):
            path.unlink()


def _name(digest: str) -> str:
    return f"valid-table-{digest}.json"


def _digest(model: type[Table], data: Mapping[str, Any]) -> str:
    """Return a digest of the data, and of everything else that determines the result. Raises ``OSError``."""
    return hashlib.sha256(f"{_checks()}\n{model.__name__}\n{data!r}".encode(errors="surrogatepass")).hexdigest()


@functools.cache
def _checks() -> str:
    """Return a text that changes with the checks: versions, and the sizes and times of the source files."""
    package = Path(__file__).parent.parent
    files = [
        *package.glob("profiles/[!.]*.py"),
        *package.glob("core/[!.]*.py"),
    ]  # no lock files: .#models.py
    if (pydantic := find_spec("pydantic")) and pydantic.origin:
        files += Path(pydantic.origin).parent.glob("version.py")
    states = [(str(path), path.stat()) for path in sorted(files)]
    return repr([__version__, sys.version, *((name, state.st_size, state.st_mtime_ns) for name, state in states)])


def _packed(value: Any) -> Any:
    """Return a value in a form for JSON, in which every object names its type."""
    if isinstance(value, Table):
        keys = {one.name: _packed(getattr(value, one.name)) for one in dataclasses.fields(value)}
        return {type(value).__name__: keys}
    if isinstance(value, Mapping):
        return {"dict": {key: _packed(one) for key, one in value.items()}}
    if isinstance(value, tuple):
        return [_packed(one) for one in value]
    return {"date": value.isoformat()} if isinstance(value, date) else value


def _unpacked(value: Any) -> Any:
    """Return the value that ``_packed`` was given. Raises ``LookupError``, ``TypeError`` or ``ValueError``."""
    if isinstance(value, list):
        return tuple(map(_unpacked, value))
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "date":
        return date.fromisoformat(content)
    values = {key: _unpacked(one) for key, one in content.items()}
    return values if kind == "dict" else TABLES[kind](**values)
