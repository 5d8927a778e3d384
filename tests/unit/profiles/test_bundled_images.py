"""Environments of the launcher's own definition files: there for profiles that want them, replaced as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from notebook_launcher.core.package_data import container_definitions
from notebook_launcher.planning.plan import make_plan
from notebook_launcher.planning.target import LaunchOptions, LocalMachine
from notebook_launcher.profiles.store import load_profile

LAPTOP = LocalMachine("laptop")
FOLDER = "~/.notebook-launcher/images"
PROFILE = """
host = "login"
bundled_images = true
environment = "torch"
image_dir = "/proj/images"

[environments.tensorflow]
conda = "mine"
"""


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path))
    path = tmp_path / "clusters" / "uni.toml"
    path.parent.mkdir()
    path.write_text(PROFILE)
    return path


def test_they_are_there_where_they_are_wanted(profile: Path) -> None:
    environments = load_profile("uni").environments
    assert {"torch", "tensorflow", "tf-gpu", "tf-mkl", "tf-pip"} == environments.keys()
    made = [one for name, one in environments.items() if name != "tensorflow"]
    assert all(one.definition in container_definitions() for one in made)
    profile.write_text('host = "login"')
    assert not load_profile("uni").environments


def test_ones_own_replaces_it_as_a_whole(profile: Path) -> None:
    """Where it was only completed, the conda environment would be looked for in an image."""
    own = load_profile("uni").environments["tensorflow"]
    assert (own.conda, own.container, own.definition) == ("mine", None, None)


def test_the_image_is_the_users_own_whatever_folder_others_provide(profile: Path) -> None:
    assert make_plan(LaunchOptions(cluster="uni"), LAPTOP).container == f"{FOLDER}/torch.sif"


@pytest.mark.parametrize(
    ("typed", "container"),
    [
        (LaunchOptions(cluster="uni", venv="~/lab"), None),
        (LaunchOptions(cluster="uni", conda="lab"), None),
        (LaunchOptions(cluster="uni", uv="~/lab"), None),
        (LaunchOptions(cluster="uni", modules=("a/1",)), None),
        (LaunchOptions(cluster="uni", venv="/opt/torch", arguments=("torch",)), f"{FOLDER}/torch.sif"),
    ],
)
def test_software_that_is_named_is_not_looked_for_in_the_launchers_image(
    profile: Path, typed: LaunchOptions, container: str | None
) -> None:
    """As no environment of the user's is in it, unless the image is named as well."""
    plan = make_plan(typed, LAPTOP)
    assert plan.container == container
    assert (plan.environment_name == "torch") == (container is not None)
    assert (plan.environment.venv, plan.environment.modules) == (typed.venv, typed.modules)
