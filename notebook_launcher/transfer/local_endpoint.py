"""The two ends of a copy, this machine and the cluster: what is there, and what is made there besides the data.

Names are text in which any byte may hide, as surrogates.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from notebook_launcher.core.errors import CopyFailed, CopyRefused, HostCommandFailed
from notebook_launcher.core.text import printable
from notebook_launcher.hosts.base import Host
from notebook_launcher.transfer.paths import Item, Kind, Seen, Source, listed
from notebook_launcher.transfer.protocol import PIECE, Reply, ask, names

_THERE_ALREADY = 17  # exit code of copy.sh
_LONGEST_SIZE = 15  # digits: a petabyte
_CUT_SHORT = "wrote only"  # what tar says of a file that was cut by a full disk
_SHUT = re.compile(r"permission denied|not permitted|read-only", re.I)
_FULL = re.compile(rf"no space left|disk quota|quota exceeded|file too large|{_CUT_SHORT}", re.I)
_LOOK = "may you write there? ls -ld tells; "
GOES_ON = "the same command goes on from there"


@dataclass(frozen=True)
class Target:
    """What lies at the destination. ``kind``: ``missing``: nothing; ``nowhere``: not even the folder for it is there.

    ``path``: absolute and without links. ``free``: bytes that can still be written, as far as the file system tells.
    """

    kind: Literal["file", "folder", "other", "missing", "nowhere"]
    path: str
    writable: bool
    free: int | None


class End(ABC):
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


class Here(End):
    """This machine."""

    label = "this machine"

    def find(self, paths: Sequence[str]) -> list[Source | None]:
        """Look at files and folders; links at the sources themselves are followed."""
        found: list[Source | None] = []
        for path in map(_without_links, paths):
            if not Path(path).exists():
                found.append(None)
                continue
            problems: list[str] = []
            seen = [_seen(Path(path).stat(), path, "")]
            if seen[0].kind == "folder":
                seen += _below(path, "", problems)
            found.append(Source(path, tuple(seen), listed(problems)))
        return found

    def target(self, path: str) -> Target:
        """Look at the destination."""
        real = os.path.realpath(path)
        where = Path(real) if Path(real).is_dir() else Path(real).parent
        if not where.is_dir():
            return Target("nowhere", real, False, None)
        kind: Literal["file", "folder", "other", "missing"] = "missing"
        with contextlib.suppress(OSError):
            found = _kind(Path(real).stat().st_mode)
            kind = found if found != "link" else "other"
        return Target(kind, real, os.access(where, os.W_OK | os.X_OK), shutil.disk_usage(where).free)

    def sizes(self, paths: Sequence[str]) -> dict[str, tuple[Kind, int]]:
        """Look at each."""
        found = {}
        for path in paths:
            with contextlib.suppress(OSError):
                there = Path(path).stat()
                found[path] = (_kind(there.st_mode), there.st_size)
        return found

    def part(self, path: str) -> int:
        """Look at it, not behind it."""
        with contextlib.suppress(OSError):
            found = os.lstat(path)
            return found.st_size if is_part(found) else 0
        return 0

    def links(self, paths: Sequence[str]) -> dict[str, str | None]:
        """Look at each."""
        return {
            path: os.fspath(Path(path).readlink()) if Path(path).is_symlink() else None
            for path in paths
            if os.path.lexists(path)
        }

    def hashes(self, paths: Sequence[str], size: int) -> dict[str, str]:
        """Read each."""
        return {path: self.beginning(path, -1) for path in paths}

    def beginning(self, path: str, count: int) -> str:
        """Read it."""
        hasher = hashlib.sha256()
        with said_of(path), Path(path).open("rb") as file:
            while count and (data := file.read(PIECE if count < 0 else min(PIECE, count))):
                hasher.update(data)
                count -= len(data) if count > 0 else 0
        return hasher.hexdigest()

    def folders(self, base: str, modes: Mapping[str, int]) -> None:
        """Make them one by one, the upper ones first."""
        for name in modes:
            path = Path(base, name)
            with said_of(str(path)), contextlib.suppress(FileExistsError):
                path.mkdir(modes[name] | 0o700)

    def modes(self, base: str, modes: Mapping[str, int]) -> None:
        """Give them one by one."""
        for name, mode in modes.items():
            path = Path(base, name)
            with said_of(str(path)):
                path.chmod(mode & ~_umask())

    def tie(self, base: str, links: Mapping[str, str], *, force: bool) -> None:
        """Make them one by one."""
        for name, leads in links.items():
            path = Path(base, name)
            with said_of(str(path)):
                if path.is_symlink() and os.readlink(path) == leads:  # noqa: PTH115 (as it stands, not tidied up)
                    continue
                if force and (path.is_symlink() or path.is_file()):
                    path.unlink()
                path.symlink_to(leads)

    def place(self, part: str, path: str, seen: Seen, *, force: bool) -> None:
        """Rename it, and where nothing may be replaced, link it first: that fails where something is there."""
        with said_of(path):
            if (now := os.lstat(part)).st_size != seen.size or not _is_plain(now):
                raise failed(self.label, f"{part} has been replaced")
            Path(part).chmod(seen.mode & 0o777 & ~_umask())
            os.utime(part, ns=(time.time_ns(), seen.time))
            if force:
                Path(part).replace(path)
                return
            try:
                os.link(part, path)
            except FileExistsError:
                raise appeared([path]) from None
            except OSError:  # a file system without hard links
                if os.path.lexists(path):
                    raise appeared([path]) from None
                Path(part).rename(path)
            else:
                Path(part).unlink()


class There(End):
    """The cluster, by ``copy.sh``."""

    def __init__(self, host: Host) -> None:
        self.host, self.label = host, host.label

    def find(self, paths: Sequence[str]) -> list[Source | None]:
        """Have ``find`` look."""
        reply = self._ask("list", *paths)
        return _sources(reply.fields(), reply.said)

    def target(self, path: str) -> Target:
        """Look at the destination."""
        kind, real, writable, room = self._ask("target", path).fields()
        # "/dev/my disk  1000  200  800  20% /my place": names may have spaces, and so is counted from the percent sign
        free = re.search(r"\s([0-9]{1,15})\s+\d+%\s", room)
        kinds = {"f": "file", "d": "folder", "o": "other", "-": "missing", "?": "nowhere"}
        return Target(kinds[kind], real, writable == "y", int(free[1]) * 1024 if free else None)  # type: ignore[arg-type]

    def sizes(self, paths: Sequence[str]) -> dict[str, tuple[Kind, int]]:
        """Have ``stat`` look."""
        words = self._ask("stats", data=names(paths)).fields() if paths else []
        return {name: (_kind(_number(mode, 16)), _number(size)) for mode, size, name in _by(3, words)}

    def part(self, path: str) -> int:
        """Have ``stat`` look."""
        return _number(self._ask("part", path).data.decode(errors="replace").strip() or "0")

    def links(self, paths: Sequence[str]) -> dict[str, str | None]:
        """Have ``readlink`` look."""
        words = self._ask("links", data=names(paths)).fields() if paths else []
        return {name: to[1:] if to[0] == "l" else None for to, name in _by(2, words) if to != "-"}

    def hashes(self, paths: Sequence[str], size: int) -> dict[str, str]:
        """Have ``sha256sum`` read them."""
        return hashes_of(self._ask("hashes", data=names(paths), reads=size)) if paths else {}

    def beginning(self, path: str, count: int) -> str:
        """Have it read there."""
        return self._ask("beginning", path, str(count), reads=count).data[:64].decode()

    def folders(self, base: str, modes: Mapping[str, int]) -> None:
        """Make them all at once, and then give each its mode."""
        if modes:
            self._ask("folders", base, data=_below_here(modes))
            self.modes(base, {name: mode | 0o700 for name, mode in modes.items()})

    def modes(self, base: str, modes: Mapping[str, int]) -> None:
        """Give each mode to all that have it at once."""
        for mode in set(modes.values()):
            self._ask("modes", base, f"{mode:o}", data=_below_here([name for name in modes if modes[name] == mode]))

    def tie(self, base: str, links: Mapping[str, str], *, force: bool) -> None:
        """Make them one by one."""
        if links:
            pairs = [word for name, leads in links.items() for word in (leads, f"./{name}")]
            self._ask("tie", base, _yes(force), data=names(pairs))

    def place(self, part: str, path: str, seen: Seen, *, force: bool) -> None:
        """Rename it there."""
        folder, _, name = path.rpartition("/")
        hidden = part.rpartition("/")[2]
        seconds, parts = divmod(seen.time, 10**9)
        mode, moment = f"{seen.mode & 0o777:o}", f"{seconds}.{parts:09d}"
        words = (folder or "/", hidden, name, str(seen.size), mode, moment, _yes(force))
        if self._ask("place", *words, allowed=(_THERE_ALREADY,)).code:
            raise appeared([path])

    def settle(self, base: str, stage: str, items: Sequence[Item], *, force: bool) -> list[Item]:
        """Give what was unpacked its place, and return that whose place somebody else has taken meanwhile."""
        reply = self._ask("settle", base, stage, _yes(force), data=_below_here([item.target for item in items]))
        told = list(_by(3, reply.fields()))
        left = {name[2:] for mark, _, name in told if mark == "L"}
        sizes = {name[2:]: _number(size) for mark, size, name in told if mark == "T"}
        for item in items:
            taken = item.target in left and item.target in sizes and not force
            if not taken and (item.target in left or sizes.get(item.target) != item.size):
                raise failed(self.label, reply.said or f"{base}/{item.target} has not got its place")
        return [item for item in items if item.target in left]

    def _ask(self, verb: str, *words: str, data: bytes = b"", reads: int = 0, allowed: tuple[int, ...] = ()) -> Reply:
        reply = ask(self.host, verb, *words, data=data, reads=reads)
        if reply.code and reply.code not in allowed:
            raise failed(self.label, reply.said)
        return reply


def failed(label: str, said: str) -> CopyFailed:
    """Return the error for what a tool said."""
    lines = said.strip().splitlines() or ["no reason given"]
    full = [line for line in lines if _FULL.search(line)]
    mend = "make room there (df -h, quota -s); " if full else _LOOK if _SHUT.search(lines[0]) else ""
    why = (full or lines)[0]
    if _CUT_SHORT in why.lower():
        why += " (as where the disk is full, or a quota used up)"
    return CopyFailed(f"The copy broke off on {label}.", why=why, mend=mend + GOES_ON)


def appeared(paths: Sequence[str]) -> CopyFailed:
    """Return the error for what somebody else has put there meanwhile."""
    return CopyFailed(
        f"Something is there by now, and was left alone: {listed(paths)}",
        why="It was not when the copy began.",
        mend="compare the two, and take one away; --force replaces it",
    )


@contextlib.contextmanager
def said_of(path: str) -> Iterator[None]:
    """Tell what the system says of a file here as a ``CopyFailed``."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) if hasattr(errno, "EDQUOT") else False
        shut = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
        mend = "make room here; " if full else _LOOK if shut else ""
        raise CopyFailed(f"The copy broke off at {path} on this machine.", why=why, mend=mend + GOES_ON) from None


