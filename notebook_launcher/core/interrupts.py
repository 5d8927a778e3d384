"""Ctrl-C, SIGTERM and SIGHUP: exceptions while nothing is at stake, and from then on things that happen in their turn.

An exception may come between any two steps, also between the scheduler's answer and the line that keeps it, and would
orphan the job there. So once a job may exist, nothing is raised any more: an interrupt is an item in the inbox, like
what the job and the keyboard say, and is looked at where it can be acted on.
"""

from __future__ import annotations

import queue
from dataclasses import dataclass
from typing import Literal

Kind = Literal["end", "leave"]


class HungUp(BaseException):
    """The terminal was closed (SIGHUP): whatever runs is left running."""


@dataclass(frozen=True)
class Interrupt:
    """``end``: Ctrl-C or SIGTERM, the user wants it over. ``leave``: SIGHUP, the user is gone."""

    kind: Kind


class Interrupts:
    """Where interrupts arrive, and the inbox of all that happens to a session."""

    def __init__(self) -> None:
        # a SimpleQueue may be put to from within a signal handler, even while it is being read
        self.inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._deferred = False
        #: how often the user has wanted it over since interrupts were deferred
        self.exit_requests = 0

    def defer(self) -> None:
        """From now on raise nothing."""
        self._deferred = True

    def arrive(self, kind: Kind) -> None:
        """Take an interrupt; called by signal handlers."""
        if self._deferred:
            self.exit_requests += kind == "end"
            self.inbox.put(Interrupt(kind))
        elif kind == "leave":
            raise HungUp
        else:
            raise KeyboardInterrupt
