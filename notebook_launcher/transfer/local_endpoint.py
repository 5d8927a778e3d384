"""This machine as an endpoint of a copy: everything but transferring the data."""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from notebook_launcher.core.text import listed
from notebook_launcher.transfer.endpoints import (
    CopyEndpoint,
    Target,
    already_there,
    kind_of_mode,
    os_errors_of,
    tool_failed,
)
from notebook_launcher.transfer.paths import Kind, Source, SourceEntry
from notebook_launcher.transfer.protocol import CHUNK
from notebook_launcher.transfer.real_folder import Identity, folder_of, identity, is_part, real_folder


class LocalEndpoint(CopyEndpoint):
    """This machine."""

    label = "this machine"

    def __init__(self) -> None:
        self._made: dict[str, Identity] = {}  # the folders that this object created, by path

    def find(self, paths: Sequence[str]) -> list[Source | None]:
        """Inspect files and folders; links given as sources are followed."""
        found: list[Source | None] = []
        for path in map(_without_links, paths):
            if not Path(path).exists():
                found.append(None)
                continue
            problems: list[str] = []
            seen = [_entry(Path(path).stat(), path, "")]
            if seen[0].kind == "folder":
                seen += _entries_below(path, "", problems)
            found.append(Source(path, tuple(seen), listed(problems)))
        return found

    def target(self, path: str) -> Target:
        """Inspect the destination."""
        real = os.path.realpath(path)
        where = Path(real) if Path(real).is_dir() else Path(real).parent
        if not where.is_dir():
            return Target("nowhere", real, False, None)
        kind: Literal["file", "folder", "other", "missing"] = "missing"
        which = ""
        with contextlib.suppress(OSError):
            there = Path(real).stat()
            found, which = kind_of_mode(there.st_mode), str(there.st_ino)
            kind = found if found != "link" else "other"
        return Target(kind, real, os.access(where, os.W_OK | os.X_OK), shutil.disk_usage(where).free, which)

    def sizes(self, paths: Sequence[str]) -> dict[str, tuple[Kind, int]]:
        """Inspect each path."""
        found = {}
        for path in paths:
            with contextlib.suppress(OSError):
                there = Path(path).stat()
                found[path] = (kind_of_mode(there.st_mode), there.st_size)
        return found

    def part(self, path: str) -> int:
        """Inspect the part, without following links."""
        with contextlib.suppress(OSError):
            found = os.lstat(path)
            return found.st_size if is_part(found) else 0
        return 0

    def links(self, paths: Sequence[str]) -> dict[str, str | None]:
        """Inspect each path."""
        return {
            path: os.fspath(Path(path).readlink()) if Path(path).is_symlink() else None
            for path in paths
            if os.path.lexists(path)
        }

    def hashes(self, paths: Sequence[str], size: int) -> dict[str, str]:
        """Read each file."""
        return {path: self.hash_of_first(path, -1) for path in paths}

    def hash_of_first(self, path: str, count: int) -> str:
        """Read the bytes; all of them if ``count`` is -1."""
        hasher = hashlib.sha256()
        with os_errors_of(path), Path(path).open("rb") as file:
            while count and (data := file.read(CHUNK if count < 0 else min(CHUNK, count))):
                hasher.update(data)
                count -= len(data) if count > 0 else 0
        return hasher.hexdigest()

    def folders(self, base: str, modes: Mapping[str, int]) -> None:
        """Create the folders one by one, parents first."""
        for name in modes:
            path = posixpath.join(base, name)
            with os_errors_of(path), folder_of(path) as (folder, last), contextlib.suppress(FileExistsError):
                folder.make_folder(last, modes[name] | 0o700)
                self._made[path] = identity(folder.stat(last))

    def created(self, path: str) -> str:
        """Return the inode number only, because the file system's number may differ after a restart."""
        return str(self._made[path][1]) if path in self._made else ""

    def modes(self, base: str, modes: Mapping[str, int]) -> None:
        """Set the modes one by one."""
        for name, mode in modes.items():
            path = posixpath.join(base, name)
            with os_errors_of(path), real_folder(path) as folder:
                if folder.identity == self._made.get(path):
                    folder.set_mode(mode & ~_umask())

    def create_links(self, base: str, links: Mapping[str, str], *, force: bool) -> None:
        """Create the links one by one."""
        for name, leads in links.items():
            path = posixpath.join(base, name)
            with os_errors_of(path), folder_of(path) as (folder, last):
                if folder.read_link(last) == leads:
                    continue
                if force:
                    with contextlib.suppress(FileNotFoundError):
                        if not stat.S_ISDIR(folder.stat(last).st_mode):
                            folder.remove(last)
                folder.make_link(leads, last)

    def install(self, part: str, path: str, seen: SourceEntry, written: Identity, *, force: bool) -> None:
        """Set its mode and time through its descriptor, and rename it."""
        with os_errors_of(path), folder_of(part) as (hidden, name), folder_of(path) as (folder, new):
            with hidden.open(name, 0) as file:
                if identity(found := os.fstat(file.fileno())) != written or found.st_size != seen.size:
                    raise tool_failed(self.label, f"{part} has been replaced")
                hidden.set_mode_and_time(name, file.fileno(), seen.mode & 0o777 & ~_umask(), seen.time)
            try:
                hidden.move(name, folder, new, replace=force)
            except FileExistsError:
                raise already_there([path]) from None


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _without_links(path: str) -> str:
    """Return an absolute path with links resolved, except in its last component."""
    folder, name = os.path.split(path.rstrip("/" + os.sep) or path)
    return os.path.realpath(path) if name in ("", ".", "..") else os.path.join(os.path.realpath(folder), name)  # noqa: PTH118


def _entry(found: os.stat_result, path: str, name: str) -> SourceEntry:
    kind = kind_of_mode(found.st_mode)
    able = os.R_OK | (os.X_OK if kind == "folder" else 0)
    size = found.st_size if kind == "file" else 0
    return SourceEntry(name, kind, found.st_mode & 0o777, size, found.st_mtime_ns, "", os.access(path, able))


def _entries_below(path: str, name: str, problems: list[str]) -> Iterator[SourceEntry]:
    """Yield everything in a folder, each folder before its contents."""
    try:
        with os.scandir(path) as entries:
            inside = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        problems.append(f"{path}: {error.strerror}")
        return
    for entry in inside:
        below = f"{name}/{entry.name}" if name else entry.name
        try:
            if entry.is_symlink():
                yield _link_entry(entry.path, below)
                continue
            seen = _entry(entry.stat(), entry.path, below)
        except FileNotFoundError:  # deleted meanwhile
            continue
        yield seen
        if seen.kind == "folder" and seen.readable:
            yield from _entries_below(entry.path, below, problems)


def _link_entry(path: str, name: str) -> SourceEntry:
    behind = None
    with contextlib.suppress(OSError):
        behind = _entry(Path(path).stat(), path, name)
    return SourceEntry(
        name,
        "link",
        0o777,
        link=os.readlink(path),  # noqa: PTH115 (pathlib would normalise it)
        behind=behind if behind and behind.kind == "file" else None,
        readable=behind.readable if behind else True,
    )
