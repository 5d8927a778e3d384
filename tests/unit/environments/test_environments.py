"""Environments: listed, shown, put into a profile, exported, probed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.errors import EnvironmentUnknown, ProfileError, UsageError
from notebook_launcher.core.package_data import job_script
from notebook_launcher.core.request import Request
from notebook_launcher.environments.create import NewEnvironment, profile_with_environment
from notebook_launcher.environments.export import export_environment, export_folder, exported_files
from notebook_launcher.environments.images import script_result
from notebook_launcher.environments.listing import describe_software, list_environments, show_environment
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.planning.plan import Plan
from notebook_launcher.planning.target import LaunchOptions, LaunchTarget
from notebook_launcher.profiles import ClusterProfile, Environment, load_profile
from notebook_launcher.profiles.edit import checked_text, save_profile
from notebook_launcher.session.preflight import how_to_add_jupyterlab, missing_jupyterlab
from notebook_launcher.session.record import inspect_host
from tests.doubles import RecordingView
from tests.unit.environments.conftest import TWO_ENVIRONMENTS


def target() -> LaunchTarget:
    return LaunchTarget(load_profile("uni"), "uni", None, "slurm")


@pytest.mark.usefixtures("profile")
def test_the_environments_of_a_profile_are_listed() -> None:
    view = RecordingView()
    list_environments(target(), view)
    (event,) = view.events
    assert isinstance(event, events.EnvironmentsListed)
    assert [(seen.environment, seen.default) for seen in event.environments] == [("tf-mkl", True), ("own", False)]
    assert event.environments[0].software == "container /images/tf.sif + venv /opt/envs/tf-mkl"
    assert event.environments[1].software == "modules Anaconda3 + conda mine"


def test_an_environment_is_shown_with_the_file_and_line_it_comes_from(profile: Path) -> None:
    view = RecordingView()
    show_environment(LaunchOptions(cluster="uni", arguments=("tf-mkl",)), view)
    (event,) = view.events
    assert isinstance(event, events.EnvironmentShown)
    assert event.layers == (f"{profile}:6",)
    assert "container=/images/tf.sif\n" in event.session_env
    assert "venv=/opt/envs/tf-mkl\n" in event.session_env
    assert any("No digest" in note for note in event.notes)


@pytest.mark.usefixtures("profile")
def test_an_unknown_environment_is_told_with_the_nearest_one() -> None:
    with pytest.raises(EnvironmentUnknown, match="tf-mkk") as error:
        show_environment(LaunchOptions(cluster="uni", arguments=("tf-mkk",)), RecordingView())
    assert "tf-mkl" in error.value.hint


def test_a_plain_environment_is_the_nodes_own() -> None:
    assert (
        describe_software(Environment(), LaunchTarget(ClusterProfile(), None, None, "slurm"))
        == "JupyterLab as the node has it"
    )


@pytest.mark.parametrize(
    ("environment", "container", "words"),
    [
        (Environment(venv="/v"), None, "/v/bin/python -m pip install jupyterlab"),
        (Environment(conda="mine"), None, "conda install -n mine "),
        (Environment(conda="/c/mine"), None, "conda install -p /c/mine "),
        (Environment(), "/i.sif", "From: /i.sif"),
        (Environment(modules=("Python",)), None, "module spider"),
        (Environment(), None, "--venv ~/lab"),
    ],
)
def test_the_way_to_add_jupyterlab_is_that_of_the_environment(
    environment: Environment, container: str | None, words: str
) -> None:
    assert words in how_to_add_jupyterlab(environment, container)


def test_a_virtual_environment_without_jupyterlab_is_told_before_the_queue(tmp_path: Path) -> None:
    host = LocalHost()
    site = inspect_host(host)

    def told(environment: Environment, container: str | None = None) -> str | None:
        return missing_jupyterlab(host, site, environment, container)

    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    sentence = told(Environment(venv=str(bare)))
    assert sentence is not None
    assert f"no JupyterLab in {bare}" in sentence
    assert f"{bare}/bin/python -m pip install jupyterlab" in sentence
    assert told(Environment(venv=sys.prefix)) is None
    nowhere = tmp_path / "not-there"
    for missing in (Environment(venv=str(nowhere)), Environment(venv=str(nowhere), modules=("Python",))):
        assert f"There is no environment in {nowhere} " in (told(missing) or "")
    assert told(Environment(conda="one-of-many-places")) is None
    assert told(Environment(venv=str(bare)), "/image.sif") is None
    assert told(Environment(venv=str(bare), modules=("Jupyter",))) is None
    (bare / "pyvenv.cfg").write_text("include-system-site-packages = true\n")
    assert told(Environment(venv=str(bare))) is None


def test_a_made_environment_joins_the_profile_and_leaves_the_rest_as_it_is(profile: Path) -> None:
    plan = Plan(target(), Request({}), None, Environment(modules=("Python/3.11",)), None)
    made_of = NewEnvironment(Path("requirements.txt"), "course", venv="~/c")
    save_profile("uni", profile_with_environment("uni", plan, made_of, "/home/a/c"))
    text = profile.read_text()
    assert text.startswith(TWO_ENVIRONMENTS)
    made = load_profile("uni").environments["course"]
    assert (made.venv, made.modules) == ("/home/a/c", ("Python/3.11",))


def test_a_made_environment_of_a_bundled_profile_gets_a_file_that_stands_on_it(profile: Path) -> None:
    own = profile.with_name("generic.toml")
    plan = Plan(LaunchTarget(load_profile("generic"), "generic", None, "slurm"), Request({}), None, Environment(), None)
    save_profile(
        "generic",
        profile_with_environment("generic", plan, NewEnvironment(Path("environment.yml"), "course"), "course"),
    )
    assert 'base = "generic"' in own.read_text()
    assert load_profile("generic").environments["course"].conda == "course"


@pytest.mark.usefixtures("profile")
def test_what_a_profile_cannot_hold_is_told_before_anything_is_made() -> None:
    plan = Plan(target(), Request({}), None, Environment(), None)
    with pytest.raises(ProfileError):
        checked_text(
            "uni", profile_with_environment("uni", plan, NewEnvironment(Path("requirements.txt"), "course"), "/a\nb")
        )


def test_an_environment_is_written_down_in_a_folder_of_ours(tmp_path: Path) -> None:
    assert str(export_folder("../../x")) == "x"
    assert str(export_folder("odd/one")) == "odd-one"
    assert str(export_folder("..")) == str(export_folder(None)) == "environment"
    (tmp_path / "file").touch()
    plan = Plan(LaunchTarget(ClusterProfile(), None, None, "slurm"), Request({}), None, Environment(), None)
    with pytest.raises(UsageError, match="is not a folder"):
        export_environment(plan, tmp_path / "file", RecordingView(), None, None)  # type: ignore[arg-type]


def test_versions_that_are_in_an_index_of_their_own_are_told() -> None:
    plan = Plan(LaunchTarget(ClusterProfile(), None, None, "slurm"), Request({}), "t", Environment(), None)
    files = exported_files(plan, {"python": "3.13.5", "packages": ["torch==2.13.0+cpu", "numpy==2.0"]}, {})
    assert "--extra-index-url" in files["requirements.txt"]
    assert "torch==2.13.0+cpu" in files["README.md"]
    assert "numpy" not in files["README.md"]


def test_only_a_script_of_ours_has_the_last_word() -> None:
    assert script_result("nbl-made make-1 /v", "/s/make-1") == ("made", "/v")
    assert script_result("nbl-made /v", "/s/make-1") is None
    assert script_result("nbl-image image-2 {}", "/s/make-1") is None


def probe(what: str) -> dict[str, object]:
    argv = [sys.executable, job_script("probe.py"), what, "it-says"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    found: dict[str, object] = {}
    for line in done.stdout.splitlines():
        if line.startswith("it-says "):
            found |= json.loads(line.removeprefix("it-says "))
    return found


@pytest.mark.real_time
def test_the_probe_starts_a_kernel_and_freezes_the_packages() -> None:
    assert probe("check")["kernel"] == "ok"
    found = probe("freeze")
    packages = found["packages"]
    assert isinstance(packages, list)
    assert any(package.startswith("jupyterlab==") for package in packages)
    assert (found["conda"], found["end"]) == ([], True)
