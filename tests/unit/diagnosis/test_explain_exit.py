"""Why a job ended: by its own word, the scheduler's and the log's."""

from __future__ import annotations

import re
import signal

import pytest

from notebook_launcher.core.errors import (
    ActivationFailed,
    BindMissing,
    BootFailed,
    ContainerFailed,
    DeadlinePassed,
    HomeUnusable,
    ImageUnusable,
    JobCancelled,
    JobFailed,
    JobLost,
    JobTimedOut,
    JupyterCrashed,
    JupyterMissing,
    JupyterSlow,
    LauncherError,
    ModuleFailed,
    NodeFailed,
    OutOfMemory,
    Preempted,
    Revoked,
)
from notebook_launcher.core.package_data import JOB_FILES, LIBRARY, job_script
from notebook_launcher.core.walltime import Walltime
from notebook_launcher.diagnosis import exit_causes, explain
from notebook_launcher.diagnosis.explain import ended
from notebook_launcher.schedulers.base import JobRef, JobStatus, State
from tests.unit.diagnosis.sample_evidence import NODE_FELL

JOB = JobRef("7", "snowy")


LOG = ["one", "two"]


def status(state: State, **others: object) -> JobStatus:
    return JobStatus(JOB, state, **others)  # type: ignore[arg-type]


def record(cause: str, message: str = "", **others: object) -> dict[str, object]:
    return {"version": 1, "cause": cause, "message": message, **others}


STOPPED = record("stopped", "The job was ended by signal SIGTERM.")


@pytest.mark.parametrize(
    ("exit_record", "of_scheduler", "kind", "says"),
    [
        # the job's own word goes before the scheduler's
        (record("image-missing", "No image /x.sif."), status(State.FAILED), ImageUnusable, "No image /x.sif."),
        (record("image-missing", "No image /x.sif."), None, ImageUnusable, "No image /x.sif."),
        (record("image-unreadable", "m"), None, ImageUnusable, "m"),
        (record("bind-missing", "m"), None, BindMissing, "m"),
        (record("container-command-missing", "m"), None, ContainerFailed, "m"),
        (record("container-failed", "m"), None, ContainerFailed, "m"),
        (record("module-failed", "m"), None, ModuleFailed, "m"),
        (record("module-command-missing", "m"), None, ModuleFailed, "m"),
        (record("conda-missing", "m"), None, ActivationFailed, "m"),
        (record("venv-missing", "m"), None, ActivationFailed, "m"),
        (record("activate-failed", "m"), None, ActivationFailed, "m"),
        (record("jupyter-missing", "m"), None, JupyterMissing, "m"),
        (record("jupyter-failed", "m"), status(State.FAILED, exit_code=1), JupyterCrashed, "m"),
        (record("jupyter-silent", "m"), None, JupyterSlow, "m"),
        (record("session-unusable", "m"), None, HomeUnusable, "m"),
        (record("finished", "JupyterLab was ended by its user."), None, JobFailed, "ended by its user"),
        (record("new-cause"), None, JobFailed, "failed (new-cause)"),
        # except that a signal, or a crash, is explained by the scheduler
        (STOPPED, status(State.CANCELLED, by="2001"), JobCancelled, "cancelled by user 2001"),
        (STOPPED, status(State.TIMEOUT), JobTimedOut, "reached its walltime"),
        (STOPPED, status(State.PREEMPTED), Preempted, "was preempted"),
        (STOPPED, status(State.RUNNING), JobCancelled, "stopped from outside"),
        (STOPPED, None, JobCancelled, "stopped from outside"),
        (record("jupyter-failed", "m"), status(State.OUT_OF_MEMORY), OutOfMemory, "more memory"),
        # without a word of the job's
        (None, status(State.CANCELLED), JobCancelled, "was cancelled; it is not known by whom"),
        # one that is cancelled has time to write that down; by somebody who is known, it was cancelled all the same
        (None, status(State.CANCELLED, signal=9), JobFailed, "because it ran out of memory or somebody cancelled it"),
        (STOPPED, status(State.CANCELLED, signal=9), JobCancelled, "was cancelled; it is not known by whom"),
        (None, status(State.CANCELLED, signal=9, by="2001"), JobCancelled, "cancelled by user 2001"),
        ({}, status(State.TIMEOUT), JobTimedOut, "walltime"),
        ({}, status(State.OUT_OF_MEMORY), OutOfMemory, "more memory"),
        ({}, status(State.NODE_FAIL), NodeFailed, "node failed"),
        ({}, status(State.BOOT_FAIL), BootFailed, "boot"),
        ({}, status(State.DEADLINE), DeadlinePassed, "deadline"),
        ({}, status(State.REVOKED), Revoked, "another cluster"),
        ({}, status(State.FAILED, exit_code=127), JobFailed, "exit code 127"),
        ({}, status(State.FAILED, exit_code=0, signal=9), JobFailed, "SIGKILL"),
        ({}, status(State.FAILED, reason="RaisedSignal:9(Killed)"), JobFailed, "SIGKILL"),
        ({}, status(State.FAILED), JobFailed, "7 on snowy failed."),
        ({}, status(State.FAILED, reason="NonZeroExitCode"), JobFailed, "7 on snowy failed."),
        ({}, status(State.FAILED, exit_code=73), HomeUnusable, "session's directory"),
        # the log's file could not be opened: 24.11, and the history of both
        ({}, status(State.FAILED, reason="RaisedSignal:53(Real-time signal 19)"), BootFailed, "could not be started"),
        ({}, status(State.FAILED, exit_code=0, signal=53), BootFailed, "could not be started"),
        ({}, status(State.FAILED, reason="JobLaunchFailure"), JobFailed, "was killed, or could not be started"),
        ({}, status(State.FAILED, reason="SystemFailure"), BootFailed, "because of Slurm"),
        ({}, status(State.FAILED, reason="OutOfMemory"), OutOfMemory, "more memory"),
        ({}, status(State.COMPLETED), JobFailed, "ended by itself"),
        ({}, status(State.UNKNOWN), JobLost, "no record says why"),
        (None, None, JobLost, "no record says why"),
    ],
)
def test_why_a_job_ended(
    exit_record: dict[str, object] | None, of_scheduler: JobStatus | None, kind: type[LauncherError], says: str
) -> None:
    error = ended(JOB, exit_record, of_scheduler, LOG)
    assert type(error) is kind
    assert says in error.what
    assert "7 on snowy" in error.what
    assert error.log == ("one", "two")


