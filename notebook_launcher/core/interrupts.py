"""Ctrl-C, SIGTERM and SIGHUP: exceptions until a job may exist, and events in an inbox from then on.

An exception may arrive between any two steps, also between the scheduler's answer and the line that saves it, and
would orphan the job. So once a job may exist, nothing is raised any more: an interrupt is put into the inbox, like news
of the job and input from the keyboard, and is handled where the code can act on it.
"""

from __future__ import annotations

import queue
from typing import Literal

from notebook_launcher.core.frozen import Frozen, complete

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
        # a SimpleQueue may be put to from a signal handler, even while it is being read
        self.inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._deferred = False
        self._arrived: set[Kind] = set()  # since interrupts were deferred, whoever has taken them from the inbox
        #: how often the user has wanted it over since interrupts were deferred
        self.exit_requests = 0

    def defer(self) -> None:
        """From now on do not raise; put interrupts into the inbox."""
        self._deferred = True

    def renew(self) -> None:
        """Raise on interrupts again until ``defer``; drop the events left from what has ended.

        What arrived meanwhile is raised now, ``HungUp`` before ``KeyboardInterrupt``: whoever took it from the inbox,
        as when a job was cancelled, did not end the command with it.
        """
        before, self.inbox = self.inbox, queue.SimpleQueue()
        self._deferred = False
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
        elif kind == "leave":
            raise HungUp
        else:
            raise KeyboardInterrupt
