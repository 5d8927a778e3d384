"""The usage report after the end."""

from __future__ import annotations

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    ConnectionLost,
    JobCancelled,
)
from tests.unit.supervision.launcher_doubles import Launcher


def accounted(state: str, step: str = "") -> CommandResult:
    rows = f"7|{state}|2001|gpu|600|120|2|1|cpu=2,mem=4G,node=1|01:00.000|1200||4G|\n"
    return CommandResult(0, rows + (f"7.batch|{step}|||600||2|1|cpu=2|01:00.000|1200|1048576||0\n" if step else ""))


def test_the_bill_comes_after_the_end(launcher: Launcher) -> None:
    """The accounting is a moment behind, which is waited for."""
    answers = iter([accounted("RUNNING"), accounted("CANCELLED by 2001", "CANCELLED")])
    launcher.host.answers["sacct"] = lambda: next(answers)
    launcher.launch()
    launcher.attach()
    launcher.types("")
    launcher.well()
    assert launcher.names[-3:] == ["stopping", "ended", "bill"]
    bill = launcher.shown(events.Bill)
    assert (bill.run_time, bill.cores, bill.cpu_used) == (600, 2, 60)


def test_who_does_not_wait_for_the_last_figures_sees_the_others(launcher: Launcher) -> None:
    def not_yet() -> CommandResult:
        launcher.presses_ctrl_c(1)
        return accounted("RUNNING")

    launcher.host.answers |= {
        "sacct": not_yet,
        "bill": lambda: CommandResult(0, 'started {"started": "2026-11-21T01:00:00Z"}\n'),
    }
    launcher.launch()
    launcher.attach()
    launcher.types("")
    launcher.well()
    assert launcher.host.count("sacct") == 1
    assert "have not come" in launcher.shown(events.Bill).measured_by


@pytest.mark.parametrize(("error", "last"), [(ConnectionLost("It broke."), "ended"), (ValueError("odd"), "note")])
def test_a_bill_that_cannot_be_made_is_no_error(launcher: Launcher, error: Exception, last: str) -> None:
    def fail() -> CommandResult:
        raise error

    launcher.host.answers["bill"] = fail
    launcher.launch()
    launcher.attach()
    launcher.types("")
    launcher.well()
    assert launcher.names[-1] == last


def test_a_session_that_goes_on_has_no_bill(launcher: Launcher) -> None:
    launcher.host.answers["sacct"] = lambda: accounted("RUNNING", "RUNNING")
    launcher.connect()
    launcher.host.starts()
    launcher.shown(events.Running)
    launcher.presses_ctrl_c(1)
    launcher.well()
    assert launcher.names[-1] == "detached"


def test_a_job_that_somebody_cancelled_has_a_bill(launcher: Launcher) -> None:
    launcher.host.answers["sacct"] = lambda: accounted("CANCELLED by 0", "CANCELLED")
    launcher.launch()
    launcher.attach()
    launcher.host.state = "CANCELLED"
    launcher.fails(JobCancelled)
    assert launcher.names[-1] == "bill"
