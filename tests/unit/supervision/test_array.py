"""A submitted job array, step by step: all of its tasks are followed to their end, whatever that is."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

import pytest

from notebook_launcher import submit
from notebook_launcher.cli.views.batch import task_text, tasks_parts
from notebook_launcher.core import events
from notebook_launcher.core.errors import (
    Interrupted,
    JobCancelled,
    JobTimedOut,
    LauncherError,
    ScriptFailed,
    UsageError,
)
from notebook_launcher.core.request import Request
from notebook_launcher.core.sbatch_directives import Directives
from notebook_launcher.planning.plan import Plan
from notebook_launcher.schedulers.base import AccountingRecord, JobAccounts, JobRef, State
from notebook_launcher.scripts.prepare import PreparedScript
from notebook_launcher.supervision import array
from notebook_launcher.supervision.array_tasks import named
from notebook_launcher.usage import bill_command, report_command
from notebook_launcher.usage.array_report import outcomes
from tests.doubles import wait_until
from tests.unit.supervision import launcher_doubles
from tests.unit.supervision.launcher_doubles import PLAN, Launcher

SCRIPT = PreparedScript("sweep.sh", b"#!/bin/sh\n", Directives({"array": "1-2"}))
ARRAY = dataclasses.replace(PLAN, request=Request({"time": "2:00:00", "array": "1-2"}))


@pytest.fixture(autouse=True)
def states(monkeypatch: pytest.MonkeyPatch) -> dict[int, State]:
    """What the accounting says of tasks; a report is not made."""
    known: dict[int, State] = {}

    def show(_context: object, _session: object, exits: Mapping[int, Mapping[str, object]] | None = None) -> object:
        accounts = {
            number: JobAccounts(AccountingRecord(JobRef("7"), state), {"ExitCode": "1:0"})
            for number, state in known.items()
        }
        return outcomes(exits or {}, accounts)

    monkeypatch.setattr(array, "show_array_report", show)
    return known


def begin(launcher: Launcher, plan: Plan = ARRAY) -> None:
    def play() -> None:
        assert submit.submit_script(plan, SCRIPT, launcher.view, launcher.prompts, launcher.interrupts) == 0

    launcher._begin(play)
    launcher.shown(events.Pending)


def running(launcher: Launcher, plan: Plan = ARRAY) -> None:
    begin(launcher, plan)
    launcher.host.starts()
    started(launcher, 1)


def started(launcher: Launcher, number: int) -> None:
    wait_until(lambda: launcher.host.task_watches, 30, "the tasks are followed")
    launcher.host.tasks_say(f"started {number} " + json.dumps({"node": "n1", "started": "2026-11-21T12:00:00+0100"}))


def ends(launcher: Launcher, number: int, cause: str = "finished", code: int = 0) -> None:
    data = {"node": "n1", "cause": cause, "exit_code": code, "ended": "2026-11-21T12:01:30+0100"}
    launcher.host.tasks_say(f"exit {number} " + json.dumps(data))


def all_ended(launcher: Launcher) -> None:
    launcher.host.state = ""
    launcher.host.says("exit", cause="finished", exit_code=0)


def second_task_ends(
    launcher: Launcher, states: dict[int, State], end: tuple[str, int] | None, state: State | None
) -> None:
    """End the array: its second task as it reports itself (cause and exit code), and as the scheduler does."""
    if end:
        started(launcher, 2)
        ends(launcher, 2, *end)
    if state:
        states[2] = state
    all_ended(launcher)


def test_all_tasks_are_followed_to_their_end(launcher: Launcher) -> None:
    running(launcher)
    launcher.host.tasks_say("log 1 epoch 1", "log 1 12:00:00 notebook-launcher: ours", "log 1e a warning", ".", "odd")
    ends(launcher, 1)
    launcher.shown(events.TaskEnded)
    launcher.host.state = "PENDING"  # the other one waits, which is no requeue
    launcher.host.noticed()
    started(launcher, 2)
    launcher.host.state = "RUNNING"
    ends(launcher, 2)
    all_ended(launcher)
    launcher.well()
    printed = [event for event in launcher.view.events if isinstance(event, events.LogLine)]
    assert [(event.task, event.text) for event in printed] == [(1, "epoch 1"), (1, "a warning")]
    ended = launcher.shown(events.TaskEnded)
    assert (ended.task, ended.cause, ended.exit_code, ended.seconds) == (1, "finished", 0, 90.0)
    last = [event for event in launcher.view.events if isinstance(event, events.TasksProgress)][-1]
    assert (last.tasks, last.waiting, last.running, last.finished, last.failed) == (2, 0, 0, 2, 0)
    assert launcher.shown(events.ScriptFinished).tasks == 2
    assert not any("put back" in note for note in launcher.notes) and launcher.host.count("scancel") == 0
    assert launcher.host.task_watches[-1][0] == ["once", "1:2", "1e:1"]  # what was shown is not read again


def test_a_cancelled_task_does_not_count_as_failed_while_others_run(launcher: Launcher) -> None:
    running(launcher)
    started(launcher, 2)
    ends(launcher, 1, "stopped", 143)
    launcher.shown(events.TaskEnded)
    last = [event for event in launcher.view.events if isinstance(event, events.TasksProgress)][-1]
    assert tasks_parts(last) == ["1 of 2 tasks done", "1 cancelled", "1 running"]
    launcher.presses_ctrl_c(1)
    launcher.fails(Interrupted)


@pytest.mark.parametrize(
    ("walltime", "text"),
    [
        ("2:00:00", "Task 1 on n1 was cancelled after 1:30."),
        ("1:30", "Task 1 on n1 reached its walltime after 1:30."),
    ],
)
def test_a_task_that_was_stopped_is_shown_as_it_counts(launcher: Launcher, walltime: str, text: str) -> None:
    running(launcher, dataclasses.replace(ARRAY, request=Request({"time": walltime, "array": "1-2"})))
    ends(launcher, 1, "stopped", 143)
    assert task_text(launcher.shown(events.TaskEnded)) == text
    launcher.presses_ctrl_c(1)
    launcher.fails(Interrupted)


@pytest.mark.parametrize(
    ("second", "state", "error", "text"),
    [
        (("script-failed", 3), None, ScriptFailed, "1 of 2 tasks of sweep.sh did not finish: task 2 (exit code 3)."),
        (("stopped", 143), State.TIMEOUT, JobTimedOut, "task 2 (walltime reached)."),
        (("stopped", 143), None, JobCancelled, "task 2 (cancelled)."),
        (None, None, JobCancelled, "task 2 (never ran)."),
        (None, State.NODE_FAIL, ScriptFailed, "task 2 (its node failed)."),
    ],
)
def test_a_task_that_did_not_finish_is_named(
    launcher: Launcher,
    states: dict[int, State],
    second: tuple[str, int] | None,
    state: State | None,
    error: type[LauncherError],
    text: str,
) -> None:
    running(launcher)
    ends(launcher, 1)
    second_task_ends(launcher, states, second, state)
    assert text in launcher.fails(error).what
    assert launcher.host.count("scancel") == 0 and "script_finished" not in launcher.names
    assert "launch-notebook logs" in launcher.notes[-1] and f"{launcher.session_id}/work ." in launcher.notes[-1]


@pytest.mark.parametrize(
    ("second", "state", "hint"),
    [
        (("script-failed", 3), None, "the log of task 2: launch-notebook logs --cluster uni 7_2"),
        (("stopped", 143), State.TIMEOUT, "what task 2 used: launch-notebook report --cluster uni 7_2"),
        (None, None, "what task 1 used: launch-notebook report --cluster uni 7_1"),
    ],
)
def test_the_hint_is_about_a_task_that_failed_before_one_that_was_cancelled(
    launcher: Launcher, states: dict[int, State], second: tuple[str, int] | None, state: State | None, hint: str
) -> None:
    running(launcher)
    ends(launcher, 1, "stopped", 143)
    second_task_ends(launcher, states, second, state)
    error = launcher.over()
    assert isinstance(error, LauncherError) and error.hint == hint


def test_ctrl_c_cancels_all_tasks(launcher: Launcher) -> None:
    running(launcher)
    ends(launcher, 1)
    launcher.shown(events.TaskEnded)
    launcher.presses_ctrl_c(1)
    assert launcher.fails(Interrupted).what == "Interrupted: 1 of 2 tasks had finished."
    assert launcher.host.count("scancel") == 1


def test_detached_it_goes_on(launcher: Launcher) -> None:
    running(launcher)
    launcher.shown(events.TaskStarted)
    launcher.types("d")
    launcher.well()
    assert launcher.host.count("scancel") == 0 and launcher.names[-1] == "detached"


@pytest.mark.parametrize("command", ["stop", "bill"])
def test_the_usage_report_of_an_array_is_that_on_all_its_tasks(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(report_command, "show_array_report", lambda _context, session: seen.append(session.id))
    monkeypatch.setitem(launcher_doubles.RECORD, "flags", {"array": "1-2"})
    if command == "stop":
        launcher.stop()
        launcher.well()
        assert seen == [launcher_doubles.RECORD["id"]] and launcher.host.count("scancel") == 1
        return
    launcher.host.state = ""
    launcher._old_session()
    ended = {"started.json": '{"started":"2026-11-21T12:00:00Z"}', "exit.json": '{"ended":"2026-11-21T12:01:00Z"}'}
    launcher.host.files |= ended
    name = launcher_doubles.RECORD["id"]
    launcher._begin(
        lambda: bill_command.bill(
            launcher_doubles.TARGET, str(name), launcher.view, launcher.prompts, launcher.interrupts
        )
    )
    assert "launch-notebook report" in launcher.fails(UsageError).hint


def test_cancelled_before_a_task_ran_it_ends_as_any_job(launcher: Launcher) -> None:
    begin(launcher)
    launcher.host.state = "CANCELLED"
    launcher.fails(JobCancelled)


def test_after_a_broken_connection_nothing_is_shown_twice(launcher: Launcher) -> None:
    running(launcher)
    launcher.host.tasks_say("log 1 epoch 1")
    launcher.shown(events.LogLine)
    launcher.host.drops()
    launcher.shown(events.Reconnected)
    wait_until(lambda: len(launcher.host.task_watches) > 1, 30, "the tasks are followed again")
    assert launcher.host.task_watches[-1][0] == ["follow", "1:1"]
    ends(launcher, 1)
    launcher.shown(events.TaskEnded)
    assert launcher.names.count("task_started") == launcher.names.count("log") == 1
    launcher.presses_ctrl_c(1)
    launcher.fails(Interrupted)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([3], "task 3"), ([1, 2, 3, 7], "tasks 1-3, 7"), (range(0, 40, 2), "tasks 0, 2, 4, 6, 8, 10, 12, 14 and 12 more")],
)
def test_tasks_are_named_in_few_words(numbers: list[int], text: str) -> None:
    assert named(numbers) == text
