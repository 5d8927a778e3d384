"""What an end of a copy does, this machine or the cluster, and how it says that something cannot be done.

Names are text in which any byte may hide, as surrogates.
"""

from __future__ import annotations

import contextlib
import errno
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from notebook_launcher.core.errors import CopyFailed, CopyRefused
from notebook_launcher.core.text import listed
from notebook_launcher.transfer.paths import Kind, Seen, Source

_CUT_SHORT = "wrote only"  # what tar says of a file that was cut by a full disk
_SHUT = re.compile(r"permission denied|not permitted|read-only", re.I)
_FULL = re.compile(rf"no space left|disk quota|quota exceeded|file too large|{_CUT_SHORT}", re.I)
_LOOK = "check with ls -ld that you may write there; "
GOES_ON = "type the same command to continue from there"


@dataclass(frozen=True)
class Target:
    """What lies at the destination. ``kind``: ``missing``: nothing; ``nowhere``: not even the folder for it is there.

    ``path``: absolute and without links. ``free``: bytes that can still be written, as far as the file system tells.
    """

    kind: Literal["file", "folder", "other", "missing", "nowhere"]
    path: str
    writable: bool
    free: int | None


class CopyEndpoint(ABC):
    """One end of a copy. All paths are absolute. Raises ``CopyFailed`` where something cannot be done."""

    #: what the user calls it
    label: str

    @abstractmethod
    def find(self, paths: Sequence[str]) -> list[Source | None]:
        """Return all that there is to be copied at each path, ``None`` where there is nothing."""

    @abstractmethod
    def target(self, path: str) -> Target:
        """Look at the destination."""

    @abstractmethod
    def sizes(self, paths: Sequence[str]) -> dict[str, tuple[Kind, int]]:
        """Return the kind and size of those that are there."""

    @abstractmethod
    def part(self, path: str) -> int:
        """Return the bytes of a part that an earlier attempt of this user has left, 0 for anything else."""

    @abstractmethod
    def links(self, paths: Sequence[str]) -> dict[str, str | None]:
        """Return where the links among those that are there lead, ``None`` for what is no link."""

    @abstractmethod
    def hashes(self, paths: Sequence[str], size: int) -> dict[str, str]:
        """Return the SHA-256 of files, all of them ``size`` bytes together."""

    @abstractmethod
    def beginning(self, path: str, count: int) -> str:
        """Return the SHA-256 of a file's first bytes."""

    @abstractmethod
    def folders(self, base: str, modes: Mapping[str, int]) -> None:
        """Make folders below another, with their modes under the umask, but so that they can be written."""

    @abstractmethod
    def modes(self, base: str, modes: Mapping[str, int]) -> None:
        """Give folders their modes, under the umask."""

    @abstractmethod
    def tie(self, base: str, links: Mapping[str, str], *, force: bool) -> None:
        """Make links: where each leads, by its path below ``base``."""

    @abstractmethod
    def place(self, part: str, path: str, seen: Seen, *, force: bool) -> None:
        """Give a complete part its mode, its time and its name."""


def broke_off(label: str, message: str) -> CopyFailed:
    """Return the error for what a tool printed."""
    lines = message.strip().splitlines() or ["no reason given"]
    full = [line for line in lines if _FULL.search(line)]
    hint = "make room there (df -h, quota -s); " if full else _LOOK if _SHUT.search(lines[0]) else ""
    why = (full or lines)[0]
    if _CUT_SHORT in why.lower():
        why += " (as where the disk is full, or a quota used up)"
    return CopyFailed(f"The copy broke off on {label}.", why=why, hint=hint + GOES_ON)


def already_there(paths: Sequence[str]) -> CopyFailed:
    """Return the error for what somebody else has put there meanwhile."""
    return CopyFailed(
        f"Something is there by now, and was left alone: {listed(paths)}",
        why="It was not when the copy began.",
        hint="compare the two, and remove one, or replace it with --force",
    )


@contextlib.contextmanager
def os_errors_of(path: str) -> Iterator[None]:
    """Tell what the system says of a file here as a ``CopyFailed``."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) if hasattr(errno, "EDQUOT") else False
        shut = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
        hint = "make room here; " if full else _LOOK if shut else ""
        raise CopyFailed(f"The copy broke off at {path} on this machine.", why=why, hint=hint + GOES_ON) from None


def kind_of_mode(mode: int) -> Kind:
    """Return what a file is, by its mode."""
    return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"


def refuse_missing(label: str, typed: Sequence[str], found: Sequence[Source | None]) -> list[Source]:
    """Return what was found. Raises ``CopyRefused`` where one is not there, or is not a folder despite its slash."""
    missing = [word for word, source in zip(typed, found, strict=True) if source is None]
    if missing:
        pattern = any(set(word) & set("*?[") for word in missing)
        raise CopyRefused(
            f"There is no {listed(missing)} on {label}.",
            why="Patterns are not expanded there." if pattern else "",
            hint="copy the whole folder" if pattern else "is the name right?",
        )
    sources = [source for source in found if source]
    for word, source in zip(typed, sources, strict=True):
        if word.endswith("/") and not source.is_folder:
            raise CopyRefused(f"{word} is not a folder on {label}.", hint="leave out the slash at its end")
    return sources
