"""Connecting to a session again, and stopping one."""

from __future__ import annotations

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.errors import (
    CancelFailed,
    ImageUnusable,
    JobNeverStarts,
    JobSilent,
    JupyterSilent,
    LauncherError,
    NodeUnreachable,
)
from notebook_launcher.core.interrupts import HungUp
from tests.doubles import FakePrompts
from tests.unit.supervision.launcher_doubles import Launcher, come_back, come_back_to_ready, failing


@pytest.mark.parametrize(
    ("step", "error"),
    [("opening", NodeUnreachable("No route to n1 was found.")), ("reaching", JupyterSilent("It does not answer."))],
    ids=["node", "jupyter"],
)
def test_a_session_that_cannot_be_reached_from_here_goes_on(
    launcher: Launcher, step: str, error: LauncherError
) -> None:
    launcher.hooks.at(step, failing(error))
    come_back(launcher)
    launcher.host.says("started", node_names=["n1"])
    launcher.host.says("endpoint", port=4242)
    assert launcher.over() is error
    assert launcher.host.count("scancel") == launcher.host.count("rm") == 0
    assert "ready" not in launcher.names


def test_a_launch_that_comes_back_instead_needs_no_login_shell_to_submit(launcher: Launcher) -> None:
    launcher._old_session()
    launcher.prompts = FakePrompts(confirms=[True])
    waited: list[bool] = []
    launcher.hooks.at("list", lambda: waited.append(launcher.host.shell_waits))
    launcher.launch()
    launcher.shown(events.Pending)
    assert waited == [True] and not launcher.host.shell_waits
    launcher.types("d")
    launcher.well()


@pytest.mark.parametrize("how", ["d", "Ctrl-C"])
def test_changing_one_s_mind_before_the_way_back_is_open(launcher: Launcher, how: str) -> None:
    """What was asked for is a way to the session; without one the session is as it was."""
    come_back(launcher)
    launcher.shown(events.Running)
    launcher.types("d") if how == "d" else launcher.interrupts.arrive("end")
    launcher.well()
    assert launcher.names[-1] == "detached" and "stopping" not in launcher.names
    assert launcher.shown(events.Detached).connect_command == "launch-notebook connect --cluster uni abcd"
    assert launcher.host.count("scancel") == 0


@pytest.mark.parametrize("step", ["head", "note", "running", "opening", "reaching", "ready"])
def test_a_terminal_closed_on_the_way_back(launcher: Launcher, step: str) -> None:
    launcher.hooks.at(step, lambda: launcher.interrupts.arrive("leave"))
    launcher.host.state, launcher.host.node = "RUNNING", "n1"
    launcher.connect()
    if launcher.shown_or_over(events.Running):
        launcher.host.says("started", node_names=["n1"])
        launcher.host.says("endpoint", port=4242)
    launcher.fails(HungUp)
    assert launcher.host.count("scancel") == 0


def test_enter_ends_a_session_that_was_come_back_to(launcher: Launcher) -> None:
    come_back_to_ready(launcher)
    launcher.types("")
    launcher.well()
    assert launcher.names[-3:] == ["ready", "stopping", "ended"]
    assert launcher.host.commands("scancel") == ["scancel 7"]


def test_ctrl_c_detaches_from_a_session_that_this_command_has_not_started(launcher: Launcher) -> None:
    """Whether it waits or runs: what somebody has only come to look at does not die of a reflex."""
    come_back_to_ready(launcher)
    assert launcher.shown(events.Ready).started_here is False
    told = len(launcher.notes)
    launcher.types("help")
    assert "Ctrl-C, or d and ENTER, detaches" in launcher.shown(events.Note, told + 1).text
    launcher.interrupts.arrive("end")
    launcher.well()
    assert launcher.names[-1] == "detached"
    assert launcher.host.count("scancel") == 0


def test_a_session_that_was_come_back_to_is_left_again(launcher: Launcher) -> None:
    come_back_to_ready(launcher)
    launcher.types("d")
    launcher.well()
    assert launcher.names[-2:] == ["ready", "detached"]
    assert launcher.host.count("scancel") == 0


@pytest.mark.parametrize("trouble", ["never starts", "silent", "bug"])
def test_what_goes_wrong_on_the_way_back_ends_nothing(launcher: Launcher, trouble: str) -> None:
    launcher.set_timing(script_starts_within=0.1)
    if trouble == "bug":
        launcher.hooks.at("running", failing(KeyError("a bug")))
    launcher.host.reason = "PartitionTimeLimit" if trouble == "never starts" else "None"
    come_back(launcher, "PENDING" if trouble == "never starts" else "RUNNING")
    launcher.fails({"never starts": JobNeverStarts, "silent": JobSilent, "bug": KeyError}[trouble])
    assert launcher.host.count("scancel") == 0


def test_a_session_that_ended_in_the_meantime(launcher: Launcher) -> None:
    come_back(launcher)
    launcher.host.says("exit", cause="image-missing", message="There is no image /x.sif.")
    assert "no image" in launcher.fails(ImageUnusable).what
    assert launcher.host.count("scancel") == 0


def test_stop(launcher: Launcher) -> None:
    launcher.host.state = "RUNNING"
    launcher.stop()
    launcher.well()
    assert launcher.names == ["stopping", "ended"]
    assert launcher.host.commands("scancel") == ["scancel 7"]


def test_impatient_interrupts_while_stopping(launcher: Launcher) -> None:
    launcher.host.state, launcher.host.scancel_works = "RUNNING", False
    launcher.hooks.at("stopping", lambda: launcher.presses_ctrl_c(2))
    launcher.stop()
    assert "scancel 7" in launcher.fails(CancelFailed).hint


def test_a_terminal_closed_while_stopping(launcher: Launcher) -> None:
    launcher.host.state, launcher.host.scancel_works = "RUNNING", False
    launcher.hooks.at("stopping", lambda: launcher.interrupts.arrive("leave"))
    launcher.stop()
    launcher.shown(events.Stopping)
    launcher.host.state = "CANCELLED"
    launcher.well()
