"""Looks up sessions: with one command for the directories, and one query for each scheduler that has jobs of theirs."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    HostCommandFailed,
    LauncherError,
    LoginShellSilent,
    SchedulerMissing,
    SessionNotFound,
)
from notebook_launcher.core.local_state import submitted_sessions
from notebook_launcher.core.package_data import job_script
from notebook_launcher.core.request import Request
from notebook_launcher.core.text import joined
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.core.timing import LONGEST_SHELL
from notebook_launcher.hosts.base import RUN_TIMEOUT, Host
from notebook_launcher.jobs.evidence import run_queries
from notebook_launcher.jobs.session_choice import choose_session, is_named, is_part, typed_command
from notebook_launcher.jobs.session_index import (
    MAY_COME_BACK,
    IndexedSession,
    JobQueue,
    SessionIndex,
    StatusesByQueue,
    build_index,
    parse_listing,
)
from notebook_launcher.jobs.status import NoAnswer, query_status
from notebook_launcher.profiles.store import user_profiles
from notebook_launcher.schedulers.base import JobRef, JobStatus, State
from notebook_launcher.schedulers.make import make_scheduler
from notebook_launcher.session.context import Context, job_of
from notebook_launcher.session.record import Session

SLOW = 20.0  # seconds; a scheduler that takes longer counts as unresponsive
TIDY_TIMEOUT = 10.0  # seconds; the rest is cleaned up another time
MOST_FORGOTTEN = 20  # sessions without a record of their end whose records are removed at once
CLOCK_SKEW = timedelta(minutes=5)  # between the login node and the scheduler's machine
MOST_QUERIED = 5  # jobs, no longer in any list, that are queried at once, one by one
_NO_DEFAULT = "No default cluster is set, so this machine was asked."
RECORDED_WITHIN = timedelta(days=1)  # if a session has a job, it is recorded within this time


def read_session_index(
    context: Context, *, sure: bool = True, tidy: bool = False, timeout: float = RUN_TIMEOUT
) -> SessionIndex:
    """Return the sessions of a cluster, with one command for the directories, and one or two for each scheduler.

    ``sure``: also query the scheduler about sessions that recorded their end. ``tidy``: remove old records, and query
    the scheduler's history for the newest sessions whose end is not known otherwise. Raises ``HostCommandFailed`` if
    the directories cannot be inspected.
    """
    until = [_iso(context.clock() - timedelta(days=context.target.profile.keep_days))] if tidy else []
    answer = _script(context, "list", *until, timeout=timeout)
    now = context.clock()
    listing = parse_listing(answer.stdout, context.root, now)
    context.shared_scripts = listing.scripts
    if listing.unreadable:
        raise HostCommandFailed(f"The folder {context.root} on {context.host.label} may not be read.")
    if not listing.whole:
        raise HostCommandFailed(f"The sessions on {context.host.label} could not be listed.", why=answer.stderr.strip())
    jobs_by_queue, in_doubt = listing.jobs_to_query(now, sure=sure), listing.in_doubt(now)
    statuses: StatusesByQueue = {
        queue: query_states(context, queue, jobs, in_doubt) for queue, jobs in jobs_by_queue.items()
    }
    index = build_index(listing, statuses, context.clock())  # not ``now``: the answers may have taken long
    if tidy and (past := _history(context, index)):
        # ``None``, for a scheduler that did not answer, stays
        known = {queue: of if of is None else {**of, **past.get(queue, {})} for queue, of in statuses.items()}
        index = build_index(listing, known, context.clock())
    return index


def _history(context: Context, index: SessionIndex) -> dict[JobQueue, dict[str, JobStatus]]:
    """Return from the accounting how the newest sessions that are gone have ended, as far as known; with one login."""
    gone = [
        entry
        for entry in index.ended
        if entry.summary.state == "gone" and not entry.summary.ended and entry.session.job
    ][:MOST_QUERIED]
    asked = []
    for entry in gone:
        with contextlib.suppress(SchedulerMissing):
            scheduler, job = make_scheduler(entry.session.record.scheduler, context.root), job_of(entry.session)
            if command := scheduler.history(job):
                asked.append((entry, scheduler, job, command))
    found: dict[JobQueue, dict[str, JobStatus]] = {}
    with contextlib.suppress(HostCommandFailed):
        commands, timeout = [command for *_, command in asked], _slow_after(context.host)
        answers = run_queries(context.host, commands, timeout=timeout) if asked else []
        for (entry, scheduler, job, _), answer in zip(asked, answers, strict=True):
            status, queue = scheduler.read_history(job, answer), entry.record.queue
            ends = parse_iso(status.ends, index.now) if status and status.state.ended else None
            # a job id may have been used before
            if status and queue and ends and ends >= entry.session.record.created - CLOCK_SKEW:
                found.setdefault(queue, {})[job.id] = status
    return found


def find_session(
    context: Context, prefix: str, command: str = "connect", *, ended_too: bool = False
) -> tuple[Session, IndexedSession]:
    """Return the session that the user named, and use the scheduler that it was submitted to from now on.

    It can be named by its name, the beginning or the end of it, or its job id; the name may be omitted if only one
    session is live. ``command``: the one that was typed. ``ended_too``: for commands that make sense for an ended
    session; without a name, it is the last one if none is live. Raises ``SessionNotFound``.
    """
    entry = choose_on_host(context, read_session_index(context), prefix, command, ended_too=ended_too)
    return select_session(context, entry), entry


def choose_on_host(
    context: Context, index: SessionIndex, prefix: str, command: str = "connect", *, ended_too: bool = False
) -> IndexedSession:
    """Return the session that the user named, as ``choose_session`` does.

    If it was submitted from here to another cluster, the error names that one, with the ``command`` that looks there.
    If this machine has no session at all, it lists the user's profiles, in case --cluster was forgotten.
    """
    try:
        arguments = shlex.join(context.target.arguments())
        return choose_session(index, prefix, context.host.label, arguments, ended_too=ended_too)
    except SessionNotFound as error:
        if context.target.no_default:
            error.why = joined(_NO_DEFAULT, error.why)
        if (elsewhere := _submitted_elsewhere(context, prefix)) and not is_named(index, prefix):
            session, arguments = elsewhere
            error.why = joined(error.why, f"Session {session} was submitted from here with {arguments}.")
            error.hint = f"look there: {typed_command(command, arguments, prefix)}"
            raise
        if context.target.name == "this machine" and not index.entries and (names := user_profiles()):
            have = f"a profile named {names[0]}" if len(names) == 1 else f"profiles named {', '.join(names)}"
            error.why = joined(_NO_DEFAULT if context.target.no_default else "", f"You have {have}.")
            error.hint = f"name one to look there: --cluster {names[0]}"
        raise


def _submitted_elsewhere(context: Context, name: str) -> tuple[str, str] | None:
    """Return the newest session of that name that was submitted from here to another cluster, with its flags."""
    asked = shlex.join(context.target.arguments_anywhere())
    found = [(one, where) for one, where in submitted_sessions().items() if one == name or is_part(one, name)]
    return next(((one, where) for one, where in reversed(found) if where != asked), None)


def select_session(context: Context, entry: IndexedSession) -> Session:
    """Return the session of an index entry, and use its scheduler from now on. Raises ``SchedulerMissing``."""
    if context.scheduler.name != entry.session.record.scheduler:  # else keep it: it has the profile's scheduler_options
        context.scheduler = make_scheduler(entry.session.record.scheduler, context.root)
    return with_jobs(context, [entry])[0].session


def with_jobs(context: Context, entries: Sequence[IndexedSession]) -> list[IndexedSession]:
    """Return the same entries, with jobs from the scheduler's queue if none was recorded."""
    found = _find_jobs(context, [entry.session for entry in entries if entry.session.job is None])
    return [_with_job(entry, found.get(entry.session.id)) for entry in entries]