def test_a_notebook_that_misses_a_module_wants_another_environment() -> None:
    failed = "Cell 4 of 9 (Plots) failed: ModuleNotFoundError: No module named 'matplotlib.pyplot'"
    error = ended(JOB, record("notebook-failed", failed), None, LOG)
    assert error.hint.startswith("take an environment that has matplotlib (")
    assert "traceback" in ended(JOB, record("notebook-failed", "Cell 4 of 9 failed: ValueError: x"), None, LOG).hint


@pytest.mark.parametrize("state", list(State), ids=lambda state: state.name)
def test_every_state_gives_one_error_that_says_what_to_do(state: State) -> None:
    error = ended(JOB, None, status(state), [])
    assert error.what.endswith(".")
    assert error.hint or error.why
    assert isinstance(error, JobLost) is not state.ended


@pytest.mark.parametrize(
    ("by", "who", "reason", "says", "hint"),
    [
        ("2001", "alice", None, "cancelled by you (alice), from elsewhere.", "start again"),
        ("0", "root", None, "cancelled by root: an operator.", "support"),
        ("0", None, None, "cancelled by root: an operator.", "support"),
        ("2002", "bob", None, "cancelled by bob.", "start again"),
        ("2002", "user 2002", None, "cancelled by user 2002.", "start again"),
        (None, None, None, "cancelled; it is not known by whom.", "start again"),
        (None, None, "JobHeldUser", "cancelled; it is not known by whom.", "start again"),
        (None, None, "DependencyNeverSatisfied", "cancelled by the scheduler: the job it depends on", "--dependency"),
    ],
)
def test_by_whom_it_was_cancelled(by: str | None, who: str | None, reason: str | None, says: str, hint: str) -> None:
    error = ended(JOB, STOPPED, status(State.CANCELLED, by=by, reason=reason), [], user="alice", who=who)
    assert type(error) is JobCancelled
    assert says in error.what
    assert hint in error.hint


def test_which_walltime_it_reached() -> None:
    error = ended(JOB, STOPPED, status(State.TIMEOUT), [], walltime=Walltime(hours=2))
    assert error.what == "Job 7 on snowy reached its walltime of 2 hours."


