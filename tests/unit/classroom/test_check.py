"""``classroom check``: what is refused at once, what is said first, and the last word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from notebook_launcher.classroom import check as check_module
from notebook_launcher.cli.app import run
from notebook_launcher.core.check_runner import CheckRunner
from notebook_launcher.core.errors import ChecksFailed
from notebook_launcher.core.finding import fault
from tests.doubles import RecordingView


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config" / "clusters").mkdir(parents=True)
    (tmp_path / "config" / "clusters" / "uni.toml").write_text('host = "login.uni.example"\n')
    (tmp_path / "students.csv").write_text("alice\n")
    (tmp_path / "course.toml").write_text('name = "lab"\ncluster = "uni"\n')


@pytest.mark.parametrize("time", ["2026-11-28T13", "2026-11-28", "2026-11-28 13:00", "2026-13-28T13:00", "soon"])
def test_a_time_that_the_scheduler_would_refuse_is_refused_at_once(
    time: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["classroom", "check", "students.csv", "--cluster", "uni", "--at", time]) == 2
    assert "--at takes a day and a time: 2026-11-28T13:00" in capsys.readouterr().err


def test_without_a_course_the_first_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def doctor(_options: object, _here: object, view: Any, *_: object, first: Any, **__: object) -> None:
        first(CheckRunner(view))

    monkeypatch.setattr(check_module, "doctor", doctor)
    assert run(["classroom", "check", "students.csv", "--cluster", "uni", "--at", "2026-11-28T13:00"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "course none: this checks a plain launch with the profile uni. → --course ./course.toml" in said
    assert run(["classroom", "check", "students.csv", "--course", "course.toml"]) == 0
    assert "plain launch" not in capsys.readouterr().out


def test_the_last_word_names_whom_it_concerns_and_repeats_each_hint() -> None:
    checks = CheckRunner(RecordingView())
    checks.report("students", fault("Not known: bob.", "correct their names", students=["bob"]))
    checks.report("accounts", fault("Not in it: bob, zed.", "add them", students=["bob", "zed"]))
    with pytest.raises(ChecksFailed) as failed:
        checks.summarise()
    assert failed.value.why == "These students could not launch: bob, zed."
    assert failed.value.hint == "correct their names\n→ add them"
    checks.report("image", fault("No image.", "build it"))
    with pytest.raises(ChecksFailed) as failed:
        checks.summarise()
    assert failed.value.why.startswith("A launch would fail because of this. These students")
