"""What the tests of copies share: a view, the call itself, folders with everything in them, a small disk."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.errors import CopyFailed
from notebook_launcher.hosts.base import Host
from notebook_launcher.hosts.counted_prompts import CountedPrompts
from notebook_launcher.transfer.copy import Copy
from notebook_launcher.transfer.paths import (
    CopyArguments,
)
from tests.ssh_server import ENGINES, Server, User, end_connections, host, no_agent, server  # noqa: F401 (fixtures)

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
        return "\n".join(event.text for event in self.events if isinstance(event, events.Note))


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
    Copy(host, CopyArguments(tuple(sources), destination, up), view, CountedPrompts(User()), force=force).run()
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
    (tree / "big").write_bytes(os.urandom(3 * MIB))
    os.utime(tree / "run.sh", (1_500_000_000, 1_500_000_000))
    os.utime(tree / "big", (1_400_000_000, 1_400_000_000))
    (tree / "deep" / "link").symlink_to("../run.sh")
    return tree


def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "none", disk]).returncode:
        pytest.skip("only root can make a small disk")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


disk = pytest.fixture(small_disk)


def fill(host: Host, tmp_path: Path, disk: Path, up: bool, files: int, patch: pytest.MonkeyPatch) -> None:  # noqa: F811
    src = tmp_path / "src"
    src.mkdir()
    for number in range(files):
        (src / f"{number}").write_bytes(os.urandom(13 * MIB // files))
    patch.setattr(Copy, "_refuse_without_space", lambda *_: None)  # as where a quota counts, which df knows not of
    with pytest.raises(CopyFailed) as caught:
        copy(host, up, src, disk)
    assert "No space left" in caught.value.why or "the disk is full" in caught.value.why
    assert "room" in caught.value.hint and "same command" in caught.value.hint
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
