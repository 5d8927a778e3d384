"""Programs beside JupyterLab: what ``--app`` and a profile may name, and what the job is told of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from notebook_launcher.core.errors import ProfileError, UsageError
from notebook_launcher.planning.apps import APPS_FILE, apps_file, requested_apps, with_dask
from notebook_launcher.planning.target import LaunchOptions
from notebook_launcher.profiles.layers import Layer
from notebook_launcher.profiles.models import App, ClusterProfile
from notebook_launcher.profiles.validation import validated

PROFILE = ClusterProfile(apps={"board": App(("board", "--uds", "{socket}"), title="My board", health="/ready")})


def test_built_in_ones_and_the_profiles() -> None:
    board, tensorboard = requested_apps(["board", "tensorboard=run logs"], PROFILE)
    assert (board.title, board.commands, board.health) == ("My board", (("board", "--uds", "{socket}"),), "/ready")
    assert (tensorboard.name, tensorboard.title, tensorboard.folder) == ("tensorboard", "TensorBoard", "run logs")
    (first, second) = json.loads(apps_file([board, tensorboard]))["apps"]
    assert first["commands"] == [["board", "--uds", "{socket}"]] and second["folder"] == "run logs"
    assert APPS_FILE == "apps.json" and apps_file([board]).count(b"\n") == 1


@pytest.mark.parametrize(
    ("words", "what", "hint"),
    [
        (["tensorbord"], "There is no app “tensorbord”", "did you mean tensorboard?"),
        (["zzz"], "There is no app “zzz”", "add it to the profile, below [apps.zzz]"),
        (["tensorboard="], "names no folder", "for example: --app tensorboard=logs"),
        (["board=x"], "takes no folder", "--app board"),
        (["board", "board"], "--app board was given twice", "name each app once"),
    ],
)
def test_what_cannot_be_started(words: list[str], what: str, hint: str) -> None:
    with pytest.raises(UsageError, match=what) as raised:
        requested_apps(words, PROFILE)
    assert raised.value.hint == hint


def test_an_open_port_is_no_place_for_them() -> None:
    with pytest.raises(UsageError, match="does not work with the route “direct”"):
        requested_apps(["tensorboard"], ClusterProfile(route="direct"))
    assert requested_apps([], ClusterProfile(route="direct")) == ()


def test_dasks_dashboard_comes_with_its_workers() -> None:
    options = with_dask(LaunchOptions(apps=("dask", "code")))
    assert (options.apps, options.distributed) == (("code",), "dask")
    assert with_dask(LaunchOptions(distributed="ray")).distributed == "ray"
    with pytest.raises(UsageError, match="--app dask and --with ray exclude each other"):
        with_dask(LaunchOptions(apps=("dask",), distributed="ray"))


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"command": ["board", "--port", "6006"]}, "command needs {socket}, the Unix socket"),
        ({"command": []}, "apps.board.command is empty"),
        ({"command": ["board", "{socket}"], "health": "ready"}, "a path that begins with /"),
        ({"command": ["board", "{socket}"], "port": 1}, "there is no key “apps.board.port”"),
    ],
)
def test_a_profile_that_is_wrong_about_one(table: dict[str, object], why: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError) as raised:
        validated(ClusterProfile, [Layer(str(tmp_path / "uni.toml"), {"apps": {"board": table}}, "")])
    assert why in raised.value.what


@pytest.mark.parametrize(("name", "why"), [("../x", "../x"), ("dask", "“dask” is reserved for Dask's dashboard")])
def test_a_name_that_is_none(name: str, why: str) -> None:
    data = {"apps": {name: {"command": ["board", "{socket}"]}}}
    with pytest.raises(ProfileError, match=why):
        validated(ClusterProfile, [Layer("uni.toml", data, "")])
