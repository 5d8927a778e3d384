"""Checks what a course needs from its first day to its last: its reservations and its notebooks."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from functools import partial

from notebook_launcher.core.check_runner import CheckRunner
from notebook_launcher.core.finding import Finding, ok, warning
from notebook_launcher.core.quantities import counted
from notebook_launcher.diagnosis.request_check import SchedulerReport, assess_reservation
from notebook_launcher.doctor.checks.queue import ANSWERS, RESERVATION
from notebook_launcher.doctor.findings import covers
from notebook_launcher.profiles.courses import saved_course
from notebook_launcher.profiles.models import CourseProfile, Reservation


def check_course(checks: CheckRunner, course: CourseProfile, today: date) -> None:
    """Check the course itself, without contacting anything."""
    checks.check("course", lambda: _dates(course, today))
    if course.notebooks:
        checks.check("notebooks", lambda: _notebooks(course))


def check_reservations(
    checks: CheckRunner, course: CourseProfile, report: SchedulerReport, now: datetime, requested: str | None = None
) -> None:
    """Check that each reservation of the course exists, and covers the days that the course names.

    ``requested``: the reservation of the request, of which only the dates are checked here.
    """
    for reservation in course.reservations:
        if reservation.name == requested and not checks.passed(RESERVATION):
            continue
        name = f"reservation {reservation.name}"
        is_requested = reservation.name == requested
        checks.check(name, partial(_reservation, reservation, report, now, is_requested), needs=[ANSWERS])


def _dates(course: CourseProfile, today: date) -> Finding:
    who = (
        f"{course.name}: {course.first or '…'} to {course.last or '…'}" if course.first or course.last else course.name
    )
    if course.last is not None and course.last < today:
        return warning(f"{who} is over.", "ask the teacher for a newer file of this course")
    days = (course.first - today).days if course.first else 0
    return ok(f"{who}" + (f"; it begins in {counted(days, 'day')}" if days > 0 else ""))


def _notebooks(course: CourseProfile) -> Finding:
    files = saved_course(course.name).files()
    return ok(f"{len(files.notebooks)} can be copied: {', '.join(files.notebooks)}")


def _reservation(reservation: Reservation, report: SchedulerReport, now: datetime, is_reported: bool) -> Finding | None:
    if reservation.last < now.date():
        return ok(f"its days are over: {reservation.first} to {reservation.last}")
    finding = assess_reservation(reservation.name, report.reservations, now, None)
    if finding.result == "fault" and reservation.first > now.date():
        finding = replace(finding, who=f"Students on {reservation.first}")
    known = next((one for one in report.reservations or () if one.name == reservation.name), None)
    if finding.result != "ok" or known is None or covers(known, reservation.first, reservation.last, now):
        return None if is_reported else finding
    return warning(
        f"It does not last from {reservation.first} to {reservation.last}, as the course says: {finding.found}.",
        "ask whoever made it to change it, or change the days in the course file",
    )
