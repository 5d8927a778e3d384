"""What the steps of a running script use: asked for now and then, counted between two answers, and shown in words."""

from __future__ import annotations

import queue
from types import SimpleNamespace
from typing import Any, cast

import pytest

from notebook_launcher.cli.views.batch import step_text
from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import HostCommandFailed
from notebook_launcher.schedulers.base import JobRef, Scheduler
from notebook_launcher.schedulers.lsf.commands import Lsf
from notebook_launcher.schedulers.slurm.commands import Slurm
from notebook_launcher.supervision import steps
from notebook_launcher.supervision.steps import StepsReported, StepUseWatch
from tests.doubles import RecordingView

BATCH = "7.batch|1|node1|00:01.000|00:01.000|node1|0|2048K|node1|0|\n"
STEP = "7.0|4|node[1-2]|{mean}|{least}|node2|3|102400K|node1|1|\n"


class Watched:
    """A watch, on a host that answers what it is told, at times that it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, scheduler: Scheduler | None = None) -> None:
        self.now, self.answer, self.asked = 0.0, "", 0
        self.view, self.inbox = RecordingView(), queue.SimpleQueue[object]()
        monkeypatch.setattr(steps, "time", SimpleNamespace(monotonic=lambda: self.now))
        context = SimpleNamespace(host=self, scheduler=scheduler or Slurm(), view=self.view)
        session = SimpleNamespace(id="s", job=JobRef("7"))
        self.watch = StepUseWatch(cast(Any, context), cast(Any, session), self.inbox)

    def run(self, command: list[str], **_: object) -> CommandResult:
        self.asked += 1
        if not self.answer:
            raise HostCommandFailed("It did not answer.")
        return CommandResult(0, self.answer)

    def passes(self, seconds: float, answer: str) -> None:
        self.now, self.answer = self.now + seconds, answer
        self.watch.check()
        self.handle()

    def handle(self) -> None:
        try:
            item = cast(StepsReported, self.inbox.get(timeout=0.5 if self.asked else 0.05))
        except queue.Empty:
            return
        self.watch.handle(StepsReported(item.by, item.samples, self.now))

    @property
    def shown(self) -> list[str]:
        found = [event for event in self.view.events if isinstance(event, events.StepsUsed)]
        return [step_text(step) for step in found[-1].steps] if found else []


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def test_use_is_counted_between_two_looks_and_who_lags_is_named(watched: Watched) -> None:
    watched.passes(100, "never asked before it runs")
    assert watched.asked == 0
    watched.watch.job_started()
    watched.passes(29, "too early")
    assert watched.asked == 0
    watched.passes(1, BATCH + STEP.format(mean="00:10.000", least="00:10.000"))
    assert watched.asked == 1 and watched.shown == []
    watched.passes(30, BATCH + STEP.format(mean="00:37.000", least="00:11.000"))
    assert watched.shown == [
        "Step 0, 4 tasks on node[1-2]: 0.9 cores each, 100 MiB at most (task 1 on node1). Task 3 on node2 has computed "
        "much less than the others: 30 % of the mean"
    ]
    watched.passes(599, "then every ten minutes")
    assert watched.asked == 2


def test_the_user_sees_the_script_itself_too(watched: Watched) -> None:
    assert watched.watch.ask() == "The job has not started yet."
    watched.watch.job_started()
    watched.answer = BATCH + STEP.format(mean="00:10.000", least="00:10.000")
    assert watched.watch.ask() == ""
    watched.handle()
    assert watched.shown == [
        "The script itself, 1 task on node1: 0:01 of CPU time, 2 MiB at most",
        "Step 0, 4 tasks on node[1-2]: 0:10 of CPU time each, 100 MiB at most (task 1 on node1)",
    ]
    watched.now += 30
    watched.watch.check()
    assert watched.watch.ask() == "", "while an answer is awaited that nobody asked for"
    watched.handle()
    assert watched.asked == 2 and len(watched.view.events) == 2
    watched.watch.job_requeued()
    assert watched.watch.ask() != ""


def test_nothing_is_shown_of_single_tasks_or_without_an_answer(watched: Watched) -> None:
    watched.watch.job_started()
    for _ in range(3):
        watched.passes(30, BATCH)
    assert watched.view.events == []
    watched.answer = ""
    watched.watch.ask()
    watched.handle()
    (note,) = watched.view.events
    assert note == events.Note("The scheduler has not reported on the job's steps yet.")


def test_a_scheduler_that_does_not_tell_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, Lsf())
    watched.watch.job_started()
    watched.passes(60, BATCH)
    assert not watched.watch.is_available and watched.asked == 0
    assert watched.watch.ask().startswith("This scheduler does not report")
