"""The notebooks of a course in a student's folder: theirs are never written over."""

from __future__ import annotations

import datetime
import json
import stat
import types
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from notebook_launcher.core import events
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.notebook.deploy import decide, deploy_notebooks
from notebook_launcher.notebook.manifest import name_beside
from notebook_launcher.profiles.courses import saved_course
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Site
from tests.doubles import RecordingView
from tests.unit.planning.courses.course_files import FILES, take, write


def test_what_becomes_of_each_notebook() -> None:
    wanted = {"new": "2", "same": "2", "ours": "2", "theirs": "2", "unknown": "2", "odd": "2", "seen": "2"}
    there = {"new": "", "same": "2", "ours": "1", "theirs": "x", "unknown": "x", "odd": "odd", "seen": "x"}
    there |= {name_beside(name, "new-D"): "" for name in wanted}
    deployed = {"same": "1", "ours": "1", "theirs": "1", "seen": "2"}
    moves, kept = decide(wanted, there, deployed, "D")
    assert [(move.notebook, move.target, move.over) for move in moves] == [
        ("new", "new", ""),
        ("ours", "ours", "1"),
        ("theirs", "theirs.new-D", ""),
        ("unknown", "unknown.new-D", ""),
    ]
    assert kept == ["theirs", "unknown", "odd", "seen"]
    assert name_beside("week.2/a.b.ipynb", "new-D") == "week.2/a.b.new-D.ipynb"
    assert name_beside("week.2/README", "new-D") == "week.2/README.new-D"


@pytest.fixture
def student(tmp_path: Path) -> Callable[[], events.Event]:
    """Bring the kept course's notebooks into a student's home, and return what was told."""
    home = tmp_path / "home"
    home.mkdir()
    site = Site(str(home), "alice", "login", datetime.datetime(2026, 11, 24, 9, tzinfo=datetime.timezone.utc))

    def bring() -> events.Event:
        view = RecordingView()
        context = types.SimpleNamespace(host=LocalHost(), site=site, view=view, clock=lambda: site.now)
        deploy_notebooks(cast(Context, context), saved_course("gpu2026").course)
        return [event for event in view.events if not isinstance(event, events.Querying)][-1]

    return bring


def test_the_students_own_work_is_never_written_over(
    course: Path, tmp_path: Path, student: Callable[[], events.NotebooksCopied]
) -> None:
    take(course)
    folder = tmp_path / "home" / "gpu2026"
    assert student() == events.NotebooksCopied("~/gpu2026", ("one.ipynb", "week2/two.ipynb"), ())
    assert (folder / "week2/two.ipynb").read_text() == FILES["week2/two.ipynb"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "one.ipynb")] == [0o700, 0o600]
    assert student() == events.NotebooksCopied("~/gpu2026", (), ())
    (folder / "one.ipynb").write_text("my own work")
    (folder / "mine.ipynb").write_text("mine as well")
    assert student() == events.NotebooksCopied("~/gpu2026", (), ("one.ipynb",))
    # new versions: the changed one gets it beside, once; the other is replaced
    write(course.parent, {"one.ipynb": "new one", "week2/two.ipynb": "new two"})
    take(course)
    beside_it = "one.new-2026-11-24.ipynb"
    assert student() == events.NotebooksCopied("~/gpu2026", (beside_it, "week2/two.ipynb"), ("one.ipynb",))
    (folder / beside_it).unlink()
    assert student() == events.NotebooksCopied("~/gpu2026", (), ("one.ipynb",))
    texts = {path.name: path.read_text() for path in folder.rglob("*.ipynb")}
    assert texts == {"one.ipynb": "my own work", "mine.ipynb": "mine as well", "two.ipynb": "new two"}
    (folder / "one.ipynb").unlink()  # how to begin afresh
    assert student() == events.NotebooksCopied("~/gpu2026", ("one.ipynb",), ())
    assert sorted(path.name for path in folder.iterdir()) == ["mine.ipynb", "one.ipynb", "week2"]


def test_a_notebook_that_was_there_before_is_the_students(
    course: Path, tmp_path: Path, student: Callable[[], events.NotebooksCopied]
) -> None:
    take(course)
    folder = tmp_path / "home" / "gpu2026"
    write(folder, {"one.ipynb": "from last year", "one.new-2026-11-24.ipynb": "also mine"})
    assert student() == events.NotebooksCopied("~/gpu2026", ("week2/two.ipynb",), ("one.ipynb",))
    assert (folder / "one.ipynb").read_text() == "from last year"
    assert (folder / "one.new-2026-11-24.ipynb").read_text() == "also mine"


def test_links_in_the_folder_lead_no_writing_elsewhere(
    course: Path, tmp_path: Path, student: Callable[[], events.NotebooksCopied]
) -> None:
    take(course)
    folder, elsewhere = tmp_path / "home" / "gpu2026", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("precious")
    (folder / "one.ipynb").symlink_to(elsewhere / "precious")
    (folder / "week2").symlink_to(elsewhere)
    assert student() == events.NotebooksCopied("~/gpu2026", (), ("one.ipynb", "week2/two.ipynb"))
    assert [path.name for path in elsewhere.iterdir()] == ["precious"]
    assert (elsewhere / "precious").read_text() == "precious"
    (folder / "one.ipynb").unlink()
    (folder / "one.ipynb").symlink_to(elsewhere / "nowhere")
    student()
    assert not (elsewhere / "nowhere").exists()


def test_where_it_cannot_be_done_it_is_told_and_no_more(
    course: Path, tmp_path: Path, student: Callable[[], events.Note]
) -> None:
    take(course)
    (tmp_path / "home" / "gpu2026").write_text("a file in the way")
    told = student()
    assert isinstance(told, events.Note)
    assert "were not copied to ~/gpu2026" in told.text and "Not a directory" in told.text


def test_names_are_no_shells_words(course: Path, tmp_path: Path, student: Callable[[], events.NotebooksCopied]) -> None:
    odd = "a $(touch x) 'b' \"c\" ü !e.ipynb"
    write(course.parent, {odd: "odd", "course.toml": f'name = "gpu2026"\nnotebooks = [{json.dumps(odd)}]\n'})
    take(course)
    assert student() == events.NotebooksCopied("~/gpu2026", (odd,), ())
    assert [path.name for path in (tmp_path / "home" / "gpu2026").iterdir()] == [odd]
