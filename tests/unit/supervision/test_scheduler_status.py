"""What the scheduler says of the job while it is pending, running and after its end."""

from __future__ import annotations

import dataclasses
import itertools
import time

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    ImageUnusable,
    Interrupted,
    JobCancelled,
    JobFailed,
    JobLost,
    JobNeverStarts,
    JobSilent,
    JobTimedOut,
    JupyterCrashed,
    OutOfMemory,
    SchedulerSilent,
)
from notebook_launcher.core.request import Request
from notebook_launcher.profiles import ClusterProfile
from notebook_launcher.schedulers.slurm.commands import Slurm
from tests.unit.supervision.launcher_doubles import PLAN, TARGET, Launcher


def test_a_job_that_can_never_start_is_cancelled(launcher: Launcher) -> None:
    launcher.host.reason = "PartitionTimeLimit"
    launcher.launch()
    error = launcher.fails(JobNeverStarts)
    assert "PartitionTimeLimit" in error.why and "-t" in error.hint
    assert launcher.host.commands("scancel") == ["scancel 7"]
    assert launcher.host.count("rm") == 0
    assert launcher.names == ["submitted", "stopping", "ended"]


def test_that_it_runs_is_said_once(launcher: Launcher) -> None:
    """By the scheduler or by the job, whoever is first."""
    launcher.host.state, launcher.host.node = "RUNNING", "n1"
    launcher.launch()
    assert launcher.shown(events.Running).node == "n1"
    launcher.host.says("started", node_names=["n1"])
    launcher.host.says("endpoint", port=4242)
    launcher.shown(events.Ready)
    launcher.types("d")
    launcher.well()
    assert launcher.names == ["submitted", "running", "ready", "detached"]


def test_who_can_release_a_held_job_is_named(launcher: Launcher) -> None:
    launcher.host.reason = "JobHeldAdmin"
    target = dataclasses.replace(TARGET, profile=ClusterProfile(contact="help@uni.example"))
    launcher.launch(dataclasses.replace(PLAN, target=target))
    assert launcher.shown(events.Pending).action == "ask the cluster's support (help@uni.example)"
    launcher.types("d")
    launcher.well()


def test_why_it_waits_is_shown_anew_when_that_changes(launcher: Launcher) -> None:
    launcher.launch()
    assert "other jobs are ahead" in launcher.shown(events.Pending).explanation
    launcher.host.reason = "Resources"
    assert "is free" in launcher.shown(events.Pending, 2).explanation
    launcher.host.noticed()
    launcher.types("d")
    launcher.well()
    assert launcher.names == ["submitted", "pending", "pending", "detached"]


def test_a_job_that_runs_and_says_nothing_is_cancelled(launcher: Launcher) -> None:
    launcher.set_timing(script_starts_within=0.1)
    launcher.host.state, launcher.host.node = "RUNNING", "n1"
    launcher.launch()
    assert launcher.shown(events.Running).node == "n1"
    error = launcher.fails(JobSilent)
    assert "Job 7 runs" in error.what and "session_root" in error.hint
    assert launcher.host.commands("scancel") == ["scancel 7"]
    assert launcher.names == ["submitted", "running", "stopping", "ended"]


def test_a_job_that_waits_is_not_silent(launcher: Launcher) -> None:
    """Nor is one that has said its first word, however long its JupyterLab takes."""
    launcher.set_timing(script_starts_within=0.5)
    launcher.launch()
    launcher.shown(events.Pending)
    launcher.host.starts()
    time.sleep(0.6)  # longer than that, and than some turns without news
    assert launcher.going
    launcher.types("d")
    launcher.well()


@pytest.mark.parametrize("then", ["requeued", "starts"])
def test_a_job_that_ran_without_a_word_is_not_silent_any_more(launcher: Launcher, then: str) -> None:
    launcher.set_timing(script_starts_within=0.8)
    launcher.host.state, launcher.host.node = "RUNNING", "n1"
    launcher.launch()
    launcher.shown(events.Running)
    if then == "requeued":
        launcher.host.requeued()
        launcher.shown(events.Pending)
    else:
        launcher.host.says("started", node_names=["n1"])
    time.sleep(1)
    assert launcher.going
    launcher.types("d")
    launcher.well()


