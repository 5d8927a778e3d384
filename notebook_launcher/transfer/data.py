"""Transfers the data of a copy in both directions: one file, resumed after its part, or many small ones in one tar.

Everything is hashed in transit, and again at the other end. Files arrive under hidden names; ``CopyEndpoint.install``
and ``RemoteEndpoint.install_batch`` move them to their paths.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import stat
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from notebook_launcher.core.errors import ConnectionLost, CopyFailed
from notebook_launcher.core.text import listed
from notebook_launcher.transfer.endpoints import GOES_ON, os_errors_of, tool_failed
from notebook_launcher.transfer.paths import Item
from notebook_launcher.transfer.protocol import CHUNK, Wire, names
from notebook_launcher.transfer.real_folder import Identity, folder_of, identity, is_part, real_folder
from notebook_launcher.transfer.remote_endpoint import RemoteEndpoint, hashes_of, written_part

MOST_OVERHEAD = 64 * 1024 * 1024  # bytes of headers, padding and a reply, in addition to a tar's files
#: what ``tarfile`` raises for invalid data; RecursionError: it reads a chain of headers by recursion
NO_TAR = (tarfile.TarError, EOFError, UnicodeError, ValueError, RecursionError)
_PAX = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_EXTRA = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, *_PAX)
_NEW = os.O_CREAT | os.O_EXCL
_LONGEST_EXTRA = 64 * 1024  # bytes; no path is longer than 4096
OnBytes = Callable[[int], None]


class CorruptData(Exception):
    """The received data differ from what was sent, which must be sent again from the start."""


def send_file(there: RemoteEndpoint, item: Item, part: str, offset: int, on_bytes: OnBytes) -> Identity:
    """Append a file, from ``offset`` on, to a remote part, and return the part's identity.

    Raises ``ConnectionLost``, ``CopyFailed``, ``CorruptData``.
    """
    folder, _, name = part.rpartition("/")
    hasher = hashlib.sha256()
    with os_errors_of(item.path), Path(item.path).open("rb") as file:
        _check_same(item, os.fstat(file.fileno()))
        file.seek(offset)
        argv = [folder or "/", name, str(offset), str(item.size - offset)]
        with Wire(there.host, "put", argv, reads=item.size) as wire:
            try:
                for data in _pieces(file, item.size - offset):
                    hasher.update(data)
                    wire.send(data)
                    on_bytes(len(data))
                whole = True
            except BrokenPipeError:  # the reply says why
                whole = False
            wire.end_data()
            reply = wire.reply()
            _check_same(item, Path(item.path).stat())
    if reply.code:
        raise tool_failed(there.label, reply.stderr)
    if not whole:
        raise ConnectionLost(f"The copy ended early on {there.label}.")
    written, reported = written_part(reply)
    if reported != f"{hasher.hexdigest()} {item.size}":
        raise CorruptData(item.path)
    return written


def fetch_file(there: RemoteEndpoint, item: Item, part: str, offset: int, on_bytes: OnBytes) -> Identity:
    """Append a file, from ``offset`` on, to a local part; returns and raises as ``send_file``."""
    hasher, left = hashlib.sha256(), item.size - offset
    with os_errors_of(part), _opened_part(part, offset) as file:
        with Wire(there.host, "get", [item.path, str(offset), str(left)]) as wire:
            while left and (data := wire.receive(min(left, CHUNK))):
                hasher.update(data)
                file.write(data)
                left -= len(data)
                on_bytes(len(data))
            reply = wire.reply()
        file.truncate()
        written = identity(os.fstat(file.fileno()))
    if reply.code:
        raise tool_failed(there.label, reply.stderr)
    fields = reply.data.decode(errors="replace").split()
    if left or len(fields) != 3 or fields[1:] != [str(item.size), str(item.seen.time // 10**9)]:
        raise source_changed(item.path, there.label)
    if fields[0] != hasher.hexdigest():
        raise CorruptData(item.path)
    return written


def send_batch(there: RemoteEndpoint, base: str, context: str, items: Sequence[Item], on_bytes: OnBytes) -> None:
    """Send small files to a hidden remote folder, in one tar. Raises as ``send_file``."""
    sent: dict[str, str] = {}
    with Wire(there.host, "unpack", [base, context]) as wire:
        try:
            with tarfile.open(
                fileobj=_WireWriter(wire), mode="w|", bufsize=CHUNK, format=tarfile.GNU_FORMAT, errors="surrogateescape"
            ) as archive:
                for item in items:
                    data = _content(item)
                    sent[f"./{item.target}"] = hashlib.sha256(data).hexdigest()
                    archive.addfile(_entry(item), io.BytesIO(data))
                    on_bytes(len(data))
        except BrokenPipeError:
            sent.clear()
        wire.end_data()
        reply = wire.reply()
    if reply.code:
        raise tool_failed(there.label, reply.stderr)
    if not sent:
        raise ConnectionLost(f"The copy ended early on {there.label}.")
    if hashes_of(reply) != sent:
        raise CorruptData(listed(list(sent)))


def fetch_batch(
    there: RemoteEndpoint, context: str, items: Sequence[Item], on_bytes: OnBytes
) -> list[tuple[str, Identity]]:
    """Write small files to a hidden local folder; return the path in it and the identity of each, in order.

    Only entries of the tar that were requested, and are as expected, are used, because it is not trusted. Raises as
    ``send_file``.
    """
    with os_errors_of(context), folder_of(context) as (folder, name):
        remove_stale(Path(folder.path), ".copy.part-" + "?" * 10)
        folder.make_folder(name, 0o700)
    requested = {f".{item.path}": item for item in items}
    numbers = {item.path: str(number) for number, item in enumerate(items)}
    parts: dict[str, tuple[str, Identity]] = {}
    arrived: dict[str, str] = {}
    with Wire(there.host, "pack", []) as wire:
        with contextlib.suppress(BrokenPipeError):  # the reply says why
            wire.send(names(list(requested)))
        wire.end_data()
        for item, data in _unpacked(there, wire, requested):
            number = numbers[item.path]
            with os_errors_of(item.path), real_folder(context) as hidden, hidden.open(number, _NEW) as file:
                file.write(data)
                parts[item.path] = str(Path(context, number)), identity(os.fstat(file.fileno()))
            arrived[item.path] = hashlib.sha256(data).hexdigest()
            on_bytes(len(data))
        reply = wire.reply(MOST_OVERHEAD)
    if missing := [item.path for item in items if item.path not in arrived]:
        raise source_changed(listed(missing), there.label, reply.stderr)
    if there.hashes(list(numbers), sum(item.size for item in items)) != arrived:
        raise CorruptData(listed(list(arrived)))
    return [parts[item.path] for item in items]


def remove_stale(folder: Path, pattern: str) -> None:
    """Remove folders of launchers that were killed more than a day ago, as ``copy.sh`` does."""
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):
            found = path.lstat()
            own = os.name == "nt" or found.st_uid == os.geteuid()
            if own and stat.S_ISDIR(found.st_mode) and time.time() - found.st_mtime > 86400:
                shutil.rmtree(path, ignore_errors=True)


def _unpacked(there: RemoteEndpoint, wire: Wire, requested: dict[str, Item]) -> Iterator[tuple[Item, bytes]]:
    """Yield each requested file once, if it is as expected; other entries of the tar are skipped."""
    incoming = TarReader(wire, there.label, 2 * sum(item.size for item in requested.values()) + MOST_OVERHEAD)
    try:
        with incoming.opened() as archive:
            for entry in incoming.entries(archive, len(requested)):
                item = requested.get(entry.name)
                if item is None or not entry.isreg() or entry.issparse() or entry.size != item.size:
                    continue
                file = archive.extractfile(entry)
                if file is not None:
                    del requested[entry.name]
                    yield item, file.read()
    except NO_TAR:
        wire.reply(incoming.left + MOST_OVERHEAD)  # raises if the connection broke
        raise CorruptData("the tar") from None


def _entry(item: Item) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(item.target)
    entry.size, entry.mode, entry.mtime = item.size, item.seen.mode & 0o777, item.seen.time // 10**9
    return entry


def _content(item: Item) -> bytes:
    with os_errors_of(item.path), Path(item.path).open("rb") as file:
        _check_same(item, os.fstat(file.fileno()))
        data = file.read(item.size + 1)
        if len(data) != item.size:
            raise source_changed(item.path, "this machine")
    return data


class _WireWriter(io.RawIOBase):
    """Writes a tar to a wire."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._wire.send(data)
        return len(data)


