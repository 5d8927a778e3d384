"""The state of a job array as a whole, from those of its tasks: squeue lists each that runs, and those that wait."""

from __future__ import annotations

from collections.abc import Sequence

from notebook_launcher.schedulers.base import JobStatus, State

# What tells most about the array comes first: it is over when all of its tasks are.
_ORDER = (
    *(State.RUNNING, State.SUSPENDED, State.COMPLETING, State.PENDING, State.UNKNOWN),
    *(State.FAILED, State.OUT_OF_MEMORY, State.NODE_FAIL, State.BOOT_FAIL, State.TIMEOUT, State.DEADLINE),
    *(State.PREEMPTED, State.REVOKED, State.CANCELLED, State.COMPLETED),
)


def of_array(rows: Sequence[JobStatus]) -> JobStatus:
    """Return the status of the task that tells most about all: one that runs, or waits, or has failed.

    ``rows``: at least one; an ordinary job has one.
    """
    return min(rows, key=lambda row: _ORDER.index(row.state))
