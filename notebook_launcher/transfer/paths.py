"""The paths of a copy: which side is the cluster, where each file goes, and which names and links are allowed.

Pure: no file system is accessed. Paths are text, in which bytes that are not UTF-8 are surrogates, as in ``os``.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.frozen import Frozen

THERE = "login:"  # prefix of paths on the cluster
LONGEST_NAME = 255  # bytes; the limit of all current file systems
_USAGE = "for example: launch-notebook copy data.csv login:course/   or: launch-notebook copy login:results ."


class CopyArguments(Frozen):
    """The sources and the destination, without ``login:``. ``up``: whether the destination is on the cluster."""

    sources: tuple[str, ...]
    destination: str
    up: bool


def parse_arguments(typed: Sequence[str]) -> CopyArguments:
    """Parse the arguments of a copy. Raises ``UsageError`` unless exactly one side is the cluster."""
    if len(typed) < 2:
        raise UsageError("A copy needs a source and a destination.", hint=_USAGE)
    if "" in typed:
        raise UsageError("An empty word names no file.", hint=_USAGE)
    *sources, destination = typed
    there = [word.startswith(THERE) for word in sources]
    up = destination.startswith(THERE)
    if not up and not any(there):
        raise UsageError("Neither side is the cluster: its paths begin with login:", hint=_USAGE)
    if any(there) if up else not all(there):
        what = "Both sides are the cluster." if all(there) and up else "The sources are on both sides."
        raise UsageError(what, why="A copy goes from this machine to the cluster, or back.", hint=_USAGE)
    return CopyArguments(tuple(map(_path, sources)), _path(destination), up)


def _path(word: str) -> str:
    """Return the path of an argument; on the cluster, ``~``, an empty path and relative paths refer to the home."""
    if not word.startswith(THERE):
        return word
    path = word.removeprefix(THERE) or "~"
    if path.startswith("~") and not re.match(r"~(/|$)", path):
        name = path[1:].partition("/")[0]
        raise UsageError(f"The home of “{name}” is not looked for.", hint="write its path, or ./ before a name with ~")
    return path


def last_name(path: str) -> str:
    """Return the name of a copy inside a folder; empty for ``.``, of which only the content is copied, as by cp.

    Raises ``UsageError`` for ``..`` and ``/``, which have no name.
    """
    path = path.replace(os.sep, "/")
    name = posixpath.basename(path.rstrip("/"))
    if name == ".":
        return ""
    if name in ("", ".."):
        raise UsageError(f"“{path}” has no name of its own.", hint="name the folder, or its content as FOLDER/.")
    return name


def typed_name(word: str) -> str:
    """Return the name, from what was typed, of a copy of a path on the cluster inside a folder here, as ``last_name``.

    Raises ``UsageError`` for ``~``, ``..`` and ``/``, whose names only the cluster could tell.
    """
    if word.rstrip("/") == "~":
        raise UsageError("The home on the cluster has no name here.", hint=f"copy its content: {THERE}~/.")
    return last_name(word)


def is_safe(name: str) -> bool:
    """Whether a relative path, from another machine, stays inside the folder that it is relative to."""
    parts = name.split("/")
    if os.name == "nt" and re.search(r'[\\:*?"<>|]', name):
        return False
    return "\0" not in name and not {"", ".", ".."} & set(parts)


def stays_inside(link: str, target: str) -> bool:
    """Whether a link, given by its path in a copied folder, points into the same folder."""
    if not target or target.startswith("/"):
        return False
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = parts.count("..")
    # only at the beginning: behind another link, .. may lead anywhere
    return parts[:up] == [".."] * up and up <= link.count("/")


def tag(*parts: str) -> str:
    """Return a short name for a copy: the same for the same parts, so that another attempt finds earlier files."""
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:10]


def part_name(name: str, mark: str) -> str:
    """Return the hidden name, in the same folder, of an incomplete file."""
    end = f".part-{mark}"
    kept = os.fsencode(name)[: LONGEST_NAME - len(end) - 1]
    return f".{os.fsdecode(kept)}{end}"


def new_batch_name() -> str:
    """Return a new hidden name: one of its own for each attempt, because an earlier one may still be running."""
    return part_name("copy", secrets.token_hex(5))


def beside(path: str, mark: str) -> str:
    """Return the path of an incomplete file, in the same folder as its final path."""
    folder, name = posixpath.split(path)
    return posixpath.join(folder, part_name(name, mark))


# --- what is found, and what to do with it -------------------------------------------------------------------


Kind = Literal["file", "folder", "link", "other"]


class SourceEntry(Frozen):
    """A file, folder or link at a source. ``name``: its path below the source, "" for the source itself.

    ``time``: of its last change, in ns. ``link``: a link's target; ``behind``: the file that a link leads to, if it is
    a file. ``readable``: by this user.
    """

    name: str
    kind: Kind
    mode: int
    size: int = 0
    time: int = 0
    link: str = ""
    readable: bool = True
    behind: SourceEntry | None = None


class Source(Frozen):
    """A source: its absolute path and everything in it; ``problems``: what could not be inspected."""

    path: str
    seen: tuple[SourceEntry, ...]
    problems: str = ""

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return self.seen[0].kind == "folder"


class Item(Frozen):
    """One file, folder or link to create. ``path``: the absolute source; ``target``: its path below the base folder."""

    path: str
    target: str
    seen: SourceEntry

    @property
    def size(self) -> int:
        """In bytes."""
        return self.seen.size


class Items(Frozen):
    """Everything that a copy creates. ``left_out``: special files, and links out of the source that lead to no file."""

    files: tuple[Item, ...]
    folders: tuple[Item, ...]
    links: tuple[Item, ...]
    left_out: tuple[str, ...]
    unreadable: tuple[str, ...]


def items_of(sources: Sequence[tuple[Source, str]]) -> Items:
    """Return the items of sources, each under its name below the base ("": its content, in the base itself).

    Raises ``UsageError`` for names that lead elsewhere, which another machine may have sent, and if two sources have
    the same target.
    """
    files, folders, links, left_out, unreadable = [], [], [], [], []
    taken: dict[str, str] = {}
    for source, name in sources:
        inside: set[str] = set()  # the folders of this source; nothing may be elsewhere, such as behind a link
        for seen in source.seen:
            target = posixpath.join(name, seen.name) if seen.name else name
            path = posixpath.join(source.path, seen.name) if seen.name else source.path
            if seen.name and (not is_safe(seen.name) or posixpath.dirname(seen.name) not in inside):
                raise UsageError(f"“{seen.name}” is a name that leads out of {source.path}.", why="Nothing was copied.")
            if not target and seen.kind != "folder":  # FOLDER/. was typed
                raise UsageError(f"{source.path} is not a folder.", why="Nothing was copied.")
            item = Item(path, target, seen)
            if seen.kind == "link":
                if stays_inside(seen.name, seen.link):
                    links.append(item)
                elif seen.behind:
                    item = Item(path, target, replace(seen.behind, name=seen.name, readable=seen.readable))
                    files.append(item)
                else:
                    left_out.append(path)
                    continue
            elif seen.kind == "folder":
                inside.add(seen.name)
                if not target:
                    continue
                folders.append(item)
            elif seen.kind == "file":
                files.append(item)
            else:
                left_out.append(path)
                continue
            if item.seen.kind != "link" and not seen.readable:
                unreadable.append(path)
            if target in taken and not (seen.kind == "folder" and taken[target] == "folder"):
                raise UsageError(f"Two sources would become the same: {target}", why="Nothing was copied.")
            taken[target] = item.seen.kind
    distinct = {item.target: item for item in folders}
    return Items(tuple(files), tuple(distinct.values()), tuple(links), tuple(left_out), tuple(unreadable))
