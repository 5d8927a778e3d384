"""A cluster whose jobs start and end as a test wants, and ``run``: a bench on it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from notebook_launcher.bench import command
from notebook_launcher.bench.request import BenchRequest, BenchTiming
from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import HostCommandFailed
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.request import Request
from notebook_launcher.core.timestamps import iso
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.jobs.session_index import JobQueue, Listing, SessionFiles, SessionIndex, build_index
from notebook_launcher.launch import OfferImage, no_offer
from notebook_launcher.planning.plan import Plan
from notebook_launcher.planning.target import LaunchOptions, LaunchTarget, LocalMachine
from notebook_launcher.profiles import ClusterProfile, Environment
from notebook_launcher.schedulers.base import JobRef, JobStatus, Scheduler, State
from notebook_launcher.schedulers.slurm.commands import Slurm
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session, new_session
from tests.doubles import FakePrompts, RecordingView
from tests.unit.bench.test_report import record

PROFILE = ClusterProfile(environments={"tf-gpu": Environment(), "tf-mkl": Environment()})
TIMING = BenchTiming(appears_within=0.3, visible_within=0.6, retry_pause=0.01)
CELLS: list[dict[str, Any]] = [
    {
        "cell_type": "code",
        "id": "p",
        "metadata": {"tags": ["parameters"]},
        "source": "EPOCHS = 1\nWIDE = 1",
        "execution_count": None,
        "outputs": [],
    },
    {"cell_type": "code", "id": "c", "metadata": {}, "source": "import helper", "execution_count": None, "outputs": []},
]


class Killed(BaseException):
    """The launcher ends here, without a word and without tidying up."""


def killed(_session: Session) -> None:
    raise Killed


class FakeCluster:
    """Sessions whose jobs end as the test wants. ``queued``: the sessions whose jobs were queued, in that order.

    A test may set any of its functions to one of its own.
    """

    def __init__(self) -> None:
        self.host = FakeLogin()
        self.queued: list[str] = []
        self.sessions: dict[str, Session] = {}
        self.parameters: dict[str, dict[str, object]] = {}
        self.flags: dict[str, dict[str, str | None]] = {}
        self.files: dict[str, dict[str, dict[str, object]]] = {}
        self.exit_of: Callable[[Session], dict[str, object] | None] = lambda _session: {"cause": "finished"}
        self.at_queueing: Callable[[Session], None] = lambda _session: None
        self.after_queueing: Callable[[Session], None] = lambda _session: None
        self.look: Callable[[Context], SessionIndex] = self.usual_look
        self.fetch: Callable[[Context, Session, Path], None] = self.usual_fetch
        self.cancel: Callable[[list[Session]], None] = self.usual_cancel
        self.discarded: list[str] = []
        self.sent: list[dict[str, bytes]] = []
        self.waits: dict[str, str] = {}  # why, by the session
        self.places = self.connections = self.most = 0
        self.silent = False
        self.scheduler: Scheduler = Slurm()

    def find_target(self, options: LaunchOptions, _here: LocalMachine) -> LaunchTarget:
        self.places += 1
        return LaunchTarget(PROFILE, options.cluster or "practice", None, "slurm")

    def queue_run(
        self, plan: Plan, context: Context, prepared: Any, *, written: Callable[[Session], None]
    ) -> tuple[Session, None]:
        session = new_session(
            "/sessions",
            plan.request,
            scheduler="slurm",
            cluster=None,
            host=None,
            environment=plan.environment_name,
            now=context.site.now,
            program="notebook",
        )
        self.sessions[session.id] = session
        self.parameters[session.id] = dict(prepared.parameters)
        self.sent.append(dict(prepared.dependencies))
        self.flags[session.id] = dict(plan.request.flags)
        written(session)
        self.at_queueing(session)
        self.sessions[session.id] = session = dataclasses.replace(session, job=JobRef(str(len(self.queued) + 1)))
        self.queued.append(session.id)
        self.files[session.id] = {}
        self.most = max(self.most, sum("exit" not in files for files in self.files.values()))
        self.after_queueing(session)
        return session, None

    def usual_look(self, context: Context) -> SessionIndex:
        """Let each job that runs end, and each that waits start."""
        now = context.clock()
        for session_id, files in self.files.items():
            if session_id in self.waits:
                continue
            if "started" in files and "exit" not in files and (end := self.exit_of(self.sessions[session_id])):
                files["exit"] = end
            files.setdefault("started", {"node": "node1", "started": iso(now)})
        records = tuple(
            SessionFiles(session, self.files.get(name, {}).get("started"), None, self.files.get(name, {}).get("exit"))
            for name, session in self.sessions.items()
        )
        states = {
            session.job.id: JobStatus(session.job, State.PENDING, self.waits[name])
            if name in self.waits
            else JobStatus(session.job, State.COMPLETED if "exit" in self.files[name] else State.RUNNING)
            for name, session in self.sessions.items()
            if session.job
        }
        return build_index(Listing(records, whole=True), {JobQueue("slurm"): None if self.silent else states}, now)

    def unseen(self, context: Context) -> SessionIndex:
        """A lookup that lists no session."""
        return build_index(Listing((), whole=True), {}, context.clock())

    def usual_fetch(self, _context: Context, session: Session, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if self.files[session.id].get("exit", {}).get("cause") == "finished":
            (folder / "results.jsonl").write_text(record(median=1.0 + len(self.queued) / 10) + "\n")

    def usual_cancel(self, sessions: list[Session]) -> None:
        for session in sessions:
            self.files[session.id]["exit"] = {"cause": "stopped"}

    def discard(self, _host: object, session: Session) -> None:
        self.discarded.append(session.id)
        del self.sessions[session.id]

    def refuse(self, session: Session, error: Exception) -> None:
        """Refuse to queue a session's job."""
        del self.sessions[session.id]
        raise error

    def fail_with(self, epochs: int) -> None:
        """Let the runs with so many epochs fail from now on."""

        def exit_of(session: Session) -> dict[str, object]:
            broken = self.parameters[session.id].get("EPOCHS") == epochs
            message = "Cell 2 of 2 (Train) failed: ValueError: no."
            failed: dict[str, object] = {"cause": "notebook-failed", "message": message, "exit_code": 1}
            return failed if broken else {"cause": "finished"}

        self.exit_of = exit_of

    @property
    def epochs(self) -> list[object]:
        return [self.parameters[session].get("EPOCHS") for session in self.queued]


