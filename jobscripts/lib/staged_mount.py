"""Run a command with copies on the node's own disk mounted over the original folders.

    python3 -I staged_mount.py [--with=SQUASHFUSE] FOLDER COPY [FOLDER COPY]... -- COMMAND ARG...
    python3 -I staged_mount.py --try [ARCHIVE SQUASHFUSE]       whether this node allows it, and can mount this archive

A copy is a folder, or an archive that the program SQUASHFUSE can mount (squashfuse_ll, which Apptainer contains). The
command runs in new user and mount namespaces, as an ordinary user: the mounts are invisible to others, and gone with
the last process. They are read-only. The command keeps its user, its groups and its environment, and gets no additional
rights. Needs only Python 3.6; util-linux could do it as well, but older versions only as root inside the namespace.
"""

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_NOATIME, MS_NODIRATIME, MS_BIND, MS_REC, MS_PRIVATE, MS_RELATIME = 1024, 2048, 4096, 16384, 1 << 18, 1 << 21
# flags that a mount may not lose in a user namespace (statvfs and mount number them differently)
KEPT = ((2, MS_NOSUID), (4, MS_NODEV), (8, MS_NOEXEC), (1024, MS_NOATIME), (2048, MS_NODIRATIME), (4096, MS_RELATIME))

MNT_DETACH, PR_SET_PDEATHSIG = 2, 1

libc = ctypes.CDLL(None, use_errno=True)


def check(result, what):
    """Raise ``OSError`` if a call of the C library failed."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def write(path, text):
    """Write to a file in /proc."""
    Path(path).write_text(text)


def mount(source, target, flags, what):
    """Call mount(2)."""
    check(libc.mount(os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(flags), None), what)


def enter():
    """Enter new namespaces in which this user, with the same uid, may mount."""
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


def mount_archive(program, archive, folder):
    """Mount an archive over ``folder``, read-only; ``program`` serves it until this process ends.

    Between mounting and serving, nothing may be read there, so no module may be imported from such a folder.
    """
    device, ready = os.open("/dev/fuse", os.O_RDWR), os.pipe()
    parent, server = os.getpid(), os.fork()
    if server == 0:
        os.close(ready[1])
        if os.read(ready[0], 1):
            serve(program, archive, device, parent)
        os._exit(1)
    try:
        mount_fuse(device, folder)
        os.write(ready[1], b"m")
        os.close(device)
        next(Path(folder).iterdir(), None)  # waits until it is served, and fails if the program has ended
    except OSError:
        libc.umount2(os.fsencode(folder), MNT_DETACH)
        os.kill(server, signal.SIGKILL)
        raise
    finally:
        os.close(ready[0])
        os.close(ready[1])


def serve(program, archive, device, parent):
    """Exec ``program``, which runs for as long as ``parent``.

    It ignores signals sent to all processes of a job, because the others may still need their files in order to end.
    """
    os.setpgid(0, 0)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    silence = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(silence, standard)
    os.set_inheritable(device, True)
    if os.getppid() == parent:
        os.execv(program, [program, "-f", archive, f"/dev/fd/{device}"])  # noqa: S606


def mount_fuse(device, folder):
    """Mount the file system that will be served through an open ``/dev/fuse``."""
    options = f"fd={device},rootmode=40000,user_id={os.geteuid()},group_id={os.getegid()}"
    flags = ctypes.c_ulong(MS_RDONLY | MS_NOSUID | MS_NODEV)
    words = (b"squashfuse_ll", os.fsencode(folder), b"fuse.squashfuse_ll", flags, options.encode())
    check(libc.mount(*words), f"nothing can be mounted over {folder}")


def attempt(archive=None, program=None):
    """Print ``mount`` if archives can be mounted as well. Raises ``OSError`` if folders or the given archive cannot."""
    enter()
    mount("/proc", "/proc", MS_BIND | MS_REC, "nothing can be mounted")
    if archive is not None:
        mount_archive(program, archive, "/sys")
    else:
        with contextlib.suppress(OSError):
            mount_fuse(os.open("/dev/fuse", os.O_RDWR), "/sys")
            print("mount")


def main(words):
    """Enter the namespaces, mount, and exec the command."""
    if words[0] == "--try":
        attempt(*words[1:])
        return
    program = words.pop(0).partition("=")[2] if words[0].startswith("--with=") else ""
    border = words.index("--")
    here = Path.cwd()
    enter()
    for folder, copy in zip(words[:border:2], words[1:border:2]):  # noqa: B905 - Python 3.6 has no strict
        if os.path.isdir(copy):  # noqa: PTH112
            show(folder, copy)
            continue
        try:
            mount_archive(program, copy, folder)
        except OSError as error:
            sys.stderr.write(f"notebook-launcher: {copy} could not be mounted, going on with {folder}: {error}\n")
    os.chdir(here)  # the working directory may be below one of them
    # As it is not root, the command loses the capabilities that this process has in the namespace.
    os.execvp(words[border + 1], words[border + 1 :])  # noqa: S606


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as error:
        sys.exit(f"notebook-launcher: {error.strerror or error}")
