"""Mount a folder again through FUSE, with a delay of each open and each stat, as on a busy shared file system.

    python3 slow_files.py SOURCE TARGET MILLISECONDS

Runs in a box, as root and in the foreground, until TARGET is unmounted. Reading is as fast as in SOURCE: such file
systems are slow for many small files and fast for one large file. Needs mfusepy beside it, and libfuse 3.
"""

from __future__ import annotations

import glob
import os
import sys
import time

os.environ.setdefault("FUSE_LIBRARY_PATH", sorted(glob.glob("/usr/lib/*/libfuse3.so.[34]"))[-1])

import mfusepy as fuse

_STATED = (
    "st_atime",
    "st_ctime",
    "st_gid",
    "st_ino",
    "st_mode",
    "st_mtime",
    "st_nlink",
    "st_size",
    "st_uid",
    "st_blocks",
)


class SlowFiles(fuse.Operations):  # type: ignore[misc]  # mfusepy has no types
    """The files below ``source``; new files belong to the user who creates them."""

    use_ns = True

    def __init__(self, source: str, seconds: float) -> None:
        self.source, self.seconds = source, seconds

    def _below(self, path: str) -> str:
        return self.source + path

    def _made(self, path: str) -> None:
        user, group, _ = fuse.fuse_get_context()
        os.lchown(self._below(path), user, group)

    # ---- slow operations

    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        time.sleep(self.seconds)
        found = os.lstat(self._below(path))
        times = {f"st_{name}": getattr(found, f"st_{name}_ns") for name in ("atime", "ctime", "mtime")}
        return {**{name: getattr(found, name) for name in _STATED}, **times}

    def open(self, path: str, flags: int) -> int:
        time.sleep(self.seconds)
        return os.open(self._below(path), flags & ~os.O_NOFOLLOW)

    def opendir(self, path: str) -> int:
        time.sleep(self.seconds)
        return 0

    def create(self, path: str, mode: int, fi: object = None) -> int:
        time.sleep(self.seconds)
        handle = os.open(self._below(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        self._made(path)
        return handle

    # ---- fast operations

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        return os.pwrite(fh, data, offset)

    def release(self, path: str, fh: int) -> int:
        os.close(fh)
        return 0

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *os.listdir(self._below(path))]

    def readlink(self, path: str) -> str:
        return os.readlink(self._below(path))

    def statfs(self, path: str) -> dict[str, int]:
        found = os.statvfs(self._below(path))
        names = ("f_bavail", "f_bfree", "f_blocks", "f_bsize", "f_files", "f_ffree", "f_frsize", "f_namemax")
        return {name: getattr(found, name) for name in names}

    def mkdir(self, path: str, mode: int) -> int:
        os.mkdir(self._below(path), mode)
        self._made(path)
        return 0

    def unlink(self, path: str) -> int:
        os.unlink(self._below(path))
        return 0

    def rmdir(self, path: str) -> int:
        os.rmdir(self._below(path))
        return 0

    def rename(self, old: str, new: str, flags: int = 0) -> int:
        os.rename(self._below(old), self._below(new))
        return 0

    def chmod(self, path: str, mode: int) -> int:
        os.chmod(self._below(path), mode)
        return 0

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        os.truncate(self._below(path), length)
        return 0

    def utimens(self, path: str, times: tuple[int, int]) -> int:
        os.utime(self._below(path), ns=times, follow_symlinks=False)
        return 0


def main() -> None:
    """Mount, and serve until it is unmounted."""
    source, target, milliseconds = sys.argv[1:4]
    operations = SlowFiles(source, float(milliseconds) / 1000)
    # The kernel checks permissions, as it does for files of its own.
    options = {"allow_other": True, "default_permissions": True, "use_ino": True, "fsname": "slow"}
    fuse.FUSE(operations, target, foreground=True, **options)


if __name__ == "__main__":
    main()
