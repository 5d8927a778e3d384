"""What is shown of a job that waits: why, and how old that word is; a job that can never start is not waited for."""

from __future__ import annotations

from datetime import datetime, timezone

from notebook_launcher.core.errors import JobNeverStarts
from notebook_launcher.core.events import launch as events
from notebook_launcher.core.request import Request
from notebook_launcher.core.timestamps import moment
from notebook_launcher.diagnosis import explain
from notebook_launcher.schedulers.base import JobStatus, State
from notebook_launcher.schedulers.cluster_info import Evidence
from notebook_launcher.session.context import Stage
from notebook_launcher.session.record import Session


def show_waiting(
    stage: Stage, session: Session, status: JobStatus, evidence: Evidence | None, read_at: datetime
) -> None:
    """Show why the job waits. Raises ``JobNeverStarts`` where the scheduler says that it can never start.

    Where only the limits that were read say so, that is shown and nothing is ended: a site may have rules of its own.
    """
    explanation = explain.pending(status.reason, evidence, job=status.job.id)
    if explanation.never:
        raise JobNeverStarts(
            f"Job {status.job} can never start: {explanation.summary}.",
            why=f"The scheduler gives the reason {status.reason}.",
            mend=explanation.action,
        )
    summary, action = explanation.summary, explanation.action
    request = evidence.request if evidence and evidence.request else Request(session.record.flags)
    if evidence is not None and (beyond := explain.beyond(request, evidence)):
        summary += f"; and as far as the limits can be read, it can never start: {beyond.summary}"
        action = beyond.action
    stage.view.show(
        events.Waiting(
            status.job.id,
            status.state.name,
            status.reason,
            summary,
            action,
            evidence.ahead if evidence else None,
            _with_zone(status.start, stage.site.now),
            read_at.astimezone(timezone.utc).isoformat(timespec="seconds"),
        )
    )


def show_suspended(stage: Stage, status: JobStatus) -> None:
    """Show that a running job was stopped for a while."""
    text = "the scheduler has stopped it for a while"
    stage.view.show(events.Waiting(status.job.id, State.SUSPENDED.name, status.reason, text))


def _with_zone(start: str | None, there: datetime) -> str | None:
    """Return a time with its zone, if need be that of the cluster's clock; ``None`` for what is no time."""
    at = moment(start, there)
    return at.isoformat() if at else None
