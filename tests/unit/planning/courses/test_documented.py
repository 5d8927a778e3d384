"""The page on courses describes every key, and its example is a course."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from notebook_launcher.core.errors import (
    LauncherError,
)
from notebook_launcher.profiles.courses import saved_course
from notebook_launcher.profiles.models import CourseProfile, Reservation
from notebook_launcher.profiles.validation import key_types_of
from tests.paths import DOCS
from tests.unit.planning.courses.course_files import plan_on, take, write

DOCUMENTED = (DOCS / "courses.md").read_text()


@pytest.mark.parametrize(
    ("heading", "model"), [("The keys of a course", CourseProfile), ("`[[reservations]]`", Reservation)]
)
def test_every_key_is_documented(heading: str, model: type[CourseProfile | Reservation]) -> None:
    section = DOCUMENTED.partition(f"## {heading}")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", section, re.M) == list(key_types_of(model))


def test_the_documented_example_is_a_course(tmp_path: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", DOCUMENTED, re.S)
    assert example
    path = write(tmp_path / "t", {"course.toml": example[1], "beginner.ipynb": "{}", "lab3.ipynb": "{}"})
    take(path)
    plan = plan_on("2026-11-24", arguments=("tf-mkl",), flags={"gpus": "0", "ntasks": "4"})
    assert plan.request.flags["reservation"] == "gpulab-1"
    assert plan.environment.venv == "/opt/envs/tf-mkl"
    assert set(saved_course("gpulab2026").course.environments) == {"tf-gpu", "tf-mkl", "tf-pip"}


def test_errors_of_a_course_are_errors_of_ours() -> None:
    for word in ("nothing", "./nothing.toml", "https://127.0.0.1:1/c.toml"):
        with pytest.raises(LauncherError) as caught:
            take(word, True)
        assert caught.value.hint
