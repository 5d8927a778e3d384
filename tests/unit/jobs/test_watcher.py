"""The questions to the scheduler, one after the other, to a host that gives the answers of a test in turn.

What is asked after the last one stays unanswered. Polling takes no time. What shared_query.sh does is tested in
test_shared_queries.py, when to ask in test_polling.py.
"""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone

import pytest

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import ConnectionLost, HostCommandFailed
from notebook_launcher.core.timing import DEFAULT_TIMING as USUAL
from notebook_launcher.jobs import status, watcher
from notebook_launcher.jobs.messages import (
    AppsReported,
    IdleReported,
    SchedulerUnresponsive,
    StatusChanged,
    UnsavedReported,
    UsageSampled,
)
from notebook_launcher.jobs.polling import QUERY_RPCS
from notebook_launcher.jobs.status import NoAnswer
from notebook_launcher.jobs.watcher import JobWatcher, WatcherStopped
from notebook_launcher.schedulers.base import JobStatus, State
from notebook_launcher.schedulers.local import Local
from notebook_launcher.schedulers.slurm.commands import Slurm
from tests.unit.jobs.watcher_doubles import DIRECTORY, JOB, PENDING, FakeHost, NoPause, all_of, played, row, shared

PATIENCE = 8.0  # seconds in which anything that should happen has happened


CLOCK = "2026-11-21T12:00:00+0100"


Play = CommandResult | Exception | Callable[[], CommandResult]


class LongPause(NoPause):
    """Waits for ever, unless it is urged."""

    def pause_after_answer(self, start_in: float | None = None) -> float:
        return 10**6


MUTE = "slurm_load_jobs error: Socket timed out on send/recv operation"


SILENCE = shared(code=1, errors=f"squeue: error: slow\n{MUTE}\n")


FORGOTTEN = CommandResult(1, "", "slurm_load_jobs error: Invalid job id specified\n")


def statuses(news: Sequence[object]) -> list[JobStatus | None]:
    assert all(isinstance(item, StatusChanged) for item in news), news
    return [item.status for item in news if isinstance(item, StatusChanged)]


Following = Callable[..., tuple[JobWatcher, queue.SimpleQueue[object]]]


# --- what the files tell --------------------------------------------------------------------------------------


def test_samples_and_idleness_come_over_the_stream(following: Following) -> None:
    host = FakeHost()
    _, inbox = following(host)
    row = "2026-11-21T01:44:55Z,5.0,0.50,100,{},NVIDIA T4,97,6,7,8"
    host.on_line(f"usage {row.format(0)}|{row.format(1)}")
    host.on_line('idle {"version":1}')
    host.on_line("gone idle")
    host.on_line('unsaved {"version":1}')
    host.on_line('apps {"version":1,"apps":[]}')
    for damaged in ("usage", "usage |", "usage time,seconds", f"usage {row[:40]}", 'usage "', "idle []", "gone"):
        host.on_line(damaged)
    host.on_line(f"usage {row.format(0)[:30]}|{row.format(1)}\r")
    sampled, idle, used_again, unsaved, apps, late = all_of(inbox)
    assert isinstance(sampled, UsageSampled)
    assert (sampled.sample.cpu_cores, sampled.sample.memory_mib) == (0.5, 100)
    assert [(gpu.index, gpu.percent) for gpu in sampled.sample.gpus] == [("0", 97), ("1", 97)]
    assert isinstance(late, UsageSampled) and len(late.sample.gpus) == 1
    assert (idle, used_again) == (IdleReported({"version": 1}), IdleReported(None))
    assert (unsaved, apps) == (UnsavedReported({"version": 1}), AppsReported({"version": 1, "apps": []}))


# --- what is asked -------------------------------------------------------------------------------------------


