"""Homes on small separate file systems, shared by all boxes, which stand in for a quota."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import processes
from .errors import ClusterError
from .layout import USERS

INODES = 1024
"""How many files and directories fit into a small home."""

# The working directory is still the one below when the new file system is mounted over it: that has the files.
_MOUNT = """\
set -eu
mount --make-rprivate /
while read -r home size owner; do
    cd "$home"
    mount -t tmpfs -o "size=${size}m,nr_inodes=$1,mode=755,uid=$owner,gid=$owner" tmpfs "$home"
    cp -a . "$home"/
done
echo ready
exec sleep infinity
"""


@contextmanager
def mounted(homes: Path, mark: Path) -> Iterator[int]:
    """Mount the small homes of the cluster in a new mount namespace, and yield a process in it.

    Boxes that start in that namespace have the same file systems; once they are up, it is not needed any more. The
    mounts are never visible on the host.
    """
    small = [user for user in USERS.values() if user.home_mebibytes is not None]
    process = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", _MOUNT, "sh", str(INODES)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PATH": os.environ.get("PATH", os.defpath), processes.MARK: str(mark)},
        text=True,
    )
    with process:
        assert process.stdin and process.stdout
        process.stdin.write("".join(f"{homes / user.name} {user.home_mebibytes} {user.uid}\n" for user in small))
        process.stdin.close()
        try:
            if process.stdout.readline() != "ready\n":
                raise ClusterError(f"No file system could be mounted for {', '.join(user.name for user in small)}.")
            yield process.pid
        finally:
            process.kill()
