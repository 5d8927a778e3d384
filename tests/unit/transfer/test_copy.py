"""Copies over every host: this machine, and both SSH engines against a real sshd. Nothing is lost, nothing half."""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
import struct
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from notebook_launcher.core.errors import ConnectionLost, CopyFailed, CopyRefused, LauncherError, UsageError
from notebook_launcher.core.events import launch as events
from notebook_launcher.hosts.base import ByteStream, Host
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.transfer import copy as copying
from notebook_launcher.transfer import local_endpoint as ends
from notebook_launcher.transfer.copy import Copy
from notebook_launcher.transfer.paths import (
    Seen,
    Source,
    Words,
    is_safe,
    items_of,
    last_name,
    part_name,
    read_words,
    stays_inside,
)
from notebook_launcher.tunnel.reconnect import CountedPrompts
from tests.unit.hosts.test_remote_host import (  # noqa: F401 (fixtures)
    ENGINES,
    Server,
    User,
    end_connections,
    host,
    no_agent,
    server,
)

pytestmark = pytest.mark.timeout(60)
MIB = 1024 * 1024
BOTH_WAYS = pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
# both ways over both engines is for where a connection ends by itself
EVERY_HOST = pytest.mark.parametrize(
    ("host", "up"),
    [("local", True), ("local", False), ("paramiko", True), ("openssh", False)],
    ids=["local-up", "local-down", "paramiko-up", "openssh-down"],
    indirect=["host"],
)


class View:
    """Keeps what is shown."""

    def __init__(self) -> None:
        self.events: list[events.Event] = []
        self.on_copying: Callable[[events.Copying], None] = lambda _event: None

    def show(self, event: events.Event) -> None:
        self.events.append(event)
        if isinstance(event, events.Copying):
            self.on_copying(event)

    def listen(self, inbox: object) -> None:
        pass

    @property
    def copied(self) -> events.Copied:
        found = [event for event in self.events if isinstance(event, events.Copied)]
        assert len(found) == 1
        return found[0]

    @property
    def notes(self) -> str:
        return "\n".join(event.text for event in self.events if isinstance(event, events.Noted))


def copy(
    host: Host,  # noqa: F811
    up: bool,
    *words: object,
    force: bool = False,
    view: View | None = None,
) -> View:
    """Copy from the first words to the last, up or down."""
    view = view or View()
    *sources, destination = map(str, words)
    Copy(host, Words(tuple(sources), destination, up), view, CountedPrompts(User()), force=force).run()
    return view


def everything(folder: Path) -> dict[str, object]:
    """All in a folder: bytes of files, ``None`` for folders, targets of links; names that no text can say included."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()))
        else:
            found[name] = path.read_bytes() if path.is_file() else None
    return found


def leftovers(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob(".*part-*")]


ODD = [
    "a b",
    "a\nb",
    "-n",
    "--",
    "'",
    '"',
    "$HOME",
    "`x`",
    "*",
    "\\",
    "\\n",
    "é 雪",
    "a\tb",
    os.fsdecode(b"\xff\xfe"),
    "#",
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with everything that is odd in it."""
    tree = tmp_path / "tree"
    for folder in ("empty", "deep/er", "a folder\nwith 'all'", "-f"):
        (tree / folder).mkdir(parents=True)
    for number, name in enumerate(ODD):
        (tree / name).write_text(f"{number}" * number)
        (tree / "deep/er" / name).write_text(name.encode(errors="replace").decode())
    (tree / "a folder\nwith 'all'" / "x").write_bytes(os.urandom(1000))
    (tree / "run.sh").write_text("#!/bin/sh\n")
    (tree / "run.sh").chmod(0o750)
    (tree / "secret").write_text("s")
    (tree / "secret").chmod(0o600)
    (tree / "big").write_bytes(os.urandom(9 * MIB))
    os.utime(tree / "run.sh", (1_500_000_000, 1_500_000_000))
    os.utime(tree / "big", (1_400_000_000, 1_400_000_000))
    (tree / "deep" / "link").symlink_to("../run.sh")
    return tree


# --- names, without any host ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["a", "login:b"], Words(("a",), "b", True)),
        (["login:a", "login:/b", "."], Words(("a", "/b"), ".", False)),
        (["login:", "backup"], Words(("~",), "backup", False)),
        (["./login:x", "login:~/y/"], Words(("./login:x",), "~/y/", True)),
        (["./a:b", "C:\\x", "login:"], Words(("./a:b", "C:\\x"), "~", True)),
    ],
)
def test_one_side_is_the_cluster(typed: list[str], words: Words) -> None:
    assert read_words(typed) == words


@pytest.mark.parametrize(
    "typed",
    [["login:a"], ["a", "b"], ["login:a", "login:b"], ["a", "login:b", "c"], ["", "login:"], ["a", "login:~bob/x"]],
)
def test_what_is_no_copy_is_told_before_anything_is_contacted(typed: list[str]) -> None:
    with pytest.raises(UsageError):
        read_words(typed)


