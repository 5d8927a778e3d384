"""What names mean in a copy: which side is the cluster, where each file lands, which names and links are taken.

Pure: nothing is looked at here. A path is text in which bytes that are no UTF-8 stand as surrogates, as in ``os``.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from notebook_launcher.core.errors import UsageError

THERE = "login:"  # what a path on the cluster begins with
LONGEST_NAME = 255  # bytes; what every file system of today takes
_USAGE = "for example: launch-notebook copy data.csv login:course/   or: launch-notebook copy login:results ."


@dataclass(frozen=True)
class CopyArguments:
    """What was typed: sources and a destination, without ``login:``; ``up``: the destination is the cluster."""

    sources: tuple[str, ...]
    destination: str
    up: bool


def parse_arguments(typed: Sequence[str]) -> CopyArguments:
    """Tell the two sides apart. Raises ``UsageError`` where not exactly one of them is the cluster."""
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
    return CopyArguments(tuple(map(_bare, sources)), _bare(destination), up)


def _bare(word: str) -> str:
    """Return the path of a word; on the cluster ``~`` and nothing at all are the home, where relative ones begin."""
    if not word.startswith(THERE):
        return word
    path = word.removeprefix(THERE) or "~"
    if path.startswith("~") and not re.match(r"~(/|$)", path):
        name = path[1:].partition("/")[0]
        raise UsageError(f"The home of “{name}” is not looked for.", hint="write its path, or ./ before a name with ~")
    return path


def last_name(path: str) -> str:
    """Return the name that a copy of this gets inside a folder; none for ``.``: then its content is meant, as by cp.

    Raises ``UsageError`` for ``..`` and ``/``, which say no name.
    """
    path = path.replace(os.sep, "/")
    name = posixpath.basename(path.rstrip("/"))
    if name == ".":
        return ""
    if name in ("", ".."):
        raise UsageError(f"“{path}” has no name of its own.", hint="name the folder, or its content as FOLDER/.")
    return name


def is_safe(name: str) -> bool:
    """Whether a relative path leads nowhere but down; what comes from another machine is not believed to."""
    parts = name.split("/")
    if os.name == "nt" and re.search(r'[\\:*?"<>|]', name):
        return False
    return "\0" not in name and not {"", ".", ".."} & set(parts)


def stays_inside(link: str, target: str) -> bool:
    """Whether a link, by its path in a folder that is copied, points to something in the same folder."""
    if not target or target.startswith("/"):
        return False
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = parts.count("..")
    # only at its beginning: behind another link, .. leads who knows where
    return parts[:up] == [".."] * up and up <= link.count("/")


def tag(*parts: str) -> str:
    """Return a short name for a copy: the same parts give the same, so that an attempt finds what another has left."""
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:10]


def part_name(name: str, mark: str) -> str:
    """Return the hidden name, beside it, of a file that is not complete."""
    end = f".part-{mark}"
    kept = os.fsencode(name)[: LONGEST_NAME - len(end) - 1]
    return f".{os.fsdecode(kept)}{end}"


def beside(path: str, mark: str) -> str:
    """Return the path of what is not complete yet, for the path of what it will be."""
    folder, name = posixpath.split(path)
    return posixpath.join(folder, part_name(name, mark))


# --- what is found, and what is to be done with it -----------------------------------------------------------


Kind = Literal["file", "folder", "link", "other"]


@dataclass(frozen=True)
class Seen:
    """Something at a source. ``name``: its path below the source, "" for the source itself. ``time`` in nanoseconds.

    ``link``: where a link leads, ``behind``: the file that it leads to, if it is one. ``readable``: by this user.
    """

    name: str
    kind: Kind
    mode: int
    size: int = 0
    time: int = 0
    link: str = ""
    readable: bool = True
    behind: Seen | None = None


@dataclass(frozen=True)
class Source:
    """A source as it was found: its absolute path and all that is in it; ``problems``: what could not be looked at."""

    path: str
    seen: tuple[Seen, ...]
    problems: str = ""

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return self.seen[0].kind == "folder"


@dataclass(frozen=True)
class Item:
    """One file, folder or link to be made. ``path``: of the source, absolute. ``target``: below the base folder."""

    path: str
    target: str
    seen: Seen

    @property
    def size(self) -> int:
        """In bytes."""
        return self.seen.size


@dataclass(frozen=True)
class Items:
    """All that a copy makes. ``left_out``: links that lead out to no file, and what is neither file nor folder."""

    files: tuple[Item, ...]
    folders: tuple[Item, ...]
    links: tuple[Item, ...]
    left_out: tuple[str, ...]
    unreadable: tuple[str, ...]


def items_of(sources: Sequence[tuple[Source, str]]) -> Items:
    """Return what sources become, each under its name below the base ("": its content, in the base itself).

    Names that would lead elsewhere are refused: they come from another machine. Raises ``UsageError`` where two sources
    would become the same.
    """
    files, folders, links, left_out, unreadable = [], [], [], [], []
    taken: dict[str, str] = {}
    for source, name in sources:
        inside = {""}  # the folders of this source: nothing lies anywhere else, behind a link for example
        for seen in source.seen:
            target = posixpath.join(name, seen.name) if seen.name else name
            path = posixpath.join(source.path, seen.name) if seen.name else source.path
            if seen.name and (not is_safe(seen.name) or posixpath.dirname(seen.name) not in inside):
                raise UsageError(f"“{seen.name}” is a name that leads out of {source.path}.", why="Nothing was copied.")
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
