"""The waiting line, in a terminal and as lines; and times as people say them."""

from __future__ import annotations

import dataclasses
import io
import re
import time
from datetime import datetime, timedelta, timezone

import pytest
from rich.console import Console

from notebook_launcher.cli.views import pending_line
from notebook_launcher.cli.views.clock import ago, clock
from notebook_launcher.cli.views.make_view import make_view
from notebook_launcher.cli.views.pending_line import PendingLine, WaitingLine, is_news, pending_parts
from notebook_launcher.cli.views.text_view import TextView
from notebook_launcher.core import events

NOW = datetime(2026, 11, 21, 13, 0, tzinfo=timezone.utc)
WAITING = events.Pending("7", "PENDING", "Priority", "12 jobs are ahead in partition gpu")


def at(**since: float) -> str:
    return (NOW + timedelta(**since)).isoformat()


def test_in_a_pipe_only_results_are_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    with make_view(as_json=False) as view:
        for event in (events.Connecting("login"), events.Connected("login", "x", ""), events.Querying("asking squeue"),
                      WAITING, events.Note("By the way."), events.ListDone("login", 0, 0, 0, (), "")):  # fmt: skip
            view.show(event)
    out, err = capsys.readouterr()
    assert out == "There is no session on login. Start one: launch-notebook\n"
    assert [line.split()[0] for line in err.splitlines()] == ["Connecting", "Asking", "Job", "By"]


def waiting(**changes: object) -> events.Pending:
    return dataclasses.replace(WAITING, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("event", "parts"),
    [
        (waiting(), ["job 7 waits: 12 jobs are ahead in partition gpu"]),
        (waiting(explanation="waits for its begin time"), ["job 7 waits for its begin time"]),
        (waiting(explanation="is held"), ["job 7 is held"]),
        (waiting(state="SUSPENDED", explanation="for a while"), ["job 7 is suspended: for a while"]),
        (waiting(estimate=at(minutes=80), as_of=at(seconds=-20)), [..., "starts ≈ 14:20"]),
        (waiting(estimate=at(minutes=80), as_of=at(seconds=-140)), [..., "starts ≈ 14:20, as of 2 min ago"]),
        (waiting(estimate=at(minutes=80)), [..., "starts ≈ 14:20"]),
        (waiting(estimate=at(days=2)), [..., "starts ≈ Mon 13:00"]),
        (waiting(estimate=at(days=9)), [..., "starts ≈ 2026-11-30 13:00"]),
        (waiting(estimate="2026-11-21T15:20:00+01:00"), [..., "starts ≈ 14:20"]),
        (
            waiting(estimate=at(minutes=-30), as_of=at(hours=-3)),
            [..., "it was expected to start at 12:30, as of 3 h ago"],
        ),
        (
            waiting(estimate=at(minutes=5), action="try -t 1:00:00"),
            [..., "starts ≈ 13:05", "→ try -t 1:00:00"],
        ),
    ],
)
def test_what_the_line_says(event: events.Pending, parts: list[object]) -> None:
    said = pending_parts(event, NOW)
    assert said[0].startswith("job 7 ")
    assert said == [own if part is ... else part for own, part in zip(said, parts, strict=True)]


@pytest.mark.parametrize(
    ("last", "event", "news"),
    [
        (None, waiting(), True),
        (waiting(), waiting(), False),
        (waiting(), waiting(as_of=at(minutes=1)), False),
        (waiting(), waiting(explanation="first in line"), True),
        (waiting(), waiting(action="ask for less"), True),
        (waiting(), waiting(estimate=at(hours=1)), True),
        (waiting(estimate=at(hours=1)), waiting(), True),
        (waiting(estimate=at(hours=1)), waiting(estimate=at(minutes=61)), False),
        (waiting(estimate=at(hours=1)), waiting(estimate=at(minutes=70)), True),
        (waiting(estimate=at(hours=24)), waiting(estimate=at(hours=25)), False),
        (waiting(estimate=at(hours=1)), waiting(estimate=at(minutes=10)), True),
    ],
)
def test_a_line_is_printed_for_each_change_that_matters(
    last: events.Pending | None, event: events.Pending, news: bool
) -> None:
    assert is_news(event, last, NOW) is news


