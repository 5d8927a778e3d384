"""What a command works with: the host, its scheduler, the view for events, and the inbox for interrupts."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from notebook_launcher.core.errors import SubmitUncertain
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.timing import DEFAULT_TIMING, Timing
from notebook_launcher.core.view import View
from notebook_launcher.hosts.base import Host
from notebook_launcher.hosts.counted_prompts import CountedPrompts
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.schedulers.base import JobRef, Scheduler
from notebook_launcher.session.record import Session, Site


@dataclass
class Context:
    """The context of a command: a host, its scheduler, and what inspecting the host once found.

    ``forwards``: ports of the node to forward besides Jupyter's. ``accepted_flags``: flags outside the launcher's list
    that the cluster's submit command has accepted. ``shared_scripts``: the versions of the job scripts that seem to be
    on the cluster already, by their digests, and need not be sent. ``local_lab``: the command of the user's own
    JupyterLab on this machine, which is to use the session's kernels; empty: none.
    """

    target: LaunchTarget
    host: Host
    site: Site
    scheduler: Scheduler
    root: str
    view: View
    prompts: CountedPrompts
    interrupts: Interrupts
    forwards: tuple[int, ...] = ()
    timing: Timing = DEFAULT_TIMING
    accepted_flags: set[tuple[str, str | None]] = field(default_factory=set)
    shared_scripts: frozenset[str] = frozenset()
    local_lab: tuple[str, ...] = ()

    @property
    def host_timing(self) -> Timing:
        """Return ``timing`` with more time for answers if the host's login shell is known to be slow."""
        return self.timing.with_login_shell(self.host.login_shell_took or 0.0)

    def clock(self) -> datetime:
        """Return the time on the cluster's clock, with its zone."""
        return self.site.clock()


def session_and_job(session: Session) -> str:
    """Return ``Session X: job 7``; without a scheduler, where the job has the session's own name, ``Session X``."""
    job = job_of(session)
    return f"Session {session.id}" if job.id == session.id else f"Session {session.id}: job {job}"


def job_of(session: Session) -> JobRef:
    """Return a session's job. Raises ``SubmitUncertain`` if no job id was recorded."""
    if session.job is None:
        raise SubmitUncertain(f"Session {session.id} has no recorded job.", hint="look for it in the scheduler's queue")
    return session.job
