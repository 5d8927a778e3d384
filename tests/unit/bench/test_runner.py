"""The story of a bench, with a cluster of the test's own that keeps count of what was queued."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import json
import queue
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from notebook_launcher.bench import journal as ledger
from notebook_launcher.bench import runner as story
from notebook_launcher.bench.runner import BenchWish
from notebook_launcher.cli.views.bench import report_lines
from notebook_launcher.core.command_result import Answer
from notebook_launcher.core.errors import (
    AccountRefused,
    BenchIncomplete,
    ConnectionLost,
    CopyFailed,
    EnvironmentUnknown,
    GresRefused,
    HostCommandFailed,
    Interrupted,
    LimitRefused,
    NotebookInvalid,
    SchedulerAway,
    SchedulerSilent,
    SubmitUncertain,
    UsageError,
)
from notebook_launcher.core.events import launch as events
from notebook_launcher.core.interrupts import HungUp, Interrupts
from notebook_launcher.core.timestamps import iso
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.jobs.polling import Pace
from notebook_launcher.jobs.session_index import Catalogue, Queue, Reading, Record, join
from notebook_launcher.planning.plan import Ask, Here, Place, Plan
from notebook_launcher.profiles import ClusterProfile, Environment
from notebook_launcher.schedulers.base import JobRef, JobStatus, Scheduler, State
from notebook_launcher.schedulers.local import Local
from notebook_launcher.schedulers.slurm.commands import Slurm
from notebook_launcher.session.context import Stage
from notebook_launcher.session.record import Session, Site, new_session
from notebook_launcher.tunnel.reconnect import CountedPrompts
from tests.unit.bench.test_report import record

NOW = datetime.now().astimezone()
PROFILE = ClusterProfile(environments={"tf-gpu": Environment(), "tf-mkl": Environment()})
CELLS = [
    {"cell_type": "code", "id": "p", "metadata": {"tags": ["parameters"]}, "source": "EPOCHS = 1\nWIDE = 1",
     "execution_count": None, "outputs": []},
    {"cell_type": "code", "id": "c", "metadata": {}, "source": "import helper", "execution_count": None, "outputs": []},
]  # fmt: skip


class Killed(BaseException):
    """The launcher ends here, without a word and without tidying up."""


class Cluster:
    """Sessions whose jobs end as the test wishes. ``queued``: the names of the combinations, as their jobs came."""

    def __init__(self) -> None:
        self.host = Host(self)
        self.queued: list[str] = []
        self.sessions: dict[str, Session] = {}
        self.parameters: dict[str, dict[str, object]] = {}
        self.flags: dict[str, dict[str, str | None]] = {}
        self.files: dict[str, dict[str, dict[str, object]]] = {}
        self.ends: Callable[[Session], dict[str, object] | None] = lambda _session: {"cause": "finished"}
        self.at_queueing: Callable[[Session], None] = lambda _session: None
        self.after_queueing: Callable[[Session], None] = lambda _session: None
        self.discarded: list[str] = []
        self.sent: list[dict[str, bytes]] = []
        self.waits: dict[str, str] = {}  # why, by the session
        self.connections = self.most = 0
        self.silent = False
        self.scheduler: Scheduler = Slurm()

    def queue_run(
        self, plan: Plan, stage: Stage, prepared: Any, *, written: Callable[[Session], None]
    ) -> tuple[Session, None]:
        session = new_session("/sessions", plan.request, scheduler="slurm", cluster=None, host=None,
                              environment=plan.environment_name, now=stage.site.now, program="notebook")  # fmt: skip
        self.sessions[session.id] = session
        self.parameters[session.id] = dict(prepared.parameters)
        self.sent.append(dict(prepared.companions))
        self.flags[session.id] = dict(plan.request.flags)
        written(session)
        self.at_queueing(session)
        self.sessions[session.id] = session = dataclasses.replace(session, job=JobRef(str(len(self.queued) + 1)))
        self.queued.append(session.id)
        self.files[session.id] = {}
        self.most = max(self.most, sum("exit" not in files for files in self.files.values()))
        self.after_queueing(session)
        return session, None

    def look(self, stage: Stage, **_: object) -> Catalogue:
        """Let each job that runs end, and each that waits start."""
        now = stage.clock()
        for session_id, files in self.files.items():
            if session_id in self.waits:
                continue
            if "started" in files and "exit" not in files and (end := self.ends(self.sessions[session_id])):
                files["exit"] = end
            files.setdefault("started", {"node": "node1", "started": iso(now)})
        records = tuple(
            Record(session, self.files.get(name, {}).get("started"), None, self.files.get(name, {}).get("exit"))
            for name, session in self.sessions.items()
        )
        told = {
            session.job.id: JobStatus(session.job, State.PENDING, self.waits[name])
            if name in self.waits
            else JobStatus(session.job, State.COMPLETED if "exit" in self.files[name] else State.RUNNING)
            for name, session in self.sessions.items()
            if session.job
        }
        return join(Reading(records, whole=True), {Queue("slurm"): None if self.silent else told}, now)

    def fetch(self, _stage: Stage, session: Session, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if self.files[session.id].get("exit", {}).get("cause") == "finished":
            (folder / "results.jsonl").write_text(record(median=1.0 + len(self.queued) / 10) + "\n")

    def discard(self, _host: object, session: Session) -> None:
        self.discarded.append(session.id)
        del self.sessions[session.id]

    @property
    def epochs(self) -> list[object]:
        return [self.parameters[session].get("EPOCHS") for session in self.queued]


class Host(LocalHost):
    """A login node that is there, until it is not."""

    remote = True

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.cluster = cluster
        self.reconnected = 0
        self.in_queue: list[str] = []  # what squeue tells: a job, its name, its script
        self.queue_fails = 0

    def run(self, argv: Any, **_: object) -> Answer:  # type: ignore[override]
        if "squeue" in argv:
            return Answer(self.queue_fails, "".join(f"{row}\n" for row in self.in_queue), "")
        return Answer(1, "", "")

    def stream(self, *_: object) -> Any:
        raise HostCommandFailed("no streams here")

    def reconnect(self, timeout: float = 10.0, replace: Callable[[], bool] = lambda: True) -> None:
        assert replace()
        self.reconnected += 1


class Shown:
    """A view that remembers, and the prompts of somebody who is not there, or says ``answer``."""

    def __init__(self) -> None:
        self.events: list[events.Event] = []
        self.asks, self.answer, self.asked = False, None, ""

    def show(self, event: events.Event) -> None:
        self.events.append(event)

    def listen(self, inbox: queue.SimpleQueue[object]) -> None:
        pass

    def secret(self, text: str, *, echo: bool = False) -> str | None:
        return None

    def line(self, text: str) -> str | None:
        return None

    def confirm(self, text: str) -> bool | None:
        self.asked += text
        return self.answer

    @property
    def said(self) -> str:
        steps = (event.what for event in self.events if isinstance(event, events.BenchStep))
        return "\n".join([*steps, *(event.text for event in self.events if isinstance(event, events.Noted))])

    @property
    def steps(self) -> list[events.BenchStep]:
        return [event for event in self.events if isinstance(event, events.BenchStep)]

    @property
    def report(self) -> events.BenchReported:
        return [event for event in self.events if isinstance(event, events.BenchReported)][-1]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cluster:
    cluster = Cluster()

    @contextlib.contextmanager
    def open_stage(place: Place, view: Any, prompts: Any, interrupts: Interrupts) -> Iterator[Stage]:
        cluster.connections += 1
        site = Site("/home/alice", "alice", "login", datetime.now().astimezone())
        yield Stage(
            place, cluster.host, site, cluster.scheduler, "/sessions", view, CountedPrompts(prompts), interrupts
        )

    def make_plan(ask: Ask, _here: Here) -> Plan:
        name = ask.words[0] if ask.words else None
        if name not in (None, *PROFILE.environments):
            raise EnvironmentUnknown(f"There is no environment “{name}”.")
        place = Place(PROFILE, ask.cluster or "practice", None, "slurm")
        return Plan(place, story.Request(dict(ask.flags)), name, Environment(), None, asked=frozenset(ask.flags))

    class Quick(Pace):
        def after_answer(self, start_in: float | None = None) -> float:
            return 0.01

        def after_silence(self) -> float:
            return 0.01

    for name, value in {
        "open_stage": open_stage, "make_plan": make_plan, "settle": lambda ask, *_: ask, "queue_run": cluster.queue_run,
        "look": cluster.look, "fetch_results": cluster.fetch, "discard_session": cluster.discard, "Pace": Quick,
        "read_job": lambda *_: None, "APPEARS_WITHIN": 0.3, "SEEN_WITHIN": 1.5, "AGAIN_AFTER": 0.01,
        "draw_all": lambda _report: [],
        "end_jobs": lambda _stage, ended: [cluster.files[one.id].update(exit={"cause": "stopped"}) for one in ended],
    }.items():  # fmt: skip
        monkeypatch.setattr(story, name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "helper.py").write_text("x = 1\n")
    write_notebook(CELLS)
    return cluster


def write_notebook(cells: list[dict[str, Any]], name: str = "tiny.ipynb") -> None:
    python = {"kernelspec": {"name": "python3", "display_name": "Python 3"}, "language_info": {"name": "python"}}
    Path(name).write_text(json.dumps({"cells": cells, "metadata": python, "nbformat": 4, "nbformat_minor": 5}))


def run(
    matrix: str = "EPOCHS=1,2,3,4,5,6", *, flags: dict[str, str | None] | None = None, words: tuple[str, ...] = (),
    at: str | None = None, shown: Shown | None = None, interrupts: Interrupts | None = None, **wish: Any,
) -> Shown:  # fmt: skip
    shown = shown or Shown()
    said = BenchWish(matrix, wish.pop("notebook", "tiny.ipynb"), **wish)
    ask, here = Ask(flags or {}, cluster=at, words=words), Here("laptop", has_slurm=False)
    story.bench(ask, here, said, shown, shown, interrupts or Interrupts())
    return shown


def states(folder: str = "bench-tiny") -> dict[str, str]:
    entries = json.loads(Path(folder, "bench.json").read_text())["entries"]
    return {entry["name"]: entry["state"] for entry in entries}


# --- all goes well ------------------------------------------------------------------------------------------------


def test_all_combinations_run_some_at_once_and_are_reported(cluster: Cluster) -> None:
    shown = run("env=tf-gpu,tf-mkl cores=1,4 gpus=0,1", flags={"time": "5"}, at_once=3)
    assert len(cluster.queued) == 8
    assert cluster.most == 3
    assert cluster.connections == 1
    assert set(states().values()) == {"done"}
    assert cluster.flags[cluster.queued[1]] == {"time": "5", "ntasks": "1", "cpus-per-task": "1", "gpus": "1"}
    assert shown.report.rows == 8
    for name in ("html", "md", "csv"):
        text = Path("bench-tiny", f"report.{name}").read_text()
        assert "tf-mkl" in text
    assert Path("bench-tiny").stat().st_mode & 0o777 == 0o700
    assert Path("bench-tiny/bench.json").stat().st_mode & 0o777 == 0o600
    last = shown.steps[-1]
    assert (last.waiting, last.running, len(last.done), last.failed) == ((), (), 8, ())


def test_a_second_call_queues_nothing_and_does_not_even_connect(cluster: Cluster) -> None:
    run()
    shown = run()
    assert len(cluster.queued) == 6
    assert cluster.connections == 1
    assert "nothing is queued" in shown.said
    assert shown.report.rows == 6


def test_a_larger_matrix_adds_to_what_is_there(cluster: Cluster) -> None:
    run("EPOCHS=1,2")
    run("EPOCHS=2,3")
    assert cluster.epochs == [1, 2, 3]
    assert list(states()) == ["EPOCHS=1", "EPOCHS=2", "EPOCHS=3"]
    assert "EPOCHS=1" in Path("bench-tiny/report.md").read_text()


def test_parameters_for_all_and_an_environment_for_all(cluster: Cluster) -> None:
    run("cores=1", pairs=(("EPOCHS", "3"),), words=("tf-mkl",))
    (session,) = cluster.queued
    assert cluster.parameters[session] == {"EPOCHS": 3}
    assert cluster.sessions[session].record.environment == "tf-mkl"


# --- some fail ----------------------------------------------------------------------------------------------------


def fails(epochs: int, cluster: Cluster, cause: str = "notebook-failed") -> None:
    def ends(session: Session) -> dict[str, object]:
        broken = cluster.parameters[session.id].get("EPOCHS") == epochs
        message = "Cell 2 of 2 (Train) failed: ValueError: no."
        return {"cause": cause, "message": message, "exit_code": 1} if broken else {"cause": "finished"}

    cluster.ends = ends


def test_what_failed_stands_there_with_why_and_is_run_again_only_when_told(cluster: Cluster) -> None:
    fails(2, cluster)
    with pytest.raises(BenchIncomplete, match="1 of 3 combinations failed") as caught:
        run("EPOCHS=1,2,3")
    assert "EPOCHS=2: " in caught.value.why
    assert "ValueError: no" in caught.value.why
    assert states() == {"EPOCHS=1": "done", "EPOCHS=2": "failed", "EPOCHS=3": "done"}
    assert "ValueError: no" in Path("bench-tiny/report.html").read_text()
    with pytest.raises(BenchIncomplete):
        run("EPOCHS=1,2,3")
    assert cluster.epochs == [1, 2, 3]
    cluster.ends = lambda _session: {"cause": "finished"}
    run("EPOCHS=1,2,3", retry_failed=True)
    assert cluster.epochs == [1, 2, 3, 2]
    assert set(states().values()) == {"done"}
    assert sorted(path.name for path in Path("bench-tiny/runs").iterdir()) == ["EPOCHS=1", "EPOCHS=2", "EPOCHS=2-2",
                                                                              "EPOCHS=3"]  # fmt: skip


def test_a_job_that_the_scheduler_puts_back_goes_on(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = iter([{"cause": "stopped", "message": "preempted"}])
    cluster.ends = lambda _session: next(ends, {"cause": "finished"})

    def final_status(_stage: Stage, session: Session, _record: object) -> JobStatus:
        cluster.files[session.id].clear()  # it runs anew, in the same directory
        return JobStatus(JobRef("1"), State.PENDING)

    monkeypatch.setattr(story, "final_status", final_status)
    run("EPOCHS=1")
    assert len(cluster.queued) == 1
    assert states() == {"EPOCHS=1": "done"}


def test_a_refusal_of_one_is_one_failure(cluster: Cluster) -> None:
    def refuse(session: Session) -> None:
        if cluster.flags[session.id].get("gpus") == "1":
            del cluster.sessions[session.id]
            raise GresRefused("Slurm refused the job.", why="There is no GPU there.")

    cluster.at_queueing = refuse
    with pytest.raises(BenchIncomplete, match="1 of 2") as caught:
        run("gpus=0,1")
    assert "There is no GPU there." in caught.value.why
    assert states() == {"gpus=0": "done", "gpus=1": "failed"}


def test_what_refuses_all_of_them_ends_the_work_at_once(cluster: Cluster) -> None:
    def refuse(session: Session) -> None:
        del cluster.sessions[session.id]
        raise AccountRefused("The account is not yours.")

    cluster.at_queueing = refuse
    with pytest.raises(AccountRefused):
        run()
    assert set(states().values()) == {"planned"}
    cluster.at_queueing = lambda _session: None
    run()
    assert len(cluster.queued) == 6


def test_a_limit_on_jobs_is_kept_to(cluster: Cluster) -> None:
    def refuse(session: Session) -> None:
        if sum("exit" not in files for files in cluster.files.values()) >= 2:
            del cluster.sessions[session.id]
            raise LimitRefused("No more than two jobs.")

    cluster.at_queueing = refuse
    shown = run()
    assert len(cluster.queued) == 6
    assert cluster.most == 2
    assert shown.said.count("No more than 2 jobs are taken at once") == 1


def test_a_scheduler_that_is_away_is_tried_again_and_then_given_up(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = iter(range(3))

    def away(session: Session) -> None:
        if next(refusals, None) is not None:
            del cluster.sessions[session.id]
            raise SchedulerAway("The scheduler does not answer.")

    cluster.at_queueing = away
    run("EPOCHS=1,2")
    assert cluster.epochs == [1, 2]
    monkeypatch.setattr(story, "AWAY_WITHIN", 0.05)
    refusals = iter(range(1000))
    with pytest.raises(SchedulerAway) as caught:
        run("EPOCHS=3")
    assert "the same command goes on" in caught.value.mend


def test_only_what_the_matrix_has_is_run_again_and_counts(cluster: Cluster) -> None:
    fails(1, cluster)
    with pytest.raises(BenchIncomplete, match="1 of 1 combinations failed"):
        run("EPOCHS=1")
    run("EPOCHS=2", retry_failed=True)
    assert cluster.epochs == [1, 2]
    assert states() == {"EPOCHS=1": "failed", "EPOCHS=2": "done"}


def test_a_limit_that_lets_nothing_in_ends_the_work(cluster: Cluster) -> None:
    def refuse(session: Session) -> None:
        del cluster.sessions[session.id]
        raise LimitRefused("No more jobs of yours are taken.")

    cluster.at_queueing = refuse
    for matrix in ("EPOCHS=1,2,3", "cores=1,2"):
        with pytest.raises(LimitRefused):
            run(matrix, output=Path(matrix[:5]))
        assert set(states(matrix[:5]).values()) == {"planned"}


def test_a_limit_that_others_use_up_is_waited_for_and_not_for_ever(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = iter(range(3))

    def refuse(session: Session) -> None:
        if cluster.queued and next(refusals, None) is not None:
            del cluster.sessions[session.id]
            raise LimitRefused("No more jobs of yours are taken.")

    cluster.at_queueing = refuse
    run("EPOCHS=1,2", at_once=1)
    assert set(states().values()) == {"done"}
    monkeypatch.setattr(story, "AWAY_WITHIN", 0.05)
    cluster.queued.clear()
    refusals = iter(range(100_000))
    with pytest.raises(LimitRefused) as caught:
        run("EPOCHS=3,4", at_once=1)
    assert "the same command goes on" in caught.value.mend


def test_one_that_is_too_large_for_a_limit_fails_and_the_others_go_on(cluster: Cluster) -> None:
    def refuse(session: Session) -> None:
        if cluster.flags[session.id]["cpus-per-task"] == "64":
            del cluster.sessions[session.id]
            raise LimitRefused("More cores than you may have.")

    cluster.at_queueing = refuse
    with pytest.raises(BenchIncomplete, match="1 of 3 combinations failed"):
        run("cores=64,1,2")
    assert states() == {"cores=64": "failed", "cores=1": "done", "cores=2": "done"}


def test_why_a_job_waits_is_said_once_and_when_it_changes(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    told = iter(["Priority"] * 5 + ["PartitionTimeLimit"] * 5)

    def look(stage: Stage, **_: object) -> Catalogue:
        reason = next(told, "")
        cluster.waits = dict.fromkeys(cluster.queued, reason) if reason else {}
        return cluster.look(stage)

    monkeypatch.setattr(story, "look", look)
    shown = run("EPOCHS=1,2")
    waits = [line for line in shown.said.splitlines() if "other jobs are ahead in the queue" in line]
    assert waits in (["EPOCHS=1, EPOCHS=2 wait: other jobs are ahead in the queue."],
                     [f"EPOCHS={number} waits: other jobs are ahead in the queue." for number in (1, 2)])  # fmt: skip
    for number, session in enumerate(cluster.queued, 1):
        never = [line for line in shown.said.splitlines() if f"EPOCHS={number} can never start" in line]
        assert len(never) == 1
        assert "its walltime is longer than the partition allows" in never[0]
        assert f"launch-notebook stop {session}" in shown.said


def test_results_that_do_not_come_are_left_for_the_next_time(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(stage: Stage, session: Session, folder: Path) -> None:
        if cluster.parameters[session.id]["EPOCHS"] == 1:
            raise CopyFailed("They did not come whole.")
        cluster.fetch(stage, session, folder)

    monkeypatch.setattr(story, "fetch_results", fetch)
    for _ in range(2):
        with pytest.raises(BenchIncomplete, match="The results of 1 could not be fetched") as caught:
            run("EPOCHS=1,2,3", at_once=1)
        assert "They did not come whole." in caught.value.why
        assert states() == {"EPOCHS=1": "queued", "EPOCHS=2": "done", "EPOCHS=3": "done"}
    assert "not fetched" in Path("bench-tiny/report.md").read_text()
    monkeypatch.setattr(story, "fetch_results", cluster.fetch)
    run("EPOCHS=1,2,3")
    assert set(states().values()) == {"done"}
    assert cluster.epochs == [1, 2, 3]
    assert "did not come" not in Path("bench-tiny/report.md").read_text()


def test_a_full_disk_here_ends_the_work(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(*_: object) -> None:
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError:
            raise CopyFailed("They cannot be kept.", mend="make room here") from None

    monkeypatch.setattr(story, "fetch_results", fetch)
    with pytest.raises(CopyFailed) as caught:
        run("EPOCHS=1,2,3", at_once=1)
    assert "the same command goes on" in caught.value.mend
    assert cluster.epochs == [1]


# --- killed, and run again ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(1, 7))
def test_killed_just_after_a_job_was_queued_and_run_again(cluster: Cluster, at: int) -> None:
    """The id of the session is noted by then, that of the job is not."""

    def kill(session: Session) -> None:
        if len(cluster.queued) == at:
            raise Killed

    cluster.after_queueing = kill
    with pytest.raises(Killed):
        run()
    cluster.after_queueing = lambda _session: None
    run()
    assert sorted(cluster.epochs) == [1, 2, 3, 4, 5, 6]  # type: ignore[type-var]
    assert set(states().values()) == {"done"}


def test_killed_before_a_job_was_queued_and_run_again(cluster: Cluster) -> None:
    def kill(session: Session) -> None:
        if len(cluster.queued) == 2:
            raise Killed

    cluster.at_queueing = kill
    with pytest.raises(Killed):
        run()
    cluster.at_queueing = lambda _session: None
    shown = run()
    assert sorted(cluster.epochs) == [1, 2, 3, 4, 5, 6]  # type: ignore[type-var]
    assert len(cluster.discarded) == 1  # so that nobody can queue it any more
    assert "was not queued; it is queued again" in shown.said


def test_a_job_whose_number_nobody_has_noted_is_found_in_the_queue(cluster: Cluster) -> None:
    def kill(session: Session) -> None:
        raise Killed

    cluster.at_queueing = kill
    with pytest.raises(Killed):
        run("EPOCHS=1")
    (session,) = cluster.sessions.values()
    cluster.files[session.id] = {}
    cluster.host.queue_fails = 1
    with pytest.raises(SchedulerSilent) as caught:  # then nothing is queued, and nothing is taken away
        run("EPOCHS=1")
    assert "the same command goes on" in caught.value.mend
    cluster.host.queue_fails, cluster.host.in_queue = 0, [f"77|{session.id}|/x"]
    run("EPOCHS=1")
    assert (cluster.queued, cluster.discarded) == ([], [])
    assert states() == {"EPOCHS=1": "done"}


def test_killed_while_results_are_fetched_and_run_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(story, "fetch_results", kill)
    with pytest.raises(Killed):
        run("EPOCHS=1,2")
    monkeypatch.setattr(story, "fetch_results", cluster.fetch)
    run("EPOCHS=1,2")
    assert sorted(cluster.epochs) == [1, 2]  # type: ignore[type-var]
    assert set(states().values()) == {"done"}


@pytest.mark.parametrize("misses", [1, 2])
def test_a_job_that_a_look_does_not_list_is_looked_for_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, misses: int
) -> None:
    """A file server that is behind shows no directory for a moment."""
    cluster.after_queueing = killed
    with pytest.raises(Killed):
        run("EPOCHS=1")
    cluster.after_queueing = lambda _session: None
    behind = iter(range(misses))
    monkeypatch.setattr(story, "look", lambda stage, **_: unseen(cluster, stage, behind))
    shown = run("EPOCHS=1")
    assert (len(cluster.queued), states()) == (1, {"EPOCHS=1": "done"})
    assert shown.said.count("looked for once more") == 1


def test_a_job_in_the_queue_is_not_queued_again_where_its_directory_stays_away(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.after_queueing = killed
    with pytest.raises(Killed):
        run("EPOCHS=1")
    cluster.after_queueing = lambda _session: None
    (session,) = cluster.queued
    monkeypatch.setattr(story, "look", lambda stage, **_: unseen(cluster, stage, itertools.count()))
    for fails, rows in ((0, [f"77|{session}|/x"]), (1, [])):
        cluster.host.queue_fails, cluster.host.in_queue = fails, rows
        with pytest.raises(SchedulerSilent, match="is not known"):
            run("EPOCHS=1")
    assert len(cluster.queued) == 1


def killed(_session: Session) -> None:
    raise Killed


def unseen(cluster: Cluster, stage: Stage, misses: Iterator[int]) -> Catalogue:
    """Look at the sessions; as often as ``misses`` lasts, nothing of them is seen."""
    if next(misses, None) is None:
        return cluster.look(stage)
    return join(Reading((), whole=True), {}, stage.clock())


# --- the connection -----------------------------------------------------------------------------------------------


def test_a_lost_connection_is_mended_and_nothing_is_queued_twice(cluster: Cluster) -> None:
    lost = iter([2, 4])
    next_at = [next(lost)]

    def lose(session: Session) -> None:
        if len(cluster.queued) == next_at[0]:
            next_at[0] = next(lost, 99)
            raise ConnectionLost("The connection to login is lost.")

    cluster.after_queueing = lose
    shown = run()
    assert cluster.host.reconnected == 2
    assert sorted(cluster.epochs) == [1, 2, 3, 4, 5, 6]  # type: ignore[type-var]
    assert shown.said.count("Connected again") == 2


def test_a_connection_that_never_holds_is_given_up_with_the_way_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(*_: object, **__: object) -> Catalogue:
        raise ConnectionLost("The connection to login is lost.")

    monkeypatch.setattr(story, "look", lose)
    with pytest.raises(ConnectionLost) as caught:
        run()
    assert "the same command goes on" in caught.value.mend
    monkeypatch.setattr(story, "look", cluster.look)
    run()
    assert len(cluster.queued) == 6


def test_an_answer_that_was_not_heard_is_looked_for(cluster: Cluster) -> None:
    def unheard(session: Session) -> None:
        if len(cluster.queued) == 1:
            raise SubmitUncertain("It may have been queued.")

    cluster.after_queueing = unheard
    run("EPOCHS=1,2")
    assert sorted(cluster.epochs) == [1, 2]  # type: ignore[type-var]


def test_a_silent_scheduler_is_told_once_and_waited_for(cluster: Cluster) -> None:
    looks = iter(range(6))

    def ends(_session: Session) -> dict[str, object] | None:
        cluster.silent = next(looks, None) is not None
        return None if cluster.silent else {"cause": "finished"}

    cluster.ends = ends
    shown = run("EPOCHS=1")
    assert shown.said.count("The scheduler does not answer") == 1
    assert states() == {"EPOCHS=1": "done"}


# --- interrupted --------------------------------------------------------------------------------------------------


def interrupted(cluster: Cluster, kind: str = "end", after: int = 3) -> Interrupts:
    interrupts = Interrupts()

    def interrupt(_session: Session) -> None:
        if len(cluster.queued) == after:
            interrupts.arrive(kind)  # type: ignore[arg-type]

    cluster.after_queueing = interrupt
    cluster.ends = lambda _session: None
    return interrupts


def test_ctrl_c_where_nobody_can_be_asked_leaves_the_jobs(cluster: Cluster) -> None:
    with pytest.raises(Interrupted) as caught:
        run(interrupts=interrupted(cluster))
    assert "3 jobs go on." in caught.value.why
    assert "the same command goes on" in caught.value.mend
    cluster.ends = lambda _session: {"cause": "finished"}
    run()
    assert sorted(cluster.epochs) == [1, 2, 3, 4, 5, 6]  # type: ignore[type-var]


@pytest.mark.parametrize(("answer", "ended"), [(True, 0), (None, 0), (False, 3)])
def test_ctrl_c_asks_whether_the_jobs_go_on(cluster: Cluster, answer: bool | None, ended: int) -> None:
    shown = Shown()
    shown.asks, shown.answer = True, answer
    with pytest.raises(Interrupted):
        run(shown=shown, interrupts=interrupted(cluster))
    assert "3 jobs of this bench are in the queue or running. Let them go on?" in shown.asked
    assert sum("exit" in files for files in cluster.files.values()) == ended
    cluster.ends = lambda _session: {"cause": "finished"}
    run()
    assert set(states().values()) == {"done"}
    assert len(cluster.queued) == 6 + ended


def test_what_ended_while_the_question_stood_is_kept(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Shown):
        def confirm(self, text: str) -> bool | None:
            first, second, _ = cluster.queued
            end: dict[str, object] = {"cause": "finished"}
            cluster.files[first]["exit"] = end
            # the second one ends by itself just before it would have been ended
            monkeypatch.setattr(story, "end_jobs", lambda *_: cluster.files[second].update(exit=end))
            return False

    monkeypatch.setattr(story, "exit_record", lambda _stage, session: cluster.files[session.id].get("exit", {}))
    shown = Slow()
    shown.asks = True
    with pytest.raises(Interrupted):
        run("EPOCHS=1,2,3", shown=shown, interrupts=interrupted(cluster))
    assert list(states().values()) == ["done", "done", "planned"]
    assert Path("bench-tiny/runs/EPOCHS=2/results.jsonl").exists()
    cluster.ends = lambda _session: {"cause": "finished"}
    run("EPOCHS=1,2,3")
    assert cluster.epochs == [1, 2, 3, 3]
    assert not list(Path("bench-tiny/runs").glob("EPOCHS=3-*"))  # nothing was there that it could have covered


def test_the_command_that_ends_what_goes_on_is_told_whole(cluster: Cluster) -> None:
    with pytest.raises(Interrupted) as caught:
        run(interrupts=interrupted(cluster))
    assert f"launch-notebook stop --cluster practice {' '.join(cluster.queued)}" in caught.value.mend
    assert "stop --cluster practice --all" in story._to_end(["s"] * 20, Place(PROFILE, "practice", None, "slurm"))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Interrupted])
def test_ctrl_c_before_the_jobs_are_found_again_tells_of_them(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    with pytest.raises(Interrupted):
        run(interrupts=interrupted(cluster))

    def connect(*_: object) -> Any:
        raise kind("Interrupted.")

    monkeypatch.setattr(story, "open_stage", connect)
    with pytest.raises(Interrupted) as caught:
        run()
    assert "3 jobs were queued before" in caught.value.why
    assert " ".join(cluster.queued) in caught.value.mend


# --- this machine ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("matrix", ["cores=1,2", "gpus=0,1", "mem=1G,2G EPOCHS=1"])
def test_an_axis_without_effect_here_is_refused_before_anything_is_queued(cluster: Cluster, matrix: str) -> None:
    cluster.scheduler = Local("/sessions")
    with pytest.raises(UsageError, match="no effect on this machine"):
        run(matrix)
    assert cluster.queued == []


def test_on_this_machine_one_job_runs_at_a_time_and_that_is_said(cluster: Cluster) -> None:
    cluster.scheduler = Local("/sessions")
    shown = run("EPOCHS=1,2,3", at_once=3)
    assert cluster.most == 1
    assert len(cluster.queued) == 3
    assert "one job runs at a time" in shown.said


def test_a_closed_terminal_leaves_the_jobs(cluster: Cluster) -> None:
    with pytest.raises(HungUp):
        run(interrupts=interrupted(cluster, "leave"))
    assert list(states().values()).count("queued") == 3


# --- the folder ---------------------------------------------------------------------------------------------------


def about(folder: Path) -> dict[str, Any]:
    return {"folder": folder, "notebook": "n.ipynb", "digest": "d", "place": "practice", "asked": "", "now": NOW}


def test_a_second_launcher_at_the_same_folder_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    with (
        ledger.hold(**about(tmp_path / "bench-tiny")),
        pytest.raises(UsageError, match="Another launch-notebook is at the bench"),
    ):
        run()
    assert cluster.queued == []


@pytest.mark.parametrize("change", ["notebook", "helper"])
def test_a_changed_notebook_is_refused_and_begun_anew_when_told(cluster: Cluster, change: str) -> None:
    run("EPOCHS=1")
    if change == "notebook":
        write_notebook([*CELLS, {**CELLS[1], "id": "d", "source": "print(1)"}])
    else:
        Path("helper.py").write_text("x = 2\n")
    with pytest.raises(UsageError, match="was changed since") as caught:
        run("EPOCHS=1")
    assert "--output" in caught.value.mend
    assert "--fresh" in caught.value.mend
    run("EPOCHS=1", output=Path("other"))
    run("EPOCHS=1", fresh=True)
    assert cluster.epochs == [1, 1, 1]
    (aside,) = Path().glob("bench-tiny.2*")
    assert (aside / "runs" / "EPOCHS=1" / "results.jsonl").exists()


def test_a_mended_notebook_goes_on_where_nothing_had_a_result(cluster: Cluster) -> None:
    cluster.ends = lambda _session: {"cause": "notebook-failed", "message": "Cell 1 failed.", "exit_code": 1}
    shown = Shown()
    with pytest.raises(BenchIncomplete) as caught:
        run("EPOCHS=1,2", shown=shown)
    assert caught.value.why.count("Cell 1 failed.") == 1
    assert caught.value.why.startswith("all 2: ")
    assert "the others" not in caught.value.mend
    assert "no results" in report_lines(shown.report)[0]
    write_notebook([*CELLS, {**CELLS[1], "id": "d", "source": "print(1)"}])
    cluster.ends = lambda _session: {"cause": "finished"}
    assert "what failed is run again" in run("EPOCHS=1,2").said
    assert set(states().values()) == {"done"}
    assert cluster.epochs == [1, 2, 1, 2]
    run("EPOCHS=1,2")  # it is the notebook of these results now
    write_notebook(CELLS)
    with pytest.raises(UsageError, match="was changed since"):
        run("EPOCHS=1,2")


def test_new_outputs_in_the_notebook_are_no_change(cluster: Cluster) -> None:
    run("EPOCHS=1")
    output = {"output_type": "stream", "name": "stdout", "text": "hello"}
    write_notebook([CELLS[0], {**CELLS[1], "outputs": [output], "execution_count": 3}])
    run("EPOCHS=1")
    assert len(cluster.queued) == 1


def test_another_place_and_another_notebook_are_refused(cluster: Cluster) -> None:
    run("EPOCHS=1")
    with pytest.raises(UsageError, match="of another place, practice"):
        run("EPOCHS=1", at="elsewhere")
    write_notebook(CELLS, "other.ipynb")
    with pytest.raises(UsageError, match=r"of another notebook, tiny\.ipynb"):
        run("EPOCHS=1", notebook="other.ipynb", output=Path("bench-tiny"))


def test_a_folder_of_something_else_and_a_damaged_ledger_are_refused(cluster: Cluster) -> None:
    Path("full").mkdir()
    Path("full/thesis.tex").write_text("mine")
    with pytest.raises(UsageError, match="is not empty, and no bench"):
        run(output=Path("full"))
    run("EPOCHS=1")
    Path("bench-tiny/bench.json").write_text('{"version": 1, "id"')
    with pytest.raises(UsageError, match=r"bench\.json cannot be read"):
        run("EPOCHS=1")
    run("EPOCHS=1", fresh=True)
    assert len(cluster.queued) == 2


def test_other_flags_beside_the_matrix_are_refused(cluster: Cluster) -> None:
    run("EPOCHS=1", flags={"mem": "4G", "time": "5"}, words=("tf-gpu",))
    run("EPOCHS=1,2", flags={"mem": "4G", "time": "9", "mail-user": "a@b"}, words=("tf-gpu",))
    for flags, words in (({"mem": "64G"}, ("tf-gpu",)), ({"mem": "4G"}, ("tf-mkl",)), ({}, ("tf-gpu",))):
        with pytest.raises(UsageError, match="asked for with other words beside the matrix") as caught:
            run("EPOCHS=3", flags=flags, words=words)  # type: ignore[arg-type]
        assert "Then: --mem=4G -- tf-gpu. Now: " in caught.value.why
        assert "--output" in caught.value.mend
        assert "--fresh" in caught.value.mend
    assert cluster.epochs == [1, 2]


def test_fresh_forgets_no_job_that_goes_on(cluster: Cluster) -> None:
    cluster.after_queueing = killed
    with pytest.raises(Killed):
        run("EPOCHS=1")
    cluster.after_queueing = lambda _session: None
    cluster.ends = lambda _session: None
    with pytest.raises(UsageError, match="has a job in the queue or running on practice") as caught:
        run("EPOCHS=1", fresh=True)
    (session,) = cluster.queued
    assert f"launch-notebook stop {session}" in caught.value.mend
    assert states() == {"EPOCHS=1": "queued"}
    with pytest.raises(UsageError, match="on practice"):  # of another place nobody here can tell
        run("EPOCHS=1", fresh=True, at="elsewhere")
    cluster.files[session]["exit"] = {"cause": "stopped"}
    cluster.ends = lambda _session: {"cause": "finished"}
    run("EPOCHS=1", fresh=True)
    assert states() == {"EPOCHS=1": "done"}
    assert len(cluster.queued) == 2


def test_what_a_killed_launcher_has_half_written_is_swept_away(cluster: Cluster) -> None:
    Path("bench-tiny").mkdir()
    Path("bench-tiny/.bench.json.ab12").write_text("{")
    run("EPOCHS=1")
    assert states() == {"EPOCHS=1": "done"}
    assert not Path("bench-tiny/.bench.json.ab12").exists()


def test_results_of_earlier_runs_do_not_go_along(cluster: Cluster) -> None:
    """Each run would report an old file of results as its own, and what a bench writes would change what is sent."""
    for name in ("results.jsonl", "runs/a/run.json", "bench-old/report.csv", "tuesday/bench.json", "data/x.csv"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("x")
    shown = run("EPOCHS=1", companions=(Path(),), output=Path("mine"))
    run("EPOCHS=1,2", companions=(Path(),), output=Path("mine"))  # its own folder is no change either
    assert cluster.epochs == [1, 2]
    assert {frozenset(sent) for sent in cluster.sent} == {frozenset({"helper.py", "data/x.csv"})}
    note = next(line for line in shown.said.splitlines() if "Not sent with the notebook" in line)
    for name in ("results.jsonl", "runs/a/run.json", "bench-old/report.csv", "tuesday/bench.json"):
        assert name in note


def test_all_combinations_share_one_copy_of_what_is_sent(cluster: Cluster) -> None:
    Path("big.bin").write_bytes(b"x" * 100_000)
    run("EPOCHS=1,2,3", companions=(Path("big.bin"),))
    assert len({id(sent["big.bin"]) for sent in cluster.sent}) == 1


# --- mistakes, before anything is contacted -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "kind", "told"),
    [
        ({"matrix": "cores=1", "flags": {"ntasks": "4"}}, UsageError, "--ntasks is said beside the matrix"),
        ({"matrix": "env=tf-gpu", "words": ("tf-mkl",)}, UsageError, "after -- as well"),
        ({"matrix": "env=nothing"}, EnvironmentUnknown, "no environment “nothing”"),
        ({"matrix": "LAYERS=1"}, NotebookInvalid, "LAYERS"),
        ({"matrix": "EPOCHS=1", "notebook": "none.ipynb"}, NotebookInvalid, "none.ipynb"),
        ({"matrix": "EPOCHS=1", "at_once": 0}, UsageError, "--at-once"),
        ({"matrix": "EPOCHS=1", "baseline": "cores=1"}, UsageError, "No combination of the matrix is “cores=1”"),
        ({"matrix": f"EPOCHS={','.join(map(str, range(101)))}"}, UsageError, "101 combinations"),
    ],
)
def test_mistakes_are_told_before_anything_is_contacted(
    cluster: Cluster, wish: dict[str, Any], kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=told):
        run(**wish)
    assert cluster.connections == 0
    assert not Path("bench-tiny").exists()