class FakeLogin(LocalHost):
    """A login node that is there, until it is not. ``in_queue``: rows of squeue, a job, its name, its script."""

    remote = True

    def __init__(self) -> None:
        super().__init__()
        self.reconnected = 0
        self.in_queue: list[str] = []
        self.queue_fails = 0

    def run(self, argv: Any, **_: object) -> CommandResult:  # type: ignore[override]
        if "squeue" in argv:
            return CommandResult(self.queue_fails, "".join(f"{row}\n" for row in self.in_queue), "")
        return CommandResult(1, "", "")

    def stream(self, *_: object) -> Any:
        raise HostCommandFailed("no streams here")

    def reconnect(self, timeout: float = 10.0, replace: Callable[[], bool] = lambda: True) -> None:
        assert replace()
        self.reconnected += 1


class BenchView(RecordingView):
    """What a bench shows."""

    @property
    def text(self) -> str:
        """What happened, and then the notes, a line each."""
        return "\n".join([*(step.what for step in self.steps), self.notes])

    @property
    def steps(self) -> list[events.BenchProgress]:
        return self.all(events.BenchProgress)

    @property
    def report(self) -> events.BenchReported:
        return self.all(events.BenchReported)[-1]


def write_notebook(cells: list[dict[str, Any]], name: str = "tiny.ipynb") -> None:
    python = {"kernelspec": {"name": "python3", "display_name": "Python 3"}, "language_info": {"name": "python"}}
    Path(name).write_text(json.dumps({"cells": cells, "metadata": python, "nbformat": 4, "nbformat_minor": 5}))


def run(
    matrix: str = "EPOCHS=1,2,3,4,5,6",
    *,
    flags: dict[str, str | None] | None = None,
    words: tuple[str, ...] = (),
    at: str | None = None,
    view: BenchView | None = None,
    prompts: FakePrompts | None = None,
    interrupts: Interrupts | None = None,
    timing: BenchTiming = TIMING,
    offer_image: OfferImage = no_offer,
    **wanted: Any,
) -> BenchView:
    """Run a bench, and return what it has shown."""
    view = view or BenchView()
    request = BenchRequest(matrix, wanted.pop("notebook", "tiny.ipynb"), **wanted)
    options, here = LaunchOptions(flags or {}, cluster=at, arguments=words), LocalMachine("laptop")
    prompts, interrupts = prompts or FakePrompts(asks=False), interrupts or Interrupts()
    command.bench(options, here, request, view, prompts, interrupts, timing, offer_image)
    return view


def states(folder: str = "bench-tiny") -> dict[str, str]:
    """The states of all combinations in a bench's journal."""
    entries = json.loads(Path(folder, "bench.json").read_text())["entries"]
    return {entry["name"]: entry["state"] for entry in entries}


def plan_for(options: LaunchOptions, target: LaunchTarget) -> Plan:
    return Plan(
        target,
        Request(dict(options.flags)),
        options.arguments[0] if options.arguments else None,
        Environment(),
        None,
        user_flags=frozenset(options.flags),
    )


def now() -> datetime:
    return datetime.now().astimezone()
