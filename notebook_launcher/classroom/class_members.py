"""Determines a class from a course, a roster and flags: whose jobs belong to it, and where. No host is contacted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from notebook_launcher.classroom.roster import Student
from notebook_launcher.classroom.student_states import ClassOf
from notebook_launcher.core.errors import UsageError
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles.courses import reservation_on
from notebook_launcher.profiles.store import as_flags
from notebook_launcher.schedulers.user_jobs import Selection


def find_class(
    target: LaunchTarget,
    students: Sequence[Student],
    day: date,
    *,
    reservation: str | None = None,
    account: str | None = None,
) -> ClassOf:
    """Return the class. By default it has the course's account, and the course's reservation for that day.

    Raises ``UsageError`` if nothing determines who is in it.
    """
    course = target.course
    if course is not None:
        of_day = reservation_on(course, day)
        reservation = reservation or (of_day.name if of_day else None)
        account = account or course.account
    if not students and not reservation and not account:
        raise UsageError(
            "The members of the class are not known.",
            why="There is no list of students, and no course with an account or a reservation today."
            if course
            else "There is no list of students, and no course.",
            hint="name a list of students (STUDENTS.csv), --course NAME, --reservation NAME or --account NAME",
        )
    flags = as_flags(target.profile.defaults)
    title = course.name if course else reservation or account or target.name
    partitions = tuple(name for name in (flags.get("partition") or "").split(",") if name)
    return ClassOf(
        title,
        tuple(students),
        reservation,
        account,
        flags.get("clusters"),
        course.class_folder if course else None,
        partitions,
    )


def selection(group: ClassOf) -> Selection:
    """Return whose jobs to query."""
    return Selection(tuple(one.user for one in group.students), group.account, group.reservation)
