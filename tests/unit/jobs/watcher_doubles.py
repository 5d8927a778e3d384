"""A host that answers a watcher's questions in turn, and polling that takes no time."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import ConnectionLost
from notebook_launcher.hosts.base import ByteStream, Host, LineStream, NextHop, OnEnd, OnLine, Route
from notebook_launcher.jobs.polling import Polling
from notebook_launcher.jobs.watcher import JobWatcher
from notebook_launcher.schedulers.base import JobRef, JobStatus, State

PATIENCE = 8.0  # seconds in which anything that should happen has happened


JOB = JobRef("7")


DIRECTORY = "/home/alice/sessions/20261121-014455-abcd"


CLOCK = "2026-11-21T12:00:00+0100"


Play = CommandResult | Exception | Callable[[], CommandResult]


class FakeStream(LineStream):
    def send(self, line: str) -> None:
        pass

    def close(self) -> None:
        pass


class FakeHost(Host):
    """Answers commands in turn; ``asked``: the commands. ``done`` is set when there is no answer left to give."""

    label = "login"

    def __init__(self, *answers: Play) -> None:
        self.answers = list(answers)
        self.asked: list[list[str]] = []
        self.done, self.over = threading.Event(), threading.Event()
        self.on_line: OnLine = lambda line: None

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", login_shell: bool = False, timeout: float = 90.0
    ) -> CommandResult:
        self.asked.append(list(argv))
        if not self.answers:
            self.done.set()
            self.over.wait(PATIENCE)
            raise ConnectionLost("the play is over")
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, CommandResult) else answer()

    def stream(self, argv: Sequence[str], on_line: OnLine, on_end: OnEnd) -> LineStream:
        self.on_line = on_line
        return FakeStream()

    def open_stream(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        raise NotImplementedError

    def open_process(self, argv: Sequence[str], *, login_shell: bool = False) -> ByteStream:
        raise NotImplementedError

    def open_route(self, hop: NextHop | None = None) -> Route:
        raise NotImplementedError

    alive = True

    def reconnect(self, timeout: float = 10.0, replace: Callable[[], bool] = lambda: True) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.over.set()

    def max_ages(self) -> list[float]:
        return [float(argv[3]) for argv in self.asked if argv[1].endswith("shared_query.sh")]


class NoPause(Polling):
    """Counts as the real one, and lets no time pass; ``told``: what it was told of the job's start."""

    def __init__(self) -> None:
        super().__init__(time.monotonic, random.Random(1))
        self.told: list[float | None] = []

    def pause_after_answer(self, start_in: float | None = None) -> float:
        self.told.append(start_in)
        return 0.0

    def pause_without_answer(self) -> float:
        return 0.0


def row(state: str = "PENDING", reason: str = "Priority", start: str = "N/A", job: str = "7") -> str:
    return f"{job}|{state}|core||{start}|N/A|proj1|normal|1:00:00|{reason}\n"


def shared(*rows: str, age: float = 0, code: int = 0, errors: str = "", asked_for: str = "together") -> CommandResult:
    """What shared_query.sh prints."""
    return CommandResult(code, f"{age} {CLOCK} {asked_for}\n{''.join(rows)}", errors)


def all_of(inbox: queue.SimpleQueue[object]) -> list[object]:
    found = []
    while not inbox.empty():
        found.append(inbox.get())
    return found


def played(
    host: FakeHost, following: Callable[..., tuple[JobWatcher, queue.SimpleQueue[object]]], **more: Any
) -> list[object]:
    """Follow the session until every answer was given, and return what came of them."""
    _, inbox = following(host, **more)
    assert host.done.wait(PATIENCE)
    return all_of(inbox)


PENDING = JobStatus(
    JOB, State.PENDING, reason="Priority", partition="core", account="proj1", qos="normal", walltime="1:00:00"
)
