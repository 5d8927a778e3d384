"""A course that was taken: replaced, damaged, forgotten, and what commands make of it."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from notebook_launcher.cli.views.text_view import TextView
from notebook_launcher.core import events
from notebook_launcher.core.errors import (
    AnswerMissing,
    ProfileError,
    ReservationRefused,
    UsageError,
)
from notebook_launcher.jobs.submit import name_profile_in_refusal
from notebook_launcher.planning.course_commands import forget_course, take_course
from notebook_launcher.planning.plan import make_plan
from notebook_launcher.planning.target import LaunchOptions, LocalMachine
from notebook_launcher.profiles.courses import saved_course, saved_courses
from tests.doubles import FakePrompts, RecordingView
from tests.unit.planning.courses.course_files import COMMON, COURSE, FILES, digest_of, plan_on, take, write
from tests.unit.planning.courses.web_server import Server

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize(
    ("name", "change"),
    [("files/one.ipynb", None), ("files/one.ipynb", "other"), ("course.toml", 'name = "gpu2026"\naccount = "evil"\n')],
)
def test_what_was_changed_or_lost_where_it_is_kept_is_put_right(
    web: Server, course: Path, configuration: Path, name: str, change: str | None
) -> None:
    url = web.put(FILES)
    for word in (f"{url}#sha256={digest_of(course)}", url, str(course)):
        with contextlib.suppress(ProfileError):
            forget_course("gpu2026", RecordingView())
        take(word, True)
        path = configuration / "courses" / "gpu2026" / name
        path.unlink() if change is None else path.write_text(change)
        _, view, prompts = take(word)
        assert prompts.asked == [], "what was agreed to is not asked about again"
        assert saved_course("gpu2026").files().digest == digest_of(course)
        assert "they are saved again" in view.notes


def test_another_course_of_the_same_name_is_not_taken_unasked(course: Path, tmp_path: Path) -> None:
    take(course)
    other = write(tmp_path / "other", {**FILES, "common.toml": COMMON.replace("course.sif", "other.sif")})
    for answer in (None, False):
        with pytest.raises(AnswerMissing, match="already, from") as caught:
            take(other, answer)
        assert "course forget gpu2026" in caught.value.hint
    assert saved_course("gpu2026").source == str(course)
    take(other, True)
    assert (saved_course("gpu2026").source, plan_on().container) == (str(other), "/sw/images/other.sif")


def test_the_same_course_may_lie_elsewhere_now(course: Path, tmp_path: Path) -> None:
    take(course)
    moved = write(tmp_path / "downloads")
    assert take(moved)[1].events == []
    assert saved_course("gpu2026").source == str(moved)


def test_a_name_means_a_course_that_was_taken(course: Path) -> None:
    with pytest.raises(ProfileError, match="no course “gpu2026”"):
        take("gpu2026")
    take(course)
    assert take("gpu2026")[0] == "gpu2026"


def test_a_course_that_is_damaged_can_be_taken_again(course: Path, configuration: Path) -> None:
    take(course)
    (configuration / "courses" / "gpu2026" / "course.toml").write_text("nonsense")
    with pytest.raises(ProfileError, match=r"course\.toml"):
        plan_on()
    take(course)
    assert plan_on().request.flags["account"] == "edu26"


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError])
def test_a_newer_one_that_does_not_arrive_leaves_the_older(
    course: Path, configuration: Path, monkeypatch: pytest.MonkeyPatch, stop: type[BaseException]
) -> None:
    take(course)
    course.write_text(COURSE.replace("edu26", "edu27"))
    rename = Path.replace

    def stopped(path: Path, target: Path) -> Path:
        if path.name == "new":
            raise stop
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", stopped)
        with pytest.raises(ProfileError if stop is OSError else stop):
            take(course)
    assert [path.name for path in (configuration / "courses").iterdir()] == ["gpu2026"]
    assert plan_on().request.flags["account"] == "edu26"


@pytest.mark.parametrize(
    "look", [lambda: saved_course("gpu2026").course.account, lambda: (saved_courses(), "edu26")[1]]
)
def test_a_launcher_that_was_killed_while_it_kept_a_course(
    course: Path, configuration: Path, look: Callable[[], str]
) -> None:
    take(course)
    kept = configuration / "courses" / "gpu2026"
    kept.rename(kept.with_name(".old-gpu2026"))  # as far as it came
    assert look() == "edu26"
    assert [path.name for path in kept.parent.iterdir()] == ["gpu2026"]
    kept.with_name(".old-gpu2026").mkdir()  # or a little further
    course.write_text(COURSE.replace("edu26", "edu27"))
    take(course)
    assert plan_on().request.flags["account"] == "edu27"
    assert [path.name for path in kept.parent.iterdir()] == ["gpu2026"]


def test_a_configuration_that_was_saved_with_a_mark_is_read_and_changed(course: Path, configuration: Path) -> None:
    (configuration / "config.toml").write_bytes('\ufeff# mine\ncluster = "uni"\n'.encode())  # Windows' editor
    take(course)
    assert plan_on().target.course.name == "gpu2026"
    forget_course("gpu2026", RecordingView())
    assert (configuration / "config.toml").read_text() == '# mine\ncluster = "uni"\n'
    assert len(list(configuration.iterdir())) == 3


def test_a_course_on_this_machine_is_told_for_what_it_is(course: Path) -> None:
    for name in (course, "gpu2026"):
        with pytest.raises(UsageError, match="needs a cluster") as caught:
            make_plan(
                LaunchOptions(course=take_course(str(name), RecordingView(), FakePrompts(), "here"), cluster="here"),
                LocalMachine("x"),
            )
        assert "--cluster uni" in caught.value.hint
        take(course)


def test_a_base_that_has_gone_is_told_by_the_line(course: Path, configuration: Path) -> None:
    take(course)
    (configuration / "courses" / "gpu2026" / "files" / "common.toml").unlink()
    with pytest.raises(ProfileError) as caught:
        plan_on()
    assert re.search(r"course\.toml:2: .*common\.toml cannot be read", caught.value.what)


def test_a_course_is_named_once_by_a_command() -> None:
    shown = io.StringIO()
    with TextView(Console(file=shown, width=80)) as view:
        for first in (True, False):
            view.show(events.CourseUsed("gpu2026", "/c.toml", "12", "A lab", first))
    assert shown.getvalue().count("gpu2026") == 1
    with TextView(Console(file=shown, width=80)) as view:
        view.show(events.CourseUsed("gpu2026", "/c.toml", "12", "A lab", first=False))
    assert "Course gpu2026: A lab" in shown.getvalue()


def test_a_course_is_forgotten(course: Path, configuration: Path) -> None:
    take(course)
    view = RecordingView()
    forget_course("gpu2026", view)
    assert (saved_courses(), plan_on().target.course) == ([], None)
    assert (configuration / "config.toml").read_text() == '# mine\ncluster = "uni"\n'
    with pytest.raises(ProfileError, match="no course"):
        forget_course("gpu2026", view)
    with pytest.raises(ProfileError, match="no course"):
        forget_course("../clusters", view)
    assert (configuration / "clusters").is_dir()


def test_what_is_refused_is_told_as_the_courses_wish(course: Path) -> None:
    take(course)
    with pytest.raises(ReservationRefused) as caught, name_profile_in_refusal(plan_on()):
        raise ReservationRefused("Slurm refused the job.", hint="leave it out")
    assert "The course “gpu2026” asks for it: --reservation=week." in caught.value.why
    assert "replaces the course's" in caught.value.hint


def test_tab_offers_the_environments_of_the_course(course: Path) -> None:
    take(course)
    typed = {"COMP_WORDS": "launch-notebook -- tf", "COMP_CWORD": "2", "_LAUNCH_NOTEBOOK_COMPLETE": "bash_complete"}
    program = (
        "from notebook_launcher.cli.app import cli; cli(prog_name='launch-notebook', obj={'flags': {}, 'words': ()})"
    )
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, **typed}, capture_output=True, text=True)
    assert done.stdout.split() == ["plain,tf-gpu", "plain,tf-mkl"], done.stderr
