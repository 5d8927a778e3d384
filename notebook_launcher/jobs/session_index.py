"""The sessions of a cluster: the output of ``sessions.sh`` on their directories, joined with the scheduler's status.

Pure: text in, data out. No file in a directory is trusted; one damaged record never hides others.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.events import SessionEntry
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.request import Request
from notebook_launcher.core.timestamps import iso, parse_on_clock_of
from notebook_launcher.diagnosis import explain
from notebook_launcher.jobs.time_left import walltime_end
from notebook_launcher.schedulers.base import JobRef, JobStatus, State
from notebook_launcher.session.record import SESSION_ID, Session, job_in, json_object, record_in

#: the states of sessions that have not ended, as far as known
LIVE = frozenset({"pending", "starting", "running", "suspended", "completing", "unknown"})
#: a session without a sign of life for this long after its walltime is not queried at a launch
LONGEST_WAIT = timedelta(days=7)
#: after these the scheduler may requeue a job, or another cluster has it
MAY_COME_BACK = (State.NODE_FAIL, State.PREEMPTED, State.BOOT_FAIL, State.REVOKED)

_SLACK = timedelta(seconds=20)
_FILES = ("session", "started", "endpoint", "exit", "idle", "progress")
_FIRST_LINE = "sessions 1"
# of a federation, only one cluster knows the job's state, and the query may go to another one
_INCONCLUSIVE = (State.UNKNOWN, State.REVOKED)
# by the cause in exit.json; the other causes need no explanation
_ENDS = {
    "finished": "shut down",
    "stopped": "stopped",
    "idle": "nobody used it",
    "class-ended": "the class was over",
}
_END_STATES = {
    State.CANCELLED: "cancelled",
    State.TIMEOUT: "reached its walltime",
    State.DEADLINE: "reached its deadline",
    State.OUT_OF_MEMORY: "out of memory",
    State.NODE_FAIL: "node failed",
    State.BOOT_FAIL: "node failed",
    State.PREEMPTED: "preempted",
}


class JobQueue(Frozen):
    """Where jobs are queried: the kind of scheduler, and the other cluster that they were submitted to with ``-M``."""

    scheduler: str
    cluster: str | None = None


#: the schedulers' answers: states by job id, without those that are not listed; ``None``: no answer
StatusesByQueue = Mapping[JobQueue, Mapping[str, JobStatus] | None]


class SessionFiles(Frozen):
    """One session as stored in its directory. The mappings are its files; empty: damaged, ``None``: missing.

    ``cancelled``: when a launcher cancelled its job (ISO with zone), which may have failed; ``None``: none did, or the
    job ended for a reason that it recorded.
    """

    session: Session
    started: Mapping[str, object] | None = None
    endpoint: Mapping[str, object] | None = None
    exited: Mapping[str, object] | None = None
    idle: Mapping[str, object] | None = None
    progress: Mapping[str, object] | None = None
    has_secrets: bool = False
    cancelled: str | None = None

    @property
    def queue(self) -> JobQueue | None:
        """Where to query its job; ``None`` if none is known."""
        job = self.session.job
        return JobQueue(self.session.record.scheduler, job.cluster) if job else None


class Listing(Frozen):
    """The directories, the oldest first. ``damaged``: the names of invalid ones.

    ``whole``: whether the answer is complete; ``unreadable``: the folder itself is not readable. ``foreign``: whether
    the invalid ones are so because everything belongs to somebody else, according to the file server. ``removed``: how
    many old records were removed. ``scripts``: the versions of the job scripts that seem to be there, by their digests.
    """

    records: tuple[SessionFiles, ...] = ()
    damaged: tuple[str, ...] = ()
    whole: bool = False
    unreadable: bool = False
    foreign: bool = False
    removed: int = 0
    scripts: frozenset[str] = frozenset()

    def jobs_to_query(self, now: datetime, *, sure: bool) -> dict[JobQueue, list[JobRef]]:
        """Return the jobs to query, by queue, the newest first.

        They are those without a record of their end. ``sure``: also those with one that were not cleaned up since,
        because a requeued job has one as well; and those that should have ended long ago.
        """
        found: dict[JobQueue, list[JobRef]] = {}
        for record in reversed(self.records):
            is_asked = record.exited is None or record.has_secrets if sure else _may_live(record, now)
            if record.queue and record.session.job and is_asked:
                found.setdefault(record.queue, []).append(record.session.job)
        return found

    def in_doubt(self, now: datetime) -> set[JobRef]:
        """Return the jobs for which a list that omits them is not conclusive: they may be live, or be cleaned up."""
        some = (record for record in self.records if record.has_secrets or _may_live(record, now))
        return {record.session.job for record in some if record.session.job}


class IndexedSession(Frozen):
    """One session of the index: its record and its state. ``ended``: when it ended, at the latest.

    ``over``: whether the scheduler confirms that it has ended. ``reason``: why its job is pending, as the scheduler
    spells it.
    """

    record: SessionFiles
    summary: SessionEntry
    ended: datetime | None = None
    over: bool = False
    reason: str | None = None

    @property
    def session(self) -> Session:
        """The session itself."""
        return self.record.session

    @property
    def live(self) -> bool:
        """Whether it has a job that has not ended, as far as known."""
        return self.summary.state in LIVE and self.session.job is not None


class SessionIndex(Frozen):
    """All sessions of a cluster, the oldest first.

    ``now``: the cluster's clock. ``foreign``, ``removed``: as in ``Listing``.
    """

    entries: tuple[IndexedSession, ...]
    damaged: tuple[str, ...]
    now: datetime
    foreign: bool = False
    removed: int = 0

    @property
    def live(self) -> list[IndexedSession]:
        """Those that have not ended, the newest first."""
        return [entry for entry in reversed(self.entries) if entry.live]

    @property
    def ended(self) -> list[IndexedSession]:
        """Those that have ended, the newest first."""
        return [entry for entry in reversed(self.entries) if not entry.live]


# --- parsing the output of sessions.sh -----------------------------------------------------------------------


def parse_listing(text: str, root: str, now: datetime) -> Listing:
    """Parse the output of ``sessions.sh ROOT list``. ``now``: the cluster's clock, for times without a zone."""
    lines = text.split("\n")  # files may contain other characters that end a line for Python
    if _FIRST_LINE not in lines:
        return Listing()
    fields: dict[str, dict[str, str]] = {}
    whole = unreadable = foreign = False
    removed, scripts = 0, set[str]()
    for line in lines[lines.index(_FIRST_LINE) + 1 :]:
        session_id, _, rest = line.partition(" ")
        key, _, value = rest.partition(" ")
        if SESSION_ID.fullmatch(session_id):
            fields.setdefault(session_id, {})[key] = value
        unreadable |= line == "unreadable"
        whole |= line == "end"
        if re.fullmatch(r"removed [0-9]{1,9}", line):
            removed = int(rest)
        if re.fullmatch(r"scripts [0-9a-f]{64}", line):
            scripts.add(rest)
    records, damaged = [], []
    for session_id, files in sorted(fields.items()):
        foreign |= "foreign" in files
        record = (
            None
            if "damaged" in files or "foreign" in files
            else _record(session_id, f"{root}/{session_id}", files, now)
        )
        if record is None:
            damaged.append(session_id)
        else:
            records.append(record)
    return Listing(tuple(records), tuple(damaged), whole, unreadable, foreign, removed, frozenset(scripts))


