"""The connection to the login node breaks, and is made anew; whatever happens to the job meanwhile."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    HostCommandFailed,
    ImageUnusable,
    JobCancelled,
    JobFailed,
    JobLost,
    JobTimedOut,
    LauncherError,
    NodeFailed,
    OutOfMemory,
)
from notebook_launcher.hosts.base import LineStream, OnEnd, OnLine
from notebook_launcher.supervision import login_connection
from notebook_launcher.tunnel import reconnect
from tests.doubles import wait_until
from tests.unit.supervision.fake_login import PATIENCE
from tests.unit.supervision.launcher_doubles import DOUBLED, LOST, WHEN, Launcher, come_back_to_ready, failing


@pytest.mark.parametrize("when", WHEN)
def test_a_drop_is_reconnected(launcher: Launcher, when: str) -> None:
    launcher.launched(when)
    launcher.host.drops()
    assert launcher.shown(events.Disconnected).reason == "the connection broke"
    launcher.is_reconnected()
    launcher.goes_on_to_a_good_end()
    assert launcher.host.connection == 1
    assert launcher.names.index("disconnected") + 1 == launcher.names.index("reconnected")


@pytest.mark.parametrize("when", WHEN)
def test_a_login_node_that_comes_back_late(launcher: Launcher, when: str) -> None:
    launcher.launched(when)
    launcher.host.drops(reachable=False)
    launcher.host.is_tried(4)
    assert launcher.going and launcher.names[-1] == "disconnected"
    launcher.host.reachable = True
    launcher.is_reconnected()
    launcher.goes_on_to_a_good_end()


def test_drops_again_and_again_are_all_remade(launcher: Launcher) -> None:
    launcher.launched("attached")
    for times in (1, 2, 3):
        launcher.host.drops()
        launcher.is_reconnected(times)
    launcher.goes_on_to_a_good_end()


def test_a_drop_on_the_way_back_to_a_session(launcher: Launcher) -> None:
    come_back_to_ready(launcher)
    launcher.host.drops()
    launcher.is_reconnected()
    assert launcher.routes.ending_calls == [False, False], "the one who launched it may need them"
    launcher.goes_on_to_a_good_end()


def test_the_job_starts_while_the_network_is_down(launcher: Launcher) -> None:
    launcher.launched("pending")
    launcher.host.drops(reachable=False)
    launcher.host.is_tried(2)
    launcher.host.starts()
    launcher.host.says("endpoint", port=4242)
    launcher.host.reachable = True
    launcher.is_reconnected()
    launcher.goes_on_to_a_good_end()
    assert launcher.names[:5] == ["submitted", "pending", "disconnected", "reconnected", "running"]


def test_jupyter_listens_while_the_network_is_down(launcher: Launcher) -> None:
    launcher.launched("starting")
    launcher.host.drops(reachable=False)
    launcher.host.is_tried(2)
    launcher.host.says("endpoint", port=4242)
    launcher.host.reachable = True
    launcher.goes_on_to_a_good_end()
    assert launcher.names.count("reconnected") == 1


@pytest.mark.parametrize("when", ["pending", "attached"])
def test_the_watch_breaks_alone(launcher: Launcher, when: str) -> None:
    """Somebody has ended it on the login node; the connection is well and stays, and the watch is begun anew."""
    launcher.launched(when)
    first = launcher.host.watched
    first.ends("exit code 255")
    wait_until(lambda: launcher.host.watched is not first, PATIENCE, "somebody watches the job")
    assert launcher.host.attempts == 0 and "disconnected" not in launcher.names
    launcher.goes_on_to_a_good_end()


def test_the_scheduler_cannot_be_asked_because_the_connection_is_lost(launcher: Launcher) -> None:
    launcher.launched("attached")

    def lost() -> CommandResult:
        del launcher.host.answers["squeue"]
        raise LOST

    launcher.host.answers["squeue"] = lost
    assert launcher.shown(events.Disconnected).reason == LOST.what
    launcher.is_reconnected()
    launcher.goes_on_to_a_good_end()


@pytest.mark.parametrize(
    "error", [LOST, HostCommandFailed("login does not run commands.")], ids=lambda error: error.kind
)
def test_the_new_watch_cannot_begin_at_once(launcher: Launcher, error: LauncherError) -> None:
    """A login node that is just starting up lets us in, and is not ready yet."""
    launcher.launched("pending")
    launcher.host.outcomes = [lambda: launcher.hooks.at("watch", failing(error))]
    launcher.host.drops()
    launcher.is_reconnected()
    assert launcher.host.connection == 2
    launcher.goes_on_to_a_good_end()


def test_the_first_watch_cannot_begin(launcher: Launcher) -> None:
    launcher.hooks.at("watch", failing(LOST))
    launcher.launch()
    launcher.is_reconnected()
    launcher.goes_on_to_a_good_end()


def test_a_watch_that_breaks_at_once_every_time_is_no_reason_for_haste(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    class Noting(reconnect.Reconnection):
        def __init__(self, *args: Any, pause: float, **others: Any) -> None:
            pauses.append(pause)
            super().__init__(*args, pause=pause, **others)

    monkeypatch.setattr(login_connection, "Reconnection", Noting)
    launcher.set_timing(remake_pause=0.01, longest_reconnect_pause=8.0)
    launcher.launched("attached")
    usual = launcher.host.stream

    def breaking(argv: Sequence[str], on_line: OnLine, on_end: OnEnd) -> LineStream:
        stream = usual(argv, on_line, on_end)
        launcher.host.watched.ends("it cannot run")
        return stream

    monkeypatch.setattr(launcher.host, "stream", breaking)
    launcher.host.watched.ends("it cannot run")
    wait_until(lambda: len(pauses) >= 4, PATIENCE)
    assert pauses[:4] == DOUBLED
    assert launcher.going and launcher.host.count("scancel") == 0
    launcher.types("d")
    launcher.well()


def test_every_turn_of_trouble_is_told_in_pairs(launcher: Launcher) -> None:
    """What shows that the network is down is taken away again by what says that it is up."""
    launcher.launched("attached")
    for _ in range(3):
        launcher.host.drops(reachable=False)
        launcher.routes.opened[-1].standing = False
        launcher.host.is_tried(launcher.host.attempts + 2)
        launcher.host.reachable = True
        count = launcher.names.count("disconnected")
        launcher.shown(events.Reconnected, count)
    told = [name for name in launcher.names if name in ("disconnected", "reconnected")]
    assert told == ["disconnected", "reconnected"] * 3
    launcher.goes_on_to_a_good_end()


@pytest.mark.parametrize(
    ("state", "history", "error"),
    [
        ("TIMEOUT", "", JobTimedOut),
        ("FAILED", "", JobFailed),
        ("OUT_OF_MEMORY", "", OutOfMemory),
        ("NODE_FAIL", "", NodeFailed),
        ("CANCELLED", "", JobCancelled),
        ("", "7|TIMEOUT|0:0|n1|2026-11-21T12:00:00|Unknown\n", JobTimedOut),
        ("", "", JobLost),
    ],
)
@pytest.mark.parametrize("when", WHEN)
def test_the_job_ends_while_the_network_is_down(
    launcher: Launcher, when: str, state: str, history: str, error: type[LauncherError]
) -> None:
    """How it ended is told, and never that its node cannot be reached any more."""
    launcher.launched(when)
    launcher.host.drops(reachable=False)
    launcher.host.is_tried(3)
    assert launcher.going, "that nobody can be asked says nothing about the job"
    launcher.host.state, launcher.host.history = state, history
    launcher.routes.unreachable = {"n1"}
    launcher.host.reachable = True
    launcher.fails(error)
    assert launcher.host.count("scancel") == 0


@pytest.mark.parametrize("when", ["starting", "attached"])
def test_the_job_s_own_last_word_is_read_after_the_drop(launcher: Launcher, when: str) -> None:
    launcher.launched(when)
    launcher.host.drops(reachable=False)
    launcher.host.is_tried(2)
    launcher.host.says("exit", cause="image-missing", message="There is no image /x.sif.")
    launcher.host.files["exit.json"] = json.dumps({"cause": "image-missing", "message": "There is no image /x.sif."})
    launcher.host.state = "FAILED"
    launcher.routes.unreachable = {"n1"}
    launcher.host.reachable = True
    assert launcher.fails(ImageUnusable).what == "Job 7: There is no image /x.sif."


def test_shut_down_from_the_browser_just_before_the_drop(launcher: Launcher) -> None:
    launcher.launched("attached")
    launcher.host.drops(reachable=False)
    launcher.host.files["exit.json"] = json.dumps({"cause": "finished", "message": "JupyterLab ended."})
    launcher.host.says("exit", cause="finished", message="JupyterLab ended.")
    launcher.host.state = "COMPLETED"
    launcher.host.is_tried(2)
    launcher.host.reachable = True
    launcher.well()
    assert "shut down" in launcher.shown(events.Ended).text


def test_the_connection_breaks_while_it_is_asked_how_the_job_ended(launcher: Launcher) -> None:
    launcher.launched("attached")

    def drops() -> CommandResult:
        del launcher.host.answers["head"]
        launcher.host.drops()
        raise LOST

    launcher.host.answers["head"] = drops
    launcher.host.state = "TIMEOUT"
    launcher.fails(JobTimedOut)
    assert "disconnected" in launcher.names


def test_answers_of_a_dying_connection_do_not_end_a_session(launcher: Launcher) -> None:
    """Commands that end with ssh's own 255, or with nothing, before anybody knows that the connection is gone."""
    launcher.launched("attached")
    for kind in ("squeue", "sacct", "head"):
        launcher.host.answers[kind] = lambda: CommandResult(255, "", "Connection to login closed by remote host.")
    launcher.host.noticed()
    launcher.host.drops(reachable=False)
    launcher.host.is_tried(3)
    assert launcher.going
    launcher.host.answers.clear()
    launcher.host.reachable = True
    launcher.is_reconnected()
    launcher.goes_on_to_a_good_end()


