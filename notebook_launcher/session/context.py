"""What the stories play on: where commands run, what shows what happens, and what opens a session's doors."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from notebook_launcher.core.errors import SubmitUncertain
from notebook_launcher.core.events import launch as events
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.hosts.base import Host
from notebook_launcher.planning.plan import Place
from notebook_launcher.schedulers.base import JobRef, Scheduler
from notebook_launcher.session.record import Session, Site
from notebook_launcher.session.session_keys import SessionKeys
from notebook_launcher.tunnel.reconnect import CountedPrompts


class View(Protocol):
    """Shows what happens, and tells what the user typed."""

    def show(self, event: events.Event) -> None:
        """Show one event."""

    def listen(self, inbox: queue.SimpleQueue[object]) -> None:
        """From now on put a ``Typed`` into ``inbox`` for each line that the user types."""


@dataclass(frozen=True)
class Typed:
    """A line from the keyboard, without its end."""

    line: str


@dataclass
class Stage:
    """What a story plays on: a host, its scheduler, and what one look at the host told.

    ``forwards``: ports of the node that the user wants besides Jupyter's.
    """

    place: Place
    host: Host
    site: Site
    scheduler: Scheduler
    root: str
    view: View
    prompts: CountedPrompts
    interrupts: Interrupts
    forwards: tuple[int, ...] = ()
    opened_at: float = field(default_factory=time.time)

    def clock(self) -> datetime:
        """Return the time on the cluster's clock, with its zone: what it said when it was looked at, and since then.

        Measured by this machine's clock, which goes on while a laptop sleeps; ``time.monotonic`` may not.
        """
        return self.site.now + timedelta(seconds=time.time() - self.opened_at)


@dataclass(frozen=True)
class Access:
    """What opens a session's doors: Jupyter's token, and keys for an SSH server of ours, made when first needed."""

    token: str = field(repr=False)
    keys: Callable[[], SessionKeys]


def job_of(session: Session) -> JobRef:
    """Return a session's job. Raises ``SubmitUncertain`` where none was ever noted."""
    if session.job is None:
        raise SubmitUncertain(f"Session {session.id} has no job noted.", mend="look for it in the scheduler's queue")
    return session.job
