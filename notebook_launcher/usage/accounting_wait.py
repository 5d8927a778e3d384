"""Queries the scheduler's accounting, which may be slow; the user sees what the command is waiting for."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import HostCommandFailed
from notebook_launcher.core.interrupts import Interrupt
from notebook_launcher.core.view import Typed, View
from notebook_launcher.session.context import Context

SLOW_AFTER = 1.0  # seconds after which a note says what the command is waiting for


@contextlib.contextmanager
def note_if_slow(view: View) -> Iterator[None]:
    """Show what the command is waiting for if the block takes longer than ``SLOW_AFTER``."""
    slow = threading.Timer(SLOW_AFTER, view.show, (events.Querying("asking the scheduler's accounting"),))
    slow.daemon = True
    slow.start()
    try:
        yield
    finally:
        slow.cancel()


class _MayBeIncomplete(Protocol):
    @property
    def complete(self) -> bool: ...


_Found = TypeVar("_Found", bound=_MayBeIncomplete)


def complete_answer(
    context: Context,
    command: Sequence[str],
    read: Callable[[CommandResult], _Found | None],
    deadline: float,
    *,
    enough: Callable[[_Found], bool] = lambda _: False,
) -> _Found | None:
    """Query the accounting repeatedly until its values are complete, or the user presses ENTER or Ctrl-C.

    Return the last answer if the database stops answering. ``deadline``: a value of ``time.monotonic``. ``enough``:
    returns whether an incomplete answer is good enough.
    """
    found, pause = None, context.timing.accounting_pause
    with note_if_slow(context.view), contextlib.suppress(HostCommandFailed):  # no answer in time
        while (left := deadline - time.monotonic()) > 0:
            newest = read(context.host.run(list(command), login_shell=True, timeout=left))
            found = newest or found
            if newest is None or newest.complete or enough(newest) or time.monotonic() + pause > deadline:
                break
            if _user_stops_within(context.interrupts.inbox, pause):
                break
            pause = min(2 * pause, context.timing.longest_accounting_pause)
    return found


def _user_stops_within(inbox: queue.SimpleQueue[object], seconds: float) -> bool:
    """Wait that long, or until the user types or interrupts; other events are ignored."""
    deadline = time.monotonic() + seconds
    with contextlib.suppress(queue.Empty):
        while True:
            if isinstance(inbox.get(timeout=max(0.0, deadline - time.monotonic())), Interrupt | Typed):
                return True
    return False
