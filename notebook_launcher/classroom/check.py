"""``classroom check``: makes the checks of ``doctor`` for one session, and those for a whole class, in one table."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from notebook_launcher.classroom.class_folder import HEARTBEAT, MOST_OF_HEARTBEAT, FolderFacts, read_folder
from notebook_launcher.classroom.findings import (
    Demand,
    assess_class_folder,
    assess_hour,
    assess_limits,
    assess_members,
    assess_room,
    assess_sight,
    assess_users_of_reservation,
    assess_walltime_fits,
)
from notebook_launcher.classroom.rehearsal import rehearse
from notebook_launcher.classroom.roster import Student
from notebook_launcher.core.check_runner import CheckRunner
from notebook_launcher.core.errors import LauncherError, UsageError
from notebook_launcher.core.finding import Finding, fault, ok, unknown, warning
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.quantities import counted
from notebook_launcher.core.request import parse_begin
from notebook_launcher.core.text import listed
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.core.view import View
from notebook_launcher.core.walltime import Walltime
from notebook_launcher.diagnosis.request_check import SchedulerReport
from notebook_launcher.doctor.command import doctor
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.jobs.evidence import run_queries
from notebook_launcher.planning.plan import Plan
from notebook_launcher.planning.target import LaunchOptions, LaunchTarget, LocalMachine, find_target
from notebook_launcher.schedulers.make import make_user_jobs
from notebook_launcher.session.context import Context

MOST_REHEARSED = 60
LONGEST_LESSON = timedelta(days=1)
_FIND_UNKNOWN = 'for user do id -u -- "$user" >/dev/null 2>&1 || printf "%s\\n" "$user"; done'
_MOST_NAMED = 8
_DAY_AND_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?")  # the form with a date that sbatch --begin accepts


class Lesson(Frozen):
    """The lesson to check: its students, its begin (``None``: now), its length, and the size of the rehearsal."""

    students: tuple[Student, ...]
    begins: str | None = None
    lasts: str | None = None
    rehearsed: int = 0


def check_class(
    options: LaunchOptions,
    here: LocalMachine,
    lesson: Lesson,
    view: View,
    prompts: Prompts,
    interrupts: Interrupts,
) -> None:
    """Check what one launch needs, then what the class needs; with ``rehearsed``, launch and end that many sessions.

    Raises ``UsageError``, or, after everything that can be checked, ``ChecksFailed``, which names the faults.
    """
    if lesson.rehearsed > MOST_REHEARSED:
        raise UsageError(f"--rehearse {lesson.rehearsed} is more than {MOST_REHEARSED}.", hint="rehearse with fewer")
    lasts = Walltime.parse(lesson.lasts) if lesson.lasts else None
    if lasts is not None and lasts > LONGEST_LESSON:
        raise UsageError(f"--for {lesson.lasts} is longer than a day.", hint="for example: --for 90m")
    _refuse_vague_time(lesson.begins)
    at_that_time = replace(options, flags={**options.flags, **({"begin": lesson.begins} if lesson.begins else {})})

    def more(checks: CheckRunner, context: Context, plan: Plan, report: SchedulerReport) -> None:
        checking = _ClassCheck(checks, context, plan, report, lesson, lasts)
        checking.run()
        if lesson.rehearsed:
            rehearse(checks, context, plan, lesson.rehearsed, reserved=checking.has_begun())

    def first(checks: CheckRunner) -> None:
        with contextlib.suppress(LauncherError):  # doctor reports that itself
            target = find_target(options, here)
            if target.course is None:
                checks.report("course", _no_course(target))

    doctor(at_that_time, here, view, prompts, interrupts, node=False, first=first, more=more)


def _refuse_vague_time(begins: str | None) -> None:
    """Raise ``UsageError`` for a time that the scheduler would refuse, or that has no time of day."""
    if begins is None:
        return
    is_date = re.match(r"\s*\d{4}-", begins)
    if (is_date and not _DAY_AND_TIME.fullmatch(begins.strip())) or parse_begin(begins, datetime.now()).at is None:
        raise UsageError(f"--at {begins} is not understood.", hint="--at takes a day and a time: 2026-11-28T13:00")


def _no_course(target: LaunchTarget) -> Finding:
    """Return the warning that a plain launch is checked, with the option that names a course."""
    what = f"with the profile {target.cluster}" if target.cluster else "without a profile"
    course = "./course.toml" if Path("course.toml").is_file() else "FILE_OR_URL"
    return warning(f"none: this checks a plain launch {what}.", f"--course {course}")


class _ClassCheck:
    """Makes the checks of a class, in order."""

    def __init__(
        self,
        checks: CheckRunner,
        context: Context,
        plan: Plan,
        report: SchedulerReport,
        lesson: Lesson,
        lasts: timedelta | None,
    ) -> None:
        self._checks, self._context, self._plan, self._report = checks, context, plan, report
        self._lesson, now = lesson, context.clock()
        self._users = tuple(one.user for one in lesson.students)
        begin = parse_begin(lesson.begins, now).at if lesson.begins else now
        self._begins = begin
        self._lasts = lasts or min(plan.request.walltime, LONGEST_LESSON)
        self._hidden: bool | None = None

    def run(self) -> None:
        """Check the students, their account, the reservation, the capacity, the limits and the class folder."""
        checks, request, report = self._checks, self._plan.request, self._report
        checks.check("students", self._check_users)
        account = request.flags.get("account") or report.account
        if account:
            checks.check("accounts", lambda: self._members(account), doing="asking for the students' accounts")
        name = request.flags.get("reservation")
        reservation = next((one for one in report.reservations or () if one.name == name), None)
        demand = Demand(len(self._users), request)
        if name:
            checks.check("hour", lambda: assess_hour(name, reservation, self._begins, self._lasts, self._now))
        if reservation is not None:
            checks.check("reserved for", lambda: assess_users_of_reservation(reservation, self._users, account))
        checks.check(
            "walltime fits", lambda: assess_walltime_fits(request.walltime, self._lasts, reservation, self._begins)
        )
        places = report.partitions_of(request)
        checks.check("head count", lambda: assess_room(demand, reservation, places, report.nodes))
        checks.check("shared limits", lambda: assess_limits(demand, report.limits))
        checks.check("watching", lambda: assess_sight(self._hidden))
        if (course := self._plan.target.course) and course.class_folder:
            folder = course.class_folder
            checks.check("class folder", lambda: assess_class_folder(self._folder(folder)))

    def has_begun(self) -> bool:
        """Whether the request's reservation has begun and has not ended."""
        name, now = self._plan.request.flags.get("reservation"), self._now
        for one in self._report.reservations or ():
            if one.name == name:
                start, end = parse_iso(one.start, now), parse_iso(one.end, now)
                return (start is None or start <= now) and (end is None or now < end)
        return False

    @property
    def _now(self) -> datetime:
        return self._context.clock()

    def _check_users(self) -> Finding:
        """Look the students up on the login node, which knows the user names that the scheduler uses."""
        answer = self._context.host.run(["sh", "-c", _FIND_UNKNOWN, "users", *self._users])
        if answer.exit_code:
            return unknown(f"The students could not be looked up on {self._context.host.label}.")
        missing = [line for line in answer.stdout.split() if line in self._users]
        if missing:
            return fault(
                f"{counted(len(missing), 'user')} of {len(self._users)} not known on {self._context.host.label}: "
                f"{listed(missing, _MOST_NAMED)}.",
                "correct their names in the list of students, or wait until they have an account",
                students=missing,
            )
        return ok(f"{counted(len(self._users), 'student')}, all of them known on {self._context.host.label}")

    def _members(self, account: str) -> Finding:
        lists, info = make_user_jobs(self._context.scheduler), self._context.scheduler.cluster_info
        if lists is None or info is None:
            return unknown("With this scheduler, the launcher cannot look that up.")
        commands = [lists.members(self._users, account), info.private_data(self._plan.request.clusters)]
        members, private = run_queries(self._context.host, commands)
        self._hidden = info.read_private_data(private)
        return assess_members(self._users, account, lists.read_members(members))

    def _folder(self, folder: str) -> FolderFacts:
        return read_folder(self._context.host, folder, HEARTBEAT, MOST_OF_HEARTBEAT)[0]
