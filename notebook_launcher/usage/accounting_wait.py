"""A query to the scheduler's accounting, which may be slow: nobody waits for it in silence."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from notebook_launcher.core import events
from notebook_launcher.core.view import View

SLOW_AFTER = 1.0  # seconds after which a note says what the command is waiting for


@contextlib.contextmanager
def note_if_slow(view: View) -> Iterator[None]:
    """Show a note on what the command is waiting for, if it takes long."""
    slow = threading.Timer(SLOW_AFTER, view.show, (events.Querying("asking the scheduler's accounting"),))
    slow.daemon = True
    slow.start()
    try:
        yield
    finally:
        slow.cancel()
