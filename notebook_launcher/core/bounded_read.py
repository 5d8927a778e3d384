"""Reads files only up to a size limit."""

from __future__ import annotations

from pathlib import Path


def read_at_most(path: Path, limit: int) -> bytes | None:
    """Return a file's content, ``None`` if it is larger than ``limit`` bytes. Raises ``OSError``."""
    with path.open("rb") as file:
        content = file.read(limit + 1)
    return content if len(content) <= limit else None