def _record(session_id: str, directory: str, fields: Mapping[str, str], now: datetime) -> SessionFiles | None:
    try:
        session_record = record_in(fields.get("session", ""))
        created = (
            session_record.created
            if session_record.created.tzinfo
            else session_record.created.replace(tzinfo=now.tzinfo)
        )
        created = created.astimezone(now.tzinfo)  # not all of the years 1 and 9999 are in every zone
    except (TypeError, ValueError, OverflowError):
        return None
    if session_record.id != session_id:  # a copy, which the job knows nothing of
        return None
    files = [json_object(fields[key]) if key in fields else None for key in _FILES[1:]]
    session = Session(replace(session_record, created=created), directory, job_in(fields.get("job", ""), files[0]))
    return SessionFiles(
        session, files[0], files[1], files[2], files[3], files[4], "secrets" in fields, fields.get("cancelled")
    )


# --- joining it with the scheduler's status ------------------------------------------------------------------


def build_index(listing: Listing, statuses: StatusesByQueue, now: datetime) -> SessionIndex:
    """Return the state of each session. A queue that is missing in ``statuses`` was not queried."""
    entries = tuple(_index_session(record, statuses, now) for record in listing.records)
    return SessionIndex(entries, listing.damaged, now, listing.foreign, listing.removed)