class TarReader(io.RawIOBase):
    """Reads a tar from a wire, with limits on its bytes (``left``), its entries and the length of names.

    The data are not trusted, and may be endless. Raises ``CopyFailed`` beyond the limits, and ``NO_TAR``.
    """

    def __init__(self, wire: Wire, label: str, most: int) -> None:
        self._wire, self._label, self.left = wire, label, most

    def read(self, count: int = -1) -> bytes:
        """Return the next bytes, fewer at the end."""
        data = self._wire.read(CHUNK if count < 0 else count)
        self.left -= len(data)
        if self.left < 0:
            raise self._too_much()
        return data

    def opened(self) -> tarfile.TarFile:
        """Open the tar; its entries can be read once, one after the other."""
        return tarfile.open(fileobj=self, mode="r|", bufsize=CHUNK, errors="surrogateescape", tarinfo=_Header)

    def entries(self, archive: tarfile.TarFile, most: int) -> Iterator[tarfile.TarInfo]:
        """Yield at most ``most`` entries. Raises ``CopyFailed`` for an entry larger than what may still come.

        ``tarfile`` would try to read to the end of such an entry, block by block, although nothing comes any more.
        """
        for number, entry in enumerate(archive):
            if number == most or not 0 <= entry.size <= self.left:
                raise self._too_much()
            yield entry

    def _too_much(self) -> CopyFailed:
        return CopyFailed(
            f"{self._label} sends more than it was asked for.", why="A file may have grown meanwhile.", hint=GOES_ON
        )


