"""Cancelling the job for certain, and how that can fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    CancelFailed,
    ConnectionLost,
    HostCommandFailed,
    Interrupted,
    JobNeverStarts,
    LauncherError,
    LoginShellSilent,
)
from notebook_launcher.core.request import Request
from tests.unit.supervision.launcher_doubles import PLAN, Launcher, failing


def test_a_second_interrupt_while_ending_leaves_with_the_command(launcher: Launcher) -> None:
    launcher.host.scancel_works = False
    launcher.launch()
    launcher.attach()
    launcher.interrupts.arrive("end")
    launcher.shown(events.Stopping)
    launcher.interrupts.arrive("end")
    assert "Ctrl-C again" in launcher.shown(events.Note).text
    time.sleep(0.15)
    assert launcher.going, "one Ctrl-C while ending is answered with a word"
    assert len(launcher.notes) == 1, "and with one word only"
    launcher.interrupts.arrive("end")
    error = launcher.fails(CancelFailed)
    assert "Job 7 is still there" in error.what
    assert "scancel 7" in error.hint
    assert "ended" not in launcher.names


@pytest.mark.parametrize("count", [2, 3])
def test_impatient_interrupts_while_ending(launcher: Launcher, count: int) -> None:
    """All at once, as from a key that is held down."""
    launcher.host.scancel_works = False
    launcher.launch()
    launcher.attach()
    launcher.hooks.at("stopping", lambda: launcher.presses_ctrl_c(count))
    launcher.types("")
    error = launcher.fails(CancelFailed)
    assert "7" in error.what and "scancel 7" in error.hint
    assert "ended" not in launcher.names
    assert launcher.host.count("scancel") == 1


def test_impatient_interrupts_before_it_is_ready(launcher: Launcher) -> None:
    """“Job 7 has ended” is said only of a job that was seen to be gone."""
    launcher.host.scancel_works = False
    launcher.launch()
    launcher.shown(events.Pending)
    launcher.presses_ctrl_c(3)
    error = launcher.fails(CancelFailed)
    assert "still there" in error.what and "gone." not in f"{error.what} {error.hint}"
    assert "ended" not in launcher.names


@pytest.mark.parametrize(
    ("when", "answers", "said"),
    [
        ("pending", {}, "was cancelled before it started"),
        ("starting", {}, "has ended"),
        ("pending", {"head": lambda: CommandResult(0, "{")}, "has ended"),  # it has run, and was requeued
        ("pending", {"head": failing(HostCommandFailed("It takes too long."))}, "has ended"),  # which is always true
    ],
)
def test_of_a_job_that_never_ran_it_is_not_said_that_it_ended(
    launcher: Launcher, when: str, answers: dict[str, Callable[[], CommandResult]], said: str
) -> None:
    launcher.launched(when)
    launcher.host.answers |= answers
    launcher.interrupts.arrive("end")
    assert launcher.shown(events.Ended).text == f"Job 7 {said}."
    launcher.fails(Interrupted)


def test_one_interrupt_while_ending_still_waits_for_the_end(launcher: Launcher) -> None:
    launcher.host.scancel_works = False
    launcher.launch()
    launcher.attach()
    launcher.types("")
    launcher.shown(events.Stopping)
    launcher.interrupts.arrive("end")
    launcher.shown(events.Note)
    launcher.host.state = "CANCELLED"
    launcher.well()
    assert launcher.names[-3:] == ["stopping", "note", "ended"]


def test_a_terminal_closed_while_ending_does_not_stop_that(launcher: Launcher) -> None:
    launcher.host.scancel_works = False
    launcher.launch()
    launcher.attach()
    launcher.types("")
    launcher.shown(events.Stopping)
    for _ in range(3):
        launcher.interrupts.arrive("leave")
    launcher.host.state = "CANCELLED"
    launcher.well()
    assert launcher.names[-2:] == ["stopping", "ended"]


def test_a_cancel_that_does_nothing_is_repeated(launcher: Launcher) -> None:
    launcher.set_timing(cancel_again_after=0.1)
    launcher.set_timing(cancel_within=0.4)
    launcher.host.scancel_works = False
    launcher.launch()
    launcher.attach()
    launcher.types("")
    error = launcher.fails(CancelFailed)
    assert "Job 7 is still there" in error.what and "scancel 7" in error.hint
    assert 2 <= launcher.host.count("scancel") <= 5
    assert "ended" not in launcher.names


def test_a_repeated_cancel_may_work(launcher: Launcher) -> None:
    launcher.set_timing(cancel_again_after=0.1)
    launcher.launch()
    launcher.attach()

    def deaf_once() -> CommandResult:
        del launcher.host.answers["scancel"]
        return CommandResult(1, "", "scancel: error: Kill job error on job id 7: Socket timed out")

    launcher.host.answers["scancel"] = deaf_once
    launcher.types("")
    launcher.well()
    assert launcher.host.count("scancel") == 2
    assert launcher.names[-2:] == ["stopping", "ended"]


def test_a_login_shell_that_is_slow_gets_more_time(launcher: Launcher) -> None:
    """Each command takes longer than an answer may at first, and all of them longer than the job may to end."""
    launcher.set_timing(answer_within=0.1)
    launcher.set_timing(cancel_within=0.6)
    launcher.launch()
    launcher.attach()
    run, allowed = launcher.host.run, []

    def slowly(argv: Sequence[str], **settings: Any) -> CommandResult:
        if "scancel" in argv:
            allowed.append(settings["timeout"])
            if settings["timeout"] < 0.3:
                raise HostCommandFailed("scancel was not done in time.")
            time.sleep(0.25)
        return run(argv, **settings)

    launcher.host.run = slowly  # type: ignore[method-assign]
    launcher.types("")
    launcher.well()
    assert launcher.names[-1] == "ended"
    assert allowed[:3] == pytest.approx([0.1, 0.2, 0.4], rel=0.05), "it doubles"


def test_a_scheduler_that_says_nothing_has_not_said_that_the_job_is_gone(launcher: Launcher) -> None:
    launcher.set_timing(cancel_within=0.15)
    launcher.set_timing(unresponsive_note_after=0.0)
    launcher.launch()
    launcher.attach()
    launcher.host.answers["squeue"] = lambda: CommandResult(
        1, "", "slurm_load_jobs error: Unable to contact slurm controller"
    )
    launcher.types("")
    error = launcher.fails(CancelFailed)
    assert "may still be there" in error.what and "Unable to contact" in error.why and "scancel 7" in error.hint
    assert "ended" not in launcher.names
    assert [note for note in launcher.notes if "does not answer" in note and "as soon as it does" in note]


def test_a_job_is_cancelled_as_soon_as_the_scheduler_answers_again(launcher: Launcher) -> None:
    launcher.launch()
    launcher.attach()
    away = CommandResult(1, "", "slurm_load_jobs error: Unable to contact slurm controller")
    launcher.host.answers |= {"squeue": lambda: away, "scancel": lambda: away}
    launcher.types("")
    launcher.shown(events.Stopping)
    launcher.host.noticed()
    launcher.host.answers.clear()
    launcher.well()
    assert launcher.names[-1] == "ended"


def test_a_job_that_is_completing_is_not_gone_yet(launcher: Launcher) -> None:
    launcher.host.scancel_works = False
    launcher.launch()
    launcher.attach()
    launcher.hooks.at("scancel", lambda: setattr(launcher.host, "state", "COMPLETING"))
    launcher.types("")
    launcher.shown(events.Stopping)
    time.sleep(0.1)
    assert launcher.going
    launcher.host.state = ""  # purged from the queue, and the history knows
    launcher.host.history = "7|CANCELLED by 1000|0:15|n1|2026-11-21T12:00:00|Unknown\n"
    launcher.well()
    assert launcher.names[-1] == "ended"


@pytest.mark.parametrize(
    "error",
    [ConnectionLost("The connection to login is lost."), HostCommandFailed("scancel did not answer within 90 s.")],
    ids=["connection", "too slow"],
)
def test_a_cancel_that_can_never_be_sent(launcher: Launcher, error: LauncherError) -> None:
    launcher.set_timing(cancel_within=0.1)
    launcher.launch()
    launcher.attach()
    launcher.host.answers["scancel"] = failing(error)
    launcher.types("")
    failed = launcher.fails(CancelFailed)
    assert failed.what == "Job 7 may still be there." and error.what in failed.why
    assert failed.hint == "end it on the login node with: scancel 7"
    assert "ended" not in launcher.names


def test_where_no_command_runs_a_cancel_is_not_repeated(launcher: Launcher) -> None:
    launcher.set_timing(cancel_within=60.0)
    launcher.launch()
    launcher.attach()
    launcher.host.answers["scancel"] = failing(LoginShellSilent("Your login shell on login runs no commands."))
    launcher.types("")
    assert "login shell on login runs no commands" in launcher.fails(CancelFailed).why
    assert launcher.host.count("scancel") == 1


def test_a_failed_launch_whose_job_cannot_be_cancelled_tells_both(launcher: Launcher) -> None:
    launcher.set_timing(cancel_within=0.1)
    launcher.host.reason = "PartitionTimeLimit"
    launcher.host.answers["scancel"] = failing(ConnectionLost("The connection to login is lost."))
    launcher.launch()
    error = launcher.fails(JobNeverStarts)
    assert "can never start" in error.what
    assert "Job 7 may still be there." in error.why and "scancel 7" in error.hint


def test_a_bug_of_ours_whose_job_cannot_be_cancelled_tells_both(launcher: Launcher) -> None:
    launcher.set_timing(cancel_within=0.1)
    launcher.hooks.at("pending", failing(KeyError("a bug")))
    launcher.host.answers["scancel"] = failing(ConnectionLost("The connection to login is lost."))
    launcher.launch()
    raised = launcher.over()
    told = [repr(raised), str(getattr(raised, "why", "")), str(getattr(raised, "hint", "")), *launcher.notes]
    assert any("scancel 7" in text for text in told)


def test_a_bug_of_ours_leaves_no_job(launcher: Launcher) -> None:
    launcher.hooks.at("pending", failing(KeyError("a bug")))
    launcher.launch()
    launcher.fails(KeyError)
    assert launcher.host.commands("scancel") == ["scancel 7"]


def test_a_job_on_another_cluster_is_named_and_cancelled_there(launcher: Launcher) -> None:
    launcher.set_timing(cancel_within=0.1)
    launcher.host.answers["sbatch"] = lambda: CommandResult(0, "7;snowy\n")
    launcher.launch(replace(PLAN, request=Request({"clusters": "snowy"})))
    launcher.attach()
    launcher.host.answers["scancel"] = failing(ConnectionLost("The connection to login is lost."))
    launcher.types("")
    error = launcher.fails(CancelFailed)
    assert "7 on snowy" in error.what
    assert "scancel --clusters=snowy 7" in error.hint