def _with_job(entry: IndexedSession, job: JobRef | None) -> IndexedSession:
    if job is None:
        return entry
    session = dataclasses.replace(entry.session, job=job)
    summary = dataclasses.replace(entry.summary, state="unknown", job=job.id, cluster=job.cluster)
    return dataclasses.replace(entry, record=dataclasses.replace(entry.record, session=session), summary=summary)


def query_states(
    context: Context, queue: JobQueue, jobs: Sequence[JobRef], in_doubt: Collection[JobRef] = ()
) -> Mapping[str, JobStatus] | None:
    """Query all these jobs, which are in one queue, at once; return ``None`` if there is no answer.

    If it is less work for the scheduler, all of the user's jobs are queried. Such a list may be incomplete, and in a
    federation it covers one cluster only: jobs ``in_doubt`` that it does not list are queried again by job id. Raises
    ``ConnectionLost`` or ``LoginShellSilent``.
    """
    with _unanswered():
        scheduler = make_scheduler(queue.scheduler, context.root)
        own = scheduler.query_own(queue.cluster)
        states = scheduler.read_query(jobs, _run(context, own or scheduler.query(jobs)))
        again = [job for job in jobs if states is not None and job in in_doubt and not _is_certain(states.get(job.id))]
        if not own or not again:
            return states
        unknown = {job.id: JobStatus(job, State.UNKNOWN) for job in again}
        more = scheduler.read_query(again, _run(context, scheduler.query(again)))
        return {**(states or {}), **(unknown if more is None else more)}
    return None


@contextlib.contextmanager
def _unanswered() -> Iterator[None]:
    """Ignore that a scheduler is missing or does not answer, but not that the login shell runs no commands."""
    try:
        yield
    except LoginShellSilent:
        raise
    except (SchedulerMissing, HostCommandFailed):
        pass


def _is_certain(status: JobStatus | None) -> bool:
    return status is not None and status.state is not State.REVOKED


def _run(context: Context, command: list[str]) -> CommandResult:
    return context.host.run(command, login_shell=True, timeout=_slow_after(context.host))


def _slow_after(host: Host) -> float:
    """Return after how many seconds the scheduler counts as unresponsive: later if the login shell is slow."""
    return SLOW + min(host.login_shell_took or 0.0, LONGEST_SHELL)


