"""The stories from the queue to the end, step by step, with everything around them made to happen on cue.

Stand-ins, all of them: ``FakeHost`` answers commands from a small model of one Slurm job (read by the real ``Slurm``
room) and its stream says what a test pushes; its connection breaks, falls silent and comes back when a test says so;
``find_way`` and ``check_jupyter`` are replaced by functions that open nothing. So this shows the order of things, the
errors, and what is cancelled and removed, for interrupts and failures between any two steps. That a real Slurm, ssh,
tunnel and JupyterLab do what is played here is ``test_main_job.py``'s.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from notebook_launcher import launch, sessions
from notebook_launcher.cli.signals import signals
from notebook_launcher.cli.views.text_view import BaseView, JsonView
from notebook_launcher.core import local_state as state
from notebook_launcher.core.command_result import Answer
from notebook_launcher.core.errors import (
    AuthenticationFailed,
    CancelFailed,
    ConnectionFailed,
    ConnectionLost,
    HostCommandFailed,
    HostKeyChanged,
    ImageUnusable,
    Interrupted,
    JobCancelled,
    JobFailed,
    JobLost,
    JobNeverStarts,
    JobSilent,
    JobTimedOut,
    JupyterCrashed,
    JupyterSilent,
    LauncherError,
    NodeFailed,
    NodeUnreachable,
    OutOfMemory,
    PartitionRefused,
    SchedulerAway,
    SchedulerSilent,
    SubmitUncertain,
    WalltimeRefused,
)
from notebook_launcher.core.events import launch as events
from notebook_launcher.core.interrupts import HungUp, Interrupt, Interrupts, Kind
from notebook_launcher.core.request import Request, merge_flags
from notebook_launcher.hosts.base import ByteStream, Host, LineStream, Link, OnEnd, OnLine, Onward, Prompts
from notebook_launcher.jobs import cancel as ending
from notebook_launcher.jobs import outcome as verdict
from notebook_launcher.jobs import polling as pace
from notebook_launcher.jobs import submit as queueing
from notebook_launcher.jobs import watcher as watch
from notebook_launcher.planning.plan import Place, Plan
from notebook_launcher.profiles import ClusterProfile, Environment
from notebook_launcher.session import connect as opening
from notebook_launcher.session.context import Typed
from notebook_launcher.supervision import jupyter as attend
from notebook_launcher.supervision import supervisor as attendance
from notebook_launcher.tunnel import forwarding as tunnel
from notebook_launcher.tunnel import node_connection as passage
from notebook_launcher.tunnel import reconnect as mending
from notebook_launcher.tunnel.forwarding import Endpoint
from notebook_launcher.tunnel.routes import Crossing

PATIENCE = 8.0  # seconds in which anything that should happen has happened; only a failing test waits so long
SESSION_ID = "20261121-014455-abcd"  # of the session that is come back to
RECORD = {"id": SESSION_ID, "created": "2026-11-21T01:44:55Z", "scheduler": "slurm", "flags": {}, "log": "/log"}
PLACE = Place(ClusterProfile(), "uni", None, "slurm")
PLAN = Plan(PLACE, Request({"time": "2:00:00"}), None, Environment(), None)

E = TypeVar("E", bound=events.Event)
Error = TypeVar("Error", bound=BaseException)


# --- the stand-ins -------------------------------------------------------------------------------------------


class Hooks:
    """What a test wants done, once, when the story comes to a step; each is run on the thread that comes there."""

    def __init__(self) -> None:
        self._at: dict[str, Callable[[], object]] = {}

    @property
    def waiting(self) -> set[str]:
        """The steps that nobody has come to yet."""
        return set(self._at)

    def at(self, step: str, act: Callable[[], object]) -> None:
        self._at[step] = act

    def reached(self, step: str) -> None:
        if step in self._at:
            self._at.pop(step)()


class FakeStream(LineStream):
    """What watch.sh would say."""

    def __init__(self, on_line: OnLine, on_end: OnEnd) -> None:
        self.on_line, self.on_end = on_line, on_end
        self.closed = self.ended = False

    def ends(self, reason: str) -> None:
        if not self.closed and not self.ended:
            self.ended = True
            self.on_end(reason)

    def send(self, line: str) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class FakeHost(Host):
    """A login node with one job, number 7. ``answers`` replaces the model's answer to one kind of command.

    ``connection``: how often it was made anew. Where it is broken (``drops``) nothing runs; where it is ``silent``
    nothing is heard, but nothing ends either. ``outcomes``: what the next attempts to make it anew do or raise, before
    they succeed, unless the host is not ``reachable``.
    """

    label = "login"
    remote = True

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks
        self.ran: list[tuple[str, str]] = []
        self.answers: dict[str, Callable[[], Answer]] = {}
        self.files: dict[str, str] = {}
        self.state, self.reason, self.node = "PENDING", "Priority", ""
        self.history = ""
        self.scancel_works = True
        self.streams: list[FakeStream] = []
        self.closed = False
        self.prompts: Prompts = NoPrompts()
        self.connection, self.connected, self.reachable, self.silent = 0, True, True, False
        self.outcomes: list[Exception | Callable[[], object]] = []
        self.attempts = 0
        self._written: dict[str, str] = {}
        self._unheard: list[str] = []
        self._asked = 0
        self._changed = threading.Condition()

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", login_shell: bool = False, timeout: float = 90.0
    ) -> Answer:
        kind = _kind(argv)
        self.ran.append((kind, " ".join(_without_env(argv))))
        self.hooks.reached(kind)
        try:
            self._reaches(argv)
            answer = self.answers[kind]() if kind in self.answers else self._answer(kind, argv)
            if "/asked.sh" in " ".join(argv[:2]):
                answer = replace(answer, stdout=f"0 2026-11-21T12:00:00+0100 alone\n{answer.stdout}")
            return answer
        finally:
            with self._changed:
                self._asked += kind == "squeue"
                self._changed.notify_all()

    def _reaches(self, argv: Sequence[str]) -> None:
        if not self.connected:
            raise ConnectionLost("The connection to login is lost.")
        if self.silent:
            raise HostCommandFailed(f"{argv[0]} did not answer within 90 s.")

    def _answer(self, kind: str, argv: Sequence[str]) -> Answer:
        if kind == "site":
            return Answer(0, "/home/alice\nalice\nlogin\n2026-11-21T12:00:00+0100\n")
        if kind == "sbatch":
            return Answer(0, "7\n")
        if kind == "squeue":
            return self.row()
        if kind == "sacct":
            return Answer(0, self.history)
        if kind == "scancel" and self.scancel_works and self.state in ("PENDING", "RUNNING", "SUSPENDED"):
            self.state = "CANCELLED"
        if kind == "list":
            record = self.files.get("session.json")
            known = f"{SESSION_ID} session {record}\n{SESSION_ID} job 7\n" if record else ""
            return Answer(0, f"sessions 1\n{known}end\n")
        if kind == "own":
            return self.row() if self.state else Answer(0)
        if kind == "head":
            name = argv[-1].rpartition("/")[2]
            return Answer(0, self.files[name]) if name in self.files else Answer(1)
        return Answer(0)

    def row(self) -> Answer:
        """What squeue says; ``state`` "" is a job that it has forgotten."""
        if not self.state:
            return Answer(1, "", "slurm_load_jobs error: Invalid job id specified")
        return Answer(0, f"7|{self.state}|core|{self.node}|N/A|N/A|proj1|normal|59:00|{self.reason}\n")

    def stream(self, argv: Sequence[str], on_line: OnLine, on_end: OnEnd) -> LineStream:
        self._reaches(argv)
        self.hooks.reached("watch")
        stream = FakeStream(on_line, on_end)
        for line in list(self._written.values()):  # as watch.sh: what is there is told first
            on_line(line)
        with self._changed:
            self.streams.append(stream)
            self._changed.notify_all()
        return stream

    def open_stream(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        raise OSError("there is nothing")

    def open_process(self, argv: Sequence[str], *, login_shell: bool = False) -> ByteStream:
        raise HostCommandFailed("there is nothing")

    def link(self, onward: Onward | None = None) -> Link:
        raise ConnectionFailed("there is nothing")

    @property
    def alive(self) -> bool:
        return self.connected and not self.closed

    def reconnect(self, timeout: float = 10.0, replace: Callable[[], bool] = lambda: True) -> None:
        with self._changed:
            self.attempts += 1
            self._changed.notify_all()
        self.hooks.reached("reconnect")
        if self.outcomes:
            outcome = self.outcomes.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            outcome()
        if not self.reachable:
            raise ConnectionFailed("login port 22 cannot be reached.", why="No route to host")
        if not replace():
            return
        self.connected = False
        self._end_streams("replaced")
        self.connection += 1
        self.connected, self.silent = True, False

    def close(self) -> None:
        self.closed = True

    # --- what the test does with it

    @property
    def watched(self) -> FakeStream:
        """The stream, once it is open."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.streams, PATIENCE), "nobody follows the session"
        return self.streams[-1]

    def says(self, name: str, **data: object) -> None:
        """Let the job write one of its files; it is in the inbox when this returns, unless nothing comes through."""
        if name == "started":
            self._written.clear()
        line = self._written[name] = f"{name} {json.dumps(data)}"
        if self.silent:
            self._unheard.append(line)
        elif self.connected:
            self.watched.on_line(line)

    def starts(self, node: str = "n1") -> None:
        """Let the job start. Its own word comes first, so that the order of events is the same every time."""
        self.says("started", node_names=[node])
        self.state, self.reason, self.node = "RUNNING", "None", node
        if self.connected:
            self.noticed()

    def drops(self, *, reachable: bool = True) -> None:
        """Break the connection, and tell everybody."""
        self.reachable, self.connected = reachable, False
        self._end_streams("the connection broke")

    def _end_streams(self, reason: str) -> None:
        for stream in self.streams:
            stream.ends(reason)

    def beats(self) -> None:
        """Give signs of life from now on."""

        def beat() -> None:
            while not self.closed:
                if self.connected and not self.silent:
                    self.watched.on_line(".")
                time.sleep(0.05)

        threading.Thread(target=beat, daemon=True).start()

    def falls_silent(self) -> None:
        """The network is cut: nothing comes through, also no new connection."""
        self.silent, self.reachable = True, False

    def is_heard_again(self) -> None:
        """The network is whole, and what was sent meanwhile arrives."""
        self.silent, self.reachable = False, True
        for line in self._unheard:
            self.watched.on_line(line)

    def is_tried(self, times: int) -> None:
        """Wait until there were so many attempts to make the connection anew."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.attempts >= times, PATIENCE), f"tried {self.attempts} times"

    def requeued(self) -> None:
        self.state, self.reason, self.node = "PENDING", "BeginTime", ""

    def noticed(self) -> None:
        """Wait until the scheduler was asked anew, and once more: the first answer is in the inbox by then."""
        with self._changed:
            began = self._asked
            assert self._changed.wait_for(lambda: self._asked >= began + 3, PATIENCE), "nobody asks the scheduler"

    def count(self, kind: str) -> int:
        return sum(ran == kind for ran, _ in self.ran)

    def commands(self, kind: str) -> list[str]:
        return [command for ran, command in self.ran if ran == kind]


def _kind(argv: Sequence[str]) -> str:
    argv = _without_env(argv)
    if argv[0] == "bash" and argv[1].endswith("/submit.sh"):
        return "sbatch"
    if argv[0] == "bash" and argv[1].endswith("/asked.sh"):
        return "squeue" if "--me" in argv else _kind(argv[4:])
    if argv[0] == "squeue":
        return "squeue" if "--me" not in argv else "own" if "--states=all" in argv else "find"
    if list(argv[:2]) == ["bash", "-s"]:
        return "list"
    if argv[0] == "sh":
        return {"write-files": "write", "read-bill": "bill"}.get(argv[3] if len(argv) > 3 else "", "site")
    return argv[0]


def _without_env(argv: Sequence[str]) -> Sequence[str]:
    """Return the command that ``env -u NAME NAME=value COMMAND`` runs."""
    if argv[0] != "env":
        return argv
    return next(argv[n:] for n in range(1, len(argv)) if argv[n - 1] != "-u" and argv[n] != "-u" and "=" not in argv[n])


class FakeLink(Link):
    """A way to a node on which nothing travels; it breaks with the connection that it was made over."""

    def __init__(self, host: FakeHost) -> None:
        self._host, self._connection = host, host.connection
        self.standing = True  # the test's to change
        self.closed = False

    def open(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        raise ConnectionRefusedError("nothing travels here")

    @property
    def alive(self) -> bool:
        over = self._host.connected and self._host.connection == self._connection
        return self.standing and not self.closed and over

    def close(self) -> None:
        self.closed = True


class FakeTunnel(tunnel.Tunnel):
    """The real one, without its ports: a second tunnel would have other ones."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._first = 50001 + 1000 * number

    def _open(self, name: object, target: tuple[str, int], wish: int = 0) -> int:
        return wish or self._first


class Ways:
    """In place of ``find_way`` and ``check_jupyter``; ``opening`` and ``reaching`` are hooks on their threads.

    ``refusals``: why the next ways cannot be made.
    """

    def __init__(self, hooks: Hooks, host: FakeHost) -> None:
        self._hooks, self._host = hooks, host
        self.links: list[FakeLink] = []
        self.threads: list[threading.Thread] = []
        self.refusals: list[Exception] = []

    def find_way(self, crossing: Crossing, stream: str, about: str) -> tuple[str, FakeLink]:
        self.threads.append(threading.current_thread())
        made = FakeLink(self._host)
        self.links.append(made)
        try:
            self._hooks.reached("opening")
            if self.refusals:
                raise self.refusals.pop(0)
            if not self._host.connected:
                raise NodeUnreachable(f"No way to {crossing.node} was found from login.")
        except Exception:
            made.closed = True  # nobody gets it
            raise
        return "node-ssh", made

    def check_jupyter(self, local_port: int, endpoint: Endpoint, token: str) -> None:
        self.threads.append(threading.current_thread())
        self._hooks.reached("reaching")


class View:
    """Keeps what is shown."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self.shown: list[events.Event] = []
        self.changed = threading.Condition()

    def show(self, event: events.Event) -> None:
        self._hooks.reached(event.name)
        with self.changed:
            self.shown.append(event)
            self.changed.notify_all()

    def listen(self, inbox: queue.SimpleQueue[object]) -> None:
        pass


class Inbox(queue.SimpleQueue[object]):
    """One whose reader does not wait long for nothing: a second without news takes a small part of one."""

    def get(self, block: bool = True, timeout: float | None = None) -> object:
        return super().get(block, timeout if timeout is None else min(timeout, 0.04))


class NoPrompts:
    """Nobody can be asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def secret(self, text: str, *, echo: bool = False) -> str | None:
        self.asked.append(text)
        return None

    def confirm(self, text: str) -> bool:
        return False


