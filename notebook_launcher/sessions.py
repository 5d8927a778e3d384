"""Commands on existing sessions: list them, reattach to one, open it (``stop.py`` ends them).

What supervises a session, or prices it, is imported where that is done: a list does neither.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from notebook_launcher.core import events, local_state
from notebook_launcher.core.errors import (
    HostCommandFailed,
    Interrupted,
    LauncherError,
    SessionNotFound,
    UsageError,
)
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.local_state import replace_known_sessions
from notebook_launcher.core.quantities import time_left
from notebook_launcher.core.text import joined
from notebook_launcher.core.view import View
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.jobs.cancel import launcher_command
from notebook_launcher.jobs.lookup import (
    choose_on_host,
    find_session,
    read_session_index,
    select_session,
    tidy_up,
)
from notebook_launcher.jobs.session_choice import (
    choose_session,
    describe_state,
    sessions_after,
    short_name,
)
from notebook_launcher.jobs.session_index import IndexedSession, SessionIndex
from notebook_launcher.planning.plan import Plan
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles.store import user_profiles
from notebook_launcher.session.context import Context, job_of, session_and_job
from notebook_launcher.session.credentials import read_access
from notebook_launcher.session.open_context import open_context
from notebook_launcher.session.record import Program, Session, json_object

if TYPE_CHECKING:
    from notebook_launcher.tunnel.forwarding import Endpoint

LISTED_FOR = timedelta(hours=24)  # how long an ended session is listed without --all
_REMOVAL = "removal"  # key in this machine's state: where the removal of old records was reported
WORTH_OFFERING = 120  # seconds left, at least, of a session that is offered before a launch
LOOKUP_TIMEOUT = 10.0  # seconds to look up sessions before a launch; without an answer it continues


def list_sessions(
    target: LaunchTarget, view: View, prompts: Prompts, interrupts: Interrupts, *, every: bool = False
) -> None:
    """Show the sessions of a cluster: the live ones, then the ended ones, each the newest first.

    ``every``: also those that ended more than a day ago. Cleans up after ended sessions.
    """
    with open_context(target, view, prompts, interrupts, scripts=1) as context:
        index = read_session_index(context, tidy=True)
        live, ended = index.live, index.ended
        recent = [entry for entry in ended if every or _is_recent(entry, index)]
        for entry in (*live, *recent):
            view.show(entry.summary)
        hidden = len(ended) - len(recent)
        now = index.now.isoformat(timespec="seconds")
        if index.foreign:
            whose = f"{context.host.label} reports that all sessions in {context.root} are somebody else's."
            view.show(events.Note(f"{whose} Its file server may not report owners; the sessions are left alone."))
        _report_removed(context, index)
        view.show(
            events.ListDone(
                context.host.label, len(live), len(ended), hidden, index.damaged, now, shlex.join(target.arguments())
            )
        )
        _mention_clusters(target, index, view)
        replace_known_sessions(
            *({entry.session.id: describe_state(entry, index.now) for entry in some} for some in (live, recent))
        )
        tidy_up(context, index)


def _report_removed(context: Context, index: SessionIndex) -> None:
    """Tell, once on this machine, that old records are removed, and what decides which."""
    if not index.removed or local_state.remembered(_REMOVAL, context.target.name):
        return
    local_state.remember(_REMOVAL, context.target.name, index.now.isoformat())
    whose = "record of 1 session" if index.removed == 1 else f"records of {index.removed} sessions"
    days = context.target.profile.keep_days
    context.view.show(
        events.Note(
            f"Removed the {whose} that ended more than {days} days ago; list always does. To keep records "
            "longer, set keep_days in the profile."
        )
    )


def _mention_clusters(target: LaunchTarget, index: SessionIndex, view: View) -> None:
    """Tell how to list another cluster if no default is set, or this machine has no session but the user profiles."""
    names = user_profiles()
    have = f"You have {'a profile' if len(names) == 1 else 'profiles'} named {', '.join(names)}." if names else ""
    if target.no_default:
        why = joined("No default cluster is set, so this machine was asked.", have)
        name = names[0] if names else "NAME"
        view.show(events.Note(f"{why} To list the sessions elsewhere:\n  launch-notebook list --cluster {name}"))
    elif target.name == "this machine" and not index.entries and names:
        view.show(events.Note(f"{have} To list the sessions there:\n  launch-notebook list --cluster {names[0]}"))


def connect(
    target: LaunchTarget,
    prefix: str,
    view: View,
    prompts: Prompts,
    interrupts: Interrupts,
    forwards: Sequence[int] = (),
    *,
    follow: bool = False,
    local_lab: tuple[str, ...] = (),
) -> None:
    """Reattach to a session, as ``launch`` attaches to a new one; a run is followed to its end.

    ``follow``: show what a run prints, from its first line on. Raises ``UsageError`` for a session that is not a run.
    ``local_lab``: see ``Context``.
    """
    all_programs: tuple[Program, ...] = ("jupyterlab", "notebook", "script")
    programs = all_programs[:1] if forwards or local_lab else all_programs
    with open_context(target, view, prompts, interrupts, forwards, scripts=1) as context:
        context.local_lab = local_lab
        session, _ = _find(context, prefix, ("notebook", "script") if follow else programs)
        if follow and session.record.program == "notebook":
            _follow_run(context, session)
        else:
            reattach(context, session)


def _find(context: Context, prefix: str, programs: Sequence[Program]) -> tuple[Session, IndexedSession]:
    """Return the session that the user named; without a name, one of these programs if there is one.

    Raises ``SessionNotFound``, and ``UsageError`` for a session of another program.
    """
    index = read_session_index(context)
    if not prefix and any(entry.session.record.program in programs for entry in index.live):
        fitting = tuple(entry for entry in index.entries if entry.session.record.program in programs)
        index = dataclasses.replace(index, entries=fitting)
    entry = _newest_of(context, index, prefix) or choose_on_host(context, index, prefix)
    session = select_session(context, entry)
    if session.record.program not in programs:
        raise (_has_no_jupyterlab if "jupyterlab" in programs else _is_no_run)(context, session)
    return session, entry


def _newest_of(context: Context, index: SessionIndex, prefix: str) -> IndexedSession | None:
    """Return the session in which the named one goes on, if that one has ended, and say so; otherwise ``None``."""
    with contextlib.suppress(SessionNotFound):
        named = choose_session(index, prefix, context.host.label, ended_too=True)
        after = [] if named.live or not prefix else [one for one in sessions_after(index.entries, named) if one.live]
        if after:
            new = after[-1].session.id
            context.view.show(events.Note(f"Session {named.session.id} has ended; it continues as session {new}."))
            return after[-1]
    return None


def _is_no_run(context: Context, session: Session) -> UsageError:
    return UsageError(
        f"Session {session.id} is not a run of a notebook or a script.",
        why="--follow shows what a run prints.",
        hint=f"follow what its job prints with: {launcher_command(context, session, 'logs -f')}",
    )


def _has_no_jupyterlab(context: Context, session: Session) -> UsageError:
    if session.record.program in ("notebook", "script"):
        notebook = f"the notebook {session.record.notebook} from top to bottom"
        what = notebook if session.record.program == "notebook" else f"the script {session.record.script}"
        return UsageError(
            f"Session {session.id} has no JupyterLab.",
            why=f"Its job runs {what}.",
            hint=f"follow it with: {launcher_command(context, session, 'connect')}",
        )
    return UsageError(
        f"Session {session.id} has no JupyterLab.",
        why="Its job was queued for a terminal alone.",
        hint=f"open a terminal there with: {launcher_command(context, session, 'shell')}",
    )


def reattach(context: Context, session: Session) -> None:
    """Attach to an existing session, or follow a run."""
    context.interrupts.defer()
    if session.record.program == "notebook":
        _supervise_run(context, session)
        return
    if session.record.program == "script":
        from notebook_launcher.supervision.follow_submitted import follow_submitted

        follow_submitted(context, session, ours=False, first=_job_note(session))
        return
    from notebook_launcher.supervision.next_jobs import supervise_jupyter

    access = read_access(context.host, session.directory)
    supervise_jupyter(context, session, access, ours=False, first=_job_note(session))


def _follow_run(context: Context, session: Session) -> None:
    """Follow a run to its end, and show what it prints; say so if it is not known whether it is a script."""
    from notebook_launcher.notebook.results import SENT
    from notebook_launcher.supervision.job_output import printed_file

    context.interrupts.defer()
    sent, notebook = f"{session.directory}/{SENT}", session.record.notebook or "notebook.ipynb"
    to = json_object(context.host.read_file(sent) or b"").get("to")
    if to not in ("notebook", "script"):
        context.view.show(
            events.Note(
                f"{sent} cannot be read, so below is what a notebook prints. "
                f"If the run is a script, it prints to {printed_file(notebook, is_script=True)} in the same folder."
            )
        )
    _supervise_run(context, session, printed_file(notebook, is_script=to == "script"))


def _supervise_run(context: Context, session: Session, printed: str | None = None) -> None:
    from notebook_launcher.supervision.batch import supervise_run

    supervise_run(context, session, ours=False, first=_job_note(session), printed=printed)


def _job_note(session: Session) -> events.Event:
    return events.Note(f"{session_and_job(session)}.")


def forward(
    target: LaunchTarget,
    ports: Sequence[tuple[int, int]],
    prefix: str,
    view: View,
    prompts: Prompts,
    interrupts: Interrupts,
) -> None:
    """Forward ports of a session's node, each with its local number (0: the same).

    The session keeps running, however this ends.
    """
    from notebook_launcher.supervision.next_jobs import supervise_jupyter

    with open_context(target, view, prompts, interrupts, scripts=1) as context:
        session, _ = find_session(context, prefix)
        if session.record.program in ("notebook", "script"):
            raise _has_no_jupyterlab(context, session)
        interrupts.defer()
        supervise_jupyter(
            context,
            session,
            read_access(context.host, session.directory),
            ours=False,
            first=_job_note(session),
            ports=ports,
        )


def open_session(target: LaunchTarget, prefix: str, view: View, prompts: Prompts, interrupts: Interrupts) -> None:
    """Open a session in the browser: over an existing tunnel from this machine, else as ``connect``."""
    with open_context(target, view, prompts, interrupts, scripts=1) as context:
        session, entry = _find(context, prefix, ("jupyterlab",))
        if not _is_open_here(context, session, entry.summary.node or "its node"):
            reattach(context, session)


def _is_open_here(context: Context, session: Session, node: str) -> bool:
    """Open the browser over the tunnel of another launcher on this machine; return whether there is one that works."""
    from notebook_launcher.session.own_computer import show_ssh_login

    found = _address_here(context, session)
    if found is not None:
        url, port = found
        context.view.show(events.BrowserOpened(session.id, job_of(session).id, node, url, port))
        show_ssh_login(context, session, port)
    return found is not None


def _address_here(context: Context, session: Session) -> tuple[str, int] | None:
    """Return the address and the local port of a session to which another launcher on this machine has a tunnel."""
    from notebook_launcher.tunnel.forwarding import check_jupyter

    token = read_access(context.host, session.directory).token
    for port in local_state.attached_ports(session.id):
        with contextlib.suppress(LauncherError):
            endpoint = endpoint_of(context, session)
            check_jupyter(port, endpoint, token, patience=0.0)
            return endpoint.url(port, token), port
        local_state.forget_port(session.id, port)
    return None


def show_address(target: LaunchTarget, prefix: str, view: View, prompts: Prompts, interrupts: Interrupts) -> None:
    """Show the address of a session to which a launcher on this machine is attached: for an editor, with the token.

    Raises ``UsageError`` if none is, because the address works only through such a tunnel.
    """
    with open_context(target, view, prompts, interrupts, scripts=1) as context:
        session, _ = _find(context, prefix, ("jupyterlab",))
        found = _address_here(context, session)
        if found is None:
            raise UsageError(
                f"No launch-notebook on this machine is attached to session {session.id}.",
                why="Its address works only while one is.",
                hint=f"in another terminal: {launcher_command(context, session, 'connect')}",
            )
        url, port = found
        view.show(events.SessionAddress(session.id, job_of(session).id, url, port))


def endpoint_of(context: Context, session: Session) -> Endpoint:
    """Return where a session's JupyterLab listens. Raises ``LauncherError`` if that is not known."""
    from notebook_launcher.tunnel.forwarding import Endpoint

    return Endpoint.from_file(json_object(context.host.read_file(f"{session.directory}/endpoint.json") or b""))


