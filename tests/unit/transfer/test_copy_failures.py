"""A connection that breaks, and a far end that is not to be believed."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.errors import CopyFailed
from notebook_launcher.hosts.base import ByteStream
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.transfer import copy as copy_module
from notebook_launcher.transfer import progress
from tests.ssh_server import ENGINES, Server, User, end_connections, host, no_agent, server  # noqa: F401 (fixtures)
from tests.unit.transfer.copying import BOTH_WAYS, MIB, View, copy, everything, leftovers

pytestmark = [pytest.mark.timeout(60), pytest.mark.real_time]


@BOTH_WAYS
@pytest.mark.parametrize("engine", list(ENGINES))
def test_a_cut_connection_is_made_anew(
    server: Server,  # noqa: F811
    tmp_path: Path,
    up: bool,
    engine: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "A_SECOND", 1000)
    monkeypatch.setattr(copy_module, "SMALL", MIB)
    src, there = tmp_path / "src", tmp_path / "there"
    src.mkdir()
    there.mkdir()
    for name in ("small1", "small2"):
        (src / name).write_bytes(os.urandom(1000))
    (src / "zbig").write_bytes(os.urandom(8 * MIB))
    others = server.connections()
    view = View()
    cuts = []

    def cut(event: events.Copying) -> None:
        if not cuts and event.bytes_done > 3 * MIB:
            cuts.append(event.bytes_done)
            end_connections(server, others)

    view.on_copying = cut
    with ENGINES[engine](server.destination(), Credentials(User())) as remote:
        copy(remote, up, src, there, view=view)
    assert cuts
    assert "Connected again" in view.notes
    assert everything(there / "src") == everything(src)
    assert leftovers(there) == []


class Hostile(LocalHost):
    """A host whose tar has what nobody asked for."""

    def __init__(self, archive: bytes) -> None:
        super().__init__()
        self._archive = archive

    def open_process(self, argv: object, *, login_shell: bool = False) -> ByteStream:  # type: ignore[override]
        stream = super().open_process(argv, login_shell=login_shell)  # type: ignore[arg-type]
        send, archive = stream.send, self._archive

        def sends(data: bytes) -> int:
            if b"\0" + b"pack\0" in data:
                stream.close()
                other = LocalHost.open_process(self, ["sh", "-c", "cat; printf '\\0000 \\n'"])
                other.sendall(archive)
                other.shutdown(1)
                for name in ("recv", "close", "settimeout", "shutdown"):
                    setattr(stream, name, getattr(other, name))
                stream.send = lambda data: len(data)  # type: ignore[method-assign]
                return len(data)
            return send(data)

        stream.send = sends  # type: ignore[method-assign]
        return stream


def test_a_hostile_tar_writes_nothing_elsewhere(tmp_path: Path) -> None:
    src, there = tmp_path / "src", tmp_path / "home" / "there"
    src.mkdir()
    there.mkdir(parents=True)
    for name in "ab":
        (src / name).write_text("good")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, kind in (
            ("../../evil", tarfile.REGTYPE), (f"{tmp_path}/evil", tarfile.REGTYPE),
            (f".{src}/../evil", tarfile.REGTYPE),
            (f".{src}/a", tarfile.SYMTYPE), (f".{src}/b", tarfile.CHRTYPE), (f".{src}/c", tarfile.LNKTYPE),
        ):  # fmt: skip
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.size = kind, str(tmp_path / "evil"), 4 * (kind == tarfile.REGTYPE)
            archive.addfile(entry, io.BytesIO(b"evil"))
    with pytest.raises(CopyFailed):
        copy(Hostile(packed.getvalue()), False, src, there)
    assert not list(tmp_path.rglob("*evil*"))
    assert {name: data for name, data in everything(there).items() if data is not None} == {}


def test_a_far_end_that_sends_other_bytes_is_found_out(tmp_path: Path) -> None:
    src, there = tmp_path / "src", tmp_path / "there"
    src.mkdir()
    there.mkdir()
    for name in "ab":
        (src / name).write_text("good")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in "ab":
            entry = tarfile.TarInfo(f".{src}/{name}")
            entry.size = 4
            archive.addfile(entry, io.BytesIO(b"evil"))
    with pytest.raises(CopyFailed, match="twice in a row"):
        copy(Hostile(packed.getvalue()), False, src, there)
    assert {name: data for name, data in everything(there).items() if data is not None} == {}
