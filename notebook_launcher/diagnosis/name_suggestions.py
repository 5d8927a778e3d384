"""What a user may choose instead of what was refused: a few names, the closest first. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from notebook_launcher.core.suggestions import CLOSE, as_hint, closeness, similar
from notebook_launcher.core.text import listed
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.diagnosis.partition_fit import may_use
from notebook_launcher.schedulers.cluster_info import Partition, ReservationInfo

MOST_NAMES = 8  # nobody reads a sentence with more
# Others choose these names, and the user is asked to type them: so none that a terminal, a shell or an option parser
# would interpret, and none that is very long.
_NAME = re.compile(r"\w[\w.:+@=/-]{0,63}")
_MOST_COMPARED = 2000  # comparing takes up to 0.1 ms per name, and a server may send a million


def names_for(word: str, names: Sequence[str]) -> str:
    """Return the first few names that can be typed, as text for a sentence, those closest to ``word`` first."""
    return listed(closest_first(word, names), MOST_NAMES) or ("names that cannot be typed" if names else "")


def nearest(word: str, names: Sequence[str]) -> list[str]:
    """Return the names that were probably meant and can be typed; an empty list if none is close to ``word``."""
    return similar(word, _usable(names))


def closest_first(word: str, names: Sequence[str]) -> list[str]:
    """Return the names that can be typed, each once: those close to ``word`` first, then the others in their order.

    Only the first two thousand names are considered.
    """
    usable = _usable(names)
    scores = {name: closeness(word, name) for name in usable}
    return sorted(usable, key=lambda name: -scores[name] if scores[name] >= CLOSE else 0.0)


def _usable(names: Sequence[str]) -> list[str]:
    return [name for name in dict.fromkeys(names[:_MOST_COMPARED]) if _NAME.fullmatch(name)]


def name_one(flag: str, near: Sequence[str]) -> str:
    """Return the hint that follows a list of valid names. ``near``: those that were probably meant."""
    return as_hint(near, f"{flag} {{}}") or f"name one of these with {flag}, or none"


def open_partitions(
    partitions: Sequence[Partition], requested: str | None, yours: Sequence[str] | None
) -> tuple[list[str], bool]:
    """Return the partitions that accept the user's jobs, and whether others were left out; if none does, return all.

    ``requested``: the account of the request. ``yours``: the user's accounts, ``None``: not known.
    """
    accounts: Sequence[str | None] = yours or [None]
    if requested and requested in (yours or [requested]):
        accounts = [requested]
    found = [
        partition.name
        for partition in partitions
        if partition.is_up is not False
        and any(may_use(account, partition.accounts, partition.denied_accounts) for account in accounts)
    ]
    everything = [partition.name for partition in partitions]
    return (found, len(found) < len(everything)) if found else (everything, False)


def own_qos(account: str | None, by_account: Mapping[str, Sequence[str]] | None) -> tuple[str | None, tuple[str, ...]]:
    """Return the account and the user's QOS with it; if these are not known, ``None`` and the QOS of all accounts."""
    if account and by_account and account in by_account:
        return account, tuple(by_account[account])
    return None, tuple(dict.fromkeys(name for names in (by_account or {}).values() for name in names))


def usable_reservations(
    reservations: Sequence[ReservationInfo], user: str, accounts: Sequence[str] | None, now: datetime
) -> list[str]:
    """Return the reservations that have not ended, and that this user may use as far as is known.

    If a reservation names users and accounts, a job has to match both (scontrol's manual).
    """
    return [
        one.name
        for one in reservations
        if not ((end := parse_iso(one.end, now)) and end <= now)
        and _is_for([user] if user else None, one.users)
        and _is_for(accounts, one.accounts)
    ]


def _is_for(own: Sequence[str] | None, named: str) -> bool:
    """Return whether one of these is allowed by the names in a list; names with a ``-`` are denied."""
    names = [name for name in named.split(",") if name]
    if not own or not names:
        return True
    if names[0].startswith("-"):
        return not {f"-{one}" for one in own}.issubset(names)
    return not set(own).isdisjoint(names)
