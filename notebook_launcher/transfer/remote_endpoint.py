"""The cluster as an endpoint of a copy, using ``copy.sh``: everything but transferring the data."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from notebook_launcher.core.errors import HostCommandFailed
from notebook_launcher.core.text import printable
from notebook_launcher.hosts.base import Host
from notebook_launcher.transfer.endpoints import (
    CopyEndpoint,
    Target,
    TargetKind,
    already_there,
    kind_of_mode,
    tool_failed,
)
from notebook_launcher.transfer.paths import Item, Kind, Source, SourceEntry, new_batch_name
from notebook_launcher.transfer.protocol import Reply, call_verb, names
from notebook_launcher.transfer.real_folder import Identity

_THERE_ALREADY = 17  # exit code of copy.sh

_LONGEST_SIZE = 15  # digits: up to a petabyte
_DIGITS = {8: "0-7", 10: "0-9", 16: "0-9a-f"}
# a time as find prints it: "1763942400.1234567890"; no file system, and no system clock, supports later times
_MOMENT = re.compile(r"(-?[0-9]{1,18})(?:\.([0-9]*))?")


class RemoteEndpoint(CopyEndpoint):
    """The cluster, using ``copy.sh``."""

    def __init__(self, host: Host) -> None:
        self.host, self.label = host, host.label
        self._made: dict[str, str] = {}  # the identities of the folders that this object created, by path

    def find(self, paths: Sequence[str]) -> list[Source | None]:
        """Run ``find`` on the cluster."""
        reply = self._call("list", *paths)
        found = _sources(reply.fields(), reply.stderr)
        if len(found) != len(paths):
            raise HostCommandFailed("The list of what there is to copy cannot be read.", why=reply.stderr[:200])
        return found

    def target(self, path: str) -> Target:
        """Inspect the destination."""
        fields = self._call("target", path).fields()
        if len(fields) != 5 or fields[0] not in _TARGETS:
            raise HostCommandFailed("What is at the destination cannot be read.")
        kind, real, writable, which, room = fields
        # "/dev/my disk  1000  200  800  20% /my place": names may contain spaces, so count from the per cent sign
        free = re.search(r"\s([0-9]{1,15})\s+\d+%\s", room)
        return Target(_TARGETS[kind], real, writable == "y", int(free[1]) * 1024 if free else None, which)

    def sizes(self, paths: Sequence[str]) -> dict[str, tuple[Kind, int]]:
        """Run ``stat`` on the cluster."""
        fields = self._call("stats", data=names(paths)).fields() if paths else []
        return {name: (kind_of_mode(_number(mode, 16) & 0xFFFF), _number(size)) for mode, size, name in _by(3, fields)}

    def part(self, path: str) -> int:
        """Run ``stat`` on the cluster."""
        return _number(self._call("part", path).data.decode(errors="replace").strip() or "0")

    def links(self, paths: Sequence[str]) -> dict[str, str | None]:
        """Run ``readlink`` on the cluster."""
        fields = self._call("links", data=names(paths)).fields() if paths else []
        return {name: to[1:] if to.startswith("l") else None for to, name in _by(2, fields) if to != "-"}

    def hashes(self, paths: Sequence[str], size: int) -> dict[str, str]:
        """Run ``sha256sum`` on the cluster."""
        return hashes_of(self._call("hashes", data=names(paths), reads=size)) if paths else {}

    def hash_of_first(self, path: str, count: int) -> str:
        """Read the bytes on the cluster."""
        return self._call("beginning", path, str(count), reads=count).data[:64].decode(errors="replace")

    def folders(self, base: str, modes: Mapping[str, int]) -> None:
        """Create all folders at once."""
        if modes:
            pairs = [word for name, mode in modes.items() for word in (f"{mode | 0o700:o}", name)]
            reply = self._call("folders", base, new_batch_name(), data=names(pairs))
            self._made.update({posixpath.join(base, name): made for made, name in _by(2, reply.fields())})

    def created(self, path: str) -> str:
        """Return the identity that ``copy.sh`` reported."""
        return self._made.get(path, "")

    def modes(self, base: str, modes: Mapping[str, int]) -> None:
        """Set all modes at once."""
        made = {name: self._made.get(posixpath.join(base, name)) for name in modes}
        words = [word for name, mode in modes.items() if (own := made[name]) for word in (f"{mode:o}", own, name)]
        if words:
            self._call("modes", base, data=names(words))

    def create_links(self, base: str, links: Mapping[str, str], *, force: bool) -> None:
        """Create all links at once."""
        if links:
            pairs = [word for name, leads in links.items() for word in (leads, name)]
            self._call("tie", base, _yes(force), data=names(pairs))

    def install(self, part: str, path: str, seen: SourceEntry, written: Identity, *, force: bool) -> None:
        """Rename it on the cluster."""
        folder, _, name = path.rpartition("/")
        hidden = part.rpartition("/")[2]
        seconds, parts = divmod(seen.time, 10**9)
        mode, moment = f"{seen.mode & 0o777:o}", f"{seconds}.{parts:09d}"
        arguments = (folder or "/", hidden, name, str(seen.size), mode, moment, _yes(force))
        which = str(written[1])
        if self._call("place", *arguments, which, allowed=(_THERE_ALREADY,)).code:
            raise already_there([path])

    def install_batch(self, base: str, context: str, items: Sequence[Item], *, force: bool) -> list[Item]:
        """Move unpacked files to their paths, and return those whose paths have been taken meanwhile."""
        reply = self._call("settle", base, context, _yes(force), data=_below_here([item.target for item in items]))
        reported = list(_by(3, reply.fields()))
        left = {name[2:] for mark, _, name in reported if mark == "L"}
        sizes = {name[2:]: _number(size) for mark, size, name in reported if mark == "T"}
        for item in items:
            taken = item.target in left and item.target in sizes and not force
            if not taken and (item.target in left or sizes.get(item.target) != item.size):
                raise tool_failed(self.label, reply.stderr or f"{base}/{item.target} could not be moved to its place")
        return [item for item in items if item.target in left]

    def _call(
        self, verb: str, *arguments: str, data: bytes = b"", reads: int = 0, allowed: tuple[int, ...] = ()
    ) -> Reply:
        reply = call_verb(self.host, verb, *arguments, data=data, reads=reads)
        if reply.code and reply.code not in allowed:
            raise tool_failed(self.label, reply.stderr)
        return reply


def hashes_of(reply: Reply) -> dict[str, str]:
    """Parse sha256sum's lines; if a line begins with a backslash, characters of its name are escaped."""
    return {
        _unescaped(line[67:]) if line[0] == "\\" else line[66:]: line.lstrip("\\")[:64]
        for line in reply.lines()
        if re.match(r"\\?[0-9a-f]{64} ", line)
    }


