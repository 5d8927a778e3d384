"""What is shown of a job that waits: why, and how old that word is; a job that can never start is not waited for."""

from __future__ import annotations

from datetime import datetime, timezone

from notebook_launcher import events, explain
from notebook_launcher.errors import JobNeverStarts
from notebook_launcher.request import Request
from notebook_launcher.schedulers.base import JobStatus, State
from notebook_launcher.schedulers.outlook import Evidence
from notebook_launcher.session import Session
from notebook_launcher.stage import Stage


def show_waiting(
    stage: Stage, session: Session, status: JobStatus, evidence: Evidence | None, read_at: datetime
) -> None:
    """Show why the job waits. Raises ``JobNeverStarts`` where it can never start, whatever it is said to wait for."""
    explanation = explain.pending(status.reason, evidence, job=status.job.id)
    if explanation.never:
        raise JobNeverStarts(
            f"Job {status.job} can never start: {explanation.summary}.",
            why=f"The scheduler gives the reason {status.reason}.",
            mend=explanation.action,
        )
    beyond = explain.beyond(Request(session.record.flags), evidence) if evidence else None
    if beyond is not None:
        raise JobNeverStarts(
            f"Job {status.job} can never start: {beyond.summary}.",
            why=f"The scheduler has not said so yet; its reason for now is {status.reason}.",
            mend=beyond.action,
        )
    stage.view.show(
        events.Waiting(
            status.job.id,
            status.state.name,
            status.reason,
            explanation.summary,
            explanation.action,
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
    """Return a time of the cluster's clock with its zone; ``None`` for what is no time."""
    try:
        at = datetime.fromisoformat(start or "")
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=there.tzinfo)).isoformat()
