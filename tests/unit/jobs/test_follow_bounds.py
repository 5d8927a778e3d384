"""A file that is read faster than its lines are shown: what waits stays small, and a Ctrl-C does not wait behind it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.hosts.base import LineStream, OnEnd, OnLine
from notebook_launcher.jobs import follow
from notebook_launcher.jobs.follow import FileLine, GrowingFile, ReadEnded, SessionFollower, read_lines, read_rest
from tests.doubles import FakeHost, RecordingView, wait_until

LINE = "x" * 2**20
COUNT = 100


class Flood(LineStream):
    """A command that prints as quickly as it is read, on a thread of its own."""

    def __init__(self, on_line: OnLine, on_end: OnEnd) -> None:
        self.passed_on = 0
        self._on_line, self._on_end = on_line, on_end
        self.thread = threading.Thread(target=self._print, daemon=True)
        self.thread.start()

    def _print(self) -> None:
        self._on_line("1")
        for _ in range(COUNT):
            self._on_line(LINE)
            self.passed_on += 1
        self._on_end("exit code 0")

    def close(self) -> None:
        pass


class FloodingHost(FakeHost):
    def stream(self, argv: Sequence[str], on_line: OnLine, on_end: OnEnd) -> LineStream:
        self.flood = Flood(on_line, on_end)
        return self.flood


@pytest.fixture
def host() -> FloodingHost:
    return FloodingHost()


def test_of_lines_that_nobody_takes_only_a_few_are_read(host: FloodingHost) -> None:
    inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
    file = GrowingFile("/log", 1, inbox, follow=True)
    file.start(host)
    for count in range(1, COUNT + 1):
        item = inbox.get(timeout=30)
        assert isinstance(item, FileLine) and item.text == LINE
        assert host.flood.passed_on <= count + 10
        item.taken()
    assert isinstance(inbox.get(timeout=30), ReadEnded)


def test_a_reading_that_waits_ends_when_it_is_closed_and_leaves_nothing_more(host: FloodingHost) -> None:
    inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
    file = GrowingFile("/log", 1, inbox, follow=True)
    file.start(host)
    assert wait_until(lambda: host.flood.passed_on > 0)
    file.close()
    host.flood.thread.join(30)
    assert not host.flood.thread.is_alive()
    assert inbox.qsize() < 10


@pytest.mark.parametrize("read", [lambda context: read_lines(context, ["/log"], 1), lambda c: read_rest(c, "/log", 1)])
def test_whoever_reads_gets_all_lines(host: FloodingHost, read: Any) -> None:
    context = SimpleNamespace(host=host, view=RecordingView(), interrupts=Interrupts())
    assert sum(1 for _ in read(context)) == COUNT


class QuietWatcher:
    """A watcher of a job of which there is nothing to say."""

    silent_for = 0.0
    polling = None

    def start(self) -> None:
        pass

    def close(self) -> None:
        pass


def follow_log(context: Any) -> Any:
    session = SimpleNamespace(directory="/session", job="7")
    return SessionFollower(context, session, [("/log", 1)]).items()  # type: ignore[arg-type]


@pytest.mark.parametrize("read", [lambda context: read_lines(context, ["/log"], 1), follow_log])
def test_an_interrupt_does_not_wait_until_all_lines_before_it_are_shown(
    host: FloodingHost, monkeypatch: pytest.MonkeyPatch, read: Any
) -> None:
    monkeypatch.setattr(SessionFollower, "_new_watcher", lambda *_: QuietWatcher())
    monkeypatch.setattr(follow, "job_of", lambda _session: SimpleNamespace(id="7"))
    interrupts = Interrupts()
    interrupts.defer()
    timing = SimpleNamespace(lost_after=60.0)
    lines = (item for item in read(SimpleNamespace(host=host, interrupts=interrupts, timing=timing)) if item)
    next(lines)
    assert wait_until(lambda: interrupts.inbox.qsize() >= 3)
    interrupts.arrive("end")
    assert list(lines) == []