def _index_session(record: SessionFiles, statuses: StatusesByQueue, now: datetime) -> IndexedSession:
    session, session_record, job = record.session, record.session.record, record.session.job
    was_queried = record.queue in statuses
    answers = statuses.get(record.queue) if record.queue else None
    # a session that was cleaned up is over: a job with its job id is another one
    is_settled = record.exited is not None and not record.has_secrets
    status = answers.get(job.id) if answers and job and not is_settled else None
    state = _state(record, status, was_queried=was_queried, has_answer=answers is not None)
    runs = state in ("starting", "running", "suspended", "completing")
    ends = _end(record, status, now) if runs else None
    started = _started(record, status, now)
    ended = None if state in LIVE else _ended(record, status, now)
    summary = SessionEntry(
        session.id,
        state,
        job.id if job else None,
        job.cluster if job else None,
        _node(record, status) if state != "pending" else None,
        session_record.software,
        session_record.program,
        iso(session_record.created),
        iso(ends),
        max(0, int((ends - now).total_seconds())) if ends else None,
        _walltime(record, status),
        session_record.launched_from,
        session.directory,
        _detail(record, status, state),
        iso(started),
        iso(ended),
        session_record.purpose,
        session_record.notebook if session_record.program == "notebook" else None,
        *_cells_done(record),
        script=session_record.script if session_record.program == "script" else None,
        continues=session_record.continues,
    )
    is_over = status.state.ended and status.state not in MAY_COME_BACK if status else record.exited is not None
    ended_by, over = ended or _ended_by(record, started), was_queried and answers is not None and is_over
    return IndexedSession(record, summary, ended_by, over, status.reason if status and state == "pending" else None)


def _cells_done(record: SessionFiles) -> tuple[int | None, int | None]:
    """Return how many code cells of a run have finished, and how many there are."""
    done, cells = ((record.progress or {}).get(key) for key in ("done", "cells"))
    return (done, cells) if type(done) is int and type(cells) is int and 0 <= done <= cells else (None, None)


def _state(record: SessionFiles, status: JobStatus | None, *, was_queried: bool, has_answer: bool) -> str:
    """Return the state of a session; see ``SessionEntry``."""
    if record.session.job is None:
        return "gone" if record.exited is None else "ended"
    if status is None or status.state in _INCONCLUSIVE:
        if record.exited is not None:
            return "ended"
        return "gone" if was_queried and has_answer and status is None else "unknown"
    if status.state.ended:
        return "ended"
    if status.state.waits:
        return "pending"
    if status.state is State.COMPLETING or record.exited is not None:
        return "completing"
    if status.state is State.SUSPENDED:
        return "suspended"
    return "running" if _is_ready(record) else "starting"


def _is_ready(record: SessionFiles) -> bool:
    """Whether its program can be used, or could be before its end."""
    return (record.endpoint if record.session.record.program == "jupyterlab" else record.started) is not None


def _detail(record: SessionFiles, status: JobStatus | None, state: str) -> str:
    """Return why it is pending, or how it ended, in a few words."""
    if state == "pending" and status is not None:
        why, before = explain.pending(status.reason, meaning=status.meaning).summary, record.session.record.continues
        return f"continues {before[-4:]}; {why}" if before else why
    if state == "ended":
        return _how_it_ended(record, status)
    if state == "gone":
        if record.session.job is None:
            return "no job is recorded"
        if record.cancelled is not None:
            return _END_STATES[State.CANCELLED]
        return "never ran" if record.started is None else "ended without a record"
    if state == "unknown" and status is not None and status.state is State.REVOKED:
        return "it went to another cluster"
    if state == "unknown":
        return "the scheduler does not answer"
    return ""


