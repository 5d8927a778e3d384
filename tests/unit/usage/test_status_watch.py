"""``status --watch``: a session is shown again as it changes, whatever happens to the connection meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.errors import ConnectionLost, HostCommandFailed
from notebook_launcher.jobs.follow import FileLine
from notebook_launcher.schedulers.base import JobRef
from notebook_launcher.usage import inspect
from tests.doubles import RecordingView
from tests.unit.usage.usage_facts import SEEN


def watched(
    monkeypatch: pytest.MonkeyPatch, items: list[object], *, flags: dict[str, str | None], has_apps: bool = False
) -> RecordingView:
    """What ``status --watch`` shows of a session while these items arrive."""
    follower = SimpleNamespace(items=lambda: iter(items), ended=False)
    monkeypatch.setattr(inspect, "SessionFollower", lambda *_: follower)
    view = RecordingView()
    context = SimpleNamespace(view=view, host=None, scheduler=SimpleNamespace(accounting=lambda _job: None))
    record = SimpleNamespace(flags=flags, log="", launcher="", idle_stop=0)
    session = SimpleNamespace(id="s", directory="/s", job=JobRef("7"), record=record)
    endpoint = {"apps": True} if has_apps else None
    entry = SimpleNamespace(live=True, summary=SEEN, record=SimpleNamespace(endpoint=endpoint))
    inspection = inspect._Inspection(*cast(Any, (context, session, entry)))
    inspection.show()
    inspection.go_on()
    return view


def test_a_connection_that_breaks_as_programs_are_read_does_not_end_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    board = events.AppState("board", "Board", "running", 0, "")
    answers = iter([(board,), ConnectionLost("gone"), HostCommandFailed("no answer")])

    def read(*_: object) -> tuple[events.AppState, ...]:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(inspect, "APPS_EVERY", 0.0)
    monkeypatch.setattr(inspect, "SHOW_EVERY", 0.0)
    monkeypatch.setattr(inspect, "read_app_states", read)
    row = FileLine(cast(Any, None), "x", 1)
    view = watched(monkeypatch, [row, row], flags={}, has_apps=True)
    assert [one.apps for one in view.events if isinstance(one, events.Status)] == [(board,)] * 3


@pytest.mark.parametrize("is_read_at_first", [True, False])
def test_who_watches_an_array_sees_its_counts_when_they_change(
    monkeypatch: pytest.MonkeyPatch, is_read_at_first: bool
) -> None:
    def counts(running: int) -> events.TaskCounts:
        return events.TaskCounts(tasks=5, waiting=5 - running, running=running, finished=0, failed=0, cancelled=0)

    first = counts(1) if is_read_at_first else None
    answers = iter([first, first, None, ConnectionLost("gone"), counts(2), counts(2)])

    def read(*_: object, **__: object) -> events.TaskCounts | None:
        answer = next(answers)
        if isinstance(answer, ConnectionLost):
            raise answer
        return answer

    monkeypatch.setattr(inspect, "TASKS_EVERY", 0.0)
    monkeypatch.setattr(inspect, "read_counts", read)
    view = watched(monkeypatch, [None] * 4, flags={"array": "0-4"})
    assert [one.tasks.running for one in view.events if isinstance(one, events.Status) and one.tasks] == (
        [1, 2] if is_read_at_first else [2]
    )
