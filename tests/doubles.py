"""Test doubles for a view, for a person at the keyboard and for a login node; and a function that waits."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.hosts.base import ByteStream, Host, LineStream, NextHop, OnEnd, OnLine, Route
from notebook_launcher.hosts.local import LocalHost

T = TypeVar("T")
E = TypeVar("E", bound=events.Event)


def wait_until(condition: Callable[[], T | None], seconds: float = 30, what: str = "what was waited for") -> T:
    """Return the first true value of ``condition()``; fail the test after some seconds.

    The longer it takes, the less often it is called, because other tests need the cores as well.
    """
    began = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - began
        if waited > seconds:
            pytest.fail(f"not within {seconds} s: {what}")
        time.sleep(min(0.02 + waited / 10, 0.5))
    return value


class RecordingView:
    """A view that records the events; ``on_event`` is called for each."""

    def __init__(self, on_event: Callable[[events.Event], object] = lambda _event: None) -> None:
        self.events: list[events.Event] = []
        self.on_event = on_event

    def show(self, event: events.Event) -> None:
        self.events.append(event)
        self.on_event(event)

    def listen(self, inbox: queue.SimpleQueue[object]) -> None:
        pass

    def all(self, kind: type[E]) -> list[E]:
        """The events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    def one(self, kind: type[E]) -> E:
        """The only event of its kind."""
        [event] = self.all(kind)
        return event

    @property
    def notes(self) -> str:
        """The text of all notes, one per line."""
        return "\n".join(note.text for note in self.all(events.Note))


class FakePrompts:
    """Prompts that return these answers one after the other, and ``None`` when there are no more.

    ``asked``: the questions so far; ``echoed``: for each secret, whether its input was visible.
    """

    def __init__(
        self, *, secrets: Iterable[str | None] = (), confirms: Iterable[bool | None] = (), asks: bool = True
    ) -> None:
        self.secrets, self.confirms, self.asks = iter(secrets), iter(confirms), asks
        self.asked: list[str] = []
        self.echoed: list[bool] = []

    def secret(self, text: str, *, echo: bool = False) -> str | None:
        self.asked.append(text)
        self.echoed.append(echo)
        return next(self.secrets, None)

    def line(self, text: str) -> str | None:
        self.asked.append(text)
        return next(self.secrets, None)

    def confirm(self, text: str) -> bool | None:
        self.asked.append(text)
        return next(self.confirms, None)

    def dismiss(self) -> None:
        pass


Answer = CommandResult | Exception


class FakeHost(Host):
    """A login node that answers each command with the result of ``answer`` (or raises), and does nothing else.

    ``answer`` may also be a single answer for all commands. ``ran``: the commands so far.
    """

    label = "login"
    remote = True
    alive = True

    def __init__(self, answer: Answer | Callable[[list[str]], Answer] = CommandResult(0)) -> None:  # noqa: B008
        self.answer = answer
        self.ran: list[list[str]] = []

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", login_shell: bool = False, timeout: float = 90.0
    ) -> CommandResult:
        self.ran.append(list(argv))
        answer = self.answer(list(argv)) if callable(self.answer) else self.answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    def stream(self, argv: Sequence[str], on_line: OnLine, on_end: OnEnd) -> LineStream:
        raise AssertionError(f"no lines are followed here: {argv}")

    def open_stream(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        raise AssertionError(f"no connection is opened here: {address}")

    def open_process(self, argv: Sequence[str], *, login_shell: bool = False) -> ByteStream:
        raise AssertionError(f"no process is opened here: {argv}")

    def open_route(self, hop: NextHop | None = None) -> Route:
        raise AssertionError(f"no route is opened here: {hop}")

    def reconnect(self, timeout: float = 10.0, replace: Callable[[], bool] = lambda: True) -> None:
        raise AssertionError("nothing is reconnected here")

    def close(self) -> None:
        pass


class RecordingHost(LocalHost):
    """This machine, with a record of the commands that were run on it.

    ``instead`` may answer a command itself; if it returns ``None``, the command is run.
    """

    def __init__(self, instead: Callable[[list[str]], Answer | None] = lambda _argv: None) -> None:
        super().__init__()
        self.instead = instead
        self.ran: list[list[str]] = []

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", login_shell: bool = False, timeout: float = 90.0
    ) -> CommandResult:
        self.ran.append(list(argv))
        answer = self.instead(list(argv))
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            return answer
        return super().run(argv, stdin=stdin, login_shell=login_shell, timeout=timeout)
