"""Opens folders without following links, so that nobody can redirect a copy by replacing a folder or a file.

In a folder that several users may write to, anybody can put a link in the place of a folder or a file between two steps
of a copy. Each step therefore opens the folder anew, name by name from the root, and works in the opened folder. On
systems that cannot open folders (Windows), paths are used.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from notebook_launcher.core.bounded_read import read_regular
from notebook_launcher.core.frozen import Frozen

_CAN_OPEN = os.open in os.supports_dir_fd
# to pass through a folder that need not be readable
_PASS = getattr(os, "O_PATH", getattr(os, "O_SEARCH", os.O_RDONLY))
_FOLDER = _PASS | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_FILE = getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_FOLLOWS = os.link not in os.supports_follow_symlinks  # whether ``os.link`` always follows links
#: identifies a file or folder, whatever its name: the numbers of its file system and inode
Identity = tuple[int, int]


class RealFolder(Frozen):
    """An open folder. ``path``: absolute; ``descriptor``: ``None`` on systems that cannot open folders."""

    path: str
    descriptor: int | None

    @property
    def identity(self) -> Identity:
        """The identity of this folder."""
        return identity(Path(self.path).stat() if self.descriptor is None else os.fstat(self.descriptor))

    def stat(self, name: str) -> os.stat_result:
        """Inspect an entry, without following a link."""
        return os.stat(self._name(name), dir_fd=self.descriptor, follow_symlinks=False)

    def read(self, name: str, limit: int) -> bytes | None:
        """Return a regular file's content, ``None`` if it is larger than ``limit`` bytes. Raises ``OSError``."""
        return read_regular(self._name(name), limit, self.descriptor)

    def open(self, name: str, flags: int) -> BinaryIO:
        """Open a file, not a link, to read and write; a new one gets mode 0600, whatever an ACL grants."""
        file = os.open(self._name(name), os.O_RDWR | flags | _FILE, 0o600, dir_fd=self.descriptor)
        if flags & os.O_CREAT and _CAN_OPEN:
            with contextlib.suppress(OSError):
                os.fchmod(file, 0o600)
        return os.fdopen(file, "r+b")

    def make_folder(self, name: str, mode: int) -> None:
        """Create a folder, with this mode under the umask. Raises ``FileExistsError``."""
        os.mkdir(self._name(name), mode, dir_fd=self.descriptor)

    def read_link(self, name: str) -> str | None:
        """Return the target of a link, unchanged; ``None`` for anything else."""
        with contextlib.suppress(OSError):
            return os.readlink(self._name(name), dir_fd=self.descriptor)
        return None

    def make_link(self, leads: str, name: str) -> None:
        """Create a symbolic link. Raises ``FileExistsError``."""
        os.symlink(leads, self._name(name), dir_fd=self.descriptor)

    def remove(self, name: str) -> None:
        """Remove a file or a link."""
        os.unlink(self._name(name), dir_fd=self.descriptor)

    def move(self, name: str, to: RealFolder, new: str, *, replace: bool) -> None:
        """Give a file another name. Raises ``FileExistsError`` if there is one with that name, unless ``replace``."""
        ends = {"src_dir_fd": self.descriptor, "dst_dir_fd": to.descriptor}
        if replace:
            os.replace(self._name(name), to._name(new), **ends)  # noqa: PTH105 (has no dir_fd)
            return
        try:
            os.link(self._name(name), to._name(new), follow_symlinks=_FOLLOWS, **ends)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            with contextlib.suppress(FileNotFoundError):
                to.stat(new)
                raise FileExistsError from None
            os.rename(self._name(name), to._name(new), **ends)  # noqa: PTH104 (has no dir_fd)
        else:
            self.remove(name)

    def set_mode(self, mode: int) -> None:
        """Set the mode of the folder itself."""
        if self.descriptor is None:
            Path(self.path).chmod(mode)
            return
        itself = os.open(".", os.O_RDONLY, dir_fd=self.descriptor)
        try:
            os.fchmod(itself, mode)
        finally:
            os.close(itself)

    def set_mode_and_time(self, name: str, file: int, mode: int, moment: int) -> None:
        """Set the mode of an open file, and the time of its last change, in ns."""
        times = (time.time_ns(), moment)
        if _CAN_OPEN:
            os.fchmod(file, mode)
            os.utime(file, ns=times)
        else:
            Path(self.path, name).chmod(mode)
            os.utime(Path(self.path, name), ns=times)

    def _name(self, name: str) -> str:
        return name if self.descriptor is not None else str(Path(self.path, name))


@contextlib.contextmanager
def real_folder(path: str) -> Iterator[RealFolder]:
    """Open a folder by its absolute path. Raises ``NotADirectoryError`` if a part of the path is now a link."""
    if not _CAN_OPEN:
        yield RealFolder(path, None)
        return
    descriptor = os.open("/", _FOLDER)
    try:
        for name in Path(path).parts[1:]:
            below = os.open(name, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield RealFolder(path, descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def folder_of(path: str) -> Iterator[tuple[RealFolder, str]]:
    """Open the folder in which an absolute path is; yields the folder, and the path's name in it."""
    above, name = os.path.split(path)
    with real_folder(above) as folder:
        yield folder, name


def identity(found: os.stat_result) -> Identity:
    """Return the identity of a file or folder."""
    return found.st_dev, found.st_ino


def is_plain(found: os.stat_result) -> bool:
    """Whether it is a regular file with a single name."""
    return stat.S_ISREG(found.st_mode) and found.st_nlink <= 1


def is_part(found: os.stat_result) -> bool:
    """Whether it looks like a part of this user's, which nobody else can have created or have open."""
    own = not _CAN_OPEN or (found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == 0o600)
    return own and is_plain(found)