def test_which_file_could_not_be_opened() -> None:
    error = ended(JOB, {}, status(State.FAILED, signal=53), [], output="/not/there/log")
    assert "(/not/there/log)." in error.what
    assert "-o" in error.hint


@pytest.mark.parametrize(
    ("code", "number", "why"),
    [
        (127, None, "A command was not found."),
        (126, None, "Something that should run may not be executed."),
        (137, None, "It was killed, perhaps because it ran out of memory."),
        (9, None, "If it stands for 137, it was killed, perhaps because it ran out of memory."),  # Slurm takes 128 off
        (0, 9, "It was killed, perhaps because it ran out of memory."),
        (0, 7, "A bus error, perhaps because a disk is full."),
        (135, None, "A bus error, perhaps because a disk is full."),
        (0, 11, "It crashed."),
        (1, None, ""),
        (2, None, ""),
        (0, 62, ""),
    ],
)
def test_codes_and_signals_are_explained_as_far_as_they_tell_anything(code: int, number: int | None, why: str) -> None:
    assert ended(JOB, {}, status(State.FAILED, exit_code=code, signal=number), []).why == why


def test_the_exit_code_of_a_crashed_jupyterlab_is_explained() -> None:
    crashed = record("jupyter-failed", "JupyterLab on node1 ended with exit code 135.", exit_code=135)
    assert ended(JOB, crashed, None, []).why == "Exit code 135: a bus error, perhaps because a disk is full."
    assert ended(JOB, {**crashed, "exit_code": 1}, None, []).why == ""


CRASHED = record("jupyter-failed", "JupyterLab on node1 ended with exit code 1.", exit_code=1)


NO_SPACE = "OSError: [Errno 28] No space left on device: '/home/alice/.ipython'"


KILLED = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch. Some of the step tasks have been OOM Killed."


TOO_LATE = "slurmstepd-node1: error: *** JOB 7 ON node1 CANCELLED AT 2026-11-21T18:49:33 DUE TO TIME LIMIT ***"


SCANCELLED = "slurmstepd-node1: error: *** JOB 7 ON node1 CANCELLED AT 2026-11-21T18:46:35 ***"


# what 24.11 writes where it watches the memory itself, without cgroups
OVER_MEMORY = [
    "slurmstepd-node1: error: StepId=7.batch exceeded memory limit (210477056 > 20971520), being killed",
    SCANCELLED,
    "slurmstepd-node1: error: Exceeded job memory limit",
]
# 26.05, which puts the time in place of the program
OVER_MEMORY_AT = [
    "[2026-11-23T19:11:43.064] error: StepId=7.batch exceeded memory limit (321871872 > 104857600), being killed",
    "[2026-11-23T19:11:43.079] error: *** JOB 7 ON node1 CANCELLED AT 2026-11-23T19:11:43 DUE to SIGNAL Killed ***",
    "[2026-11-23T19:11:43.092] error: Exceeded job memory limit",
]
TOO_LATE_AT = "[2026-11-23T19:36:50.016] error: *** JOB 3 ON n1 CANCELLED AT 2026-11-23T19:36:50 DUE TO TIME LIMIT ***"


