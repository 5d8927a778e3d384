"""The job scripts and notebooks that are part of the package: in a wheel, or in a checkout."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent

# what each script that sets up an environment needs in its folder
LIBRARY = ("lib.sh", "containers.sh", "activate.sh")
_LIB = (
    *LIBRARY,
    *("array_task.sh", "enter.sh", "program.sh", "job_services.sh", "sshd.sh", "reverse.sh", "shell.sh"),
    *("usage.sh", "usage_gpu.sh", "image.sh", "heartbeat.sh", "stage.sh", "stage_disk.sh", "stage_squash.sh"),
    *("workers.sh", "workers_dask.sh", "workers_ray.sh", "worker_node.sh", "torchrun_nodes.sh"),
)
_LOGIN = ("submit.sh", "watch.sh", "watch_tasks.sh", "shared_query.sh", "local.sh")
_PYTHON = (
    *("jupyter_server_config.py", "quick_start.py", "import_cache.py", "static_files.py"),
    *("idle_guard.py", "idle_rules.py"),
    *("execute.py", "execute_common.py", "execute_kernel.py", "execute_outputs.py"),
    *("execute_script.py", "execute_html.py", "staged_mount.py"),
    *("own_connections.py", "node_resources.py", "dask_node.py", "ray_node.py"),
    *("panel.py", "panel_facts.py", "panel_saving.py", "session_apps.py", "app_requests.py", "app_tensorboard.py"),
)
_PAGE = ("panel.js", "panel_view.js", "panel_apps.js")

# copied into each session directory, side by side, so that the cluster needs nothing installed
JOB_FILES = ("jupyterlab.sh", *_LIB, *_LOGIN, *_PYTHON, *_PAGE)


def folder(name: str) -> Path:
    """Return the folder ``jobscripts`` or ``notebooks``."""
    shipped = _PACKAGE / "_data" / name
    return shipped if shipped.is_dir() else _PACKAGE.parent / name


def job_script(name: str) -> Path:
    """Return the path of a job script by its file name, whichever folder of ``jobscripts`` it is in."""
    top = folder("jobscripts")
    return next(path for path in (top / name, top / "lib" / name, top / "login" / name) if path.is_file())


def container_definitions() -> dict[str, Path]:
    """Return the bundled definition files of container images, by name."""
    return {path.stem: path for path in sorted((folder("jobscripts") / "lib" / "image_definitions").glob("*.def"))}


def job_files() -> dict[str, bytes]:
    """Return the job scripts by name, for a session directory."""
    return {name: job_script(name).read_bytes() for name in JOB_FILES}


#: the name of the file with the checksums of the job files
CHECKSUMS = "scripts.sha256"


def checksums(files: Mapping[str, bytes]) -> bytes:
    """Return the input of ``sha256sum --check`` for these files; the first line is ``# `` and a digest of them all."""
    lines = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(files.items()))
    return f"# {hashlib.sha256(lines.encode()).hexdigest()}\n{lines}".encode()


def digest_in(content: bytes) -> str:
    """Return the digest in the first line of ``checksums``."""
    return content.partition(b"\n")[0].removeprefix(b"# ").decode(errors="replace")
