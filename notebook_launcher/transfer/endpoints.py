"""The interface of an endpoint of a copy, this machine or the cluster, and the errors of both.

Names are text, in which bytes that are not UTF-8 are surrogates.
"""

from __future__ import annotations

import contextlib
import errno
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from notebook_launcher.core.errors import CopyFailed, CopyRefused
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.text import listed
from notebook_launcher.transfer.paths import Kind, Source, SourceEntry
from notebook_launcher.transfer.real_folder import Identity

_CUT_SHORT = "wrote only"  # tar's message for a file that was truncated by a full disk
_SHUT = re.compile(r"permission denied|not permitted|read-only", re.I)
_FULL = re.compile(rf"no space left|disk quota|quota exceeded|file too large|{_CUT_SHORT}", re.I)
_CHECK_MODES = "check with ls -ld that you may write there; "
GOES_ON = "type the same command to continue from there"


TargetKind = Literal["file", "folder", "other", "missing", "nowhere"]


class Target(Frozen):
    """The destination. ``kind``: ``missing``: it does not exist; ``nowhere``: not even its parent folder exists.

    ``path``: absolute, with links resolved. ``free``: bytes that can still be written, as the file system reports.
    ``identity``: distinguishes it from another one put in its place; empty if it does not exist.
    """

    kind: TargetKind
    path: str
    writable: bool
    free: int | None
    identity: str = ""


class CopyEndpoint(ABC):
    """One endpoint of a copy. All paths are absolute. Raises ``CopyFailed`` if an operation fails."""

    #: its name in messages
    label: str

    @abstractmethod
    def find(self, paths: Sequence[str]) -> list[Source | None]:
        """Return everything at each path, ``None`` if there is nothing."""

    @abstractmethod
    def target(self, path: str) -> Target:
        """Inspect the destination."""

    @abstractmethod
    def sizes(self, paths: Sequence[str]) -> dict[str, tuple[Kind, int]]:
        """Return the kind and size of each path that exists."""

    @abstractmethod
    def part(self, path: str) -> int:
        """Return the size of a part from an earlier attempt of this user, 0 for anything else."""

    @abstractmethod
    def links(self, paths: Sequence[str]) -> dict[str, str | None]:
        """Return the targets of existing links, ``None`` for what is not a link."""

    @abstractmethod
    def hashes(self, paths: Sequence[str], size: int) -> dict[str, str]:
        """Return the SHA-256 of each file; ``size``: bytes of all of them together."""

    @abstractmethod
    def hash_of_first(self, path: str, count: int) -> str:
        """Return the SHA-256 of a file's first bytes."""

    @abstractmethod
    def folders(self, base: str, modes: Mapping[str, int]) -> None:
        """Create folders below another, with their modes under the umask, but writable."""

    @abstractmethod
    def created(self, path: str) -> str:
        """Return the identity of a folder that ``folders`` created, empty if it did not."""

    @abstractmethod
    def modes(self, base: str, modes: Mapping[str, int]) -> None:
        """Set the modes of folders, under the umask."""

    @abstractmethod
    def create_links(self, base: str, links: Mapping[str, str], *, force: bool) -> None:
        """Create links; ``links``: the target of each, by its path below ``base``."""

    @abstractmethod
    def install(self, part: str, path: str, seen: SourceEntry, written: Identity, *, force: bool) -> None:
        """Give a complete part its mode, time and final name, if it is still the file that was ``written``."""


def tool_failed(label: str, message: str) -> CopyFailed:
    """Return the error for the output of a failed tool."""
    lines = message.strip().splitlines() or ["no reason given"]
    full = [line for line in lines if _FULL.search(line)]
    hint = "make room there (df -h, quota -s); " if full else _CHECK_MODES if _SHUT.search(lines[0]) else ""
    why = (full or lines)[0]
    if _CUT_SHORT in why.lower():
        why += " (the disk may be full, or a quota used up)"
    return CopyFailed(f"The copy broke off on {label}.", why=why, hint=hint + GOES_ON)


def already_there(paths: Sequence[str]) -> CopyFailed:
    """Return the error for files that another program has created meanwhile."""
    return CopyFailed(
        f"Something is at the destination now, and was not replaced: {listed(paths)}",
        why="It was not there when the copy began.",
        hint="compare the two, and remove one, or replace it with --force",
    )


@contextlib.contextmanager
def os_errors_of(path: str) -> Iterator[None]:
    """Convert an ``OSError`` about a local file to ``CopyFailed``."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) if hasattr(errno, "EDQUOT") else False
        shut = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
        hint = "make room here; " if full else _CHECK_MODES if shut else ""
        raise CopyFailed(f"The copy broke off at {path} on this machine.", why=why, hint=hint + GOES_ON) from None


def kind_of_mode(mode: int) -> Kind:
    """Return the kind of a file, from its mode."""
    return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"


def refuse_missing(label: str, typed: Sequence[str], found: Sequence[Source | None]) -> list[Source]:
    """Return the sources. Raises ``CopyRefused`` if one does not exist, or ends with a slash but is not a folder."""
    missing = [word for word, source in zip(typed, found, strict=True) if source is None]
    if missing:
        pattern = any(set(word) & set("*?[") for word in missing)
        raise CopyRefused(
            f"There is no {listed(missing)} on {label}.",
            why="Patterns are not expanded there." if pattern else "",
            hint="copy the whole folder" if pattern else "check the name",
        )
    sources = [source for source in found if source]
    for word, source in zip(typed, sources, strict=True):
        if word.endswith("/") and not source.is_folder:
            raise CopyRefused(f"{word} is not a folder on {label}.", hint="leave out the slash at its end")
    return sources
