"""Who else uses this machine, as far as it shows."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

FIRST_PERSON = 1000  # users with lower numbers are the system's
FIRST_PERSON_ON_MAC, NOBODY_ON_MAC = 501, 2**32 - 2
FIRST_PROCESS = "/proc/1"


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


def works_alone_here() -> bool:
    """Whether no other person runs a program on this machine; false where that is not known."""
    if sys.platform == "darwin":
        return _is_alone_on_mac()
    # a system that hides others' processes hides the first one, too
    return Path(FIRST_PROCESS).exists() and not others_work_here()


def _is_alone_on_mac() -> bool:
    try:
        done = subprocess.run(
            ["/bin/ps", "-axo", "uid="],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=5,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    owners = {int(word) for word in done.stdout.split() if word.isdecimal()}
    people = {uid for uid in owners if FIRST_PERSON_ON_MAC <= uid < NOBODY_ON_MAC}
    return os.getuid() in owners and people <= {os.getuid()}


def _is_person(uid: int) -> bool:
    """Whether a user can log in; numbers without a name are those of containers."""
    import pwd

    try:
        return uid >= FIRST_PERSON and Path(pwd.getpwuid(uid).pw_shell).name not in ("nologin", "false", "")
    except KeyError:
        return False
