"""Messages about a job and its session, as they arrive in the inbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone

from notebook_launcher.core.usage_samples import Sample
from notebook_launcher.schedulers.base import JobStatus
from notebook_launcher.schedulers.cluster_info import Evidence


@dataclass(frozen=True)
class FileAppeared:
    """The job wrote or changed ``started``, ``endpoint`` or ``exit``."""

    name: str
    data: Mapping[str, object]


@dataclass(frozen=True)
class StatusChanged:
    """The job's status by the scheduler; ``None``: it has forgotten the job.

    ``evidence``: what else was read to explain why it is pending. ``read_at``: the time of the query, in UTC.
    """

    status: JobStatus | None
    evidence: Evidence | None = None
    read_at: datetime = field(default_factory=lambda: datetime.now(timezone.utc))


@dataclass(frozen=True)
class SchedulerUnresponsive:
    """The scheduler has stopped answering; the message is its command's. The next ``StatusChanged`` ends that."""

    reason: str


@dataclass(frozen=True)
class DirectoryRemoved:
    """The session's directory was removed: from now on only the scheduler can be queried."""


@dataclass(frozen=True)
class UsageSampled:
    """The newest sample of what the job uses."""

    sample: Sample


@dataclass(frozen=True)
class IdleReported:
    """The job reports that nobody uses it, in ``idle.json`` (see ``docs/job-script.md``); ``None``: it is in use."""

    data: Mapping[str, object] | None


@dataclass(frozen=True)
class ProgressReported:
    """The job reports the progress of a notebook, in ``progress.json`` (see ``docs/job-script.md``)."""

    data: Mapping[str, object]
