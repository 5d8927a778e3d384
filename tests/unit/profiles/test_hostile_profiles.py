"""Whatever stands in a profile or a course is data: hostile values in every field of both are refused, or stay values.

The models are walked, so that a new field is tried as well.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import shlex
import subprocess
import types
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
import tomlkit

from notebook_launcher.core import events
from notebook_launcher.core.errors import LauncherError, ProfileError
from notebook_launcher.launch import dry_run
from notebook_launcher.planning.plan import make_plan
from notebook_launcher.planning.target import LaunchOptions, LocalMachine
from notebook_launcher.profiles import valid_tables
from notebook_launcher.profiles.courses import courses_folder
from notebook_launcher.profiles.edit import write_private
from notebook_launcher.profiles.models import ClusterProfile, CourseProfile, Table
from notebook_launcher.profiles.store import user_profile_path
from notebook_launcher.profiles.validation import key_types_of
from tests.doubles import RecordingView

key_types = functools.cache(key_types_of)  # which reads them out of the annotations each time

KEY = "?"  # stands in a place for a key of a table with names of its own
ITEM = 0  # for an item of a list
KeyPath = tuple[str | int, ...]

# What goes with a field so that a model is whole: values by the name of the field.
NEEDED: dict[str, Any] = {
    "unit": "SBU", "command": ["true"], "pattern": "(?P<left>[0-9]+)", "when": {"gres": "gpu:*"}, "note": "n",
    "why": "w", "instead": "i", "name": "lab", "first": date(2026, 1, 1), "last": date(2026, 12, 31),
}  # fmt: skip


def fields(kind: Any, place: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the place of every text in a type: of fields, items and the keys of tables, down to the last."""
    origin, of = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Table):
        for name, of_key in key_types(kind).items():
            yield from fields(of_key, (*place, name))
    elif origin is Annotated:
        yield from fields(of[0], place)
    elif origin in (Union, types.UnionType):
        for one in of:
            yield from fields(one, place)
    elif origin is tuple:
        yield from fields(of[0], (*place, ITEM))
    elif origin is dict:
        yield (*place, KEY)
        yield from fields(of[1], (*place, "comment"))  # also a flag of the scheduler that takes any text
    elif kind is str or kind is date or origin is Literal:
        yield place


def places(model: type[Table]) -> list[KeyPath]:
    return sorted(set(fields(model)), key=str)


def filled(model: type[Table], place: KeyPath, value: str) -> dict[str, Any]:
    """Return the data of a model with a value at a place, and all that must be beside it."""
    return _with_needed(model, _put(place, value))


def _put(place: KeyPath, value: str) -> Any:
    if not place:
        return value
    first, *rest = place
    if first == ITEM and isinstance(first, int):
        return [_put(tuple(rest), value)]
    if first == KEY:
        return {value: "1"}
    return {first: _put(tuple(rest), value)}


def _with_needed(kind: Any, data: Any) -> Any:
    origin, of = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _with_needed(of[0], data)
    if origin in (Union, types.UnionType):
        for one in of:
            data = _with_needed(one, data)
        return data
    if origin is tuple and isinstance(data, list):
        return [_with_needed(of[0], one) for one in data]
    if origin is dict and isinstance(data, dict):
        whole = [one for one in of[1:] if isinstance(one, type) and issubclass(one, Table)]
        return {
            key: _with_needed(of[1], {} if whole and isinstance(value, str) else value) for key, value in data.items()
        }
    if isinstance(kind, type) and issubclass(kind, Table) and isinstance(data, dict):
        of_keys = key_types(kind)
        known = {name: _with_needed(of_keys[name], value) if name in of_keys else value for name, value in data.items()}
        needed = {
            field.name: NEEDED[field.name]
            for field in dataclasses.fields(kind)
            if field.default is field.default_factory is dataclasses.MISSING
        }
        return needed | known
    return data


def hostile(canary: Path) -> list[str]:
    run = f"touch {canary}"
    return [
        f"$({run})", f"`{run}`", f"; {run} ;", f"x && {run}", f"x | {run}", f"x\n{run}\nhostile=1", f"x\r{run}", "x\0y",
        f"'; {run}; '", f'"; {run}; "', f"-oProxyCommand={run}", "--wrap=x", "-", "\x1b]0;title\x07", "\u202egnp.exe",
        "../../../etc/passwd", f"${{IFS}}{run}", "%(x)s{type}{0}", "~root/x", "*", f">{canary}", "é ü",
        "x" * 300, "",
    ]  # fmt: skip


def planned(ask: LaunchOptions) -> events.DryRun:
    view = RecordingView()
    dry_run(make_plan(ask, LocalMachine("laptop", today=date(2026, 6, 1))), view)
    return view.one(events.DryRun)


def test_home_is_filled_in_nowhere_but_in_our_own_paths(tmp_path: Path) -> None:
    write_private(user_profile_path("uni"), 'host = "login.example"\nsession_root = "/proj/$USER/it\'s"\n')
    flags = {"comment": "$HOME and $USER", "chdir": "$HOME/x", "mail-user": "$USER", "job-name": "/proj/$USER/it's"}
    command = planned(LaunchOptions({**flags}, cluster="uni")).command
    done = subprocess.run(["bash", "-c", f"printf '%s\\n' {command}"], env={"HOME": "/home/alice", "USER": "alice"},
                          capture_output=True, text=True, check=True)  # fmt: skip
    words = done.stdout.splitlines()
    assert {f"--{name}={value}" for name, value in flags.items()} <= set(words)
    assert words[-1].startswith("/proj/alice/it's/")
    assert any(word.startswith("--output=/proj/alice/it's/") for word in words)