def _unescaped(name: str) -> str:
    return re.sub(r"\\(.)", lambda found: {"n": "\n", "r": "\r"}.get(found[1], found[1]), name)


def written_part(reply: Reply) -> tuple[Identity, str]:
    """Parse the reply to ``put``: return the part's identity, and its hash and size as one text."""
    found = re.fullmatch(r"(.*) ([0-9]{1,20})", (reply.lines() or [""])[0])
    return ((0, int(found[2])), found[1]) if found else ((0, 0), "")


def is_size(word: str) -> bool:
    """Whether a word from another machine is a plausible number of bytes."""
    return word.isascii() and word.isdecimal() and len(word) <= _LONGEST_SIZE


def _number(word: str, base: int = 10) -> int:
    """Parse a number from another machine. Raises ``HostCommandFailed`` for an invalid one."""
    if re.fullmatch(f"[{_DIGITS[base]}]{{1,{_LONGEST_SIZE}}}", word):
        return int(word, base)
    raise HostCommandFailed("What there is to copy cannot be read.", why=f"“{printable(word[:40])}” is not a number.")


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _below_here(paths: Sequence[str] | Mapping[str, int]) -> bytes:
    return names([f"./{path}" for path in paths])


def _by(count: int, fields: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return (tuple(fields[index : index + count]) for index in range(0, len(fields) - count + 1, count))


_TARGETS: dict[str, TargetKind] = {"f": "file", "d": "folder", "o": "other", "-": "missing", "?": "nowhere"}
_KINDS: dict[str, Kind] = {"f": "file", "d": "folder", "l": "link"}


def _sources(fields: Sequence[str], stderr: str) -> list[Source | None]:
    """Parse the reply to ``list``. Raises ``HostCommandFailed`` for an invalid one."""
    found: list[Source | None] = []
    path, entries, behind = "", list[SourceEntry](), dict[str, SourceEntry]()

    def close() -> None:
        if entries:
            if entries[0].name or entries[0].kind == "link":  # the first entry must be the source, links resolved
                raise ValueError(entries[0].name)
            whole = (SourceEntry(**{**vars(seen), "behind": behind.get(seen.name)}) for seen in entries)
            found.append(Source(path, tuple(whole), stderr))
        entries.clear()
        behind.clear()

    rest: Iterator[str] = iter(fields)
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
                    SourceEntry(
                        name, known, _number(mode, 8) & 0o777, bytes_, _nanoseconds(moment), link, readable == "y"
                    )
                )
            elif mark == "L":
                mode, size, moment, name = take(4)
                name = name[len(path.rstrip("/")) + 1 :]
                behind[name] = SourceEntry(name, "file", _number(mode, 8) & 0o777, _number(size), _nanoseconds(moment))
            else:
                raise ValueError(mark)
        close()
    except (RuntimeError, StopIteration, ValueError):
        raise HostCommandFailed("The list of what there is to copy cannot be read.", why=stderr[:200]) from None
    return found


def _nanoseconds(moment: str) -> int:
    found = _MOMENT.fullmatch(moment)
    if found is None:
        raise ValueError(moment)
    return int(found[1]) * 10**9 + int(f"{found[2] or ''}000000000"[:9])
