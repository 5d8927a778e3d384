"""Reads files up to a size limit, and refuses links, pipes and devices that others may have put in their place."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

LONGEST_LINE = 1024 * 1024  # bytes


def read_at_most(path: Path, limit: int) -> bytes | None:
    """Return a file's content, ``None`` if it is larger than ``limit`` bytes. Raises ``OSError``."""
    with path.open("rb") as file:
        return _content(file, limit)


def read_regular(path: str | Path, limit: int, folder: int | None = None) -> bytes | None:
    """Return the content of a regular file, not a link, as ``read_at_most`` does; see ``open_regular``."""
    with open_regular(path, folder) as file:
        return _content(file, limit)


def bounded_lines(path: Path, limit: int) -> Iterator[str]:
    """Yield the lines of a regular file, none longer than ``LONGEST_LINE`` and none beyond ``limit`` bytes.

    A longer line comes in several parts. Raises ``OSError`` as ``open_regular`` does.
    """
    with open_regular(path) as file:
        while limit > 0 and (line := file.readline(min(limit, LONGEST_LINE))):
            limit -= len(line)
            yield line.decode(errors="replace")


def open_regular(path: str | Path, folder: int | None = None) -> BinaryIO:
    """Open a file to read it. Raises ``OSError`` for a link, and for a pipe or a device, for which it never waits.

    ``folder``: the descriptor of the folder that a relative path starts from.
    """

    def opened(path: str, flags: int) -> int:
        flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        return os.open(path, flags, dir_fd=folder)

    file = open(path, "rb", opener=opened)  # noqa: SIM115 (Path.open has no opener)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return file


def _content(file: BinaryIO, limit: int) -> bytes | None:
    content = file.read(limit + 1)
    return content if len(content) <= limit else None