class _Header(tarfile.TarInfo):
    """A header in a tar; limits long names and the like, which ``tarfile`` would read into memory as a whole."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        """Parse a header. Raises ``ReadError`` for one that our tars do not have."""
        header = super().frombuf(buf, encoding, errors)
        is_sparse = header.type == tarfile.GNUTYPE_SPARSE  # followed by a list of any length
        if is_sparse or (header.type in _EXTRA and not 0 <= header.size <= _LONGEST_EXTRA):
            raise tarfile.ReadError("odd header")
        return header


def _pieces(file: BinaryIO, count: int) -> Iterator[bytes]:
    while count > 0 and (data := file.read(min(CHUNK, count))):
        yield data
        count -= len(data)


@contextlib.contextmanager
def _opened_part(part: str, offset: int) -> Iterator[BinaryIO]:
    """Open a part for writing from ``offset`` on; if that is 0, as a new file, because the old one may be in use."""
    with folder_of(part) as (folder, name):
        if not offset:
            with contextlib.suppress(FileNotFoundError):
                folder.remove(name)
        with folder.open(name, 0 if offset else _NEW) as file:
            found = os.fstat(file.fileno())
            if offset and (not is_part(found) or found.st_size < offset):
                raise CorruptData(part)
            file.seek(offset)
            yield file


def _check_same(item: Item, now: os.stat_result) -> None:
    if (now.st_size, now.st_mtime_ns) != (item.size, item.seen.time):
        raise source_changed(item.path, "this machine")


def source_changed(path: str, label: str, message: str = "") -> CopyFailed:
    """Return the error for a source that has changed since the copy began."""
    return CopyFailed(
        f"{path} on {label} has changed since the copy began, or vanished.",
        why=message.strip().partition("\n")[0],
        hint=f"once nothing writes it any more, {GOES_ON}",
    )
