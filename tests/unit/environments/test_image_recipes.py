"""What images are made of: the definition files that come along, and the sources of a profile."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.package_data import container_definitions
from notebook_launcher.environments.images import build_recipe, pull_recipe
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles import ClusterProfile, Environment, load_profile
from tests.paths import JOBSCRIPTS
from tests.practice_cluster.bundled_images import REQUIREMENTS, definition_here


def target() -> LaunchTarget:
    return LaunchTarget(load_profile("uni"), "uni", None, "slurm")


CONTAINERS = JOBSCRIPTS / "lib" / "image_definitions"


def test_these_definitions_come_along() -> None:
    assert set(container_definitions()) == {"jupyterlab", "torch", "torch-cpu", "tensorflow", "tensorflow-cpu"}


@pytest.mark.parametrize(("one", "other"), [("tensorflow", "tensorflow-cpu"), ("torch", "torch-cpu")])
def test_the_image_for_gpus_differs_from_the_one_for_cpus_in_one_setting(one: str, other: str) -> None:
    lines = [_code((CONTAINERS / f"{name}.def").read_text()) for name in (one, other)]
    assert len(lines[0]) == len(lines[1])
    differ = [pair for pair in zip(*lines, strict=True) if pair[0] != pair[1]]
    assert len(differ) == 1, differ


def _code(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_what_is_built_here_is_what_is_shipped(name: str) -> None:
    shipped = _code((CONTAINERS / f"{name}.def").read_text())
    here = _code(definition_here(name))
    assert here[: here.index("%post")] == ["Bootstrap: localimage", "From: /build/base", "%files",
                                           "    /build/wheels /opt/wheels"]  # fmt: skip
    assert here[here.index("%post") :] == shipped[shipped.index("%post") :]
    post = "\n".join(here)
    assert [wanted for wanted in REQUIREMENTS[name] if wanted not in post] == []


@pytest.mark.parametrize("path", sorted(CONTAINERS.glob("*.def")), ids=lambda path: path.stem)
def test_the_shell_in_a_definition_is_shell(path: Path) -> None:
    text = path.read_text()
    for section in ("%post", "%test"):
        script = text.partition(f"\n{section}\n")[2].partition("\n%")[0]
        done = subprocess.run(["sh", "-n"], input=script, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("profile")
def test_what_is_built_is_a_definition_of_ours_a_file_or_an_environments(tmp_path: Path) -> None:
    uni = load_profile("uni")
    assert build_recipe("torch", uni).image == "/images/torch.sif"
    (tmp_path / "mine.def").write_text("Bootstrap: scratch\n")
    recipe = build_recipe(str(tmp_path / "mine.def"), uni)
    assert (recipe.image, recipe.definition) == ("/images/mine.sif", b"Bootstrap: scratch\n")
    recipe = build_recipe("tf-mkl", uni)
    assert (recipe.image, recipe.source) == ("/images/tf.sif", "tensorflow")
    with pytest.raises(UsageError, match="no definition “tensorflw”") as error:
        build_recipe("tensorflw", uni)
    assert "tensorflow" in error.value.hint


@pytest.mark.usefixtures("profile")
def test_what_is_pulled_is_a_source_or_an_environments() -> None:
    uni = load_profile("uni")
    assert pull_recipe("docker://example/some.thing:2.1", uni).image == "/images/some.thing-2.1.sif"
    recipe = pull_recipe("tf-mkl", uni)
    assert (recipe.image, recipe.source, recipe.definition) == ("/images/tf.sif", "docker://example/tf:2", None)
    with pytest.raises(UsageError, match="no source to pull"):
        pull_recipe("own", uni)


@pytest.mark.parametrize("source", ["itself", "other"])
def test_an_environments_source_is_no_environment(source: str) -> None:
    """A profile may be a course's from elsewhere: two that name each other would be followed for ever."""
    circle = {"itself": Environment(source=source), "other": Environment(source="itself")}
    with pytest.raises(UsageError, match="no source to pull"):
        pull_recipe("itself", ClusterProfile(environments=circle))