def printed(width: int, parts: list[str]) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(PendingLine(lambda: parts))
    return str(console.file.getvalue()).splitlines()  # type: ignore[attr-defined]


def test_one_line_where_it_fits_and_one_for_each_part_where_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_line, "elapsed", lambda: 65.0)
    parts = ["job 7 waits: 12 jobs are ahead in partition gpu", "starts ≈ 14:20, as of 2 min ago", "→ try -t 1:00:00"]
    assert printed(200, parts) == ["1:05  " + "; ".join(parts)]
    assert printed(78, parts) == ["1:05  " + parts[0], *parts[1:]]
    assert all(len(line) <= 30 for line in printed(30, parts))
    assert " ".join(printed(30, parts)).split() == ["1:05", *" ".join(parts).split()]


def test_what_is_waited_for_is_shown_at_once_behind_a_mark_and_its_next_lines_below_it() -> None:
    screen = io.StringIO()
    line = WaitingLine(Console(file=screen, width=30, force_terminal=True, color_system=None), lambda: ["one"])
    try:
        assert "⠋ " in screen.getvalue() and screen.getvalue().endswith("  one")
        line.parts = lambda: ["the first part, which is long", "→ the second"]
        deadline = time.monotonic() + 10
        while "second" not in screen.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "\n  → the second" in screen.getvalue()
    finally:
        line.stop()
    assert screen.getvalue().endswith("\x1b[2K"), "nothing of it is left"


def view(*, terminal: bool) -> tuple[TextView, io.StringIO]:
    screen = io.StringIO()
    return TextView(Console(file=screen, width=200, force_terminal=terminal)), screen


def test_without_a_terminal_every_change_is_a_line_and_nothing_else() -> None:
    shown, screen = view(terminal=False)
    for event in (
        waiting(),
        waiting(as_of=at(minutes=1)),
        events.SchedulerNotResponding("7", "Socket timed out"),
        waiting(),
        waiting(explanation="first in line, waits until enough is free"),
        events.Running("7", "gpu1"),
        events.Disconnected("7", "silence"),
        events.Disconnected("7", "silence"),
    ):
        shown.show(event)
    assert [line[:30] for line in screen.getvalue().splitlines()] == [
        "Job 7 waits: 12 jobs are ahead",
        "The scheduler does not answer ",
        "Job 7 waits: 12 jobs are ahead",
        "Job 7 waits: first in line, wa",
        "Job 7 runs on gpu1; JupyterLab",
        "Network down, trying again (si",
        "Network down, trying again (si",
    ]
    assert "Socket timed out" in screen.getvalue()


def test_a_scheduler_that_falls_silent_while_jupyterlab_is_used_is_told_once() -> None:
    shown, screen = view(terminal=True)
    with shown:
        shown.show(events.Ready("s", "7", "gpu1", "http://127.0.0.1:1/lab?token=x", 1, started_here=True))
        before = len(screen.getvalue())
        shown.show(events.SchedulerNotResponding("7", "Socket timed out"))
        text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue()[before:])
    assert text.strip() == "The scheduler does not answer (Socket timed out); it is asked again, and job 7 goes on"


def test_times_as_people_say_them() -> None:
    zone = timezone(timedelta(hours=1))
    assert clock(NOW, NOW.astimezone(zone)) == "14:00"
    assert clock(NOW + timedelta(hours=11), NOW) == "Sun 00:00"
    assert clock(NOW - timedelta(days=1), NOW) == "2026-11-20 13:00"
    assert [ago(NOW - timedelta(seconds=s), NOW) for s in (-5, 59, 61, 7199, 7200)] == [
        "0 s ago",
        "59 s ago",
        "1 min ago",
        "119 min ago",
        "2 h ago",
    ]