@pytest.mark.parametrize("when", ["starting", "attached"])
@pytest.mark.parametrize("again", ["waits", "runs"])
def test_requeued_while_the_network_is_down(launcher: Launcher, when: str, again: str) -> None:
    launcher.launched(when)
    launcher.host.drops(reachable=False)
    launcher.host.is_tried(2)
    if again == "waits":
        launcher.host.requeued()
        launcher.routes.unreachable = {"n1"}
        launcher.host.reachable = True
        launcher.shown(events.Pending, 2)
        launcher.host.starts("n2")
    else:
        launcher.host.starts("n2")
        launcher.host.reachable = True
    assert launcher.shown(events.Running, 2).node == "n2"
    launcher.host.says("endpoint", port=4343)
    count = 2 if when == "attached" else 1
    ready = launcher.shown(events.Ready, count)
    assert (ready.node, ready.local_port) == ("n2", 50001)
    assert launcher.names.count("disconnected") == launcher.names.count("reconnected") == 1
    assert any("put back into the queue" in note for note in launcher.notes)
    assert launcher.host.count("scancel") == 0
    launcher.types("")
    launcher.well()


def test_a_drop_after_a_requeue_is_told_as_well(launcher: Launcher) -> None:
    launcher.launched("attached")
    launcher.routes.opened[-1].standing = False
    launcher.routes.unreachable = {"n1"}
    launcher.shown(events.Disconnected)
    launcher.host.requeued()
    launcher.shown(events.Pending, 2)
    launcher.host.drops()
    launcher.shown(events.Disconnected, 2)
    launcher.shown(events.Reconnected, 2)
    assert launcher.going
    launcher.types("d")
    launcher.well()
