"""A run, step by step: its notebook followed to its end, and its results fetched however it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

import pytest

from notebook_launcher import launch, run, sessions
from notebook_launcher.core import events
from notebook_launcher.core.errors import (
    ConnectionLost,
    CopyFailed,
    Interrupted,
    JobCancelled,
    JobTimedOut,
    LauncherError,
    NotebookFailed,
    OutOfMemory,
)
from notebook_launcher.core.interrupts import HungUp, Kind
from notebook_launcher.hosts.counted_prompts import CountedPrompts
from notebook_launcher.notebook.prepare import Prepared
from notebook_launcher.schedulers.slurm.commands import Slurm
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session, Site, record_in
from notebook_launcher.supervision import batch
from tests.doubles import wait_until
from tests.unit.supervision.launcher_doubles import PLAN, RECORD, TARGET, Launcher

PREPARED = Prepared("train.ipynb", b"{}", 9, {"EPOCHS": 1}, {"helper.py": b"x = 1\n"}, None)


def progress(cell: int | None, done: int, **others: object) -> dict[str, object]:
    times = {"started": "2026-11-21T11:00:00Z", "updated": "2026-11-21T11:00:32Z"}
    return {"version": 1, "job": "7", "cells": 9, "done": done, "cell": cell, "title": "Train", **times, **others}


class Fetched:
    """In place of ``fetch_results``: notes when it was called, and fails when a test says so.

    ``early``: calls of ``fetch_notebook``, which returns ``fetches_early``.
    """

    def __init__(self) -> None:
        self.folders: list[Path] = []
        self.early: list[Path] = []
        self.error: LauncherError | None = None
        self.fetches_early = True
        self.act: Callable[[], None] = lambda: None  # what happens during a fetch

    def notebook(self, context: Context, session: Session, folder: Path) -> bool:
        self.early.append(folder)
        if self.error:
            raise self.error
        return self.fetches_early

    def __call__(self, context: Context, session: Session, folder: Path) -> events.ResultsFetched:
        self.folders.append(folder)
        self.act()
        if self.error:
            raise self.error
        return events.ResultsFetched(session.id, "train.ipynb", str(folder), ("train.ipynb",), (), True)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Fetched:
    fetched = Fetched()
    monkeypatch.setattr(batch, "fetch_results", fetched)
    monkeypatch.setattr(batch, "fetch_notebook", fetched.notebook)
    return fetched


def begin(launcher: Launcher, *, detach: bool = False, output: Path | None = None) -> None:
    request = run.RunRequest(output, detach=detach)

    def play() -> None:
        assert run.run_notebook(PLAN, PREPARED, request, launcher.view, launcher.prompts, launcher.interrupts) == 0

    launcher._begin(play)


def running(launcher: Launcher, output: Path | None = None) -> None:
    """A run that is at its fourth cell."""
    begin(launcher, output=output)
    launcher.shown(events.Pending)
    launcher.host.starts()
    launcher.host.says("progress", **progress(4, 3))
    launcher.shown(events.NotebookProgress)


@pytest.mark.parametrize(("kind", "error"), [("end", Interrupted), ("leave", HungUp)])
def test_an_interrupt_while_the_files_of_a_run_are_written_queues_nothing(
    launcher: Launcher, kind: Kind, error: type[BaseException]
) -> None:
    """A command of its own writes them, before there is anything to cancel."""
    launcher.hooks.at("write", lambda: launcher.interrupts.arrive(kind))
    begin(launcher)
    raised = launcher.fails(error)
    assert not isinstance(raised, Interrupted) or raised.why == "No job was started."
    assert (launcher.host.count("sbatch"), launcher.host.count("rm")) == (0, 1)


def test_a_run_is_followed_to_its_end_and_what_it_made_is_fetched(launcher: Launcher, fetched: Fetched) -> None:
    running(launcher)
    launcher.host.says("progress", **progress(None, 9, title=""))
    launcher.shown(events.NotebookProgress, 2)
    wait_until(
        lambda: told_early(launcher) == [f"the notebook is in {fetched.early[0]}; waiting for the end of its job"]
    )
    assert not fetched.folders  # the job makes the HTML copy
    launcher.host.state = ""
    launcher.host.says("exit", cause="finished", exit_code=0, message="The notebook finished: 9 cells in 0:42.")
    launcher.well()
    ran, made = launcher.shown(events.NotebookFinished), launcher.shown(events.ResultsFetched)
    assert (ran.cells, ran.notebook, ran.seconds) == (9, "train.ipynb", 32.0)
    assert Path(made.folder) == Path("runs") / f"train-{launcher.session_id}"
    order = [name for name in launcher.names if name not in ("pending", "querying")]
    assert order == [
        "notebook_prepared",
        "submitted",
        "running",
        "notebook_progress",
        "notebook_progress",
        "notebook_finished",
        "results_fetched",
    ]
    assert launcher.shown(events.Running).program == "notebook"
    assert launcher.host.count("scancel") == 0


def told_early(launcher: Launcher) -> list[str]:
    return [event.text for event in launcher.view.all(events.Querying) if event.text.startswith("the notebook is in")]


@pytest.mark.parametrize("error", [CopyFailed("The disk is full."), ConnectionLost("It broke."), None])
def test_a_run_goes_on_if_its_notebook_cannot_be_fetched_before_the_end_of_its_job(
    launcher: Launcher, fetched: Fetched, error: LauncherError | None
) -> None:
    """That of a run as a script is none, and a large one takes too long: nothing is said of them."""
    fetched.error, fetched.fetches_early = error, False
    running(launcher)
    launcher.host.says("progress", **progress(None, 9, title=""))
    wait_until(lambda: bool(fetched.early))
    fetched.error = None
    launcher.host.state = ""
    launcher.host.says("exit", cause="finished", exit_code=0, message="The notebook finished: 9 cells in 0:42.")
    launcher.well()
    assert launcher.shown(events.ResultsFetched)
    assert (len(fetched.early), len(fetched.folders), told_early(launcher)) == (1, 1, [])


def test_a_run_has_no_ssh_server_no_tunnel_and_no_idle_guard(launcher: Launcher, fetched: Fetched) -> None:
    running(launcher)
    assert launcher.tunnels == [] and launcher.routes.opened == []
    site = Site("/home/alice", "alice", "login", datetime.now(timezone.utc))
    env = launch.session_env(PLAN, Slurm(), site, run._payload(PREPARED, "script", here=False))
    said = dict(line.split("=", 1) for line in env.splitlines())
    assert (said["program"], said["notebook"], said["to"]) == ("notebook", "train.ipynb", "script")
    assert not {"sshd", "listen", "idle_stop", "folder"} & said.keys() and "usage" in said
    launcher.types("d")
    launcher.well()


@pytest.mark.parametrize(
    ("cause", "status", "error", "code"),
    [
        ({"cause": "notebook-failed", "message": "Cell 4 of 9 (Train) failed: Error"}, "FAILED", NotebookFailed, 36),
        ({"cause": "kernel-died", "message": "The kernel died in cell 4."}, "FAILED", NotebookFailed, 36),
        ({"cause": "kernel-died", "message": "The kernel died in cell 4."}, "OUT_OF_MEMORY", OutOfMemory, 80),
        ({"cause": "stopped", "message": "sent SIGTERM"}, "TIMEOUT", JobTimedOut, 32),
        ({"cause": "stopped", "message": "sent SIGTERM"}, "CANCELLED", JobCancelled, 31),
    ],
)
def test_what_there_is_is_fetched_before_an_error_is_told(
    launcher: Launcher, fetched: Fetched, cause: dict[str, object], status: str, error: type[LauncherError], code: int
) -> None:
    running(launcher)
    launcher.host.state = status
    launcher.host.says("exit", **cause)
    raised = launcher.fails(error)
    assert raised.exit_code == code
    assert len(fetched.folders) == 1 and launcher.shown(events.ResultsFetched)
    if error is NotebookFailed:
        assert str(cause["message"]) in raised.what and raised.log == ()
        assert str(fetched.folders[0] / "train.ipynb") in raised.hint


def test_ctrl_c_ends_the_job_and_fetches_what_there_is(launcher: Launcher, fetched: Fetched) -> None:
    running(launcher)
    launcher.presses_ctrl_c(1)
    raised = launcher.fails(Interrupted)
    assert raised.exit_code == 130 and launcher.host.state == "CANCELLED"
    assert len(fetched.folders) == 1


def test_ctrl_c_while_it_waits_fetches_nothing(launcher: Launcher, fetched: Fetched) -> None:
    begin(launcher)
    launcher.shown(events.Pending)
    launcher.presses_ctrl_c(1)
    launcher.fails(Interrupted)
    assert launcher.host.state == "CANCELLED" and fetched.folders == []


def test_an_empty_line_ends_no_run_and_d_leaves_it(launcher: Launcher, fetched: Fetched) -> None:
    running(launcher)
    launcher.types("")
    launcher.noted("d and ENTER detaches")
    launcher.types("d")
    launcher.well()
    left = launcher.shown(events.Detached)
    assert left.results_command.endswith(f"results --cluster uni {launcher.short_name}")
    assert launcher.host.count("scancel") == 0 and fetched.folders == []


def test_detached_it_is_queued_and_left(launcher: Launcher, fetched: Fetched) -> None:
    begin(launcher, detach=True)
    launcher.well()
    assert [name for name in launcher.names if name != "note"] == ["notebook_prepared", "submitted", "detached"]
    assert launcher.host.streams == [] and launcher.host.state == "PENDING"


@pytest.mark.parametrize(("kind", "error", "state"), [("end", Interrupted, "CANCELLED"), ("leave", HungUp, "PENDING")])
@pytest.mark.real_time
def test_a_wish_that_comes_while_it_is_queued_holds_for_a_detached_run_too(
    launcher: Launcher, fetched: Fetched, kind: Literal["end", "leave"], error: type[BaseException], state: str
) -> None:
    free = launcher.blocks("sbatch")
    begin(launcher, detach=True)
    wait_until(lambda: launcher.host.count("sbatch") == 1, 30)
    launcher.interrupts.arrive(kind)
    if kind == "end":
        launcher.noted("it will be cancelled as soon as that is done")
    free.set()
    launcher.fails(error)  # type: ignore[type-var]
    assert launcher.host.state == state and "detached" not in launcher.names


def test_a_closed_terminal_leaves_it_running(launcher: Launcher, fetched: Fetched) -> None:
    running(launcher)
    launcher.interrupts.arrive("leave")
    launcher.fails(HungUp)
    assert launcher.host.state == "RUNNING"


@pytest.mark.parametrize("cause", ["finished", "notebook-failed"])
def test_a_terminal_that_is_closed_during_the_fetch_ends_it_and_the_command(
    launcher: Launcher, fetched: Fetched, cause: str
) -> None:
    running(launcher)
    fetched.error, fetched.act = Interrupted("Interrupted."), lambda: launcher.interrupts.arrive("leave")
    launcher.host.state = "FAILED"
    launcher.host.says("exit", cause=cause)
    launcher.fails(HungUp)
    assert launcher.notes == []


def test_a_lost_connection_is_reconnected_and_the_run_is_followed_on(launcher: Launcher, fetched: Fetched) -> None:
    running(launcher)
    launcher.host.drops()
    launcher.shown(events.Reconnected)
    launcher.host.says("progress", **progress(5, 4))
    assert launcher.shown(events.NotebookProgress, 2).cell == 5
    launcher.host.state = ""
    launcher.host.says("exit", cause="finished")
    launcher.well()


def test_a_requeued_run_is_followed_anew(launcher: Launcher, fetched: Fetched) -> None:
    running(launcher)
    launcher.host.requeued()
    launcher.noted("was put back into the queue")
    launcher.host.starts("n2")
    launcher.host.says("progress", **progress(1, 0))
    assert launcher.shown(events.NotebookProgress, 2).cell == 1
    launcher.types("d")
    launcher.well()


def test_results_that_cannot_be_fetched_are_an_error_after_a_good_end(
    launcher: Launcher, fetched: Fetched, monkeypatch: pytest.MonkeyPatch
) -> None:
    bills: list[int] = []
    monkeypatch.setattr(batch, "show_bill", lambda *_: bills.append(1))
    running(launcher)
    fetched.error = ConnectionLost("The connection to login is lost.")
    launcher.host.state = ""
    launcher.host.says("exit", cause="finished")
    raised = launcher.fails(ConnectionLost)
    assert "has finished" in raised.why and f"results --cluster uni {launcher.short_name}" in raised.hint
    assert bills == [1], "it was paid for all the same"


def test_a_job_that_nobody_can_follow_is_ended(
    launcher: Launcher, fetched: Fetched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(batch._RunSupervisor, "__init__", broken)
    begin(launcher)
    launcher.fails(RuntimeError)  # type: ignore[type-var]
    assert launcher.host.state == "CANCELLED"


def test_of_a_kernel_that_died_the_advice_and_the_log_stay(
    launcher: Launcher, fetched: Fetched, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = NotebookFailed("The kernel crashed.", hint="ask for more with --mem", log=("Segmentation fault",))
    monkeypatch.setattr(batch._RunSupervisor, "_exit_error", lambda *_: told)
    running(launcher)
    launcher.host.state = "FAILED"
    launcher.host.says("exit", cause="kernel-died", message="The kernel crashed.")
    raised = launcher.fails(NotebookFailed)
    assert list(raised.log) == ["Segmentation fault"]
    assert raised.hint == f"ask for more with --mem; its outputs up to there: {fetched.folders[0] / 'train.ipynb'}"


@pytest.mark.parametrize("came", [True, False])
def test_of_a_script_that_failed_its_output_is_named(
    launcher: Launcher, fetched: Fetched, monkeypatch: pytest.MonkeyPatch, came: bool
) -> None:
    def of_a_script(_context: Context, session: Session, folder: Path) -> events.ResultsFetched:
        files = ("train.out", "train.py") if came else ()
        return events.ResultsFetched(session.id, "train.ipynb", str(folder), files, (), False)

    monkeypatch.setattr(batch, "fetch_results", of_a_script)
    running(launcher)
    launcher.host.state = "FAILED"
    launcher.host.says("exit", cause="notebook-failed", message="The notebook failed as a script: ValueError")
    raised = launcher.fails(NotebookFailed)
    named = Path("runs") / f"train-{launcher.session_id}" / "train.out"
    assert raised.hint.endswith(
        f"with the traceback: {named}" if came else f"results --cluster uni {launcher.short_name}"
    )
    assert "came back" not in raised.hint


def test_on_a_terminal_it_is_said_once_what_the_keys_do(
    launcher: Launcher, fetched: Fetched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CountedPrompts, "asks", True)
    running(launcher)
    launcher.noted("Ctrl-C cancels the job")
    launcher.host.says("progress", **progress(5, 4))
    launcher.shown(events.NotebookProgress, 2)
    launcher.types("d")
    launcher.well()
    assert launcher.notes.count(batch.KEYS_OURS) == 1


def test_results_that_cannot_be_fetched_do_not_hide_why_it_failed(launcher: Launcher, fetched: Fetched) -> None:
    running(launcher)
    fetched.error = CopyFailed("The disk is full.")
    launcher.host.state = "FAILED"
    launcher.host.says("exit", cause="notebook-failed", message="Cell 4 of 9 failed: ValueError")
    launcher.fails(NotebookFailed)
    launcher.noted("The disk is full.")


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"cells": "9", "done": 1},
        {"cells": 9, "done": True},
        {"cells": 9, "done": -1},
        {"cells": 9, "done": 1, "cell": [4]},
    ],
)
def test_progress_that_makes_no_sense_is_passed_over(
    launcher: Launcher, fetched: Fetched, data: dict[str, object]
) -> None:
    running(launcher)
    launcher.host.says("progress", **data)
    launcher.host.says("progress", **progress(5, 4, title="\x1b[31mA " + "long " * 40))
    told = launcher.shown(events.NotebookProgress, 2)
    assert told.cell == 5 and len(told.heading) <= 60 and "\x1b" not in told.heading
    launcher.types("d")
    launcher.well()


def test_who_comes_back_finds_the_results_where_the_run_was_to_bring_them(
    launcher: Launcher, fetched: Fetched, tmp_path: Path
) -> None:
    running(launcher, tmp_path / "mine")
    launcher.types("d")
    launcher.well()
    record = record_in(json.dumps({**RECORD, "id": launcher.session_id, "notebook": "train.ipynb"}))
    assert batch.usual_output(Session(record, "/d")) == tmp_path / "mine"
    other = record_in(json.dumps({**RECORD, "id": "20261122-101500-zzzz"}))
    assert batch.usual_output(Session(other, "/d")) == Path("runs")


@pytest.mark.parametrize(
    ("sent", "file", "is_known"),
    [
        ('{"version": 1, "to": "notebook"}', "runtime/printed", True),
        ('{"version": 1, "to": "script"}', "work/train.out", True),
        *((sent, "runtime/printed", False) for sent in (None, '{"version": 1, "to": "scr', "{}")),
    ],
)
def test_who_comes_back_may_follow_what_it_prints(
    launcher: Launcher, fetched: Fetched, monkeypatch: pytest.MonkeyPatch, sent: str | None, file: str, is_known: bool
) -> None:
    def supervise(_context: Context, session: Session, **options: object) -> None:
        followed.append(options["printed"])

    followed: list[object] = []
    monkeypatch.setattr(batch, "supervise_run", supervise)
    launcher.host.state, launcher.host.node = "RUNNING", "n1"
    launcher._old_session()
    launcher.host.files["session.json"] = json.dumps({**RECORD, "program": "notebook", "notebook": "train.ipynb"})
    if sent:
        launcher.host.files["sent.json"] = sent
    places = (TARGET, "", launcher.view, launcher.prompts, launcher.interrupts)
    launcher._begin(lambda: sessions.connect(*places, follow=True))
    launcher.well()
    assert followed == [file]
    notes = [note.text for note in launcher.view.all(events.Note)]
    assert len(notes) == (not is_known) and all("sent.json cannot be read" in note for note in notes)
    assert all("it prints to work/train.out in" in note for note in notes)


def test_who_comes_back_to_a_run_follows_it_and_ctrl_c_leaves_it(launcher: Launcher, fetched: Fetched) -> None:
    record = {**RECORD, "program": "notebook", "notebook": "train.ipynb"}
    launcher.host.state, launcher.host.node = "RUNNING", "n1"
    launcher._old_session()
    launcher.host.files["session.json"] = json.dumps(record)
    launcher._begin(lambda: sessions.connect(TARGET, "", launcher.view, launcher.prompts, launcher.interrupts))
    launcher.host.says("started", node_names=["n1"])
    launcher.host.says("progress", **progress(4, 3))
    launcher.shown(events.NotebookProgress)
    launcher.presses_ctrl_c(1)
    launcher.well()
    assert launcher.shown(events.Detached).results_command and launcher.host.count("scancel") == 0
