"""A module with Ray, beside the one with JupyterLab: put on a cluster when a test asks for it.

What the libraries on top of Ray need, more than half of the package, is left out; the rest is compiled once and kept.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

from . import cache, recipes, rolling, state
from .cache import Artefact
from .cluster import PracticeCluster
from .layout import Bind

NAME = "ray/2"
FOLDER = "/sw/ray"
LEFT_OUT = ("jars", "rllib", "data", "tune", "train", "serve", "llm", "dashboard/client")
_MODULE = f'whatis("Ray, for the Python of this machine")\nprepend_path("PYTHONPATH", "{FOLDER}")\n'


def software(generation: str) -> Artefact:
    """Return Ray and what it needs, for that generation's Python, built or not."""
    found = rolling.generation(generation)
    wheels = recipes._wheels("ray", ("ray",), found.python)
    rootfs = recipes.artefacts(found).rootfs
    return recipes._artefact(f"ray-{found.python}", _make, LEFT_OUT, inputs=(wheels,), tools=(rootfs,))


def _make(directory: Path, kind: str, wheels: Path, rootfs: Path, left_out: tuple[str, ...]) -> None:
    """Unpack the wheels and compile them, with the boxes' own Python: on a cluster nothing can be written there."""
    parts = tuple(f"ray/{part}/" for part in left_out)
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(directory, [name for name in archive.namelist() if not name.startswith(parts)])
    for program in ("gcs/gcs_server", "raylet/raylet"):
        (directory / "ray/core/src/ray" / program).chmod(0o755)
    with recipes._builder(rootfs, [Bind(directory, "/sw/ray", writable=True)], kind) as run:
        run("root", ["python3", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "/sw/ray"])


def provide_ray(cluster: PracticeCluster) -> str:
    """Build Ray if it is missing, put it on a running cluster, and return the module's name there."""
    artefact = software(cluster.generation)
    cache.provide([artefact], state.artefacts_in_use())
    module = cluster.directory / "sw" / "modules" / f"{NAME}.lua"
    if not module.exists():
        shutil.copytree(artefact.path, cluster.directory / FOLDER.removeprefix("/"), copy_function=_link)
        module.parent.mkdir()
        module.write_text(_MODULE)
    return NAME


def _link(source: str, target: str) -> None:
    """Copy a file; on the same file system by another name for it."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
