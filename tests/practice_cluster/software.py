"""The cluster's software below /sw: modules, images, and a JupyterLab that needs no container."""

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
    "2025.lua": """\
whatis("What was installed in 2025: load it first, then what is in it")
prepend_path("MODULEPATH", "/sw/modules-2025")
""",
}
MODULES_OF_2025 = {
    "JupyterLab/4-year.lua": """\
whatis("JupyterLab, in the module tree of its year")
prepend_path("PATH", "/sw/jupyterlab/bin")
""",
}

# The same for Environment Modules, which reads only Tcl.
TCL_MODULES = {
    "jupyterlab/4": """\
#%Module1.0
module-whatis "JupyterLab without a container"
prepend-path PATH /sw/jupyterlab/bin
""",
    "broken/1": """\
#%Module1.0
module-whatis "A module that fails to load, to see what happens then"
error "This module is broken on purpose."
""",
    "2025": """\
#%Module1.0
module-whatis "What was installed in 2025: load it first, then what is in it"
prepend-path MODULEPATH /sw/tcl-modules-2025
""",
}
TCL_MODULES_OF_2025 = {
    "JupyterLab/4-year": """\
#%Module1.0
module-whatis "JupyterLab, in the module tree of its year"
prepend-path PATH /sw/jupyterlab/bin
""",
}
TREES = {
    "modules": MODULES,
    "modules-2025": MODULES_OF_2025,
    "tcl-modules": TCL_MODULES,
    "tcl-modules-2025": TCL_MODULES_OF_2025,
}

ENVIRONMENT_MODULES = "/opt/environment-modules"
"""The unpacked Environment Modules, which a site may have instead of Lmod."""


def make_tree(directory: Path) -> None:
    """Fill the directory that becomes /sw with the modules, and with mount points for all that is mounted there."""
    for tree, modules in TREES.items():
        for name, text in modules.items():
            path = directory / tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    (directory / "images").mkdir()
    for name in ("jupyterlab.sif", "no-jupyter.sif"):
        (directory / "images" / name).touch()
    for name in ("images/jupyterlab.ch", "images/podman-store", "jupyterlab", "wheels"):
        (directory / name).mkdir()


def binds(directory: Path, parts: Parts) -> list[Bind]:
    """Return the mounts of every box of the cluster, in order."""
    return [
        Bind(directory, "/sw"),
        Bind(parts.image.path / "jupyterlab.sif", "/sw/images/jupyterlab.sif"),
        Bind(parts.image_without_jupyter.path / "no-jupyter.sif", "/sw/images/no-jupyter.sif"),
        Bind(parts.lab.path, "/sw/jupyterlab"),
        Bind(parts.lab_wheels.path, "/sw/wheels"),
        Bind((parts.image_unpacked.path / "tree").resolve(), "/sw/images/jupyterlab.ch"),
        Bind(parts.image_unpacked.path / "store", "/sw/images/podman-store"),
        Bind(parts.environment_modules.path, ENVIRONMENT_MODULES),
    ]
