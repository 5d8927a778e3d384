"""A tar from the far end: whatever is in it, only what was requested is used, and it goes nowhere else."""

from __future__ import annotations

import hashlib
import os
import tarfile
import time
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given, settings
from hypothesis import strategies as st

from notebook_launcher.core.errors import ConnectionLost, CopyFailed, HostCommandFailed
from notebook_launcher.transfer.data import CorruptData, fetch_batch, fetch_file
from notebook_launcher.transfer.paths import Item, SourceEntry
from notebook_launcher.transfer.remote_endpoint import RemoteEndpoint
from tests.unit.transfer.answering_host import AnsweringHost, cut

CONTENT = {"/far/a": b"abc", "/far/b/c": b"", "/far/d": b"x" * 600}
ITEMS = [Item(path, path[5:], SourceEntry(path[5:], "file", 0o644, len(data), 10**9)) for path, data in CONTENT.items()]
OURS = (ConnectionLost, CopyFailed, CorruptData, HostCommandFailed)


def header(name: bytes, kind: bytes, size: bytes, magic: bytes = b"ustar\x0000", prefix: bytes = b"") -> bytes:
    """Return the header of a tar's entry, with a valid checksum."""
    fields = [
        name[:100].ljust(100, b"\0"),
        b"0000644\0" + b"0000000\0" * 2,
        size[:12].ljust(12, b"\0"),
        b"1".ljust(12, b"\0"),
    ]
    rest = [kind, b"\0" * 100, magic.ljust(8, b"\0"), b"\0" * 80, prefix[:155].ljust(167, b"\0")]
    data = b"".join([*fields, b" " * 8, *rest])
    return data[:148] + b"%06o\0 " % sum(data) + data[156:]


def entry(name: bytes, data: bytes, kind: bytes = tarfile.REGTYPE) -> bytes:
    """Return a sound entry of a tar."""
    return header(name, kind, b"%011o" % len(data)) + data + b"\0" * (-len(data) % 512)


KINDS = st.sampled_from([bytes([kind]) for kind in b"0123456789LKSxgXVDMN\0\xff"])
TAR_NAMES = st.sampled_from(
    [b"./far/a", *(f".{path}".encode() for path in CONTENT), b"../../x", b"/etc/x", b"", b"\xff"]
)
SIZES = st.sampled_from(
    [b"00000000003", b"77777777777", b"\x80" + b"\0" * 10 + b"\x03", b"\xff" * 12, b"-1", b"x", b""]
)
RECORDS = st.sampled_from(
    [b"path=./far/a", b"size=3", b"size=-1", b"size=99999999999999", b"size=x", b"mtime=nan", b"GNU.sparse.major=1",
     b"GNU.sparse.minor=0", b"GNU.sparse.realsize=3", b"GNU.sparse.size=3", b"GNU.sparse.map=0,3", b"GNU.sparse.map=x",
     b"GNU.sparse.name=./far/a", b"hdrcharset=BINARY", b"path=\xff", b"=", b"linkpath=/etc/x"]
).map(lambda record: b"%d %s\n" % (len(record) + 4 - (len(record) < 7), record))  # fmt: skip
EXTRAS = st.tuples(st.lists(RECORDS | st.binary(max_size=9)).map(b"".join), st.sampled_from(b"xgXLK")).map(
    lambda parts: entry(b"extra", parts[0], bytes([parts[1]]))
)
ODD = st.tuples(TAR_NAMES, KINDS, SIZES, st.sampled_from([b"ustar\x0000", b"ustar  ", b""]), TAR_NAMES).map(
    lambda parts: header(*parts)
)
SOUND = st.sampled_from([entry(f".{path}".encode(), data) for path, data in CONTENT.items()])
TARS = st.lists(SOUND | SOUND | EXTRAS | ODD | st.binary(max_size=20) | st.just(b"\0" * 512), max_size=8).map(b"".join)
WHOLE = b"".join(entry(f".{path}".encode(), data) for path, data in CONTENT.items()) + b"\0" * 1024
DIGESTS = b"".join(
    b"%s  %s\n" % (hashlib.sha256(data).hexdigest().encode(), os.fsencode(path)) for path, data in CONTENT.items()
)
END = b"\0000 \n"


def names_in(folder: str) -> list[str]:
    return [path.name for path in Path(folder).iterdir()]


@settings(deadline=None)
@given(
    st.data(), TARS | st.just(WHOLE), st.sampled_from([b"", b"\0" * 1024]), st.sampled_from([END, b"", b"\0001 no\n"])
)
@example(None, WHOLE, b"", END)
@example(None, header(b"x" * 100, b"L", b"00000000012") * 3000, b"", END)
@example(None, header(b"x", b"0", b"\x80" + (2**60).to_bytes(11, "big")), b"", END)  # an entry without an end
def test_any_tar_gives_the_requested_files_or_none(
    data: st.DataObject | None, tar: bytes, stop: bytes, end: bytes
) -> None:
    # hypothesis's own limit counts what else the machine does; but whoever waits uses no processor
    began, began_at = time.process_time(), time.monotonic()
    answer = tar + stop + end
    host = AnsweringHost(*(data.draw(cut(answer)) if data else [answer]), then=DIGESTS + END)
    with TemporaryDirectory() as folder:
        real = os.path.realpath(folder)
        context = f"{real}/.copy.part-0123456789"
        try:
            parts = fetch_batch(RemoteEndpoint(host), context, ITEMS, lambda count: None)
        except OURS:
            assert tar != WHOLE or end != END
        else:
            assert [Path(path).read_bytes() for path, _ in parts] == list(CONTENT.values())
        assert names_in(real) == [".copy.part-0123456789"]
        assert set(names_in(context)) <= {"0", "1", "2"}
    assert time.process_time() - began < 0.2
    assert time.monotonic() - began_at < 10


@given(st.data(), st.binary(max_size=9), st.sampled_from([0, 2]))
def test_any_answer_is_a_whole_file_or_none(data: st.DataObject, odd: bytes, offset: int) -> None:
    end = b"%s %d %d\n" % (hashlib.sha256(b"abc"[offset:]).hexdigest().encode(), 3, 1)
    answer = data.draw(
        st.sampled_from([b"abc"[offset:] + end + END, b"abc"[offset:] + odd + END, odd, odd + end + END])
    )
    with TemporaryDirectory() as folder:
        part = Path(os.path.realpath(folder), ".part")
        part.write_bytes(b"ab")
        part.chmod(0o600)
        try:
            fetch_file(
                RemoteEndpoint(AnsweringHost(*data.draw(cut(answer)))), ITEMS[0], str(part), offset, lambda count: None
            )
        except OURS:
            pass
        else:
            assert part.read_bytes() == b"abc"
        assert names_in(folder) in ([".part"], [])


def test_a_tar_without_an_end_takes_no_memory() -> None:
    endless = [header(b"x", b"0", b"77777777777")] + [b"x" * 256 * 1024] * 300
    with TemporaryDirectory() as folder:
        tracemalloc.start()
        try:
            context = f"{os.path.realpath(folder)}/.copy.part-0123456789"
            fetch_batch(RemoteEndpoint(AnsweringHost(*endless)), context, ITEMS, lambda count: None)
        except OURS:
            assert tracemalloc.get_traced_memory()[1] < 16 * 1024 * 1024
        else:
            raise AssertionError("it was used")
        finally:
            tracemalloc.stop()
