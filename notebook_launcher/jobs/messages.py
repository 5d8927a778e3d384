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
    """``started``, ``endpoint`` or ``exit`` was written or changed by the job."""

    name: str
    data: Mapping[str, object]


@dataclass(frozen=True)
class StatusChanged:
    """The scheduler's word on the job; ``None``: it has forgotten the job.

    ``evidence``: what else was read to explain why it waits. ``read_at``: when the scheduler said so, in UTC.
    """

    status: JobStatus | None
    evidence: Evidence | None = None
    read_at: datetime = field(default_factory=lambda: datetime.now(timezone.utc))


@dataclass(frozen=True)
class SchedulerUnresponsive:
    """The scheduler has stopped answering, with what its command said. The next ``StatusChanged`` ends that."""

    reason: str


@dataclass(frozen=True)
class DirectoryRemoved:
    """The session's directory was removed: from now on only the scheduler tells."""


@dataclass(frozen=True)
class UsageSampled:
    """The newest sample of what the job uses."""

    sample: Sample


@dataclass(frozen=True)
class IdleReported:
    """The job's word on nobody using it, ``idle.json`` (see ``docs/job-script.md``); ``None``: it is used again."""

    data: Mapping[str, object] | None


@dataclass(frozen=True)
class ProgressReported:
    """The job's word on how far a notebook has come, ``progress.json`` (see ``docs/job-script.md``)."""

    data: Mapping[str, object]
