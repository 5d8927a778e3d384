"""A folder on a slow, busy shared file system, where each open and each stat takes a while."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .errors import NotPossibleHereError
from .fault_tools import FaultTools, until
from .layout import COMPUTE_NODES

_HERE = Path(__file__).resolve().parent
_PLACE = "run/slow-files"  # in a box: the program, its dependencies, and the original folders
MILLISECONDS = 2.0

# Mounts inside the folder stay visible. The program ends when its file system is unmounted.
_START = """\
below=/{place}/{name}
mkdir -p "$below"
mount --rbind {folder} "$below"
setsid python3 /{place}/slow_files.py "$below" {folder} {milliseconds} >/{place}/{name}.log 2>&1 </dev/null &
"""
_STOP = """\
case $(stat -f -c %T {folder}) in fuse*) umount -l {folder} ;; esac
test ! -d /{place}/{name} || umount -l /{place}/{name} || true
"""


class SlowStorage(FaultTools):
    """The part of the practice cluster that makes folders slow."""

    @contextmanager
    def slow_files(self, folder: str, *boxes: str, milliseconds: float = MILLISECONDS) -> Iterator[None]:
        """Delay each open and each stat in a folder on these boxes (default: the compute nodes).

        Repeated accesses are fast for a second, because the kernel caches them. Each box has its own file system over
        the folder, with an empty cache each time this is entered.
        """
        try:
            self.slow_down(folder, boxes or COMPUTE_NODES, milliseconds)
            yield
        finally:
            self.speed_up(folder, boxes or COMPUTE_NODES)

    def slow_down(self, folder: str, boxes: Sequence[str], milliseconds: float = MILLISECONDS) -> None:
        """Make a folder slow until `speed_up`; see `slow_files`."""
        found = importlib.util.find_spec("mfusepy")
        if found is None or found.origin is None:
            raise NotPossibleHereError("A slow file system needs the Python package mfusepy.")
        words = {"place": _PLACE, "name": _name(folder), "folder": folder, "milliseconds": milliseconds}
        for box in boxes:
            place = self.root_folder(box) / _PLACE
            place.mkdir(exist_ok=True)
            for source in (_HERE / "slow_files.py", Path(found.origin)):
                shutil.copy(source, place / source.name)
            self._shell(box, _START.format(**words))
        for box in boxes:
            self._await_mount(box, folder)

    def _await_mount(self, box: str, folder: str) -> None:
        kind = ["stat", "-f", "-c", "%T", folder]
        until(lambda: self._checked_root(box, kind).startswith("fuse"), f"a slow {folder} on {box}")

    def speed_up(self, folder: str, boxes: Sequence[str]) -> None:
        """Undo `slow_down`."""
        for box in boxes:
            self._shell(box, _STOP.format(place=_PLACE, name=_name(folder), folder=folder))


def _name(folder: str) -> str:
    return folder.strip("/").replace("/", "-")
