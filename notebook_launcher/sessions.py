"""The stories of sessions that there are: list them, come back to one, open it, end them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import shlex
from collections.abc import Sequence
from datetime import timedelta

from notebook_launcher.core import local_state as state
from notebook_launcher.core.errors import HostCommandFailed, Interrupted, LauncherError, SubmitUncertain, UsageError
from notebook_launcher.core.events import launch as events
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.local_state import replace_seen_sessions
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.jobs.cancel import end_job, typed
from notebook_launcher.jobs.cancel_many import end_jobs
from notebook_launcher.jobs.lookup import choose_there, find_session, look, play_on, tidy_up, with_jobs
from notebook_launcher.jobs.session_index import (
    LONGEST_WAIT,
    Catalogue,
    Entry,
    choose,
    in_words,
    list_apart,
    short_name,
)
from notebook_launcher.planning.plan import Place, Plan
from notebook_launcher.profiles.store import own_profiles
from notebook_launcher.session.connect import open_stage
from notebook_launcher.session.context import Access, Stage, View, job_of
from notebook_launcher.session.record import Program, Session, json_object
from notebook_launcher.session.session_keys import join_keys
from notebook_launcher.supervision.batch import attend_run
from notebook_launcher.supervision.jupyter import attend
from notebook_launcher.tunnel.forwarding import Endpoint, check_jupyter
from notebook_launcher.usage.bill_command import show_bill
from notebook_launcher.usage.totals import span

RECENTLY = timedelta(hours=24)  # for so long a session that has ended is listed without --all
WORTH_IT = 120  # seconds that are left, at least, of a session that is offered before a launch
LOOK_WITHIN = 10.0  # seconds for a look around before a launch; it goes on without


def list_sessions(place: Place, view: View, prompts: Prompts, interrupts: Interrupts, *, every: bool = False) -> None:
    """Show the sessions of a place: those that live, then those that have ended, each the newest first.

    ``every``: also those that ended more than a day ago. Tidies up after those that are over.
    """
    with open_stage(place, view, prompts, interrupts) as stage:
        catalogue = look(stage, tidy=True)
        live, ended = catalogue.live, catalogue.ended
        recent = [entry for entry in ended if every or _is_recent(entry, catalogue)]
        for entry in (*live, *recent):
            view.show(entry.seen)
        hidden = len(ended) - len(recent)
        now = catalogue.now.isoformat(timespec="seconds")
        if catalogue.foreign:
            whose = f"By what {stage.host.label} says, all sessions in {stage.root} are somebody else's."
            view.show(events.Noted(f"{whose} Its file server may not tell owners; they are left alone."))
        view.show(events.Listed(stage.host.label, len(live), len(ended), hidden, catalogue.damaged, now,
                                shlex.join(place.arguments())))  # fmt: skip
        if place.name == "this machine" and not catalogue.entries and (names := own_profiles()):
            view.show(
                events.Noted(
                    f"{_clusters(names)} To list the sessions there:\n  launch-notebook list --cluster {names[0]}"
                )
            )
        replace_seen_sessions({entry.session.id: in_words(entry, catalogue.now) for entry in (*live, *recent)})
        tidy_up(stage, catalogue)


def _clusters(names: Sequence[str]) -> str:
    return f"You have a profile of {names[0]}." if len(names) == 1 else f"You have profiles of {', '.join(names)}."


def connect(
    place: Place, prefix: str, view: View, prompts: Prompts, interrupts: Interrupts, forwards: Sequence[int] = ()
) -> None:
    """Come back to a session that was left running, and hold it as ``launch`` does; a run is followed to its end."""
    with open_stage(place, view, prompts, interrupts, forwards) as stage:
        session, _ = _find(stage, prefix, ("jupyterlab",) if forwards else ("jupyterlab", "notebook"))
        come_back(stage, session)


def _find(stage: Stage, prefix: str, programs: Sequence[Program]) -> tuple[Session, Entry]:
    """Return the session that the user means; without a name it is one of these programs where there is such a one.

    Raises ``SessionNotFound``, and ``UsageError`` for one of another program.
    """
    catalogue = look(stage)
    if not prefix and any(entry.session.record.program in programs for entry in catalogue.live):
        fitting = tuple(entry for entry in catalogue.entries if entry.session.record.program in programs)
        catalogue = dataclasses.replace(catalogue, entries=fitting)
    entry = choose_there(stage, catalogue, prefix)
    session = play_on(stage, entry)
    if session.record.program not in programs:
        raise _has_no_jupyterlab(stage, session)
    return session, entry


def _has_no_jupyterlab(stage: Stage, session: Session) -> UsageError:
    if session.record.program == "notebook":
        return UsageError(
            f"Session {session.id} has no JupyterLab.",
            why=f"Its job runs the notebook {session.record.notebook} from top to bottom.",
            mend=f"follow it with: {typed(stage, session, 'connect')}",
        )
    return UsageError(
        f"Session {session.id} has no JupyterLab.",
        why="Its job was queued for a terminal alone.",
        mend=f"open a terminal there with: {typed(stage, session, 'shell')}",
    )


def come_back(stage: Stage, session: Session) -> None:
    """Hold a session that is there already, or follow a run."""
    stage.interrupts.defer()
    if session.record.program == "notebook":
        attend_run(stage, session, ours=False, first=_found(session))
        return
    attend(stage, session, _access(stage, session), ours=False, first=_found(session))


def _access(stage: Stage, session: Session) -> Access:
    token = (stage.host.read_file(f"{session.directory}/token") or b"").decode(errors="replace").strip()
    return Access(token, functools.cache(lambda: join_keys(stage.host, session.directory)))


def _found(session: Session) -> events.Event:
    return events.Noted(f"Session {session.id}: job {job_of(session)}.")


def forward(
    place: Place, ports: Sequence[tuple[int, int]], prefix: str, view: View, prompts: Prompts, interrupts: Interrupts
) -> None:
    """Hold ports of a session's node open here, each with the number that it should have here (0: the same).

    The session is left as it is, whatever ends this.
    """
    with open_stage(place, view, prompts, interrupts) as stage:
        session, _ = find_session(stage, prefix)
        if session.record.program == "notebook":
            raise _has_no_jupyterlab(stage, session)
        interrupts.defer()
        attend(stage, session, _access(stage, session), ours=False, first=_found(session), ports=ports)


def stop(
    place: Place,
    names: Sequence[str],
    view: View,
    prompts: Prompts,
    interrupts: Interrupts,
    *,
    every: bool = False,
    sure: bool = False,
) -> None:
    """End sessions from anywhere, and wait until their jobs are gone; without a name the one that there is.

    ``every``: all that live. ``sure``: do not ask before several are ended. One that has ended already is no error.
    Raises ``UsageError`` for a name without a letter, and ``SubmitUncertain``, when the others have been ended, for
    those of which no job is known.
    """
    if "" in names:
        raise UsageError("The name of a session is empty.", why="It may come from a variable that is not set.",
                         mend="name the session, or leave out the word where there is one session only")  # fmt: skip
    with open_stage(place, view, prompts, interrupts) as stage:
        meant = _meant_to_end(stage, names, every=every)
        live = [entry for entry in meant if entry.seen.state != "ended"]
        known = [entry for entry in live if entry.session.job]
        for entry in meant:
            if entry.seen.state == "ended":
                view.show(events.Noted(f"Session {entry.session.id} has ended already."))
        if len(known) > 1 and not sure and not _is_wanted(stage, known):
            view.show(events.Noted("Nothing was ended."))
            return
        interrupts.defer()
        sessions = [play_on(stage, entry) for entry in known]
        if len(sessions) == 1:
            end_job(stage, sessions[0])
            show_bill(stage, sessions[0])
        elif sessions:
            end_jobs(stage, sessions)
        if lost := [entry.session.id for entry in live if not entry.session.job]:
            raise SubmitUncertain(f"No job is known of {', '.join(lost)}.", why="None was noted, and none was found.",
                                  mend="look for it in the scheduler's queue")  # fmt: skip


def _meant_to_end(stage: Stage, names: Sequence[str], *, every: bool) -> list[Entry]:
    catalogue, where = look(stage), stage.host.label
    if every:
        live = catalogue.live + [entry for entry in with_jobs(stage, _not_noted(catalogue)) if entry.session.job]
        if not live:
            stage.view.show(events.Noted(f"There is no live session on {where}."))
        return live
    meant = [choose(catalogue, name, where, ended_too=True) for name in names]
    meant = meant or [choose(catalogue, "", where)]
    return with_jobs(stage, list({entry.session.id: entry for entry in meant}.values()))


def _not_noted(catalogue: Catalogue) -> list[Entry]:
    """Return the sessions of the last days whose job was never noted: the connection broke while it was queued."""
    gone = [entry for entry in catalogue.ended if entry.seen.state == "gone" and entry.session.job is None]
    return [entry for entry in gone if catalogue.now - entry.session.record.created < LONGEST_WAIT]


def _is_wanted(stage: Stage, entries: Sequence[Entry]) -> bool:
    """Ask, where there is somebody to ask."""
    question = f"{list_apart(entries, stage.clock())}\nEnd these {len(entries)} sessions?"
    return not stage.prompts.asks or bool(stage.prompts.confirm(question))


def open_session(place: Place, prefix: str, view: View, prompts: Prompts, interrupts: Interrupts) -> None:
    """Open a session in the browser: over the tunnel that this machine has to it already, else as ``connect``."""
    with open_stage(place, view, prompts, interrupts) as stage:
        session, entry = _find(stage, prefix, ("jupyterlab",))
        if not _is_open_here(stage, session, entry.seen.node or "its node"):
            come_back(stage, session)


def _is_open_here(stage: Stage, session: Session, node: str) -> bool:
    """Lead the browser over the tunnel of another launcher on this machine; tell whether there is one that works."""
    token = _access(stage, session).token
    for port in state.held_ports(session.id):
        with contextlib.suppress(LauncherError):
            data = stage.host.read_file(f"{session.directory}/endpoint.json") or b""
            endpoint = Endpoint.from_file(json_object(data))
            check_jupyter(port, endpoint, token, patience=0.0)
            url = endpoint.url(port, token)
            stage.view.show(events.Opened(session.id, job_of(session).id, node, url, port))
            return True
        state.forget_port(session.id, port)
    return False


def _is_recent(entry: Entry, catalogue: Catalogue) -> bool:
    return entry.ended is None or catalogue.now - entry.ended < RECENTLY


# --- before another one is launched --------------------------------------------------------------------------


def come_back_instead(plan: Plan, stage: Stage) -> bool:
    """Where a session is there already: offer to connect to it, and hold it then; return whether that was wanted.

    Where nobody can be asked, or another one is wanted in any case, it is only told. Costs one command where there is
    no session, and one question to the scheduler where there may be.
    """
    live = _live(stage)
    there = _there_already(live)
    if not there:
        return False
    entry = there[0]
    text = f"Session {entry.session.id} {in_words(entry, stage.clock())}{_left(entry)}"
    text += f" ({len(there) - 1} more: launch-notebook list)" if len(there) > 1 else ""
    if plan.always_new or not stage.prompts.asks:
        come_back_with = typed(stage, entry.session, "connect", short_name(entry, live))
        stage.view.show(events.Noted(f"{text}. Come back to it with:\n  {come_back_with}"))
        return False
    wanted = stage.prompts.confirm(f"{text}.\nConnect to it instead of starting another?")
    if wanted is None:
        raise Interrupted("That was neither yes nor no.", why="Nothing was queued.",
                          mend="start another session without this question: --new")  # fmt: skip
    if not wanted:
        return False
    come_back(stage, play_on(stage, entry))
    return True


def _live(stage: Stage) -> list[Entry]:
    """Return the live sessions; none where nobody tells in time."""
    try:
        return look(stage, sure=False, timeout=LOOK_WITHIN).live
    except HostCommandFailed:
        return []


def _there_already(live: Sequence[Entry]) -> list[Entry]:
    """Return those with JupyterLab that run, start or wait, in this order, with the most time left first.

    Those that are about to end are no longer worth coming back to.
    """
    order = ("running", "starting", "waiting")
    found = [entry for entry in live if entry.seen.state in order and entry.seen.program == "jupyterlab"]
    found = [entry for entry in found if entry.seen.seconds_left is None or entry.seen.seconds_left >= WORTH_IT]
    return sorted(found, key=lambda entry: (order.index(entry.seen.state), -(entry.seen.seconds_left or 0)))


def _left(entry: Entry) -> str:
    return "" if entry.seen.seconds_left is None else f", {span(entry.seen.seconds_left)} left"
