"""A course to take in tests, with its files, and somebody who takes it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from notebook_launcher.planning import course_commands
from notebook_launcher.planning.course_commands import take_course
from notebook_launcher.planning.plan import make_plan
from notebook_launcher.planning.target import LaunchOptions, LocalMachine
from notebook_launcher.profiles.courses import choose_course
from tests.doubles import FakePrompts, RecordingView

LAUNCHER = [sys.executable, "-m", "notebook_launcher"]


CLUSTER = """\
host = "login.uni.example"
image_dir = "/sw/images"
environment = "site"

[defaults]
gres = "gpu:a100:1"
mem = "8G"

[environments.site]
container = "site.sif"
"""
COMMON = """\
cluster = "uni"
environment = "tf-gpu"
image = "course.sif"
account = "old"

[defaults]
gpus = 2

[environments.tf-gpu]
activate = "conda activate tf-gpu; export X='$HOME'"

[environments.tf-mkl]
conda = "tf-mkl"
"""
COURSE = """\
name = "gpu2026"
base = "common.toml"
description = "Computing with GPUs"
account = "edu26"
notebooks = ["one.ipynb", "week2/two.ipynb"]
first = 2026-11-01
last = 2026-12-31

[[reservations]]
name = "monday"
first = 2026-11-23
last = 2026-11-23

[[reservations]]
name = "week"
first = 2026-11-23
last = 2026-11-29
"""
FILES = {"course.toml": COURSE, "common.toml": COMMON, "one.ipynb": '{"one": 1}\n', "week2/two.ipynb": '{"two": 2}\n'}


def write(folder: Path, files: Mapping[str, str] = FILES) -> Path:
    """Write the files of a course, and return the path of its own."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "course.toml"


def take(word: str | Path, *answers: bool | None) -> tuple[str, RecordingView, FakePrompts]:
    """Take a course, answering like this, as the default; return its name, what was shown and what was asked."""
    view, prompts = RecordingView(), FakePrompts(confirms=answers)
    name = take_course(str(word), view, prompts)
    choose_course(name)
    return name, view, prompts


def plan_on(day: str = "2026-11-24", **ask: Any) -> Any:
    """Return the plan of a launch on a day."""
    return make_plan(LaunchOptions(**ask), LocalMachine("laptop", today=date.fromisoformat(day)))


def digest_of(path: Path) -> str:
    return course_commands.digest_of(str(path), RecordingView())
