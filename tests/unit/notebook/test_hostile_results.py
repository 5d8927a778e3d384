"""What another machine sends in place of results, or of a copy: without an end, or not to be believed."""

from __future__ import annotations

import tarfile
import tracemalloc
from pathlib import Path

import pytest

from notebook_launcher.core.errors import CopyFailed, HostCommandFailed
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.notebook import results as results_module
from notebook_launcher.transfer import data as transfer_data
from notebook_launcher.transfer import protocol
from notebook_launcher.transfer.paths import Item, SourceEntry
from notebook_launcher.transfer.protocol import Reply, Wire
from notebook_launcher.transfer.remote_endpoint import RemoteEndpoint
from tests.unit.notebook.conftest import FinishedRun


class FakeWire:
    """A far end that sends what a test says."""

    sent = 0

    def __init__(self, *_: object, **__: object) -> None:
        type(self).sent = 0

    def __enter__(self) -> FakeWire:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def send(self, data: bytes) -> None:
        pass

    def end_data(self) -> None:
        pass

    def reply(self, most: int = 0) -> Reply:
        return Reply(b"")

    def read(self, count: int) -> bytes:
        type(self).sent += count
        assert self.sent < 3 << 30, "it is read without an end"
        return self.next(count)

    def next(self, count: int) -> bytes:
        raise NotImplementedError


class Endless(FakeWire):
    """Empty files that nobody has asked for."""

    block = tarfile.TarInfo("./unasked").tobuf(tarfile.GNU_FORMAT)

    def next(self, count: int) -> bytes:
        return (self.block * (count // 512 + 1))[:count]


def header(kind: bytes, size: int) -> bytes:
    entry = tarfile.TarInfo("././@LongLink")
    entry.type, entry.size = kind, size
    return entry.tobuf(tarfile.GNU_FORMAT)


class Huge(FakeWire):
    """A header that is followed by a name of 3 GiB."""

    kind = tarfile.GNUTYPE_LONGNAME

    def __init__(self, *words: object, **others: object) -> None:
        super().__init__(*words, **others)
        self._rest = header(self.kind, 3 << 30)

    def next(self, count: int) -> bytes:
        data, self._rest = self._rest[:count], self._rest[count:]
        return data or b"a" * count


class HugePax(Huge):
    """The same, of the other format."""

    kind = tarfile.XHDTYPE


class Grown(Huge):
    """A file that has grown without an end."""

    kind = tarfile.REGTYPE


class Nested(FakeWire):
    """Long names of long names."""

    block = header(tarfile.GNUTYPE_LONGNAME, 512) + b"a" * 512

    def next(self, count: int) -> bytes:
        return (self.block * (count // 1024 + 1))[:count]


FAKES = [Endless, Huge, HugePax, Grown, Nested]


@pytest.mark.parametrize("far", FAKES)
def test_a_far_end_that_sends_without_an_end_is_stopped(
    made: FinishedRun, monkeypatch: pytest.MonkeyPatch, far: type[FakeWire]
) -> None:
    monkeypatch.setattr(results_module, "Wire", far)
    monkeypatch.setattr(results_module, "MOST_ALL", 100 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(CopyFailed):
            made.fetch()
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()
    assert far.sent <= 210 << 20


@pytest.mark.parametrize("far", FAKES)
def test_so_it_is_in_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, far: type[FakeWire]) -> None:
    monkeypatch.setattr(transfer_data, "Wire", far)
    item = Item("/x", "x", SourceEntry("x", "file", 0o600, 5, 0))
    with pytest.raises((CopyFailed, transfer_data.CorruptData)):
        transfer_data.fetch_batch(RemoteEndpoint(LocalHost()), str(tmp_path / "context"), [item], lambda _: None)
    assert far.sent <= 70 << 20


def test_an_answer_without_an_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_script", lambda: b"yes")
    with Wire(LocalHost(), "results", []) as far, pytest.raises(HostCommandFailed, match="more than"):
        far.reply(1 << 20)


@pytest.mark.parametrize("size", ["9" * 5000, "9" * 16, "-1", "x", "٣", ""])
def test_a_size_that_is_none_is_not_believed(made: FinishedRun, monkeypatch: pytest.MonkeyPatch, size: str) -> None:
    inner = results_module.call_verb

    def ask(host: LocalHost, verb: str, *words: str, **others: object) -> Reply:
        if verb == "results":
            return Reply(f"{size}\x001\x00work/x\x003\x001\x00work/train.ipynb\x00".encode())
        return inner(host, verb, *words, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(results_module, "call_verb", ask)
    assert made.fetch().files == ("train.ipynb",)


@pytest.mark.parametrize("word", ["9" * 5000, "x"])
def test_so_it_is_in_the_answers_to_a_copy(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    there = RemoteEndpoint(LocalHost())
    monkeypatch.setattr(
        "notebook_launcher.transfer.remote_endpoint.call_verb",
        lambda *_, **__: Reply(f"81a4\x00{word}\x00/x\x00".encode()),
    )
    with pytest.raises(HostCommandFailed, match="cannot be read"):
        there.sizes(["/x"])
    monkeypatch.setattr(
        "notebook_launcher.transfer.remote_endpoint.call_verb", lambda *_, **__: Reply(f"{word}\n".encode())
    )
    with pytest.raises(HostCommandFailed, match="cannot be read"):
        there.part("/x")


def test_a_connection_that_breaks_before_anything_was_asked_is_lost_and_tried_again(
    made: FinishedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, tries = Wire.send, list[int]()

    def send(self: Wire, data: bytes) -> None:
        tries.append(len(data))
        if len(tries) == 1:
            raise BrokenPipeError
        inner(self, data)

    monkeypatch.setattr(Wire, "send", send)
    assert made.fetch().files == ("train.ipynb", "usage.csv")
