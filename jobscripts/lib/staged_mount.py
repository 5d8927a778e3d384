"""Run a command that sees copies on the node's own disk in the place of the folders that they are copies of.

    python3 -I staged_mount.py FOLDER COPY [FOLDER COPY]... -- COMMAND ARG...
    python3 -I staged_mount.py --try            whether this node allows it

In a user and a mount namespace of its own, as an ordinary user: nobody else sees these mounts, and they are gone with
the last process. Each is read-only. The command keeps its user, its groups and its environment, and has no more rights
than before. Needs Python 3.6 alone; util-linux could do it too, but older ones not without becoming root in there.
"""

import ctypes
import os
import sys
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_NOATIME, MS_NODIRATIME, MS_BIND, MS_REC, MS_PRIVATE, MS_RELATIME = 1024, 2048, 4096, 16384, 1 << 18, 1 << 21
# what a mount has, and may not lose in a user namespace (statvfs and mount number them differently)
KEPT = ((2, MS_NOSUID), (4, MS_NODEV), (8, MS_NOEXEC), (1024, MS_NOATIME), (2048, MS_NODIRATIME), (4096, MS_RELATIME))

libc = ctypes.CDLL(None, use_errno=True)


def check(result, what):
    """Raise ``OSError`` where a call of the C library failed."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def write(path, text):
    """Write one of the kernel's files."""
    Path(path).write_text(text)


def mount(source, target, flags, what):
    """Mount, as mount(2)."""
    check(libc.mount(os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(flags), None), what)


def enter():
    """Move into namespaces in which this user, still under the same number, may mount."""
    user, group = os.geteuid(), os.getegid()
    check(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS), "no user namespace")
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", f"{user} {user} 1")
    write("/proc/self/gid_map", f"{group} {group} 1")
    mount("none", "/", MS_REC | MS_PRIVATE, "mounts cannot be made private")


def show(folder, copy):
    """Mount ``copy`` over ``folder``, read-only."""
    mount(copy, folder, MS_BIND | MS_REC, f"{copy} cannot be mounted over {folder}")
    has = os.statvfs(folder).f_flag
    flags = sum(flag for bit, flag in KEPT if has & bit)
    mount("none", folder, MS_REMOUNT | MS_BIND | MS_RDONLY | flags, f"{folder} cannot be made read-only")


def main(words):
    """Enter, mount, and become the command."""
    if words == ["--try"]:
        enter()
        mount("/proc", "/proc", MS_BIND | MS_REC, "nothing can be mounted")
        return
    border = words.index("--")
    here = Path.cwd()
    enter()
    for folder, copy in zip(words[:border:2], words[1:border:2]):  # noqa: B905 - Python 3.6 has no strict
        show(folder, copy)
    os.chdir(here)  # which may lie below one of them
    # Not being root, the command has none of the rights that this process has in the namespace.
    os.execvp(words[border + 1], words[border + 1 :])  # noqa: S606


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as error:
        sys.exit(f"notebook-launcher: {error.strerror or error}")
