"""A run, step by step, on the stand-ins of ``test_attend``; and fetching its results from a session on this machine."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

import pytest
from rich.console import Console

from notebook_launcher import launch, run, sessions
from notebook_launcher.cli import app
from notebook_launcher.cli.views import runs as run_views
from notebook_launcher.cli.views.errors import json_line
from notebook_launcher.cli.views.status_line import HeldLine
from notebook_launcher.cli.views.text_view import TextView
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
from notebook_launcher.core.events import launch as events
from notebook_launcher.core.interrupts import HungUp, Interrupts
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.launch import Load
from notebook_launcher.notebook import results as results_room
from notebook_launcher.notebook.prepare import Prepared
from notebook_launcher.notebook.results import MOST_FILES, fetch_results, results_folder
from notebook_launcher.schedulers.slurm.commands import Slurm
from notebook_launcher.session.context import Stage
from notebook_launcher.session.record import Session, SessionRecord, Site
from notebook_launcher.supervision import batch as attend_run
from notebook_launcher.tunnel.reconnect import CountedPrompts
from tests.unit.jobscripts.test_sshd import wait_until
from tests.unit.supervision.test_supervisor import PLACE, PLAN, RECORD, SESSION_ID, Story
from tests.unit.supervision.test_supervisor import story as _story  # a fixture

story = _story

PREPARED = Prepared("train.ipynb", b"{}", 9, {"EPOCHS": 1}, {"helper.py": b"x = 1\n"}, None)


def progress(cell: int | None, done: int, **others: object) -> dict[str, object]:
    times = {"started": "2026-11-21T11:00:00Z", "updated": "2026-11-21T11:00:32Z"}
    return {"version": 1, "job": "7", "cells": 9, "done": done, "cell": cell, "title": "Train", **times, **others}


class Fetched:
    """In place of ``fetch_results``: notes when it was called, and fails when a test says so."""

    def __init__(self) -> None:
        self.folders: list[Path] = []
        self.error: LauncherError | None = None

    def __call__(self, stage: Stage, session: Session, folder: Path) -> events.ResultsFetched:
        self.folders.append(folder)
        if self.error:
            raise self.error
        return events.ResultsFetched(session.id, "train.ipynb", str(folder), ("train.ipynb",), (), True)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Fetched:
    fetched = Fetched()
    monkeypatch.setattr(attend_run, "fetch_results", fetched)
    return fetched


def begin(story: Story, *, detach: bool = False, output: Path | None = None) -> None:
    wish = run.RunWish(output, detach=detach)

    def play() -> None:
        assert run.run_notebook(PLAN, PREPARED, wish, story.view, story.prompts, story.interrupts) == 0

    story._begin(play)


def running(story: Story, output: Path | None = None) -> None:
    """A run that is at its fourth cell."""
    begin(story, output=output)
    story.shown(events.Waiting)
    story.host.starts()
    story.host.says("progress", **progress(4, 3))
    story.shown(events.CellRuns)


# --- the story -----------------------------------------------------------------------------------------------


def test_a_run_is_followed_to_its_end_and_what_it_made_is_fetched(story: Story, fetched: Fetched) -> None:
    running(story)
    story.host.says("progress", **progress(None, 9, title=""))
    story.shown(events.CellRuns, 2)
    story.host.state = ""
    story.host.says("exit", cause="finished", exit_code=0, message="The notebook came to its end: 9 cells in 0:42.")
    story.well()
    ran, made = story.shown(events.NotebookRan), story.shown(events.ResultsFetched)
    assert (ran.cells, ran.notebook, ran.seconds) == (9, "train.ipynb", 32.0)
    assert Path(made.folder) == Path("runs") / f"train-{story.session_id}"
    order = [name for name in story.names if name not in ("waiting", "asking")]
    assert order == ["notebook", "submitted", "running", "cell", "cell", "ran", "results"]
    assert story.shown(events.Running).program == "notebook"
    assert story.host.count("scancel") == 0


def test_a_run_has_no_ssh_server_no_tunnel_and_no_idle_guard(story: Story, fetched: Fetched) -> None:
    running(story)
    assert story.tunnels == [] and story.ways.links == []
    site = Site("/home/alice", "alice", "login", datetime.now(timezone.utc))
    env = launch.session_env(PLAN, Slurm(), site, run._load(PREPARED, "script", here=False))
    said = dict(line.split("=", 1) for line in env.splitlines())
    assert (said["program"], said["notebook"], said["to"]) == ("notebook", "train.ipynb", "script")
    assert not {"sshd", "listen", "idle_stop", "folder"} & said.keys() and "usage" in said
    story.types("d")
    story.well()


@pytest.mark.parametrize(
    ("cause", "status", "error", "code"),
    [
        ({"cause": "notebook-failed", "message": "Cell 4 of 9 (Train) failed: Error"}, "FAILED", NotebookFailed, 36),
        ({"cause": "kernel-died", "message": "The kernel died in cell 4."}, "FAILED", NotebookFailed, 36),
        ({"cause": "kernel-died", "message": "The kernel died in cell 4."}, "OUT_OF_MEMORY", OutOfMemory, 80),
        ({"cause": "stopped", "message": "sent SIGTERM"}, "TIMEOUT", JobTimedOut, 32),
        ({"cause": "stopped", "message": "sent SIGTERM"}, "CANCELLED", JobCancelled, 31),
    ],
)  # fmt: skip
def test_what_there_is_is_fetched_before_an_error_is_told(
    story: Story, fetched: Fetched, cause: dict[str, object], status: str, error: type[LauncherError], code: int
) -> None:
    running(story)
    story.host.state = status
    story.host.says("exit", **cause)
    raised = story.fails(error)
    assert raised.exit_code == code
    assert len(fetched.folders) == 1 and story.shown(events.ResultsFetched)
    if error is NotebookFailed:
        assert str(cause["message"]) in raised.what and raised.log == ()
        assert str(fetched.folders[0] / "train.ipynb") in raised.mend


def test_ctrl_c_ends_the_job_and_fetches_what_there_is(story: Story, fetched: Fetched) -> None:
    running(story)
    story.presses_ctrl_c(1)
    raised = story.fails(Interrupted)
    assert raised.exit_code == 130 and story.host.state == "CANCELLED"
    assert len(fetched.folders) == 1


def test_ctrl_c_while_it_waits_fetches_nothing(story: Story, fetched: Fetched) -> None:
    begin(story)
    story.shown(events.Waiting)
    story.presses_ctrl_c(1)
    story.fails(Interrupted)
    assert story.host.state == "CANCELLED" and fetched.folders == []


def test_an_empty_line_ends_no_run_and_d_leaves_it(story: Story, fetched: Fetched) -> None:
    running(story)
    story.types("")
    story.noted("d and ENTER leaves it running")
    story.types("d")
    story.well()
    left = story.shown(events.Left)
    assert left.results.endswith(f"results --cluster uni {story.session_id}")
    assert story.host.count("scancel") == 0 and fetched.folders == []


def test_detached_it_is_queued_and_left(story: Story, fetched: Fetched) -> None:
    begin(story, detach=True)
    story.well()
    assert [name for name in story.names if name != "note"] == ["notebook", "submitted", "left"]
    assert story.host.streams == [] and story.host.state == "PENDING"


@pytest.mark.parametrize(("kind", "error", "state"), [("end", Interrupted, "CANCELLED"), ("leave", HungUp, "PENDING")])
def test_a_wish_that_comes_while_it_is_queued_holds_for_a_detached_run_too(
    story: Story, fetched: Fetched, kind: Literal["end", "leave"], error: type[BaseException], state: str
) -> None:
    free = story.blocks("sbatch")
    begin(story, detach=True)
    wait_until(lambda: story.host.count("sbatch") == 1, 10)
    story.interrupts.arrive(kind)
    if kind == "end":
        story.noted("it is cancelled as soon as that is done")
    free.set()
    story.fails(error)  # type: ignore[type-var]
    assert story.host.state == state and "left" not in story.names


def test_a_closed_terminal_leaves_it_running(story: Story, fetched: Fetched) -> None:
    running(story)
    story.interrupts.arrive("leave")
    story.fails(HungUp)
    assert story.host.state == "RUNNING"


def test_a_lost_connection_is_mended_and_the_run_is_followed_on(story: Story, fetched: Fetched) -> None:
    running(story)
    story.host.drops()
    story.shown(events.Reconnected)
    story.host.says("progress", **progress(5, 4))
    assert story.shown(events.CellRuns, 2).cell == 5
    story.host.state = ""
    story.host.says("exit", cause="finished")
    story.well()


def test_a_requeued_run_is_followed_anew(story: Story, fetched: Fetched) -> None:
    running(story)
    story.host.requeued()
    story.noted("was put back into the queue")
    story.host.starts("n2")
    story.host.says("progress", **progress(1, 0))
    assert story.shown(events.CellRuns, 2).cell == 1
    story.types("d")
    story.well()


def test_results_that_cannot_be_fetched_are_an_error_after_a_good_end(
    story: Story, fetched: Fetched, monkeypatch: pytest.MonkeyPatch
) -> None:
    bills: list[int] = []
    monkeypatch.setattr(attend_run, "show_bill", lambda *_: bills.append(1))
    running(story)
    fetched.error = ConnectionLost("The connection to login is lost.")
    story.host.state = ""
    story.host.says("exit", cause="finished")
    raised = story.fails(ConnectionLost)
    assert "come to its end" in raised.why and f"results --cluster uni {story.session_id}" in raised.mend
    assert bills == [1], "it was paid for all the same"


def test_a_job_that_nobody_can_follow_is_ended(story: Story, fetched: Fetched, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(attend_run._Run, "__init__", broken)
    begin(story)
    story.fails(RuntimeError)  # type: ignore[type-var]
    assert story.host.state == "CANCELLED"


def test_of_a_kernel_that_died_the_advice_and_the_log_stay(
    story: Story, fetched: Fetched, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = NotebookFailed("The kernel crashed.", mend="ask for more with --mem", log=("Segmentation fault",))
    monkeypatch.setattr(attend_run._Run, "_how_it_ended", lambda *_: told)
    running(story)
    story.host.state = "FAILED"
    story.host.says("exit", cause="kernel-died", message="The kernel crashed.")
    raised = story.fails(NotebookFailed)
    assert list(raised.log) == ["Segmentation fault"]
    assert raised.mend == f"ask for more with --mem; its outputs up to there: {fetched.folders[0] / 'train.ipynb'}"


@pytest.mark.parametrize("came", [True, False])
def test_of_a_script_that_failed_its_output_is_named(
    story: Story, fetched: Fetched, monkeypatch: pytest.MonkeyPatch, came: bool
) -> None:
    def of_a_script(_stage: Stage, session: Session, folder: Path) -> events.ResultsFetched:
        files = ("train.out", "train.py") if came else ()
        return events.ResultsFetched(session.id, "train.ipynb", str(folder), files, (), False)

    monkeypatch.setattr(attend_run, "fetch_results", of_a_script)
    running(story)
    story.host.state = "FAILED"
    story.host.says("exit", cause="notebook-failed", message="The notebook failed as a script: ValueError")
    raised = story.fails(NotebookFailed)
    named = Path("runs") / f"train-{story.session_id}" / "train.out"
    assert raised.mend.endswith(f"with the traceback: {named}" if came else f"results --cluster uni {story.session_id}")
    assert "came back" not in raised.mend


def test_on_a_terminal_it_is_said_once_what_the_keys_do(
    story: Story, fetched: Fetched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CountedPrompts, "asks", True)
    running(story)
    story.noted("Ctrl-C ends the job")
    story.host.says("progress", **progress(5, 4))
    story.shown(events.CellRuns, 2)
    story.types("d")
    story.well()
    assert story.notes.count(attend_run.KEYS_OURS) == 1


def test_results_that_cannot_be_fetched_do_not_hide_why_it_failed(story: Story, fetched: Fetched) -> None:
    running(story)
    fetched.error = CopyFailed("The disk is full.")
    story.host.state = "FAILED"
    story.host.says("exit", cause="notebook-failed", message="Cell 4 of 9 failed: ValueError")
    story.fails(NotebookFailed)
    story.noted("The disk is full.")


@pytest.mark.parametrize("data", [{}, {"cells": "9", "done": 1}, {"cells": 9, "done": True}, {"cells": 9, "done": -1},
                                  {"cells": 9, "done": 1, "cell": [4]}])  # fmt: skip
def test_progress_that_makes_no_sense_is_passed_over(story: Story, fetched: Fetched, data: dict[str, object]) -> None:
    running(story)
    story.host.says("progress", **data)
    story.host.says("progress", **progress(5, 4, title="\x1b[31mA " + "long " * 40))
    told = story.shown(events.CellRuns, 2)
    assert told.cell == 5 and len(told.title) <= 60 and "\x1b" not in told.title
    story.types("d")
    story.well()


def test_who_comes_back_finds_the_results_where_the_run_was_to_bring_them(
    story: Story, fetched: Fetched, tmp_path: Path
) -> None:
    running(story, tmp_path / "mine")
    story.types("d")
    story.well()
    record = SessionRecord.model_validate({**RECORD, "id": story.session_id, "notebook": "train.ipynb"})
    assert attend_run.usual_output(Session(record, "/d")) == tmp_path / "mine"
    other = SessionRecord.model_validate({**RECORD, "id": "20261122-101500-zzzz"})
    assert attend_run.usual_output(Session(other, "/d")) == Path("runs")


def test_who_comes_back_to_a_run_follows_it_and_ctrl_c_leaves_it(story: Story, fetched: Fetched) -> None:
    record = {**RECORD, "program": "notebook", "notebook": "train.ipynb"}
    story.host.state, story.host.node = "RUNNING", "n1"
    story._old_session()
    story.host.files["session.json"] = json.dumps(record)
    story._begin(lambda: sessions.connect(PLACE, "", story.view, story.prompts, story.interrupts))
    story.host.says("started", node_names=["n1"])
    story.host.says("progress", **progress(4, 3))
    story.shown(events.CellRuns)
    story.presses_ctrl_c(1)
    story.well()
    assert story.shown(events.Left).results and story.host.count("scancel") == 0


# --- what is sent --------------------------------------------------------------------------------------------


def load(prepared: Prepared, *, here: bool) -> Load:
    return run._load(prepared, "notebook", here=here)


def test_on_the_same_machine_the_kernel_works_in_the_notebooks_own_folder(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_bytes(b"x = 1\n")
    prepared = Prepared("train.ipynb", b"{}", 1, {}, {"helper.py": b"x = 1\n"}, tmp_path)
    assert load(prepared, here=True).lines["folder"] == str(tmp_path) and load(prepared, here=True).sent == ()
    assert "folder" not in load(prepared, here=False).lines and load(prepared, here=False).sent == ("helper.py",)
    odd = tmp_path / "a,b:c"
    odd.mkdir()
    (odd / "helper.py").write_bytes(b"x = 1\n")
    unseen = dataclasses.replace(prepared, folder=odd)  # no container can be shown it
    assert "folder" not in load(unseen, here=True).lines and load(unseen, here=True).sent == ("helper.py",)
    elsewhere = Prepared("train.ipynb", b"{}", 1, {}, {"data.csv": b"1\n"}, tmp_path)  # named from another folder
    assert "folder" not in load(elsewhere, here=True).lines and load(elsewhere, here=True).sent == ("data.csv",)


def test_what_the_launcher_lends_is_sent_though_the_kernel_works_in_the_notebooks_own_folder(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_bytes(b"x = 1\n")
    companions = {"helper.py": b"x = 1\n", "timing.py": b"ours"}
    prepared = Prepared("train.ipynb", b"{}", 1, {}, companions, tmp_path, lent=("timing.py",))
    made = load(prepared, here=True)
    assert made.lines["folder"] == str(tmp_path) and made.sent == ("timing.py",)
    assert run._queued(prepared, here=True).sent == ("timing.py",)
    assert set(json.loads(made.files["sent.json"])["files"]) == {"timing.py"}
    assert load(prepared, here=False).sent == ("helper.py", "timing.py")


def test_what_is_noted_of_parameters_is_json_for_every_reader() -> None:
    odd = {"RATE": float("nan"), "LIMITS": [1.5, float("-inf")]}
    noted = load(dataclasses.replace(PREPARED, parameters=odd), here=False).files["sent.json"]
    assert json.loads(noted, parse_constant=pytest.fail)["parameters"] == {"RATE": "nan", "LIMITS": [1.5, "-inf"]}
    line = json_line(events.NotebookQueued("train.ipynb", 9, dict(odd), ()))
    assert json.loads(line, parse_constant=pytest.fail)["parameters"]["RATE"] == "nan"


# --- what comes back -----------------------------------------------------------------------------------------


class Run:
    """A session of a run on this machine, as its job leaves it."""

    def __init__(self, tmp_path: Path) -> None:
        self.directory, self.here = tmp_path / "root" / SESSION_ID, tmp_path / "here"
        self.work = self.directory / "work"
        self.work.mkdir(parents=True)
        self.sent: tuple[str, ...] = ()
        self.interrupts, self.shown = Interrupts(), list[events.Event]()
        self.interrupts.defer()
        self.writes("usage.csv", "time\n1\n")
        self.writes("work/train.ipynb", '{"cells": []}')
        self.ends("finished")

    def writes(self, name: str, content: str | bytes) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def ends(self, cause: str) -> None:
        self.writes("exit.json", json.dumps({"cause": cause, "message": "so it ended", "exit_code": 0}))

    @property
    def session(self) -> Session:
        asked = {**RECORD, "program": "notebook", "notebook": "train.ipynb", "sent": self.sent}
        return Session(SessionRecord.model_validate(asked), str(self.directory))

    def fetch(self) -> events.ResultsFetched:
        stage = Stage(*[None] * 9)  # type: ignore[arg-type]
        stage.host, stage.interrupts, stage.view = LocalHost(), self.interrupts, self
        return fetch_results(stage, self.session, self.here)

    def show(self, event: events.Event) -> None:
        self.shown.append(event)

    def listen(self, inbox: object) -> None:
        raise AssertionError

    def text(self, name: str) -> str:
        return (self.here / name).read_text()

    @property
    def record(self) -> dict[str, object]:
        return json.loads(self.text("run.json"))  # type: ignore[no-any-return]


@pytest.fixture
def made(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_what_a_run_has_made_comes_into_one_folder_for_this_user_alone(made: Run) -> None:
    made.writes("work/figures/loss.png", b"\x89PNG")
    made.writes("work/__pycache__/helper.pyc", b"no")
    made.writes("image.json", '{"digest": "abc"}')
    made.writes("sent.json", '{"parameters": {"EPOCHS": 1}, "cells": 9, "to": "notebook", "files": {}}')
    old = os.umask(0o000)
    try:
        fetched = made.fetch()
    finally:
        os.umask(old)
    assert fetched.files == ("train.ipynb", "figures/loss.png", "usage.csv") and fetched.whole and not fetched.left
    assert made.record["parameters"] == {"EPOCHS": 1} and made.record["image"] == {"digest": "abc"}
    assert made.record["cause"] == "finished"
    files = [path for path in made.here.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600} and made.here.stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in files) == ["loss.png", "run.json", "train.ipynb", "usage.csv"]


def test_fetching_again_brings_only_what_is_new(made: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    made.ends("stopped")
    first = made.fetch()
    streamed: list[str] = []
    inner = results_room._Fetching._streamed

    def noting(self: results_room._Fetching, wanted: list[str], *others: object) -> object:
        streamed.extend(wanted)
        return inner(self, wanted, *others)

    monkeypatch.setattr(results_room._Fetching, "_streamed", noting)
    assert made.fetch() == first and [name for name in streamed if not name.endswith(".json")] == []
    made.writes("work/train.ipynb", '{"cells": [1]}')
    made.writes("work/out.csv", "a\n")
    made.ends("finished")
    again = made.fetch()
    assert again.whole and again.files == ("train.ipynb", "out.csv", "usage.csv")
    assert made.text("train.ipynb") == '{"cells": [1]}'


def test_a_file_that_was_changed_here_is_left_and_the_new_one_put_beside_it(made: Run) -> None:
    made.fetch()
    (made.here / "train.ipynb").write_text("mine")
    assert made.fetch().files[0] == "train.ipynb" and made.text("train.ipynb") == "mine"  # nothing new there
    made.writes("work/train.ipynb", "second")
    assert "train.fetched.ipynb" in made.fetch().files
    assert (made.text("train.ipynb"), made.text("train.fetched.ipynb")) == ("mine", "second")
    made.writes("work/train.ipynb", "the third")
    made.fetch()
    assert (made.text("train.ipynb"), made.text("train.fetched.ipynb")) == ("mine", "the third")
    (made.here / "train.fetched.ipynb").write_text("mine, too")
    made.writes("work/train.ipynb", "and the fourth")
    made.fetch()
    assert made.text("train.fetched.ipynb") == "mine, too" and made.text("train.fetched-2.ipynb") == "and the fourth"


def test_what_was_sent_does_not_come_back_unless_it_was_changed(made: Run) -> None:
    files = {"helper.py": b"x = 1\n", "data.csv": b"1\n"}
    for name, content in files.items():
        made.writes(f"work/{name}", content)
    made.sent = tuple(files)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    made.writes("sent.json", json.dumps({"files": digests}))
    assert made.fetch().files == ("train.ipynb", "usage.csv")
    made.writes("work/data.csv", "2\n")
    assert made.fetch().files == ("train.ipynb", "data.csv", "usage.csv")


def test_names_and_links_from_the_cluster_lead_nowhere(made: Run, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (made.directory / "work" / "link").symlink_to(secret)
    made.writes("work/run.json", "not yours")
    made.writes("work/usage.csv", "nor this")
    made.writes("work/a\nb", "odd")
    made.writes("work/\x1b[31mred", "odd")
    made.writes(b"work/\xff".decode(errors="surrogateescape"), "odd")
    (made.here / "out").mkdir(parents=True)
    (made.here / "elsewhere").mkdir()
    (made.here / "sub").symlink_to(made.here / "elsewhere")  # a link of the user's own is not written through
    made.writes("work/sub/x", "x")
    fetched = made.fetch()
    assert set(fetched.files) == {"train.ipynb", "usage.csv", "run.fetched.json", "usage.fetched.csv"}
    assert made.record["session"] == SESSION_ID and made.text("usage.csv") == "time\n1\n"
    assert len(fetched.left) == 4 and not any(character in "".join(fetched.left) for character in "\n\x1b")
    assert list((made.here / "elsewhere").iterdir()) == []
    assert not any(path.read_text(errors="replace") == "secret" for path in made.here.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "./x", "a//x", "", "x\0y", "-".join(["long"] * 60)])
def test_a_hostile_listing_names_nothing_outside(made: Run, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert results_room._name(f"work/{name}") is None


def test_a_record_of_what_was_fetched_that_was_tampered_with_is_not_believed(made: Run) -> None:
    made.fetch()
    record = made.record
    kept = {"name": "../../x", "sha256": "0", "bytes": 1, "time": "1"}
    record["fetched"] = {"work/train.ipynb": kept, "usage.csv": 7, "work/y": {"odd": 1}}
    (made.here / "run.json").write_text(json.dumps(record))
    assert made.fetch().files == ("train.ipynb", "usage.csv")


def test_what_is_too_much_is_told_with_its_path(made: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results_room, "MOST_BYTES", 1000)
    monkeypatch.setattr(results_room, "MOST_FILES", 4)
    made.writes("work/model.bin", b"x" * 1001)
    left = made.fetch().left
    assert left == (f"{made.work}/model.bin (1001 bytes)",)
    for number in range(5):
        made.writes(f"work/{number}", "x")
    fetched = made.fetch()
    assert len(fetched.files) == 4 and "more than 4 files" in fetched.left[-1] and MOST_FILES == 1000


def test_nothing_is_there_yet(made: Run) -> None:
    for name in ("usage.csv", "work/train.ipynb", "exit.json"):
        (made.directory / name).unlink()
    fetched = made.fetch()
    assert fetched.files == () and not fetched.whole
    assert run_views.fetched_words(fetched) == ("There is nothing of train.ipynb to fetch.", [])


def test_a_session_that_is_gone_is_an_error(made: Run, tmp_path: Path) -> None:
    made.directory.rename(tmp_path / "gone")
    with pytest.raises(CopyFailed):
        made.fetch()
    assert not any(path.name.startswith(".part-") for path in tmp_path.rglob("*"))


def test_results_that_cannot_be_kept_are_an_error(made: Run) -> None:
    made.here.write_text("a file")
    with pytest.raises(CopyFailed, match="cannot be kept"):
        made.fetch()


@pytest.mark.parametrize(
    ("name", "folder"), [("train.ipynb", "train"), ("../a b.ipynb", "a_b"), (".ipynb", "ipynb"), (None, "notebook")]
)
def test_the_folders_name_is_made_of_harmless_characters(made: Run, name: str | None, folder: str) -> None:
    record = made.session.record.model_copy(update={"notebook": name})
    found = results_folder(Session(record, "/d"), Path("runs"))
    assert found == Path("runs") / f"{folder}-{SESSION_ID}"


@pytest.mark.parametrize("stem", ["n" * 249, "日" * 80])
def test_the_folders_name_is_short_enough_for_any_file_system(made: Run, stem: str) -> None:
    record = made.session.record.model_copy(update={"notebook": f"{stem}.ipynb"})
    name = results_folder(Session(record, "/d")).name
    assert len(name.encode()) < 250 and name.startswith(stem[:60]) and name.endswith(SESSION_ID)


# --- what is shown -------------------------------------------------------------------------------------------


def cell(**others: object) -> events.CellRuns:
    known = {"session": "s", "job": "7", "cell": 4, "done": 3, "cells": 9, "title": "Train", "seconds": 32.0}
    return events.CellRuns(**{**known, **others})  # type: ignore[arg-type]


def test_the_live_line_says_the_cell_first_and_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    line = HeldLine(Console(file=io.StringIO(), width=80, force_terminal=True), clock=lambda: now)
    line.tell(events.Holding("s", "7", "2026-11-21T12:00:00Z", 4330, "2026-11-21T11:00:00Z", 3.9, 2048.0, ()))
    line.runs(cell())
    now = 102.0
    assert line.text(79) == "Cell 4 of 9 · Train · 0:34 · 1:12:08 left · CPU 3.9 cores · memory 2.0 GiB"
    line.runs(cell(title="A heading that is so long that nobody reads it"))
    assert line.text(79).startswith("Cell 4 of 9 · A heading that is so long t… · 0:32 · 1:12:08 left")
    line.runs(cell(cell=None, done=9))
    assert line.text(79).startswith("9 of 9 cells done · 1:12:08 left")


def test_without_a_terminal_there_is_a_line_for_each_cell(capsys: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()
    with TextView(Console(file=out, width=80)) as view:
        view.show(events.NotebookQueued("train.ipynb", 9, {"EPOCHS": 1, "NAME": "x" * 60}, ("helper.py",)))
        view.show(cell())
        view.show(cell(cell=None, done=9, seconds=42))
        view.show(events.NotebookRan("s", "7", "train.ipynb", 9, 42.0))
        view.show(
            events.ResultsFetched(
                "s", "train.ipynb", "runs/t", ("train.ipynb", "out.csv"), ("/s/work/m b (1.0 GiB)",), True
            )
        )
    assert out.getvalue().splitlines() == [
        f"Notebook train.ipynb: 9 code cells, with EPOCHS=1, NAME='{'x' * 38}…; helper.py goes with it",
        "Cell 4 of 9: Train (0:32)",
        "9 of 9 cells are done (0:42)",
        "The notebook train.ipynb came to its end: 9 code cells in 0:42.",
        "The results are here:",
        "  runs/t/train.ipynb",
        "  beside it: out.csv",
        "  Not fetched: it is too much, cannot be read, has gone, or has a name that cannot be kept here:",
        "    /s/work/m b (1.0 GiB)",
        "  One that you need comes with: launch-notebook copy 'login:/s/work/m b' .",
    ]


@pytest.mark.parametrize("words", [["status"], ["connect"], ["results"]])
def test_who_forgets_the_cluster_is_told_of_the_profile_that_there_is(
    words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("notebook_launcher.jobs.lookup.own_profiles", lambda: ["mine"])
    assert app.run(words) == 40
    said = capsys.readouterr().err
    assert "There is no session on this machine." in said and "You have a profile of mine." in said
    assert "--cluster mine" in said


# --- what is typed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train.ipynb -p gpu --gpus 1", "--partition gpu"),
        ("train.ipynb -p gpu -t 10", "--partition gpu"),
        ("-p gpu train.ipynb", "--partition gpu"),
        ("-p gpu -N1 train.ipynb", "run train.ipynb --partition gpu"),
        ("-p gpu -t1:00:00 train.ipynb", "run train.ipynb --partition gpu"),
        ("-p gpu -t 1:00:00 train.ipynb", "run train.ipynb --partition gpu"),
        ("~nobody-here/train.ipynb", "cannot be looked at"),
        ("train.ipynb --with ~nobody-here/x", "cannot be looked at"),
        ("train.ipynb --output ~nobody-here/x", "--output DIR"),
        (f"train.ipynb --output {'x' * 300}", "--output DIR"),
        (f"train.ipynb --with {'x' * 300}", "cannot be looked at"),
        (f"{'x' * 300}.ipynb", "cannot be looked at"),
        ("train.ipynb -p gpu", "--partition gpu"),  # a flag of ours follows
        ("train.ipynb -p EPOCHS=3 -t 10", "run train.ipynb -p EPOCHS 3"),
        ("-p EPOCHS=3 train.ipynb", "run train.ipynb -p EPOCHS 3"),
        ("train.ipynb -p EPOCHS abc", "is a number, and “abc” is none"),
        ("", "Which notebook?"),
        ("train.ipynb tf-gpu", "What is “tf-gpu”?"),
        ("train.ipynb --output train.ipynb", "is no folder"),
        ("train.ipynb --array 1", "array"),
    ],
)
def test_what_is_typed_wrongly_is_said(
    words: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_notebook(tmp_path / "train.ipynb")
    assert app.run(["run", *words.split(), "--cluster", "here"]) in (2, 26)
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_parameter_in_one_word_at_the_end_is_shown_in_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["run", "train.ipynb", "-p", "EPOCHS=3"]) == 2
    assert "→ -p EPOCHS 3; for the partition" in capsys.readouterr().err


def test_parameters_go_in_and_scheduler_flags_go_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_notebook(tmp_path / "train.ipynb")
    words = "run train.ipynb -p EPOCHS -5 --host u@h --partition gpu -n 4 -t 10 --to script --dry-run -- env.sif"
    assert app.run(words.split()) == 0
    shown = capsys.readouterr()
    assert "--partition=gpu" in shown.out and "--ntasks=4" in shown.out and "to=script" in shown.out
    assert "EPOCHS=-5" in shown.out + shown.err and "container=env.sif" in shown.out
    assert not re.search(r"^(sshd|idle_stop|folder)=", shown.out, re.M)


def write_notebook(path: Path) -> None:
    source = "EPOCHS = 5\n"
    code: dict[str, object] = {"cell_type": "code", "id": "a", "outputs": [], "execution_count": None}
    code |= {"metadata": {"tags": ["parameters"]}, "source": source}
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [code]}))
