"""The sessions of a place: what ``sessions.sh`` tells of their directories, joined with the scheduler's word.

Pure: a text in, data out. Nothing that lies in a directory is trusted; one record that is damaged never hides others.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import ValidationError

from notebook_launcher.core.errors import SessionNotFound, UsageError
from notebook_launcher.core.events import SessionEntry
from notebook_launcher.core.request import Request
from notebook_launcher.core.timestamps import iso, parse_iso
from notebook_launcher.diagnosis import explain
from notebook_launcher.jobs.time_left import walltime_end
from notebook_launcher.schedulers.base import JobRef, JobStatus, State
from notebook_launcher.session.record import SESSION_ID, Session, SessionRecord, job_in, json_object

#: the states of sessions that have not ended, as far as is known
LIVE = frozenset({"pending", "starting", "running", "suspended", "completing", "unknown"})
LONGEST_WAIT = timedelta(
    days=7
)  # a session that is silent for so long after its walltime is not looked for at a launch
SHORTEST_PART = 3  # characters of a name that may stand for it
#: after these the scheduler may put a job back into the queue, or another cluster has it
MAY_COME_BACK = (State.NODE_FAIL, State.PREEMPTED, State.BOOT_FAIL, State.REVOKED)
DATE = 8  # digits; a word of fewer is the number of a job

_SLACK = timedelta(seconds=20)
_FILES = ("session", "started", "endpoint", "exit", "idle", "progress")
_FIRST_LINE = "sessions 1"
# of a federation, one cluster alone knows what the job does, and another one may be asked
_UNTOLD = (State.UNKNOWN, State.REVOKED)
_ENDS = {
    "finished": "shut down",
    "stopped": "stopped",
    "idle": "nobody used it",
}  # by the cause in exit.json; the others speak for themselves
_END_STATES = {
    State.CANCELLED: "cancelled",
    State.TIMEOUT: "reached its walltime",
    State.DEADLINE: "reached its deadline",
    State.OUT_OF_MEMORY: "out of memory",
    State.NODE_FAIL: "node failed",
    State.BOOT_FAIL: "node failed",
    State.PREEMPTED: "made room for another",
}


@dataclass(frozen=True)
class Queue:
    """Where jobs are asked for: the kind of scheduler, and the other cluster that they went to with ``-M``."""

    scheduler: str
    cluster: str | None = None


#: what the schedulers said: states by job id, without those that are not shown; ``None``: no answer
StatusesByQueue = Mapping[Queue, Mapping[str, JobStatus] | None]


@dataclass(frozen=True)
class SessionFiles:
    """One session as its directory tells it. The mappings are its files; empty: damaged, ``None``: not there."""

    session: Session
    started: Mapping[str, object] | None = None
    endpoint: Mapping[str, object] | None = None
    exited: Mapping[str, object] | None = None
    idle: Mapping[str, object] | None = None
    progress: Mapping[str, object] | None = None
    has_secrets: bool = False

    @property
    def queue(self) -> Queue | None:
        """Where to ask for its job; ``None`` where none is known."""
        job = self.session.job
        return Queue(self.session.record.scheduler, job.cluster) if job else None


@dataclass(frozen=True)
class Listing:
    """The directories, the oldest first. ``damaged``: names of those that could not be made sense of.

    ``whole``: whether the answer is complete; ``unreadable``: the folder itself may not be read. ``foreign``: whether
    those that are damaged are so because the file server says that all there is somebody else's.
    """

    records: tuple[SessionFiles, ...] = ()
    damaged: tuple[str, ...] = ()
    whole: bool = False
    unreadable: bool = False
    foreign: bool = False

    def jobs_to_query(self, now: datetime, *, sure: bool) -> dict[Queue, list[JobRef]]:
        """Return the jobs that the scheduler has to be asked for, by queue, the newest first.

        Those that have not said how they ended. ``sure``: also those that have, and were not tidied since, because a
        job that waits to run again has said so as well; and those that should have ended long ago.
        """
        found: dict[Queue, list[JobRef]] = {}
        for record in reversed(self.records):
            is_asked = record.exited is None or record.has_secrets if sure else _may_live(record, now)
            if record.queue and record.session.job and is_asked:
                found.setdefault(record.queue, []).append(record.session.job)
        return found

    def in_doubt(self, now: datetime) -> set[JobRef]:
        """Return the jobs that a list without them says too little about: they may live, or would be tidied up."""
        some = (record for record in self.records if record.has_secrets or _may_live(record, now))
        return {record.session.job for record in some if record.session.job}


@dataclass(frozen=True)
class Entry:
    """One session of the index: its record, and what is seen of it. ``ended``: when it did, at the latest.

    ``over``: whether the scheduler, too, says that it will do nothing any more. ``reason``: why its job waits, in the
    scheduler's own word.
    """

    record: SessionFiles
    seen: SessionEntry
    ended: datetime | None = None
    over: bool = False
    reason: str | None = None

    @property
    def session(self) -> Session:
        """The session itself."""
        return self.record.session

    @property
    def live(self) -> bool:
        """Whether it has a job that has not ended, as far as is known."""
        return self.seen.state in LIVE and self.session.job is not None


@dataclass(frozen=True)
class SessionIndex:
    """All sessions of a place, the oldest first. ``now``: the cluster's clock. ``foreign``: as in ``Listing``."""

    entries: tuple[Entry, ...]
    damaged: tuple[str, ...]
    now: datetime
    foreign: bool = False

    @property
    def live(self) -> list[Entry]:
        """Those that have not ended, the newest first."""
        return [entry for entry in reversed(self.entries) if entry.live]

    @property
    def ended(self) -> list[Entry]:
        """Those that have ended, the newest first."""
        return [entry for entry in reversed(self.entries) if not entry.live]


