"""Two copies at once, and others at work in the same folder."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.errors import ConnectionLost, CopyFailed, CopyRefused, UsageError
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.transfer import copy as copy_module
from notebook_launcher.transfer import endpoints, local_endpoint, progress, remote_endpoint
from notebook_launcher.transfer.paths import (
    part_name,
)
from notebook_launcher.tunnel import reconnect
from tests.ssh_server import ENGINES, Server, User, end_connections, host, no_agent, server  # noqa: F401 (fixtures)
from tests.unit.transfer.copying import BOTH_WAYS, MIB, View, copy, everything, leftovers

pytestmark = [pytest.mark.timeout(60), pytest.mark.real_time]


@BOTH_WAYS
def test_two_copies_at_once_into_one_folder(tmp_path: Path, up: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second begins, and is stopped, after the first has unpacked and before it gives the files their place."""
    src, there = tmp_path / "src", tmp_path / "there"
    src.mkdir()
    there.mkdir()
    for name in "abcdefgh":
        (src / name).write_bytes(os.urandom(200_000))
    end = remote_endpoint.RemoteEndpoint if up else local_endpoint.LocalEndpoint
    verb = "install_batch" if up else "install"
    original, second = getattr(end, verb), View()

    def stop(event: events.Copying) -> None:
        if event.bytes_done > 1_200_000:  # by now the far end has begun to unpack
            raise KeyboardInterrupt

    second.on_copying = stop
    monkeypatch.setattr(progress, "A_SECOND", 1e6)

    def interfere(*args: object, **options: object) -> object:
        monkeypatch.setattr(end, verb, original)
        with pytest.raises(KeyboardInterrupt):
            copy(LocalHost(), up, src, there, view=second)
        return original(*args, **options)

    monkeypatch.setattr(end, verb, interfere)
    assert copy(LocalHost(), up, src, there).copied.files == 8
    assert everything(there / "src") == everything(src)


@BOTH_WAYS
def test_what_another_copy_has_brought_meanwhile_counts(
    tmp_path: Path, up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    src, there = tmp_path / "src", tmp_path / "there"
    src.mkdir()
    there.mkdir()
    for name in "ab":
        (src / name).write_text(name)
    end = remote_endpoint.RemoteEndpoint if up else local_endpoint.LocalEndpoint
    verb = "install_batch" if up else "install"
    original = getattr(end, verb)

    def interfere(*args: object, **options: object) -> object:
        (there / "src" / "a").write_text("a")
        return original(*args, **options)

    monkeypatch.setattr(end, verb, interfere)
    copy(LocalHost(), up, src, there)
    assert everything(there / "src") == everything(src)
    assert leftovers(there) == []


@BOTH_WAYS
def test_what_killed_copies_have_left_goes_after_a_day(tmp_path: Path, up: bool) -> None:
    there = tmp_path / "there"
    for name in (".copy.part-0123456789", ".copy.part-abcdef0123", ".copy.part-mine"):
        (there / name).mkdir(parents=True)
        (there / name / "x").write_text("x")
    for name in (".copy.part-0123456789", ".copy.part-mine"):
        os.utime(there / name, (1_500_000_000, 1_500_000_000))
    for name in "ab":
        (tmp_path / name).write_text(name)
    copy(LocalHost(), up, tmp_path / "a", tmp_path / "b", there)
    assert {path.name for path in there.iterdir()} == {"a", "b", ".copy.part-abcdef0123", ".copy.part-mine"}


@BOTH_WAYS
@pytest.mark.parametrize("kind", ["another's", "a link", "two names", "for all to read"])
def test_a_part_that_somebody_else_has_made_gets_nothing(tmp_path: Path, up: bool, kind: str) -> None:
    source, there, trap = tmp_path / "big", tmp_path / "there", tmp_path / "trap"
    source.write_bytes(os.urandom(10 * MIB))
    there.mkdir()
    mark = copy_module.tag("up" if up else "down", LocalHost.label, str(source), str(there / "big"))
    part = there / part_name("big", mark)
    trap.touch(0o600)
    trap.write_bytes(source.read_bytes()[:MIB])
    if kind == "another's":
        if os.geteuid():
            pytest.skip("only root can give a file away")
        os.chown(trap, 12345, 12345)
    if kind == "for all to read":
        trap.chmod(0o644)
    if kind == "a link":
        part.symlink_to(trap)
    else:
        part.hardlink_to(trap)
    if kind in ("another's", "for all to read"):
        trap = tmp_path / "held"
        held = part.open("rb")
        (tmp_path / "trap").unlink()
    else:
        held = trap.open("rb")
    with held:
        assert copy(LocalHost(), up, source, there).copied.resumed == 0
        assert os.fstat(held.fileno()).st_size == MIB
    assert (there / "big").read_bytes() == source.read_bytes()
    assert (there / "big").stat().st_uid == os.geteuid()
    assert leftovers(there) == []


@BOTH_WAYS
def test_a_folder_that_vanishes_meanwhile_is_not_told_as_a_file_that_appeared(tmp_path: Path, up: bool) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "there").mkdir()
    for name in "ab":
        (tmp_path / "src" / name).write_text(name)
    view = View()
    view.on_copying = lambda _event: shutil.rmtree(tmp_path / "there" / "src", ignore_errors=True)
    with pytest.raises(CopyFailed) as caught:
        copy(LocalHost(), up, tmp_path / "src", tmp_path / "there", view=view)
    assert "No such file or directory" in caught.value.why
    assert "--force" not in caught.value.hint


