"""The resources of a session's node for a distributed framework, and how the framework's processes there report.

Shared by ``dask_node.py`` and ``ray_node.py``. Needs only Python.
"""

import contextlib
import os
from pathlib import Path

FOLDER = Path(os.environ.get("NBL_SESSION_DIR", "."))
SHARED_PART = 4  # a quarter of the first node's memory is left to JupyterLab, kernels and the scheduler
MIB = 2**20


def write_line(name: str, text: str) -> None:
    """Replace a file in the session's ``runtime`` folder atomically, readable only by its user."""
    path = FOLDER / "runtime" / name
    new = path.with_name(f"{name}.new.{os.getpid()}")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text + "\n")
    new.replace(path)


def cores_here() -> int:
    """Return the number of cores that the job has on this node."""
    with contextlib.suppress(KeyError, ValueError):
        return max(1, int(os.environ["SLURM_CPUS_ON_NODE"]))
    allowed = len(os.sched_getaffinity(0))
    with contextlib.suppress(KeyError, ValueError):
        return max(1, min(allowed, int(os.environ["LSB_DJOB_NUMPROC"])))
    return allowed


def memory_here(cores: int, most: int) -> int:
    """Return the memory for the workers on this node, in bytes. ``most``: the limit for a process."""
    gpus = len(gpus_here())
    for name, times in (("SLURM_MEM_PER_NODE", 1), ("SLURM_MEM_PER_CPU", cores), ("SLURM_MEM_PER_GPU", gpus)):
        with contextlib.suppress(KeyError, ValueError):
            granted = int(os.environ[name]) * times * MIB
            most = min(most, granted) if granted > 0 else most
    if os.environ.get("NBL_FIRST_NODE") == os.uname().nodename:
        most -= most // SHARED_PART
    return most


def gpus_here() -> "list[str]":
    """Return the GPUs that the job has on this node, by their CUDA ids."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return [] if named in ("NoDevFiles", "-1") else [gpu for gpu in named.split(",") if gpu]


def memory_limit() -> int:
    """Return how many bytes a process of the job may use: the machine's memory, or the lowest limit of its cgroups."""
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, kinds, path = line.split(":", 2)
            top, name = ("", "memory.max") if not kinds else ("memory", "memory.limit_in_bytes")
            if kinds and "memory" not in kinds.split(","):
                continue
            folder = Path("/sys/fs/cgroup", top, path.lstrip("/"))
            for place in (folder, *folder.parents):
                with contextlib.suppress(OSError, ValueError):
                    most = min(most, int((place / name).read_text(encoding="ascii")))
    return most