def _find_jobs(context: Context, sessions: Sequence[Session]) -> dict[str, JobRef | None]:
    """Look in the scheduler's queue for the jobs of sessions without a recorded job; ``None``: there is none.

    A job is not recorded if the connection broke during the submission. Sessions whose scheduler does not answer are
    left out. If one command covers several sessions, it is run once.
    """
    answers: dict[tuple[str, ...], CommandResult | None] = {}
    found: dict[str, JobRef | None] = {}
    for session in sessions:
        with _unanswered():
            scheduler = make_scheduler(session.record.scheduler, context.root)
            command = scheduler.find(session.id, Request(session.record.flags))
            if tuple(command) not in answers:
                answers[tuple(command)] = None
                answers[tuple(command)] = _run(context, command)
            answer = answers[tuple(command)]
            jobs = scheduler.read_find(session.id, answer) if answer else None
            if jobs is not None:
                found[session.id] = jobs[0] if jobs else None
    return found


def tidy_up(context: Context, index: SessionIndex) -> None:
    """Remove the secrets of ended sessions, and old records that the scheduler knows nothing about.

    Raises nothing: what fails is done the next time.
    """
    until = index.now - timedelta(days=context.target.profile.keep_days)
    _tidy(context, [entry for entry in index.ended if entry.over])
    with contextlib.suppress(LauncherError):
        jobless = _without_job(context, index, until)
        _tidy(context, jobless, [entry for entry in jobless if _is_old(entry, until)])
    with contextlib.suppress(LauncherError):
        _tidy(context, _confirmed_gone(context, index))
    for queue, entries in _ended_long_ago(index, until).items():
        with contextlib.suppress(LauncherError):
            _tidy(context, [], _forgotten(context, queue, entries))


def _tidy(context: Context, over: Sequence[IndexedSession], forgotten: Sequence[IndexedSession] = ()) -> None:
    with contextlib.suppress(LauncherError):
        names = [entry.session.id for entry in over if entry.record.has_secrets]
        if names or forgotten:
            records = (entry.session.id for entry in forgotten)
            _script(context, "tidy", *names, "--remove", *records, timeout=TIDY_TIMEOUT)


def _without_job(context: Context, index: SessionIndex, until: datetime) -> list[IndexedSession]:
    """Return the oldest sessions that never recorded a job and have none in the scheduler's queue."""
    created_by = index.now - RECORDED_WITHIN
    unnoted = [entry for entry in index.ended if entry.session.job is None]
    unnoted = [entry for entry in unnoted if entry.session.record.created < created_by]
    unnoted = [entry for entry in unnoted if entry.record.has_secrets or _is_old(entry, until)][-MOST_FORGOTTEN:]
    found = _find_jobs(context, [entry.session for entry in unnoted])
    return [entry for entry in unnoted if found.get(entry.session.id, ...) is None]


def _confirmed_gone(context: Context, index: SessionIndex) -> list[IndexedSession]:
    """Return some sessions without a record of their end whose jobs, by the scheduler, have ended or are forgotten."""
    gone = [entry for entry in index.ended if entry.summary.state == "gone" and entry.record.has_secrets]
    found = []
    for entry in [entry for entry in gone if entry.session.job][:MOST_QUERIED]:
        with contextlib.suppress(SchedulerMissing, NoAnswer):
            scheduler = make_scheduler(entry.session.record.scheduler, context.root)
            status = query_status(context.host, scheduler, job_of(entry.session), _slow_after(context.host))
            if status is None or (status.state.ended and status.state not in MAY_COME_BACK):
                found.append(entry)
    return found


def _ended_long_ago(index: SessionIndex, until: datetime) -> dict[JobQueue, list[IndexedSession]]:
    """Return the sessions without a record of their end that had ended by ``until``, the oldest ones of each queue."""
    by_queue: dict[JobQueue, list[IndexedSession]] = {}
    for entry in index.ended:
        if entry.record.queue and _is_old(entry, until):
            by_queue.setdefault(entry.record.queue, []).append(entry)
    return {queue: entries[-MOST_FORGOTTEN:] for queue, entries in by_queue.items()}


def _is_old(entry: IndexedSession, until: datetime) -> bool:
    """Whether a session without a record of its end had ended by ``until``, as far as known from the accounting."""
    is_over = entry.summary.state in ("gone", "ended") and entry.record.exited is None
    return is_over and entry.ended is not None and entry.ended < until


def _forgotten(context: Context, queue: JobQueue, entries: Sequence[IndexedSession]) -> list[IndexedSession]:
    """Return the entries whose jobs the scheduler does not know by id either."""
    scheduler = make_scheduler(queue.scheduler, context.root)
    jobs = [job_of(entry.session) for entry in entries]
    states = scheduler.read_query(jobs, _run(context, scheduler.query(jobs)))
    return [entry for entry in entries if states is not None and job_of(entry.session).id not in states]


def _script(context: Context, *words: str, timeout: float) -> CommandResult:
    """Run ``sessions.sh``, which is sent along, since there may be no session yet."""
    script = job_script("sessions.sh").read_bytes()
    return context.host.run_script("bash", script, [context.root, *words], timeout=timeout)


def _iso(at: datetime) -> str:
    return at.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
