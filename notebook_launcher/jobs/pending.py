"""Shows why a job is pending, and how old that information is; detects jobs that can never start."""

from __future__ import annotations

from datetime import datetime, timezone

from notebook_launcher.core import events
from notebook_launcher.core.errors import JobNeverStarts
from notebook_launcher.core.request import Request
from notebook_launcher.core.support_contact import with_contact
from notebook_launcher.core.timestamps import iso, parse_iso
from notebook_launcher.diagnosis import explain
from notebook_launcher.schedulers.base import JobStatus, State
from notebook_launcher.schedulers.cluster_info import Evidence
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session


def show_pending(
    context: Context, session: Session, status: JobStatus, evidence: Evidence | None, read_at: datetime
) -> None:
    """Show why the job is pending. Raises ``JobNeverStarts`` if the scheduler reports that it can never start.

    If only the limits suggest so, that is shown without an error, because a site may have rules of its own.
    """
    explanation = explain.pending(status.reason, evidence, job=status.job.id, meaning=status.meaning)
    if explanation.never:
        raise JobNeverStarts(
            f"Job {status.job} can never start: {explanation.summary}.",
            why=f"The scheduler gives the reason {status.reason}.",
            hint=explanation.action,
        )
    summary, action = explanation.summary, explanation.action
    request = evidence.request if evidence and evidence.request else Request(session.record.flags)
    if evidence is not None and (beyond := explain.never_starts(request, evidence)):
        summary += f"; and as far as the limits can be read, it can never start: {beyond.summary}"
        action = beyond.action
    context.view.show(
        events.Pending(
            status.job.id,
            status.state.name,
            status.reason,
            summary,
            with_contact(action, context.target.contact),
            evidence.ahead if evidence else None,
            iso(parse_iso(status.start, context.site.now)),
            read_at.astimezone(timezone.utc).isoformat(timespec="seconds"),
        )
    )


def show_suspended(context: Context, status: JobStatus) -> None:
    """Show that a running job is suspended."""
    text = "the scheduler has stopped it for a while"
    context.view.show(events.Pending(status.job.id, State.SUSPENDED.name, status.reason, text))
