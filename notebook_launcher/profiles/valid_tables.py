"""The tables of profiles that were found valid, kept for the next command, which then does without pydantic.

An entry counts for the same data and the same checks only, and only if this user alone can have written it. It is JSON;
one that cannot be read is as if it was not there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import stat
import sys
import tempfile
from collections.abc import Mapping
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from notebook_launcher import __version__
from notebook_launcher.core.local_state import state_folder
from notebook_launcher.profiles.models import TABLES, Table

Model = TypeVar("Model", bound=Table)

_MOST_ENTRIES = 50  # the oldest are removed
_MOST_BYTES = 1 << 20  # of an entry; a profile has a few thousand


def recall(model: type[Model], data: Mapping[str, Any]) -> Model | None:
    """Return the table of this data if it was found valid before, by the same checks."""
    digest = _digest(model, data)
    try:
        entry = json.loads(_own_file(digest) or "{}")
        if entry["digest"] != digest:  # another entry under this one's name
            return None
        table = _unpacked(entry["table"])
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        return None
    return table if isinstance(table, model) else None


def keep(table: Table, data: Mapping[str, Any]) -> None:
    """Keep a table that is valid, if possible; everything works without it."""
    digest = _digest(type(table), data)
    text = json.dumps({"digest": digest, "table": _packed(table)})
    if _unpacked(json.loads(text)["table"]) != table or not _tells_owners():
        return
    with contextlib.suppress(OSError):
        folder = _folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # written beside and renamed, so that two commands at once leave one whole file
        descriptor, beside = tempfile.mkstemp(dir=folder)  # readable and writable by its owner alone
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            Path(beside).replace(folder / digest)
        except OSError:
            Path(beside).unlink()
        for old in sorted(folder.iterdir(), key=lambda one: one.stat().st_mtime)[:-_MOST_ENTRIES]:
            old.unlink()


def _folder() -> Path:
    return state_folder() / "valid-tables"


def _digest(model: type[Table], data: Mapping[str, Any]) -> str:
    """Return a digest of the data, and of all else that decides what is read from it."""
    return hashlib.sha256(f"{_checks()}\n{model.__name__}\n{data!r}".encode(errors="surrogatepass")).hexdigest()


@functools.cache
def _checks() -> str:
    """Return what changes with the checks: the versions, and the state of the files that they are made of."""
    package = Path(__file__).parent.parent
    files = [*package.glob("profiles/*.py"), *package.glob("core/*.py")]
    if (pydantic := find_spec("pydantic")) and pydantic.origin:
        files += Path(pydantic.origin).parent.glob("version.py")
    states = [(str(path), path.stat()) for path in sorted(files)]
    return repr([__version__, sys.version, *((name, found.st_size, found.st_mtime_ns) for name, found in states)])


def _own_file(name: str) -> bytes | None:
    """Return the content of an entry if the file and its folder are this user's, and nobody else's business."""
    if not _tells_owners():
        return None
    try:
        folder = os.open(_folder(), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            with os.fdopen(file, "rb") as entry:
                whole = _is_private(folder) and _is_private(file) and stat.S_ISREG(os.fstat(file).st_mode)
                return entry.read(_MOST_BYTES) if whole else None
        finally:
            os.close(folder)
    except OSError:
        return None


def _tells_owners() -> bool:
    """Whether this system says whose a file is; Windows does not."""
    return hasattr(os, "getuid")


def _is_private(descriptor: int) -> bool:
    found = os.fstat(descriptor)
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IRWXG | stat.S_IRWXO)


def _packed(value: Any) -> Any:
    """Return a value as JSON keeps it: every object says what it is."""
    if isinstance(value, Table):
        keys = {one.name: _packed(getattr(value, one.name)) for one in dataclasses.fields(value)}
        return {type(value).__name__: keys}
    if isinstance(value, Mapping):
        return {"dict": {key: _packed(one) for key, one in value.items()}}
    if isinstance(value, tuple):
        return [_packed(one) for one in value]
    return {"date": value.isoformat()} if isinstance(value, date) else value


def _unpacked(value: Any) -> Any:
    """Return the value that was packed. Raises ``LookupError``, ``TypeError`` or ``ValueError`` for any other."""
    if isinstance(value, list):
        return tuple(map(_unpacked, value))
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "date":
        return date.fromisoformat(content)
    values = {key: _unpacked(one) for key, one in content.items()}
    return values if kind == "dict" else TABLES[kind](**values)