def test_who_may_not_write_is_not_told_to_use_force() -> None:
    hint = endpoints.tool_failed("there", "mv: cannot move 'a' to 'b': Permission denied").hint
    assert "you may write there" in hint and "--force" not in hint
    with pytest.raises(CopyFailed) as caught, endpoints.os_errors_of("/x"):
        raise PermissionError(errno.EACCES, "Permission denied")
    assert "you may write there" in caught.value.hint


@BOTH_WAYS
def test_a_link_that_leads_there_already_is_no_obstacle(tmp_path: Path, up: bool) -> None:
    end = remote_endpoint.RemoteEndpoint(LocalHost()) if up else local_endpoint.LocalEndpoint()
    ties = {"l": "a b\n", "-k": "-x"}
    for force in (False, False, True):
        end.create_links(str(tmp_path), ties, force=force)
    assert everything(tmp_path) == {"l": ("link", "a b\n"), "-k": ("link", "-x")}
    with pytest.raises(CopyFailed, match="broke off"):
        end.create_links(str(tmp_path), {"l": "other"}, force=False)


@BOTH_WAYS
@pytest.mark.parametrize("force", [False, True])
def test_links_at_the_destination(tmp_path: Path, up: bool, force: bool) -> None:
    src, there = tmp_path / "src", tmp_path / "there" / "src"
    src.mkdir()
    there.mkdir(parents=True)
    (src / "file").write_text("ours")
    (src / "other").write_text("ours")
    (tmp_path / "behind").write_text("theirs")
    (there / "file").symlink_to("nowhere")
    (there / "other").symlink_to(tmp_path / "behind")
    if not force:
        with pytest.raises(CopyRefused, match=r"there/src/file.*there/src/other"):
            copy(LocalHost(), up, src, there.parent)
        return
    copy(LocalHost(), up, src, there.parent, force=True)
    assert everything(there) == {"file": b"ours", "other": b"ours"}
    assert (tmp_path / "behind").read_text() == "theirs"
    assert not (there / "nowhere").exists()


@BOTH_WAYS
def test_a_link_does_not_replace_a_folder_nor_a_folder_a_link_to_nowhere(tmp_path: Path, up: bool) -> None:
    src, there = tmp_path / "src", tmp_path / "there" / "src"
    (src / "folder").mkdir(parents=True)
    (src / "file").write_text("x")
    (src / "link").symlink_to("file")
    (there / "link").mkdir(parents=True)
    (there / "folder").symlink_to("nowhere")
    before = everything(there)
    with pytest.raises(CopyRefused, match=r"there/src/folder.*there/src/link"):
        copy(LocalHost(), up, src, there.parent, force=True)
    assert everything(there) == before


@BOTH_WAYS
@pytest.mark.parametrize("files", [1, 2])
def test_sources_behind_dots_and_links(tmp_path: Path, up: bool, files: int) -> None:
    real, there = tmp_path / "deep" / "real", tmp_path / "there"
    (real / "course").mkdir(parents=True)
    there.mkdir()
    (tmp_path / "deep" / "results").mkdir()
    (tmp_path / "results").mkdir()
    for number in range(files):
        (tmp_path / "deep" / "results" / f"{number}").write_text("right")
        (tmp_path / "results" / f"{number}").write_text("wrong")
    (tmp_path / "link").symlink_to(real)
    copy(LocalHost(), up, f"{tmp_path}/link/../results", there)
    assert everything(there / "results") == {f"{number}": b"right" for number in range(files)}
    if up:
        copy(LocalHost(), up, f"{tmp_path}/link/..", there)
    else:  # a name that only the cluster could tell
        with pytest.raises(UsageError, match="no name of its own"):
            copy(LocalHost(), up, f"{tmp_path}/link/..", there)
        copy(LocalHost(), up, f"{tmp_path}/link/../.", there / "deep/")
    assert (there / "deep" / "results" / "0").read_text() == "right"


@BOTH_WAYS
def test_nothing_but_what_is_left_out_is_refused(tmp_path: Path, up: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "there").mkdir()
    with pytest.raises(CopyRefused, match=r"nothing to copy.*pipe"):
        copy(LocalHost(), up, tmp_path / "pipe", tmp_path / "there")


def test_without_a_cluster_it_is_said_that_both_sides_are_this_machine(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    notes = copy(LocalHost(), True, tmp_path / "a", tmp_path / "b").notes
    assert notes == "login: means this machine here, because no cluster was named."


def test_a_connection_that_nobody_mends_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a thread that makes it anew dies, or never ends."""

    class Silent:
        def __init__(self, *_: object, **_options: object) -> None: ...
        def stop(self) -> None: ...

    def lose(*_: object) -> None:
        raise ConnectionLost("It is lost.")

    monkeypatch.setattr(reconnect, "Reconnection", Silent)
    monkeypatch.setattr(copy_module, "RECONNECT_WITHIN", 0.01)
    monkeypatch.setattr(remote_endpoint.RemoteEndpoint, "target", lose)
    (tmp_path / "a").write_text("a")
    with pytest.raises(CopyFailed, match=r"Reconnecting to .* failed"):
        copy(LocalHost(), True, tmp_path / "a", tmp_path / "b")
