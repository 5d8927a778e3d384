"""Queueing a session's job for certain: whatever happens meanwhile, there is a job that we know, or certainly none."""

from __future__ import annotations

import contextlib
import queue
import shlex
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from notebook_launcher.core.command_result import Answer
from notebook_launcher.core.errors import (
    AccountRefused,
    ConnectionLost,
    ConstraintRefused,
    GresRefused,
    HostCommandFailed,
    Interrupted,
    LauncherError,
    LicenceRefused,
    PartitionRefused,
    QosRefused,
    ReservationRefused,
    SchedulerAway,
    SubmitRefused,
    SubmitUncertain,
    WalltimeRefused,
)
from notebook_launcher.core.events import launch as events
from notebook_launcher.core.interrupts import Interrupt
from notebook_launcher.core.request import GPU_FLAGS, Request
from notebook_launcher.core.text import joined
from notebook_launcher.jobs.cancel import ANSWER_WITHIN, typed
from notebook_launcher.planning.plan import Plan
from notebook_launcher.profiles.courses import flags_of
from notebook_launcher.profiles.store import flag_tables, own_profiles, profile_layers
from notebook_launcher.schedulers.base import JobRef
from notebook_launcher.session.context import Stage
from notebook_launcher.session.record import Session, read_job

SLOW_AFTER = 5.0  # seconds after which it is said that the scheduler takes its time
APPEARS_WITHIN = 20.0  # seconds in which a job shows in the queue whose submission was not answered


def queue_job(stage: Stage, session: Session) -> JobRef:
    """Queue the job, unless the user has changed their mind while its files were written.

    An interrupt meanwhile is answered with a word and kept for later: the job is there then, and can be ended. Raises
    ``SubmitRefused``, ``SubmitUncertain`` or ``Interrupted``.
    """
    if not stage.interrupts.inbox.empty():
        raise Interrupted("Interrupted.", why="Nothing was queued.")
    asked = stage.scheduler.submit(Request(session.record.flags), session.submission)
    command = ["bash", f"{session.directory}/submit.sh", session.directory, *asked]
    try:
        return stage.scheduler.read_submit(_answer(stage, command))
    except (ConnectionLost, HostCommandFailed) as error:
        return _found(stage, session, error, patience=APPEARS_WITHIN)
    except SubmitUncertain as error:
        return _found(stage, session, error)
    except SchedulerAway as error:
        if not error.may_have_heard:
            raise
        return _found(stage, session, error, patience=APPEARS_WITHIN)


#: what a refusal is about, by the flags that say it
_ABOUT: dict[type[SubmitRefused], frozenset[str]] = {
    AccountRefused: frozenset({"account"}),
    PartitionRefused: frozenset({"partition"}),
    QosRefused: frozenset({"qos"}),
    ReservationRefused: frozenset({"reservation"}),
    WalltimeRefused: frozenset({"time"}),
    GresRefused: GPU_FLAGS,
    ConstraintRefused: frozenset({"constraint"}),
    LicenceRefused: frozenset({"licenses"}),
}


@contextlib.contextmanager
def profile_named(plan: Plan) -> Iterator[None]:
    """Let a refusal say where the profile, and not the user, asked for what was refused."""
    try:
        yield
    except SubmitRefused as error:
        flags = plan.request.flags
        # the launcher's own walltime is not among them; GPUs are the user's in whatever words
        tables = (table for place, table in flag_tables(plan.place.profile) if "when" not in place)
        wishes = {name.replace("_", "-") for table in tables for name in table} & flags.keys()
        asked = plan.asked | (GPU_FLAGS if plan.asked & GPU_FLAGS else frozenset())
        theirs = sorted((_ABOUT.get(type(error), frozenset()) & wishes) - asked)
        if theirs and plan.place.cluster:
            named = ", ".join(f"--{name}={flags[name]}" for name in theirs)
            course = plan.place.course
            by_course = course is not None and flags_of(course) >= set(theirs)
            whose = f"course “{course.name}”" if course and by_course else f"profile “{plan.place.cluster}”"
            error.why = joined(error.why, f"The {whose} asks for it: {named}.")
            kept = "" if by_course else _kept_by_the_user(plan.place.cluster, theirs)
            error.mend = (
                f"keep another: {kept}   or for this launch alone, {error.mend}"
                if kept
                else f"a flag of yours replaces the {whose.partition(' ')[0]}'s; {error.mend}"
            )
        raise


