"""Courses that were taken: where they are kept, and what one puts on top of its cluster's profile on a given day."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

from notebook_launcher.errors import ProfileError
from notebook_launcher.profiles.layers import Layer, read_layer
from notebook_launcher.profiles.models import CourseProfile
from notebook_launcher.profiles.store import config_folder, validated


def courses_folder() -> Path:
    """Return where courses are kept, a folder each, with ``course.toml`` in it."""
    return config_folder() / "courses"


def kept_courses() -> list[str]:
    """Return the names of the courses that were taken."""
    return sorted(path.parent.name for path in courses_folder().glob("*/course.toml"))


def kept_course(name: str) -> tuple[CourseProfile, Layer]:
    """Return a course that was taken, and the file it was read from. Raises ``ProfileError``."""
    path = courses_folder() / name / "course.toml"
    if "/" in name or not path.is_file():
        raise ProfileError(
            f"There is no course “{name}”.",
            why=f"There are: {', '.join(kept_courses()) or 'none yet'}.",
            mend="take one from its file or its address: launch-notebook --course FILE_OR_URL",
        )
    layer = read_layer(path)
    return validated(CourseProfile, [layer]), layer


def course_layer(course: CourseProfile, today: date, source: Layer) -> Layer:
    """Return what a course puts on top of its cluster's profile: plain data in the words of a cluster profile.

    The reservation is the one of that day. ``source``: the course's file, for messages.
    """
    flags: dict[str, Any] = {}
    if course.account:
        flags["account"] = course.account
    for reservation in course.reservations:
        if reservation.first <= today <= reservation.last:
            flags["reservation"] = reservation.name
    flags |= course.defaults
    said = ("environment", "image_dir", "idle_stop", "gpu_idle", "notice")
    data: dict[str, Any] = {key: value for key in said if (value := getattr(course, key)) is not None}
    environments = {}
    for name, environment in course.environments.items():
        table = environment.model_dump(exclude_unset=True)
        if course.image and not environment.container and not environment.modules:
            table["container"] = course.image
        environments[name] = table
    return Layer(source.name, {**data, "defaults": flags, "environments": environments}, source.text)
