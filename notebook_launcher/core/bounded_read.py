"""Files that may be larger than anybody wants to read."""

from __future__ import annotations

from pathlib import Path


def read_at_most(path: Path, limit: int) -> bytes | None:
    """Return a file's content, ``None`` where it has more than ``limit`` bytes. Raises ``OSError``."""
    with path.open("rb") as file:
        content = file.read(limit + 1)
    return content if len(content) <= limit else None