def hashes_of(reply: Reply) -> dict[str, str]:
    """Read sha256sum's lines; in one that begins with a backslash, the name has some."""
    return {
        _unescaped(line[67:]) if line[0] == "\\" else line[66:]: line.lstrip("\\")[:64]
        for line in reply.lines()
        if re.match(r"\\?[0-9a-f]{64} ", line)
    }


def _unescaped(name: str) -> str:
    return re.sub(r"\\(.)", lambda found: {"n": "\n", "r": "\r"}.get(found[1], found[1]), name)


def is_size(word: str) -> bool:
    """Whether a word from another machine is a number of bytes: one that can be counted and waited for."""
    return word.isascii() and word.isdecimal() and len(word) <= _LONGEST_SIZE


def _number(word: str, base: int = 10) -> int:
    """Read a number that another machine has told. Raises ``HostCommandFailed`` for what is none."""
    if len(word) <= _LONGEST_SIZE:
        with contextlib.suppress(ValueError):
            return int(word, base)
    raise HostCommandFailed("What there is to copy cannot be read.", why=f"“{printable(word[:40])}” is no number.")


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _below_here(paths: Sequence[str] | Mapping[str, int]) -> bytes:
    return names([f"./{path}" for path in paths])


def _by(count: int, words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return (tuple(words[index : index + count]) for index in range(0, len(words) - count + 1, count))


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _without_links(path: str) -> str:
    """Return an absolute path without links before its last name."""
    folder, name = os.path.split(path.rstrip("/" + os.sep) or path)
    return os.path.realpath(path) if name in ("", ".", "..") else os.path.join(os.path.realpath(folder), name)  # noqa: PTH118


def is_part(found: os.stat_result) -> bool:
    """Whether it is as an attempt of this user leaves it: nobody else can have made it, or have it open."""
    own = os.name == "nt" or (found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == 0o600)
    return own and _is_plain(found)


def _is_plain(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_nlink <= 1


def _kind(mode: int) -> Kind:
    return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"


def _seen(found: os.stat_result, path: str, name: str) -> Seen:
    kind = _kind(found.st_mode)
    able = os.R_OK | (os.X_OK if kind == "folder" else 0)
    size = found.st_size if kind == "file" else 0
    return Seen(name, kind, found.st_mode & 0o777, size, found.st_mtime_ns, "", os.access(path, able))


def _below(path: str, name: str, problems: list[str]) -> Iterator[Seen]:
    """Look at all in a folder, the folders before what is in them."""
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
                yield _seen_link(entry.path, below)
                continue
            seen = _seen(entry.stat(), entry.path, below)
        except FileNotFoundError:  # it has gone meanwhile
            continue
        yield seen
        if seen.kind == "folder" and seen.readable:
            yield from _below(entry.path, below, problems)


def _seen_link(path: str, name: str) -> Seen:
    behind = None
    with contextlib.suppress(OSError):
        behind = _seen(Path(path).stat(), path, name)
    return Seen(
        name, "link", 0o777, link=os.readlink(path),  # noqa: PTH115 (as it stands, not tidied up)
        behind=behind if behind and behind.kind == "file" else None,
        readable=behind.readable if behind else True,
    )  # fmt: skip


_KINDS: dict[str, Kind] = {"f": "file", "d": "folder", "l": "link"}


def _sources(words: Sequence[str], said: str) -> list[Source | None]:
    """Read the answer to ``list``. Raises ``HostCommandFailed`` where it is none."""
    found: list[Source | None] = []
    path, entries, behind = "", list[Seen](), dict[str, Seen]()

    def close() -> None:
        if entries:
            whole = (Seen(**{**vars(seen), "behind": behind.get(seen.name)}) for seen in entries)
            found.append(Source(path, tuple(whole), said))
        entries.clear()
        behind.clear()

    rest: Iterator[str] = iter(words)
    take: Callable[[int], list[str]] = lambda count: [next(rest) for _ in range(count)]  # noqa: E731
    try:
        for mark in rest:
            if mark == "M":
                close()
                next(rest)
                found.append(None)
            elif mark == "S":
                close()
                path = next(rest)
            elif mark == "E":
                readable, kind, _behind, mode, size, moment, name, link = take(8)
                known = _KINDS.get(kind, "other")
                bytes_ = _number(size) if known == "file" else 0
                entries.append(
                    Seen(name, known, int(mode, 8) & 0o777, bytes_, _nanoseconds(moment), link, readable == "y")
                )
            elif mark == "L":
                mode, size, moment, name = take(4)
                name = name[len(path.rstrip("/")) + 1 :]
                behind[name] = Seen(name, "file", int(mode, 8) & 0o777, _number(size), _nanoseconds(moment))
            else:
                raise ValueError(mark)
    except (RuntimeError, StopIteration, ValueError):
        raise HostCommandFailed("The list of what there is to copy cannot be read.", why=said[:200]) from None
    close()
    return found


def _nanoseconds(moment: str) -> int:
    seconds, _, parts = moment.partition(".")
    return int(seconds) * 10**9 + int((parts + "000000000")[:9])


def refuse_missing(label: str, words: Sequence[str], found: Sequence[Source | None]) -> list[Source]:
    """Return what was found. Raises ``CopyRefused`` where one is not there, or is no folder in spite of its slash."""
    missing = [word for word, source in zip(words, found, strict=True) if source is None]
    if missing:
        pattern = any(set(word) & set("*?[") for word in missing)
        raise CopyRefused(
            f"There is no {listed(missing)} on {label}.",
            why="Patterns are not filled in there." if pattern else "",
            mend="copy the whole folder" if pattern else "is the name right?",
        )
    sources = [source for source in found if source]
    for word, source in zip(words, sources, strict=True):
        if word.endswith("/") and not source.is_folder:
            raise CopyRefused(f"{word} is no folder on {label}.", mend="leave out the slash at its end")
    return sources