def test_it_asks_together_with_others_and_for_this_job_where_there_are_none(following: Following) -> None:
    host = FakeHost(shared(row(job="6"), row(), row(job="77")))
    assert statuses(played(host, following)) == [PENDING]
    script, place, _, *commands = host.asked[0][1:]
    assert script == f"{DIRECTORY}/shared_query.sh"
    assert re.fullmatch(r"/home/alice/sessions/\.asked/env-[0-9a-f]{12}", place)
    assert commands == [*Slurm().query_alone(JOB), "--together", *Slurm().query_own(None)]


def test_jobs_of_other_clusters_and_other_questions_have_their_own_place() -> None:
    places = set()
    for command in (Slurm().query_own(None), Slurm().query_own("snowy"), ["squeue"]):
        host = FakeHost(shared())
        watcher.SharedQueries(host, DIRECTORY).query(command, 5)
        places.add(host.asked[0][2])
    assert len(places) == 3


def test_without_asked_sh_it_asks_for_itself(following: Following) -> None:
    host = FakeHost(CommandResult(127, "", "bash: shared_query.sh: No such file or directory"), CommandResult(0, row()))
    assert statuses(played(host, following)) == [PENDING]
    assert host.asked[1] == Slurm().query([JOB])


def test_a_scheduler_that_costs_nobody_anything_is_asked_directly(following: Following) -> None:
    host = FakeHost(CommandResult(0, "7|PENDING|BeginTime||||\n"))
    polling = NoPause()
    assert [
        status and status.state for status in statuses(played(host, following, scheduler=Local("/s"), polling=polling))
    ] == [State.PENDING]
    assert host.asked[0][1].endswith("local.sh")
    assert polling.left == USUAL.rpcs_at_once


def test_what_others_have_asked_for_costs_nothing(following: Following) -> None:
    polling = NoPause()
    played(FakeHost(shared(row(), age=3), shared(row(), age=3)), following, polling=polling)
    assert polling.left == USUAL.rpcs_at_once
    polling = NoPause()
    played(FakeHost(shared(row()), shared(row(), asked_for="alone")), following, polling=polling)
    assert polling.left == pytest.approx(USUAL.rpcs_at_once - QUERY_RPCS - watcher.ALONE, abs=0.5)


# --- what is told --------------------------------------------------------------------------------------------


def test_only_what_is_new_is_told(following: Following) -> None:
    estimate = "2026-11-21T14:20:00"
    told = played(
        FakeHost(
            *[shared(row())] * 3,
            shared(row(start=estimate)),
            shared(row(start=estimate)),
            shared(row("RUNNING", "None")),
        ),
        following,
    )
    assert [(status.state, status.start) for status in statuses(told) if status] == [
        (State.PENDING, None),
        (State.PENDING, estimate),
        (State.RUNNING, None),
    ]


def test_it_tells_when_the_scheduler_said_so(following: Following) -> None:
    before = datetime.now(timezone.utc)
    (told,) = played(FakeHost(shared(row(), age=40)), following)
    assert isinstance(told, StatusChanged)
    assert timedelta(seconds=-41) < told.read_at - before < timedelta(seconds=-39)


def test_the_estimate_is_on_the_clusters_clock(following: Following) -> None:
    polling = NoPause()
    played(
        FakeHost(
            shared(row(start="2026-11-21T12:01:30")),
            shared(row(start="2026-11-21T11:59:00")),
            shared(row()),
            shared(row(start="2026-13-41")),
        ),
        following,
        polling=polling,
    )
    assert polling.told == [90.0, -60.0, None, None]


def test_a_change_makes_the_pace_quick_and_a_new_estimate_does_not(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    news: list[int] = []
    host = FakeHost(
        shared(row()), shared(row(start="2026-11-21T14:20:00")), shared(row(reason="Resources")), shared(row("RUNNING"))
    )
    monkeypatch.setattr(NoPause, "note_change", lambda _: news.append(len(host.asked)))
    played(host, following)
    assert news == [1, 3, 4]


# --- answers that are too old --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ago", "bound"), [(0.0, 0), (5.5, 5.5), (3600.0, USUAL.longest_poll_pause), (None, USUAL.longest_poll_pause)]
)
def test_no_answer_from_before_the_job_was_queued_is_taken(
    following: Following, ago: float | None, bound: float
) -> None:
    host = FakeHost(shared(row()))
    played(host, following, submitted_ago=ago)
    assert host.max_ages()[0] == pytest.approx(bound, abs=0.2)


