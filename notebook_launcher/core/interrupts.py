"""Ctrl-C, SIGTERM and SIGHUP: exceptions until a job may exist, and events in an inbox from then on.

An exception may be raised between any two steps, even between the scheduler's answer and the line that saves it, which
would orphan the job. So once a job may exist, nothing is raised any more: an interrupt is put into the inbox, like news
of the job and input from the keyboard, and is handled where the code can act on it.

Until then, calls that take locks are made in an ``Uninterrupted`` block.
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

GRACE = 1.0  # seconds from an interrupt in an uninterrupted block to its ``give_up``, which closes its connection
PATIENCE = 3.0  # seconds after the first interrupt; a further one after that is raised even in such a block
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


complete(Interrupt)  # signal handlers create them


class Interrupts:
    """Receives interrupts, and holds the inbox of everything that happens to a session."""

    def __init__(self) -> None:
        _held.was_raised = False
        # a SimpleQueue may be put to from a signal handler, even while it is being read
        self.inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._deferred = False
        self._arrived: set[Kind] = set()  # since interrupts were deferred, even if taken from the inbox already
        #: how often the user has asked to cancel since interrupts were deferred
        self.exit_requests = 0

    def defer(self) -> None:
        """Put interrupts into the inbox from now on, instead of raising them."""
        self._deferred = True

    @property
    def hung_up(self) -> bool:
        """Whether the terminal was closed since interrupts were deferred, even if that was taken from the inbox."""
        return "leave" in self._arrived

    def renew(self) -> None:
        """Raise interrupts again until ``defer``, and drop the events left over from the session that has ended.

        Interrupts that arrived meanwhile are raised now, ``HungUp`` in preference to ``KeyboardInterrupt``: even one
        that was taken from the inbox, for example to cancel a job, has not ended the command yet.
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
    """A block of the main thread that defers interrupts to its end.

    For calls that take locks: an exception raised between taking a lock and the ``try`` that releases it would leave it
    locked, and the next code that needs it, for example to close the connection, would wait forever.

    ``end_wait`` is called when an interrupt arrives, and ``give_up`` if the block still runs ``GRACE`` seconds later,
    to end what the block waits for; each is called on a thread of its own, and may block. ``closing``: the block only
    cleans up, so ``give_up`` is called even if the interrupt was raised before the block. On other threads, which get
    no interrupts, this does nothing.
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
            if _held.kinds:  # it arrived in an enclosing block, before this block's ``end_wait`` was known
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
                # starting a Thread takes locks, which the interrupted code may hold
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

    It takes no locks, because a signal handler may interrupt any of its methods.
    """

    def __init__(self) -> None:
        self.blocks: list[Uninterrupted] = []
        self.kinds: set[Kind] = set()
        self.was_raised = False
        self._since = 0.0

    def keep(self, kind: Kind) -> bool:
        """Keep an interrupt for the end of the running block; return false if there is none, or it takes too long."""
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
        """Raise the interrupt that arrived in the block, ``HungUp`` in preference to ``KeyboardInterrupt``."""
        self.raise_("leave" if "leave" in self.kinds else "end")

    def raise_(self, kind: Kind) -> None:
        """Raise an interrupt."""
        self.kinds.clear()
        self.was_raised = True
        raise HungUp if kind == "leave" else KeyboardInterrupt


_held = _Held()
