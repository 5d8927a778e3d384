"""Determines the state of each student of a class from their jobs and their sessions' reports. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime

from notebook_launcher.classroom.roster import Student
from notebook_launcher.core.events import StudentNow
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.quantities import counted, duration
from notebook_launcher.core.text import printable
from notebook_launcher.core.timestamps import iso, parse_on_clock_of
from notebook_launcher.diagnosis import exit_causes, explain
from notebook_launcher.schedulers.base import State
from notebook_launcher.schedulers.user_jobs import UserJob
from notebook_launcher.session.record import SESSION_ID

#: the states of students, first those that need the teacher's attention; see ``StudentNow``
STATES = (
    *("failed", "not_started", "unknown", "pending", "starting", "idle", "suspended"),
    *("running", "completing", "ended"),
)
SILENT_AFTER = 4  # intervals without a report after which a running session counts as silent
_SLOW_START = 180.0  # seconds in which JupyterLab should have started
# states, and causes reported by sessions, of jobs that ended as they should
_FINE = (State.COMPLETED, State.CANCELLED, State.REVOKED)
_WELL = {
    "finished": "shut down",
    "stopped": "cancelled",
    exit_causes.IDLE: "nobody used it",
    exit_causes.CLASS_ENDED: "ended by the teacher",
}
_ENDED = {State.COMPLETED: "finished", State.CANCELLED: "cancelled", State.REVOKED: "moved to another cluster"}
_FAILED = {State.FAILED: "it failed"}
_NOBODY = "no user of this name on the cluster; correct the list of students"


class Report(Frozen):
    """What a session has reported about itself in the class folder: its format was checked, but it may be untrue.

    ``state``: starting, running, idle or ended. ``since``: when that state began. ``written``: when the report was
    written, by the cluster's clock. ``cause``: why it ended, one of those in docs/job-script.md.
    """

    user: str
    job: str
    state: str
    written: datetime
    since: datetime | None = None
    cause: str = ""
    exit_code: int | None = None
    interval: int = 30


class ClassOf(Frozen):
    """Defines which jobs belong to a class: those in its reservation or of its account, and its students' sessions.

    ``students``: those on the roster; if empty, everybody who has such a job.
    """

    title: str
    students: tuple[Student, ...] = ()
    reservation: str | None = None
    account: str | None = None
    cluster: str | None = None
    folder: str | None = None
    partitions: tuple[str, ...] = ()

    def has(self, job: UserJob) -> bool:
        """Whether a job belongs to the class. Users choose their jobs' names, but not the reservation and the account.

        Other jobs of the account that have ended are not counted: they tell nothing about the lesson.
        """
        if self.may_end(job):
            return True
        of_account = not self.reservation and self.account is not None and job.account == self.account
        return of_account and not job.state.ended

    def may_end(self, job: UserJob) -> bool:
        """Whether a job of the class may be ended with it: a session, or a job in its reservation.

        Other jobs of the account may be the students' own work, which may run for days.
        """
        is_reserved = self.reservation is not None and job.reservation == self.reservation
        return is_reserved or SESSION_ID.fullmatch(job.name) is not None


class Totals(Frozen):
    """The number of students in each state, of GPUs in use, and of GPUs that pending jobs wait for."""

    counts: Mapping[str, int] = field(default_factory=dict)
    gpus_used: int = 0
    gpus_pending: int = 0


def states_of(
    group: ClassOf,
    jobs: Sequence[UserJob] | None,
    reports: Mapping[str, Report],
    now: datetime,
    known: frozenset[str] = frozenset(),
    nobody: frozenset[str] = frozenset(),
) -> tuple[StudentNow, ...]:
    """Return each student's state, in the roster's order. ``now``: by the cluster's clock.

    ``jobs``: as the scheduler reports them; ``None``: it has never answered. ``reports``: by user. ``known``: the ids
    of jobs that belonged to the class earlier. ``nobody``: names on the roster that no user of the cluster has.
    """
    ours: dict[str, list[UserJob]] = {}
    for job in jobs or ():
        if group.has(job) or job.id in known:
            ours.setdefault(job.user, []).append(job)
    students = group.students or tuple(Student(user, user) for user in sorted(ours))
    if jobs is None:
        return tuple(StudentNow(one.user, one.name, "unknown", "the scheduler does not answer") for one in students)
    return tuple(
        StudentNow(one.user, one.name, "unknown", _NOBODY)
        if one.user in nobody
        else _student(one, ours.get(one.user, []), reports.get(one.user), group, now)
        for one in students
    )


def totals(students: Sequence[StudentNow]) -> Totals:
    """Return the totals of a class."""
    counts = Counter(one.state for one in students)
    live = ("starting", "running", "idle", "suspended", "completing")
    return Totals(
        {state: counts[state] for state in STATES if counts[state]},
        sum(one.gpus or 0 for one in students if one.state in live),
        sum(one.gpus or 0 for one in students if one.state == "pending"),
    )


def _student(
    student: Student, jobs: Sequence[UserJob], report: Report | None, group: ClassOf, now: datetime
) -> StudentNow:
    if not jobs:
        return StudentNow(student.user, student.name, "not_started")
    job = min(jobs, key=lambda one: _order(one, now))
    own = report if report and report.job == job.id else None
    state, detail = _state(job, own, now)
    live = [one for one in jobs if not one.state.ended]
    alike = [one for one in live if one.state.waits == job.state.waits] or [job]
    remarks = [detail]
    if not job.state.ended:
        if group.reservation and job.reservation != group.reservation:
            remarks.append(f"not in the reservation {group.reservation}")
        if len(live) > 1:
            remarks.append(f"{counted(len(live), 'session')} at once")
    ends = parse_on_clock_of(job.ends, now)
    runs = not job.state.ended and not job.state.waits
    return StudentNow(
        student.user,
        student.name,
        state,
        "; ".join(filter(None, remarks)),
        job.id,
        printable(job.node or "") or None if runs else None,
        iso(parse_on_clock_of(job.start, now)) if job.state.waits else None,
        iso(ends) if runs or job.state.ended else None,
        max(0, int((ends - now).total_seconds())) if runs and ends else None,
        None if all(one.gpus is None for one in alike) else sum(one.gpus or 0 for one in alike),
        max(0, int((now - own.written).total_seconds())) if own else None,
    )


def _order(job: UserJob, now: datetime) -> tuple[int, float]:
    """Return a sort key: a student's running job comes first, then a pending one, then the last one that ended."""
    ranks = {State.RUNNING: 0, State.SUSPENDED: 1, State.COMPLETING: 3, State.PENDING: 2}
    at = parse_on_clock_of(job.ends if job.state.ended else job.start, now)
    return ranks.get(job.state, 4), -(at.timestamp() if at else 0.0)


