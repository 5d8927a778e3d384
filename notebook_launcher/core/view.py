"""The protocol of a view: shows events and reads the keyboard."""

from __future__ import annotations

import queue
from typing import Protocol

from notebook_launcher.core import events
from notebook_launcher.core.frozen import Frozen


class View(Protocol):
    """Shows events, and reports what the user types."""

    def show(self, event: events.Event) -> None:
        """Show one event."""

    def listen(self, inbox: queue.SimpleQueue[object]) -> None:
        """From now on put a ``Typed`` into ``inbox`` for each line that the user types."""


class Typed(Frozen):
    """A line from the keyboard, without its newline."""

    line: str
