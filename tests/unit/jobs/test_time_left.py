"""When a session ends, from what the scheduler and the job say."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from notebook_launcher.core.request import Request
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.jobs.time_left import walltime_end
from notebook_launcher.schedulers.base import JobRef, JobStatus, State

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=timezone(timedelta(hours=1)))
HOUR = Request({"time": "1:00:00"})


def runs(**told: str) -> JobStatus:
    return JobStatus(JobRef("7"), State.RUNNING, **told)


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-11-21T12:00:00", "11:00"),
        ("2026-11-21T12:00:00+0200", "10:00"),
        ("2026-11-21T12:00:00+02:00", "10:00"),
        ("2026-11-21T06:00:00-0500", "11:00"),
        ("2026-11-21T12:00:00Z", "12:00"),
    ],
)
def test_a_moment_has_its_own_zone_or_that_of_the_cluster(text: str, utc: str) -> None:
    at = parse_iso(text, NOW)
    assert at is not None
    assert f"{at.astimezone(timezone.utc):%H:%M}" == utc


@pytest.mark.parametrize(
    "text", [None, "", "N/A", "Unknown", "12:00", "2026-11-21T25:00:00", "2026-11-21T12:00:00+9999"]
)
def test_what_is_no_moment(text: str | None) -> None:
    assert parse_iso(text, NOW) is None


def test_the_schedulers_end_counts_before_start_and_walltime() -> None:
    """A job that was suspended for half an hour has that much longer."""
    told = runs(start="2026-11-21T11:30:00+0100", ends="2026-11-21T13:00:00+0100", walltime="1:00:00")
    assert walltime_end(HOUR, told, None, NOW) == NOW + timedelta(hours=1)


def test_without_an_end_it_is_start_and_walltime() -> None:
    told = runs(start="2026-11-21T11:30:00", walltime="1:00:00")
    assert walltime_end(HOUR, told, None, NOW) == NOW + timedelta(minutes=30)
    assert walltime_end(HOUR, None, "2026-11-21T10:45:00Z", NOW) == NOW + timedelta(minutes=45)


def test_a_start_of_another_zone() -> None:
    """As squeue tells it to a user whose login profile sets TZ."""
    told = runs(start="2026-11-21T05:30:00-0500", walltime="1:00:00")
    assert walltime_end(HOUR, told, None, NOW) == NOW + timedelta(minutes=30)


def test_no_limit_is_no_end() -> None:
    assert walltime_end(HOUR, runs(start="2026-11-21T11:30:00", walltime="UNLIMITED"), None, NOW) is None


def test_what_waits_has_no_end() -> None:
    waits = JobStatus(JobRef("7"), State.PENDING, start="2026-11-21T11:30:00", ends="2026-11-21T12:30:00")
    assert walltime_end(HOUR, waits, None, NOW) is None
