"""A job that goes back into the queue."""

from __future__ import annotations

import threading

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    Interrupted,
    NodeUnreachable,
)
from tests.doubles import wait_until
from tests.unit.supervision.fake_login import PATIENCE
from tests.unit.supervision.launcher_doubles import Launcher, failing, nothing


def test_requeued_while_it_had_not_said_a_word(launcher: Launcher) -> None:
    launcher.host.state = "RUNNING"
    launcher.launch()
    launcher.shown(events.Running)
    launcher.host.requeued()
    waiting = launcher.shown(events.Pending)
    assert waiting.reason == "BeginTime"
    launcher.host.starts("n2")
    launcher.host.says("endpoint", port=4242)
    assert launcher.shown(events.Ready).node == "n2"
    launcher.types("")
    launcher.well()
    assert launcher.names == ["submitted", "running", "pending", "running", "ready", "stopping", "ended"]


def test_requeued_and_started_on_the_same_node(launcher: Launcher) -> None:
    """What was shown last is that it waits: so that it runs is said again."""
    launcher.host.state, launcher.host.node = "RUNNING", "n1"
    launcher.launch()
    launcher.shown(events.Running)
    launcher.host.requeued()
    launcher.shown(events.Pending)
    launcher.host.starts("n1")
    launcher.host.says("endpoint", port=4242)
    launcher.shown(events.Ready)
    launcher.types("d")
    launcher.well()
    assert launcher.names == ["submitted", "running", "pending", "running", "ready", "detached"]


@pytest.mark.parametrize("how", ["succeeds", "fails"])
@pytest.mark.parametrize("step", ["opening", "reaching"])
def test_requeued_while_starting(launcher: Launcher, step: str, how: str) -> None:
    """What becomes of the way to the first node, late, does not concern the second run."""
    free = launcher.blocks(step, failing(NodeUnreachable("No route to n1.")) if how == "fails" else nothing)
    launcher.launch()
    launcher.shown(events.Pending)
    launcher.host.starts("n1")
    if step == "reaching":
        launcher.host.says("endpoint", port=4242)
        wait_until(lambda: len(launcher.routes.threads) >= 2, PATIENCE)
    launcher.host.requeued()
    launcher.shown(events.Pending, 2)
    assert launcher.notes == ["Job 7 was put back into the queue."]
    launcher.host.starts("n2")
    assert launcher.shown(events.Running, 2).node == "n2"
    late = launcher.routes.threads[:2] if step == "reaching" else launcher.routes.threads[:1]
    free.set()
    for thread in late:
        thread.join(PATIENCE)
    launcher.types("what now")  # answered only after all that is before it in the inbox
    launcher.shown(events.Note, 2)
    assert launcher.going and "ready" not in launcher.names
    assert launcher.routes.opened[0].closed and not launcher.routes.opened[1].closed
    launcher.host.says("endpoint", port=4343)
    ready = launcher.shown(events.Ready)
    assert (ready.node, ready.local_port) == ("n2", 50001)
    launcher.types("")
    launcher.well()
    assert launcher.names.count("ready") == 1


def test_requeued_and_started_again_before_the_scheduler_was_asked(launcher: Launcher) -> None:
    launcher.launch()
    launcher.shown(events.Pending)
    launcher.host.starts("n1")
    launcher.host.starts("n2")
    assert launcher.shown(events.Running, 2).node == "n2"
    assert launcher.notes == ["Job 7 was put back into the queue, and has started again."]
    launcher.host.says("endpoint", port=4242)
    assert launcher.shown(events.Ready).node == "n2"
    launcher.types("")
    launcher.well()


@pytest.mark.parametrize("last_word", [True, False], ids=["with a last word", "without"])
def test_requeued_while_attached(launcher: Launcher, last_word: bool) -> None:
    """By a failed node (no last word) or by an operator (the job script is sent a signal)."""
    launcher.launch()
    first = launcher.attach()
    if last_word:
        launcher.host.says("exit", cause="stopped", message="It was sent SIGTERM.")
    launcher.host.requeued()
    launcher.shown(events.Pending, 2)
    launcher.host.starts("n2")
    launcher.host.says("endpoint", port=4343)
    second = launcher.shown(events.Ready, 2)
    assert (first.node, first.local_port) == ("n1", 50001)
    assert (second.node, second.local_port) == ("n2", 50001)
    assert first.url == second.url, "an open tab finds everything again"
    assert launcher.routes.opened[0].closed
    assert launcher.notes == ["Job 7 was put back into the queue."]
    assert launcher.host.count("scancel") == 0
    launcher.types("")
    launcher.well()
    assert launcher.names[-3:] == ["ready", "stopping", "ended"]
    assert launcher.host.count("scancel") == 1


def test_ctrl_c_after_a_requeue_cancels_the_job(launcher: Launcher) -> None:
    launcher.launch()
    launcher.attach()
    launcher.host.requeued()
    launcher.shown(events.Pending, 2)
    launcher.interrupts.arrive("end")
    launcher.fails(Interrupted)
    assert launcher.host.count("scancel") == 1


def test_an_old_answer_of_the_scheduler_is_not_a_requeue(launcher: Launcher) -> None:
    """squeue is asked while the job waits, and its answer comes in after the job's own word that it has started."""
    asked, answer_now = threading.Event(), threading.Event()
    launcher.blocked.append(answer_now)

    def slow() -> CommandResult:
        row = launcher.host.row()
        del launcher.host.answers["squeue"]
        asked.set()
        assert answer_now.wait(2 * PATIENCE)
        return row

    launcher.host.answers["squeue"] = slow
    launcher.launch()
    assert asked.wait(PATIENCE)
    launcher.host.says("started", node_names=["n1"])
    launcher.shown(events.Running)
    launcher.host.state = "RUNNING"
    answer_now.set()
    launcher.host.noticed()
    launcher.host.says("endpoint", port=4242)
    launcher.shown(events.Ready, patience=1.0)
    assert launcher.notes == []
