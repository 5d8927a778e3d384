"""Reads a job script for ``submit``: the user's own file, or a template."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from notebook_launcher.core.bounded_read import read_at_most
from notebook_launcher.core.errors import NotebookInvalid, ScriptInvalid
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.quantities import file_size
from notebook_launcher.core.sbatch_directives import Directives, read_directives
from notebook_launcher.core.suggestions import did_you_mean
from notebook_launcher.core.text import listed, printable
from notebook_launcher.notebook.dependencies import Dependencies, absolute, typed_path
from notebook_launcher.scripts.templates import Template, find_template, no_such_template

LARGEST = 4 * 1024 * 1024  # bytes; the default of Slurm's limit, max_script_size
LONGEST_NAME = 200  # bytes of a file name
_MOST_BESIDE = 1000  # files in the script's folder that are considered
_BOM = b"\xef\xbb\xbf"
_BASH, _PYTHON = ("bash", "#!/bin/bash"), ("Python", "#!/usr/bin/env python3")
_SEE = "list the bundled scripts with: launch-notebook jobscript"


class PreparedScript(Frozen):
    """A script to submit. ``directives``: its flags; ``files``: those sent with it, by paths relative to it.

    ``folder``: the user's own folder that contains it, ``None`` for a template. ``beside``: files in that folder that
    it mentions and that are not sent. ``stdin``: the file that it reads as its standard input.
    """

    name: str
    content: bytes
    directives: Directives
    files: Mapping[str, bytes] = field(default_factory=dict)
    folder: Path | None = None
    notes: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    stdin: str | None = None


def prepare_script(word: str, extra: Sequence[Path] = ()) -> PreparedScript:
    """Return the script with this path, or the template with this name; the user's files have priority.

    ``extra``: files and folders to send with it. Raises ``ScriptInvalid``, and ``UsageError`` for ``#SBATCH`` lines
    that cannot be read.
    """
    try:
        path, template, notes = _found(word)
        content, changes = as_script(path.name, _read(path))
        text = content.decode(errors="surrogateescape")
        dependencies = Dependencies(path.parent, path.name, "script")
        for other in (*(template.needs if template else ()), *extra):
            dependencies.add_named(other)
        files = dependencies.read()
    except NotebookInvalid as error:  # about the files to send with it
        raise ScriptInvalid(error.what, why=error.why, hint=error.hint) from None
    directives = read_directives(text)
    return PreparedScript(
        _name_of(path),
        content,
        directives,
        files,
        None if template else path.parent,
        (*notes, *changes, *dependencies.notes),
        () if template else _named_beside(path, text, files),
        template.variables if template else {},
    )


def as_script(name: str, content: bytes) -> tuple[bytes, tuple[str, ...]]:
    """Return a script's content in a form that the cluster can run, and notes on changes. Raises ``ScriptInvalid``."""
    notes = []
    if b"\0" in content or not content.strip():
        raise ScriptInvalid(
            f"{printable(name)} is empty." if not content.strip() else f"{printable(name)} is not a text file.",
            why="A job script is a text file with commands for the compute node.",
            hint=_SEE,
        )
    if content.startswith(_BOM):
        content = content.removeprefix(_BOM)
        notes.append("byte order mark")
    if b"\r\n" in content:
        content = content.replace(b"\r\n", b"\n")
        notes.append("Windows line ends (CRLF)")
    if not re.match(rb"#![ \t]*/\S+", content):
        language, line = _PYTHON if name.endswith(".py") else _BASH
        raise ScriptInvalid(
            f"{printable(name)} does not say in its first line what runs it.",
            why="sbatch asks for that, too.",
            hint=f"for a {language} script, let it begin with this line: {line}",
        )
    changed = (
        f"Removed from the copy that is sent: {' and '.join(notes)} of {printable(name)}. Your file is unchanged.",
    )
    return content, changed if notes else ()


def _found(word: str) -> tuple[Path, Template | None, tuple[str, ...]]:
    """Return the script's path, the template if it is one, and notes."""
    if not word or "\0" in word:
        raise ScriptInvalid("No script is named.", hint=_SEE)
    path, template = typed_path(word), find_template(word)
    with contextlib.suppress(OSError):
        if path.is_file():
            notes = (f"{path} of this folder is submitted, not the bundled script of that name.",) if template else ()
            return absolute(path), None, notes
    if template and not _is_path(word):
        return template.path, template, ()
    if path.is_dir():
        raise ScriptInvalid(f"{path} is a folder.", hint="name a script in it")
    if path.exists():
        raise ScriptInvalid(f"{path} is not a file.", hint=_SEE)
    if _is_path(word):
        raise _no_such_file(word, path, template)
    raise no_such_template(word, "There is no file or bundled script {}.", _scripts_in(path.parent))


def _no_such_file(word: str, path: Path, template: Template | None) -> ScriptInvalid:
    hint = did_you_mean(word, _scripts_in(path.parent)) or "check the name; the command runs in this folder"
    if template:
        hint = f"the bundled script is submitted by its name alone: launch-notebook submit {template.name}"
    return ScriptInvalid(f"There is no file “{printable(word)}”.", hint=hint)


def _is_path(word: str) -> bool:
    """Whether a word looks like a path: a template's name has no suffix and no folder."""
    return word.endswith(".sh") or "/" in word or os.sep in word


def _scripts_in(folder: Path) -> list[str]:
    try:
        return sorted(str(path) for path in folder.glob("*.sh"))[:_MOST_BESIDE]
    except OSError:
        return []


def _read(path: Path) -> bytes:
    try:
        content = read_at_most(path, LARGEST)
    except OSError as error:
        raise ScriptInvalid(f"{path} cannot be read.", why=error.strerror or str(error)) from None
    if content is None:
        raise ScriptInvalid(
            f"{path} is too large for a job script.",
            why=f"It may have {file_size(LARGEST)}.",
            hint="put data into files of their own, and send them with: --with FILE",
        )
    return content


def _name_of(path: Path) -> str:
    """Return the script's name on the cluster; it becomes a line of ``session.env``."""
    name = path.name
    if not name.isprintable() or len(name.encode(errors="replace")) > LONGEST_NAME or "\ufffd" in name:
        raise ScriptInvalid(
            f"The script's name {name[:LONGEST_NAME]!a} is too long, or has characters that cannot be printed.",
            hint="give it another name",
        )
    return name


def _named_beside(path: Path, text: str, files: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return names in the script's folder that the script mentions and that are not sent."""
    sent = {name.partition("/")[0] for name in files} | {path.name}
    try:
        there = [one.name for _, one in zip(range(_MOST_BESIDE), path.parent.iterdir(), strict=False)]
    except OSError:
        return ()
    known = {name for name in there if "." in name.strip(".") and name not in sent and name.isprintable()}
    mentioned = set(re.findall(r"[\w.+-]+", text))
    return tuple(sorted(known & mentioned))


def beside_note(script: PreparedScript) -> str | None:
    """Return a note on the files that the script mentions and that are not sent with it; ``None`` if there are none."""
    if not script.beside:
        return None
    few = " ".join(f"--with {shlex.quote(_as_typed(script, name))}" for name in script.beside[:3])
    count = "is" if len(script.beside) == 1 else "are"
    return f"The script names {listed(script.beside)} beside it, which {count} not sent. To send it along: {few}"


def _as_typed(script: PreparedScript, name: str) -> str:
    """Return the path of a file beside the script, as the user would type it in the current folder."""
    path, here = (script.folder or Path()) / name, Path.cwd()
    return str(path.relative_to(here) if here in path.parents else path)
