"""Shows the progress of a copy."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Sequence

from notebook_launcher.core import events
from notebook_launcher.core.view import View
from notebook_launcher.transfer.paths import (
    Item,
)

A_SECOND = 4  # how many times a second progress is shown


class Progress:
    """Shows the progress of a copy, a few times a second. ``proven``: verified bytes."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.proven = 0
        self._files = self._files_done = self._bytes = self._done = self._current = 0
        self._file = ""
        self._shown_at = -1.0

    def expect(self, files: Sequence[Item], missing: Sequence[Item]) -> None:
        """Set the totals; files that are not missing count as done."""
        self._files, self._bytes = len(files), sum(item.size for item in files)
        self._files_done = self._files - len(missing)
        self._done = self._bytes - sum(item.size for item in missing)

    def begin(self, item: Item, count: int = 1) -> None:
        """Start one file, or several at once."""
        name = posixpath.basename(item.path)
        self._file = name if count == 1 else f"{name} and {count - 1} more"
        self._current = 0

    def set_done(self, count: int) -> None:
        """Set the bytes done of the started files."""
        self._current = count
        self.proven = max(self.proven, self._done + count)
        self._show()

    def add(self, count: int) -> None:
        """Add bytes done."""
        self._current += count
        if time.monotonic() - self._shown_at >= 1 / A_SECOND:
            self._show()

    def end(self, *items: Item) -> None:
        """Count the started files as complete."""
        self._done += sum(item.size for item in items)
        self._files_done += len(items)
        self._current = 0
        self.proven = max(self.proven, self._done)

    def close(self) -> None:
        """Show the final progress."""
        if self._files:
            self._show()

    def _show(self) -> None:
        self._shown_at = time.monotonic()
        done = min(self._done + self._current, self._bytes)
        self._view.show(events.Copying(self._file, self._files, self._files_done, self._bytes, done))
