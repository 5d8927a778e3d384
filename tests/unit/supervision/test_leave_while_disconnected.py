"""Stopping and detaching while the connection is broken."""

from __future__ import annotations

import time

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    AuthenticationFailed,
    CancelFailed,
    HostKeyChanged,
    Interrupted,
)
from notebook_launcher.core.interrupts import HungUp
from tests.unit.supervision.launcher_doubles import (
    CHANGED,
    LOST,
    UNREACHABLE,
    WHEN,
    Launcher,
    come_back,
    come_back_to_ready,
)


@pytest.mark.parametrize("ours", [True, False], ids=["launch", "connect"])
def test_d_leaves_at_once_while_the_network_is_down(launcher: Launcher, ours: bool) -> None:
    launcher.launched("attached") if ours else come_back_to_ready(launcher)
    launcher.host.drops(reachable=False)
    launcher.shown(events.Disconnected)
    launcher.types("d")
    launcher.well()
    assert launcher.names[-2:] == ["disconnected", "detached"]
    assert launcher.host.count("scancel") == 0
    tried = launcher.host.attempts
    time.sleep(0.1)
    assert launcher.host.attempts <= tried + 1


@pytest.mark.parametrize("when", ["pending", "starting"])
def test_d_leaves_at_once_before_it_is_ready(launcher: Launcher, when: str) -> None:
    launcher.launched(when)
    launcher.host.drops(reachable=False)
    launcher.shown(events.Disconnected)
    launcher.types("d")
    launcher.well()
    assert launcher.names[-2:] == ["disconnected", "detached"] and launcher.host.count("scancel") == 0


@pytest.mark.parametrize("when", WHEN)
def test_a_terminal_closed_while_the_network_is_down(launcher: Launcher, when: str) -> None:
    launcher.launched(when)
    launcher.host.drops(reachable=False)
    launcher.shown(events.Disconnected)
    launcher.interrupts.arrive("leave")
    launcher.fails(HungUp)
    assert launcher.host.count("scancel") == 0 and launcher.host.state != "CANCELLED"


def ends(launcher: Launcher, how: str) -> None:
    launcher.types("") if how == "ENTER" else launcher.interrupts.arrive("end")


HOW = [("pending", "Ctrl-C"), ("starting", "Ctrl-C"), ("attached", "Ctrl-C"), ("attached", "ENTER")]


@pytest.mark.parametrize(("when", "how"), HOW)
def test_the_job_is_cancelled_as_soon_as_the_network_is_back(launcher: Launcher, when: str, how: str) -> None:
    launcher.launched(when)
    launcher.host.drops(reachable=False)
    launcher.shown(events.Disconnected)
    ends(launcher, how)
    assert "as soon as the cluster is reached again" in launcher.shown(events.Note).text
    launcher.host.is_tried(launcher.host.attempts + 2)
    assert launcher.going and "ended" not in launcher.names
    launcher.host.reachable = True
    launcher.well() if when == "attached" else launcher.fails(Interrupted)
    assert launcher.host.state == "CANCELLED"
    assert launcher.names[-3:] == ["stopping", "note", "ended"]


@pytest.mark.parametrize(("when", "how"), HOW)
def test_a_network_that_does_not_come_back_in_time(launcher: Launcher, when: str, how: str) -> None:
    launcher.set_timing(cancel_within=0.1)
    launcher.launched(when)
    launcher.host.drops(reachable=False)
    launcher.shown(events.Disconnected)
    ends(launcher, how)
    error = launcher.fails(CancelFailed)
    assert error.what == "Job 7 may still be there." and "is lost" in error.why
    assert error.hint == "end it on the login node with: scancel 7"
    assert "ended" not in launcher.names


@pytest.mark.parametrize(("when", "how"), HOW)
def test_the_second_ctrl_c_does_not_wait_for_the_network(launcher: Launcher, when: str, how: str) -> None:
    launcher.launched(when)
    launcher.host.drops(reachable=False)
    launcher.shown(events.Disconnected)
    ends(launcher, how)
    launcher.shown(events.Stopping)
    launcher.interrupts.arrive("end")
    assert "Ctrl-C again" in launcher.shown(events.Note, 2).text
    assert launcher.going
    launcher.interrupts.arrive("end")
    error = launcher.fails(CancelFailed)
    assert "may still be there" in error.what and "scancel 7" in error.hint


def test_enter_costs_nothing_while_the_network_is_down(launcher: Launcher) -> None:
    launcher.launched("pending")
    launcher.host.drops(reachable=False)
    launcher.shown(events.Disconnected)
    launcher.types("")
    assert "not ready yet" in launcher.shown(events.Note).text
    launcher.host.reachable = True
    launcher.is_reconnected()
    launcher.goes_on_to_a_good_end()


def test_ctrl_c_on_the_way_back_leaves_the_session_without_a_network_too(launcher: Launcher) -> None:
    come_back(launcher)
    launcher.host.drops(reachable=False)
    launcher.shown(events.Disconnected)
    launcher.interrupts.arrive("end")
    launcher.well()
    assert launcher.names[-1] == "detached" and launcher.host.count("scancel") == 0


@pytest.mark.parametrize("how", ["stop", "ENTER"])
def test_the_connection_breaks_while_the_job_is_ended(launcher: Launcher, how: str) -> None:
    def drops() -> CommandResult:
        del launcher.host.answers["scancel"]
        launcher.host.drops()
        raise LOST

    launcher.host.answers["scancel"] = drops
    if how == "stop":
        launcher.host.state = "RUNNING"
        launcher.stop()
    else:
        launcher.launched("attached")
        launcher.types("")
    launcher.well()
    assert launcher.host.state == "CANCELLED" and launcher.names[-1] == "ended"


def test_the_connection_breaks_after_the_job_was_cancelled(launcher: Launcher) -> None:
    """Whether the word has arrived is not known: it is said again, and its end is seen."""
    launcher.launched("attached")
    launcher.host.scancel_works = False
    launcher.types("")
    launcher.shown(events.Stopping)
    launcher.host.drops(reachable=False)
    launcher.shown(events.Note)
    launcher.host.scancel_works = launcher.host.reachable = True
    launcher.well()
    assert launcher.host.count("scancel") >= 2 and launcher.names[-1] == "ended"


@pytest.mark.parametrize("trouble", ["code", "host key"])
def test_nobody_is_asked_again_and_again_while_the_job_is_ended(launcher: Launcher, trouble: str) -> None:
    def asks() -> None:
        launcher.host.prompts.secret("One-time code: ")
        raise AuthenticationFailed("login does not let you in.")

    launcher.launched("attached")
    launcher.hooks.at("stopping", lambda: launcher.host.drops())
    outcome = asks if trouble == "code" else HostKeyChanged(CHANGED)
    launcher.host.outcomes = [UNREACHABLE, *[outcome] * 9]
    launcher.types("")
    error = launcher.fails(CancelFailed)
    assert "scancel 7" in error.hint
    assert ("does not let you in" if trouble == "code" else CHANGED) in error.why
    assert len(launcher.prompts.asked) == (trouble == "code")
    assert launcher.host.attempts == 2
