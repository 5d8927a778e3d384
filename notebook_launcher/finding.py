"""Finding sessions: one look at the directories of a place, and one question for each scheduler that has their jobs."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone

from notebook_launcher.answer import Answer
from notebook_launcher.catalogue import Catalogue, Entry, Queue, Told, choose, join, read
from notebook_launcher.errors import HostCommandFailed, LauncherError, SchedulerMissing
from notebook_launcher.hosts.base import RUN_TIMEOUT
from notebook_launcher.opening import make_scheduler
from notebook_launcher.request import Request
from notebook_launcher.resources import folder
from notebook_launcher.schedulers.base import JobRef, JobStatus
from notebook_launcher.session import Session
from notebook_launcher.stage import Stage

SLOW = 20.0  # seconds; a scheduler that takes longer tells nothing
TIDIED_WITHIN = 10.0  # seconds; what is not tidied up today is another time
MOST_FORGOTTEN = 20  # records removed at once of those that never said how they ended


def look(stage: Stage, *, sure: bool = True, tidy: bool = False, timeout: float = RUN_TIMEOUT) -> Catalogue:
    """Return the sessions of the place: one command for the directories, and one for each scheduler that has any.

    ``sure``: whether the scheduler is asked about those as well that say themselves that they have ended. ``tidy``:
    remove old records on the way. Raises ``HostCommandFailed`` where the directories cannot be looked at.
    """
    until = [_iso(stage.clock() - timedelta(days=stage.place.profile.keep_days))] if tidy else []
    answer = _script(stage, "list", *until, timeout=timeout)
    now = stage.clock()
    reading = read(answer.stdout, stage.root, now)
    if reading.unreadable:
        raise HostCommandFailed(f"The folder {stage.root} on {stage.host.label} may not be read.")
    if not reading.whole:
        raise HostCommandFailed(f"The sessions on {stage.host.label} could not be listed.", why=answer.stderr.strip())
    told: Told = {queue: states_of(stage, queue, jobs) for queue, jobs in reading.to_ask(now, sure=sure).items()}
    return join(reading, told, now)


def find_session(stage: Stage, prefix: str, *, ended_too: bool = False) -> tuple[Session, Entry]:
    """Return the session that the user means, and play on with the scheduler that it was queued with.

    It is named by its name, the beginning or the end of it, or its job's id; by nothing where one alone lives.
    ``ended_too``: for a command that makes sense on one that has ended; without a name it is the last one then, where
    none lives. Raises ``SessionNotFound``.
    """
    entry = choose(look(stage), prefix, stage.host.label, ended_too=ended_too)
    return play_on(stage, entry), entry


def play_on(stage: Stage, entry: Entry) -> Session:
    """Return the session of an entry, and play on with its scheduler. Raises ``SchedulerMissing``."""
    session = entry.session
    stage.scheduler = make_scheduler(session.record.scheduler, stage.root)
    return session if session.job else dataclasses.replace(session, job=_find_job(stage, session))


def states_of(stage: Stage, queue: Queue, jobs: Sequence[JobRef]) -> Mapping[str, JobStatus] | None:
    """Ask the scheduler once for all these jobs, which are of one queue; ``None``: no answer.

    All jobs of the user are asked for where that is less work for the scheduler. Raises ``ConnectionLost``.
    """
    with contextlib.suppress(SchedulerMissing, HostCommandFailed):
        scheduler = make_scheduler(queue.scheduler, stage.root)
        command = scheduler.query_own(queue.cluster) or scheduler.query(jobs)
        return scheduler.read_query(jobs, stage.host.run(command, login_shell=True, timeout=SLOW))
    return None


def _find_job(stage: Stage, session: Session) -> JobRef | None:
    """Look in the scheduler's queue for the job of a session that has none noted; ``None``: there is none, or no word.

    So it is where the connection broke while the job was queued.
    """
    with contextlib.suppress(SchedulerMissing, HostCommandFailed):
        scheduler = make_scheduler(session.record.scheduler, stage.root)
        command = scheduler.find(session.id, Request(session.record.flags))
        found = scheduler.read_find(session.id, stage.host.run(command, login_shell=True, timeout=SLOW))
        return found[0] if found else None
    return None


def tidy_up(stage: Stage, catalogue: Catalogue) -> None:
    """Remove the secrets of sessions that are over, and old records that the scheduler knows nothing of.

    Where that cannot be done it is done another time: nothing is raised.
    """
    with contextlib.suppress(LauncherError):
        over = [entry.session.id for entry in catalogue.ended if entry.over and entry.record.has_secrets]
        forgotten = [entry.session.id for entry in _forgotten(stage, catalogue)]
        if over or forgotten:
            _script(stage, "tidy", *over, "--remove", *forgotten, timeout=TIDIED_WITHIN)


def _forgotten(stage: Stage, catalogue: Catalogue) -> list[Entry]:
    """Return old sessions without a last word whose jobs the scheduler does not know by their ids either."""
    until = catalogue.now - timedelta(days=stage.place.profile.keep_days)
    old = [entry for entry in catalogue.ended if entry.seen.state == "gone" and entry.ended and entry.ended < until]
    by_queue: dict[Queue, list[Entry]] = {}
    for entry in old[-MOST_FORGOTTEN:]:
        if entry.record.queue:
            by_queue.setdefault(entry.record.queue, []).append(entry)
    found = []
    for queue, entries in by_queue.items():
        scheduler = make_scheduler(queue.scheduler, stage.root)
        jobs = [entry.session.job for entry in entries if entry.session.job]
        answer = stage.host.run(scheduler.query(jobs), login_shell=True, timeout=SLOW)
        states = scheduler.read_query(jobs, answer)
        if states is not None:
            found += [entry for entry in entries if entry.session.job and entry.session.job.id not in states]
    return found


def _script(stage: Stage, *words: str, timeout: float) -> Answer:
    """Run ``sessions.sh``, which is sent along: a place may have no session yet."""
    script = (folder("jobscripts") / "sessions.sh").read_bytes()
    return stage.host.run(["bash", "-s", "--", stage.root, *words], stdin=script, timeout=timeout)


def _iso(at: datetime) -> str:
    return at.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
