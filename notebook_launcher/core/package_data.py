"""The job scripts and notebooks that travel with the package: in a wheel, or in a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent

# what a session directory gets a copy of, so that the cluster needs nothing installed
JOB_FILES = (
    "jupyterlab.sh",
    "lib.sh",
    "containers.sh",
    "submit.sh",
    "sshd.sh",
    "shell.sh",
    "watch.sh",
    "usage.sh",
    "asked.sh",
    "local.sh",
    "image.sh",
    "jupyter_server_config.py",
    "idle_guard.py",
    "execute.py",
)


def folder(name: str) -> Path:
    """Return the folder ``jobscripts`` or ``notebooks``."""
    shipped = _PACKAGE / "_data" / name
    return shipped if shipped.is_dir() else _PACKAGE.parent / name


def job_files() -> dict[str, bytes]:
    """Return the job scripts by name, for a session directory."""
    return {name: (folder("jobscripts") / name).read_bytes() for name in JOB_FILES}
