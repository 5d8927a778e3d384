"""Tells whether other people use this machine, well enough for a warning; for security, see ``personal_machine``."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

FIRST_PERSON = 1000  # users with lower ids are the system's


def others_work_here() -> bool:
    """Whether another person runs a program on this machine; always false where that is not known (not on Linux)."""
    if not hasattr(os, "getuid"):  # Windows
        return False
    owners: set[int] = set()
    with contextlib.suppress(OSError):  # another system
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with contextlib.suppress(OSError):  # it has just ended
                    owners.add(entry.stat().st_uid)
    return any(_is_person(uid) for uid in owners - {os.getuid()})


def _is_person(uid: int) -> bool:
    """Whether a user can log in; ids without a name are those of containers."""
    import pwd

    try:
        return uid >= FIRST_PERSON and Path(pwd.getpwuid(uid).pw_shell).name not in ("nologin", "false", "")
    except KeyError:
        return False
