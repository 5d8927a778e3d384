"""Copies both ways, over every host."""

from __future__ import annotations

import os
import shutil
import stat
import struct
from pathlib import Path
from typing import NoReturn

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.errors import CopyFailed, CopyRefused, LauncherError
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.hosts.base import Host, NoPrompts
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles.models import ClusterProfile
from notebook_launcher.transfer import copy as copy_module
from notebook_launcher.transfer import progress
from notebook_launcher.transfer.paths import CopyArguments, part_name
from tests.ssh_server import ENGINES, Server, User, end_connections, host, no_agent, server  # noqa: F401 (fixtures)
from tests.unit.transfer.copying import BOTH_WAYS, EVERY_HOST, MIB, View, copy, everything, fill, leftovers

pytestmark = [pytest.mark.timeout(60), pytest.mark.real_time]


@pytest.fixture(autouse=True)
def less_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_module, "SMALL", MIB)


@EVERY_HOST
def test_a_folder_with_everything(host: Host, tree: Path, tmp_path: Path, up: bool) -> None:  # noqa: F811
    there = tmp_path / "there"
    there.mkdir()
    view = copy(host, up, tree, there)
    assert everything(there / "tree") == everything(tree)
    for name in ("run.sh", "secret", "big"):
        was, now = (tree / name).stat(), (there / "tree" / name).stat()
        assert (now.st_mode, int(now.st_mtime)) == (was.st_mode, int(was.st_mtime))
    assert leftovers(there) == []
    assert view.copied.files == len([path for path in tree.rglob("*") if not path.is_dir()])
    told = [event for event in view.events if isinstance(event, events.Copying)]
    assert told[-1].bytes_done == told[-1].bytes == view.copied.bytes
    if host.remote:
        return
    again = copy(host, up, tree, there)
    assert (again.copied.files, again.copied.skipped) == (0, view.copied.files)


@BOTH_WAYS
@pytest.mark.parametrize("name", ["-rf", "a\nb 'c' \"d\"", os.fsdecode(b"\xfe")])
def test_one_odd_file_to_one_odd_name(tmp_path: Path, up: bool, name: str) -> None:
    (tmp_path / name).write_text("content")
    (tmp_path / "to").mkdir()
    copy(LocalHost(), up, tmp_path / name, tmp_path / "to" / f"{name}2")
    assert everything(tmp_path / "to") == {f"{name}2": b"content"}


@BOTH_WAYS
@pytest.mark.parametrize("force", [False, True])
def test_what_differs_is_replaced_only_on_demand(tree: Path, tmp_path: Path, up: bool, force: bool) -> None:
    there = tmp_path / "there"
    shutil.copytree(tree, there / "tree", symlinks=True)
    (there / "tree" / "run.sh").write_text("#!/bin/no\n")  # of the same length
    (there / "tree" / "big").write_bytes(b"short")
    (there / "tree" / "secret").unlink()
    before = everything(there)
    if force:
        view = copy(LocalHost(), up, tree, there, force=True)
        assert everything(there / "tree") == everything(tree)
        assert view.copied.files == 3
    else:
        with pytest.raises(CopyRefused) as caught:
            copy(LocalHost(), up, tree, there)
        assert "run.sh" in caught.value.what
        assert "big" in caught.value.what
        assert everything(there) == before
    assert leftovers(there) == []


