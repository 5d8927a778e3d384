"""What a course needs besides, from its first day to its last: its reservations and its notebooks."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime

from notebook_launcher.core.check_runner import Round
from notebook_launcher.doctor.checks.queue import ANSWERS, RESERVATION, Told
from notebook_launcher.doctor.findings import Finding, covers, judge_booking, ok, warning
from notebook_launcher.profiles.courses import kept_course
from notebook_launcher.profiles.models import CourseProfile, Reservation


def check_course(round_: Round, course: CourseProfile, today: date) -> None:
    """Check what is of the course alone, without contacting anything."""
    round_.check("course", lambda: _dates(course, today))
    if course.notebooks:
        round_.check("notebooks", lambda: _notebooks(course))


def check_reservations(
    round_: Round, course: CourseProfile, told: Told, now: datetime, asked: str | None = None
) -> None:
    """Check each reservation of the course: that it is there, and lasts as long as the course says.

    ``asked``: the one that the request has, of which all but the days was told with it.
    """
    for reservation in course.reservations:
        if reservation.name == asked and not round_.is_well(RESERVATION):
            continue
        name = f"reservation {reservation.name}"
        round_.check(name, lambda one=reservation: _reservation(one, told, now, one.name == asked), needs=[ANSWERS])  # type: ignore[misc]


def _dates(course: CourseProfile, today: date) -> Finding:
    who = (
        f"{course.name}: {course.first or '…'} to {course.last or '…'}" if course.first or course.last else course.name
    )
    if course.last is not None and course.last < today:
        return warning(f"{who} is over.", "is there a newer file of this course?")
    days = (course.first - today).days if course.first else 0
    return ok(f"{who}" + (f"; it begins in {days} day{'' if days == 1 else 's'}" if days > 0 else ""))


def _notebooks(course: CourseProfile) -> Finding:
    files = kept_course(course.name).files()
    return ok(f"{len(files.notebooks)} can be brought: {', '.join(files.notebooks)}")


def _reservation(reservation: Reservation, told: Told, now: datetime, is_told: bool) -> Finding | None:
    if reservation.last < now.date():
        return ok(f"its days are over: {reservation.first} to {reservation.last}")
    finding = judge_booking(reservation.name, told.bookings, now, None)
    if finding.result == "fault" and reservation.first > now.date():
        finding = replace(finding, who=f"Students on {reservation.first}")
    booking = next((one for one in told.bookings or () if one.name == reservation.name), None)
    if finding.result != "ok" or booking is None or covers(booking, reservation.first, reservation.last, now):
        return None if is_told else finding
    return warning(
        f"It does not last from {reservation.first} to {reservation.last}, as the course says: {finding.found}.",
        "ask whoever made it to change it, or change the days in the course file",
    )