def _how_it_ended(record: SessionFiles, status: JobStatus | None) -> str:
    cause, flags = str((record.exited or {}).get("cause") or ""), record.session.record.flags
    word = _END_STATES.get(status.state, "") if status and cause in ("", "stopped") else ""
    is_cancelled = status is not None and status.state is State.CANCELLED
    if cause == "stopped" and (is_cancelled or not word):
        return _how_it_was_stopped(record, is_cancelled=is_cancelled)
    if cause == "script-failed" and "array" in flags and (record.cancelled is not None or is_cancelled):
        return _END_STATES[State.CANCELLED]  # earlier versions record a task that was ended as one that failed
    if cause == "finished" and record.session.record.program != "jupyterlab":
        return ""  # there is no JupyterLab that somebody could shut down
    return word or _ENDS.get(cause, cause.replace("-", " "))


def _how_it_was_stopped(record: SessionFiles, *, is_cancelled: bool) -> str:
    """Return how a job ended that a signal ended: at its walltime, or somebody cancelled it.

    ``is_cancelled``: whether the scheduler says so, which also says it of some at their walltime.
    """
    by_launcher, cancelled = record.cancelled is not None, _END_STATES[State.CANCELLED]
    has_used_its_time, program = _used_its_time(record), record.session.record.program
    if "array" in record.session.record.flags:
        # its tasks may have run one after the other: only in less time, none of them can have reached its walltime
        return _ENDS["stopped"] if has_used_its_time and not (by_launcher or is_cancelled) else cancelled
    if has_used_its_time:
        return _END_STATES[State.TIMEOUT]
    # which is how an interactive session usually ends; a run, one that was ended in another way or was not ready yet,
    # was cut short
    is_usual = by_launcher and program in ("jupyterlab", "shell") and _is_ready(record)
    return _ENDS["stopped"] if is_usual else cancelled


def _used_its_time(record: SessionFiles) -> bool:
    """Whether it ran until the end of its walltime, which the scheduler counts from before the script's start."""
    created = record.session.record.created
    started, ended = _started(record, None, created), _ended(record, None, created)
    with contextlib.suppress(UsageError, OverflowError):
        walltime = Request(record.session.record.flags).walltime
        return bool(started and ended and ended - started >= walltime - _SLACK)
    return False


def _end(record: SessionFiles, status: JobStatus | None, now: datetime) -> datetime | None:
    with contextlib.suppress(UsageError, OverflowError):
        return walltime_end(Request(record.session.record.flags), status, _text(record.started, "started"), now)
    return None


def _walltime(record: SessionFiles, status: JobStatus | None) -> str | None:
    flags = dict(record.session.record.flags)
    if status and status.walltime:
        flags["time"] = status.walltime
    with contextlib.suppress(UsageError, OverflowError):
        return Request(flags).walltime.as_text()
    return None


def _may_live(record: SessionFiles, now: datetime) -> bool:
    return record.exited is None and now - _ended_by(record, _started(record, None, now)) < LONGEST_WAIT


def _started(record: SessionFiles, status: JobStatus | None, now: datetime) -> datetime | None:
    if status and status.state.waits:
        return None
    scheduled = parse_on_clock_of(status.start, now) if status else None
    return scheduled or parse_on_clock_of(_text(record.started, "started"), now)


def _ended(record: SessionFiles, status: JobStatus | None, now: datetime) -> datetime | None:
    """Return when it ended, by its own record, else by the scheduler, else when it was cancelled."""
    ended = _text(record.exited, "ended") or (status.ends if status and status.state.ended else None)
    return parse_on_clock_of(ended or (record.cancelled if record.exited is None else None), now)


def _ended_by(record: SessionFiles, started: datetime | None) -> datetime:
    """Return when a session without a record of its end had ended at the latest: with its walltime."""
    began = started or record.session.record.created
    with contextlib.suppress(UsageError, OverflowError):
        walltime = Request(record.session.record.flags).walltime
        return began if walltime.is_unlimited else began + walltime
    return began


def _node(record: SessionFiles, status: JobStatus | None) -> str | None:
    return _text(record.started, "node") or (status.node if status else None)


def _text(data: Mapping[str, object] | None, key: str) -> str | None:
    value = (data or {}).get(key)
    return value if isinstance(value, str) and value else None
