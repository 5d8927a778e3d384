"""What a course decides is shown in full, and what has changed in it."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings

from notebook_launcher.core.errors import ProfileError
from notebook_launcher.planning.course_summary import changes, summary
from notebook_launcher.profiles.courses import CourseFiles, SavedCourse, validated_course
from notebook_launcher.profiles.layers import Layer, parse_layer
from notebook_launcher.profiles.models import App, CourseProfile, Environment
from notebook_launcher.profiles.validation import key_types_of, validated
from tests.fuzzing import examples, unseen
from tests.unit.planning.courses.course_files import take
from tests.unit.profiles.toml_values import WHOLE_COURSE, changed, written

WHOLE = {
    "name": "whole", "description": "D-1", "base": "base-1.toml", "cluster": "uni", "contact": "C-1",
    "first": "2026-01-02", "last": "2026-12-30", "account": "acc1", "environment": "e1", "image": "i1.sif",
    "reservations": [{"name": "res1", "first": "2026-02-02", "last": "2026-02-03", "open_at": "n2.ipynb"}],
    "image_dir": "/dir-1",
    "idle_stop": "21m", "gpu_idle": "end", "notice": "N-1", "notebooks": ["n1.ipynb"], "folder": "~/f1",
    "open_at": "n3.ipynb", "class_folder": "/cls-1",
    "defaults": {"mem": "3G", "exclusive": False},
    "environments": {"e1": {
        "description": "D-2", "notice": "N-2", "container": "c1.sif", "container_command": "shifter", "source": "s-1",
        "definition": "d-1.def", "digest": f"sha256:{'a' * 64}", "bind": ["/b1"], "modules": ["m1"],
        "module_use": ["/mu1"], "conda": "co1", "venv": "/v1", "uv": "/u1", "activate": ["a-1", "a-2"],
        "env": {"E1": "ev1"}, "gpu": "auto", "start_timeout": 600, "stage": True,
    }},
    "apps": {"app1": {"command": ["p1", "--uds {socket}"], "title": "T-1", "health": "/h1", "icon": "i1.svg"}},
}  # fmt: skip


def words_in(value: Any) -> Iterator[str]:
    """Yield every single word of a value, down to the last."""
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from words_in(one)
    if not isinstance(value, dict | list | bool):
        yield str(value)


def test_whatever_a_course_sets_is_in_what_the_user_agrees_to() -> None:
    assert set(WHOLE) == set(key_types_of(CourseProfile)), "a new field of a course"
    assert set(WHOLE["environments"]["e1"]) == set(key_types_of(Environment)), "a new field of an environment"
    assert set(WHOLE["apps"]["app1"]) == set(key_types_of(App)), "a new field of an app"

    def told(data: dict[str, Any]) -> list[str]:
        layer = Layer("", data)
        return summary(CourseFiles(validated(CourseProfile, [layer]), (layer,), ("",), (b"",), {}))

    everything = told(WHOLE)
    for key, value in WHOLE.items():
        for word in words_in(value) if key != "name" else ():
            assert any(word in line for line in everything), (key, word)
        if key not in ("name", "environment"):
            assert told({k: v for k, v in WHOLE.items() if k != key}) != everything, key
    for table, name in (("environments", "e1"), ("apps", "app1")):
        for key in WHOLE[table][name].keys() - {"command"}:
            less = {k: v for k, v in WHOLE[table][name].items() if k != key}
            assert told({**WHOLE, table: {name: less}}) != everything, key


#: what decides which program runs, in an environment
RUNS = (
    "container",
    "container_command",
    "source",
    "definition",
    "module_use",
    "modules",
    "conda",
    "venv",
    "uv",
    "bind",
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(changed(WHOLE_COURSE))
@example({**WHOLE_COURSE, "defaults": {"comment": "a\x1b[2Jb"}})
@example({**WHOLE_COURSE, "defaults": {"a\u202eb": 1}})
@example({**WHOLE_COURSE, "defaults": {"wrap": "two\nlines"}})
@example({**WHOLE_COURSE, "defaults": {"mem": "3G\u200b"}})
@example({**WHOLE_COURSE, "environments": {"e1": {"env": {"A": "b\u2028c"}}}})
def test_the_user_sees_what_any_course_runs_and_nothing_is_hidden(data: dict[str, Any]) -> None:
    """A value is shown as it is, on a line of its own that no other value can imitate, or the course is refused."""
    found = course_in(data)
    if found is None:
        return
    course, lines = found.course, summary(found)
    assert [line for line in lines if set(unseen(line)) - {"\t"}] == []
    for name, environment in course.environments.items():
        about = [line for line in lines if line.startswith(f"environment {name}: ")]
        values = [environment.activate] if isinstance(environment.activate, str) else list(environment.activate)
        values += [f"{key}={value}" for key, value in environment.env.items()]
        for key in RUNS:
            value = getattr(environment, key)
            values += value if isinstance(value, tuple) else [value] if value else []
        assert [value for value in values if not any(line.endswith(value) for line in about)] == []
    for name, app in course.apps.items():
        assert f"app {name}: runs {shlex.join(app.command)}" in lines
    shown = "\n".join(lines)
    plain = shown.replace("'", "").replace('"', "")  # as quoted for a shell
    for flag, value in course.defaults.items():
        assert flag.replace("_", "-").replace("'", "").replace('"', "") in plain
        assert isinstance(value, bool) or str(value).replace("'", "").replace('"', "") in plain
    for word in (*course.notebooks, course.image or "", course.folder or "", course.base or ""):
        assert word in shown


def course_in(data: dict[str, Any]) -> CourseFiles | None:
    """Return the course in this data; ``None`` if it is refused."""
    content = written(data)
    try:
        layer = parse_layer(content, "x.toml")
        return CourseFiles(validated_course([layer]), (layer,), ("",), (content,), {})
    except ProfileError:
        return None


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=examples(10))
@given(changed(WHOLE_COURSE))
def test_whatever_has_changed_in_what_runs_is_a_line(data: dict[str, Any]) -> None:
    old, new = course_in(WHOLE_COURSE), course_in(data)
    if old and new and what_runs(old) != what_runs(new):
        lines = changes(SavedCourse(old.course, (), Path("/nowhere")), new)
        assert any(line[0] in "+-!" for line in lines)


def what_runs(files: CourseFiles) -> tuple[object, ...]:
    return files.course.environments, files.course.defaults, files.course.apps


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
    layer = Layer("", {"name": "gpu2026", "defaults": evil})
    with pytest.raises(ProfileError, match="more than one line"):
        validated(CourseProfile, [layer])
    course = CourseProfile(name="gpu2026", defaults=evil)  # if a course of this kind came so far
    assert summary(CourseFiles(course, (layer,), ("",), (b"",), {}))[:-1] == [
        "cluster: yours",
        "flags: '--comment=x",
        "  | SHA-256: 0000",
        "  |   environment: only what you know'",
    ]
