"""Moments in ISO, as schedulers, jobs and ``date`` write them."""

from __future__ import annotations

import re
from datetime import datetime


def moment(text: str | None, now: datetime | None = None) -> datetime | None:
    """Return a time in ISO, ``None`` for what is none; one without a zone is on the clock that shows ``now``."""
    # "Z", and "+0100" without a colon, are read by Python only from 3.11 on
    text = re.sub(r"([+-]\d\d)(\d\d)$", r"\1:\2", (text or "").strip().replace("Z", "+00:00"), flags=re.A)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo or now is None else at.replace(tzinfo=now.tzinfo)


def iso(at: datetime | None) -> str | None:
    """Return a time in ISO, to the second; ``None`` where there is none."""
    return at.isoformat(timespec="seconds") if at else None
