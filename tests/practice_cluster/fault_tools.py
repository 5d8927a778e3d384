"""Tools for all faults: run commands in boxes, make changes and undo them, and wait for an effect."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .errors import ClusterError


class FaultTools(ABC):
    """A running cluster, as far as faults need it."""

    generation: str
    directory: Path

    @abstractmethod
    def _pid(self, box: str) -> int:
        """Return the host's process id of a box's first process."""

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
        """Return the path of a box's root directory on the host."""
        return Path(f"/proc/{self._pid(box)}/root")

    def _shell(self, box: str, script: str) -> str:
        return self._checked_root(box, ["sh", "-euc", script])

    @contextmanager
    def _changed(self, boxes: Sequence[str], change: str, undo: str) -> Iterator[None]:
        """Run a shell script in each box, and afterwards another one in those where the first was started."""
        with ExitStack() as undoing:
            for box in boxes:
                undoing.callback(self._shell, box, undo)
                self._shell(box, change)
            yield


def until(done: Callable[[], object], what: str, seconds: float = 30) -> None:
    """Call `done`, which may also raise, until it returns a true value.

    Raises ClusterError, which says what was waited for, after `seconds`.
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
    """Change a file in place, because it may be bind-mounted, without it being empty for readers in between."""
    handle = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(handle, text.encode(), 0)
        os.ftruncate(handle, len(text.encode()))
    finally:
        os.close(handle)
