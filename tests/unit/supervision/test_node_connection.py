"""Only the connection to the compute node breaks, or cannot be made."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    AuthenticationFailed,
    JobTimedOut,
    JupyterSilent,
    NodeUnreachable,
)
from notebook_launcher.supervision import jupyter
from notebook_launcher.tunnel import node_connection
from tests.doubles import wait_until
from tests.unit.supervision.fake_login import PATIENCE
from tests.unit.supervision.launcher_doubles import DOUBLED, LOST, Launcher, failing, nothing


def test_the_way_to_the_node_breaks_while_attached(launcher: Launcher) -> None:
    launcher.launch()
    launcher.attach()
    launcher.routes.opened[0].standing = False
    assert "compute node" in launcher.shown(events.Disconnected).reason
    launcher.is_reconnected()
    assert launcher.routes.opened[0].closed and launcher.routes.opened[1].alive
    assert launcher.host.attempts == 0, "the login node is well"
    assert launcher.routes.ending_calls == [True, False], "by then another launcher may need the calls"
    launcher.goes_on_to_a_good_end()


@pytest.mark.parametrize(
    "refusals",
    [
        [NodeUnreachable("No route to n1 was found.")] * 3,
        [NodeUnreachable("No route to n1 was found."), KeyError("a bug"), AuthenticationFailed("n1 lets nobody in.")],
    ],
    ids=["unreachable", "various"],
)
def test_a_way_that_fails_is_tried_again(launcher: Launcher, refusals: list[Exception]) -> None:
    launcher.launch()
    launcher.attach()
    launcher.routes.refusals = refusals
    launcher.routes.opened[0].standing = False
    launcher.is_reconnected()
    assert len(launcher.routes.opened) == 5
    assert launcher.host.attempts == 0
    launcher.goes_on_to_a_good_end()


def test_jupyter_does_not_answer_over_the_new_way_at_once(launcher: Launcher) -> None:
    launcher.launch()
    launcher.attach()
    launcher.hooks.at("reaching", failing(JupyterSilent("It does not answer.")))
    launcher.routes.opened[0].standing = False
    launcher.is_reconnected()
    assert len(launcher.routes.opened) == 3
    launcher.goes_on_to_a_good_end()


def test_a_way_that_breaks_at_once_every_time_is_no_reason_for_haste(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    class Noting(node_connection.NodeConnection):
        def __init__(self, inbox: Any, find: Any, pause: float = 0.0) -> None:
            pauses.append(pause)
            super().__init__(inbox, find, pause)

    monkeypatch.setattr(jupyter, "NodeConnection", Noting)
    launcher.set_timing(remake_pause=0.01, longest_reconnect_pause=8.0)
    launcher.launch()
    launcher.attach()
    launcher.routes.unreachable = {"n1"}
    launcher.routes.opened[0].standing = False
    wait_until(lambda: len(pauses) >= 5, PATIENCE)
    assert pauses[:5] == [0.0, *DOUBLED]
    launcher.types("d")
    launcher.well()


def test_a_way_that_takes_long_is_named(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[node_connection.NodeConnection] = []

    class Kept(node_connection.NodeConnection):
        def __init__(self, *arguments: Any) -> None:
            made.append(self)
            super().__init__(*arguments)

    monkeypatch.setattr(jupyter, "NodeConnection", Kept)
    launcher.launch()
    launcher.attach()
    current, earlier = made[-1], node_connection.NodeConnection(queue.SimpleQueue(), failing(LOST), 60.0)
    earlier.close()
    for name, by in (("reverse", earlier), ("step", current)):
        launcher.interrupts.inbox.put(node_connection.RouteSlow(by, name))
    launcher.noted("Still trying to reach n1 with the route “step”.")
    assert not any("reverse" in note for note in launcher.notes), "that is another connection's"
    launcher.goes_on_to_a_good_end()


def test_only_a_way_that_takes_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_connection, "SLOW_AFTER", 0.05)
    inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
    free = threading.Event()

    def find(trying: Callable[[str], None]) -> tuple[str, Any]:
        for name in ("node-ssh", "step", ""):
            trying(name)
            assert name != "step" or free.wait(PATIENCE)
        return "step", None

    made = node_connection.NodeConnection(inbox, find, 0.0)
    told = inbox.get(timeout=PATIENCE)
    while isinstance(told, node_connection.RouteSlow) and told.name == "node-ssh":  # on a busy machine
        told = inbox.get(timeout=PATIENCE)
    assert told == node_connection.RouteSlow(made, "step")
    free.set()
    assert inbox.get(timeout=PATIENCE) == node_connection.RouteOpened(made)
    with pytest.raises(queue.Empty):
        inbox.get(timeout=0.2)


def test_a_way_that_fails_because_the_connection_is_gone(launcher: Launcher) -> None:
    launcher.launch()
    launcher.attach()
    launcher.routes.refusals = [LOST]
    launcher.routes.opened[0].standing = False
    launcher.is_reconnected()
    assert launcher.host.attempts == 1
    launcher.goes_on_to_a_good_end()


def test_the_first_way_fails_because_the_connection_is_gone(launcher: Launcher) -> None:
    """Before anybody else knows it. A place in the queue may have taken a day."""
    launcher.hooks.at("opening", launcher.host.drops)
    launcher.launch()
    launcher.shown(events.Pending)
    launcher.host.says("started", node_names=["n1"])
    launcher.host.state = "RUNNING"
    launcher.goes_on_to_a_good_end()
    assert launcher.names.count("disconnected") == launcher.names.count("reconnected") == 1


def test_the_job_ends_while_the_first_way_is_opened(launcher: Launcher) -> None:
    """Its end is told, and not that its node cannot be reached any more."""
    free = launcher.blocks("opening", failing(NodeUnreachable("No route to n1 was found.")))
    launcher.launch()
    launcher.shown(events.Pending)
    launcher.host.starts()
    launcher.host.answers["squeue"] = lambda: CommandResult(1, "", "Socket timed out")
    launcher.host.noticed()
    launcher.host.state = "TIMEOUT"
    del launcher.host.answers["squeue"]
    free.set()
    launcher.fails(JobTimedOut)


@pytest.mark.parametrize("how", ["succeeds", "fails"])
@pytest.mark.parametrize("step", ["opening", "reaching"])
def test_what_becomes_of_a_way_over_an_older_connection_is_of_no_interest(
    launcher: Launcher, step: str, how: str
) -> None:
    free = launcher.blocks(step, failing(NodeUnreachable("No route to n1.")) if how == "fails" else nothing)
    launcher.launch()
    launcher.shown(events.Pending)
    launcher.host.starts()
    if step == "reaching":
        launcher.host.says("endpoint", port=4242)
    wait_until(lambda: step not in launcher.hooks.waiting, PATIENCE)
    late = list(launcher.routes.threads)
    launcher.host.drops()
    launcher.shown(events.Disconnected)
    launcher.host.says("endpoint", port=4242)
    launcher.shown(events.Ready)
    free.set()
    for thread in late:
        thread.join(PATIENCE)
    launcher.types("what now")  # answered only after all that is before it in the inbox
    launcher.shown(events.Note)
    assert launcher.routes.opened[0].closed and launcher.routes.opened[1].alive
    launcher.is_reconnected()
    launcher.goes_on_to_a_good_end()
