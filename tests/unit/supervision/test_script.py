"""A submitted script, step by step: followed to its end, whatever that is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import pytest

from notebook_launcher import submit
from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    Interrupted,
    JobTimedOut,
    LauncherError,
    OutOfMemory,
    ScriptFailed,
    UsageError,
)
from notebook_launcher.core.request import Request
from notebook_launcher.core.sbatch_directives import Directives
from notebook_launcher.scripts.prepare import PreparedScript
from notebook_launcher.supervision import script
from tests.unit.supervision.launcher_doubles import PLAN, Launcher

SCRIPT = PreparedScript("train.sh", b"#!/bin/sh\n", Directives({"time": "2:00:00"}), {"train.py": b"x = 1\n"})


class Printed:
    """In place of the lines that a script prints: notes for which files, and what was asked of it."""

    def __init__(self, _context: object, path: str, noise: object) -> None:
        self.path, self.calls = path, list[str]()
        self.all.append(self)

    all: ClassVar[list[Printed]] = []

    def job_started(self, *, goes_on: bool) -> None:
        self.calls.append("goes on" if goes_on else "begins")

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: self.calls.append(name)


@pytest.fixture(autouse=True)
def reports(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace what reads the log and the accounting, and return the sessions of which there was a report."""
    seen: list[str] = []
    monkeypatch.setattr(Printed, "all", [])
    monkeypatch.setattr(script, "JobOutput", Printed)
    monkeypatch.setattr(script, "show_report", lambda _context, session: seen.append(session.id))
    return seen


def begin(launcher: Launcher, *, detach: bool = False, chdir: str | None = None) -> None:
    flags = {**PLAN.request.flags, **({"chdir": chdir} if chdir else {})}

    def play() -> None:
        plan = dataclasses.replace(PLAN, request=Request(flags))
        args = (plan, SCRIPT, launcher.view, launcher.prompts, launcher.interrupts)
        assert submit.submit_script(*args, detach=detach) == 0

    launcher._begin(play)


def running(launcher: Launcher) -> None:
    begin(launcher)
    launcher.shown(events.Pending)
    launcher.host.starts()
    launcher.shown(events.Running)


def test_a_script_is_followed_to_its_end(launcher: Launcher, reports: list[str]) -> None:
    running(launcher)
    launcher.host.state = ""
    launcher.host.says("exit", cause="finished", exit_code=0, message="The script train.sh ended with exit code 0.")
    launcher.well()
    assert launcher.shown(events.Running).program == "script"
    ended = launcher.shown(events.ScriptFinished)
    assert (ended.script, ended.folder.rpartition("/")[2]) == ("train.sh", "work")
    assert f" login:{ended.folder} ." in ended.copy_command
    assert launcher.tunnels == [] and launcher.host.count("scancel") == 0
    (printed,) = Printed.all
    assert printed.path.endswith("/job.log") and reports == [launcher.session_id]
    assert printed.calls[0] == "goes on" and printed.calls[-2:] == ["show_rest", "close"]


def test_a_script_that_requeues_its_job_is_followed_on(launcher: Launcher) -> None:
    """`scontrol requeue` as its last command: it ends with exit code 0 before the scheduler has ended the job."""
    running(launcher)
    launcher.host.state = "PENDING"
    launcher.host.says("exit", cause="finished", exit_code=0, message="The script train.sh ended with exit code 0.")
    launcher.noted("was put back into the queue")
    launcher.host.starts()
    launcher.shown(events.Running, 2)
    launcher.host.state = ""
    launcher.host.says("exit", cause="finished", exit_code=0, message="The script train.sh ended with exit code 0.")
    launcher.well()
    assert launcher.names.count("script_finished") == 1
    (printed,) = Printed.all  # what was shown is not shown again
    assert [call for call in printed.calls if call in ("goes on", "job_requeued")] == [
        "goes on",
        "job_requeued",
        "goes on",
    ]


@pytest.mark.parametrize(("new_log", "calls"), [(True, ["begins"]), (False, ["goes on"])])
def test_a_log_that_was_begun_anew_is_read_from_its_first_line(
    launcher: Launcher, new_log: bool, calls: list[str]
) -> None:
    begin(launcher)
    launcher.shown(events.Pending)
    launcher.host.starts(new_log=new_log)
    launcher.shown(events.Running)
    launcher.presses_ctrl_c(1)
    launcher.fails(Interrupted)
    (printed,) = Printed.all
    assert [call for call in printed.calls if call in ("begins", "goes on")] == calls


@pytest.mark.parametrize(
    ("cause", "status", "error"),
    [
        (
            {"cause": "script-failed", "exit_code": 3, "message": "The script ended with exit code 3."},
            "FAILED",
            ScriptFailed,
        ),
        ({"cause": "script-failed", "exit_code": 137, "message": "It was killed."}, "OUT_OF_MEMORY", OutOfMemory),
        ({"cause": "stopped", "message": "sent SIGTERM"}, "TIMEOUT", JobTimedOut),
    ],
)
def test_how_it_failed_is_told(
    launcher: Launcher, reports: list[str], cause: dict[str, object], status: str, error: type[LauncherError]
) -> None:
    running(launcher)
    launcher.host.state = status
    launcher.host.says("exit", **cause)
    launcher.fails(error)
    assert launcher.host.count("scancel") == 0 and "detached" not in launcher.names
    assert reports == [launcher.session_id]
    where, copy, logs = launcher.notes[-1].split("\n")
    assert f"{launcher.session_id}/work" in where
    assert f"{launcher.session_id}/work ." in copy and logs.endswith(f" {launcher.short_name}")


def test_a_relative_folder_is_in_the_home_directory_as_for_sbatch(launcher: Launcher) -> None:
    begin(launcher, chdir="runs")
    launcher.shown(events.Pending)
    assert "--chdir=/home/alice/runs" in launcher.host.commands("sbatch")[0]


@pytest.mark.parametrize(("folder", "is_refused"), [("runs", True), ("/local/runs", False)])
def test_a_folder_that_is_missing(launcher: Launcher, folder: str, is_refused: bool) -> None:
    """Only the home directory is surely the same one on the nodes."""
    launcher.host.answers["test"] = lambda: CommandResult(1)
    begin(launcher, chdir=folder)
    if is_refused:
        assert "There is no folder /home/alice/runs on" in launcher.fails(UsageError).what
        assert launcher.host.count("sbatch") == 0
    else:
        launcher.shown(events.Pending)
        assert any("There is no folder /local/runs" in note for note in launcher.notes)


def test_ctrl_c_cancels_the_job_and_d_leaves_it(launcher: Launcher) -> None:
    running(launcher)
    launcher.presses_ctrl_c(1)
    launcher.fails(Interrupted)
    assert launcher.host.count("scancel") == 1


def test_detached_it_goes_on(launcher: Launcher) -> None:
    begin(launcher, detach=True)
    launcher.well()
    assert launcher.shown(events.Detached) and launcher.host.count("scancel") == 0
