"""Programs beside JupyterLab that a course brings: nothing runs unseen, and no other one's place is taken unsaid."""

from __future__ import annotations

from pathlib import Path

import pytest

from notebook_launcher.core.errors import ProfileError
from notebook_launcher.profiles.icons import data_url
from tests.unit.planning.courses.course_files import CLUSTER, COMMON, FILES, digest_of, plan_on, take, write

BOARD = """
[apps.board]
title = "The course's"
command = ["board", "--name", "two words", "{socket}"]
"""


def with_apps(folder: Path, text: str) -> Path:
    return write(folder, {**FILES, "common.toml": COMMON + text})


def test_one_of_the_course_is_told_and_started(tmp_path: Path) -> None:
    take(with_apps(tmp_path, BOARD))
    plan = plan_on(apps=("board",))
    (app,) = plan.apps
    assert (app.title, app.commands) == ("The course's", (("board", "--name", "two words", "{socket}"),))
    assert "The course's app “board” runs: board --name 'two words' '{socket}'" in plan.notes
    assert not [note for note in plan_on(apps=("tensorboard",)).notes if "course's app" in note]


def test_none_of_the_profiles_is_replaced_unsaid_or_by_halves(tmp_path: Path, configuration: Path) -> None:
    mine = '\n[apps.board]\ntitle = "Mine"\nhealth = "/mine"\ncommand = ["mine", "{socket}"]\n'
    (configuration / "clusters" / "uni.toml").write_text(CLUSTER + mine)
    untitled = BOARD.replace('title = "The course\'s"\n', "")
    take(with_apps(tmp_path, untitled + untitled.replace("apps.board", "apps.code")))
    plan = plan_on(apps=("board", "code"))
    assert [(app.title, app.health) for app in plan.apps] == [("board", "/"), ("code", "/")]
    notes = "\n".join(plan.notes)
    assert "The course's app “board” replaces the profile's, and runs: board --name" in notes
    assert "The course's app “code” replaces the built-in one, and runs: board --name" in notes


def test_one_that_would_listen_on_a_port_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"common\.toml:\d+: .*needs \{socket\}"):
        take(with_apps(tmp_path, '\n[apps.board]\ncommand = ["board", "--port", "80"]\n'))


def test_an_icon_belongs_to_the_course(tmp_path: Path) -> None:
    """It is copied, counts in the digest, and is told when it is another one."""
    course = with_apps(tmp_path, f'{BOARD}icon = "board.svg"\n')
    with pytest.raises(ProfileError, match=r"board\.svg cannot be read"):
        take(course)
    (tmp_path / "board.svg").write_text("<p>")
    with pytest.raises(ProfileError, match=r"common\.toml:\d+: board\.svg cannot be used as an icon"):
        take(course)
    (tmp_path / "board.svg").write_text("<svg>1</svg>")
    take(course)
    digest = digest_of(course)
    (tmp_path / "board.svg").write_text("<svg>2</svg>")
    assert digest_of(course) != digest
    assert plan_on(apps=("board",)).apps[0].icon == data_url("board.svg", b"<svg>1</svg>", "")
    assert "! board.svg is another version" in take(course)[1].notes
    assert plan_on(apps=("board",)).apps[0].icon == data_url("board.svg", b"<svg>2</svg>", "")
