"""Times in ISO format, as schedulers, jobs and ``date`` write them."""

from __future__ import annotations

import contextlib
import re
from datetime import MAXYEAR, MINYEAR, datetime


def parse_iso(text: str | None, now: datetime | None = None) -> datetime | None:
    """Parse a time in ISO format, ``None`` if it is invalid; without a zone it is in the zone of ``now``.

    Times in the first and the last year that Python supports count as invalid, because not all of them exist in every
    zone.
    """
    # Python reads "Z", and "+0100" without a colon, only from 3.11 on
    text = re.sub(r"([+-]\d\d)(\d\d)$", r"\1:\2", (text or "").strip().replace("Z", "+00:00"), flags=re.A)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    if not MINYEAR < at.year < MAXYEAR:
        return None
    return at if at.tzinfo or now is None else at.replace(tzinfo=now.tzinfo)


def parse_on_clock_of(text: str | None, now: datetime) -> datetime | None:
    """Parse a time and convert it to the zone of ``now``, ``None`` also for a time that does not exist there."""
    with contextlib.suppress(OverflowError, ValueError):
        at = parse_iso(text, now)
        return at.astimezone(now.tzinfo) if at else None
    return None


def iso(at: datetime | None) -> str | None:
    """Return a time in ISO format, to the second; ``None`` for ``None``."""
    return at.isoformat(timespec="seconds") if at else None
