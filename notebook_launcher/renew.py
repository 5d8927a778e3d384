"""Queues the next job of a session from any terminal: with the same request, and at the same address."""

from __future__ import annotations

from notebook_launcher.core import events
from notebook_launcher.core.errors import Interrupted, UsageError
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.quantities import time_left
from notebook_launcher.core.request import Request
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.core.view import View
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.jobs.cancel import cancel_job, launcher_command
from notebook_launcher.jobs.lookup import choose_on_host, read_session_index, select_session
from notebook_launcher.jobs.next_job import begin_of, queue_next_job, refuse_without_end
from notebook_launcher.jobs.session_choice import sessions_after
from notebook_launcher.jobs.session_index import IndexedSession, SessionIndex
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.session.context import Context, job_of
from notebook_launcher.session.credentials import read_access
from notebook_launcher.session.open_context import open_context
from notebook_launcher.session.record import Session
from notebook_launcher.usage.cost_estimate import next_price


def renew(
    target: LaunchTarget, name: str, view: View, prompts: Prompts, interrupts: Interrupts, *, sure: bool = False
) -> None:
    """Queue the next job of a running session, after showing its price.

    An attached launcher continues with that job. ``name``: as for ``connect``. ``sure``: do not ask for confirmation.
    Raises ``UsageError`` for a session that is not running, has no time limit, or already has a next job.
    """
    with open_context(target, view, prompts, interrupts, submits=True, scripts=1) as context:
        index = read_session_index(context)
        entry = choose_on_host(context, index, name, "renew")
        session = select_session(context, entry)
        refuse_without_end(session)
        _refuse_second(context, index, entry)
        end = parse_iso(entry.summary.ends, index.now)
        if entry.summary.state not in ("starting", "running") or end is None:
            what = "has not started yet" if entry.summary.state == "pending" else "is not running"
            raise UsageError(
                f"The job of session {session.id} {what}.",
                why="The next job begins shortly before the walltime of the first is over, which is not known yet.",
                hint="try again once it runs",
            )
        request, walltime = Request(session.record.flags), Request(session.record.flags).walltime
        if price := next_price(context, session, request):
            view.show(price)
        begins = begin_of(end, walltime, context.clock())
        left = time_left(int((end - context.clock()).total_seconds()))
        when = f"at {begins:%Y-%m-%d %H:%M:%S}" if begins else "as soon as it can"
        view.show(
            events.Note(
                f"The next job of session {session.id} is the same request again: {walltime.as_text()}. It begins "
                f"{when} (the cluster's clock); this one has {left} left. "
                "Its kernels are new: all variables are lost."
            )
        )
        if not sure and context.prompts.asks and not context.prompts.confirm("Queue it?"):
            view.show(events.Note("Nothing was queued."))
            return
        if context.clock() >= end:
            raise UsageError(f"Session {session.id} has ended meanwhile.", hint="repeat it: launch-notebook again")
        interrupts.defer()
        token = read_access(context.host, session.directory).token
        new, next_job = queue_next_job(context, session, end, token)
        if interrupts.exit_requests:
            cancel_job(context, new)
            raise Interrupted("Interrupted.", why=f"The next job, {job_of(new)}, is cancelled.")
        begins_at = next_job.begins.isoformat(timespec="seconds") if next_job.begins else None
        ends_at = end.isoformat(timespec="seconds")
        view.show(events.Renewed(new.id, job_of(new).id, session.id, begins_at, ends_at, walltime.as_text()))
        view.show(events.Note(_what_follows(context, session, new)))


def _refuse_second(context: Context, index: SessionIndex, entry: IndexedSession) -> None:
    live = [other for other in sessions_after(index.live, entry) if other.live]
    if live:
        stop = launcher_command(context, live[0].session, "stop")
        raise UsageError(
            f"Session {entry.session.id} has a next job already: {job_of(live[0].session)}.",
            hint=f"end that one first with: {stop}",
        )


def _what_follows(context: Context, session: Session, new: Session) -> str:
    connect, stop = (launcher_command(context, new, command) for command in ("connect", "stop"))
    return (
        f"If launch-notebook is attached to session {session.id}, it moves on to the new session by itself. If not, "
        f"attach to the new session once it runs, or end it:\n  {connect}\n  {stop}"
    )