def _kept_by_the_user(cluster: str, flags: Sequence[str]) -> str:
    """Return the command that changes flags which stand in the user's own file of a profile; "" where they do not."""
    top = profile_layers(cluster)[-1].data.get("defaults", {}) if cluster in own_profiles() else {}
    if not {name.replace("_", "-") for name in top}.issuperset(flags):
        return ""
    words = (f"--{name} …" if name in ("account", "partition") else f"--set defaults.{name}=…" for name in flags)
    return f"launch-notebook clusters edit {cluster} {' '.join(words)}"


@dataclass(frozen=True)
class _Done:
    answer: Answer | Exception


def _answer(stage: Stage, command: list[str]) -> Answer:
    """Run the submit command on a thread, and say something where it takes long or the user is impatient."""

    def run() -> None:
        try:
            inbox.put(_Done(stage.host.run(command, login_shell=True)))
        except Exception as error:
            inbox.put(_Done(error))

    inbox = stage.interrupts.inbox
    threading.Thread(target=run, name="submit", daemon=True).start()
    with _kept(inbox) as later:
        slow_at = time.monotonic() + SLOW_AFTER
        while True:
            try:
                item = inbox.get(timeout=max(0.0, slow_at - time.monotonic()) if slow_at else None)
            except queue.Empty:
                slow_at = 0.0
                stage.view.show(events.Noted("The scheduler takes its time to accept the job."))
                continue
            if isinstance(item, _Done):
                break
            if item in later:
                continue  # an impatient second Ctrl-C would later leave without waiting for the job's end
            if isinstance(item, Interrupt) and item.kind == "end":
                stage.view.show(events.Noted("The job is just being queued; it is cancelled as soon as that is done."))
            later.append(item)
    if isinstance(item.answer, Exception):
        raise item.answer
    return item.answer


@contextlib.contextmanager
def _kept(inbox: queue.SimpleQueue[object]) -> Iterator[list[object]]:
    """Put what came meanwhile back into the inbox, in its order."""
    later: list[object] = []
    try:
        yield later
    finally:
        for item in later:
            inbox.put(item)


def _found(stage: Stage, session: Session, error: LauncherError, patience: float = 0.0) -> JobRef:
    """Look for a job that may have been queued although its number was not read.

    ``patience``: seconds in which it may still show. Raises ``error`` itself where the scheduler says for certain that
    there is none, ``SubmitUncertain`` where nobody says.
    """
    find = stage.scheduler.find(session.id, Request(session.record.flags))
    deadline, pause = time.monotonic() + patience, 1.0
    if patience:
        stage.view.show(events.Noted("Whether the job was queued was not heard; it is looked for."))
    while True:
        sure = False
        with contextlib.suppress(LauncherError):
            if not stage.host.alive:
                stage.host.reconnect(timeout=5.0)
            noted = read_job(stage.host, session.directory)
            if noted is not None:
                return noted
            answer = stage.host.run(find, login_shell=True, timeout=ANSWER_WITHIN)
            found = stage.scheduler.read_find(session.id, answer)
            if found:
                return found[0]
            sure = found is not None and isinstance(error, SchedulerAway)
        if time.monotonic() + pause > deadline:
            break
        time.sleep(pause)
        pause = min(2 * pause, 5.0)
    if sure:
        raise error
    raise SubmitUncertain(
        f"The job of session {session.id} may have been queued.",
        why=f"{error.what} {error.why}".strip(),
        mend=f"end it, if it was, with: {typed(stage, session, 'stop')}   or look on {stage.host.label} with: "
        f"{shlex.join(find)}",
    )
