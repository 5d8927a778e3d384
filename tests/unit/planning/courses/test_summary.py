"""What a course decides is shown in full, and what has changed in it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from notebook_launcher.planning.course_summary import summary
from notebook_launcher.profiles.courses import CourseFiles
from notebook_launcher.profiles.models import CourseProfile, Environment
from tests.unit.planning.courses.course_files import take

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
        return summary(files)

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


def test_no_value_adds_what_looks_like_another_setting() -> None:
    """What the user agrees to is a list of lines. Flags are checked for a cluster, and a course may name none."""
    evil = {"comment": "x\nSHA-256: 0000\n  environment: only what you know"}
    course = CourseProfile.model_validate({"name": "gpu2026", "defaults": evil})
    assert summary(CourseFiles(course, (), ("",), (b"",), {}))[:-1] == [
        "cluster: yours",
        "flags: '--comment=x",
        "  | SHA-256: 0000",
        "  |   environment: only what you know'",
    ]
