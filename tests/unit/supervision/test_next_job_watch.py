"""What watches the next job: only the scheduler says that it has ended, and whatever else fails is tried again."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any, cast

import pytest

from notebook_launcher.core.errors import (
    ConnectionLost,
    HostCommandFailed,
    HostKeyChanged,
    JupyterSilent,
    LauncherError,
    NodeUnreachable,
)
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.jobs.status import NoAnswer
from notebook_launcher.schedulers.base import JobRef, JobStatus, State
from notebook_launcher.session.credentials import Access
from notebook_launcher.session.record import Session, SessionRecord
from notebook_launcher.supervision import next_job_watch
from notebook_launcher.supervision.next_job_watch import Answers, Lost, NextJobWatch, Shown

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)
NEXT = "20261121-120000-3pi3"
ENDPOINT = b'{"version":1,"address":"127.0.0.1","port":4242,"base_url":"/","secure":false}'
PATIENCE = 10


class Node:
    """The next job, and the way there. ``failures``: of the next looks; ``state``: of its job, ``None``: forgotten."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failures: list[Exception] = []
        self.state: State | Exception | None = State.RUNNING
        self.looks, self.queries = 0, 0
        self.interrupts, self.watch = Interrupts(), cast("NextJobWatch | None", None)
        host = SimpleNamespace(read_file=lambda path: ENDPOINT if path.endswith("endpoint.json") else b"{}")
        target = SimpleNamespace(profile=SimpleNamespace(route="node-ssh"), name="uni")
        self.context: Any = SimpleNamespace(
            host=host,
            scheduler=None,
            target=target,
            interrupts=self.interrupts,
            host_timing=SimpleNamespace(answer_within=5.0),
            clock=lambda: NOW,
        )
        monkeypatch.setattr(next_job_watch, "CHECK_EVERY", 0.005)
        monkeypatch.setattr(next_job_watch, "QUERY_EVERY", 0.01)
        monkeypatch.setattr(next_job_watch, "find_route", self.find_route)
        monkeypatch.setattr(next_job_watch, "check_jupyter", lambda *_: None)
        monkeypatch.setattr(next_job_watch, "query_status", self.query_status)

    def find_route(self, *_arguments: object, asks: bool) -> tuple[str, Any]:
        assert not asks, "nobody expects a question in the middle of the session"
        self.looks += 1
        if self.failures:
            raise self.failures.pop(0)
        return "node-ssh", SimpleNamespace(alive=True, close=lambda: None)

    def query_status(self, *_arguments: object) -> JobStatus | None:
        self.queries += 1
        if isinstance(self.state, Exception):
            raise self.state
        return JobStatus(JobRef("8"), self.state) if self.state else None

    def watched(self, begins: datetime | None = None) -> NextJobWatch:
        session = Session(SessionRecord(NEXT, NOW, "slurm", {}, "/log"), f"/s/{NEXT}", JobRef("8"))
        access = Access("token", lambda: pytest.fail("no keys"))
        self.watch = NextJobWatch(self.context, session, access, begins)
        return self.watch

    def told(self) -> object:
        return self.interrupts.inbox.get(timeout=PATIENCE)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    node = Node(monkeypatch)
    yield node
    if node.watch is not None:
        node.watch.close()


@pytest.mark.parametrize(
    "failure",
    [
        NodeUnreachable("No route to gpu2 was found."),
        JupyterSilent("JupyterLab does not answer."),
        ConnectionLost("The connection to login is lost."),
        HostCommandFailed("cat did not answer within 90 s."),
        LauncherError("Something else."),
        ValueError("a bug"),
    ],
)
def test_what_fails_is_tried_again(node: Node, failure: Exception) -> None:
    node.failures = [failure] * 3
    watch = node.watched()
    assert node.told() == Answers(watch)
    assert node.looks == 4


@pytest.mark.parametrize(("state", "why"), [(State.CANCELLED, "cancelled."), (None, "the scheduler does not know")])
def test_the_scheduler_alone_says_that_it_is_gone(node: Node, state: State | None, why: str) -> None:
    node.failures, node.state = [NodeUnreachable("No route.")] * 10_000, state
    watch, told = node.watched(), node.told()
    assert isinstance(told, Lost) and told.by is watch and told.why.startswith(why) and not told.runs


def test_a_scheduler_that_is_silent_says_nothing(node: Node) -> None:
    node.failures, node.state = [NodeUnreachable("No route.")] * 20, NoAnswer()
    watch = node.watched()
    assert node.told() == Answers(watch)
    assert node.queries > 0


def test_a_node_of_somebody_else_is_given_up_and_the_job_is_cancelled(node: Node) -> None:
    node.failures = [HostKeyChanged("The host key of gpu2 has changed.")]
    watch = node.watched()
    assert node.told() == Lost(watch, "The host key of gpu2 has changed.", runs=True)


def test_that_it_cannot_be_reached_is_said_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_job_watch, "NOTE_AFTER", 0.01)
    node.failures = [NodeUnreachable("No route to gpu2 was found.")] * 10
    watch, told = node.watched(), node.told()
    assert isinstance(told, Shown) and "job, 8, cannot be reached yet: No route to gpu2 was found." in str(told.event)
    assert node.told() == Answers(watch)


def test_before_its_time_it_is_not_looked_at_but_asked_for(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = node.watched(NOW + timedelta(milliseconds=20))  # a clock that stands still
    with pytest.raises(queue.Empty):
        node.interrupts.inbox.get(timeout=0.1)
    assert node.looks == node.queries == 0
    monkeypatch.setattr(next_job_watch, "QUERY_BEFORE_EVERY", 0.01)
    node.state = State.CANCELLED
    assert node.told() == Lost(watch, "cancelled.")
