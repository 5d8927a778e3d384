"""Who else uses this machine, as far as it shows: enough for a warning. Security needs ``personal_machine``."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

FIRST_PERSON = 1000  # users with lower numbers are the system's


def others_work_here() -> bool:
    """Whether another person runs a program on this machine, as Linux tells everybody; elsewhere it is not known."""
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
    """Whether a user can log in; numbers without a name are those of containers."""
    import pwd

    try:
        return uid >= FIRST_PERSON and Path(pwd.getpwuid(uid).pw_shell).name not in ("nologin", "false", "")
    except KeyError:
        return False