class Story:
    """A story on a thread of its own, and a test that makes things happen to it."""

    def __init__(self) -> None:
        self.hooks = Hooks()
        self.host, self.view = FakeHost(self.hooks), View(self.hooks)
        self.ways = Ways(self.hooks, self.host)
        self.tunnels: list[FakeTunnel] = []
        self.prompts = NoPrompts()
        self.interrupts = Interrupts()
        self.interrupts.inbox = Inbox()
        self.raised: BaseException | None = None
        self.blocked: list[threading.Event] = []
        self._thread: threading.Thread | None = None

    def launch(self, plan: Plan = PLAN) -> None:
        self._begin(lambda: launch.launch(plan, self.view, self.prompts, self.interrupts))

    def connect(self) -> None:
        """Come back to a session whose job, 7, is queued or runs already."""
        self._old_session()
        self._begin(lambda: sessions.connect(PLACE, "", self.view, self.prompts, self.interrupts))

    def forward(self, *ports: tuple[int, int]) -> None:
        """Hold ports of that session's node, and nothing else."""
        self._old_session()
        self._begin(lambda: sessions.forward(PLACE, ports, "", self.view, self.prompts, self.interrupts))

    def stop(self) -> None:
        self._old_session()
        self._begin(lambda: sessions.stop(PLACE, [], self.view, self.prompts, self.interrupts))

    def open_host(self, place: Place, view: View, prompts: Prompts) -> FakeHost:
        """In place of ``opening.open_host``."""
        self.host.prompts = prompts
        return self.host

    def tunnel(self) -> FakeTunnel:
        """In place of ``Tunnel``."""
        self.tunnels.append(FakeTunnel(len(self.tunnels)))
        return self.tunnels[-1]

    def _old_session(self) -> None:
        self.host.files |= {"session.json": json.dumps(RECORD), "job": "7\n", "token": "secret\n"}

    def _begin(self, act: Callable[[], None]) -> None:
        def play() -> None:
            try:
                act()
            except BaseException as error:
                self.raised = error
            with self.view.changed:
                self.view.changed.notify_all()

        self._thread = threading.Thread(target=play, daemon=True)
        self._thread.start()

    # --- what has happened

    def shown(self, kind: type[E], count: int = 1, patience: float = PATIENCE) -> E:
        """Wait for the ``count``-th event of a kind."""
        event = self.shown_or_over(kind, count, patience)
        assert event is not None, f"{kind.__name__} {count} is not among {self.view.shown}; raised: {self.raised!r}"
        return event

    def shown_or_over(self, kind: type[E], count: int = 1, patience: float = PATIENCE) -> E | None:
        """Wait for it, or for the end of the story."""

        def seen() -> list[E]:
            return [event for event in self.view.shown if isinstance(event, kind)]

        assert self._thread is not None
        with self.view.changed:
            self.view.changed.wait_for(lambda: len(seen()) >= count or not self.going, patience)
            return seen()[count - 1] if len(seen()) >= count else None

    @property
    def going(self) -> bool:
        return self.raised is None and self._thread is not None and self._thread.is_alive()

    @property
    def names(self) -> list[str]:
        """What was shown to everybody, and stays; the rest is for who asks for details, or updates in place."""
        passing = (events.Tunnelled, events.Holding)
        return [event.name for event in self.view.shown if not isinstance(event, passing)]

    @property
    def notes(self) -> list[str]:
        return [event.text for event in self.view.shown if isinstance(event, events.Noted)]

    @property
    def session_id(self) -> str:
        return self.shown(events.Submitted).session

    def over(self) -> BaseException | None:
        """Wait for the end, and return what was raised. Whatever the end, nothing stays open."""
        assert self._thread is not None
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), f"the story goes on; shown: {self.view.shown}"
        for event in self.blocked:
            event.set()
        for thread in self.ways.threads:
            thread.join(PATIENCE)
        assert all(link.closed for link in self.ways.links)
        assert all(not tunnel.alive for tunnel in self.tunnels)
        assert all(stream.closed for stream in self.host.streams)
        assert self.host.closed
        return self.raised

    def well(self) -> None:
        """It ended well."""
        raised = self.over()
        assert raised is None, repr(raised)

    def fails(self, kind: type[Error]) -> Error:
        """It ended with just this error."""
        raised = self.over()
        assert type(raised) is kind, (raised, getattr(raised, "why", ""))
        return raised

    # --- what the test does

    def presses_ctrl_c(self, times: int) -> None:
        for _ in range(times):
            self.interrupts.arrive("end")

    def types(self, line: str) -> None:
        self.interrupts.inbox.put(Typed(line))

    def blocks(self, step: str, then: Callable[[], object] | None = None) -> threading.Event:
        """Let a step wait for the event that is returned, and do something after it."""
        free = threading.Event()
        self.blocked.append(free)

        def wait() -> None:
            assert free.wait(2 * PATIENCE)
            if then:
                then()

        self.hooks.at(step, wait)
        return free

    def noted(self, text: str) -> None:
        """Wait until the user was told so."""
        deadline = time.monotonic() + PATIENCE
        while not any(text in note for note in self.notes):
            assert time.monotonic() < deadline, self.notes
            time.sleep(0.02)

    def held(self) -> events.Ready:
        """Play the good way as far as the address."""
        self.starting()
        self.host.says("endpoint", port=4242)
        return self.shown(events.Ready)

    def starting(self) -> None:
        """Play the good way as far as the way to the node; JupyterLab does not listen yet."""
        self.shown(events.Waiting)
        self.host.starts()
        self.shown(events.Tunnelled)

    def launched(self, when: str) -> None:
        """Play the good way as far as one of ``WHEN``."""
        self.launch()
        {"waiting": lambda: self.shown(events.Waiting), "starting": self.starting, "held": self.held}[when]()

    def is_mended(self, times: int = 1) -> None:
        """Wait until that is said; nothing else was, and nothing has happened to the job."""
        self.shown(events.Reconnected, times)
        assert self.names.count("disconnected") == self.names.count("reconnected") == times
        assert len(self.tunnels) == 1
        assert self.host.count("scancel") == 0

    def goes_on_to_a_good_end(self, ready: int = 1) -> None:
        """The session can be used, and ends as usual."""
        if self.host.state == "PENDING":
            self.host.starts()
        if "ready" not in self.names:
            self.host.says("endpoint", port=4242)
        assert self.shown(events.Ready, ready).local_port == 50001
        self.types("")
        self.well()
        assert self.names.count("ready") == ready and self.names[-2:] == ["ending", "ended"]
        assert self.host.state == "CANCELLED"

    def plays_to_the_end(self) -> None:
        """Play the good way, whatever ends it earlier."""
        if self.shown_or_over(events.Waiting):
            self.host.state = "RUNNING"
            with contextlib.suppress(AssertionError):  # nobody listens any more
                self.host.says("started", node_names=["n1"])
        if self.shown_or_over(events.Running):
            self.host.says("endpoint", port=4242)


def failing(error: Exception) -> Callable[[], Answer]:
    def fail() -> Answer:
        raise error

    return fail


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Story]:
    """The stand-ins in place, and the waits short; ``launch-notebook`` is on the PATH."""
    story = Story()
    program = tmp_path / "launch-notebook"
    program.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(opening, "open_host", story.open_host)
    monkeypatch.setattr(attend, "find_way", story.ways.find_way)
    monkeypatch.setattr(attend, "Tunnel", story.tunnel)
    monkeypatch.setattr(passage, "check_jupyter", story.ways.check_jupyter)
    for after in ("after_answer", "after_silence"):
        monkeypatch.setattr(pace.Pace, after, lambda *_: 0.01)
    monkeypatch.setattr(verdict, "FINAL_WORD_WITHIN", 2.0)
    monkeypatch.setattr(queueing, "APPEARS_WITHIN", 0.3)
    monkeypatch.setattr(mending, "FIRST_PAUSE", 0.01)
    for room in (attendance, mending):
        monkeypatch.setattr(room, "LONGEST_PAUSE", 0.05)
    yield story
    for event in story.blocked:
        event.set()
    story.interrupts.inbox.put(Interrupt("leave"))  # a story that a failed test has left behind


# --- the good way --------------------------------------------------------------------------------------------


def test_enter_ends_a_session(story: Story) -> None:
    story.launch()
    ready = story.held()
    story.types("")
    story.well()
    assert story.names == ["submitted", "waiting", "running", "ready", "ending", "ended"]
    assert story.host.commands("scancel") == ["scancel 7"]
    assert story.host.count("rm") == 0
    assert ready.node == "n1" and ready.job == "7" and ready.local_port == 50001
    assert ready.url.startswith("http://127.0.0.1:50001/lab?token=")
    assert story.shown(events.Submitted).walltime == "2 hours"
    assert story.shown(events.Ended).text == "Job 7 is gone."


def test_d_leaves_it_running(story: Story) -> None:
    story.launch()
    story.held()
    story.types(" D ")
    story.well()
    assert story.names == ["submitted", "waiting", "running", "ready", "left"]
    assert story.host.count("scancel") == story.host.count("rm") == 0
    left = story.shown(events.Left)
    assert left.come_back == f"launch-notebook connect --cluster uni {story.session_id}"
    assert left.stop == f"launch-notebook stop --cluster uni {story.session_id}"


def test_d_is_understood_while_it_waits(story: Story) -> None:
    story.launch()
    story.shown(events.Waiting)
    story.types("d")
    story.well()
    assert story.names == ["submitted", "waiting", "left"]
    assert story.host.count("scancel") == 0


@pytest.mark.parametrize("ours", [True, False], ids=["launch", "connect"])
def test_an_impatient_enter_costs_nothing(story: Story, ours: bool) -> None:
    """A place in the queue may have taken a day."""
    story.launch() if ours else story.connect()
    story.shown(events.Waiting)
    told = len(story.notes)
    story.types("")
    story.types("")
    story.types("  ")
    story.shown(events.Noted, told + 3)
    assert story.going
    assert "not ready yet" in story.notes[-1]
    story.types("d")
    story.well()
    assert story.host.count("scancel") == 0


def test_what_ctrl_c_does_is_told_rightly_on_the_way_back(story: Story) -> None:
    story.connect()
    story.shown(events.Waiting)
    story.types("")
    assert "Ctrl-C ends the job" not in story.shown(events.Noted, 2).text
    story.interrupts.arrive("end")
    story.well()
    assert story.host.count("scancel") == 0


def test_another_word_is_answered_and_nothing_ends(story: Story) -> None:
    story.launch()
    story.held()
    story.types("quit")
    assert "ENTER alone ends" in story.shown(events.Noted).text
    assert story.going and story.host.count("scancel") == 0
    story.types("")
    story.well()
    assert story.names[-3:] == ["note", "ending", "ended"]


def test_the_server_may_listen_before_the_way_is_open(story: Story) -> None:
    """Both orders occur: a slow second factor, a slow container."""
    free = story.blocks("opening")
    story.launch()
    story.shown(events.Waiting)
    story.host.starts()
    story.host.says("endpoint", port=4242)
    free.set()
    story.shown(events.Ready)
    story.types("")
    story.well()


def test_shut_down_from_the_browser_is_a_good_end(story: Story) -> None:
    story.launch()
    story.held()
    story.host.state = "COMPLETED"
    story.host.says("exit", cause="finished", message="JupyterLab ended.")
    story.well()
    assert story.names[-2:] == ["ending", "ended"]
    assert "shut down" in story.shown(events.Ended).text


def test_the_scheduler_may_tell_first_that_it_was_shut_down(story: Story) -> None:
    story.launch()
    story.held()
    story.host.files["exit.json"] = json.dumps({"cause": "finished", "message": "JupyterLab ended."})
    story.host.state = "COMPLETED"
    story.well()
    assert "shut down" in story.shown(events.Ended).text


@pytest.mark.parametrize("held", [True, False])
def test_a_session_that_nobody_used_ends_well(story: Story, held: bool) -> None:
    story.launch()
    if held:
        story.held()
    else:
        story.shown(events.Waiting)
        story.host.starts()
    story.host.state = "COMPLETED"
    story.host.says("exit", cause="idle", message="Nobody used JupyterLab for 30 minutes, so the session was ended.")
    story.well()
    assert "problem" not in story.names
    assert story.shown(events.Ended).text == "Nobody used JupyterLab for 30 minutes, so the session was ended."


# --- interrupts at every step --------------------------------------------------------------------------------

BEFORE_DEFER = ["site"]
BEFORE_QUEUED = ["write"]
QUEUED = ["sbatch", "submitted", "waiting", "running", "opening", "reaching"]


def interrupted_at(story: Story, step: str, kind: Kind) -> None:
    """Launch, and let an interrupt arrive in the middle of a step."""
    story.hooks.at(step, lambda: story.interrupts.arrive(kind))
    story.launch()
    story.plays_to_the_end()


@pytest.mark.parametrize(("kind", "error"), [("end", KeyboardInterrupt), ("leave", HungUp)])
@pytest.mark.parametrize("step", BEFORE_DEFER)
def test_an_interrupt_while_nothing_is_at_stake_is_raised(
    story: Story, step: str, kind: Kind, error: type[BaseException]
) -> None:
    interrupted_at(story, step, kind)
    story.fails(error)
    assert story.host.count("write") == story.host.count("sbatch") == story.host.count("scancel") == 0


@pytest.mark.parametrize("step", BEFORE_QUEUED)
def test_an_interrupt_while_files_are_written_queues_nothing(story: Story, step: str) -> None:
    interrupted_at(story, step, "end")
    error = story.fails(Interrupted)
    assert error.why == "Nothing was queued."
    assert story.host.count("sbatch") == story.host.count("scancel") == 0
    assert story.host.count("rm") == 1
    assert story.names == []


def test_an_interrupt_that_came_before_the_first_file(story: Story) -> None:
    story.interrupts.inbox.put(Interrupt("end"))
    story.launch()
    story.fails(Interrupted)
    assert story.host.count("sbatch") == 0
    assert story.host.count("rm") == 1


@pytest.mark.parametrize("step", QUEUED)
def test_an_interrupt_before_it_is_ready_cancels_the_job(story: Story, step: str) -> None:
    interrupted_at(story, step, "end")
    error = story.fails(Interrupted)
    told = [event.text for event in story.view.shown if isinstance(event, events.Ended)]
    assert f"{told} {error.what} {error.why}".count("Job 7 is gone.") == 1
    assert story.host.commands("scancel") == ["scancel 7"]
    assert story.host.count("rm") == 0
    names = [name for name in story.names if name != "note"]
    assert names[0] == "submitted" and names[-2:] == ["ending", "ended"]
    assert "ready" not in names


