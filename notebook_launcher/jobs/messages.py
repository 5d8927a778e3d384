"""Messages about a job and its session, as they arrive in the inbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime, timezone

from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.usage_samples import Sample
from notebook_launcher.schedulers.base import JobStatus
from notebook_launcher.schedulers.cluster_info import Evidence


class FileAppeared(Frozen):
    """The job wrote or changed ``started``, ``endpoint`` or ``exit``."""

    name: str
    data: Mapping[str, object]


class StatusChanged(Frozen):
    """The job's status, as the scheduler reports it; ``None``: the scheduler has forgotten the job.

    ``evidence``: what else was read to explain why it is pending. ``read_at``: the time of the query, in UTC.
    """

    status: JobStatus | None
    evidence: Evidence | None = None
    read_at: datetime = field(default_factory=lambda: datetime.now(timezone.utc))


class SchedulerUnresponsive(Frozen):
    """The scheduler has stopped answering, until the next ``StatusChanged``. ``reason``: its command's message."""

    reason: str


class DirectoryRemoved(Frozen):
    """The session's directory was removed: from now on only the scheduler can be queried."""


class UsageSampled(Frozen):
    """The newest sample of what the job uses."""

    sample: Sample


class IdleReported(Frozen):
    """The job reports, in ``idle.json`` (see ``docs/job-script.md``), that nobody uses it; ``None``: it is in use."""

    data: Mapping[str, object] | None


class NoticeReported(Frozen):
    """The teacher of a course has sent the session a notice, in ``notice.json`` (see ``docs/job-script.md``)."""

    data: Mapping[str, object]


class StagingReported(Frozen):
    """The job reports how much of its environment is copied to the node, in ``staging.json``."""

    data: Mapping[str, object]


class AppsReported(Frozen):
    """The job reports the programs beside JupyterLab, in ``runtime/apps.json`` (see ``docs/job-script.md``)."""

    data: Mapping[str, object]


class UnsavedReported(Frozen):
    """A page of JupyterLab reports what it could not save before the end, in ``unsaved.json``."""

    data: Mapping[str, object]


class RenewalRequested(Frozen):
    """A page of JupyterLab asks for the next job of its session, in ``renew.json``."""

    data: Mapping[str, object]


class NextJobReported(Frozen):
    """A job that continues this session was queued, as reported in ``next_job.json`` (see ``docs/job-script.md``)."""

    data: Mapping[str, object]


class ProgressReported(Frozen):
    """The job reports the progress of a notebook, in ``progress.json`` (see ``docs/job-script.md``)."""

    data: Mapping[str, object]
