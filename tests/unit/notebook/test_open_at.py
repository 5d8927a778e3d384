"""What JupyterLab opens with: a folder, a notebook there, a notebook that is sent, a course's folder."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.request import Request
from notebook_launcher.hosts.counted_prompts import CountedPrompts
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.notebook.open_at import place_to_open
from notebook_launcher.planning.plan import Plan
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles.courses import notebook_to_open
from notebook_launcher.profiles.models import ClusterProfile, CourseProfile, Environment, Reservation
from notebook_launcher.schedulers.slurm.commands import Slurm
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import inspect_host
from notebook_launcher.tunnel.forwarding import Endpoint
from tests.doubles import FakePrompts, RecordingView


class Remote(LocalHost):
    """This machine as if it were a login node, with a home of its own."""

    remote = True
    label = "login"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "home"


def opened(
    open_at: str | None,
    *,
    remote: bool = True,
    course: CourseProfile | None = None,
    prompts: FakePrompts | None = None,
    **flags: str,
) -> str:
    host = Remote() if remote else LocalHost()
    target = LaunchTarget(ClusterProfile(), None, None, "slurm", course=course)
    site = inspect_host(host)
    view = RecordingView()
    counted = CountedPrompts(prompts or FakePrompts(asks=False))
    context = Context(target, host, site, Slurm(), "/r", view, counted, Interrupts())
    notebook = notebook_to_open(course, date(2026, 11, 24)) if course else None
    plan = Plan(target, Request(dict(flags)), None, Environment(), None, open_at=open_at, course_notebook=notebook)
    place = place_to_open(context, plan)
    shown.extend(view.all(events.NotebooksCopied))
    return place


shown: list[events.NotebooksCopied] = []


@pytest.fixture(autouse=True)
def _nothing_shown() -> None:
    shown.clear()


@pytest.mark.parametrize(
    ("typed", "place"),
    [
        ("lab", "lab"),
        ("lab/train me.ipynb", "lab/train me.ipynb"),
        ("~/lab/", "lab"),
        ("$HOME/lab", "lab"),
        ("HOME/lab/a.ipynb", "lab/a.ipynb"),
        ("lab/../x", "x"),
        (".", ""),
        ("~", ""),
    ],
)
def test_a_place_below_the_home(home: Path, typed: str, place: str) -> None:
    for name in ("lab/train me.ipynb", "lab/a.ipynb", "x/y"):
        (home / name).mkdir(parents=True)  # a file would be one of this machine's, too
    assert opened(typed.replace("HOME/", f"{home}/") if typed.startswith("HOME") else typed) == place


@pytest.mark.parametrize("typed", ["/proj/lab", "..", "lab/../../other", "~/../bob", "HOMEs/lab"])
def test_what_jupyterlab_does_not_show_is_refused(home: Path, typed: str) -> None:
    with pytest.raises(UsageError) as caught:
        opened(typed.replace("HOME", str(home)))
    assert str(home) in caught.value.why and "--chdir" in caught.value.hint


def test_what_is_not_there_is_refused_before_anything_is_queued(home: Path) -> None:
    with pytest.raises(UsageError, match=r"no trian.ipynb in .* on login, and no notebook trian.ipynb here") as caught:
        opened("trian.ipynb")
    assert "on this machine" in caught.value.hint
    with pytest.raises(UsageError, match="There is no lab in"):
        opened("lab", remote=False)


def test_below_the_folder_in_which_the_job_starts(home: Path) -> None:
    """Where only the compute node has that folder, nobody can know before."""
    (home / "course/lab").mkdir(parents=True)
    Path("x.ipynb").touch()
    assert opened("/proj/course/lab", chdir="/proj/course") == "lab"
    assert opened("lab", chdir="~/course") == "lab"
    assert opened("x.ipynb", remote=False) == "x.ipynb", "on this machine, below the present folder"
    with pytest.raises(UsageError):
        opened("~/lab", chdir="/proj/course")


def test_a_notebook_that_is_here_is_sent_and_what_was_changed_there_stays(home: Path) -> None:
    here = Path("train.ipynb")
    here.write_text('{"first": 1}')
    assert opened("train.ipynb") == "train.ipynb"
    assert json.loads((home / "train.ipynb").read_text()) == {"first": 1}
    assert shown[0].copied == ("train.ipynb",)
    here.write_text('{"second": 1}')
    opened("./train.ipynb")
    assert json.loads((home / "train.ipynb").read_text()) == {"second": 1}, "nobody has changed it there"
    (home / "train.ipynb").write_text('{"hers": 1}')
    here.write_text('{"third": 1}')
    assert opened("train.ipynb") == "train.ipynb"
    assert json.loads((home / "train.ipynb").read_text()) == {"hers": 1}
    assert shown[-1].kept == ("train.ipynb",)


def test_of_two_versions_the_user_is_asked_which_to_open(home: Path) -> None:
    here, there = Path("train.ipynb"), home / "train.ipynb"
    here.write_text('{"mine": 1}')
    there.write_text('{"hers": 1}')
    prompts = FakePrompts(confirms=[True])
    new = opened("train.ipynb", prompts=prompts)
    assert new.startswith("train.new-") and (home / new).read_text() == '{"mine": 1}'
    assert there.read_text() == '{"hers": 1}', "which is never replaced"
    assert prompts.asked == [f"train.ipynb on login is another version, and is kept. Open yours instead ({new})?"]
    for number, prompts in enumerate((FakePrompts(confirms=[False]), FakePrompts(asks=False))):
        (home / new).unlink()
        here.write_text(f'{{"mine": {number}, "again": 1}}')
        assert opened("train.ipynb", prompts=prompts) == "train.ipynb"
        assert len(prompts.asked) == (1 if prompts.asks else 0)


def test_each_further_launch_asks_again_and_opens_the_version_that_is_beside_the_other(home: Path) -> None:
    here, there = Path("train.ipynb"), home / "train.ipynb"
    here.write_text('{"mine": 1}')
    there.write_text('{"hers": 1}')
    first = opened("train.ipynb", prompts=FakePrompts(confirms=[True]))
    prompts = FakePrompts(confirms=[True])
    assert opened("train.ipynb", prompts=prompts) == first
    assert prompts.asked == [f"train.ipynb on login is another version, and is kept. Open yours instead ({first})?"]
    assert opened("train.ipynb", prompts=FakePrompts(confirms=[False])) == "train.ipynb"
    (home / first).write_text('{"mine": 1, "and worked on there": 1}')
    assert opened("train.ipynb", prompts=FakePrompts(confirms=[True])) == first, "work goes on where it was left"
    (home / first).unlink()
    assert opened("train.ipynb", prompts=FakePrompts(confirms=[True])) == first, "it is sent again"
    assert (home / first).read_text() == '{"mine": 1}'


def test_a_further_version_of_the_same_day_has_a_name_of_its_own(home: Path) -> None:
    here, there = Path("train.ipynb"), home / "train.ipynb"
    there.write_text('{"hers": 1}')
    names = []
    for number in range(3):
        here.write_text(f'{{"mine": {number}}}')
        names.append(opened("train.ipynb", prompts=FakePrompts(confirms=[True])))
        assert shown[-1].copied == (names[-1],) and shown[-1].kept == ("train.ipynb",)
    assert [(home / name).read_text() for name in names] == [f'{{"mine": {number}}}' for number in range(3)]
    assert names[1] == names[0].replace(".ipynb", "-2.ipynb") and names[2] == names[0].replace(".ipynb", "-3.ipynb")
    here.write_text('{"mine": 1}')
    assert opened("train.ipynb", prompts=FakePrompts(confirms=[True])) == names[1], "it is there already"


def test_beside_a_link_of_that_name_the_version_is_sent_too(home: Path) -> None:
    Path("train.ipynb").write_text('{"mine": 1}')
    (home / "project.ipynb").write_text('{"hers": 1}')
    (home / "train.ipynb").symlink_to("project.ipynb")
    new = opened("train.ipynb", prompts=FakePrompts(confirms=[True]))
    assert new.startswith("train.new-") and (home / new).read_text() == '{"mine": 1}'
    assert (home / "project.ipynb").read_text() == '{"hers": 1}'


def test_a_course_opens_in_its_folder_with_the_notebook_of_its_lab(home: Path) -> None:
    for folder in ("other", "gpu lab/week2"):
        (home / folder).mkdir(parents=True)
    for notebook in ("a.ipynb", "week2/b.ipynb"):
        (home / "gpu lab" / notebook).touch()
    course = CourseProfile(name="lab", notebooks=["a.ipynb", "data/x.csv"], folder="~/gpu lab")
    assert opened(None, course=course) == "gpu lab/a.ipynb", "there is no other one"
    several = course.changed(notebooks=("a.ipynb", "week2/b.ipynb"))
    assert opened(None, course=several) == "gpu lab"
    named = several.changed(open_at="week2/b.ipynb")
    assert opened(None, course=named) == "gpu lab/week2/b.ipynb"
    days = (date(2026, 11, 24), date(2026, 11, 25))
    today = Reservation(name="lab1", first=days[0], last=days[0], open_at="a.ipynb")
    assert opened(None, course=named.changed(reservations=(today,))) == "gpu lab/a.ipynb"
    tomorrow = Reservation(name="lab2", first=days[1], last=days[1], open_at="a.ipynb")
    assert opened(None, course=named.changed(reservations=(tomorrow,))) == "gpu lab/week2/b.ipynb"
    assert opened("other", course=course) == "other"
    assert opened(None, course=CourseProfile(name="lab")) == "", "nothing was copied"
    assert opened(None, course=course, chdir="/proj") == "", "which JupyterLab does not show there"


@pytest.mark.parametrize(("folder", "chdir"), [("~/gpulab", "~/gpulab"), ("~", None), ("~/", None), ("~/x/../", None)])
def test_a_course_whose_folder_is_jupyterlabs_opens_with_its_notebook(
    home: Path, folder: str, chdir: str | None
) -> None:
    (home / "gpulab").mkdir()
    for place in (home, home / "gpulab"):
        (place / "a.ipynb").touch()
    course = CourseProfile(name="lab", notebooks=["a.ipynb"], folder=folder)
    assert opened(None, course=course, **({"chdir": chdir} if chdir else {})) == "a.ipynb"


def test_a_courses_notebook_that_is_not_there_is_not_opened(home: Path) -> None:
    """The student has deleted it, or the notebooks could not be copied."""
    course = CourseProfile(name="lab", notebooks=["a.ipynb"], folder="~/gpulab")
    assert opened(None, course=course) == "", "nor its folder"
    (home / "gpulab").mkdir()
    assert opened(None, course=course) == "gpulab"


def test_the_place_in_the_address_is_quoted() -> None:
    endpoint = Endpoint(8888)
    assert endpoint.url(5, "t?", "lab/träin #1?.ipynb").endswith("/lab/tree/lab/tr%C3%A4in%20%231%3F.ipynb?token=t%3F")
    assert endpoint.url(5, "t") == "http://127.0.0.1:5/lab?token=t"