# --- reading what sessions.sh told ---------------------------------------------------------------------------


def parse_listing(text: str, root: str, now: datetime) -> Listing:
    """Read the answer of ``sessions.sh ROOT list``. ``now``: the cluster's clock, for a time without a zone."""
    lines = text.split("\n")  # other characters that end a line, for Python, may stand in a file
    if _FIRST_LINE not in lines:
        return Listing()
    fields: dict[str, dict[str, str]] = {}
    whole = unreadable = foreign = False
    for line in lines[lines.index(_FIRST_LINE) + 1 :]:
        session_id, _, rest = line.partition(" ")
        key, _, value = rest.partition(" ")
        if SESSION_ID.fullmatch(session_id):
            fields.setdefault(session_id, {})[key] = value
        unreadable |= line == "unreadable"
        whole |= line == "end"
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
    return Listing(tuple(records), tuple(damaged), whole, unreadable, foreign)


def _record(session_id: str, directory: str, fields: Mapping[str, str], now: datetime) -> SessionFiles | None:
    try:
        session_record = SessionRecord.model_validate_json(fields.get("session", ""))
        created = (
            session_record.created
            if session_record.created.tzinfo
            else session_record.created.replace(tzinfo=now.tzinfo)
        )
        created = created.astimezone(now.tzinfo)  # not all of the years 1 and 9999 are in every zone
    except (ValidationError, ValueError, OverflowError):
        return None
    if session_record.id != session_id:  # a copy, of which the job knows nothing
        return None
    files = [json_object(fields[key]) if key in fields else None for key in _FILES[1:]]
    session = Session(
        session_record.model_copy(update={"created": created}), directory, job_in(fields.get("job", ""), files[0])
    )
    return SessionFiles(session, files[0], files[1], files[2], files[3], files[4], "secrets" in fields)


# --- joining it with the scheduler's word --------------------------------------------------------------------


def build_index(listing: Listing, statuses: StatusesByQueue, now: datetime) -> SessionIndex:
    """Return what is known of each session. A queue that is missing in ``statuses`` was not asked."""
    entries = tuple(_entry(record, statuses, now) for record in listing.records)
    return SessionIndex(entries, listing.damaged, now, listing.foreign)


def _entry(record: SessionFiles, statuses: StatusesByQueue, now: datetime) -> Entry:
    session, session_record, job = record.session, record.session.record, record.session.job
    was_asked = record.queue in statuses
    answers = statuses.get(record.queue) if record.queue else None
    # what was tidied up is over for certain: a job of that number is another one
    is_settled = record.exited is not None and not record.has_secrets
    status = answers.get(job.id) if answers and job and not is_settled else None
    state = _state(record, status, was_asked=was_asked, has_answer=answers is not None)
    runs = state in ("starting", "running", "suspended", "completing")
    ends = _end(record, status, now) if runs else None
    started = _started(record, status, now)
    ended = None if state in LIVE else _ended(record, now)
    seen = SessionEntry(
        session.id,
        state,
        job.id if job else None,
        job.cluster if job else None,
        _node(record, status) if state != "pending" else None,
        session_record.environment or _image(session_record),
        session_record.program,
        iso(session_record.created),
        iso(ends),
        max(0, int((ends - now).total_seconds())) if ends else None,
        _walltime(record, status),
        session_record.launched_from,
        session.directory,
        _about(record, status, state),
        iso(started),
        iso(ended),
        session_record.purpose,
        session_record.notebook if session_record.program == "notebook" else None,
        *_cells_done(record),
    )
    is_over = status.state.ended and status.state not in MAY_COME_BACK if status else record.exited is not None
    ended_by, over = ended or _ended_by(record, started), was_asked and answers is not None and is_over
    return Entry(record, seen, ended_by, over, status.reason if status and state == "pending" else None)


