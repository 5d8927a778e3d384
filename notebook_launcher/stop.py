"""Stop: cancel sessions, and wait until their jobs have ended."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from notebook_launcher.core import events, local_state
from notebook_launcher.core.errors import LauncherError, SubmitUncertain, UsageError
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.view import View
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.jobs.cancel import cancel_job
from notebook_launcher.jobs.cancel_many import cancel_jobs
from notebook_launcher.jobs.lookup import choose_on_host, read_session_index, select_session, with_jobs
from notebook_launcher.jobs.session_choice import describe_sessions, sessions_after
from notebook_launcher.jobs.session_index import LONGEST_WAIT, IndexedSession, SessionIndex
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.session.context import Context, job_of
from notebook_launcher.session.credentials import read_access
from notebook_launcher.session.open_context import open_context
from notebook_launcher.session.record import Session
from notebook_launcher.sessions import endpoint_of

if TYPE_CHECKING:
    from notebook_launcher.supervision.end_check import EndChecked
    from notebook_launcher.tunnel.forwarding import Endpoint

_Checks = Mapping[str, "EndChecked | None"]
_Answer = tuple[str, "EndChecked"]
_Task = tuple[str, Sequence[int], "Endpoint", str]  # a session, the local ports of its tunnels, and its token

_PORT_WITHIN, _ALL_PORTS_WITHIN = 5.0, 10.0  # seconds for all questions by one port, and to one session
_NOTED_AFTER = 1.0  # seconds
_SIDE_BY_SIDE = 16  # sessions


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

    Pages of JupyterLab save before that. ``every``: all live sessions. ``sure``: do not ask, neither about several nor
    about what would be lost. An ended session is not an error. Raises ``UsageError`` for an empty name, and
    ``SubmitUncertain``, after the others are cancelled, for those whose job is not known.
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
        asks = context.prompts.asks and not sure
        checks = _check(context, known, kernels=asks)
        if asks and not _is_wanted(context, known, checks):
            view.show(events.Note("Nothing was ended."))
            return
        if not asks:
            _show_unsaved(context, known, checks)
        interrupts.defer()
        sessions = [select_session(context, entry) for entry in known]
        if len(sessions) == 1:
            cancel_job(context, sessions[0])
        elif sessions:
            cancel_jobs(context, sessions)
        if any(session.record.continues for session in sessions):
            from notebook_launcher.jobs.next_job import withdraw_ended

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
    meant = [choose_on_host(context, index, name, "stop", ended_too=True) for name in names]
    meant = meant or [choose_on_host(context, index, "", "stop")]
    following = [after for entry in meant if entry.live for after in sessions_after(index.live, entry)]
    for entry in {one.session.id: one for one in following if one not in meant}.values():
        context.view.show(events.Note(f"Session {entry.session.id}, which would continue it, is ended as well."))
    meant += following
    return with_jobs(context, list({entry.session.id: entry for entry in meant}.values()))


def _not_noted(index: SessionIndex) -> list[IndexedSession]:
    """Return recent sessions without a recorded job: the connection broke during the submission."""
    gone = [entry for entry in index.ended if entry.summary.state == "gone" and entry.session.job is None]
    return [entry for entry in gone if index.now - entry.session.record.created < LONGEST_WAIT]


def _show_unsaved(context: Context, entries: Sequence[IndexedSession], checks: _Checks) -> None:
    for entry in entries:
        check = checks[entry.session.id]
        if check is not None and check.saved.unsaved:
            job = job_of(entry.session).id
            context.view.show(events.NotSaved(entry.session.id, job, check.saved.unsaved))


def _is_wanted(context: Context, entries: Sequence[IndexedSession], checks: _Checks) -> bool:
    """Ask the user whether to end several sessions, or one that would lose something."""
    if not entries:
        return True
    which = "" if len(entries) == 1 else "Session {}: "
    read = [(entry.session.id, checks[entry.session.id]) for entry in entries]
    lost = [which.format(name) + check.text for name, check in read if check is not None and not check.loses_nothing]
    if len(entries) == 1:
        return not lost or bool(context.prompts.confirm(f"{lost[0]}\nEnd session {entries[0].session.id} anyway?"))
    question = f"{describe_sessions(entries, context.clock())}\nEnd these {len(entries)} sessions?"
    return bool(context.prompts.confirm("\n".join([*lost, question])))


def _check(context: Context, entries: Sequence[IndexedSession], *, kernels: bool) -> _Checks:
    """Have pages of JupyterLab save, and ask which ``kernels`` are busy, of several sessions side by side.

    ``None`` for one without a tunnel on this machine, which another launcher has made: its pages save when the job is
    told to end.
    """
    since = time.monotonic()
    checks: dict[str, EndChecked | None] = {entry.session.id: None for entry in entries}
    tasks: queue.SimpleQueue[_Task] = queue.SimpleQueue()
    answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
    for session in [entry.session for entry in entries]:
        if ports := local_state.attached_ports(session.id):
            with contextlib.suppress(LauncherError):
                token, endpoint = read_access(context.host, session.directory).token, endpoint_of(context, session)
                tasks.put((session.id, ports, endpoint, token))
    count = tasks.qsize()
    for _ in range(min(count, _SIDE_BY_SIDE)):
        threading.Thread(target=_ask_each, args=(tasks, answers, kernels), name="check", daemon=True).start()
    for answer in _awaited(context, answers, count, since, kernels=kernels):
        checks.update([answer])
    return checks


def _awaited(
    context: Context, answers: queue.SimpleQueue[_Answer], count: int, since: float, *, kernels: bool
) -> Iterator[_Answer]:
    """Yield so many answers; say what is waited for if that takes longer than a moment."""
    note_at: float | None = since + _NOTED_AFTER
    while count:
        try:
            answer = answers.get(timeout=None if note_at is None else max(0.0, note_at - time.monotonic()))
        except queue.Empty:
            too = " and to report busy kernels" if kernels else ""
            context.view.show(events.Note(f"Asking JupyterLab to save open documents{too}…"))
            note_at = None
        else:
            count -= 1
            yield answer


def _ask_each(tasks: queue.SimpleQueue[_Task], answers: queue.SimpleQueue[_Answer], kernels: bool) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            name, ports, endpoint, token = tasks.get_nowait()
            answers.put((name, _ask(ports, endpoint, token, kernels=kernels)))


def _ask(ports: Sequence[int], endpoint: Endpoint, token: str, *, kernels: bool) -> EndChecked:
    """Ask one session's JupyterLab, by the first of the ``ports`` that answers; each has one limit for all."""
    from notebook_launcher.supervision.end_check import EndChecked, check_end
    from notebook_launcher.tunnel.page_saving import PagesSaved

    check = EndChecked(None if kernels else (), PagesSaved())
    last = time.monotonic() + _ALL_PORTS_WITHIN
    for port in ports:
        if (left := last - time.monotonic()) <= 0:
            break
        check = check_end(port, endpoint, token, min(left, _PORT_WITHIN), kernels=kernels)
        if check.saved.pages is not None or (kernels and check.busy is not None):
            break
    return check
