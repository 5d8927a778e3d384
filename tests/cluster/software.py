"""What a cluster's users find under /sw: modules, images, and a JupyterLab that needs no container."""

from __future__ import annotations

from pathlib import Path

from .layout import Bind
from .recipes import Parts

MODULES = {
    "jupyterlab/4.lua": """\
whatis("JupyterLab without a container")
prepend_path("PATH", "/sw/jupyterlab/bin")
""",
    "broken/1.lua": """\
whatis("A module that fails to load, to see what happens then")
LmodError("This module is broken on purpose.")
""",
}


def make_tree(directory: Path) -> None:
    """Fill the directory that becomes /sw: the modules, and a place for everything that is mounted there."""
    for name, text in MODULES.items():
        path = directory / "modules" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (directory / "images").mkdir()
    for name in ("jupyterlab.sif", "no-jupyter.sif"):
        (directory / "images" / name).touch()
    (directory / "jupyterlab").mkdir()


def binds(directory: Path, parts: Parts) -> list[Bind]:
    """Return what is mounted on every box of the cluster, in this order."""
    return [
        Bind(directory, "/sw"),
        Bind(parts.image.path / "jupyterlab.sif", "/sw/images/jupyterlab.sif"),
        Bind(parts.image_without_jupyter.path / "no-jupyter.sif", "/sw/images/no-jupyter.sif"),
        Bind(parts.lab.path, "/sw/jupyterlab"),
    ]
