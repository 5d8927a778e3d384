"""The paths of files that a command writes: one name with several suffixes; nothing is overwritten unasked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from notebook_launcher.core.errors import UsageError


def new_files(out: Path | None, name: str, endings: Sequence[str], *, force: bool) -> list[Path]:
    """Return the path with each suffix. ``out``: the path without it; ``None``: ``name``, in this folder.

    Raises ``UsageError`` for a path without a file name, and, without ``force``, for a file that exists already.
    """
    base = (out or Path(name)).expanduser()
    if base.name in ("", ".."):
        raise UsageError(f"--out {base} names a folder.", hint=f"name the files in it: --out {base / name}")
    paths = [base.with_name(f"{base.name}.{ending}") for ending in endings]
    for path in paths:
        if path.exists() and not force:
            raise UsageError(f"{path} exists already.", hint="replace it with --force, or name another with --out PATH")
    return paths
