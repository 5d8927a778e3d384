"""A module with Dask, beside the one with JupyterLab: put on a cluster when a test asks for it."""

from __future__ import annotations

import zipfile

from . import cache, recipes, rolling, state
from .cache import Artefact
from .cluster import PracticeCluster

NAME = "dask/1"
FOLDER = "/home/alice/python-dask"  # what is below /sw no box may write, and Python has to save what it compiles
_MODULE = f'whatis("Dask, for the Python of this machine")\nprepend_path("PYTHONPATH", "{FOLDER}")\n'


def wheels(generation: str) -> Artefact:
    """Return the wheels of Dask for that generation's Python, downloaded or not."""
    return recipes._wheels("dask", ("distributed",), rolling.generation(generation).python)


def provide_dask(cluster: PracticeCluster) -> str:
    """Download Dask if it is missing, put it on a running cluster, and return the module's name there."""
    artefact = wheels(cluster.generation)
    cache.provide([artefact], state.artefacts_in_use())
    module = cluster.directory / "sw" / "modules" / f"{NAME}.lua"
    if not module.exists():
        folder = cluster.directory / FOLDER.removeprefix("/")
        for wheel in artefact.path.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder)
        cluster.root("login", ["chown", "-R", "alice:", FOLDER], check=True)
        cluster.run("login", "alice", ["python3", "-m", "compileall", "-q", FOLDER], check=True)
        module.parent.mkdir()
        module.write_text(_MODULE)
    return NAME