def _cells_done(record: SessionFiles) -> tuple[int | None, int | None]:
    """Return how many code cells of a run have ended, and how many there are."""
    done, cells = ((record.progress or {}).get(key) for key in ("done", "cells"))
    return (done, cells) if type(done) is int and type(cells) is int and 0 <= done <= cells else (None, None)


def _image(session_record: SessionRecord) -> str | None:
    """Return the file name of an image that was named without an environment: ``-- /path/image.sif``."""
    with contextlib.suppress(ValueError):
        words = shlex.split(session_record.command or "")
        if "--" in words[:-1]:
            return words[-1].rstrip("/").rpartition("/")[2] or None
    return None


def _state(record: SessionFiles, status: JobStatus | None, *, was_asked: bool, has_answer: bool) -> str:
    """Return the word for what a session does; see ``SessionEntry``."""
    if record.session.job is None:
        return "gone" if record.exited is None else "ended"
    if status is None or status.state in _UNTOLD:
        if record.exited is not None:
            return "ended"
        return "gone" if was_asked and has_answer and status is None else "unknown"
    if status.state.ended:
        return "ended"
    if status.state.waits:
        return "pending"
    if status.state is State.COMPLETING or record.exited is not None:
        return "completing"
    if status.state is State.SUSPENDED:
        return "suspended"
    serves = record.endpoint if record.session.record.program == "jupyterlab" else record.started
    return "starting" if serves is None else "running"


def _about(record: SessionFiles, status: JobStatus | None, state: str) -> str:
    """Return why it waits, or how it ended, in a few words."""
    if state == "pending" and status is not None:
        return explain.pending(status.reason).summary
    if state == "ended":
        cause = str((record.exited or {}).get("cause") or "")
        word = _END_STATES.get(status.state, "") if status and cause in ("", "stopped") else ""
        if cause == "stopped" and (status is None or status.state is State.CANCELLED):
            word = _END_STATES[State.TIMEOUT] if _used_its_time(record) else ""
        if cause == "finished" and record.session.record.program != "jupyterlab":
            return ""  # there is no JupyterLab that somebody shut down
        return word or _ENDS.get(cause, cause.replace("-", " "))
    if state == "gone":
        if record.session.job is None:
            return "no job is recorded"
        return "never ran" if record.started is None else "ended without a record"
    if state == "unknown" and status is not None and status.state is State.REVOKED:
        return "it went to another cluster"
    if state == "unknown":
        return "the scheduler does not answer"
    return ""


def _used_its_time(record: SessionFiles) -> bool:
    """Whether it ran until its walltime was over; a scheduler counts from a moment before the script's first word."""
    created = record.session.record.created
    started, ended = _started(record, None, created), _ended(record, created)
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
    scheduled = _time(status.start, now) if status else None
    return scheduled or _time(_text(record.started, "started"), now)


def _ended(record: SessionFiles, now: datetime) -> datetime | None:
    return _time(_text(record.exited, "ended"), now)


def _ended_by(record: SessionFiles, started: datetime | None) -> datetime:
    """Return when a session that did not say so had ended at the latest: with its walltime."""
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


def _time(text: str | None, now: datetime) -> datetime | None:
    """Read a time, and put it on the cluster's clock; ``None`` also for one that no calendar has."""
    with contextlib.suppress(OverflowError, ValueError):
        at = parse_iso(text, now)
        return at.astimezone(now.tzinfo) if at else None
    return None


# --- the one that is meant -----------------------------------------------------------------------------------