def test_names_are_those_of_cp() -> None:
    assert [last_name(path) for path in ("a", "x/a/", "/a", "x/.")] == ["a", "a", "a", ""]
    for path in ("/", "..", "x/../"):
        with pytest.raises(UsageError):
            last_name(path)


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/passwd", "a//b", "", ".", "a/./b", "a\0b"])
def test_names_that_lead_out_are_refused(name: str) -> None:
    assert not is_safe(name)
    top = Seen("", "folder", 0o755)
    with pytest.raises(UsageError):
        items_of([(Source("/src", (top, Seen("a", "folder", 0o755), Seen(name or "//", "file", 0o644))), "src")])


def test_nothing_lies_behind_a_link() -> None:
    entries = (Seen("", "folder", 0o755), Seen("l", "link", 0o777, link="."), Seen("l/x", "file", 0o644))
    with pytest.raises(UsageError):
        items_of([(Source("/src", entries), "src")])


@pytest.mark.parametrize(
    ("link", "target", "inside"),
    [
        ("l", "a", True), ("l", "./a/b", True), ("d/l", "../a", True), ("d/l", "..", True), ("l", ".", True),
        ("l", "..", False), ("d/l", "../../a", False), ("l", "/a", False), ("l", "", False), ("l", "k/../../a", False),
        ("d/l", "k/..", False),
    ],
)  # fmt: skip
def test_links_that_stay_inside(link: str, target: str, inside: bool) -> None:
    assert stays_inside(link, target) is inside


def test_a_long_name_leaves_room_for_what_a_part_is_called() -> None:
    assert len(part_name("é" * 127, "0123456789").encode(errors="surrogateescape")) <= 255
    assert part_name("a", "x") == ".a.part-x"


# --- both ways, over every host ------------------------------------------------------------------------------


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
    source.write_bytes(os.urandom(20 * MIB))
    there.mkdir()
    interrupted = View()

    def interrupt(event: events.Copying) -> None:
        if event.bytes_done > 5 * MIB:
            raise KeyboardInterrupt

    interrupted.on_copying = interrupt
    monkeypatch.setattr(copying, "A_SECOND", 1000)
    with pytest.raises(KeyboardInterrupt):
        copy(host, up, source, there, view=interrupted)
    (part,) = leftovers(there)
    assert stat.S_IMODE(Path(part).stat().st_mode) == 0o600
    assert not (there / "big").exists()
    view = copy(host, up, source, there)
    assert 0 < view.copied.resumed < 20 * MIB
    assert (there / "big").read_bytes() == source.read_bytes()
    assert leftovers(there) == []


@BOTH_WAYS
@pytest.mark.parametrize("what", ["the source", "the part", "a longer part"])
def test_a_part_that_is_no_beginning_starts_anew(tmp_path: Path, up: bool, what: str) -> None:
    source, there = tmp_path / "big", tmp_path / "there"
    source.write_bytes(os.urandom(10 * MIB))
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
    mark = copying.tag("up" if up else "down", label, str(source), str(there / "big"))
    part_path = there / part_name("big", mark)
    data = source.read_bytes()
    part_path.touch(0o600)
    part_path.write_bytes({"the source": data[:MIB], "the part": b"x" + data[1:MIB], "a longer part": data * 2}[what])
    if what == "the source":
        source.write_bytes(os.urandom(10 * MIB))
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


def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "none", disk]).returncode:
        pytest.skip("only root can make a small disk")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


disk = pytest.fixture(small_disk)


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


