"""``notebooks list`` and ``notebooks copy``: which are bundled, and copies that never cost the user's own work."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.errors import FolderUnsafe, HostCommandFailed, NotebookInvalid, UsageError
from notebook_launcher.hosts.base import NoPrompts
from notebook_launcher.notebook import bundled_notebooks, prepare
from notebook_launcher.notebook.bundled_notebooks import FOLDER, copy_notebooks, files_of
from notebook_launcher.notebook.prepare import bundled
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles.models import ClusterProfile
from tests.doubles import RecordingView
from tests.paths import DOCS

pytestmark = pytest.mark.timeout(120)
HERE = LaunchTarget(ClusterProfile(), None, None, "local")
FIRST = '{"cells": [{"cell_type": "markdown", "source": "# T\\n\\nOne sentence. Another."}], "v": 1}'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and a folder in which we are."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path / "configuration"))
    monkeypatch.chdir(tmp_path)
    return home


@pytest.fixture
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two bundled notebooks, and what they import."""
    folder = tmp_path / "ours"
    folder.mkdir()
    for name, text in {"a.ipynb": FIRST, "b.ipynb": FIRST, "timing.py": "one", "notes.txt": "not sent"}.items():
        (folder / name).write_text(text)
    monkeypatch.setattr(prepare, "shipped", lambda _: folder)
    return folder


def copy(*names: str, to: str = FOLDER) -> tuple[events.NotebooksCopied, str]:
    """What is told of a copy, and what is noted of it."""
    view = RecordingView()
    copy_notebooks(HERE, names, to, view, NoPrompts())
    (copied,) = [event for event in view.events if isinstance(event, events.NotebooksCopied)]
    return copied, "".join(event.text for event in view.events if isinstance(event, events.Note))


def test_all_come_with_their_helper_for_the_user_alone(home: Path, ours: Path) -> None:
    assert copy() == (events.NotebooksCopied("~/notebooks", ("a.ipynb", "b.ipynb", "timing.py"), ()), "")
    folder = home / "notebooks"
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "a.ipynb": FIRST,
        "b.ipynb": FIRST,
        "timing.py": "one",
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert copy() == (
        events.NotebooksCopied("~/notebooks", (), ()),
        "The notebooks in ~/notebooks on this machine are the newest already.",
    )


@pytest.mark.parametrize("names", [("b",), ("b.ipynb", "timing.py")])
def test_named_ones_come_with_their_helper(home: Path, ours: Path, names: tuple[str, ...]) -> None:
    assert copy(*names)[0].copied == ("b.ipynb", "timing.py")


def test_what_the_user_has_changed_stays_and_a_new_version_lies_beside_it_once(home: Path, ours: Path) -> None:
    copy()
    folder = home / "notebooks"
    (folder / "a.ipynb").write_text("my own work")
    (folder / "timing.py").write_text("my own clock")
    told, note = copy()
    assert (told.copied, told.kept) == ((), ("a.ipynb", "timing.py"))
    assert "Left as you have changed them: a.ipynb, timing.py." in note
    for name in ("a.ipynb", "b.ipynb", "timing.py"):
        (ours / name).write_text("version 2")
    told, _ = copy()
    assert told.kept == ("a.ipynb", "timing.py") and len(told.copied) == 3
    texts = {
        path.name.split(".new-")[0] + path.suffix * (".new-" in path.name): path.read_text()
        for path in folder.iterdir()
        if ".new-" not in path.name
    }
    assert texts == {"a.ipynb": "my own work", "b.ipynb": "version 2", "timing.py": "my own clock"}
    assert sorted(path.read_text() for path in folder.glob("*.new-*")) == ["version 2"] * 2
    assert copy()[0] == events.NotebooksCopied("~/notebooks", (), ("a.ipynb", "timing.py"))
    (folder / "a.ipynb").unlink()  # how to begin afresh
    assert copy("a")[0].copied == ("a.ipynb",)


