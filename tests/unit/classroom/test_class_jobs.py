"""What is asked of the scheduler for a class, query by query, and what is made of its answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from notebook_launcher.classroom.class_jobs import ClassJobs, Gpus
from notebook_launcher.classroom.student_states import states_of
from tests.doubles import RecordingView
from tests.unit.classroom.conftest import LAB, NOW, Cluster, context_of, row


def states(jobs: ClassJobs) -> dict[str, str]:
    found = states_of(jobs._group, jobs.jobs, {}, NOW, jobs.known, jobs.nobody)
    return {one.user: one.state for one in found}


def test_one_query_at_each_look_and_the_rest_seldom(slurm: Cluster) -> None:
    slurm.rows = [row("7", "alice", "RUNNING"), row("8", "bob", "PENDING", reason="Resources")]
    jobs = ClassJobs(context_of(slurm, RecordingView()), LAB)
    for _ in range(5):
        jobs.query()
    counts = {word: sum(word in one for one in slurm.ran)
              for word in ("squeue", "sacct ", "sinfo", "show config", "show reservation")}  # fmt: skip
    assert counts == {"squeue": 5, "sacct ": 1, "sinfo": 2, "show config": 1, "show reservation": 1}
    assert states(jobs) == {"alice": "running", "bob": "pending"}
    assert jobs.gpus == Gpus(2, 1), "of the reservation's nodes in service"


def test_a_job_that_leaves_the_list_is_looked_up_once(slurm: Cluster) -> None:
    slurm.rows = [row("7", "alice", "RUNNING")]
    jobs = ClassJobs(context_of(slurm, RecordingView()), LAB)
    jobs.query()
    slurm.rows = []
    slurm.history = "7|alice|TIMEOUT|0:0|gpu1|2026-11-24T13:00:00|2026-11-24T13:30:00|30:00|gpu|proj1|lab1|x\n"
    jobs.query()
    assert states(jobs)["alice"] == "running", "as it was seen last"
    jobs.query()
    assert states(jobs)["alice"] == "failed" and jobs.jobs and jobs.jobs[0].gpus == 1
    looked_up = len([command for command in slurm.ran if "sacct" in command])
    jobs.query()
    assert len([command for command in slurm.ran if "sacct" in command]) == looked_up == 2


PAST = "7|{user}|FAILED|1:0|gpu1|2026-11-24T12:00:00|2026-11-24T12:30:00|30:00|gpu|proj1|{reservation}|{name}\n"


@pytest.mark.parametrize(
    ("reservation", "name", "state"),
    [
        ("", "my own", "not_started"),
        ("", "20261124-133000-k3f2", "failed"),
        ("lab1", "my own", "failed"),
    ],
)
def test_what_ended_before_the_lesson_is_the_students_own(
    slurm: Cluster, reservation: str, name: str, state: str
) -> None:
    slurm.history = PAST.format(user="alice", reservation=reservation, name=name)
    group = LAB if reservation else replace(LAB, reservation=None)
    jobs = ClassJobs(context_of(slurm, RecordingView()), group)
    jobs.query()
    assert states(jobs)["alice"] == state


def test_a_job_of_the_account_that_was_seen_is_shown_until_its_end(slurm: Cluster) -> None:
    slurm.rows = [row("7", "alice", "RUNNING", name="my own", reservation="")]
    jobs = ClassJobs(context_of(slurm, RecordingView()), replace(LAB, reservation=None))
    jobs.query()
    slurm.rows = [row("7", "alice", "FAILED", name="my own", reservation="")]
    jobs.query()
    assert states(jobs)["alice"] == "failed"


def test_a_name_that_nobody_has_costs_the_others_nothing(slurm: Cluster) -> None:
    slurm.users = "alice:x:2001:2001::/home/alice:/bin/bash\n"
    slurm.rows = [row("7", "alice", "RUNNING")]
    jobs = ClassJobs(context_of(slurm, RecordingView()), LAB)
    jobs.query()
    assert states(jobs) == {"alice": "running", "bob": "unknown"}
    asked = " ".join(slurm.ran)
    assert "--user=alice " in asked and "--users=alice " in asked


def test_without_a_history_nothing_is_asked_for_ever(slurm: Cluster) -> None:
    slurm.rows = [row("7", "alice", "RUNNING")]
    jobs = ClassJobs(context_of(slurm, RecordingView()), LAB)
    jobs.query()
    slurm.rows = []
    for _ in range(4):
        jobs.query()
    assert states(jobs)["alice"] == "unknown"
    assert len([command for command in slurm.ran if "sacct" in command]) == 2


def test_a_scheduler_that_does_not_answer(slurm: Cluster) -> None:
    slurm.silent = True
    jobs = ClassJobs(context_of(slurm, RecordingView()), LAB)
    jobs.query()
    assert jobs.jobs is None and "does not answer" in jobs.problem
    slurm.silent, slurm.rows = False, [row("7", "alice", "RUNNING")]
    jobs.query()
    assert states(jobs)["alice"] == "running" and not jobs.problem


def test_a_site_that_hides_the_jobs_of_others(slurm: Cluster) -> None:
    slurm.private = "jobs,usage"
    jobs = ClassJobs(context_of(slurm, RecordingView()), LAB)
    jobs.query()
    assert jobs.problem.startswith("This cluster hides other people's jobs from you (PrivateData=jobs)")
    slurm.rows = [row("7", "alice", "RUNNING")]  # a coordinator sees them
    jobs.query()
    assert not jobs.problem