def choose_session(index: SessionIndex, name: str, where: str, *, ended_too: bool = False) -> Entry:
    """Return the session that a word means: its name, else its job's id, else the beginning or the end of its name.

    Without a word it is the one live session. ``ended_too``: where no live one is meant so, one that has ended may be;
    without a word, the last one. A whole name always counts. Raises ``SessionNotFound``, telling those apart that could
    be meant.
    """
    live, ended = index.live, index.ended
    if name:
        whole = [entry for entry in index.entries if entry.session.id == name]
        found = whole or _matching(live, ended if ended_too else [], name)
    else:
        found = live or (ended[:1] if ended_too else [])
    if len(found) == 1:
        return found[0]
    if found:
        raise SessionNotFound(
            f"{len(found)} sessions match “{name}”." if name else f"There are {len(found)} sessions.",
            why=list_in_words(found, index.now),
            hint=f"name one of them, for example: {short_name(found[0], found)}",
        )
    ended = [] if ended_too or not name else _matching([], ended, name)
    if len(ended) == 1:
        raise _has_ended(ended[0], index)
    if name in index.damaged:
        raise SessionNotFound(f"The record of session {name} is damaged.", why=f"It is on {where}.")
    raise SessionNotFound(
        f"There is no session “{name}” on {where}." if name else f"There is no session on {where}.",
        why=f"Live sessions there:\n{list_in_words(live, index.now)}" if live else "Live sessions there: none.",
        hint="start one: launch-notebook"
        if not live
        else f"name one of them, for example: {short_name(live[0], live)}",
    )


def _matching(live: Sequence[Entry], ended: Sequence[Entry], name: str) -> list[Entry]:
    """Return those whose job has this id, or else this part of a name; those that live come first in either."""
    ways = ((_has_job, live), (_has_job, ended), (_has_part, live), (_has_part, ended))
    return next((found for is_meant, some in ways if (found := [entry for entry in some if is_meant(entry, name)])), [])


def _has_job(entry: Entry, name: str) -> bool:
    return entry.session.job is not None and entry.session.job.id == name


def _has_part(entry: Entry, name: str) -> bool:
    """Whether a name begins or ends so; what may be the number of a job is no part of one."""
    shortest = DATE if name.isdecimal() else SHORTEST_PART
    return len(name) >= shortest and (entry.session.id.startswith(name) or entry.session.id.endswith(name))


def _has_ended(entry: Entry, index: SessionIndex) -> SessionNotFound:
    about = f" ({entry.seen.detail})" if entry.seen.detail else ""
    name = short_name(entry, index.entries)
    return SessionNotFound(
        f"Session {entry.session.id} {_end_in_words(entry, index.now)}{about}.",
        why=f"Live sessions there:\n{list_in_words(index.live, index.now)}" if index.live else "",
        hint=f"see: launch-notebook {'results' if entry.seen.notebook else 'logs'} {name}, launch-notebook bill {name}",
    )


def list_in_words(entries: Sequence[Entry], now: datetime) -> str:
    """Return a line for each session with what tells it from the others."""
    return "\n".join(f"{short_name(entry, entries)} {state_in_words(entry, now)}" for entry in entries)


def short_name(entry: Entry, others: Iterable[Entry]) -> str:
    """Return the end of its name, where that is enough to name it."""
    end = entry.session.id[-4:]
    is_enough = not end.isdecimal() and not any(
        other is not entry and other.session.id.endswith(end) for other in others
    )
    return end if is_enough else entry.session.id


def state_in_words(entry: Entry, now: datetime) -> str:
    """Return what a session does, without its name: ``runs on gpu1 since 14:02 (tf-gpu)``."""
    seen = entry.seen
    where = f" on {seen.node}" if seen.node else ""
    words = {
        "running": f"runs{where}{_since(seen.started, now)}",
        "starting": f"starts{where}{_since(seen.started, now)}",
        "suspended": f"is suspended{where}",
        "completing": f"is ending{where}",
        "pending": f"waits{_since(seen.created, now)}",
        "unknown": f"may run{where}{_since(seen.started or seen.created, now)}",
    }
    what = ", ".join(filter(None, [seen.notebook, progress_in_words(seen), seen.environment]))
    return words.get(seen.state, _end_in_words(entry, now)) + (f" ({what})" if what else "")


def progress_in_words(seen: SessionEntry) -> str:
    """Return how far a run is: ``3 of 9 cells``; nothing where that is not known."""
    return f"{seen.done} of {seen.cells} cells" if seen.done is not None and seen.cells else ""


def _end_in_words(entry: Entry, now: datetime) -> str:
    return f"has ended{_since(entry.seen.ended, now, 'at')}" if entry.seen.state == "ended" else "is gone"


def _since(at: str | None, now: datetime, word: str = "since") -> str:
    """Return ``since 14:02``, on the cluster's clock, with the date where it is not today's."""
    there = _time(at, now)
    if there is None:
        return ""
    return f" {word} {there:%H:%M}" if there.date() == now.date() else f" {word} {there:%Y-%m-%d %H:%M}"
