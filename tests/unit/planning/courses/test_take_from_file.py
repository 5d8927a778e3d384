"""A course from a file: what it puts on top of its cluster, day by day, and what is kept of it."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.errors import (
    ProfileError,
)
from notebook_launcher.profiles.courses import choose_course, saved_course, saved_courses
from tests.unit.planning.courses.course_files import COMMON, COURSE, plan_on, take, write

pytestmark = pytest.mark.timeout(60)


def test_a_course_is_taken_from_a_file_and_meant_from_then_on(course: Path, configuration: Path) -> None:
    name, view, prompts = take(course)
    assert (name, saved_courses(), prompts.asked) == ("gpu2026", ["gpu2026"], [])
    assert (configuration / "config.toml").read_text() == '# mine\ncluster = "uni"\ncourse = "gpu2026"\n'
    taken = view.events[-1]
    assert taken == events.CourseUsed("gpu2026", str(course), saved_course(name).digest, "Computing with GPUs", True)
    plan = plan_on()
    assert plan.target.course.name == "gpu2026"
    flags = dict(plan.request.flags)
    assert flags | {"account": "edu26", "gpus": "2", "mem": "8G", "reservation": "week"} == flags
    assert "gres" not in flags, "another word for GPUs replaces the profile's"
    assert (plan.environment_name, plan.container) == ("tf-gpu", "/sw/images/course.sif")
    assert plan.target.arguments() == [] == plan_on(course="gpu2026").target.arguments(), "it is the default"
    elsewhere = plan_on(course="gpu2026", cluster="pelle").target
    assert elsewhere.arguments() == ["--course", "gpu2026", "--cluster", "pelle"]
    choose_course(None)
    assert plan_on(course="gpu2026").target.arguments() == ["--course", "gpu2026"]
    choose_course(name)
    without = plan_on(cluster="uni")
    assert (without.target.course, without.request.flags["gres"]) == (None, "gpu:a100:1")
    assert plan_on(host="elsewhere").target.course is None


def test_everything_that_is_kept_is_for_this_user_alone(course: Path, configuration: Path) -> None:
    old = os.umask(0)
    try:
        take(course)
    finally:
        os.umask(old)
    for path in [configuration / "courses", *(configuration / "courses").rglob("*"), configuration / "config.toml"]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert sorted(path.name for path in (configuration / "courses").iterdir()) == ["gpu2026"]


@pytest.mark.parametrize(
    ("day", "begin", "reservation"),
    [
        ("2026-11-22", None, None),
        ("2026-11-23", None, "monday"),
        ("2026-11-29", None, "week"),
        ("2026-11-30", None, None),
        ("2026-11-20", "2026-11-24T09:00", "week"),
        ("2026-11-24", "2026-12-01", None),
        ("2026-11-24", "now+1hour", "week"),
    ],
)
def test_the_reservation_is_that_of_the_day(course: Path, day: str, begin: str | None, reservation: str | None) -> None:
    take(course)
    now = begin == "now+1hour" and time.localtime().tm_hour == 23
    plan = plan_on(day, flags={"begin": begin} if begin else {})
    if not now:
        assert plan.request.flags.get("reservation") == reservation
        assert any(f"reservation {reservation} is used" in note for note in plan.notes) == (reservation is not None)


def test_what_the_user_types_goes_first(course: Path) -> None:
    take(course)
    plan = plan_on(flags={"reservation": "mine", "account": "other", "gpus": "0"})
    assert (plan.request.flags["reservation"], plan.request.flags["account"]) == ("mine", "other")
    assert "gpus" not in plan.request.flags
    assert not [note for note in plan.notes if "reservation" in note]


@pytest.mark.parametrize(
    ("day", "says"), [("2026-10-31", "begins on 2026-11-01"), ("2027-01-01", "ended on 2026-12-31")]
)
def test_before_and_after_the_course_there_is_a_note_and_no_more(course: Path, day: str, says: str) -> None:
    take(course)
    assert [note for note in plan_on(day).notes if says in note and "course forget gpu2026" in note]


def test_a_course_without_environments_has_its_image(course: Path) -> None:
    course.write_text('name = "small"\ncluster = "uni"\nimage = "/proj/small.sif"\n')
    take(course)
    plan = plan_on()
    assert (plan.container, plan.environment_name) == ("/proj/small.sif", "course")


def test_a_file_that_has_changed_is_taken_again_with_a_note(course: Path) -> None:
    take(course)
    again = take(course)[1]
    assert again.events == []
    course.write_text(COURSE.replace("edu26", "edu27"))
    (course.parent / "one.ipynb").write_text('{"one": 2}\n')
    _, view, prompts = take(course)
    assert prompts.asked == []
    assert "- account: edu26" in view.notes and "+ account: edu27" in view.notes
    assert "one.ipynb is another version" in view.notes
    assert plan_on().request.flags["account"] == "edu27"


def test_a_course_may_stand_on_a_file_called_course(course: Path) -> None:
    write(course.parent, {"course.toml": COMMON, "lab.toml": 'name = "lab"\nbase = "course.toml"\n'})
    assert take(course.parent / "lab.toml")[0] == "lab"
    assert plan_on().request.flags["account"] == "old"
    assert take(course.parent / "lab.toml")[1].events == []
    course.write_text('name = "lab"\nbase = "course.toml"\n')
    with pytest.raises(ProfileError, match="circle"):
        take(course)