@pytest.mark.parametrize("step", ["opening", "reaching"])
def test_an_interrupt_does_not_wait_for_the_way(story: Story, step: str) -> None:
    """A way that hangs (a node that does not answer, a question for a second factor) is left alone."""
    free = story.blocks(step)
    story.launch()
    story.shown(events.Waiting)
    story.host.starts()
    story.host.says("endpoint", port=4242)
    story.shown(events.Running)
    story.interrupts.arrive("end")
    story.shown(events.Ended)
    assert not free.is_set()
    story.fails(Interrupted)  # and a tunnel that comes about afterwards is closed
    assert story.host.count("scancel") == 1


def test_ctrl_c_while_held_is_a_good_end(story: Story) -> None:
    interrupted_at(story, "ready", "end")
    story.well()
    assert story.names == ["submitted", "waiting", "running", "ready", "ending", "ended"]
    assert story.host.commands("scancel") == ["scancel 7"]


def test_an_interrupt_during_a_refused_submission(story: Story) -> None:
    story.host.answers["sbatch"] = lambda: Answer(1, "", "sbatch: error: invalid partition specified: x\n")
    interrupted_at(story, "sbatch", "end")
    story.fails(PartitionRefused)
    assert story.host.count("rm") == 1
    assert story.host.count("scancel") == 0


