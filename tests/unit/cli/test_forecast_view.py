"""A forecast as text: on the reader's clock, and nothing that speaks to the terminal."""

from __future__ import annotations

import io
from datetime import datetime, timedelta, timezone

import pytest
from rich.console import Console

from notebook_launcher.cli.views.forecast import ForecastView
from notebook_launcher.core import events

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)


def shown(event: events.Forecast, now: datetime, width: int = 80) -> str:
    output = io.StringIO()
    ForecastView(Console(file=output, width=width, no_color=True)).show(event, now)
    return output.getvalue()


@pytest.mark.parametrize(
    ("start", "seconds", "zone", "text"),
    [
        ("2026-11-21T12:00:00+00:00", 0, 0, "Now on g1"),
        ("2026-11-21T14:20:00+00:00", 8400, 0, "≈ 14:20 (in 2 h 20 min) on g1"),
        ("2026-11-21T14:20:00+01:00", 4800, 1, "≈ 14:20 (in 1 h 20 min) on g1"),
        ("2026-11-21T14:20:00+01:00", 4800, 9, "≈ 22:20 your time (in 1 h 20 min) on g1"),
        ("2026-11-22T01:00:00+00:00", 46800, 0, "≈ Sun 01:00 (in 13 h) on g1"),
        ("2026-12-05T01:00:00+00:00", 1170000, 0, "≈ 2026-12-05 01:00 (in 13 days 13 h) on g1"),
        ("2026-11-21T12:01:10+00:00", 70, 0, "≈ 12:01 (in 1 min) on g1"),
    ],
)
def test_a_start_is_told_on_the_readers_clock(start: str, seconds: int, zone: int, text: str) -> None:
    now = NOON.astimezone(timezone(timedelta(hours=zone)))
    event = events.Forecast("-t 1:00:00", start, seconds, "gpu", "g1")
    assert shown(event, now) == f"{text} in partition gpu, with -t 1:00:00\n"


def test_what_the_cluster_says_cannot_speak_to_the_terminal() -> None:
    event = events.Forecast("-t 1:00:00", None, None, None, None, what="refused\x1b[2J", why="[bold]\x07", exit_code=20)
    assert shown(event, NOON) == "refused\n  [bold]\n"