KNOWN_LINES = frozenset({
    "setenv", "module_use", "module", "container", "container_command", "bind", "conda", "venv", "uv", "digest",
    "activate", "path", "gpu", "listen", "sshd", "reverse", "usage", "idle_stop", "gpu_idle", "start_timeout",
    "fast_start", "panel", "stage", "stage_dir", "stage_limit",
})  # fmt: skip


def check_lines(shown: events.DryRun) -> None:
    """Each line of the session's file is one of ours: no value has become a line of its own."""
    for line in shown.session_env.removesuffix("\n").split("\n"):
        assert line.partition("=")[0] in KNOWN_LINES, line


def check_commands(commands: list[str], home: Path) -> None:
    """Each command, read by a shell, is the scheduler's with just the words that are shown."""
    here = {"HOME": str(home), "USER": "alice"}
    words = (word for command in commands for word in [*shlex.split(command)[1:], "next"])
    script = "sbatch() { printf '%s\\0' \"$@\" next; }\n" + "\n".join(commands)
    done = subprocess.run(
        ["/bin/bash"], input=script.encode(), env=here | {"PATH": "/usr/bin:/bin"}, capture_output=True, cwd=home,
        check=True,
    )  # fmt: skip
    assert not done.stderr
    assert done.stdout.decode().split("\0")[:-1] == [
        re.sub(r"^((?:--output=)?)\$HOME(?=/\.notebook-launcher)", rf"\1{home}", word) for word in words
    ]


def one_message(error: LauncherError) -> None:
    """A sentence or two that can be read, and something to do next."""
    assert error.what
    assert error.hint
    assert "\n" not in error.what
    assert len(error.what) < 700


def _flags_of(place: KeyPath) -> dict[str, str | None]:
    """What makes a launch look at the field."""
    if place[:2] == ("gpu", "types") and len(place) > 2:
        return {"gpus": "comment:1"}
    return {"gpus": "1"} if place[0] == "gpu" else {}


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # no profile is read twice here: to keep each that is valid for the next command took a fifth of the time
    monkeypatch.setattr(valid_tables, "keep", lambda *_: None)
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "canary"


@pytest.mark.parametrize("place", places(ClusterProfile), ids=lambda place: ".".join(map(str, place)))
def test_a_cluster_profile(place: KeyPath, canary: Path, tmp_path: Path) -> None:
    path = write_private(user_profile_path("uni"), "")
    refused, commands = 0, []
    for value in hostile(canary):
        data = {"host": "login.example"} | filled(ClusterProfile, place, value)
        if place[0] == "environments" and len(place) > 1:
            data["environment"] = value if place[1] == KEY else "comment"
        path.write_text(tomlkit.dumps(data), encoding="utf-8")
        try:
            shown = planned(LaunchOptions(_flags_of(place), cluster="uni"))
        except LauncherError as error:
            refused += 1
            one_message(error)
            assert not isinstance(error, ProfileError) or re.match(rf"{re.escape(str(path))}:\d+: ", error.what), (
                error.what
            )
        else:
            check_lines(shown)
            commands.append(shown.command)
    assert refused, "no field takes a NUL"
    check_commands(commands, tmp_path)
    assert not canary.exists()


# what is in its environments is tried above
@pytest.mark.parametrize(
    "place",
    [one for one in places(CourseProfile) if one[1:2] != ("comment",)],
    ids=lambda place: ".".join(map(str, place)),
)
def test_a_course(place: KeyPath, canary: Path, tmp_path: Path) -> None:
    write_private(user_profile_path("uni"), 'host = "login.example"\n')
    path = write_private(courses_folder() / "lab" / "course.toml", "")
    refused, commands = 0, []
    for value in hostile(canary):
        data = filled(CourseProfile, place, value)
        if place[0] == "environments" and len(place) > 1:
            data["environment"] = value if place[1] == KEY else "comment"
        path.write_text(tomlkit.dumps(data), encoding="utf-8")
        try:
            shown = planned(LaunchOptions(cluster="uni", course="lab"))
        except LauncherError as error:
            refused += 1
            one_message(error)
        else:
            check_lines(shown)
            commands.append(shown.command)
    assert refused
    check_commands(commands, tmp_path)
    assert not canary.exists()


@pytest.mark.parametrize("place", [("host",), ("user",), ("login_nodes", 0), ("node_suffix",), ("node_arch",),
                                   ("account", "gpu_suffix"), ("defaults", "account"), ("defaults", "partition"),
                                   ("gpu", "types", KEY)], ids=str)  # fmt: skip
@pytest.mark.parametrize("value", ["$(x)", "`x`", "a;b", "a b", "a\nb", "a'b", 'a"b', "a|b", "a>b"])
def test_what_has_no_reason_for_odd_characters_is_refused(place: KeyPath, value: str, canary: Path) -> None:
    write_private(user_profile_path("uni"), tomlkit.dumps(filled(ClusterProfile, place, value)))
    with pytest.raises(ProfileError, match=r"uni\.toml:\d+: "):
        make_plan(LaunchOptions(cluster="uni"), LocalMachine("laptop"))