def test_ctrl_c_while_the_scheduler_takes_its_time(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a site's wrapper around sbatch that queues the job and answers half a minute later."""
    monkeypatch.setattr(queueing, "SLOW_AFTER", 0.2)
    answers = story.blocks("sbatch")
    story.launch()
    story.noted("takes its time")
    story.presses_ctrl_c(4)
    story.noted("cancelled as soon as that is done")
    assert story.host.count("scancel") == 0
    answers.set()
    story.fails(Interrupted)
    assert story.host.commands("scancel") == ["scancel 7"]
    assert len(story.notes) == 2


def no_answer() -> Answer:
    return Answer(1, "", "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n")


def test_a_scheduler_that_took_the_job_and_did_not_say_so(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """slurmctld may have the job when sbatch gives up waiting for its answer; it shows a moment later."""
    monkeypatch.setattr(queueing.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(queueing, "APPEARS_WITHIN", 20.0)
    rows = [Answer(1, "", "Socket timed out"), Answer(0, ""), None]
    story.host.answers["sbatch"] = no_answer
    story.host.answers["find"] = lambda: (
        rows.pop(0) or Answer(0, f"7|x|{story.host.commands('sbatch')[0].split()[-2]}\n")
    )
    story.launch()
    story.shown(events.Waiting)
    assert story.shown(events.Submitted).job == "7"
    story.presses_ctrl_c(1)
    story.fails(Interrupted)


@pytest.mark.parametrize(
    ("found", "kind"), [(Answer(0, ""), SchedulerAway), (Answer(1, "", "Socket timed out"), SubmitUncertain)]
)
def test_a_scheduler_that_did_not_hear(
    story: Story, monkeypatch: pytest.MonkeyPatch, found: Answer, kind: type[LauncherError]
) -> None:
    monkeypatch.setattr(queueing, "APPEARS_WITHIN", 0.1)
    story.host.answers |= {"sbatch": no_answer, "find": lambda: found}
    story.launch()
    error = story.fails(kind)
    assert "Socket timed out" in error.why
    assert story.host.count("rm") == (kind is SchedulerAway)
    if kind is SubmitUncertain:
        assert "squeue" in error.mend


@pytest.mark.parametrize("asked", [frozenset(), frozenset({"partition"})], ids=["by the profile", "by the user"])
def test_a_refusal_of_what_the_profile_asked_for_says_so(story: Story, asked: frozenset[str]) -> None:
    story.host.answers["sbatch"] = lambda: Answer(1, "", "sbatch: error: invalid partition specified: old\n")
    profile = ClusterProfile(defaults={"partition": "old"})
    plan = dataclasses.replace(PLAN, place=dataclasses.replace(PLACE, profile=profile))
    story.launch(dataclasses.replace(plan, request=Request({"partition": "old"}), asked=asked))
    error = story.fails(PartitionRefused)
    assert asked or "specified: old. The profile" in error.why
    assert ("The profile “uni” asks for it: --partition=old." in error.why) is not asked


def test_the_launchers_own_walltime_is_no_wish_of_the_profiles(story: Story) -> None:
    story.host.answers["sbatch"] = lambda: Answer(1, "", "sbatch: error: Requested time limit is invalid\n")
    story.launch(dataclasses.replace(PLAN, request=Request(merge_flags({}, {}))))
    assert "profile" not in story.fails(WalltimeRefused).why


def test_an_interrupt_while_the_job_is_looked_for(story: Story) -> None:
    story.host.answers["sbatch"] = lambda: Answer(0, "thank you\n")
    story.hooks.at("find", lambda: story.interrupts.arrive("end"))
    story.host.answers["find"] = lambda: Answer(0, f"7|x|{story.host.commands('sbatch')[0].split()[-2]}\n")
    story.launch()
    story.fails(Interrupted)
    assert story.host.commands("scancel") == ["scancel 7"]
    assert story.host.count("rm") == 0


@pytest.mark.parametrize("step", [*QUEUED, "ready"])
def test_a_closed_terminal_leaves_the_job(story: Story, step: str) -> None:
    interrupted_at(story, step, "leave")
    story.fails(HungUp)
    assert story.host.count("scancel") == story.host.count("rm") == 0
    assert "ending" not in story.names


@pytest.mark.parametrize("step", BEFORE_QUEUED)
def test_a_terminal_closed_while_files_are_written_queues_nothing(story: Story, step: str) -> None:
    interrupted_at(story, step, "leave")
    assert isinstance(story.over(), HungUp | Interrupted)
    assert story.host.count("sbatch") == story.host.count("scancel") == 0
    assert story.host.count("rm") == 1


# --- ending --------------------------------------------------------------------------------------------------


def test_a_second_interrupt_while_ending_leaves_with_the_command(story: Story) -> None:
    story.host.scancel_works = False
    story.launch()
    story.held()
    story.interrupts.arrive("end")
    story.shown(events.Ending)
    story.interrupts.arrive("end")
    assert "Ctrl-C once more" in story.shown(events.Noted).text
    time.sleep(0.4)
    assert story.going, "one Ctrl-C while ending is answered with a word"
    assert len(story.notes) == 1, "and with one word only"
    story.interrupts.arrive("end")
    error = story.fails(CancelFailed)
    assert "Job 7 is still there" in error.what
    assert "scancel 7" in error.mend
    assert "ended" not in story.names


@pytest.mark.parametrize("count", [2, 3])
def test_impatient_interrupts_while_ending(story: Story, count: int) -> None:
    """All at once, as from a key that is held down."""
    story.host.scancel_works = False
    story.launch()
    story.held()
    story.hooks.at("ending", lambda: story.presses_ctrl_c(count))
    story.types("")
    error = story.fails(CancelFailed)
    assert "7" in error.what and "scancel 7" in error.mend
    assert "ended" not in story.names
    assert story.host.count("scancel") == 1


def test_impatient_interrupts_before_it_is_ready(story: Story) -> None:
    """“Job 7 is gone” is said only of a job that was seen to be gone."""
    story.host.scancel_works = False
    story.launch()
    story.shown(events.Waiting)
    story.presses_ctrl_c(3)
    error = story.fails(CancelFailed)
    assert "still there" in error.what and "gone." not in f"{error.what} {error.mend}"
    assert "ended" not in story.names


def test_one_interrupt_while_ending_still_waits_for_the_end(story: Story) -> None:
    story.host.scancel_works = False
    story.launch()
    story.held()
    story.types("")
    story.shown(events.Ending)
    story.interrupts.arrive("end")
    story.shown(events.Noted)
    story.host.state = "CANCELLED"
    story.well()
    assert story.names[-3:] == ["ending", "note", "ended"]


def test_a_terminal_closed_while_ending_does_not_stop_that(story: Story) -> None:
    story.host.scancel_works = False
    story.launch()
    story.held()
    story.types("")
    story.shown(events.Ending)
    for _ in range(3):
        story.interrupts.arrive("leave")
    story.host.state = "CANCELLED"
    story.well()
    assert story.names[-2:] == ["ending", "ended"]


def test_a_cancel_that_does_nothing_is_repeated(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "CANCEL_AGAIN", 0.2)
    monkeypatch.setattr(ending, "GONE_WITHIN", 0.8)
    story.host.scancel_works = False
    story.launch()
    story.held()
    story.types("")
    error = story.fails(CancelFailed)
    assert "Job 7 is still there" in error.what and "scancel 7" in error.mend
    assert 2 <= story.host.count("scancel") <= 5
    assert "ended" not in story.names


def test_a_repeated_cancel_may_work(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "CANCEL_AGAIN", 0.1)
    story.launch()
    story.held()

    def deaf_once() -> Answer:
        del story.host.answers["scancel"]
        return Answer(1, "", "scancel: error: Kill job error on job id 7: Socket timed out")

    story.host.answers["scancel"] = deaf_once
    story.types("")
    story.well()
    assert story.host.count("scancel") == 2
    assert story.names[-2:] == ["ending", "ended"]


def test_a_scheduler_that_says_nothing_has_not_said_that_the_job_is_gone(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "GONE_WITHIN", 0.5)
    monkeypatch.setattr(ending, "TOLD_AFTER", 0.0)
    story.launch()
    story.held()
    story.host.answers["squeue"] = lambda: Answer(1, "", "slurm_load_jobs error: Unable to contact slurm controller")
    story.types("")
    error = story.fails(CancelFailed)
    assert "may still be there" in error.what and "Unable to contact" in error.why and "scancel 7" in error.mend
    assert "ended" not in story.names
    assert [note for note in story.notes if "does not answer" in note and "as soon as it does" in note]


def test_a_job_is_cancelled_as_soon_as_the_scheduler_answers_again(story: Story) -> None:
    story.launch()
    story.held()
    away = Answer(1, "", "slurm_load_jobs error: Unable to contact slurm controller")
    story.host.answers |= {"squeue": lambda: away, "scancel": lambda: away}
    story.types("")
    story.shown(events.Ending)
    story.host.noticed()
    story.host.answers.clear()
    story.well()
    assert story.names[-1] == "ended"


def test_a_job_that_is_completing_is_not_gone_yet(story: Story) -> None:
    story.host.scancel_works = False
    story.launch()
    story.held()
    story.hooks.at("scancel", lambda: setattr(story.host, "state", "COMPLETING"))
    story.types("")
    story.shown(events.Ending)
    time.sleep(0.3)
    assert story.going
    story.host.state = ""  # purged from the queue, and the history knows
    story.host.history = "7|CANCELLED by 1000|0:15|n1|2026-11-21T12:00:00\n"
    story.well()
    assert story.names[-1] == "ended"


@pytest.mark.parametrize(
    "error",
    [ConnectionLost("The connection to login is lost."), HostCommandFailed("scancel did not answer within 90 s.")],
    ids=["connection", "too slow"],
)
def test_a_cancel_that_can_never_be_sent(story: Story, monkeypatch: pytest.MonkeyPatch, error: LauncherError) -> None:
    monkeypatch.setattr(ending, "GONE_WITHIN", 0.3)
    story.launch()
    story.held()
    story.host.answers["scancel"] = failing(error)
    story.types("")
    failed = story.fails(CancelFailed)
    assert failed.what == "Job 7 may still be there." and error.what in failed.why
    assert failed.mend == "end it on the login node with: scancel 7"
    assert "ended" not in story.names


def test_a_failed_launch_whose_job_cannot_be_cancelled_tells_both(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "GONE_WITHIN", 0.3)
    story.host.reason = "PartitionTimeLimit"
    story.host.answers["scancel"] = failing(ConnectionLost("The connection to login is lost."))
    story.launch()
    error = story.fails(JobNeverStarts)
    assert "can never start" in error.what
    assert "Job 7 may still be there." in error.why and "scancel 7" in error.mend


def test_a_bug_of_ours_whose_job_cannot_be_cancelled_tells_both(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "GONE_WITHIN", 0.3)
    story.hooks.at("waiting", failing(KeyError("a bug")))
    story.host.answers["scancel"] = failing(ConnectionLost("The connection to login is lost."))
    story.launch()
    raised = story.over()
    told = [repr(raised), str(getattr(raised, "why", "")), str(getattr(raised, "mend", "")), *story.notes]
    assert any("scancel 7" in text for text in told)


def test_a_bug_of_ours_leaves_no_job(story: Story) -> None:
    story.hooks.at("waiting", failing(KeyError("a bug")))
    story.launch()
    story.fails(KeyError)
    assert story.host.commands("scancel") == ["scancel 7"]


# --- the job goes back into the queue ------------------------------------------------------------------------


def test_requeued_while_it_had_not_said_a_word(story: Story) -> None:
    story.host.state = "RUNNING"
    story.launch()
    story.shown(events.Running)
    story.host.requeued()
    waiting = story.shown(events.Waiting)
    assert waiting.reason == "BeginTime"
    story.host.starts("n2")
    story.host.says("endpoint", port=4242)
    assert story.shown(events.Ready).node == "n2"
    story.types("")
    story.well()
    assert story.names == ["submitted", "running", "waiting", "running", "ready", "ending", "ended"]


def test_requeued_and_started_on_the_same_node(story: Story) -> None:
    """What was shown last is that it waits: so that it runs is said again."""
    story.host.state, story.host.node = "RUNNING", "n1"
    story.launch()
    story.shown(events.Running)
    story.host.requeued()
    story.shown(events.Waiting)
    story.host.starts("n1")
    story.host.says("endpoint", port=4242)
    story.shown(events.Ready)
    story.types("d")
    story.well()
    assert story.names == ["submitted", "running", "waiting", "running", "ready", "left"]


def nothing() -> None:
    pass


@pytest.mark.parametrize("how", ["succeeds", "fails"])
@pytest.mark.parametrize("step", ["opening", "reaching"])
def test_requeued_while_starting(story: Story, step: str, how: str) -> None:
    """What becomes of the way to the first node, late, does not concern the second run."""
    free = story.blocks(step, failing(NodeUnreachable("No way to n1.")) if how == "fails" else nothing)
    story.launch()
    story.shown(events.Waiting)
    story.host.starts("n1")
    if step == "reaching":
        story.host.says("endpoint", port=4242)
        deadline = time.monotonic() + PATIENCE
        while len(story.ways.threads) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    story.host.requeued()
    story.shown(events.Waiting, 2)
    assert story.notes == ["Job 7 was put back into the queue."]
    story.host.starts("n2")
    assert story.shown(events.Running, 2).node == "n2"
    late = story.ways.threads[:2] if step == "reaching" else story.ways.threads[:1]
    free.set()
    for thread in late:
        thread.join(PATIENCE)
    story.types("what now")  # answered only after all that is before it in the inbox
    story.shown(events.Noted, 2)
    assert story.going and "ready" not in story.names
    assert story.ways.links[0].closed and not story.ways.links[1].closed
    story.host.says("endpoint", port=4343)
    ready = story.shown(events.Ready)
    assert (ready.node, ready.local_port) == ("n2", 50001)
    story.types("")
    story.well()
    assert story.names.count("ready") == 1


def test_requeued_and_started_again_before_the_scheduler_was_asked(story: Story) -> None:
    story.launch()
    story.shown(events.Waiting)
    story.host.starts("n1")
    story.host.starts("n2")
    assert story.shown(events.Running, 2).node == "n2"
    assert story.notes == ["Job 7 was put back into the queue, and has started again."]
    story.host.says("endpoint", port=4242)
    assert story.shown(events.Ready).node == "n2"
    story.types("")
    story.well()


@pytest.mark.parametrize("last_word", [True, False], ids=["with a last word", "without"])
def test_requeued_while_held(story: Story, last_word: bool) -> None:
    """By a failed node (no last word) or by an operator (the job script is sent a signal)."""
    story.launch()
    first = story.held()
    if last_word:
        story.host.says("exit", cause="stopped", message="It was sent SIGTERM.")
    story.host.requeued()
    story.shown(events.Waiting, 2)
    story.host.starts("n2")
    story.host.says("endpoint", port=4343)
    second = story.shown(events.Ready, 2)
    assert (first.node, first.local_port) == ("n1", 50001)
    assert (second.node, second.local_port) == ("n2", 50001)
    assert first.url == second.url, "an open tab finds everything again"
    assert story.ways.links[0].closed
    assert story.notes == ["Job 7 was put back into the queue."]
    assert story.host.count("scancel") == 0
    story.types("")
    story.well()
    assert story.names[-3:] == ["ready", "ending", "ended"]
    assert story.host.count("scancel") == 1


def test_ctrl_c_after_a_requeue_cancels_the_job(story: Story) -> None:
    story.launch()
    story.held()
    story.host.requeued()
    story.shown(events.Waiting, 2)
    story.interrupts.arrive("end")
    story.fails(Interrupted)
    assert story.host.count("scancel") == 1


def test_an_old_answer_of_the_scheduler_is_not_a_requeue(story: Story) -> None:
    """squeue is asked while the job waits, and its answer comes in after the job's own word that it has started."""
    asked, answer_now = threading.Event(), threading.Event()
    story.blocked.append(answer_now)

    def slow() -> Answer:
        row = story.host.row()
        del story.host.answers["squeue"]
        asked.set()
        assert answer_now.wait(2 * PATIENCE)
        return row

    story.host.answers["squeue"] = slow
    story.launch()
    assert asked.wait(PATIENCE)
    story.host.says("started", node_names=["n1"])
    story.shown(events.Running)
    story.host.state = "RUNNING"
    answer_now.set()
    story.host.noticed()
    story.host.says("endpoint", port=4242)
    story.shown(events.Ready, patience=1.0)
    assert story.notes == []


# --- what the scheduler says ---------------------------------------------------------------------------------


def test_a_job_that_can_never_start_is_cancelled(story: Story) -> None:
    story.host.reason = "PartitionTimeLimit"
    story.launch()
    error = story.fails(JobNeverStarts)
    assert "PartitionTimeLimit" in error.why and "-t" in error.mend
    assert story.host.commands("scancel") == ["scancel 7"]
    assert story.host.count("rm") == 0
    assert story.names == ["submitted", "ending", "ended"]


def test_that_it_runs_is_said_once(story: Story) -> None:
    """By the scheduler or by the job, whoever is first."""
    story.host.state, story.host.node = "RUNNING", "n1"
    story.launch()
    assert story.shown(events.Running).node == "n1"
    story.host.says("started", node_names=["n1"])
    story.host.says("endpoint", port=4242)
    story.shown(events.Ready)
    story.types("d")
    story.well()
    assert story.names == ["submitted", "running", "ready", "left"]


def test_why_it_waits_is_shown_anew_when_that_changes(story: Story) -> None:
    story.launch()
    assert "other jobs are ahead" in story.shown(events.Waiting).explanation
    story.host.reason = "Resources"
    assert "is free" in story.shown(events.Waiting, 2).explanation
    story.host.noticed()
    story.types("d")
    story.well()
    assert story.names == ["submitted", "waiting", "waiting", "left"]


def test_a_job_that_runs_and_says_nothing_is_cancelled(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attendance, "FIRST_WORD_WITHIN", 0.1)
    story.host.state, story.host.node = "RUNNING", "n1"
    story.launch()
    assert story.shown(events.Running).node == "n1"
    error = story.fails(JobSilent)
    assert "Job 7 runs" in error.what and "session_root" in error.mend
    assert story.host.commands("scancel") == ["scancel 7"]
    assert story.names == ["submitted", "running", "ending", "ended"]


def test_a_job_that_waits_is_not_silent(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one that has said its first word, however long its JupyterLab takes."""
    monkeypatch.setattr(attendance, "FIRST_WORD_WITHIN", 0.1)
    story.launch()
    story.shown(events.Waiting)
    story.host.starts()
    time.sleep(0.5)  # longer than one turn without news
    assert story.going
    story.types("d")
    story.well()


@pytest.mark.parametrize("then", ["requeued", "starts"])
def test_a_job_that_ran_without_a_word_is_not_silent_any_more(
    story: Story, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    monkeypatch.setattr(attendance, "FIRST_WORD_WITHIN", 0.7)
    story.host.state, story.host.node = "RUNNING", "n1"
    story.launch()
    story.shown(events.Running)
    if then == "requeued":
        story.host.requeued()
        story.shown(events.Waiting)
    else:
        story.host.says("started", node_names=["n1"])
    time.sleep(1.0)
    assert story.going
    story.types("d")
    story.well()


def test_a_suspended_job_is_shown_and_goes_on(story: Story) -> None:
    story.launch()
    story.held()
    story.host.state = "SUSPENDED"
    waiting = story.shown(events.Waiting, 2)
    assert waiting.state == "SUSPENDED" and "stopped it for a while" in waiting.explanation
    story.host.state = "RUNNING"
    story.host.noticed()
    assert story.going
    story.types("")
    story.well()
    assert story.names[:5] == ["submitted", "waiting", "running", "ready", "waiting"]


@pytest.mark.parametrize("known_by", ["squeue", "sacct"])
def test_cancelled_by_somebody_else_while_it_waits(story: Story, known_by: str) -> None:
    story.launch()
    story.shown(events.Waiting)
    story.host.history = "7|CANCELLED by 2001|0:0|None assigned|Unknown\n"
    story.host.state = "CANCELLED" if known_by == "squeue" else ""
    story.host.answers["id"] = lambda: Answer(0, "bob\n")
    assert "bob" in story.fails(JobCancelled).what
    assert story.host.commands("id") == ["id -un 2001"]
    assert story.host.count("scancel") == 0
    assert story.names == ["submitted", "waiting"]


@pytest.mark.parametrize("history", [1, 0], ids=["no accounting", "not in the history"])
def test_cancelled_by_nobody_knows_whom(story: Story, monkeypatch: pytest.MonkeyPatch, history: int) -> None:
    monkeypatch.setattr(verdict, "_HISTORY_WITHIN", 0.5)
    story.host.answers["sacct"] = lambda: Answer(history, "", "Slurm accounting storage is disabled")
    story.launch()
    story.shown(events.Waiting)
    story.host.state = "CANCELLED"
    assert "was cancelled" in story.fails(JobCancelled).what
    assert story.host.count("id") == 0


def test_why_it_was_put_back_into_the_queue_is_told_where_the_scheduler_tells(story: Story) -> None:
    story.host.history = "7|PREEMPTED|0:0|n1|2026-11-21T12:00:00\n7|PENDING|0:0|None assigned|Unknown\n"
    story.launch()
    story.held()
    story.host.requeued()
    story.shown(events.Waiting, 2)
    assert story.notes[-1] == "Job 7 was put back into the queue, to make room for a job that goes first."
    story.presses_ctrl_c(1)
    story.fails(Interrupted)


def test_a_job_with_a_file_of_its_own_for_errors_has_its_last_words_there(story: Story) -> None:
    story.launch(dataclasses.replace(PLAN, request=Request({"error": "wrong-%j-%N", "output": "right-%j"})))
    story.shown(events.Waiting)
    story.host.starts(node="n1.uni.example")
    story.host.answers["tail"] = lambda: Answer(0, "the cause\n")
    story.host.says("exit", cause="image-missing", message="There is no image /x.sif.")
    assert story.fails(ImageUnusable).log == ("the cause",)
    assert story.host.commands("tail") == ["tail -n 15 wrong-7-n1"]


def test_cancelled_by_somebody_else_while_held(story: Story) -> None:
    routine = "\n".join((
        "01:44:31 notebook-launcher: usage.csv has 0 more samples; sampling took 100.0 % of one core",
        "01:44:30 notebook-launcher: an SSH server into this session listens on port 4022, for the keys in /s/keys",
    ))  # fmt: skip
    story.launch()
    story.held()
    story.host.answers["tail"] = lambda: Answer(0, f"the end\n{routine}\nof the log\n")
    story.host.says("exit", cause="stopped", message="It was sent SIGTERM.")
    story.host.noticed()  # the scheduler may be a moment behind
    story.host.state = "CANCELLED"
    error = story.fails(JobCancelled)
    assert "was cancelled" in error.what
    assert error.log == ("the end", "of the log")
    assert story.host.count("scancel") == 0
    assert story.names == ["submitted", "waiting", "running", "ready"]


def test_its_walltime_is_over(story: Story) -> None:
    story.launch()
    story.held()
    story.host.says("exit", cause="stopped", message="It was sent SIGTERM.")
    story.host.state = "TIMEOUT"
    assert "-t" in story.fails(JobTimedOut).mend
    assert story.host.count("scancel") == 0


def test_the_scheduler_knows_that_memory_was_short(story: Story) -> None:
    story.launch()
    story.shown(events.Waiting)
    story.host.starts()
    story.host.says("exit", cause="jupyter-failed", message="JupyterLab ended with code 137.")
    story.host.noticed()
    story.host.state = "OUT_OF_MEMORY"
    error = story.fails(OutOfMemory)
    assert "more memory" in error.what and "--mem" in error.mend
    assert story.host.count("scancel") == 0


def test_a_failure_that_the_job_explains_itself(story: Story) -> None:
    story.launch()
    story.shown(events.Waiting)
    story.host.starts()
    story.host.says("exit", cause="image-missing", message="There is no image /x.sif.")
    error = story.fails(ImageUnusable)
    assert error.what == "Job 7: There is no image /x.sif."
    assert story.host.count("scancel") == 0


def test_over_before_it_was_ready_is_no_good_end(story: Story) -> None:
    story.launch()
    story.shown(events.Waiting)
    story.host.starts()
    story.host.says("exit", cause="finished", message="JupyterLab ended.")
    assert story.fails(JobFailed).what == "Job 7: JupyterLab ended."
    assert "ended" not in story.names


def test_a_scheduler_without_a_final_word(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, "FINAL_WORD_WITHIN", 0.3)
    story.launch()
    story.held()
    story.host.answers["squeue"] = lambda: Answer(1, "", "slurm_load_jobs error: Unable to contact slurm controller")
    story.host.says("exit", cause="jupyter-failed", message="JupyterLab ended with code 1.")
    assert story.fails(JupyterCrashed).what == "Job 7: JupyterLab ended with code 1."


def test_ctrl_c_ends_the_wait_for_the_final_word(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, "FINAL_WORD_WITHIN", 60.0)
    monkeypatch.setattr(verdict, "TOLD_AFTER", 0.0)
    story.launch()
    story.held()
    story.host.answers["squeue"] = lambda: Answer(1, "", "slurm_load_jobs error: Unable to contact slurm controller")
    story.host.says("exit", cause="stopped", message="It was sent SIGTERM.")
    story.noted("Waiting for the scheduler's word")
    story.presses_ctrl_c(1)
    error = story.fails(SchedulerSilent)
    assert "Unable to contact" in error.why and "connect" in error.mend


def test_forgotten_by_everybody(story: Story) -> None:
    story.launch()
    story.held()
    story.host.state = ""
    assert "sacct -j 7" in story.fails(JobLost).mend
    assert story.host.count("scancel") == 0


# --- the connection breaks, and is mended --------------------------------------------------------------------

WHEN = ["waiting", "starting", "held"]
UNREACHABLE = ConnectionFailed("login port 22 cannot be reached.")
LOST = ConnectionLost("The connection to login is lost.")


def is_left_with_the_way_back(story: Story, error: ConnectionLost) -> None:
    assert "The session goes on: job 7." in error.why
    assert error.mend == f"come back with: launch-notebook connect --cluster uni {story.session_id}"
    assert story.host.count("scancel") == story.host.count("rm") == 0
    assert "ending" not in story.names


@pytest.mark.parametrize("when", WHEN)
def test_a_drop_is_mended(story: Story, when: str) -> None:
    story.launched(when)
    story.host.drops()
    assert story.shown(events.Disconnected).reason == "the connection broke"
    story.is_mended()
    story.goes_on_to_a_good_end()
    assert story.host.connection == 1
    assert story.names.index("disconnected") + 1 == story.names.index("reconnected")


@pytest.mark.parametrize("when", WHEN)
def test_a_login_node_that_comes_back_late(story: Story, when: str) -> None:
    story.launched(when)
    story.host.drops(reachable=False)
    story.host.is_tried(4)
    assert story.going and story.names[-1] == "disconnected"
    story.host.reachable = True
    story.is_mended()
    story.goes_on_to_a_good_end()


def test_drops_again_and_again_are_all_mended(story: Story) -> None:
    story.launched("held")
    for times in (1, 2, 3):
        story.host.drops()
        story.is_mended(times)
    story.goes_on_to_a_good_end()


def test_a_drop_on_the_way_back_to_a_session(story: Story) -> None:
    come_back_to_ready(story)
    story.host.drops()
    story.is_mended()
    story.goes_on_to_a_good_end()


def test_the_job_starts_while_the_network_is_down(story: Story) -> None:
    story.launched("waiting")
    story.host.drops(reachable=False)
    story.host.is_tried(2)
    story.host.starts()
    story.host.says("endpoint", port=4242)
    story.host.reachable = True
    story.is_mended()
    story.goes_on_to_a_good_end()
    assert story.names[:5] == ["submitted", "waiting", "disconnected", "reconnected", "running"]


def test_jupyter_listens_while_the_network_is_down(story: Story) -> None:
    story.launched("starting")
    story.host.drops(reachable=False)
    story.host.is_tried(2)
    story.host.says("endpoint", port=4242)
    story.host.reachable = True
    story.goes_on_to_a_good_end()
    assert story.names.count("reconnected") == 1


@pytest.mark.parametrize("when", ["waiting", "held"])
def test_the_watch_breaks_alone(story: Story, when: str) -> None:
    """Somebody has ended it on the login node; the connection is well and stays, and the watch is begun anew."""
    story.launched(when)
    first = story.host.watched
    first.ends("exit code 255")
    deadline = time.monotonic() + PATIENCE
    while story.host.watched is first and time.monotonic() < deadline:
        time.sleep(0.01)
    assert story.host.watched is not first, "nobody watches the job"
    assert story.host.attempts == 0 and "disconnected" not in story.names
    story.goes_on_to_a_good_end()


def test_the_scheduler_cannot_be_asked_because_the_connection_is_lost(story: Story) -> None:
    story.launched("held")

    def lost() -> Answer:
        del story.host.answers["squeue"]
        raise LOST

    story.host.answers["squeue"] = lost
    assert story.shown(events.Disconnected).reason == LOST.what
    story.is_mended()
    story.goes_on_to_a_good_end()


@pytest.mark.parametrize(
    "error", [LOST, HostCommandFailed("login runs no command for us.")], ids=lambda error: error.kind
)
def test_the_new_watch_cannot_begin_at_once(story: Story, error: LauncherError) -> None:
    """A login node that is just starting up lets us in, and is not ready yet."""
    story.launched("waiting")
    story.host.outcomes = [lambda: story.hooks.at("watch", failing(error))]
    story.host.drops()
    story.is_mended()
    assert story.host.connection == 2
    story.goes_on_to_a_good_end()


def test_the_first_watch_cannot_begin(story: Story) -> None:
    story.hooks.at("watch", failing(LOST))
    story.launch()
    story.is_mended()
    story.goes_on_to_a_good_end()


def test_a_watch_that_breaks_at_once_every_time_is_no_reason_for_haste(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    for room in (attendance, mending):
        monkeypatch.setattr(room, "LONGEST_PAUSE", 8.0)
    story.launched("held")
    usual = story.host.stream

    def breaking(argv: Sequence[str], on_line: OnLine, on_end: OnEnd) -> LineStream:
        stream = usual(argv, on_line, on_end)
        story.host.watched.ends("it cannot run")
        return stream

    monkeypatch.setattr(story.host, "stream", breaking)
    story.host.watched.ends("it cannot run")
    time.sleep(1.7)
    assert 2 <= story.host.attempts <= 4  # at once, and after 0.5, 1 and 2 s
    assert story.going and story.host.count("scancel") == 0
    story.types("d")
    story.well()


def test_every_turn_of_trouble_is_told_in_pairs(story: Story) -> None:
    """What shows that the network is down is taken away again by what says that it is up."""
    story.launched("held")
    for _ in range(3):
        story.host.drops(reachable=False)
        story.ways.links[-1].standing = False
        story.host.is_tried(story.host.attempts + 2)
        story.host.reachable = True
        count = story.names.count("disconnected")
        story.shown(events.Reconnected, count)
    told = [name for name in story.names if name in ("disconnected", "reconnected")]
    assert told == ["disconnected", "reconnected"] * 3
    story.goes_on_to_a_good_end()


# --- what happens to the job meanwhile


@pytest.mark.parametrize(
    ("state", "history", "error"),
    [
        ("TIMEOUT", "", JobTimedOut),
        ("FAILED", "", JobFailed),
        ("OUT_OF_MEMORY", "", OutOfMemory),
        ("NODE_FAIL", "", NodeFailed),
        ("CANCELLED", "", JobCancelled),
        ("", "7|TIMEOUT|0:0|n1|2026-11-21T12:00:00\n", JobTimedOut),
        ("", "", JobLost),
    ],
)
@pytest.mark.parametrize("when", WHEN)
def test_the_job_ends_while_the_network_is_down(
    story: Story, when: str, state: str, history: str, error: type[LauncherError]
) -> None:
    """How it ended is told, and never that its node cannot be reached any more."""
    story.launched(when)
    story.host.drops(reachable=False)
    story.host.is_tried(3)
    assert story.going, "that nobody can be asked says nothing about the job"
    story.host.state, story.host.history = state, history
    story.ways.refusals = [NodeUnreachable("No way to n1 was found.")] * 100
    story.host.reachable = True
    story.fails(error)
    assert story.host.count("scancel") == 0


@pytest.mark.parametrize("when", ["starting", "held"])
def test_the_job_s_own_last_word_is_read_after_the_drop(story: Story, when: str) -> None:
    story.launched(when)
    story.host.drops(reachable=False)
    story.host.is_tried(2)
    story.host.says("exit", cause="image-missing", message="There is no image /x.sif.")
    story.host.files["exit.json"] = json.dumps({"cause": "image-missing", "message": "There is no image /x.sif."})
    story.host.state = "FAILED"
    story.ways.refusals = [NodeUnreachable("No way to n1 was found.")] * 100
    story.host.reachable = True
    assert story.fails(ImageUnusable).what == "Job 7: There is no image /x.sif."


def test_shut_down_from_the_browser_just_before_the_drop(story: Story) -> None:
    story.launched("held")
    story.host.drops(reachable=False)
    story.host.files["exit.json"] = json.dumps({"cause": "finished", "message": "JupyterLab ended."})
    story.host.says("exit", cause="finished", message="JupyterLab ended.")
    story.host.state = "COMPLETED"
    story.host.is_tried(2)
    story.host.reachable = True
    story.well()
    assert "shut down" in story.shown(events.Ended).text


def test_the_connection_breaks_while_it_is_asked_how_the_job_ended(story: Story) -> None:
    story.launched("held")

    def drops() -> Answer:
        del story.host.answers["head"]
        story.host.drops()
        raise LOST

    story.host.answers["head"] = drops
    story.host.state = "TIMEOUT"
    story.fails(JobTimedOut)
    assert "disconnected" in story.names


def test_answers_of_a_dying_connection_do_not_end_a_session(story: Story) -> None:
    """Commands that end with ssh's own 255, or with nothing, before anybody knows that the connection is gone."""
    story.launched("held")
    for kind in ("squeue", "sacct", "head"):
        story.host.answers[kind] = lambda: Answer(255, "", "Connection to login closed by remote host.")
    story.host.noticed()
    story.host.drops(reachable=False)
    story.host.is_tried(3)
    assert story.going
    story.host.answers.clear()
    story.host.reachable = True
    story.is_mended()
    story.goes_on_to_a_good_end()


@pytest.mark.parametrize("when", ["starting", "held"])
@pytest.mark.parametrize("again", ["waits", "runs"])
def test_requeued_while_the_network_is_down(story: Story, when: str, again: str) -> None:
    story.launched(when)
    story.host.drops(reachable=False)
    story.host.is_tried(2)
    if again == "waits":
        story.host.requeued()
        story.ways.refusals = [NodeUnreachable("No way to n1 was found.")]
        story.host.reachable = True
        story.shown(events.Waiting, 2)
        story.host.starts("n2")
    else:
        story.host.starts("n2")
        story.host.reachable = True
    assert story.shown(events.Running, 2).node == "n2"
    story.host.says("endpoint", port=4343)
    count = 2 if when == "held" else 1
    ready = story.shown(events.Ready, count)
    assert (ready.node, ready.local_port) == ("n2", 50001)
    assert story.names.count("disconnected") == story.names.count("reconnected") == 1
    assert any("put back into the queue" in note for note in story.notes)
    assert story.host.count("scancel") == 0
    story.types("")
    story.well()


def test_a_drop_after_a_requeue_is_told_as_well(story: Story) -> None:
    story.launched("held")
    story.ways.links[-1].standing = False
    story.ways.refusals = [NodeUnreachable("No way to n1 was found.")] * 3
    story.shown(events.Disconnected)
    story.host.requeued()
    story.shown(events.Waiting, 2)
    story.host.drops()
    story.shown(events.Disconnected, 2)
    story.shown(events.Reconnected, 2)
    assert story.going
    story.types("d")
    story.well()


# --- it is only silent


@pytest.fixture
def short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attendance, "SILENCE", 0.8)
    monkeypatch.setattr(attendance, "LAST_CHANCE", 1.1)


@pytest.fixture
def rare_attempts(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mending, "FIRST_PAUSE", 60.0)
    monkeypatch.setattr(mending, "LONGEST_PAUSE", 60.0)


@pytest.mark.usefixtures("short_silence")
def test_signs_of_life_are_enough(story: Story) -> None:
    story.launch()
    story.held()
    story.host.beats()
    time.sleep(1.2)
    assert story.going and "disconnected" not in story.names
    story.types("")
    story.well()


@pytest.mark.usefixtures("short_silence")
@pytest.mark.parametrize("when", ["starting", "held"])
def test_silent_for_long_a_new_connection_is_made(story: Story, when: str) -> None:
    story.launched(when)
    story.host.beats()
    story.host.silent = True
    assert "nothing was heard for" in story.shown(events.Disconnected).reason
    story.is_mended()
    assert story.host.connection == 1
    story.goes_on_to_a_good_end()


@pytest.mark.usefixtures("short_silence", "rare_attempts")
@pytest.mark.parametrize("when", ["waiting", "held"])
def test_silent_for_long_and_heard_again(story: Story, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """The old connection is used on, and whoever waited to make a new one does not make it any more."""
    monkeypatch.setattr(attendance, "LAST_CHANCE", 60.0)
    story.launched(when)
    story.host.beats()
    story.host.falls_silent()
    story.shown(events.Disconnected)
    story.host.is_tried(1)
    ways = len(story.ways.links)
    story.host.is_heard_again()
    story.is_mended()
    time.sleep(0.3)
    assert story.host.attempts == 1 and story.host.connection == 0 and len(story.host.streams) == 1
    assert len(story.ways.links) == ways, "the way to the node has come back as well"
    story.goes_on_to_a_good_end()


@pytest.mark.usefixtures("short_silence")
def test_heard_again_while_a_new_connection_waits_to_replace_it(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attendance, "LAST_CHANCE", 60.0)
    story.launched("held")
    story.host.beats()
    story.host.silent = True
    story.host.is_tried(1)
    time.sleep(0.3)
    assert story.host.connection == 0, "the old one may still come back"
    story.host.is_heard_again()
    story.is_mended()
    time.sleep(0.3)
    assert story.host.attempts == 1 and story.host.connection == 0
    assert not story.host.watched.ended and len(story.ways.links) == 1
    story.goes_on_to_a_good_end()


@pytest.mark.usefixtures("short_silence", "rare_attempts")
def test_heard_again_but_the_way_to_the_node_is_gone(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attendance, "LAST_CHANCE", 60.0)
    story.launched("held")
    story.host.beats()
    story.host.falls_silent()
    story.shown(events.Disconnected)
    story.host.is_tried(1)
    story.ways.links[-1].standing = False
    story.host.is_heard_again()
    story.is_mended()
    assert len(story.ways.links) == 2 and story.host.connection == 0
    story.goes_on_to_a_good_end()


def is_closed_soon(link: FakeLink) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not link.closed and time.monotonic() < deadline:
        time.sleep(0.01)
    return link.closed


@pytest.mark.usefixtures("short_silence", "rare_attempts")
@pytest.mark.parametrize("how", ["silent", "drops"])
def test_jupyterlab_is_told_that_it_is_not_connected(story: Story, how: str) -> None:
    """So that it keeps what is typed; and what comes back afterwards gets a new way."""
    story.launched("held")
    story.host.beats()
    story.host.falls_silent() if how == "silent" else story.host.drops(reachable=False)
    assert is_closed_soon(story.ways.links[0])
    if how == "silent":
        story.host.is_heard_again()
        story.is_mended()
        assert story.host.connection == 0 and story.ways.links[1].alive
        story.goes_on_to_a_good_end()
    else:
        story.types("d")
        story.well()


@pytest.mark.usefixtures("short_silence", "rare_attempts")
def test_silent_before_the_script_has_said_a_word(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it said meanwhile is on its way: a job that runs well is not cancelled for it."""
    monkeypatch.setattr(attendance, "FIRST_WORD_WITHIN", 1.0)
    story.host.state, story.host.node = "RUNNING", "n1"
    story.launch()
    story.shown(events.Running)
    story.host.beats()
    story.host.falls_silent()
    time.sleep(1.3)
    story.host.is_heard_again()
    story.shown_or_over(events.Reconnected)
    time.sleep(0.3)
    story.host.says("started", node_names=["n1"])
    story.shown(events.Tunnelled)
    story.goes_on_to_a_good_end()


def test_after_a_long_stop_the_words_on_their_way_are_waited_for(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-Z, an hour, fg: nothing was heard for an hour, and all of it is in the socket."""
    story.launched("held")
    silences = [3600.0]
    seen = threading.Event()

    def silent_for(_: watch.Watch) -> float:
        seen.set() if not silences else None
        return silences.pop() if silences else 0.1

    monkeypatch.setattr(watch.Watch, "silent_for", property(silent_for))
    assert seen.wait(PATIENCE)
    assert "disconnected" not in story.names
    story.goes_on_to_a_good_end()


# --- only the way to the node


def test_the_way_to_the_node_breaks_while_held(story: Story) -> None:
    story.launch()
    story.held()
    story.ways.links[0].standing = False
    assert "compute node" in story.shown(events.Disconnected).reason
    story.is_mended()
    assert story.ways.links[0].closed and story.ways.links[1].alive
    assert story.host.attempts == 0, "the login node is well"
    story.goes_on_to_a_good_end()


@pytest.mark.parametrize(
    "refusals",
    [
        [NodeUnreachable("No way to n1 was found.")] * 3,
        [NodeUnreachable("No way to n1 was found."), KeyError("a bug"), AuthenticationFailed("n1 lets nobody in.")],
    ],
    ids=["unreachable", "various"],
)
def test_a_way_that_fails_is_tried_again(story: Story, refusals: list[Exception]) -> None:
    story.launch()
    story.held()
    story.ways.refusals = refusals
    story.ways.links[0].standing = False
    story.is_mended()
    assert len(story.ways.links) == 5
    assert story.host.attempts == 0
    story.goes_on_to_a_good_end()


def test_jupyter_does_not_answer_over_the_new_way_at_once(story: Story) -> None:
    story.launch()
    story.held()
    story.hooks.at("reaching", failing(JupyterSilent("It does not answer.")))
    story.ways.links[0].standing = False
    story.is_mended()
    assert len(story.ways.links) == 3
    story.goes_on_to_a_good_end()


def test_a_way_that_breaks_at_once_every_time_is_no_reason_for_haste(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attendance, "LONGEST_PAUSE", 8.0)
    story.launch()
    story.held()
    story.ways.refusals = [NodeUnreachable("No way to n1 was found.")] * 1000
    story.ways.links[0].standing = False
    time.sleep(1.2)
    assert 2 <= len(story.ways.links) <= 5  # at once, and after 0.5, 1 and 2 s
    story.types("d")
    story.well()


def test_a_way_that_fails_because_the_connection_is_gone(story: Story) -> None:
    story.launch()
    story.held()
    story.ways.refusals = [LOST]
    story.ways.links[0].standing = False
    story.is_mended()
    assert story.host.attempts == 1
    story.goes_on_to_a_good_end()


def test_the_first_way_fails_because_the_connection_is_gone(story: Story) -> None:
    """Before anybody else knows it. A place in the queue may have taken a day."""
    story.hooks.at("opening", story.host.drops)
    story.launch()
    story.shown(events.Waiting)
    story.host.says("started", node_names=["n1"])
    story.host.state = "RUNNING"
    story.goes_on_to_a_good_end()
    assert story.names.count("disconnected") == story.names.count("reconnected") == 1


def test_the_job_ends_while_the_first_way_is_opened(story: Story) -> None:
    """Its end is told, and not that its node cannot be reached any more."""
    free = story.blocks("opening", failing(NodeUnreachable("No way to n1 was found.")))
    story.launch()
    story.shown(events.Waiting)
    story.host.starts()
    story.host.answers["squeue"] = lambda: Answer(1, "", "Socket timed out")
    story.host.noticed()
    story.host.state = "TIMEOUT"
    del story.host.answers["squeue"]
    free.set()
    story.fails(JobTimedOut)


@pytest.mark.parametrize("how", ["succeeds", "fails"])
@pytest.mark.parametrize("step", ["opening", "reaching"])
def test_what_becomes_of_a_way_over_an_older_connection_is_of_no_interest(story: Story, step: str, how: str) -> None:
    free = story.blocks(step, failing(NodeUnreachable("No way to n1.")) if how == "fails" else nothing)
    story.launch()
    story.shown(events.Waiting)
    story.host.starts()
    if step == "reaching":
        story.host.says("endpoint", port=4242)
    deadline = time.monotonic() + PATIENCE
    while step in story.hooks.waiting and time.monotonic() < deadline:
        time.sleep(0.01)
    late = list(story.ways.threads)
    story.host.drops()
    story.shown(events.Disconnected)
    story.host.says("endpoint", port=4242)
    story.shown(events.Ready)
    free.set()
    for thread in late:
        thread.join(PATIENCE)
    story.types("what now")  # answered only after all that is before it in the inbox
    story.shown(events.Noted)
    assert story.ways.links[0].closed and story.ways.links[1].alive
    story.is_mended()
    story.goes_on_to_a_good_end()


# --- it cannot be mended


CHANGED = "The host key of login has changed."


@pytest.mark.parametrize("when", WHEN)
def test_another_host_key_after_a_drop(story: Story, when: str) -> None:
    """Nothing more is sent there, not even to end the job."""
    story.launched(when)
    story.host.outcomes = [UNREACHABLE, HostKeyChanged(CHANGED, why="It is x.", mend="ssh-keygen -R login")] * 9
    story.host.drops()
    error = story.fails(HostKeyChanged)
    assert error.what == CHANGED and error.mend == "ssh-keygen -R login"
    assert "It is x." in error.why and "The session goes on: job 7." in error.why
    assert story.shown(events.Left).come_back == f"launch-notebook connect --cluster uni {story.session_id}"
    assert story.host.attempts == 2
    assert story.host.count("scancel") == story.host.count("rm") == 0 and "ending" not in story.names


def test_another_host_key_of_the_node_after_a_drop(story: Story) -> None:
    story.launched("held")
    story.ways.refusals = [HostKeyChanged("The host key of n1 has changed.")]
    story.ways.links[0].standing = False
    story.fails(HostKeyChanged)
    assert story.names[-1] == "left" and story.host.count("scancel") == 0


@pytest.mark.parametrize("when", WHEN)
def test_who_does_not_answer_is_asked_once(story: Story, when: str) -> None:
    """With a second factor a login cannot be repeated without the user, and there is nobody at the keyboard."""

    def asks() -> None:
        story.host.prompts.secret("One-time code: ")
        raise AuthenticationFailed("login does not let you in.")

    story.launched(when)
    story.host.outcomes = [UNREACHABLE, asks, asks, asks]
    story.host.drops()
    error = story.fails(ConnectionLost)
    assert "does not let you in" in error.why
    assert story.prompts.asked == ["One-time code: "]
    is_left_with_the_way_back(story, error)


def test_who_answers_rightly_is_let_in_again(story: Story) -> None:
    story.launched("held")
    story.host.outcomes = [lambda: story.host.prompts.secret("One-time code: ")]
    story.host.drops()
    story.is_mended()
    story.goes_on_to_a_good_end()
    assert len(story.prompts.asked) == 1


def test_refused_without_a_question_five_times(story: Story) -> None:
    """A login node that is just starting up refuses everybody for a while, but not for ever."""
    story.launched("held")
    story.host.outcomes = [AuthenticationFailed("login does not let you in.") for _ in range(9)]
    story.host.drops()
    error = story.fails(ConnectionLost)
    assert story.host.attempts == 5
    is_left_with_the_way_back(story, error)


def test_refused_for_a_while(story: Story) -> None:
    refused = [AuthenticationFailed("login does not let you in.") for _ in range(4)]
    story.launched("held")
    story.host.outcomes = [*refused, UNREACHABLE, *refused]
    story.host.drops()
    story.is_mended()
    story.goes_on_to_a_good_end()


def test_a_bug_of_ours_while_mending_is_no_silence(story: Story) -> None:
    story.launched("held")
    story.host.outcomes = [KeyError("a bug")]
    story.host.drops()
    error = story.fails(ConnectionLost)
    assert "a bug" in error.why
    is_left_with_the_way_back(story, error)


@pytest.mark.parametrize("when", WHEN)
def test_it_is_not_tried_for_ever(story: Story, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    monkeypatch.setattr(attendance.Attendance, "_tried_until", lambda _: time.monotonic() + 0.2)
    story.launched(when)
    story.host.drops(reachable=False)
    error = story.fails(ConnectionLost)
    assert "login port 22 cannot be reached." in error.why
    assert story.host.attempts > 1
    is_left_with_the_way_back(story, error)


def test_a_way_to_the_node_is_not_looked_for_for_ever(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    story.launched("held")
    monkeypatch.setattr(attendance.Attendance, "_tried_until", lambda _: 0.0)
    story.ways.refusals = [NodeUnreachable("No way to n1 was found.")] * 1000
    story.ways.links[0].standing = False
    error = story.fails(ConnectionLost)
    assert "No way to n1 was found." in error.why
    is_left_with_the_way_back(story, error)


@pytest.mark.parametrize(("when", "seconds"), [("waiting", 24 * 3600), ("held", 59 * 60)])
def test_it_is_tried_for_as_long_as_the_job_can_be_there(
    story: Story, monkeypatch: pytest.MonkeyPatch, when: str, seconds: int
) -> None:
    deadlines = []

    class Noting(mending.Mending):
        def __init__(self, host: Host, prompts: mending.CountedPrompts, inbox: Inbox, **others: Any) -> None:
            deadlines.append(others["deadline"] - time.monotonic())
            super().__init__(host, prompts, inbox, **others)

    monkeypatch.setattr(attendance, "Mending", Noting)
    story.launched(when)
    story.host.drops()
    story.is_mended()
    assert deadlines and seconds - 60 < deadlines[0] < seconds + 120
    story.types("d")
    story.well()


# --- the user does not wait for it


@pytest.mark.parametrize("ours", [True, False], ids=["launch", "connect"])
def test_d_leaves_at_once_while_the_network_is_down(story: Story, ours: bool) -> None:
    story.launched("held") if ours else come_back_to_ready(story)
    story.host.drops(reachable=False)
    story.shown(events.Disconnected)
    story.types("d")
    story.well()
    assert story.names[-2:] == ["disconnected", "left"]
    assert story.host.count("scancel") == 0
    tried = story.host.attempts
    time.sleep(0.3)
    assert story.host.attempts <= tried + 1


@pytest.mark.parametrize("when", ["waiting", "starting"])
def test_d_leaves_at_once_before_it_is_ready(story: Story, when: str) -> None:
    story.launched(when)
    story.host.drops(reachable=False)
    story.shown(events.Disconnected)
    story.types("d")
    story.well()
    assert story.names[-2:] == ["disconnected", "left"] and story.host.count("scancel") == 0


@pytest.mark.parametrize("when", WHEN)
def test_a_terminal_closed_while_the_network_is_down(story: Story, when: str) -> None:
    story.launched(when)
    story.host.drops(reachable=False)
    story.shown(events.Disconnected)
    story.interrupts.arrive("leave")
    story.fails(HungUp)
    assert story.host.count("scancel") == 0 and story.host.state != "CANCELLED"


def ends(story: Story, how: str) -> None:
    story.types("") if how == "ENTER" else story.interrupts.arrive("end")


HOW = [("waiting", "Ctrl-C"), ("starting", "Ctrl-C"), ("held", "Ctrl-C"), ("held", "ENTER")]


@pytest.mark.parametrize(("when", "how"), HOW)
def test_the_job_is_cancelled_as_soon_as_the_network_is_back(story: Story, when: str, how: str) -> None:
    story.launched(when)
    story.host.drops(reachable=False)
    story.shown(events.Disconnected)
    ends(story, how)
    assert "as soon as the cluster is reached again" in story.shown(events.Noted).text
    story.host.is_tried(story.host.attempts + 2)
    assert story.going and "ended" not in story.names
    story.host.reachable = True
    story.well() if when == "held" else story.fails(Interrupted)
    assert story.host.state == "CANCELLED"
    assert story.names[-3:] == ["ending", "note", "ended"]


@pytest.mark.parametrize(("when", "how"), HOW)
def test_a_network_that_does_not_come_back_in_time(
    story: Story, monkeypatch: pytest.MonkeyPatch, when: str, how: str
) -> None:
    monkeypatch.setattr(ending, "GONE_WITHIN", 0.3)
    story.launched(when)
    story.host.drops(reachable=False)
    story.shown(events.Disconnected)
    ends(story, how)
    error = story.fails(CancelFailed)
    assert error.what == "Job 7 may still be there." and "is lost" in error.why
    assert error.mend == "end it on the login node with: scancel 7"
    assert "ended" not in story.names


@pytest.mark.parametrize(("when", "how"), HOW)
def test_the_second_ctrl_c_does_not_wait_for_the_network(story: Story, when: str, how: str) -> None:
    story.launched(when)
    story.host.drops(reachable=False)
    story.shown(events.Disconnected)
    ends(story, how)
    story.shown(events.Ending)
    story.interrupts.arrive("end")
    assert "Ctrl-C once more" in story.shown(events.Noted, 2).text
    assert story.going
    story.interrupts.arrive("end")
    error = story.fails(CancelFailed)
    assert "may still be there" in error.what and "scancel 7" in error.mend


def test_enter_costs_nothing_while_the_network_is_down(story: Story) -> None:
    story.launched("waiting")
    story.host.drops(reachable=False)
    story.shown(events.Disconnected)
    story.types("")
    assert "not ready yet" in story.shown(events.Noted).text
    story.host.reachable = True
    story.is_mended()
    story.goes_on_to_a_good_end()


def test_ctrl_c_on_the_way_back_leaves_the_session_without_a_network_too(story: Story) -> None:
    come_back(story)
    story.host.drops(reachable=False)
    story.shown(events.Disconnected)
    story.interrupts.arrive("end")
    story.well()
    assert story.names[-1] == "left" and story.host.count("scancel") == 0


@pytest.mark.parametrize("how", ["stop", "ENTER"])
def test_the_connection_breaks_while_the_job_is_ended(story: Story, how: str) -> None:
    def drops() -> Answer:
        del story.host.answers["scancel"]
        story.host.drops()
        raise LOST

    story.host.answers["scancel"] = drops
    if how == "stop":
        story.host.state = "RUNNING"
        story.stop()
    else:
        story.launched("held")
        story.types("")
    story.well()
    assert story.host.state == "CANCELLED" and story.names[-1] == "ended"


def test_the_connection_breaks_after_the_job_was_cancelled(story: Story) -> None:
    """Whether the word has arrived is not known: it is said again, and its end is seen."""
    story.launched("held")
    story.host.scancel_works = False
    story.types("")
    story.shown(events.Ending)
    story.host.drops(reachable=False)
    story.shown(events.Noted)
    story.host.scancel_works = story.host.reachable = True
    story.well()
    assert story.host.count("scancel") >= 2 and story.names[-1] == "ended"


@pytest.mark.parametrize("trouble", ["code", "host key"])
def test_nobody_is_asked_again_and_again_while_the_job_is_ended(story: Story, trouble: str) -> None:
    def asks() -> None:
        story.host.prompts.secret("One-time code: ")
        raise AuthenticationFailed("login does not let you in.")

    story.launched("held")
    story.hooks.at("ending", lambda: story.host.drops())
    outcome = asks if trouble == "code" else HostKeyChanged(CHANGED)
    story.host.outcomes = [UNREACHABLE, *[outcome] * 9]
    story.types("")
    error = story.fails(CancelFailed)
    assert "scancel 7" in error.mend
    assert ("does not let you in" if trouble == "code" else CHANGED) in error.why
    assert len(story.prompts.asked) == (trouble == "code")
    assert story.host.attempts == 2


# --- other ports ---------------------------------------------------------------------------------------------

FORWARDING = replace(PLAN, forwards=(6006, 8787))


def forwarded(story: Story) -> list[tuple[str, int, int]]:
    return [(e.node, e.port, e.local_port) for e in story.view.shown if isinstance(e, events.Forwarded)]


def test_ports_that_were_asked_for_are_told_after_the_address(story: Story) -> None:
    story.launch(FORWARDING)
    story.held()
    story.shown(events.Forwarded, 2)
    assert forwarded(story) == [("n1", 6006, 6006), ("n1", 8787, 8787)]
    assert story.names[-3:] == ["ready", "forwarded", "forwarded"]
    story.goes_on_to_a_good_end()


@pytest.mark.parametrize("line", ["f 6006", "F 6006", "  forward   6006 "])
def test_a_port_that_is_asked_for_while_held(story: Story, line: str) -> None:
    story.launched("held")
    story.types(line)
    told = story.shown(events.Forwarded)
    assert (told.node, told.port, told.local_port) == ("n1", 6006, 6006)
    story.goes_on_to_a_good_end()


def test_a_port_may_have_another_number_here(story: Story) -> None:
    story.launched("held")
    story.types("f 8000:8100")
    story.shown(events.Forwarded)
    assert forwarded(story) == [("n1", 8000, 8100)]
    story.goes_on_to_a_good_end()


@pytest.mark.parametrize("again", ["f 6006", "f 6006:6006"])
def test_a_port_that_is_open_already(story: Story, again: str) -> None:
    story.launched("held")
    story.types("f 6006")
    story.shown(events.Forwarded)
    story.types(again)
    assert "open already: http://127.0.0.1:6006" in story.shown(events.Noted).text
    assert len(forwarded(story)) == 1
    story.types("d")
    story.well()


def test_the_same_port_twice_in_one_command(story: Story) -> None:
    story.forward((6006, 0), (6006, 0))
    story.shown(events.Waiting)
    story.host.starts()
    story.noted("open already")
    assert len(forwarded(story)) == 1
    story.types("")
    story.well()


@pytest.mark.parametrize("when", ["waiting", "starting"])
def test_a_port_that_is_asked_for_too_early(story: Story, when: str) -> None:
    story.launched(when)
    story.types("f 6006")
    assert "6006 will be forwarded" in story.shown(events.Noted).text
    assert forwarded(story) == []
    if when == "waiting":
        story.host.starts()
    story.host.says("endpoint", port=4242)
    story.shown(events.Forwarded)
    assert story.names[-2:] == ["ready", "forwarded"]
    story.goes_on_to_a_good_end()


@pytest.mark.parametrize("when", ["waiting", "held"])
@pytest.mark.parametrize("word", ["nonsense", "0", "65536", "-1", "6006x", "²", "99999999999999999999"])
def test_what_is_no_port(story: Story, when: str, word: str) -> None:
    story.launched(when)
    story.types(f"f {word}")
    assert "is not a port" in story.shown(events.Noted).text
    assert forwarded(story) == []
    story.types("d")
    story.well()


@pytest.mark.parametrize("line", ["f", "f 1 2", "forwards 3", "help", "?"])
def test_half_a_wish_is_answered(story: Story, line: str) -> None:
    story.launched("held")
    story.types(line)
    keys = story.shown(events.Noted).text
    assert "ENTER alone ends" in keys and "d leaves it" in keys and "f PORT forwards" in keys
    assert story.going and forwarded(story) == []
    story.types("d")
    story.well()


def test_a_port_that_is_asked_for_while_the_network_is_down(story: Story) -> None:
    story.launched("held")
    story.host.drops(reachable=False)
    story.shown(events.Disconnected)
    story.types("f 6006")
    assert story.shown(events.Forwarded).local_port == 6006
    story.host.reachable = True
    story.is_mended()
    assert len(forwarded(story)) == 1, "a port stays, and is not told anew"
    story.goes_on_to_a_good_end()


def test_ports_after_a_requeue(story: Story) -> None:
    story.launch(FORWARDING)
    story.held()
    story.shown(events.Forwarded, 2)
    story.host.requeued()
    story.shown(events.Waiting, 2)
    story.host.starts("n2")
    story.host.says("endpoint", port=4343)
    story.shown(events.Forwarded, 4)
    assert forwarded(story)[2:] == [("n2", 6006, 6006), ("n2", 8787, 8787)]
    story.goes_on_to_a_good_end(ready=2)


# --- ports and nothing else ----------------------------------------------------------------------------------


def held_ports(story: Story) -> None:
    """Play the good way as far as the ports; JupyterLab has not said a word."""
    story.forward((6006, 0), (8787, 18787))
    story.shown(events.Waiting)
    story.host.starts()
    story.shown(events.Forwarded, 2)


@pytest.mark.parametrize("how", ["ENTER", "d", "Ctrl-C"])
def test_ports_of_a_running_session_need_no_jupyterlab_and_end_nothing(story: Story, how: str) -> None:
    held_ports(story)
    assert forwarded(story) == [("n1", 6006, 6006), ("n1", 8787, 18787)]
    assert "ready" not in story.names
    story.noted("the session goes on")
    story.interrupts.arrive("end") if how == "Ctrl-C" else story.types(how.replace("ENTER", ""))
    story.well()
    assert story.names[-1] == "left"
    assert story.host.count("scancel") == 0 and state.held_ports(SESSION_ID) == []


def test_ports_stay_after_a_drop_and_are_told_once(story: Story) -> None:
    held_ports(story)
    story.host.drops()
    story.is_mended()
    story.ways.links[-1].standing = False
    story.is_mended(2)
    assert len(forwarded(story)) == 2
    story.types("f 9000")
    story.shown(events.Forwarded, 3)
    story.types("")
    story.well()


def test_ports_of_a_job_that_is_put_back_into_the_queue(story: Story) -> None:
    held_ports(story)
    story.host.requeued()
    story.shown(events.Waiting, 2)
    story.host.starts("n2")
    story.shown(events.Forwarded, 4)
    assert forwarded(story)[2:] == [("n2", 6006, 6006), ("n2", 8787, 18787)]
    story.types("")
    story.well()


def test_ports_of_a_session_that_ends(story: Story) -> None:
    held_ports(story)
    story.host.says("exit", cause="stopped", message="It was sent SIGTERM.")
    story.host.state = "TIMEOUT"
    story.fails(JobTimedOut)


def test_changing_one_s_mind_before_the_ports_are_open(story: Story) -> None:
    story.forward((6006, 0))
    story.shown(events.Waiting)
    story.interrupts.arrive("end")
    story.well()
    assert story.names[-1] == "left" and story.host.count("scancel") == 0


# --- several launchers on one session ------------------------------------------------------------------------


def test_ended_by_another_launcher_is_a_good_end(story: Story) -> None:
    story.connect()
    story.held()
    story.host.files["ended-from"] = "laptop2\n"  # it says so before it cancels
    story.host.says("exit", cause="stopped", message="It was sent SIGTERM.")
    story.host.state = "CANCELLED"
    story.well()
    ended = story.shown(events.Ended)
    assert "by another launch-notebook, on laptop2" in ended.text and ended.by_itself


def test_cancelled_by_the_same_user_is_a_good_end(story: Story) -> None:
    story.host.answers["id"] = lambda: Answer(0, "alice\n")
    story.launch()
    story.held()
    story.host.history = "7|CANCELLED by 2001|0:15|n1|2026-11-21T12:00:00\n"
    story.host.state = "CANCELLED"
    story.well()
    assert story.shown(events.Ended).text == "Job 7 was ended by you, from elsewhere."


def test_a_word_left_by_a_launcher_does_not_hide_another_end(story: Story) -> None:
    story.connect()
    story.held()
    story.host.files["ended-from"] = "laptop2\n"
    story.host.says("exit", cause="stopped", message="It was sent SIGTERM.")
    story.host.state = "TIMEOUT"
    story.fails(JobTimedOut)


@pytest.mark.parametrize(("minutes", "is_believed"), [(1, True), (30, False)])
def test_a_word_left_by_an_end_that_failed_is_not_believed_later(story: Story, minutes: int, is_believed: bool) -> None:
    """Whenever the launcher hears of the end: what counts is the time between the word and the end."""
    story.connect()
    story.held()
    story.host.files["ended-from"] = "laptop2\n2026-11-01T12:00:00+00:00\n"
    story.host.says("exit", cause="stopped", message="It was sent SIGTERM.", ended=f"2026-11-01T12:{minutes:02d}:00Z")
    story.host.state = "CANCELLED"
    if is_believed:
        story.well()
        assert "on laptop2" in story.shown(events.Ended).text
    else:
        story.fails(JobCancelled)


def test_before_it_is_held_its_end_is_no_good_one(story: Story) -> None:
    story.connect()
    story.shown(events.Waiting)
    story.host.files["ended-from"] = "laptop2\n"
    story.host.state = "CANCELLED"
    story.fails(JobCancelled)


def test_who_ends_a_session_leaves_word(story: Story) -> None:
    story.launch()
    story.held()
    story.types("")
    story.well()
    assert any("ended-from" in command for _, command in story.host.ran)


# --- what this machine keeps meanwhile -----------------------------------------------------------------------


def test_a_session_is_held_here_for_as_long_as_it_is(story: Story) -> None:
    story.connect()
    story.held()
    wait = time.monotonic() + PATIENCE
    while state.last_port(SESSION_ID) == 0 and time.monotonic() < wait:
        time.sleep(0.02)
    assert state.held_ports(SESSION_ID) == [50001]
    story.types("d")
    story.well()
    assert state.held_ports(SESSION_ID) == []


def test_the_port_of_last_time_is_asked_for_again(story: Story) -> None:
    state.note_held(SESSION_ID, 43817)
    state.forget_held(SESSION_ID)
    story.connect()
    assert story.held().local_port == 43817
    story.types("d")
    story.well()


# --- time left -----------------------------------------------------------------------------------------------


def test_the_end_is_known_on_the_cluster_s_clock(story: Story) -> None:
    """The login node's clock shows 12:00 in another zone than ours; the job has run for 50 of its 59 minutes."""
    story.connect()
    story.shown(events.Waiting)
    row = "7|RUNNING|core|n1|2026-11-21T11:10:00|N/A|proj1|normal|59:00|None\n"
    story.host.answers["squeue"] = lambda: Answer(0, row)
    story.host.says("started", node_names=["n1"])
    story.host.says("endpoint", port=4242)
    holding, warning = story.shown(events.Holding), story.shown(events.TimeLeft)
    assert holding.ends == warning.ends == "2026-11-21T12:09:00+01:00"
    assert 530 < warning.seconds_left <= 540
    row = row.replace("59:00", "2:00:00")
    story.shown(events.Holding, 2)
    assert story.shown(events.Holding, 2).ends == "2026-11-21T13:10:00+01:00"
    story.types("d")
    story.well()


# --- trouble that is not the connection's --------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(lambda: Answer(1, "", "slurm_load_jobs error: Socket timed out"), id="failing"),
        pytest.param(failing(HostCommandFailed("squeue did not answer within 90 s.")), id="too slow"),
    ],
)
def test_a_scheduler_in_trouble_does_not_end_a_session(story: Story, trouble: Callable[[], Answer]) -> None:
    story.launch()
    story.held()
    story.host.answers["squeue"] = trouble
    story.host.noticed()
    story.host.noticed()
    assert story.going
    story.types("hello?")
    story.shown(events.Noted)
    del story.host.answers["squeue"]
    story.types("")
    story.well()
    assert story.host.count("scancel") == 1


def test_no_way_to_the_node_cancels_our_job(story: Story) -> None:
    story.hooks.at("opening", failing(NodeUnreachable("No way to n1 was found.")))
    story.launch()
    story.plays_to_the_end()
    story.fails(NodeUnreachable)
    assert story.host.commands("scancel") == ["scancel 7"]
    assert story.names[-2:] == ["ending", "ended"]


def test_a_silent_jupyter_cancels_our_job(story: Story) -> None:
    story.hooks.at("reaching", failing(JupyterSilent("It does not answer.")))
    story.launch()
    story.plays_to_the_end()
    story.fails(JupyterSilent)
    assert story.host.count("scancel") == 1


def test_a_port_file_without_a_port(story: Story) -> None:
    story.launch()
    story.shown(events.Waiting)
    story.host.starts()
    story.host.says("endpoint", port="x")
    assert "no port" in story.fails(JupyterSilent).what
    assert story.host.count("scancel") == 1


# --- submitting ----------------------------------------------------------------------------------------------


def test_refused(story: Story) -> None:
    story.host.answers["sbatch"] = lambda: Answer(1, "", "sbatch: error: invalid partition specified: x\n")
    story.launch()
    assert "no partition of that name" in story.fails(PartitionRefused).what
    directory = story.host.commands("sbatch")[0].split()[2]
    assert story.host.commands("rm") == [f"rm -rf -- {directory}"]
    assert story.host.count("scancel") == 0
    assert story.names == []


def test_a_number_that_cannot_be_read_is_looked_up_by_name(story: Story) -> None:
    story.host.answers["sbatch"] = lambda: Answer(0, "Your job was sent. Good luck!\n")

    def ours() -> Answer:
        name = story.host.commands("sbatch")[0].split()[2].rpartition("/")[2]
        return Answer(0, f"6|other|/home/alice/other.sh\n7|{name}|/x\n")

    story.host.answers["find"] = ours
    story.launch()
    story.held()
    story.types("")
    story.well()
    assert story.host.commands("scancel") == ["scancel 7"]
    assert story.host.count("rm") == 0


@pytest.mark.parametrize(
    "error",
    [ConnectionLost("The connection to login is lost."), HostCommandFailed("It did not answer within 90 s.")],
    ids=["connection", "too slow"],
)
def test_the_answer_of_sbatch_is_lost_but_noted_there(story: Story, error: LauncherError) -> None:
    story.host.answers["sbatch"] = failing(error)
    story.host.files["job"] = "7\n"
    story.launch()
    assert story.held().job == "7"
    story.types("")
    story.well()


@pytest.mark.parametrize(
    ("sbatch", "find"),
    [
        pytest.param(lambda: Answer(0, "Good luck!\n"), lambda: Answer(0, ""), id="no number and no job"),
        pytest.param(
            lambda: Answer(0, "Good luck!\n"), lambda: Answer(1, "", "Socket timed out"), id="no number and no squeue"
        ),
        pytest.param(
            failing(ConnectionLost("The connection to login is lost.")),
            failing(ConnectionLost("The connection to login is lost.")),
            id="no connection",
        ),
        pytest.param(
            failing(HostCommandFailed("It did not answer within 90 s.")),
            failing(HostCommandFailed("It did not answer within 90 s.")),
            id="too slow",
        ),
    ],
)
def test_whether_it_is_queued_is_not_known(
    story: Story, sbatch: Callable[[], Answer], find: Callable[[], Answer]
) -> None:
    story.host.answers |= {"sbatch": sbatch, "find": find}
    story.launch()
    error = story.fails(SubmitUncertain)
    assert "may have been queued" in error.what and "squeue" in error.mend and "--me" in error.mend
    assert "launch-notebook stop" in error.mend
    assert story.host.count("rm") == story.host.count("scancel") == 0
    assert {*story.names} <= {"note"}


def test_a_connection_that_breaks_while_the_job_is_queued_is_made_anew_for_the_answer(story: Story) -> None:
    def breaks() -> Answer:
        story.host.drops()
        raise ConnectionLost("The connection to login is lost.")

    story.host.answers["sbatch"] = breaks
    story.host.files["job"] = "7\n"
    story.launch()
    story.shown(events.Waiting)
    assert story.host.connection == 1
    story.presses_ctrl_c(1)
    story.fails(Interrupted)
    assert story.host.commands("scancel") == ["scancel 7"]


def test_a_look_that_fails_takes_back_the_certainty_of_the_one_before(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queueing.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(queueing, "APPEARS_WITHIN", 1.5)
    looks = iter([Answer(0, "")])
    story.host.answers |= {"sbatch": no_answer, "find": lambda: next(looks, Answer(1, "", "Socket timed out"))}
    story.launch()
    story.fails(SubmitUncertain)
    assert story.host.count("rm") == 0


def test_files_that_cannot_be_written(story: Story) -> None:
    story.host.answers["write"] = lambda: Answer(1, "", "tar: Disk quota exceeded")
    story.launch()
    assert "quota" in story.fails(HostCommandFailed).why
    assert story.host.count("sbatch") == story.host.count("scancel") == 0


# --- coming back, and stopping -------------------------------------------------------------------------------


def come_back(story: Story, state: str = "RUNNING") -> None:
    story.host.state, story.host.node = state, "n1"
    story.connect()
    assert story.shown(events.Noted).text == f"Session {SESSION_ID}: job 7."


def come_back_to_ready(story: Story) -> None:
    come_back(story)
    story.host.says("started", node_names=["n1"])
    story.host.says("endpoint", port=4242)
    assert story.shown(events.Ready).url == "http://127.0.0.1:50001/lab?token=secret"


@pytest.mark.parametrize(
    ("step", "error"),
    [("opening", NodeUnreachable("No way to n1 was found.")), ("reaching", JupyterSilent("It does not answer."))],
    ids=["node", "jupyter"],
)
def test_a_session_that_cannot_be_reached_from_here_goes_on(story: Story, step: str, error: LauncherError) -> None:
    story.hooks.at(step, failing(error))
    come_back(story)
    story.host.says("started", node_names=["n1"])
    story.host.says("endpoint", port=4242)
    assert story.over() is error
    assert story.host.count("scancel") == story.host.count("rm") == 0
    assert "ready" not in story.names


@pytest.mark.parametrize("how", ["d", "Ctrl-C"])
def test_changing_one_s_mind_before_the_way_back_is_open(story: Story, how: str) -> None:
    """What was asked for is a way to the session; without one the session is as it was."""
    come_back(story)
    story.shown(events.Running)
    story.types("d") if how == "d" else story.interrupts.arrive("end")
    story.well()
    assert story.names[-1] == "left" and "ending" not in story.names
    assert story.shown(events.Left).come_back == f"launch-notebook connect --cluster uni {SESSION_ID}"
    assert story.host.count("scancel") == 0


@pytest.mark.parametrize("step", ["head", "note", "running", "opening", "reaching", "ready"])
def test_a_terminal_closed_on_the_way_back(story: Story, step: str) -> None:
    story.hooks.at(step, lambda: story.interrupts.arrive("leave"))
    story.host.state, story.host.node = "RUNNING", "n1"
    story.connect()
    if story.shown_or_over(events.Running):
        story.host.says("started", node_names=["n1"])
        story.host.says("endpoint", port=4242)
    story.fails(HungUp)
    assert story.host.count("scancel") == 0


@pytest.mark.parametrize("how", ["ENTER", "Ctrl-C"])
def test_a_session_that_was_come_back_to_is_ended_while_held(story: Story, how: str) -> None:
    come_back_to_ready(story)
    story.types("") if how == "ENTER" else story.interrupts.arrive("end")
    story.well()
    assert story.names[-3:] == ["ready", "ending", "ended"]
    assert story.host.commands("scancel") == ["scancel 7"]


def test_a_session_that_was_come_back_to_is_left_again(story: Story) -> None:
    come_back_to_ready(story)
    story.types("d")
    story.well()
    assert story.names[-2:] == ["ready", "left"]
    assert story.host.count("scancel") == 0


@pytest.mark.parametrize("trouble", ["never starts", "silent", "bug"])
def test_what_goes_wrong_on_the_way_back_ends_nothing(
    story: Story, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setattr(attendance, "FIRST_WORD_WITHIN", 0.1)
    if trouble == "bug":
        story.hooks.at("running", failing(KeyError("a bug")))
    story.host.reason = "PartitionTimeLimit" if trouble == "never starts" else "None"
    come_back(story, "PENDING" if trouble == "never starts" else "RUNNING")
    story.fails({"never starts": JobNeverStarts, "silent": JobSilent, "bug": KeyError}[trouble])
    assert story.host.count("scancel") == 0


def test_a_session_that_ended_in_the_meantime(story: Story) -> None:
    come_back(story)
    story.host.says("exit", cause="image-missing", message="There is no image /x.sif.")
    assert "no image" in story.fails(ImageUnusable).what
    assert story.host.count("scancel") == 0


def test_stop(story: Story) -> None:
    story.host.state = "RUNNING"
    story.stop()
    story.well()
    assert story.names == ["ending", "ended"]
    assert story.host.commands("scancel") == ["scancel 7"]


def test_impatient_interrupts_while_stopping(story: Story) -> None:
    story.host.state, story.host.scancel_works = "RUNNING", False
    story.hooks.at("ending", lambda: story.presses_ctrl_c(2))
    story.stop()
    assert "scancel 7" in story.fails(CancelFailed).mend


def test_a_terminal_closed_while_stopping(story: Story) -> None:
    story.host.state, story.host.scancel_works = "RUNNING", False
    story.hooks.at("ending", lambda: story.interrupts.arrive("leave"))
    story.stop()
    story.shown(events.Ending)
    story.host.state = "CANCELLED"
    story.well()


# --- who reads us has gone -----------------------------------------------------------------------------------


class BrokenView(BaseView):
    """Whose reader has gone (``launch-notebook --json | head -1``)."""

    def _show(self, event: events.Event) -> None:
        raise BrokenPipeError


def test_a_broken_pipe_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())  # the view replaces it
    view = BrokenView()
    view.interrupts.defer()
    view.show(events.Noted("x"))
    view.show(events.Noted("y"))
    assert view.interrupts.inbox.get_nowait() == Interrupt("end")
    assert view.interrupts.inbox.empty(), "told once"


def test_a_broken_pipe_while_nothing_is_at_stake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())  # the view replaces it
    with pytest.raises(KeyboardInterrupt):
        BrokenView().show(events.Noted("x"))


def test_a_session_whose_reader_has_gone_is_ended(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    class Pipe(io.StringIO):
        def write(self, text: str) -> int:
            if '"event": "ready"' in text:
                raise BrokenPipeError
            return super().write(text)

    pipe = Pipe()
    monkeypatch.setattr(sys, "stdout", pipe)
    view = JsonView()
    view.listening = True  # nobody types
    story.host.state = "RUNNING"
    story.view = view  # type: ignore[assignment]
    story.interrupts = view.interrupts
    done: list[BaseException | None] = []

    def play() -> None:
        try:
            launch.launch(PLAN, view, NoPrompts(), view.interrupts)
        except BaseException as error:
            done.append(error)
        else:
            done.append(None)

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    story.host.says("started", node_names=["n1"])
    story.host.says("endpoint", port=4242)
    thread.join(PATIENCE)
    assert done == [None]
    assert story.host.commands("scancel") == ["scancel 7"]
    names = [json.loads(line)["event"] for line in pipe.getvalue().splitlines()]
    assert names[0] == "submitted" and "ready" not in names and "ended" not in names


# --- signals -------------------------------------------------------------------------------------------------

ENDING = [signal.SIGINT, signal.SIGTERM]


@pytest.fixture
def usual_signals() -> Iterator[None]:
    """As a shell starts us in the foreground, whatever started the tests (``nohup``)."""
    before = {number: signal.getsignal(number) for number in (*ENDING, signal.SIGHUP)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: signal.Signals) -> None:
    """Send a signal to ourselves; its handler has run when this returns, or runs in the sleep."""
    os.kill(os.getpid(), number)
    time.sleep(0.5)


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize("number", ENDING)
def test_a_signal_while_nothing_is_at_stake_is_raised(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt), signals(JsonView()):
        send(number)


@pytest.mark.usefixtures("usual_signals")
def test_a_hang_up_while_nothing_is_at_stake(capsys: pytest.CaptureFixture[str]) -> None:
    view = JsonView()
    went_on = False
    with signals(view):
        send(signal.SIGHUP)
        went_on = True
    assert not went_on
    assert view.exit_code == 129
    view.show(events.Noted("to nobody"))
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize("number", [*ENDING, signal.SIGHUP])
def test_a_deferred_signal_is_an_item(capsys: pytest.CaptureFixture[str], number: signal.Signals) -> None:
    view = JsonView()
    with signals(view) as interrupts:
        interrupts.defer()
        os.kill(os.getpid(), number)
        assert interrupts.inbox.get(timeout=PATIENCE) == Interrupt("leave" if number == signal.SIGHUP else "end")
        os.kill(os.getpid(), number)  # and again: the second one counts as well
        assert isinstance(interrupts.inbox.get(timeout=PATIENCE), Interrupt)
        assert interrupts.inbox.empty()
        view.show(events.Noted("still there?"))
    assert (capsys.readouterr().out == "") is (number == signal.SIGHUP), "a hang-up silences the view"
    assert view.exit_code == 0


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize("number", [*ENDING, signal.SIGHUP])
def test_an_ignored_signal_stays_ignored(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_IGN)
    with signals(JsonView()) as interrupts:
        os.kill(os.getpid(), number)
        interrupts.defer()
        os.kill(os.getpid(), number)
        time.sleep(0.05)
        assert interrupts.inbox.empty()
        assert signal.getsignal(number) is signal.SIG_IGN
    assert signal.getsignal(number) is signal.SIG_IGN


@pytest.mark.usefixtures("usual_signals")
def test_the_handlers_are_put_back() -> None:
    numbers = (*ENDING, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    with contextlib.suppress(ValueError), signals(JsonView()):
        assert [signal.getsignal(number) for number in numbers] != before
        raise ValueError
    assert [signal.getsignal(number) for number in numbers] == before


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize("number", [*ENDING, signal.SIGHUP])
@pytest.mark.parametrize("step", ["write", "sbatch", "squeue"])
def test_a_real_signal_in_the_middle_of_a_story(story: Story, step: str, number: signal.Signals) -> None:
    """On the main thread, where signals are handled; between the scheduler's answer and the line that keeps it, too."""
    view = JsonView()
    view.listening = True  # nobody types
    story.hooks.at(step, lambda: os.kill(os.getpid(), number))
    raised: BaseException | None = None
    with signals(view) as interrupts:
        try:
            launch.launch(PLAN, view, NoPrompts(), interrupts)
        except BaseException as error:
            raised = error
            if isinstance(error, HungUp):
                raise
    queued = step != "write"
    if number == signal.SIGHUP and queued:
        assert isinstance(raised, HungUp) and view.exit_code == 129
    elif number != signal.SIGHUP:
        assert isinstance(raised, Interrupted)
    assert story.host.count("sbatch") == queued
    assert story.host.count("scancel") == (queued and number != signal.SIGHUP)
    assert story.host.count("rm") == (not queued)


# --- several clusters ----------------------------------------------------------------------------------------


def test_a_job_on_another_cluster_is_named_and_cancelled_there(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "GONE_WITHIN", 0.3)
    story.host.answers["sbatch"] = lambda: Answer(0, "7;snowy\n")
    story.launch(replace(PLAN, request=Request({"clusters": "snowy"})))
    story.held()
    story.host.answers["scancel"] = failing(ConnectionLost("The connection to login is lost."))
    story.types("")
    error = story.fails(CancelFailed)
    assert "7 on snowy" in error.what
    assert "scancel --clusters=snowy 7" in error.mend


# --- the bill ------------------------------------------------------------------------------------------------


def accounted(state: str, step: str = "") -> Answer:
    rows = f"7|{state}|2001|gpu|600|120|2|1|cpu=2,mem=4G,node=1|01:00.000|1200||4G|\n"
    return Answer(0, rows + (f"7.batch|{step}|||600||2|1|cpu=2|01:00.000|1200|1048576||0\n" if step else ""))


def test_the_bill_comes_after_the_end(story: Story) -> None:
    """The accounting is a moment behind, which is waited for."""
    answers = iter([accounted("RUNNING"), accounted("CANCELLED by 2001", "CANCELLED")])
    story.host.answers["sacct"] = lambda: next(answers)
    story.launch()
    story.held()
    story.types("")
    story.well()
    assert story.names[-3:] == ["ending", "ended", "bill"]
    bill = story.shown(events.Bill)
    assert (bill.wall, bill.cores, bill.cpu_used) == (600, 2, 60)


def test_who_does_not_wait_for_the_last_figures_sees_the_others(story: Story) -> None:
    def not_yet() -> Answer:
        story.presses_ctrl_c(1)
        return accounted("RUNNING")

    story.host.answers |= {"sacct": not_yet, "bill": lambda: Answer(0, 'started {"started": "2026-11-21T01:00:00Z"}\n')}
    story.launch()
    story.held()
    story.types("")
    story.well()
    assert story.host.count("sacct") == 1
    assert "have not come" in story.shown(events.Bill).measured


@pytest.mark.parametrize(("error", "last"), [(ConnectionLost("It broke."), "ended"), (ValueError("odd"), "note")])
def test_a_bill_that_cannot_be_made_is_no_error(story: Story, error: Exception, last: str) -> None:
    def fail() -> Answer:
        raise error

    story.host.answers["bill"] = fail
    story.launch()
    story.held()
    story.types("")
    story.well()
    assert story.names[-1] == last


def test_a_session_that_goes_on_has_no_bill(story: Story) -> None:
    story.host.answers["sacct"] = lambda: accounted("RUNNING", "RUNNING")
    story.connect()
    story.host.starts()
    story.shown(events.Running)
    story.presses_ctrl_c(1)
    story.well()
    assert story.names[-1] == "left"


def test_a_job_that_somebody_cancelled_has_a_bill(story: Story) -> None:
    story.host.answers["sacct"] = lambda: accounted("CANCELLED by 0", "CANCELLED")
    story.launch()
    story.held()
    story.host.state = "CANCELLED"
    story.fails(JobCancelled)
    assert story.names[-1] == "bill"