def test_a_suspended_job_is_shown_and_goes_on(launcher: Launcher) -> None:
    launcher.launch()
    launcher.attach()
    launcher.host.state = "SUSPENDED"
    waiting = launcher.shown(events.Pending, 2)
    assert waiting.state == "SUSPENDED" and "stopped it for a while" in waiting.explanation
    launcher.host.state = "RUNNING"
    launcher.host.noticed()
    assert launcher.going
    launcher.types("")
    launcher.well()
    assert launcher.names[:5] == ["submitted", "pending", "running", "ready", "pending"]


@pytest.mark.parametrize("known_by", ["squeue", "sacct"])
def test_cancelled_by_somebody_else_while_it_waits(launcher: Launcher, known_by: str) -> None:
    launcher.launch()
    launcher.shown(events.Pending)
    launcher.host.history = "7|CANCELLED by 2001|0:0|None assigned|Unknown|Unknown\n"
    launcher.host.state = "CANCELLED" if known_by == "squeue" else ""
    launcher.host.answers["id"] = lambda: CommandResult(0, "bob\n")
    assert "bob" in launcher.fails(JobCancelled).what
    assert launcher.host.commands("id") == ["id -un 2001"]
    assert launcher.host.count("scancel") == 0
    assert launcher.names == ["submitted", "pending"]


@pytest.mark.parametrize("history", [1, 0], ids=["no accounting", "not in the history"])
def test_cancelled_by_nobody_knows_whom(launcher: Launcher, history: int) -> None:
    launcher.host.answers["sacct"] = lambda: CommandResult(history, "", "Slurm accounting storage is disabled")
    launcher.launch()
    launcher.shown(events.Pending)
    launcher.host.state = "CANCELLED"
    assert "was cancelled" in launcher.fails(JobCancelled).what
    assert launcher.host.count("id") == 0


def test_why_it_was_put_back_into_the_queue_is_told_where_the_scheduler_tells(launcher: Launcher) -> None:
    launcher.host.history = (
        "7|PREEMPTED|0:0|n1|2026-11-21T12:00:00|Unknown\n7|PENDING|0:0|None assigned|Unknown|Unknown\n"
    )
    launcher.launch()
    launcher.attach()
    launcher.host.requeued()
    launcher.shown(events.Pending, 2)
    assert launcher.notes[-1] == "Job 7 was put back into the queue, because a job with a higher priority preempted it."
    launcher.presses_ctrl_c(1)
    launcher.fails(Interrupted)


def test_a_job_with_a_file_of_its_own_for_errors_has_its_last_words_there(launcher: Launcher) -> None:
    launcher.launch(dataclasses.replace(PLAN, request=Request({"error": "wrong-%j-%N", "output": "right-%j"})))
    launcher.shown(events.Pending)
    launcher.host.starts(node="n1.uni.example")
    launcher.host.answers["tail"] = lambda: CommandResult(0, "the cause\n")
    launcher.host.says("exit", cause="image-missing", message="There is no image /x.sif.")
    assert launcher.fails(ImageUnusable).log == ("the cause",)
    assert launcher.host.commands("tail") == ["tail -n 15 wrong-7-n1"]


def test_cancelled_by_somebody_else_while_attached(launcher: Launcher) -> None:
    routine = "\n".join(
        (
            "01:44:31 notebook-launcher: usage.csv has 0 more samples; sampling took 100.0 % of one core",
            "01:44:30 notebook-launcher: an SSH server into this session listens on port 4022, for the keys in /s/keys",
            "[I 2026-11-21 12:00:01.961 ServerApp] Skipped non-installed server(s): bash-language-server, texlab",
        )
    )
    launcher.launch()
    launcher.attach()
    launcher.host.answers["tail"] = lambda: CommandResult(0, f"the end\n{routine}\nof the log\n")
    launcher.host.says("exit", cause="stopped", message="It was sent SIGTERM.")
    launcher.host.noticed()  # the scheduler may be a moment behind
    launcher.host.state = "CANCELLED"
    error = launcher.fails(JobCancelled)
    assert "was cancelled" in error.what
    assert error.log == ("the end", "of the log")
    assert launcher.host.count("scancel") == 0
    assert launcher.names == ["submitted", "pending", "running", "ready"]


