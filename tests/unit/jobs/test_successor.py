"""The next job of a session: when it begins, and what is believed of the file that names it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest

from notebook_launcher.core.walltime import Walltime
from notebook_launcher.jobs.successor import Successor, begin_of, hand_over
from notebook_launcher.schedulers.base import JobRef

ZONE = timezone(timedelta(hours=1))
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=ZONE)
NAME = "20261121-115707-kabr"


@pytest.mark.parametrize(("walltime", "both_run"), [("24:00:00", 300), ("20", 300), ("8", 120), ("1", 15)])
def test_both_jobs_run_for_five_minutes_at_most(walltime: str, both_run: int) -> None:
    assert hand_over(Walltime.parse(walltime)).total_seconds() == both_run


def test_it_begins_before_the_first_one_ends_on_the_clusters_clock() -> None:
    ends = datetime(2026, 11, 21, 13, 0, tzinfo=timezone.utc)  # 14:00 there
    begins = begin_of(ends, Walltime.parse("2:00:00"), NOW)
    assert begins is not None and f"{begins:%H:%M}" == "13:55"
    assert begin_of(NOW + timedelta(minutes=4), Walltime.parse("2:00:00"), NOW) is None, "at once"


@pytest.mark.parametrize("job", [JobRef("7"), JobRef("7", "snowy")])
def test_what_is_written_is_read(job: JobRef) -> None:
    successor = Successor(NAME, job, NOW)
    assert Successor.from_file(json.loads(successor.as_json()), NOW) == successor


@pytest.mark.parametrize(
    "damaged",
    [{}, {"session": "../../x", "job": "7"}, {"session": NAME, "job": "7; rm"}, {"session": NAME}, {"job": "7"}],
)
def test_a_file_that_makes_no_sense_names_no_session(damaged: dict[str, object]) -> None:
    assert Successor.from_file(damaged, NOW) is None
