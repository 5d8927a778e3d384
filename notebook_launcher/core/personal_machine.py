"""Decides whether only one person uses this machine, for decisions about security: in doubt, the answer is no."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROC, ETC = Path("/proc"), Path("/etc")
#: the initial namespaces; their inode numbers are part of Linux's interface (``PROC_PID_INIT_INO`` in its ``nsfs.h``)
FIRST_NAMESPACES = {"pid": "pid:[4026531836]", "user": "user:[4026531837]"}
LOCAL_SOURCES = {"files", "systemd"}  # of accounts, in nsswitch.conf
LOCAL_SOURCES_ON_MAC = {"/Local/Default", "/BSD/local"}
HIGHEST_FIRST_PERSON = 1000  # user ids from here on are people's, whatever login.defs says
FIRST_PERSON_ON_MAC, GUEST_ON_MAC = 501, 201
NOBODY = {65534, 65535, 2**32 - 2, -2}
NO_SHELLS = {"nologin", "false"}
TIMEOUT = 5.0  # seconds


def is_personal_machine() -> bool:
    """Whether nobody but this user and the system has an account on this machine, or runs a program there now.

    True only where all accounts and all processes can be seen: on Linux outside containers and WSL, and on macOS.
    """
    try:
        if sys.platform == "linux":
            return _shows_everything() and _has_local_accounts() and _is_alone(_first_person(), _owners())
        if sys.platform == "darwin":
            return _has_local_accounts_on_mac() and _is_alone(FIRST_PERSON_ON_MAC, _owners_on_mac(), GUEST_ON_MAC)
    except (OSError, ValueError, subprocess.SubprocessError):
        pass
    return False


def _is_alone(first_person: int, owners: set[int], guest: int | None = None) -> bool:
    """Whether this user has the only personal account, and all processes are the system's or this user's.

    ``owners``: the ids of the users who own a process. One without an account here is another person: with an account
    on another machine, or in a container.
    """
    import pwd

    accounts, own = pwd.getpwall(), os.getuid()
    system = {0} | {one.pw_uid for one in accounts if 0 < one.pw_uid < first_person and one.pw_uid != guest}
    for one in accounts:
        may_log_in = Path(one.pw_shell).name not in NO_SHELLS  # an empty field means /bin/sh
        if may_log_in and one.pw_uid not in system | NOBODY | {own}:
            return False
    return own in owners and owners <= system | {own}


# --- Linux


def _shows_everything() -> bool:
    """Whether all processes of this machine are visible, with their owners, and /etc is the machine's own."""
    for name, first in FIRST_NAMESPACES.items():
        if str((PROC / "self" / "ns" / name).readlink()) != first:
            return False
    if "microsoft" in (PROC / "version").read_text().lower():  # WSL: users of Windows are not visible
        return False
    mounts = [line.split(" ") for line in (PROC / "self" / "mounts").read_text().splitlines()]
    options = [word for _, place, _, words, *_ in mounts if place == "/proc" for word in words.split(",")]
    if any(word.startswith(("hidepid=", "subset=")) for word in options) or not (PROC / "1").exists():
        return False
    # a container may share the machine's processes and network, but not its /etc
    roots = [kind for _, place, kind, *_ in mounts if place == "/"]
    return bool(roots) and roots[-1] not in ("overlay", "tmpfs", "squashfs")


def _has_local_accounts() -> bool:
    """Whether all accounts are local: those of a directory service may be many, and need not be listed."""
    lines = (line.partition("#")[0].split() for line in (ETC / "nsswitch.conf").read_text().splitlines())
    sources = [words[1:] for words in lines if words[:1] == ["passwd:"]]
    return len(sources) == 1 and bool(sources[0]) and set(sources[0]) <= LOCAL_SOURCES


def _first_person() -> int:
    """Return the lowest user id of a person. Raises ``ValueError`` if it is not set."""
    lines = (line.split() for line in (ETC / "login.defs").read_text().splitlines())
    numbers = [int(words[1]) for words in lines if len(words) > 1 and words[0] == "UID_MIN"]
    return min(min(numbers), HIGHEST_FIRST_PERSON)


def _owners() -> set[int]:
    owners = set()
    for entry in PROC.iterdir():
        if entry.name.isdecimal():
            try:
                owners.add(entry.stat().st_uid)
            except (FileNotFoundError, ProcessLookupError):  # it has just ended
                continue
    return owners


# --- macOS


def _has_local_accounts_on_mac() -> bool:
    """Whether accounts are looked up on this Mac alone, and in no directory service."""
    name, _, sources = _output("/usr/bin/dscl", "/Search", "-read", "/", "CSPSearchPath").partition(":")
    return name == "CSPSearchPath" and bool(sources.split()) and set(sources.split()) <= LOCAL_SOURCES_ON_MAC


def _owners_on_mac() -> set[int]:
    return {int(word) for word in _output("/bin/ps", "-axo", "uid=").split()}


def _output(*argv: str) -> str:
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", check=True, timeout=TIMEOUT
    )
    return done.stdout
