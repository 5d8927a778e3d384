"""Writes a filled-in template into the user's folder, with the files that it needs."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Collection, Mapping
from pathlib import Path

from notebook_launcher.core.errors import NotebookInvalid, UsageError
from notebook_launcher.core.text import listed, printable
from notebook_launcher.notebook.dependencies import Dependencies, typed_path
from notebook_launcher.notebook.manifest import NOTHING, ODD, state_of
from notebook_launcher.scripts.templates import Template

_OTHER_FOLDER = "name another folder: --to FOLDER"


def files_beside(template: Template) -> dict[str, bytes]:
    """Return the files that a template needs, by their paths relative to it."""
    dependencies = Dependencies(template.path.parent, template.path.name, "script")
    for needed in template.needs:
        dependencies.add_named(needed)
    return dependencies.read()


def named_folder(word: str) -> Path:
    """Return the folder that was typed, which need not exist yet. Raises ``UsageError``."""
    if not word or not word.isprintable():
        raise UsageError("--to names no folder.", hint="for example: --to lesson")
    try:
        folder = typed_path(word)
    except NotebookInvalid as error:
        raise UsageError(error.what, why=error.why, hint=_OTHER_FOLDER) from None
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder.", hint=_OTHER_FOLDER)
    return folder


def save_files(
    folder: Path, files: Mapping[str, bytes], *, programs: Collection[str] = (), force: bool = False
) -> tuple[str, ...]:
    """Write files into a folder, and return the names of those that did not exist.

    ``programs``: the files to make executable. Identical files stay. Raises ``UsageError``, before anything is written,
    if a different file has one of the names; ``force`` replaces it instead.
    """
    try:
        new = _missing(folder, files, force=force)
        for name in new:
            _write(folder / name, files[name], 0o777 if name in programs else 0o666)
    except OSError as error:
        path = printable(str(error.filename or folder))
        raise UsageError(f"{path} could not be written.", why=error.strerror or "", hint=_OTHER_FOLDER) from None
    return new


def _missing(folder: Path, files: Mapping[str, bytes], *, force: bool) -> tuple[str, ...]:
    there = {name: state_of(folder, name) for name in files}
    if odd := [str(folder / name) for name, state in there.items() if state == ODD]:
        raise UsageError(
            f"There are folders or links where files would be written: {listed(odd)}",
            why="Nothing was written.",
            hint=_OTHER_FOLDER,
        )
    new = tuple(name for name, content in files.items() if there[name] != hashlib.sha256(content).hexdigest())
    differ = [str(folder / name) for name in new if there[name] != NOTHING]
    if differ and not force:
        raise UsageError(
            f"Other files of the same name are there already: {listed(differ)}",
            why="Nothing was written.",
            hint=f"{_OTHER_FOLDER}   or replace them with --force",
        )
    return new


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a file atomically. The user's umask applies to ``mode``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
