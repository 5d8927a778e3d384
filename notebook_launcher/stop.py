"""Stop: cancel sessions, and wait until their jobs have ended."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from notebook_launcher.core import events, local_state
from notebook_launcher.core.errors import LauncherError, SubmitUncertain, UsageError
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.view import View
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.jobs.cancel import cancel_job
from notebook_launcher.jobs.cancel_many import cancel_jobs
from notebook_launcher.jobs.lookup import read_session_index, select_session, with_jobs
from notebook_launcher.jobs.session_choice import choose_session, describe_sessions, sessions_after
from notebook_launcher.jobs.session_index import LONGEST_WAIT, IndexedSession, SessionIndex
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.session.connect import open_context
from notebook_launcher.session.context import Context
from notebook_launcher.session.credentials import read_access
from notebook_launcher.session.record import Session
from notebook_launcher.sessions import endpoint_of


def stop(
    target: LaunchTarget,
    names: Sequence[str],
    view: View,
    prompts: Prompts,
    interrupts: Interrupts,
    *,
    every: bool = False,
    sure: bool = False,
) -> None:
    """Cancel sessions, and wait until their jobs have ended; without a name, the only one.

    ``every``: all live sessions. ``sure``: do not ask, neither about several nor about busy kernels. An ended session
    is not an error. Raises ``UsageError`` for an empty name, and ``SubmitUncertain``, after the others are cancelled,
    for those whose job is not known.
    """
    if "" in names:
        raise UsageError(
            "The name of a session is empty.",
            why="It may come from a variable that is not set.",
            hint="name the session, or leave out the word where there is one session only",
        )
    with open_context(target, view, prompts, interrupts, scripts=1) as context:
        meant = _meant_to_end(context, names, every=every)
        live = [entry for entry in meant if entry.summary.state != "ended"]
        known = [entry for entry in live if entry.session.job]
        for entry in meant:
            if entry.summary.state == "ended":
                view.show(events.Note(f"Session {entry.session.id} has ended already."))
        if not sure and not _is_wanted(context, known):
            view.show(events.Note("Nothing was ended."))
            return
        interrupts.defer()
        sessions = [select_session(context, entry) for entry in known]
        if len(sessions) == 1:
            cancel_job(context, sessions[0])
        elif sessions:
            cancel_jobs(context, sessions)
        if any(session.record.continues for session in sessions):
            from notebook_launcher.jobs.successor import withdraw_ended

            withdraw_ended(context, sessions)
        if len(sessions) == 1:
            _show_use(context, sessions[0])
        if lost := [entry.session.id for entry in live if not entry.session.job]:
            raise SubmitUncertain(
                f"No job is known for {', '.join(lost)}.",
                why="None was recorded, and none was found.",
                hint="look for it in the scheduler's queue",
            )


def _show_use(context: Context, session: Session) -> None:
    """Show what a session that was cancelled has used: its usage report, or that on all tasks of a job array."""
    if "array" in session.record.flags:
        from notebook_launcher.usage.report_command import show_array_report

        show_array_report(context, session)
        return
    from notebook_launcher.usage.bill_command import show_bill

    show_bill(context, session)


def _meant_to_end(context: Context, names: Sequence[str], *, every: bool) -> list[IndexedSession]:
    index, where = read_session_index(context), context.host.label
    if every:
        live = index.live + [entry for entry in with_jobs(context, _not_noted(index)) if entry.session.job]
        if not live:
            context.view.show(events.Note(f"There is no active session on {where}."))
        return live
    meant = [choose_session(index, name, where, ended_too=True) for name in names]
    meant = meant or [choose_session(index, "", where)]
    following = [after for entry in meant if entry.live for after in sessions_after(index.live, entry)]
    for entry in {one.session.id: one for one in following if one not in meant}.values():
        context.view.show(events.Note(f"Session {entry.session.id}, which would continue it, is ended as well."))
    meant += following
    return with_jobs(context, list({entry.session.id: entry for entry in meant}.values()))


def _not_noted(index: SessionIndex) -> list[IndexedSession]:
    """Return recent sessions without a recorded job: the connection broke during the submission."""
    gone = [entry for entry in index.ended if entry.summary.state == "gone" and entry.session.job is None]
    return [entry for entry in gone if index.now - entry.session.record.created < LONGEST_WAIT]


def _is_wanted(context: Context, entries: Sequence[IndexedSession]) -> bool:
    """Ask the user, if there is a terminal, whether to end several sessions, or one in which a kernel is busy."""
    if not context.prompts.asks or not entries:
        return True
    from notebook_launcher.tunnel.kernels import UNSAVED, busy_text

    which = "" if len(entries) == 1 else "Session {}: "
    busy = [
        which.format(entry.session.id) + busy_text(names)
        for entry in entries
        if (names := _busy_here(context, entry.session)) != ()
    ]
    if busy:
        busy[-1] += f" {UNSAVED}"
    if len(entries) == 1:
        return not busy or bool(context.prompts.confirm(f"{busy[0]}\nEnd session {entries[0].session.id} anyway?"))
    question = f"{describe_sessions(entries, context.clock())}\nEnd these {len(entries)} sessions?"
    return bool(context.prompts.confirm("\n".join([*busy, question])))


def _busy_here(context: Context, session: Session) -> tuple[str, ...] | None:
    """Return what the kernels of a session run, if another launcher on this machine has a tunnel to it.

    ``None``: there is a tunnel, and no answer through it.
    """
    from notebook_launcher.tunnel.kernels import busy_kernels

    if ports := local_state.attached_ports(session.id):
        with contextlib.suppress(LauncherError):
            token, endpoint = read_access(context.host, session.directory).token, endpoint_of(context, session)
            answers = (busy_kernels(port, endpoint, token) for port in ports)
            return next((answer for answer in answers if answer is not None), None)
    return ()