def test_its_walltime_is_over(launcher: Launcher) -> None:
    launcher.launch()
    launcher.attach()
    launcher.host.says("exit", cause="stopped", message="It was sent SIGTERM.")
    launcher.host.state = "TIMEOUT"
    assert "-t" in launcher.fails(JobTimedOut).hint
    assert launcher.host.count("scancel") == 0


def test_the_scheduler_knows_that_memory_was_short(launcher: Launcher) -> None:
    launcher.launch()
    launcher.shown(events.Pending)
    launcher.host.starts()
    launcher.host.says("exit", cause="jupyter-failed", message="JupyterLab ended with code 137.")
    launcher.host.noticed()
    launcher.host.state = "OUT_OF_MEMORY"
    error = launcher.fails(OutOfMemory)
    assert "more memory" in error.what and "--mem" in error.hint
    assert launcher.host.count("scancel") == 0


def test_a_failure_that_the_job_explains_itself(launcher: Launcher) -> None:
    launcher.launch()
    launcher.shown(events.Pending)
    launcher.host.starts()
    launcher.host.says("exit", cause="image-missing", message="There is no image /x.sif.")
    error = launcher.fails(ImageUnusable)
    assert error.what == "Job 7: There is no image /x.sif."
    assert launcher.host.count("scancel") == 0


def test_over_before_it_was_ready_is_no_good_end(launcher: Launcher) -> None:
    launcher.launch()
    launcher.shown(events.Pending)
    launcher.host.starts()
    launcher.host.says("exit", cause="finished", message="JupyterLab ended.")
    assert launcher.fails(JobFailed).what == "Job 7: JupyterLab ended."
    assert "ended" not in launcher.names


def test_a_scheduler_without_a_final_word(launcher: Launcher) -> None:
    launcher.set_timing(final_status_within=0.3)
    launcher.launch()
    launcher.attach()
    launcher.host.answers["squeue"] = lambda: CommandResult(
        1, "", "slurm_load_jobs error: Unable to contact slurm controller"
    )
    launcher.host.says("exit", cause="jupyter-failed", message="JupyterLab ended with code 1.")
    assert launcher.fails(JupyterCrashed).what == "Job 7: JupyterLab ended with code 1."


@pytest.mark.real_time
def test_ctrl_c_ends_the_wait_for_the_final_word(launcher: Launcher) -> None:
    launcher.set_timing(final_status_within=60.0)
    launcher.set_timing(unresponsive_note_after=0.0)
    launcher.launch()
    launcher.attach()
    launcher.host.answers["squeue"] = lambda: CommandResult(
        1, "", "slurm_load_jobs error: Unable to contact slurm controller"
    )
    launcher.host.says("exit", cause="stopped", message="It was sent SIGTERM.")
    launcher.noted("Waiting for the scheduler to report")
    launcher.presses_ctrl_c(1)
    error = launcher.fails(SchedulerSilent)
    assert "Unable to contact" in error.why and "connect" in error.hint


def test_a_history_that_comes_late_is_waited_for(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with Grid Engine, whose queue knows nothing of what is over."""
    monkeypatch.setattr(Slurm, "history_delay", 20.0)
    answers = itertools.chain(["", ""], itertools.repeat("7|TIMEOUT|0:15|gpu1|Unknown|Unknown\n"))
    launcher.host.answers["sacct"] = lambda: CommandResult(0, next(answers))
    launcher.launch()
    launcher.attach()
    launcher.host.state = ""
    launcher.fails(JobTimedOut)


def test_forgotten_by_everybody(launcher: Launcher) -> None:
    launcher.launch()
    launcher.attach()
    launcher.host.state = ""
    assert "sacct -j 7" in launcher.fails(JobLost).hint
    assert launcher.host.count("scancel") == 0
