"""A connection that cannot be made anew."""

from __future__ import annotations

import time
from typing import Any

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.errors import (
    AuthenticationFailed,
    ConnectionLost,
    HostKeyChanged,
)
from notebook_launcher.supervision import login_connection, supervisor
from notebook_launcher.tunnel import reconnect
from tests.unit.supervision.launcher_doubles import CHANGED, UNREACHABLE, WHEN, Launcher, is_left_with_the_way_back


@pytest.mark.parametrize("when", WHEN)
def test_another_host_key_after_a_drop(launcher: Launcher, when: str) -> None:
    """Nothing more is sent there, not even to end the job."""
    launcher.launched(when)
    launcher.host.outcomes = [UNREACHABLE, HostKeyChanged(CHANGED, why="It is x.", hint="ssh-keygen -R login")] * 9
    launcher.host.drops()
    error = launcher.fails(HostKeyChanged)
    assert error.what == CHANGED and error.hint == "ssh-keygen -R login"
    assert "It is x." in error.why and "The session goes on: job 7." in error.why
    assert (
        launcher.shown(events.Detached).connect_command
        == f"launch-notebook connect --cluster uni {launcher.short_name}"
    )
    assert launcher.host.attempts == 2
    assert launcher.host.count("scancel") == launcher.host.count("rm") == 0 and "stopping" not in launcher.names


def test_another_host_key_of_the_node_after_a_drop(launcher: Launcher) -> None:
    launcher.launched("attached")
    launcher.routes.refusals = [HostKeyChanged("The host key of n1 has changed.")]
    launcher.routes.opened[0].standing = False
    launcher.fails(HostKeyChanged)
    assert launcher.names[-1] == "detached" and launcher.host.count("scancel") == 0


@pytest.mark.parametrize("when", WHEN)
def test_who_does_not_answer_is_asked_once(launcher: Launcher, when: str) -> None:
    """With a second factor a login cannot be repeated without the user, and there is nobody at the keyboard."""

    def asks() -> None:
        launcher.host.prompts.secret("One-time code: ")
        raise AuthenticationFailed("login does not let you in.")

    launcher.launched(when)
    launcher.host.outcomes = [UNREACHABLE, asks, asks, asks]
    launcher.host.drops()
    error = launcher.fails(ConnectionLost)
    assert "does not let you in" in error.why
    assert launcher.prompts.asked == ["One-time code: "]
    is_left_with_the_way_back(launcher, error)


def test_who_answers_rightly_is_let_in_again(launcher: Launcher) -> None:
    launcher.launched("attached")
    launcher.host.outcomes = [lambda: launcher.host.prompts.secret("One-time code: ")]
    launcher.host.drops()
    launcher.is_reconnected()
    launcher.goes_on_to_a_good_end()
    assert len(launcher.prompts.asked) == 1


def test_refused_without_a_question_five_times(launcher: Launcher) -> None:
    """A login node that is just starting up refuses everybody for a while, but not for ever."""
    launcher.launched("attached")
    launcher.host.outcomes = [AuthenticationFailed("login does not let you in.") for _ in range(9)]
    launcher.host.drops()
    error = launcher.fails(ConnectionLost)
    assert launcher.host.attempts == 5
    is_left_with_the_way_back(launcher, error)


def test_refused_for_a_while(launcher: Launcher) -> None:
    refused = [AuthenticationFailed("login does not let you in.") for _ in range(4)]
    launcher.launched("attached")
    launcher.host.outcomes = [*refused, UNREACHABLE, *refused]
    launcher.host.drops()
    launcher.is_reconnected()
    launcher.goes_on_to_a_good_end()


def test_a_bug_of_ours_while_reconnecting_is_no_silence(launcher: Launcher) -> None:
    launcher.launched("attached")
    launcher.host.outcomes = [KeyError("a bug")]
    launcher.host.drops()
    error = launcher.fails(ConnectionLost)
    assert "a bug" in error.why
    is_left_with_the_way_back(launcher, error)


@pytest.mark.parametrize("when", WHEN)
def test_it_is_not_tried_for_ever(launcher: Launcher, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    monkeypatch.setattr(supervisor.Supervisor, "_reconnect_deadline", lambda _: time.monotonic() + 0.2)
    launcher.launched(when)
    launcher.host.drops(reachable=False)
    error = launcher.fails(ConnectionLost)
    assert "login port 22 cannot be reached." in error.why
    assert launcher.host.attempts > 1
    is_left_with_the_way_back(launcher, error)


def test_a_way_to_the_node_is_not_looked_for_for_ever(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher.launched("attached")
    monkeypatch.setattr(supervisor.Supervisor, "_reconnect_deadline", lambda _: 0.0)
    launcher.routes.unreachable = {"n1"}
    launcher.routes.opened[0].standing = False
    error = launcher.fails(ConnectionLost)
    assert "No route to n1 was found." in error.why
    is_left_with_the_way_back(launcher, error)


@pytest.mark.parametrize(("when", "seconds"), [("pending", 24 * 3600), ("attached", 59 * 60)])
def test_it_is_tried_for_as_long_as_the_job_can_be_there(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch, when: str, seconds: int
) -> None:
    deadlines = []

    class Noting(reconnect.Reconnection):
        def __init__(self, *args: Any, **others: Any) -> None:
            deadlines.append(others["deadline"] - time.monotonic())
            super().__init__(*args, **others)

    monkeypatch.setattr(login_connection, "Reconnection", Noting)
    launcher.launched(when)
    launcher.host.drops()
    launcher.is_reconnected()
    assert deadlines and seconds - 60 < deadlines[0] < seconds + 120
    launcher.types("d")
    launcher.well()