def starts(host: FakeHost, answer: CommandResult) -> Callable[[], CommandResult]:
    """Let the job's own word that it has started come in while its scheduler is asked."""

    def start() -> CommandResult:
        host.on_line('started {"node": "n1"}')
        return answer

    return start


@pytest.mark.parametrize("age", [0, 5])
def test_an_answer_from_before_the_start_is_no_requeue(following: Following, age: float) -> None:
    host = FakeHost()
    host.answers = [shared(row()), starts(host, shared(row(reason="Resources"), age=age)), shared(row("RUNNING"))]
    told = [item for item in played(host, following) if isinstance(item, StatusChanged)]
    assert [status and status.state for status in statuses(told)] == [State.PENDING, State.RUNNING]
    assert host.max_ages()[2] == pytest.approx(0, abs=0.2)


def test_an_answer_from_after_the_start_is_one(following: Following) -> None:
    host = FakeHost()
    host.answers = [starts(host, shared(row("RUNNING"))), shared(row(reason="BeginTime"))]
    told = [item for item in played(host, following) if isinstance(item, StatusChanged)]
    assert [status and status.state for status in statuses(told)] == [State.RUNNING, State.PENDING]


@pytest.mark.parametrize("list_", [shared(), shared(row(job="8"), age=20), shared(row("REVOKED"))])
def test_a_job_that_is_not_in_the_list_is_asked_for_by_itself(following: Following, list_: CommandResult) -> None:
    """The list may be too old; and in a federation the job may have gone to another cluster."""
    host = FakeHost(list_, CommandResult(0, row()))
    assert statuses(played(host, following)) == [PENDING]
    assert host.asked[1] == Slurm().query([JOB])


def test_the_history_tells_of_a_job_that_has_left_the_queue(following: Following) -> None:
    host = FakeHost(shared(), FORGOTTEN, CommandResult(0, "7|TIMEOUT|0:0|n1|2026-11-21T11:00:00|Unknown\n"))
    (status,) = statuses(played(host, following))
    assert status and status.state is State.TIMEOUT


def test_without_accounting_a_job_that_has_left_the_queue_is_forgotten(following: Following) -> None:
    host = FakeHost(shared(row()), shared(), FORGOTTEN, CommandResult(1, "", "Slurm accounting storage is disabled\n"))
    assert statuses(played(host, following)) == [PENDING, None]


# --- a scheduler that does not answer ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("silence", "reason"),
    [
        (SILENCE, MUTE),
        (shared(code=1, errors=SILENCE.stderr, age=4), MUTE),
        (shared(code=124), "exit code 124"),
        (HostCommandFailed("bash did not answer within 90 s on login."), "bash did not answer within 90 s on login."),
    ],
)
def test_a_mute_scheduler_is_told_once_and_the_next_answer_always(
    following: Following, silence: Play, reason: str
) -> None:
    polling = NoPause()
    told = played(
        FakeHost(shared(row()), *[silence] * 3, *[shared(row(), age=1)] * 3, silence), following, polling=polling
    )
    assert [type(item) for item in told] == [StatusChanged, SchedulerUnresponsive, StatusChanged, SchedulerUnresponsive]
    assert {item.reason for item in told if isinstance(item, SchedulerUnresponsive)} == {reason}
    assert polling.left == pytest.approx(USUAL.rpcs_at_once - QUERY_RPCS, abs=0.5), "what is not answered costs nothing"


def test_mute_from_the_first_question_on(following: Following) -> None:
    told = played(FakeHost(SILENCE, shared(row())), following)
    assert told[0] == SchedulerUnresponsive(MUTE)
    assert statuses(told[1:]) == [PENDING]


