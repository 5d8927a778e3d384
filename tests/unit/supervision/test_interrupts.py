"""Interrupts at every step of a launch, and readers of the output that have gone."""

from __future__ import annotations

import io
import json
import os
import queue
import re
import sys
import threading

import pytest

from notebook_launcher import launch
from notebook_launcher.cli.views.base import BaseView
from notebook_launcher.cli.views.json_view import JsonView
from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    Interrupted,
    PartitionRefused,
)
from notebook_launcher.core.interrupts import HungUp, Interrupt, Kind
from notebook_launcher.core.view import Typed
from tests.doubles import FakePrompts
from tests.unit.supervision.fake_login import PATIENCE
from tests.unit.supervision.launcher_doubles import PLAN, Launcher

BEFORE_DEFER = ["site"]
QUEUED = ["write", "sbatch", "submitted", "pending", "running", "opening", "reaching"]


def interrupted_at(launcher: Launcher, step: str, kind: Kind) -> None:
    """Launch, and let an interrupt arrive in the middle of a step."""
    launcher.hooks.at(step, lambda: launcher.interrupts.arrive(kind))
    launcher.launch()
    launcher.plays_to_the_end()


@pytest.mark.parametrize(("kind", "error"), [("end", KeyboardInterrupt), ("leave", HungUp)])
@pytest.mark.parametrize("step", BEFORE_DEFER)
def test_an_interrupt_while_nothing_is_at_stake_is_raised(
    launcher: Launcher, step: str, kind: Kind, error: type[BaseException]
) -> None:
    interrupted_at(launcher, step, kind)
    launcher.fails(error)
    assert launcher.host.count("write") == launcher.host.count("sbatch") == launcher.host.count("scancel") == 0


def test_an_interrupt_before_the_files_are_written_queues_nothing(launcher: Launcher) -> None:
    launcher.interrupts.inbox.put(Interrupt("end"))
    launcher.launch()
    error = launcher.fails(Interrupted)
    assert error.why == "No job was started."
    assert launcher.host.count("write") == launcher.host.count("sbatch") == launcher.host.count("scancel") == 0
    assert launcher.host.count("rm") == 1
    assert launcher.names == []


@pytest.mark.parametrize("step", QUEUED)
def test_an_interrupt_before_it_is_ready_cancels_the_job(launcher: Launcher, step: str) -> None:
    interrupted_at(launcher, step, "end")
    error = launcher.fails(Interrupted)
    told = [event.text for event in launcher.view.events if isinstance(event, events.Ended)]
    over = r"Job 7 (has ended|was cancelled before it started)\."
    assert len(re.findall(over, f"{told} {error.what} {error.why}")) == 1
    assert launcher.host.commands("scancel") == ["scancel 7"]
    assert launcher.host.count("rm") == 0
    names = [name for name in launcher.names if name != "note"]
    assert names[0] == "submitted" and names[-2:] == ["stopping", "ended"]
    assert "ready" not in names


@pytest.mark.parametrize("step", ["opening", "reaching"])
def test_an_interrupt_does_not_wait_for_the_way(launcher: Launcher, step: str) -> None:
    """A way that hangs (a node that does not answer, a question for a second factor) is left alone."""
    free = launcher.blocks(step)
    launcher.launch()
    launcher.shown(events.Pending)
    launcher.host.starts()
    launcher.host.says("endpoint", port=4242)
    launcher.shown(events.Running)
    launcher.interrupts.arrive("end")
    launcher.shown(events.Ended)
    assert not free.is_set()
    launcher.fails(Interrupted)  # and a tunnel that comes about afterwards is closed
    assert launcher.host.count("scancel") == 1


def test_ctrl_c_while_held_is_a_good_end(launcher: Launcher) -> None:
    interrupted_at(launcher, "ready", "end")
    launcher.well()
    assert launcher.names == ["submitted", "pending", "running", "ready", "stopping", "ended"]
    assert launcher.host.commands("scancel") == ["scancel 7"]


def test_an_interrupt_during_a_refused_submission(launcher: Launcher) -> None:
    launcher.host.answers["sbatch"] = lambda: CommandResult(1, "", "sbatch: error: invalid partition specified: x\n")
    interrupted_at(launcher, "sbatch", "end")
    launcher.fails(PartitionRefused)
    assert launcher.host.count("rm") == 1
    assert launcher.host.count("scancel") == 0


@pytest.mark.parametrize("step", [*QUEUED, "ready"])
def test_a_closed_terminal_leaves_the_job(launcher: Launcher, step: str) -> None:
    interrupted_at(launcher, step, "leave")
    launcher.fails(HungUp)
    assert launcher.host.count("scancel") == launcher.host.count("rm") == 0
    assert "stopping" not in launcher.names


class BrokenView(BaseView):
    """Whose reader has gone (``launch-notebook --json | head -1``)."""

    def _show(self, event: events.Event) -> None:
        raise BrokenPipeError


def test_a_broken_pipe_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())  # the view replaces it
    view = BrokenView()
    view.interrupts.defer()
    view.show(events.Note("x"))
    view.show(events.Note("y"))
    assert view.interrupts.inbox.get_nowait() == Interrupt("end", at_once=True)
    assert view.interrupts.inbox.empty(), "told once"


def test_a_broken_pipe_while_nothing_is_at_stake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())  # the view replaces it
    with pytest.raises(KeyboardInterrupt):
        BrokenView().show(events.Note("x"))


def test_a_session_whose_reader_has_gone_is_ended(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    class Pipe(io.StringIO):
        def write(self, text: str) -> int:
            if '"event": "ready"' in text:
                raise BrokenPipeError
            return super().write(text)

    pipe = Pipe()
    monkeypatch.setattr(sys, "stdout", pipe)
    view = JsonView()
    view.listening = True  # nobody types
    launcher.host.state = "RUNNING"
    launcher.view = view  # type: ignore[assignment]
    launcher.interrupts = view.interrupts
    done: list[BaseException | None] = []

    def play() -> None:
        try:
            launch.launch(PLAN, view, FakePrompts(asks=False), view.interrupts)
        except BaseException as error:
            done.append(error)
        else:
            done.append(None)

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    launcher.host.says("started", node_names=["n1"])
    launcher.host.says("endpoint", port=4242)
    thread.join(PATIENCE)
    assert done == [None]
    assert launcher.host.commands("scancel") == ["scancel 7"]
    names = [json.loads(line)["event"] for line in pipe.getvalue().splitlines()]
    assert names[0] == "submitted" and "ready" not in names and "ended" not in names


def test_the_keyboard_goes_to_whoever_listens_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """As to the session, after an image was made in a job of its own."""
    read, write = os.pipe()
    with os.fdopen(read) as keyboard, os.fdopen(write, "w", buffering=1) as typed:
        monkeypatch.setattr(sys, "stdin", keyboard)
        view, inboxes = JsonView(), [queue.SimpleQueue[object](), queue.SimpleQueue[object]()]
        for number, inbox in enumerate(inboxes):
            view.listen(inbox)
            typed.write(f"{number}\n")
            assert inbox.get(timeout=PATIENCE) == Typed(str(number))
