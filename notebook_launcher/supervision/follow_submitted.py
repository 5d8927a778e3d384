"""Follows a job that ``submit`` has queued, or all tasks of a job array."""

from __future__ import annotations

from notebook_launcher.core import events
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session
from notebook_launcher.supervision.array import supervise_array
from notebook_launcher.supervision.script import supervise_script


def follow_submitted(context: Context, session: Session, *, ours: bool, first: events.Event) -> None:
    """Show the ``first`` event, and follow a submitted script to its end, as ``supervise_script``."""
    supervise = supervise_array if "array" in session.record.flags else supervise_script
    supervise(context, session, ours=ours, first=first)