@pytest.mark.parametrize(
    ("exit_record", "of_scheduler", "log", "kind"),
    [
        (CRASHED, status(State.FAILED, exit_code=1), [NO_SPACE], HomeUnusable),
        (CRASHED, None, ["OSError: [Errno 122] Disk quota exceeded: '/home/alice/x'"], HomeUnusable),
        (CRASHED, None, ["touch: cannot touch 'x': Read-only file system"], HomeUnusable),
        (CRASHED, None, ["torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"], OutOfMemory),
        (CRASHED, None, ["MemoryError"], OutOfMemory),
        (CRASHED, None, [KILLED], OutOfMemory),
        ({}, status(State.FAILED, exit_code=0, signal=9), OVER_MEMORY, OutOfMemory),
        ({}, status(State.CANCELLED, by="0"), OVER_MEMORY, OutOfMemory),
        ({}, status(State.FAILED, exit_code=0, signal=9), OVER_MEMORY_AT, OutOfMemory),
        ({}, status(State.FAILED, exit_code=0, signal=9), OVER_MEMORY_AT[:1], OutOfMemory),
        ({}, status(State.FAILED, exit_code=1), [NO_SPACE], HomeUnusable),
        # where the scheduler keeps no history
        (STOPPED, None, [TOO_LATE], JobTimedOut),
        ({}, None, [TOO_LATE], JobTimedOut),
        ({}, None, [TOO_LATE_AT], JobTimedOut),
        ({}, None, [TOO_LATE_AT.replace("TIME LIMIT", "PREEMPTION")], Preempted),
        ({}, None, [NODE_FELL], NodeFailed),
        ({}, None, [TOO_LATE.replace("TIME LIMIT", "PREEMPTION")], Preempted),
        ({}, None, [SCANCELLED], JobCancelled),
        (STOPPED, None, [SCANCELLED], JobCancelled),
        ({}, None, [NODE_FELL, SCANCELLED], JobCancelled),  # the first of them is of an earlier run
    ],
)
def test_the_logs_last_words_may_name_the_cause(
    exit_record: dict[str, object], of_scheduler: JobStatus | None, log: list[str], kind: type[LauncherError]
) -> None:
    error = ended(JOB, exit_record, of_scheduler, log)
    assert type(error) is kind
    assert re.fullmatch(r"The log says “.+”\.", error.why)
    assert error.why[len("The log says “") : -2] in log


@pytest.mark.parametrize(
    ("exit_record", "of_scheduler", "log", "kind"),
    [
        (record("image-missing", "No image."), None, [NO_SPACE], ImageUnusable),
        (CRASHED, None, ["Killed", "error", NO_SPACE, *["later"] * 10], JupyterCrashed),
        (CRASHED, None, [NODE_FELL], JupyterCrashed),
        (CRASHED, None, ["print('CANCELLED AT 12 DUE TO TIME LIMIT')"], JupyterCrashed),
        (CRASHED, None, ["[2026-11-23T19:11:43.064] error: the trial exceeded memory limit"], JupyterCrashed),
        ({}, status(State.FAILED, exit_code=1), [NODE_FELL], JobFailed),
        ({}, status(State.TIMEOUT), [NO_SPACE], JobTimedOut),
        ({}, status(State.COMPLETED), [NO_SPACE], JobFailed),
        ({}, status(State.CANCELLED), [NO_SPACE], JobCancelled),
    ],
)
def test_the_logs_last_words_may_be_about_something_else(
    exit_record: dict[str, object], of_scheduler: JobStatus | None, log: list[str], kind: type[LauncherError]
) -> None:
    error = ended(JOB, exit_record, of_scheduler, log)
    assert type(error) is kind
    assert "The log says" not in error.why


def test_the_job_script_tells_in_the_log_where_it_can_tell_nowhere_else() -> None:
    line = "notebook-launcher: The session directory /home/alice/s cannot be made on node1."
    error = ended(JOB, {}, status(State.FAILED, reason="NonZeroExitCode"), ["mkdir: cannot create", line])
    assert type(error) is HomeUnusable
    assert error.why == "The session directory /home/alice/s cannot be made on node1."


def test_every_cause_that_the_job_script_gives_has_its_error_and_no_other() -> None:
    names = ("jupyterlab.sh", "enter.sh", "program.sh", "workers.sh", "worker_node.sh", *LIBRARY, "image.sh")
    scripts = "".join(job_script(name).read_text() for name in names)
    given_causes = set(re.findall(r"\b(?:leave|fail) ([a-z]+(?:-[a-z]+)+|stopped|finished)\b", scripts))
    execute = "".join(job_script(name).read_text() for name in JOB_FILES if name.startswith("execute"))
    given_causes |= set(re.findall(r'\b(?:GaveUp|conclude)\("([a-z-]+)"', execute))
    assert exit_causes.BY_SCRIPT.keys() == given_causes - {"stopped"}
    assert given_causes >= exit_causes.MAYBE_IN_THE_LOG
    assert {str(cause) for cause in explain.SCHEDULER_KNOWS_BETTER if cause} <= given_causes
    assert f"EXIT_UNUSABLE={exit_causes.EXIT_UNUSABLE}\n" in scripts


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (15, "SIGTERM"), (125, "125"), (0, "0"), (-3, "-3")])
def test_names_of_signals(number: int, name: str) -> None:
    assert exit_causes.signal_name(number) == name
    assert exit_causes.signal_name(signal.SIGINT) == "SIGINT"
