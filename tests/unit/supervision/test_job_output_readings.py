"""What a run prints, read several times over: the reading breaks, the job is requeued, the user interrupts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.errors import ConnectionLost
from notebook_launcher.core.interrupts import Interrupt, Interrupts
from notebook_launcher.core.timing import Timing
from notebook_launcher.hosts.base import LineStream, OnEnd, OnLine
from notebook_launcher.supervision.job_output import JobOutput
from tests.doubles import FakeHost, RecordingView


class OpenReading(LineStream):
    """One reading of the file; what is read arrives as the test says, until it is closed."""

    def __init__(self, on_line: OnLine, on_end: OnEnd) -> None:
        self._on_line, self._on_end, self.closed = on_line, on_end, False

    def close(self) -> None:
        self.closed = True

    def prints(self, first: int, *lines: str) -> None:
        for line in (str(first), *lines):
            self._on_line(line)

    def ends(self) -> None:
        self._on_end("killed by the login node")


class FileHost(FakeHost):
    """A login node on which ``then`` happens as soon as the file is read; ``readings``: from which line, so far."""

    def __init__(self) -> None:
        super().__init__()
        self.readings: list[OpenReading] = []
        self.first: list[int] = []
        self.then: Callable[[OpenReading], None] = lambda _reading: None

    def stream(self, argv: Sequence[str], on_line: OnLine, on_end: OnEnd) -> LineStream:
        reading = OpenReading(on_line, on_end)
        self.then(reading)
        self.readings.append(reading)
        self.first.append(int(argv[5]))
        return reading


@pytest.fixture
def host() -> FileHost:
    return FileHost()


@pytest.fixture
def context(host: FileHost) -> Any:
    interrupts = Interrupts()
    interrupts.defer()
    timing = Timing(reread_pause=0.0)
    return SimpleNamespace(host=host, view=RecordingView(), interrupts=interrupts, timing=timing)


@pytest.fixture
def lines(context: Any) -> JobOutput:
    return JobOutput(cast(Any, context), "/session/runtime/printed")


def handle_all(context: Any, lines: JobOutput) -> list[str]:
    """Handle what has arrived, and return all lines that are shown."""
    while not context.interrupts.inbox.empty():
        lines.handle(context.interrupts.inbox.get())
    return [event.text for event in context.view.all(events.LogLine)]


def test_a_connection_that_breaks_as_the_reading_begins(host: FileHost, context: Any, lines: JobOutput) -> None:
    def breaks(_reading: OpenReading) -> None:
        raise ConnectionLost("The connection is lost.")

    host.then = breaks
    with pytest.raises(ConnectionLost):
        lines.job_started()
    with pytest.raises(ConnectionLost):
        lines.check()
    host.then = lambda reading: reading.prints(1, "epoch 0")
    lines.check()  # it is back
    lines.check()
    assert handle_all(context, lines) == ["epoch 0"] and host.first == [1]


def test_what_a_former_reading_has_left_is_not_shown_twice(host: FileHost, context: Any, lines: JobOutput) -> None:
    lines.job_started()
    host.readings[0].prints(1, "1")
    host.readings[0].ends()
    assert handle_all(context, lines) == ["1"]
    host.readings[0].prints(2, "2")  # still on its way
    host.then = lambda reading: reading.prints(2, "2", "3")
    lines.check()
    host.readings[0].ends()
    assert handle_all(context, lines) == ["1", "2", "3"]
    lines.check()
    assert host.first == [1, 2], "the end of the former reading is not that of the present one"
    host.readings[1].prints(4, "4")
    host.then = lambda reading: reading.prints(1, "anew")
    lines.job_started()
    assert handle_all(context, lines) == ["1", "2", "3", "anew"]


def test_a_requeued_job_is_not_read_before_it_has_started_again(host: FileHost, context: Any, lines: JobOutput) -> None:
    lines.job_started()
    lines.job_requeued()
    assert host.readings[0].closed
    host.readings[0].prints(1, "the second run")
    host.readings[0].ends()
    assert handle_all(context, lines) == []
    lines.check()
    lines.show_rest()
    assert len(host.readings) == 1
    host.then = lambda reading: reading.prints(1, "the second run")
    lines.job_started()
    assert handle_all(context, lines) == ["the second run"]


def test_a_log_that_is_begun_anew_is_shown_once(host: FileHost, context: Any, lines: JobOutput) -> None:
    """As Slurm does with a requeued job's, unless the script says --open-mode=append."""
    lines.job_started(goes_on=True)
    host.readings[0].prints(1, "1", "2", "3", "4")
    handle_all(context, lines)
    lines.job_requeued()
    host.then = lambda reading: reading.prints(1, "anew")
    lines.job_started(goes_on=True)
    assert handle_all(context, lines)[4:] == ["anew"]
    host.then = lambda reading: (reading.prints(2, "last"), reading.ends())[-1]
    lines.show_rest()
    assert handle_all(context, lines)[4:] == ["anew", "last"] and host.first[-1] == 2


def test_what_is_in_the_inbox_at_the_end_stays_there(host: FileHost, context: Any, lines: JobOutput) -> None:
    lines.job_started()
    context.interrupts.arrive("leave")
    context.interrupts.inbox.put("something else")
    host.readings[0].prints(1, "1")
    host.readings[0].ends()

    def reads(reading: OpenReading) -> None:
        reading.prints(1, "1", "2")
        reading.ends()

    host.then = reads
    lines.show_rest()
    shown = [event.text for event in context.view.all(events.LogLine)]
    assert shown == ["1", "2"] and host.readings[1].closed is True
    items = [context.interrupts.inbox.get() for _ in range(2)]
    assert items == [Interrupt("leave"), "something else"]


def test_ctrl_c_does_not_wait_behind_lines(host: FileHost, context: Any, lines: JobOutput) -> None:
    host.then = lambda reading: reading.prints(1, "1", "2", "3")
    lines.job_started()
    context.view.on_event = lambda _event: context.interrupts.arrive("end")
    inbox = context.interrupts.inbox
    while (item := inbox.get_nowait()) != Interrupt("end"):
        lines.handle(item)
    assert [event.text for event in context.view.all(events.LogLine)] == ["1"]
    context.view.on_event = lambda _event: None
    host.then = lambda reading: (reading.prints(2, "2", "3"), reading.ends())[-1]
    lines.show_rest()
    assert host.first == [1, 2], "what was not shown can still be read"


def test_ctrl_c_ends_the_reading_and_is_not_lost(host: FileHost, context: Any, lines: JobOutput) -> None:
    lines.job_started()
    host.then = lambda reading: reading.prints(1, "1", "2", "3")  # and never ends
    context.view.on_event = lambda _event: context.interrupts.arrive("end")
    lines.show_rest()
    assert [event.text for event in context.view.all(events.LogLine)] == ["1"]
    assert context.interrupts.inbox.get_nowait() == Interrupt("end")
