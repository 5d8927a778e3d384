"""What a command works with: where commands run, what shows events, and what gives access to a session."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from notebook_launcher.core.errors import SubmitUncertain
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.timing import DEFAULT_TIMING, Timing
from notebook_launcher.core.view import View
from notebook_launcher.hosts.base import Host
from notebook_launcher.hosts.prompts import CountedPrompts
from notebook_launcher.planning.plan import Place
from notebook_launcher.schedulers.base import JobRef, Scheduler
from notebook_launcher.session.record import Session, Site
from notebook_launcher.session.session_keys import SessionKeys


@dataclass
class Context:
    """What a command works with: a host, its scheduler, and what inspecting the host once gave.

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
    timing: Timing = DEFAULT_TIMING

    def clock(self) -> datetime:
        """Return the time on the cluster's clock, with its zone: what it said when it was looked at, and since then.

        Measured by this machine's clock, which goes on while a laptop sleeps; ``time.monotonic`` may not.
        """
        return self.site.now + timedelta(seconds=time.time() - self.opened_at)


@dataclass(frozen=True)
class Access:
    """What gives access to a session: Jupyter's token, and keys for an SSH server of ours, made when first needed."""

    token: str = field(repr=False)
    keys: Callable[[], SessionKeys]


def job_of(session: Session) -> JobRef:
    """Return a session's job. Raises ``SubmitUncertain`` where none was ever noted."""
    if session.job is None:
        raise SubmitUncertain(f"Session {session.id} has no recorded job.", hint="look for it in the scheduler's queue")
    return session.job
