"""What every fault is made with: commands in boxes, changes that are undone, and waiting for what follows."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .errors import ClusterError


class FaultTools(ABC):
    """A running cluster, as far as faults have to do with it."""

    generation: str
    directory: Path

    @abstractmethod
    def _pid(self, box: str) -> int:
        """Return the first process of a box, as the host counts."""

    @abstractmethod
    def _checked_root(self, box: str, argv: Sequence[str], *, stdin: str = "") -> str:
        """Run a command as root in a box; raises ClusterError if it fails."""

    @abstractmethod
    def _checked_run(self, box: str, user: str, argv: Sequence[str]) -> str:
        """Run a command as a user in a box; raises ClusterError if it fails."""

    @abstractmethod
    def resume(self, *nodes: str) -> None:
        """Return nodes (all, without names) to service, whatever took them out of it."""

    def root_folder(self, box: str) -> Path:
        """Return where the host sees a box's files."""
        return Path(f"/proc/{self._pid(box)}/root")

    def _shell(self, box: str, script: str) -> str:
        return self._checked_root(box, ["sh", "-euc", script])

    @contextmanager
    def _changed(self, boxes: Sequence[str], change: str, undo: str) -> Iterator[None]:
        """Run a shell script in each box, and another one afterwards, where the first one was begun."""
        with ExitStack() as undoing:
            for box in boxes:
                undoing.callback(self._shell, box, undo)
                self._shell(box, change)
            yield


def until(done: Callable[[], object], what: str, seconds: float = 30) -> None:
    """Ask until `done`, which may also fail, says yes.

    Raises ClusterError, which says what was waited for, after so many seconds.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            if done():
                return
            reason = "it is not so yet"
        except ClusterError as error:
            reason = str(error)
        if time.monotonic() > deadline:
            raise ClusterError(f"Waited {seconds:.0f} s in vain for {what}: {reason}")
        time.sleep(0.05)


def overwrite(path: Path, text: str) -> None:
    """Change a file in place: it may be mounted elsewhere, and who reads it at this moment should not find it empty."""
    handle = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(handle, text.encode(), 0)
        os.ftruncate(handle, len(text.encode()))
    finally:
        os.close(handle)