def _state(job: UserJob, report: Report | None, now: datetime) -> tuple[str, str]:
    if job.state.waits:
        return "pending", printable(explain.pending(job.reason).summary)
    if job.state is State.SUSPENDED:
        return "suspended", "suspended by the scheduler"
    if job.state is State.COMPLETING:
        return "completing", ""
    if job.state.ended:
        return _ended(job, report)
    if job.state is not State.RUNNING:
        return "unknown", "the scheduler reports no state"
    return _running(report, now)


def _running(report: Report | None, now: datetime) -> tuple[str, str]:
    """Return the state of a running job, by its session's report; without one, by the scheduler."""
    if report is None:
        return "running", ""
    silent = (now - report.written).total_seconds()
    if silent > SILENT_AFTER * report.interval:
        return "running", f"its session has not reported for {duration(silent)}"
    since = (now - report.since).total_seconds() if report.since else 0.0
    if report.state == "starting":
        return "starting", f"for {duration(since)}, longer than usual" if since > _SLOW_START else ""
    if report.state == "idle":
        return "idle", f"unused for {duration(since)}" if report.since else ""
    return ("completing", "") if report.state == "ended" else ("running", "")


def _ended(job: UserJob, report: Report | None) -> tuple[str, str]:
    """Return how a job ended: by the scheduler if that ended it, otherwise by the session's report, if any."""
    if (cause := exit_causes.BY_STATE.get(job.state)) and cause.what:
        return "failed", cause.what
    if report and report.cause:
        if report.cause in _WELL:
            return "ended", _WELL[report.cause]
        return "failed", f"{report.cause.replace('-', ' ')}{_numbers(job)}"
    if job.state in _FINE:
        return "ended", _ENDED[job.state]
    return "failed", f"{_FAILED.get(job.state, job.state.name.lower().replace('_', ' '))}{_numbers(job)}"


def _numbers(job: UserJob) -> str:
    if job.signal:
        return f" (signal {job.signal})"
    return f" (exit code {job.exit_code})" if job.exit_code else ""