def fill(host: Host, tmp_path: Path, disk: Path, up: bool, files: int, patch: pytest.MonkeyPatch) -> None:  # noqa: F811
    src = tmp_path / "src"
    src.mkdir()
    for number in range(files):
        (src / f"{number}").write_bytes(os.urandom(13 * MIB // files))
    patch.setattr(Copy, "_refuse_without_room", lambda *_: None)  # as where a quota counts, which df knows not of
    with pytest.raises(CopyFailed) as caught:
        copy(host, up, src, disk)
    assert "No space left" in caught.value.why or "the disk is full" in caught.value.why
    assert "room" in caught.value.mend and "same command" in caught.value.mend
    shown = [path for path in disk.rglob("*") if path.is_file() and ".part-" not in str(path)]
    assert all(path.read_bytes() == (src / path.name).read_bytes() for path in shown)
    if files == 1:
        assert leftovers(disk)
    if host.remote:
        return
    subprocess.run(["mount", "-o", "remount,size=60m", disk], check=True)
    view = copy(host, up, src, disk)
    assert view.copied.resumed > 0 or files > 1
    assert everything(disk / "src") == everything(src)
    assert leftovers(disk) == []


@BOTH_WAYS
@pytest.mark.parametrize("size", [1000, 9 * MIB])
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
    assert "src/b" in caught.value.what or "src/c" in caught.value.what
    assert all(path.read_bytes() == (src / path.name).read_bytes() for path in there.rglob("?") if path.is_file())


@BOTH_WAYS
def test_what_appears_meanwhile_is_left_alone(tmp_path: Path, up: bool) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "a").write_text("ours")
    view = View()
    view.on_copying = lambda _event: (tmp_path / "there" / "a").write_text("theirs") and None
    with pytest.raises(CopyFailed, match="by now"):
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
    source.write_bytes(os.urandom(9 * MIB))
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
        patch.setattr(copying, "A_SECOND", 1e6)
        copy(LocalHost(), up, source, there, view=view)
    (part,) = leftovers(there)
    assert {*modes, stat.S_IMODE(Path(part).stat().st_mode)} == {0o600}
    copy(LocalHost(), up, source, there)
    assert (there / "big").read_bytes() == source.read_bytes()


# --- two at once, and others in the same folder --------------------------------------------------------------


@BOTH_WAYS
def test_two_copies_at_once_into_one_folder(tmp_path: Path, up: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second begins, and is stopped, after the first has unpacked and before it gives the files their place."""
    src, there = tmp_path / "src", tmp_path / "there"
    src.mkdir()
    there.mkdir()
    for name in "abcdefgh":
        (src / name).write_bytes(os.urandom(200_000))
    end = ends.There if up else ends.Here
    verb = "settle" if up else "place"
    original, second = getattr(end, verb), View()

    def stop(event: events.Copying) -> None:
        if event.bytes_done > 1_200_000:  # by now the far end has begun to unpack
            raise KeyboardInterrupt

    second.on_copying = stop
    monkeypatch.setattr(copying, "A_SECOND", 1e6)

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
    end = ends.There if up else ends.Here
    verb = "settle" if up else "place"
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
    mark = copying.tag("up" if up else "down", LocalHost.label, str(source), str(there / "big"))
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
    assert "--force" not in caught.value.mend


def test_who_may_not_write_is_not_told_to_use_force() -> None:
    mend = ends.failed("there", "mv: cannot move 'a' to 'b': Permission denied").mend
    assert "may you write there" in mend and "--force" not in mend
    with pytest.raises(CopyFailed) as caught, ends.said_of("/x"):
        raise PermissionError(errno.EACCES, "Permission denied")
    assert "may you write there" in caught.value.mend


@BOTH_WAYS
def test_a_link_that_leads_there_already_is_no_obstacle(tmp_path: Path, up: bool) -> None:
    end = ends.There(LocalHost()) if up else ends.Here()
    ties = {"l": "a b\n", "-k": "-x"}
    for force in (False, False, True):
        end.tie(str(tmp_path), ties, force=force)
    assert everything(tmp_path) == {"l": ("link", "a b\n"), "-k": ("link", "-x")}
    with pytest.raises(CopyFailed, match="broke off"):
        end.tie(str(tmp_path), {"l": "other"}, force=False)


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
    copy(LocalHost(), up, f"{tmp_path}/link/..", there)
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
    assert notes == "login: is this machine here: no cluster was named."


def test_a_connection_that_nobody_mends_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a thread that makes it anew dies, or never ends."""

    class Silent:
        def __init__(self, *_: object, **_options: object) -> None: ...
        def stop(self) -> None: ...

    def lose(*_: object) -> None:
        raise ConnectionLost("It is lost.")

    monkeypatch.setattr(copying, "Mending", Silent)
    monkeypatch.setattr(copying, "MEND_FOR", 0.01)
    monkeypatch.setattr(ends.There, "target", lose)
    (tmp_path / "a").write_text("a")
    with pytest.raises(CopyFailed, match="could not be made anew"):
        copy(LocalHost(), True, tmp_path / "a", tmp_path / "b")


# --- a connection that breaks --------------------------------------------------------------------------------


@BOTH_WAYS
@pytest.mark.parametrize("engine", list(ENGINES))
def test_a_cut_connection_is_made_anew(
    server: Server,  # noqa: F811
    tmp_path: Path,
    up: bool,
    engine: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copying, "A_SECOND", 1000)
    src, there = tmp_path / "src", tmp_path / "there"
    src.mkdir()
    there.mkdir()
    for name in ("small1", "small2"):
        (src / name).write_bytes(os.urandom(1000))
    (src / "zbig").write_bytes(os.urandom(18 * MIB))
    others = server.connections()
    view = View()
    cuts = []

    def cut(event: events.Copying) -> None:
        if not cuts and event.bytes_done > 9 * MIB:
            cuts.append(event.bytes_done)
            end_connections(server, others)

    view.on_copying = cut
    with ENGINES[engine](server.destination(), Credentials(User())) as remote:
        copy(remote, up, src, there, view=view)
    assert cuts
    assert "Connected again" in view.notes
    assert everything(there / "src") == everything(src)
    assert leftovers(there) == []


# --- a far end that is not to be believed --------------------------------------------------------------------


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
