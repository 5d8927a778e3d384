"""The next job of a session: when it begins, and what is believed of the file that names it."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta, timezone

import pytest

from notebook_launcher.core.request import Request
from notebook_launcher.core.walltime import Walltime
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.jobs.next_job import NextJob, as_cluster_time, begin_of, hand_over, next_session
from notebook_launcher.schedulers.base import JobRef, Submission
from notebook_launcher.schedulers.make import make_scheduler
from notebook_launcher.session.record import Session, SessionRecord

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


@pytest.mark.parametrize(
    ("output", "log"), [("my-%j.log", "my-%j.log"), ("my.log", "/s/{}/job.log"), (None, "/s/{}/job.log")]
)
def test_it_does_not_write_over_the_log_of_the_first_one(output: str | None, log: str) -> None:
    flags: dict[str, str | None] = {"time": "1:00:00", "begin": "now"} | ({"output": output} if output else {})
    first = Session(SessionRecord(NAME, NOW, "slurm", flags, output or "/log"), f"/s/{NAME}", JobRef("7"))
    new = next_session(first, "2026-11-21T13:55:00", NOW)
    assert new.record.log == log.format(new.id)
    assert new.record.flags.get("output") == (output if output == log else None)
    assert (new.record.flags["begin"], new.record.continues) == ("2026-11-21T13:55:00", NAME)


@pytest.mark.parametrize(
    ("scheduler", "words"),
    [
        ("slurm", ["--begin=2026-11-21T13:55:00"]),
        ("gridengine", ["-a", "202611211355.00"]),
        ("pbs", ["-a", "202611211355.00"]),
        ("lsf", ["-b", "11:21:13:55"]),
    ],
)
def test_each_scheduler_lets_it_wait_until_then(scheduler: str, words: list[str]) -> None:
    """And for nothing else that the first one waited for: another job, or its user's word."""
    flags: dict[str, str | None] = {"time": "1:00:00", "begin": "now+1hour", "dependency": "afterany:7", "hold": None}
    first = Session(SessionRecord(NAME, NOW, scheduler, flags, "/log"), f"/s/{NAME}", JobRef("7"))
    new = next_session(first, "2026-11-21T13:55:00", NOW)
    submission = Submission(new.id, new.directory, f"{new.directory}/jupyterlab.sh", new.record.log, NOW)
    command = make_scheduler(scheduler, "").submit(Request(new.record.flags), submission)
    assert command[command.index(words[0]) :][: len(words)] == words
    assert not any(re.search("depend|hold|-H|-h$|-w$|-d$", word) for word in command), command


def test_it_begins_by_the_clock_that_is_valid_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the night when summer time ends, the offset that was read is not that of the begin time."""
    monkeypatch.setenv("TZ", "Europe/Stockholm")
    begins = datetime(2026, 10, 25, 4, 0, tzinfo=timezone(timedelta(hours=2)))
    assert as_cluster_time(LocalHost(), begins) == "2026-10-25T03:00:00"


@pytest.mark.parametrize("job", [JobRef("7"), JobRef("7", "snowy")])
def test_what_is_written_is_read(job: JobRef) -> None:
    next_job = NextJob(NAME, job, NOW)
    assert NextJob.from_file(json.loads(next_job.as_json()), NOW) == next_job
    assert json.loads(NextJob(NAME, job, NOW, NOW).as_json())["ends"] == "2026-11-21T12:00:00+01:00"


@pytest.mark.parametrize(
    "damaged",
    [{}, {"session": "../../x", "job": "7"}, {"session": NAME, "job": "7; rm"}, {"session": NAME}, {"job": "7"}],
)
def test_a_file_that_makes_no_sense_names_no_session(damaged: dict[str, object]) -> None:
    assert NextJob.from_file(damaged, NOW) is None
