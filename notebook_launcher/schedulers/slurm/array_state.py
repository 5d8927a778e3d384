"""The state of a job array as a whole, from those of its tasks: squeue lists running tasks one by one."""

from __future__ import annotations

from collections.abc import Sequence

from notebook_launcher.schedulers.base import JobStatus, State

# The states that matter most for the array come first: it has ended only when all of its tasks have.
_ORDER = (
    *(State.RUNNING, State.SUSPENDED, State.COMPLETING, State.PENDING, State.UNKNOWN),
    *(State.FAILED, State.OUT_OF_MEMORY, State.NODE_FAIL, State.BOOT_FAIL, State.TIMEOUT, State.DEADLINE),
    *(State.PREEMPTED, State.REVOKED, State.CANCELLED, State.COMPLETED),
)


def of_array(rows: Sequence[JobStatus]) -> JobStatus:
    """Return the status of the task that represents the array best: one that runs, else one that is pending or failed.

    ``rows``: at least one; an ordinary job has one.
    """
    return min(rows, key=lambda row: _ORDER.index(row.state))
