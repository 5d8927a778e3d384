"""Images of the definition files that the launcher ships, each built when a test asks for it.

They are not part of every cluster: TensorFlow alone takes minutes; `make test` builds those that tests need beforehand.
A definition is built as shipped, except for its head: a box has no internet access, so it is based on the image base of
the practice cluster, and its wheels are beside it.
"""

from __future__ import annotations

import inspect
import os
import platform
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import cache, debian, recipes, rolling, state
from .cache import Artefact
from .cluster import PracticeCluster
from .errors import ClusterError
from .layout import Bind

DEFINITIONS = recipes.CHECKOUT / "jobscripts" / "lib" / "image_definitions"
# what the %post of each installs; a test compares the two
LAB = ("jupyterlab", "ipykernel")
BESIDES = (*LAB, "numpy", "matplotlib", "scikit-learn")
REQUIREMENTS = {
    "tensorflow-cpu": ("tensorflow-cpu==2.21.0", *BESIDES),
    "torch-cpu": ("torch==2.13.0", *BESIDES),
    "jupyterlab": LAB,
}
# the environments that use each of them, and further settings of these
OFFERED = {
    "torch-cpu": {"torch": ""},
    "tensorflow-cpu": {"tf-mkl": 'venv = "/opt/envs/tf-mkl"\n', "tf-pip": 'venv = "/opt/envs/tf-pip"\n'},
}
_HEAD = ("Bootstrap:", "From:")
_HEAD_HERE = "Bootstrap: localimage\nFrom: /build/base\n\n%files\n    /build/wheels /opt/wheels\n"


@dataclass(frozen=True)
class Base:
    """The substitute for the base image of a definition: a Debian release, its Python, and further packages."""

    suite: str = recipes.IMAGE_SUITE
    python: str = recipes.IMAGE_PYTHON
    packages: tuple[str, ...] = recipes.IMAGE_PACKAGES


# With a compiler, like the real base; and with a Python for which more indexes have PyTorch without CUDA.
BASES = {"torch-cpu": Base("bookworm", "3.11", (*recipes.IMAGE_PACKAGES, "g++", "python3-dev"))}


def definition_here(name: str) -> str:
    """Return the shipped definition of that name with a head that works without internet.

    Without comments, so that a change in one of them does not cause a new build.
    """
    lines = (DEFINITIONS / f"{name}.def").read_text().splitlines()
    kept = [line for line in lines if line.strip() and not line.lstrip().startswith(("#", *_HEAD))]
    return _HEAD_HERE + "\n".join(kept) + "\n"


def image(name: str, generation: str) -> Artefact:
    """Return the image of that name, built or not."""
    parts = recipes.artefacts(rolling.generation(generation))
    wanted = BASES.get(name, Base())
    base = recipes.image_base(wanted.suite, wanted.packages)
    wheels = recipes._artefact(f"wheels-image-{name}", _make_wheels, REQUIREMENTS[name], wanted.python, _index(name))
    also = [inspect.getsource(recipes._apptainer_build), recipes.QUICK_COMPRESSION]
    return recipes._artefact(f"image-{called(name)}", _make_image, name, definition_here(name), inputs=(base, wheels),
                             tools=(parts.rootfs,), also=also)  # fmt: skip


def called(name: str) -> str:
    """Return the name of a definition's image here; there is another image jupyterlab in every cluster."""
    return "jupyterlab-shipped" if name == "jupyterlab" else name


def _index(name: str) -> str:
    """Return the additional index that a definition uses for packages without CUDA."""
    found = re.search(r"^ *index=(\S+)$", (DEFINITIONS / f"{name}.def").read_text(), re.MULTILINE)
    return found[1] if found else ""


def _make_wheels(directory: Path, kind: str, requirements: Sequence[str], python: str, index: str) -> None:
    """Download for the images' Debian, whose C library is newer than any of these policies asks for."""
    machine = platform.machine()
    argv = [*recipes._pip(), "download", "--quiet", "--dest", str(directory), "--only-binary=:all:"]
    argv += ["--python-version", python, "--implementation", "cp", "--platform", f"manylinux2014_{machine}"]
    for minor in range(17, 36):
        argv += ["--platform", f"manylinux_2_{minor}_{machine}"]
    if not index:
        debian.run_logged([*argv, *requirements], kind)
        return
    wanted = [f"{requirements[0]}+{index.rpartition('/')[2]}", *requirements[1:]]  # torch==2.13.0+cpu
    try:  # where this machine's pip looks, as at places that cannot reach that index
        debian.run_logged([*argv, *wanted], kind)
    except ClusterError:
        debian.run_logged([*argv, "--extra-index-url", index, *wanted], kind)


def _make_image(directory: Path, kind: str, base: Path, wheels: Path, rootfs: Path, name: str, definition: str) -> None:
    (directory / f"{name}.def").write_text(definition)
    recipes._apptainer_build(directory, kind, rootfs, [Bind(base, "/build/base"), Bind(wheels, "/build/wheels")])


def build_image(name: str, generation: str) -> Artefact:
    """Build an image if it is missing, and return it."""
    artefact = image(name, generation)
    cache.provide([artefact], state.artefacts_in_use())
    return artefact


def provide_image(cluster: PracticeCluster, name: str) -> str:
    """Build an image if it is missing, put it on a running cluster, and return its path there."""
    return _put(cluster, name, build_image(name, cluster.generation))


def _put(cluster: PracticeCluster, name: str, artefact: Artefact) -> str:
    target = cluster.directory / "sw" / "images" / f"{called(name)}.sif"
    if not target.exists():
        try:
            os.link(artefact.path / f"{name}.sif", target)
        except OSError:  # the cache is on another disk
            shutil.copy2(artefact.path / f"{name}.sif", target)
    return f"/sw/images/{called(name)}.sif"


def offer_built_images(cluster: PracticeCluster) -> list[str]:
    """Add the images of PyTorch and TensorFlow that are built to the profile `practice`; return their environments.

    They are added to the profile of all users on the laptop, and of the person who typed `up`. Nothing is built.
    """
    built = {name: image(name, cluster.generation) for name in OFFERED}
    tables = {
        environment: f'\n[environments.{environment}]\ncontainer = "{_put(cluster, name, built[name])}"\n{more}'
        for name, environments in OFFERED.items()
        if built[name].path.exists()
        for environment, more in environments.items()
    }
    homes = (cluster.directory / "laptop-home").glob("*/.config/notebook-launcher/clusters/practice.toml")
    own = state.load(cluster.generation).profile
    for profile in (*homes, *([Path(own)] if own else [])):
        if profile.is_symlink() or not profile.is_file():
            continue
        text = profile.read_text()
        new = [table for environment, table in tables.items() if f"[environments.{environment}]" not in text]
        with profile.open("a") as file:
            file.writelines(new)
    return list(tables)