def test_a_single_question_tells_why_there_is_no_answer() -> None:
    with pytest.raises(NoAnswer) as caught:
        status.query_status(FakeHost(CommandResult(1, "", f"{MUTE}\n\n")), Slurm(), JOB)
    assert caught.value.reason == MUTE
    with pytest.raises(NoAnswer) as caught:
        status.query_status(FakeHost(HostCommandFailed("squeue did not answer within 90 s.")), Slurm(), JOB)
    assert "90 s" in caught.value.reason


@pytest.mark.parametrize(
    "history",
    [CommandResult(0, ""), CommandResult(1, "", "Slurm accounting storage is disabled\n")],
    ids=["empty", "none"],
)
def test_a_job_that_is_only_not_shown_is_not_called_forgotten(history: CommandResult) -> None:
    """A filter that nobody knows of takes rows away as well, and the job runs."""
    with pytest.raises(NoAnswer) as caught:
        status.query_status(FakeHost(CommandResult(0, ""), history), Slurm(), JOB)
    assert "does not show job 7" in caught.value.reason
    assert status.query_status(FakeHost(FORGOTTEN, history), Slurm(), JOB) is None


def test_a_job_that_is_not_shown_has_ended_where_the_history_says_so() -> None:
    found = status.query_status(
        FakeHost(CommandResult(0, ""), CommandResult(0, "7|TIMEOUT|0:0|n1|2026-11-21T11:00:00|Unknown\n")), Slurm(), JOB
    )
    assert found and found.state is State.TIMEOUT


def test_a_connection_that_breaks_is_another_matter(following: Following) -> None:
    followed, inbox = following(FakeHost(ConnectionLost("The connection to login is lost.")))
    assert inbox.get(timeout=PATIENCE) == WatcherStopped(followed, "The connection to login is lost.", connection=True)


def test_an_answer_that_cannot_be_made_sense_of_ends_no_session(following: Following) -> None:
    _, inbox = following(FakeHost(ZeroDivisionError("ours"), shared(row("RUNNING"))), polling=NoPause())
    assert inbox.get(timeout=PATIENCE) == SchedulerUnresponsive("ZeroDivisionError('ours')")
    assert isinstance(inbox.get(timeout=PATIENCE), StatusChanged)


# --- soon, and never more ------------------------------------------------------------------------------------


def test_who_urges_has_a_new_answer_at_once(following: Following) -> None:
    host = FakeHost(shared(row()), shared(row("RUNNING")))
    followed, inbox = following(host, polling=LongPause())
    inbox.get(timeout=PATIENCE)
    followed.poll_now()
    told = inbox.get(timeout=PATIENCE)
    assert isinstance(told, StatusChanged) and told.status and told.status.state is State.RUNNING
    assert host.max_ages() == [USUAL.longest_poll_pause, 0], "none from before"


def polling(before: set[threading.Thread]) -> threading.Thread:
    """The thread that polls since then: one of a test before may not have ended yet."""
    (thread,) = (one for one in set(threading.enumerate()) - before if one.name == "poll")
    return thread


def test_after_close_nothing_is_asked_or_told(following: Following) -> None:
    host, before = FakeHost(), set(threading.enumerate())
    followed, inbox = following(host, polling=LongPause())
    assert host.done.wait(PATIENCE)  # a question is on its way
    asking = polling(before)
    followed.close()
    host.close()
    asking.join(PATIENCE)
    followed.poll_now()
    assert not asking.is_alive()
    assert len(host.asked) == 1
    assert inbox.empty()


def test_close_ends_a_long_pause(following: Following) -> None:
    before = set(threading.enumerate())
    followed, inbox = following(FakeHost(shared(row())), polling=LongPause())
    inbox.get(timeout=PATIENCE)
    waiting = polling(before)
    followed.close()
    waiting.join(30)
    assert not waiting.is_alive()