@EVERY_HOST
def test_a_part_goes_on(host: Host, tmp_path: Path, up: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    source, there = tmp_path / "big", tmp_path / "there"
    source.write_bytes(os.urandom(8 * MIB))
    there.mkdir()
    interrupted = View()

    def interrupt(event: events.Copying) -> None:
        if event.bytes_done > 2 * MIB:
            raise KeyboardInterrupt

    interrupted.on_copying = interrupt
    monkeypatch.setattr(progress, "A_SECOND", 1000)
    with pytest.raises(KeyboardInterrupt):
        copy(host, up, source, there, view=interrupted)
    (part,) = leftovers(there)
    assert stat.S_IMODE(Path(part).stat().st_mode) == 0o600
    assert not (there / "big").exists()
    view = copy(host, up, source, there)
    assert 0 < view.copied.resumed < 8 * MIB
    assert (there / "big").read_bytes() == source.read_bytes()
    assert leftovers(there) == []


@BOTH_WAYS
@pytest.mark.parametrize("what", ["the source", "the part", "a longer part"])
def test_a_part_that_is_no_beginning_starts_anew(tmp_path: Path, up: bool, what: str) -> None:
    source, there = tmp_path / "big", tmp_path / "there"
    source.write_bytes(os.urandom(3 * MIB))
    there.mkdir()
    view = View()

    def stop(event: events.Copying) -> None:
        raise KeyboardInterrupt

    view.on_copying = stop
    with pytest.raises(KeyboardInterrupt):
        copy(LocalHost(), up, source, there, view=view)
    for part in leftovers(there):
        Path(part).unlink()
    # an attempt leaves it under this name
    label = LocalHost.label
    mark = copy_module.tag("up" if up else "down", label, str(source), str(there / "big"))
    part_path = there / part_name("big", mark)
    data = source.read_bytes()
    part_path.touch(0o600)
    other = bytes([data[0] ^ 1])  # any fixed byte is that of random data one time in 256
    part_path.write_bytes({"the source": data[:MIB], "the part": other + data[1:MIB], "a longer part": data * 2}[what])
    if what == "the source":
        source.write_bytes(other + data[1:])
    view = copy(LocalHost(), up, source, there)
    assert view.copied.resumed == 0
    assert (there / "big").read_bytes() == source.read_bytes()
    assert leftovers(there) == []


@BOTH_WAYS
def test_the_rules_of_cp(tmp_path: Path, up: bool) -> None:
    for name in ("a", "b"):
        (tmp_path / "src" / name).mkdir(parents=True)
        (tmp_path / "src" / name / "f").write_text(name)
    src, to = tmp_path / "src", tmp_path / "to"
    to.mkdir()
    copy(LocalHost(), up, f"{src}/a/", to / "new")  # the folder gets a new name
    copy(LocalHost(), up, f"{src}/a/", to)  # into a folder that is there; a slash at its end means nothing
    copy(LocalHost(), up, src / "a", src / "b", f"{to}/made/")  # a slash has it made
    copy(LocalHost(), up, f"{src}/b/.", to / "content")
    copy(LocalHost(), up, src / "a/f", f"{to}/made2/")
    assert {name: text for name, text in everything(to).items() if text is not None} == {
        "new/f": b"a", "a/f": b"a", "made/a/f": b"a", "made/b/f": b"b", "content/f": b"b", "made2/f": b"a",
    }  # fmt: skip
    (to / "file").write_text("x")
    for words in (
        (src / "no", to), (f"{src}/a/f/", to), (src / "a", to / "file"), (src / "a/f", f"{to}/file/"),
        (src / "a", src / "b", to / "none"), (src / "a/f", to / "none/f"), (src / "*", to),
    ):  # fmt: skip
        with pytest.raises(CopyRefused):
            copy(LocalHost(), up, *words)
    with pytest.raises(CopyRefused) as caught:
        copy(LocalHost(), up, src / "a/f", to / "my folder/x/f")
    assert caught.value.hint == f"make it on this machine first: mkdir -p '{to}/my folder/x'"
    with pytest.raises(LauncherError, match="same"):
        copy(LocalHost(), up, src / "a/f", src / "b/f", to)


@BOTH_WAYS
def test_links_that_lead_out_become_what_they_lead_to(tmp_path: Path, up: bool) -> None:
    src, there = tmp_path / "src", tmp_path / "there"
    src.mkdir()
    there.mkdir()
    (tmp_path / "outside").write_text("data")
    (src / "out").symlink_to("../outside")
    (src / "inside").symlink_to("out")
    (src / "folder").symlink_to("..")
    (src / "nowhere").symlink_to("gone/..")
    os.mkfifo(src / "pipe")
    view = copy(LocalHost(), up, src, there)
    assert everything(there) == {"src": None, "src/out": b"data", "src/inside": ("link", "out")}
    assert "folder" in view.notes and "nowhere" in view.notes and "pipe" in view.notes


@BOTH_WAYS
def test_no_room_is_told_before(tmp_path: Path, disk: Path, up: bool) -> None:
    (tmp_path / "big").write_bytes(bytes(13 * MIB))
    with pytest.raises(CopyRefused, match="no room"):
        copy(LocalHost(), up, tmp_path / "big", disk)
    assert everything(disk) == {}


@BOTH_WAYS
@pytest.mark.parametrize("files", [1, 3])
def test_a_disk_that_fills_up_keeps_what_has_come(
    tmp_path: Path, disk: Path, up: bool, files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(LocalHost(), tmp_path, disk, up, files, monkeypatch)


@pytest.mark.parametrize("host", list(ENGINES), indirect=True)
def test_a_disk_that_fills_up_at_the_far_end(
    host: Host,  # noqa: F811
    tmp_path: Path,
    disk: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(host, tmp_path, disk, True, 1, monkeypatch)


@BOTH_WAYS
@pytest.mark.parametrize("size", [1000, 2 * MIB])
def test_a_source_that_changes_meanwhile(tmp_path: Path, up: bool, size: int) -> None:
    src, there = tmp_path / "src", tmp_path / "there"
    src.mkdir()
    there.mkdir()
    for name in "abc":
        (src / name).write_bytes(os.urandom(size))
    view = View()

    def change(event: events.Copying) -> None:
        (src / "b").write_bytes(b"other")
        (src / "c").unlink(missing_ok=True)

    view.on_copying = change
    with pytest.raises(CopyFailed) as caught:
        copy(LocalHost(), up, src, there, view=view)
    # c alone is named by the program that cannot open it, where the file system lists it first, as one in memory does
    assert "src/b" in caught.value.what or "src/c" in caught.value.what + caught.value.why
    assert all(path.read_bytes() == (src / path.name).read_bytes() for path in there.rglob("?") if path.is_file())


@BOTH_WAYS
def test_what_appears_meanwhile_is_left_alone(tmp_path: Path, up: bool) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "a").write_text("ours")
    view = View()
    view.on_copying = lambda _event: (tmp_path / "there" / "a").write_text("theirs") and None
    with pytest.raises(CopyFailed, match="was not replaced"):
        copy(LocalHost(), up, tmp_path / "a", tmp_path / "there", view=view)
    assert (tmp_path / "there" / "a").read_text() == "theirs"


def test_relative_paths_begin_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "x").mkdir(parents=True)
    (tmp_path / "a").write_text("a")
    monkeypatch.chdir(tmp_path)
    for destination in ("~", "x", "~/x/b"):
        copy(LocalHost(), True, "a", destination)
    assert set(everything(tmp_path / "home")) == {"a", "x", "x/a", "x/b"}


def test_a_folder_does_not_go_into_itself(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    with pytest.raises(CopyRefused, match="into itself"):
        copy(LocalHost(), True, tmp_path / "a", tmp_path / "a" / "b")
    with pytest.raises(CopyRefused, match="same"):
        copy(LocalHost(), True, tmp_path / "a", tmp_path)


@BOTH_WAYS
def test_a_part_is_private_whatever_the_folder_gives(tmp_path: Path, up: bool) -> None:
    """A folder with an ACL for new files, as project folders have, passes over the umask."""
    source, there = tmp_path / "big", tmp_path / "there"
    source.write_bytes(os.urandom(2 * MIB))
    there.mkdir()
    entries = ((1, 7), (4, 7), (0x20, 7))  # owner, group, others: everything
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", who, may, 2**32 - 1) for who, may in entries)
    try:
        os.setxattr(there, "system.posix_acl_default", acl)
    except OSError:
        pytest.skip("this file system has no ACLs")
    (there / "x").touch()
    assert stat.S_IMODE((there / "x").stat().st_mode) == 0o666
    modes, view = [], View()

    def look(event: events.Copying) -> None:
        modes.extend(stat.S_IMODE(Path(part).stat().st_mode) for part in leftovers(there))
        if event.bytes_done:
            raise KeyboardInterrupt

    view.on_copying = look
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(progress, "A_SECOND", 1e6)
        copy(LocalHost(), up, source, there, view=view)
    (part,) = leftovers(there)
    assert {*modes, stat.S_IMODE(Path(part).stat().st_mode)} == {0o600}
    copy(LocalHost(), up, source, there)
    assert (there / "big").read_bytes() == source.read_bytes()


def test_an_error_names_whom_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise CopyFailed("The disk is read-only.", hint="ask the cluster's support why")

    monkeypatch.setattr(copy_module, "open_host", lambda *_: LocalHost())
    monkeypatch.setattr(copy_module.Copy, "run", refuse)
    target = LaunchTarget(ClusterProfile(contact="help@uni.example"), "uni", None, "slurm")
    with pytest.raises(CopyFailed) as caught:
        copy_module.copy(target, CopyArguments(("a",), "login:", up=True), View(), NoPrompts(), Interrupts())
    assert caught.value.hint == "ask the cluster's support (help@uni.example) why"


@BOTH_WAYS
def test_a_folder_that_gets_a_new_name_goes_on_and_is_repeated(tmp_path: Path, up: bool) -> None:
    """By the rules of cp alone, the same command again would copy everything into the half copy."""
    source, to = tmp_path / "big", tmp_path / "to"
    (source / "sub").mkdir(parents=True)
    to.mkdir()
    for name in ("a", "b", "sub/c"):
        (source / name).write_bytes(os.urandom(2 * MIB))
    interrupted = View()

    def interrupt(event: events.Copying) -> None:
        if event.files_done == 1:
            raise KeyboardInterrupt

    interrupted.on_copying = interrupt
    with pytest.raises(KeyboardInterrupt):
        copy(LocalHost(), up, source, to / "new", view=interrupted)
    assert copy(LocalHost(), up, source, to / "new").copied.skipped == 1
    assert copy(LocalHost(), up, source, to / "new").copied.files == 0
    assert everything(to / "new") == everything(source)
    assert leftovers(to) == []
    copy(LocalHost(), up, source, f"{to}/new/")  # the slash says: into it
    (tmp_path / "other").mkdir()
    shutil.rmtree(to / "new")
    (tmp_path / "other").rename(to / "new")
    copy(LocalHost(), up, source, to / "new")
    assert everything(to / "new/big") == everything(source), "another folder of that name is one to copy into"
