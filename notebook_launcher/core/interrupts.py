"""Ctrl-C, SIGTERM and SIGHUP: exceptions until a job may exist, and events in an inbox from then on.

An exception may arrive between any two steps, also between the scheduler's answer and the line that saves it, and
would orphan the job. So once a job may exist, nothing is raised any more: an interrupt is put into the inbox, like news
of the job and input from the keyboard, and is handled where the code can act on it.

Until then, a call that takes locks is made in a block that is ``Uninterrupted``.
"""

from __future__ import annotations

import _thread
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Literal

from notebook_launcher.core.frozen import Frozen, complete

GRACE = 1.0  # seconds in which an uninterrupted block may end after an interrupt, before it loses its connection
PATIENCE = 3.0  # seconds after which the next interrupt is raised even in such a block
_CHECK_EVERY = 0.02  # seconds

Kind = Literal["end", "leave"]


class HungUp(BaseException):
    """The terminal was closed (SIGHUP): detach, and leave the job running."""


class Interrupt(Frozen):
    """``end``: Ctrl-C or SIGTERM, the user cancels. ``leave``: SIGHUP, the user is gone.

    ``at_once``: end without asking, as after SIGTERM.
    """

    kind: Kind
    at_once: bool = False


complete(Interrupt)  # a signal's handler makes them


class Interrupts:
    """Receives interrupts, and holds the inbox of everything that happens to a session."""

    def __init__(self) -> None:
        _held.was_raised = False
        # a SimpleQueue may be put to from a signal handler, even while it is being read
        self.inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._deferred = False
        self._arrived: set[Kind] = set()  # since interrupts were deferred, whoever has taken them from the inbox
        #: how often the user has wanted it over since interrupts were deferred
        self.exit_requests = 0

    def defer(self) -> None:
        """From now on do not raise; put interrupts into the inbox."""
        self._deferred = True

    @property
    def hung_up(self) -> bool:
        """Whether the terminal was closed since interrupts were deferred, whoever has taken that from the inbox."""
        return "leave" in self._arrived

    def renew(self) -> None:
        """Raise on interrupts again until ``defer``; drop the events left from what has ended.

        What arrived meanwhile is raised now, ``HungUp`` before ``KeyboardInterrupt``: whoever took it from the inbox,
        as when a job was cancelled, did not end the command with it.
        """
        before, self.inbox = self.inbox, queue.SimpleQueue()
        self._deferred = _held.was_raised = False
        arrived, self._arrived = self._arrived, set()
        self.exit_requests = 0
        while not before.empty():
            item = before.get_nowait()
            if isinstance(item, Interrupt):
                arrived.add(item.kind)
        if arrived:
            self.arrive("leave" if "leave" in arrived else "end")

    def arrive(self, kind: Kind, *, at_once: bool = False) -> None:
        """Handle an interrupt; called by signal handlers."""
        if self._deferred:
            self._arrived.add(kind)
            self.exit_requests += kind == "end"
            self.inbox.put(Interrupt(kind, at_once))
        elif not _held.keep(kind):
            _held.raise_(kind)


class Uninterrupted:
    """A block of the main thread in which an interrupt is not raised, but at the block's end.

    For calls that take locks: an exception that arrives between taking one and the ``try`` which releases it would
    leave it locked, and whoever needs it next, to close the connection for example, would wait for ever.

    ``end_wait``, when an interrupt arrives, and ``give_up``, if the block still runs ``GRACE`` seconds later, end what
    it waits for; each is called on a thread of its own, and may block. ``closing``: the block only cleans up, so
    ``give_up`` bounds it also if an interrupt was raised before it. On another thread, where no interrupt arrives, this
    does nothing.
    """

    __slots__ = ("_closing", "_counts", "_end_wait", "_give_up", "is_over")

    def __init__(
        self,
        end_wait: Callable[[], object] | None = None,
        give_up: Callable[[], object] | None = None,
        *,
        closing: bool = False,
    ) -> None:
        self._end_wait, self._give_up, self._closing = end_wait, give_up, closing
        self._counts = threading.get_ident() == threading.main_thread().ident
        self.is_over = False

    def __enter__(self) -> None:
        if self._counts:
            if _held.kinds:  # inside of another such block: what would end this one's wait was not there yet
                _held.raise_kept()
            _held.blocks.append(self)
            if self._closing and _held.was_raised:
                self.end()

    def __exit__(self, *_: object) -> None:
        self.is_over = True
        if self._counts:
            _held.blocks.remove(self)
            if _held.kinds and not _held.blocks:
                _held.raise_kept()

    def end(self) -> None:
        """End what the block waits for; called by a signal handler. Raises ``RuntimeError`` if no thread can start."""
        for wait, end in ((0.0, self._end_wait), (GRACE, self._give_up)):
            if end is not None:
                # a Thread would take locks to start, and the interrupted code may have them
                _thread.start_new_thread(_end_after, (wait, end, self))


def _end_after(seconds: float, end: Callable[[], object], block: Uninterrupted) -> None:
    until = time.monotonic() + seconds
    while not block.is_over and time.monotonic() < until:
        time.sleep(_CHECK_EVERY)
    if not block.is_over:
        with contextlib.suppress(Exception):  # it may have ended meanwhile, or be broken
            end()


class _Held:
    """The uninterrupted blocks of the main thread, and the interrupts that arrived in them.

    A signal handler may interrupt any of it, so it takes no locks.
    """

    def __init__(self) -> None:
        self.blocks: list[Uninterrupted] = []
        self.kinds: set[Kind] = set()
        self.was_raised = False
        self._since = 0.0

    def keep(self, kind: Kind) -> bool:
        """Keep an interrupt for the end of the block that runs; false if there is none, or it does not end."""
        if not self.blocks or threading.get_ident() != threading.main_thread().ident:
            return False
        if not self.kinds:
            self._since = time.monotonic()
            self.kinds.add(kind)
            with contextlib.suppress(RuntimeError):
                for block in self.blocks:
                    block.end()
        elif time.monotonic() - self._since > PATIENCE:
            return False
        self.kinds.add(kind)
        return True

    def raise_kept(self) -> None:
        """Raise what arrived in the block, ``HungUp`` before ``KeyboardInterrupt``."""
        self.raise_("leave" if "leave" in self.kinds else "end")

    def raise_(self, kind: Kind) -> None:
        """Raise an interrupt."""
        self.kinds.clear()
        self.was_raised = True
        raise HungUp if kind == "leave" else KeyboardInterrupt


_held = _Held()
