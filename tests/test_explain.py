"""Why a job waits and why it ended: evidence in, a sentence out, nothing guessed."""

from __future__ import annotations

import re
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher import explain
from notebook_launcher.errors import JobCancelled, JobFailed, JobLost, JobTimedOut, LauncherError
from notebook_launcher.explain import ended, pending, signal_name
from notebook_launcher.resources import folder
from notebook_launcher.schedulers.base import JobRef, JobStatus, State

JOB = JobRef("7", "snowy")
LOG = ["one", "two"]


# --- waiting -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "summary", "never"),
    [
        ("Priority", "ahead in the queue", False),
        ("(Priority)", "ahead in the queue", False),
        ("Resources", "first in line", False),
        ("BeginTime", "begin time", False),
        ("Reservation", "reservation to begin", False),
        ("ReqNodeNotAvail, UnavailableNodes:node[1-2]", "down, drained or reserved", False),
        ("ReqNodeNotAvail, Reserved for maintenance", "down, drained or reserved", False),
        ("JobHeldUser", "held", False),
        ("JobHeldAdmin", "held by an operator", False),
        ("PartitionTimeLimit", "longer than the partition allows", True),
        ("PartitionNodeLimit", "more nodes", True),
        ("DependencyNeverSatisfied", "did not end as asked", True),
        ("BadConstraints", "constraints", True),
        ("InvalidAccount", "account is not valid", True),
        ("QOSMaxJobsPerUserLimit", "limit of the QOS is reached (QOSMaxJobsPerUserLimit)", False),
        ("QOSGrpGRES", "limit of the QOS is reached (QOSGrpGRES)", False),
        ("AssocGrpCPUMinutesLimit", "limit of your account is reached", False),
        ("AssocMaxWallDurationPerJobLimit", "limit of your account", True),
        ("QOSMaxCpuPerJobLimit", "limit of the QOS", True),
        ("QOSMinGRES", "limit of the QOS", True),
        ("MaxMemPerLimit", "more memory than is allowed", False),
        (None, "has not looked at it yet", False),
        ("None", "has not looked at it yet", False),
        ("", "has not looked at it yet", False),
        ("Nonesuch: new in 31.05", "the scheduler says “Nonesuch: new in 31.05”", False),
    ],
)
def test_why_a_job_waits(reason: str | None, summary: str, never: bool) -> None:
    explanation = pending(reason)
    assert summary in explanation.summary
    assert explanation.never is never


def test_whoever_can_never_start_is_told_what_to_do() -> None:
    for reason, explanation in explain._PENDING.items():
        assert explanation.action or not explanation.never, reason


def test_a_limit_says_when_it_ends_and_one_on_a_single_job_does_not() -> None:
    assert "other jobs" in pending("QOSMaxJobsPerUserLimit").action
    assert "other jobs" not in pending("QOSMaxWallDurationPerJobLimit").action


@given(st.text(max_size=60))
def test_any_reason_gets_a_sentence(reason: str) -> None:
    assert pending(reason).summary


# --- ended ---------------------------------------------------------------------------------------------------


def status(state: State, **others: object) -> JobStatus:
    return JobStatus(JOB, state, **others)  # type: ignore[arg-type]


def record(cause: str, message: str = "") -> dict[str, object]:
    return {"version": 1, "cause": cause, "message": message}


STOPPED = record("stopped", "The job was ended by signal SIGTERM.")


@pytest.mark.parametrize(
    ("exit_record", "of_scheduler", "kind", "says"),
    [
        # the job's own word goes before the scheduler's
        (record("image-missing", "No image /x.sif."), status(State.FAILED), JobFailed, "No image /x.sif."),
        (record("image-missing", "No image /x.sif."), None, JobFailed, "No image /x.sif."),
        (record("new-cause"), None, JobFailed, "failed (new-cause)"),
        # except that a signal is explained by the scheduler
        (STOPPED, status(State.CANCELLED, by="2001"), JobCancelled, "by user id 2001"),
        (STOPPED, status(State.TIMEOUT), JobTimedOut, "reached its walltime"),
        (STOPPED, status(State.PREEMPTED), JobFailed, "make room"),
        (STOPPED, status(State.RUNNING), JobCancelled, "stopped from outside"),
        (STOPPED, None, JobCancelled, "stopped from outside"),
        # without a word of the job's
        (None, status(State.CANCELLED), JobCancelled, "was cancelled from elsewhere"),
        ({}, status(State.TIMEOUT), JobTimedOut, "walltime"),
        ({}, status(State.OUT_OF_MEMORY), JobFailed, "more memory"),
        ({}, status(State.NODE_FAIL), JobFailed, "node failed"),
        ({}, status(State.BOOT_FAIL), JobFailed, "boot"),
        ({}, status(State.DEADLINE), JobFailed, "deadline"),
        ({}, status(State.REVOKED), JobFailed, "another cluster"),
        ({}, status(State.FAILED, exit_code=127), JobFailed, "exit code 127"),
        ({}, status(State.FAILED, exit_code=0, signal=9), JobFailed, "SIGKILL"),
        ({}, status(State.FAILED), JobFailed, "7 on snowy failed."),
        ({}, status(State.COMPLETED), JobFailed, "ended by itself"),
        ({}, status(State.UNKNOWN), JobLost, "left no word"),
        (None, None, JobLost, "left no word"),
    ],
)  # fmt: skip
def test_why_a_job_ended(
    exit_record: dict[str, object] | None, of_scheduler: JobStatus | None, kind: type[LauncherError], says: str
) -> None:
    error = ended(JOB, exit_record, of_scheduler, LOG)
    assert type(error) is kind
    assert says in error.what
    assert "7 on snowy" in error.what
    assert error.log == ("one", "two")


@pytest.mark.parametrize("state", list(State), ids=lambda state: state.name)
def test_every_state_gives_one_error_that_says_what_to_do(state: State) -> None:
    error = ended(JOB, None, status(state), [])
    assert error.what.endswith(".")
    assert error.mend or error.why
    assert isinstance(error, JobLost) is not state.ended


@given(
    st.dictionaries(st.sampled_from(["cause", "message", "job"]), st.text(max_size=9) | st.none() | st.integers()),
    st.sampled_from([None, *State]),
)
def test_no_damaged_record_makes_us_stumble(exit_record: dict[str, object], state: State | None) -> None:
    assert ended(JOB, exit_record, status(state) if state else None, []).what


def test_every_mend_is_for_a_cause_that_the_job_script_gives() -> None:
    scripts = "".join((folder("jobscripts") / name).read_text() for name in ("jupyterlab.sh", "lib.sh"))
    given_causes = set(re.findall(r"\b(?:leave|fail) ([a-z]+-[a-z-]+)", scripts))
    assert "jupyter-missing" in given_causes
    assert explain._MENDS.keys() <= given_causes


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (15, "SIGTERM"), (125, "125"), (0, "0"), (-3, "-3")])
def test_names_of_signals(number: int, name: str) -> None:
    assert signal_name(number) == name
    assert signal_name(signal.SIGINT) == "SIGINT"
