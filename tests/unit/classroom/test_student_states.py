"""What each student does, from the scheduler's word and from what the sessions report."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from notebook_launcher.classroom.roster import Student
from notebook_launcher.classroom.student_states import ClassOf, Report, states_of, totals
from notebook_launcher.core.events import StudentNow
from notebook_launcher.core.timestamps import iso
from notebook_launcher.schedulers.base import State
from notebook_launcher.schedulers.user_jobs import UserJob

NOW = datetime(2026, 11, 24, 13, 30, tzinfo=timezone.utc)
LAB = ClassOf("gpulab", (Student("alice", "Alice"),), reservation="lab1", account="proj1")
JOB = UserJob("7", "alice", State.RUNNING, "20261124-133000-k3f2", "gpu", "gpu1", iso(NOW - timedelta(minutes=10)),
              iso(NOW + timedelta(minutes=50)), "1:00:00", "proj1", "lab1", 1)  # fmt: skip


def report(state: str, minutes: float = 0, age: float = 5, **others: object) -> Report:
    since, written = NOW - timedelta(minutes=minutes), NOW - timedelta(seconds=age)
    return replace(Report("alice", "7", state, written, since), **others)


def alice(*jobs: UserJob, said: Report | None = None, group: ClassOf = LAB) -> StudentNow:
    [student] = states_of(group, jobs, {"alice": said} if said else {}, NOW)
    return student


def test_a_running_session_by_the_schedulers_word_alone() -> None:
    assert alice(JOB) == StudentNow("alice", "Alice", "running", "", "7", "gpu1", None, JOB.ends, 3000, 1, None)


@pytest.mark.parametrize(
    ("said", "state", "detail"),
    [
        (report("running"), "running", ""),
        (report("starting", 1), "starting", ""),
        (report("starting", 5), "starting", "for 5 min, longer than usual"),
        (report("idle", 12), "idle", "unused for 12 min"),
        (report("idle", 12, since=None), "idle", ""),
        (report("running", 20, age=300), "running", "its session has not reported for 5 min"),
        (report("ended"), "completing", ""),
        (report("idle", 12, job="6"), "running", ""),
    ],
)
def test_a_session_reports_more(said: Report, state: str, detail: str) -> None:
    found = alice(JOB, said=said)
    assert (found.state, found.detail) == (state, detail)


@pytest.mark.parametrize(
    ("job", "said", "state", "detail"),
    [
        (replace(JOB, state=State.COMPLETED), None, "ended", "finished"),
        (replace(JOB, state=State.CANCELLED), None, "ended", "cancelled"),
        (replace(JOB, state=State.TIMEOUT), None, "failed", "reached its walltime"),
        (replace(JOB, state=State.OUT_OF_MEMORY), report("ended", cause="finished"), "failed",
         "needed more memory than it had asked for"),
        (replace(JOB, state=State.FAILED, exit_code=1), None, "failed", "it failed (exit code 1)"),
        (replace(JOB, state=State.FAILED, exit_code=0, signal=9), None, "failed", "it failed (signal 9)"),
        (replace(JOB, state=State.FAILED, exit_code=1), report("ended", cause="image-missing"), "failed",
         "image missing (exit code 1)"),
        (replace(JOB, state=State.COMPLETED), report("ended", cause="idle"), "ended", "nobody used it"),
        (replace(JOB, state=State.CANCELLED), report("ended", cause="class-ended"), "ended", "ended by the teacher"),
        (replace(JOB, state=State.SUSPENDED), None, "suspended", "suspended by the scheduler"),
        (replace(JOB, state=State.UNKNOWN), None, "unknown", "the scheduler reports no state"),
    ],
)  # fmt: skip
def test_how_it_ended(job: UserJob, said: Report | None, state: str, detail: str) -> None:
    found = alice(job, said=said)
    assert (found.state, found.detail) == (state, detail)


def test_a_pending_job_with_its_reason_and_its_time() -> None:
    at = iso(NOW + timedelta(minutes=30))
    found = alice(replace(JOB, state=State.PENDING, reason="Resources", start=at, node=None))
    assert (found.state, found.starts, found.ends, found.node) == ("pending", at, None, None)
    assert found.detail and "Resources" not in found.detail


def test_what_a_teacher_should_see_of_a_job() -> None:
    found = alice(replace(JOB, reservation=None), replace(JOB, id="8", reservation=None))
    assert found.detail == "not in the reservation lab1; 2 sessions at once" and found.gpus == 2
    hostile = alice(replace(JOB, state=State.PENDING, reason="\x1b]0;x\x07Odd\x1b[31m"))
    assert "\x1b" not in hostile.detail


def test_whose_jobs_belong_to_the_class() -> None:
    other = replace(JOB, name="my own", reservation=None)
    assert alice(other).state == "not_started"
    assert alice(other, group=replace(LAB, reservation=None)).state == "running", "of its account"
    assert alice(replace(other, reservation="lab1")).state == "running"
    assert alice(replace(JOB, reservation=None)).state == "running", "a session by its name"
    everybody = replace(LAB, students=())
    assert [one.user for one in states_of(everybody, [JOB, replace(JOB, id="9", user="bob")], {}, NOW)] == [
        "alice",
        "bob",
    ]


def test_the_job_that_says_most_counts() -> None:
    ended, waits = replace(JOB, id="5", state=State.FAILED), replace(JOB, id="6", state=State.PENDING, start=None)
    assert alice(ended, waits, JOB).job == "7"
    assert alice(ended, waits).job == "6"
    later = replace(JOB, id="9", state=State.COMPLETED, ends=iso(NOW))
    assert alice(replace(ended, ends=iso(NOW - timedelta(hours=1))), later).job == "9"


def test_totals_and_silence() -> None:
    group = replace(LAB, students=(Student("alice", "A"), Student("bob", "B"), Student("carol", "C")))
    waits = replace(JOB, id="8", user="bob", state=State.PENDING, gpus=4)
    sums = totals(states_of(group, [JOB, waits], {}, NOW))
    assert sums.counts == {"not_started": 1, "pending": 1, "running": 1}
    assert (sums.gpus_used, sums.gpus_pending) == (1, 4)
    assert {one.state for one in states_of(group, None, {}, NOW)} == {"unknown"}