def test_a_file_that_was_there_before_is_the_users(home: Path, ours: Path) -> None:
    (home / "notebooks").mkdir()
    (home / "notebooks" / "a.ipynb").write_text("from last year")
    told, _ = copy()
    assert told.kept == ("a.ipynb",) and (home / "notebooks" / "a.ipynb").read_text() == "from last year"


def test_an_error_names_whom_to_ask(home: Path, ours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise FolderUnsafe("The home is not safe.", hint="ask the cluster's support why")

    monkeypatch.setattr(bundled_notebooks, "deploy", refuse)
    target = LaunchTarget(ClusterProfile(contact="help@uni.example"), "uni", None, "slurm")
    with pytest.raises(FolderUnsafe) as caught:
        copy_notebooks(target, ["a"], FOLDER, RecordingView(), NoPrompts())
    assert caught.value.hint == "ask the cluster's support (help@uni.example) why"


def test_each_folder_has_a_record_of_its_own(home: Path, ours: Path, tmp_path: Path) -> None:
    """Two copies are both replaced by a new version, as long as nobody has changed them."""
    folders = ("~/one", "$HOME/two", "three")  # the last one: where we are, as it is this machine
    for folder in folders:
        copy(to=folder)
    (ours / "a.ipynb").write_text("version 2")
    assert [copy(to=folder)[0].copied for folder in folders[::2]] == [("a.ipynb",)] * 2
    assert (home / "one" / "a.ipynb").read_text() == "version 2"
    assert (tmp_path / "three" / "a.ipynb").read_text() == "version 2"
    assert len(list((home / ".notebook-launcher" / "notebooks").iterdir())) == 3


def test_what_cannot_be_is_told(home: Path, ours: Path) -> None:
    with pytest.raises(NotebookInvalid) as unknown:
        copy("aa")
    assert unknown.value.hint == "did you mean a?"
    for odd in ("", "~bob/notebooks", "a\nb"):
        with pytest.raises(UsageError):
            copy(to=odd)
    (home / "notebooks").write_text("a file in the way")
    with pytest.raises(HostCommandFailed) as failed:
        copy()
    assert failed.value.what == "The notebooks were not copied to ~/notebooks on this machine."
    assert "Not a directory" in failed.value.why and "--to" in failed.value.hint


def test_the_notebooks_that_come_along_can_all_be_copied() -> None:
    assert {f"{name}.ipynb" for name in bundled()} | {"timing.py"} <= set(files_of(()))
    assert {Path(name).suffix for name in files_of(())} == {".ipynb", ".py", ".csv", ".json"}


def test_each_of_them_is_documented() -> None:
    table = (DOCS / "notebooks.md").read_text()
    assert [name for name in bundled() if f"\n| `{name}` | " not in table] == []


def launcher(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "notebook_launcher", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "80"})


@pytest.mark.real_time
def test_the_list_needs_nothing_and_tells_each_in_a_sentence(home: Path) -> None:
    listed = launcher("notebooks", "list")
    assert listed.returncode == 0, listed.stderr
    assert all(f"{name} " in listed.stdout for name in bundled())
    (line,) = launcher("notebooks", "list", "--json").stdout.splitlines()
    told = dict(json.loads(line)["notebooks"])
    assert list(told) == list(bundled()) and all(told.values())
    assert list(home.iterdir()) == []


@pytest.mark.real_time
def test_the_command_copies_to_this_machine_without_a_cluster(home: Path) -> None:
    done = launcher("notebooks", "copy", "helo")
    assert done.returncode == NotebookInvalid.exit_code and "did you mean hello?" in done.stderr
    done = launcher("notebooks", "copy", "hello", "--to", "lab", "--cluster", "here")
    assert done.returncode == 0, done.stderr
    assert "hello.ipynb, timing.py" in done.stderr
    assert (home.parent / "lab" / "hello.ipynb").read_bytes() == bundled()["hello"].read_bytes()
