"""Formats times for people, by the clock of the machine that they sit at."""

from __future__ import annotations

from datetime import datetime, timedelta

from notebook_launcher.core import timestamps
from notebook_launcher.core.quantities import largest_unit


def parse_iso(text: str | None) -> datetime | None:
    """Return an ISO time that has a zone; ``None`` for any other text."""
    at = timestamps.parse_iso(text)
    return at if at and at.tzinfo else None


def clock(at: datetime, now: datetime) -> str:
    """Return a time in the shortest form that is clear at ``now``: ``14:20``, ``Mon 14:20``, ``2026-12-01 14:20``.

    Both have a zone; the result is in the zone of ``now``.
    """
    at = at.astimezone(now.tzinfo)
    if at.date() == now.date():
        return f"{at:%H:%M}"
    if timedelta(0) < at.date() - now.date() < timedelta(days=7):
        return f"{at:%a %H:%M}"
    return f"{at:%Y-%m-%d %H:%M}"


def clock_of(text: str, now: datetime) -> str:
    """Return an ISO time as ``clock`` does, and any other text unchanged."""
    at = parse_iso(text)
    return clock(at, now) if at else text


def ago(since: datetime, now: datetime) -> str:
    """Return how long ago something was: ``40 s ago``, ``2 min ago``, ``3 h ago``."""
    return f"{largest_unit((now - since).total_seconds())} ago"
