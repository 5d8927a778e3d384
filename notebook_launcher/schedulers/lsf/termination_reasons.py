"""Why a job in LSF's state EXIT ended: the termination reasons and exit codes, as states."""

from __future__ import annotations

from notebook_launcher.schedulers.base import State

# LSF's termination reasons, from the manual of bhist, TERM_*; the first match counts
_TERMINATED = (
    ("TERM_RUNLIMIT", State.TIMEOUT),
    ("TERM_MEMLIMIT", State.OUT_OF_MEMORY),
    ("TERM_PREEMPT", State.PREEMPTED),
    ("TERM_DEADLINE", State.DEADLINE),
    ("TERM_OWNER", State.CANCELLED),
    ("TERM_FORCE_OWNER", State.CANCELLED),
    ("TERM_ADMIN", State.CANCELLED),
    ("TERM_FORCE_ADMIN", State.CANCELLED),
    ("TERM_REMOVE_HUNG_JOB", State.NODE_FAIL),
)
# as observed: bkill sends SIGINT first, and LSF sends SIGUSR2 at the end of the walltime
_KILLED, _TIME_OVER = 130, 140


def ended(output: str, code: int | None, *, ran: bool) -> State:
    """Return the state of a job that LSF reports as EXIT. ``ran``: whether it was started on a host."""
    for word, state in _TERMINATED:
        if word in output:
            return state
    if code == _TIME_OVER:
        return State.TIMEOUT
    return State.CANCELLED if code == _KILLED or (not ran and not code) else State.FAILED