def _is_recent(entry: IndexedSession, index: SessionIndex) -> bool:
    return entry.ended is None or index.now - entry.ended < LISTED_FOR


# --- before another one is launched --------------------------------------------------------------------------


def offer_existing_session(plan: Plan, context: Context) -> bool:
    """If there is a session already, offer to connect to it, and stay attached; return whether the user accepted.

    Without a terminal, or with --new, only a note is shown. Costs one command if there is no session, and one query of
    the scheduler if there may be one.
    """
    live = _live(context)
    there = _there_already(live)
    if not there:
        return False
    entry = there[0]
    text = f"Session {entry.session.id} {describe_state(entry, context.clock())}{_left(entry)}"
    text += f" ({len(there) - 1} more: launch-notebook list)" if len(there) > 1 else ""
    if plan.always_new or not context.prompts.asks:
        come_back_with = launcher_command(context, entry.session, "connect", short_name(entry, live))
        context.view.show(events.Note(f"{text}. Come back to it with:\n  {come_back_with}"))
        return False
    wanted = context.prompts.confirm(f"{text}.\nConnect to it instead of starting another?")
    if wanted is None:
        raise Interrupted(
            "That was neither yes nor no.",
            why="No job was started.",
            hint="start another session without this question: --new",
        )
    if not wanted:
        return False
    context.host.end_login_shell()  # nothing will be submitted
    reattach(context, select_session(context, entry))
    return True


def _live(context: Context) -> list[IndexedSession]:
    """Return the live sessions; none if there is no answer in time."""
    try:
        return read_session_index(context, sure=False, timeout=LOOKUP_TIMEOUT).live
    except HostCommandFailed:
        return []


def _there_already(live: Sequence[IndexedSession]) -> list[IndexedSession]:
    """Return those with JupyterLab that run, start or are pending, in this order, with the most time left first.

    Sessions that are about to end are left out.
    """
    order = ("running", "starting", "pending")
    found = [entry for entry in live if entry.summary.state in order and entry.summary.program == "jupyterlab"]
    found = [
        entry for entry in found if entry.summary.seconds_left is None or entry.summary.seconds_left >= WORTH_OFFERING
    ]
    return sorted(found, key=lambda entry: (order.index(entry.summary.state), -(entry.summary.seconds_left or 0)))


def _left(entry: IndexedSession) -> str:
    return "" if entry.summary.seconds_left is None else f", {time_left(entry.summary.seconds_left)} left"
