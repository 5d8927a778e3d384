"""The questions to the scheduler, one after the other, to a host that plays a script; and to a real Slurm.

``FakeHost`` gives the answers of a test in turn, and what is asked after the last one stays unanswered. The pace lets
no time pass. What asked.sh does is test_asked.py's, when to ask is test_pace.py's.
"""

from __future__ import annotations

import queue
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from notebook_launcher.core.command_result import Answer
from notebook_launcher.core.errors import ConnectionLost, HostCommandFailed
from notebook_launcher.core.request import Request
from notebook_launcher.hosts.base import ByteStream, Host, LineStream, Link, OnEnd, OnLine, Onward, Runs
from notebook_launcher.jobs import watcher as watch
from notebook_launcher.jobs.polling import BURST, LONGEST, QUESTION, Pace
from notebook_launcher.jobs.watcher import IdleTold, NoAnswer, Sampled, SchedulerMute, StatusChanged, Watch, WatchBroke
from notebook_launcher.schedulers.base import JobRef, JobStatus, State
from notebook_launcher.schedulers.cluster_info import Evidence, Outlook
from notebook_launcher.schedulers.local import Local
from notebook_launcher.schedulers.slurm.commands import Slurm
from tests.conftest import Session
from tests.practice_cluster import PracticeCluster

PATIENCE = 8.0  # seconds in which anything that should happen has happened
JOB = JobRef("7")
DIRECTORY = "/home/alice/sessions/20261121-014455-abcd"
CLOCK = "2026-11-21T12:00:00+0100"

Play = Answer | Exception | Callable[[], Answer]


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
    ) -> Answer:
        self.asked.append(list(argv))
        if not self.answers:
            self.done.set()
            self.over.wait(PATIENCE)
            raise ConnectionLost("the play is over")
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Answer) else answer()

    def stream(self, argv: Sequence[str], on_line: OnLine, on_end: OnEnd) -> LineStream:
        self.on_line = on_line
        return FakeStream()

    def open_stream(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        raise NotImplementedError

    def open_process(self, argv: Sequence[str], *, login_shell: bool = False) -> ByteStream:
        raise NotImplementedError

    def link(self, onward: Onward | None = None) -> Link:
        raise NotImplementedError

    alive = True

    def reconnect(self, timeout: float = 10.0, replace: Callable[[], bool] = lambda: True) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.over.set()

    def max_ages(self) -> list[float]:
        return [float(argv[3]) for argv in self.asked if argv[1].endswith("asked.sh")]


class NoPause(Pace):
    """Counts as the real one, and lets no time pass; ``told``: what it was told of the job's start."""

    def __init__(self) -> None:
        super().__init__(time.monotonic, random.Random(1))
        self.told: list[float | None] = []

    def after_answer(self, start_in: float | None = None) -> float:
        self.told.append(start_in)
        return 0.0

    def after_silence(self) -> float:
        return 0.0


class LongPause(NoPause):
    """Waits for ever, unless it is urged."""

    def after_answer(self, start_in: float | None = None) -> float:
        return 10**6


def row(state: str = "PENDING", reason: str = "Priority", start: str = "N/A", job: str = "7") -> str:
    return f"{job}|{state}|core||{start}|N/A|proj1|normal|1:00:00|{reason}\n"


def shared(*rows: str, age: float = 0, code: int = 0, errors: str = "", asked_for: str = "together") -> Answer:
    """What asked.sh prints."""
    return Answer(code, f"{age} {CLOCK} {asked_for}\n{''.join(rows)}", errors)


MUTE = "slurm_load_jobs error: Socket timed out on send/recv operation"
SILENCE = shared(code=1, errors=f"squeue: error: slow\n{MUTE}\n")
FORGOTTEN = Answer(1, "", "slurm_load_jobs error: Invalid job id specified\n")


@pytest.fixture
def following() -> Iterator[Callable[..., tuple[Watch, queue.SimpleQueue[object]]]]:
    """Begin watches; they are closed afterwards."""
    begun: list[tuple[Watch, FakeHost]] = []

    def follow(host: FakeHost, scheduler: Any = None, **more: Any) -> tuple[Watch, queue.SimpleQueue[object]]:
        inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        made = Watch(host, scheduler or Slurm(), JOB, DIRECTORY, inbox, **({"pace": NoPause()} | more))
        begun.append((made, host))
        made.start()
        return made, inbox

    yield follow
    for made, host in begun:
        made.close()
        host.close()


def all_of(inbox: queue.SimpleQueue[object]) -> list[object]:
    found = []
    while not inbox.empty():
        found.append(inbox.get())
    return found


def played(
    host: FakeHost, following: Callable[..., tuple[Watch, queue.SimpleQueue[object]]], **more: Any
) -> list[object]:
    """Follow the session until every answer was given, and return what came of them."""
    _, inbox = following(host, **more)
    assert host.done.wait(PATIENCE)
    return all_of(inbox)


def statuses(news: Sequence[object]) -> list[JobStatus | None]:
    assert all(isinstance(item, StatusChanged) for item in news), news
    return [item.status for item in news if isinstance(item, StatusChanged)]


PENDING = JobStatus(
    JOB, State.PENDING, reason="Priority", partition="core", account="proj1", qos="normal", walltime="1:00:00"
)

Following = Callable[..., tuple[Watch, queue.SimpleQueue[object]]]


# --- what the files tell --------------------------------------------------------------------------------------


def test_samples_and_idleness_come_over_the_stream(following: Following) -> None:
    host = FakeHost()
    _, inbox = following(host)
    row = "2026-11-21T01:44:55Z,5.0,0.50,100,{},NVIDIA T4,97,6,7,8"
    host.on_line(f"usage {row.format(0)}|{row.format(1)}")
    host.on_line('idle {"version":1}')
    host.on_line("gone idle")
    for damaged in ("usage", "usage |", "usage time,seconds", f"usage {row[:40]}", 'usage "', "idle []", "gone"):
        host.on_line(damaged)
    host.on_line(f"usage {row.format(0)[:30]}|{row.format(1)}\r")
    sampled, idle, used_again, late = all_of(inbox)
    assert isinstance(sampled, Sampled)
    assert (sampled.sample.cpu_cores, sampled.sample.memory_mib) == (0.5, 100)
    assert [(gpu.index, gpu.percent) for gpu in sampled.sample.gpus] == [("0", 97), ("1", 97)]
    assert isinstance(late, Sampled) and len(late.sample.gpus) == 1
    assert (idle, used_again) == (IdleTold({"version": 1}), IdleTold(None))


# --- what is asked -------------------------------------------------------------------------------------------


def test_it_asks_together_with_others_and_for_this_job_where_there_are_none(following: Following) -> None:
    host = FakeHost(shared(row(job="6"), row(), row(job="77")))
    assert statuses(played(host, following)) == [PENDING]
    script, place, _, *commands = host.asked[0][1:]
    assert script == f"{DIRECTORY}/asked.sh"
    assert re.fullmatch(r"/home/alice/sessions/\.asked/env-[0-9a-f]{12}", place)
    assert commands == [*Slurm().query_alone(JOB), "--together", *Slurm().query_own(None)]


def test_jobs_of_other_clusters_and_other_questions_have_their_own_place() -> None:
    places = set()
    for command in (Slurm().query_own(None), Slurm().query_own("snowy"), ["squeue"]):
        host = FakeHost(shared())
        watch.Together(host, DIRECTORY).ask(command, 5)
        places.add(host.asked[0][2])
    assert len(places) == 3


def test_without_asked_sh_it_asks_for_itself(following: Following) -> None:
    host = FakeHost(Answer(127, "", "bash: asked.sh: No such file or directory"), Answer(0, row()))
    assert statuses(played(host, following)) == [PENDING]
    assert host.asked[1] == Slurm().query([JOB])


def test_a_scheduler_that_costs_nobody_anything_is_asked_directly(following: Following) -> None:
    host = FakeHost(Answer(0, "7|PENDING|BeginTime||||\n"))
    pace = NoPause()
    assert [
        status and status.state for status in statuses(played(host, following, scheduler=Local("/s"), pace=pace))
    ] == [State.PENDING]
    assert host.asked[0][1].endswith("local.sh")
    assert pace.left == BURST


def test_what_others_have_asked_for_costs_nothing(following: Following) -> None:
    pace = NoPause()
    played(FakeHost(shared(row(), age=3), shared(row(), age=3)), following, pace=pace)
    assert pace.left == BURST
    pace = NoPause()
    played(FakeHost(shared(row()), shared(row(), asked_for="alone")), following, pace=pace)
    assert pace.left == pytest.approx(BURST - QUESTION - watch.ALONE, abs=0.5)


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
    pace = NoPause()
    played(
        FakeHost(
            shared(row(start="2026-11-21T12:01:30")),
            shared(row(start="2026-11-21T11:59:00")),
            shared(row()),
            shared(row(start="2026-13-41")),
        ),
        following,
        pace=pace,
    )
    assert pace.told == [90.0, -60.0, None, None]


def test_a_change_makes_the_pace_quick_and_a_new_estimate_does_not(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    news: list[int] = []
    host = FakeHost(
        shared(row()), shared(row(start="2026-11-21T14:20:00")), shared(row(reason="Resources")), shared(row("RUNNING"))
    )
    monkeypatch.setattr(NoPause, "news", lambda _: news.append(len(host.asked)))
    played(host, following)
    assert news == [1, 3, 4]


# --- answers that are too old --------------------------------------------------------------------------------


@pytest.mark.parametrize(("ago", "bound"), [(0.0, 0), (5.5, 5.5), (3600.0, LONGEST), (None, LONGEST)])
def test_no_answer_from_before_the_job_was_queued_is_taken(
    following: Following, ago: float | None, bound: float
) -> None:
    host = FakeHost(shared(row()))
    played(host, following, submitted_ago=ago)
    assert host.max_ages()[0] == pytest.approx(bound, abs=0.2)


def starts(host: FakeHost, answer: Answer) -> Callable[[], Answer]:
    """Let the job's own word that it has started come in while its scheduler is asked."""

    def start() -> Answer:
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
def test_a_job_that_is_not_in_the_list_is_asked_for_by_itself(following: Following, list_: Answer) -> None:
    """The list may be too old; and in a federation the job may have gone to another cluster."""
    host = FakeHost(list_, Answer(0, row()))
    assert statuses(played(host, following)) == [PENDING]
    assert host.asked[1] == Slurm().query([JOB])


def test_the_history_tells_of_a_job_that_has_left_the_queue(following: Following) -> None:
    host = FakeHost(shared(), FORGOTTEN, Answer(0, "7|TIMEOUT|0:0|n1|2026-11-21T11:00:00\n"))
    (status,) = statuses(played(host, following))
    assert status and status.state is State.TIMEOUT


def test_without_accounting_a_job_that_has_left_the_queue_is_forgotten(following: Following) -> None:
    host = FakeHost(shared(row()), shared(), FORGOTTEN, Answer(1, "", "Slurm accounting storage is disabled\n"))
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
    pace = NoPause()
    told = played(FakeHost(shared(row()), *[silence] * 3, *[shared(row(), age=1)] * 3, silence), following, pace=pace)
    assert [type(item) for item in told] == [StatusChanged, SchedulerMute, StatusChanged, SchedulerMute]
    assert {item.reason for item in told if isinstance(item, SchedulerMute)} == {reason}
    assert pace.left == pytest.approx(BURST - QUESTION, abs=0.5), "what is not answered costs nothing"


def test_mute_from_the_first_question_on(following: Following) -> None:
    told = played(FakeHost(SILENCE, shared(row())), following)
    assert told[0] == SchedulerMute(MUTE)
    assert statuses(told[1:]) == [PENDING]


def test_a_single_question_tells_why_there_is_no_answer() -> None:
    with pytest.raises(NoAnswer) as caught:
        watch.ask(FakeHost(Answer(1, "", f"{MUTE}\n\n")), Slurm(), JOB)
    assert caught.value.reason == MUTE
    with pytest.raises(NoAnswer) as caught:
        watch.ask(FakeHost(HostCommandFailed("squeue did not answer within 90 s.")), Slurm(), JOB)
    assert "90 s" in caught.value.reason


@pytest.mark.parametrize(
    "history", [Answer(0, ""), Answer(1, "", "Slurm accounting storage is disabled\n")], ids=["empty", "none"]
)
def test_a_job_that_is_only_not_shown_is_not_called_forgotten(history: Answer) -> None:
    """A filter that nobody knows of takes rows away as well, and the job runs."""
    with pytest.raises(NoAnswer) as caught:
        watch.ask(FakeHost(Answer(0, ""), history), Slurm(), JOB)
    assert "does not show job 7" in caught.value.reason
    assert watch.ask(FakeHost(FORGOTTEN, history), Slurm(), JOB) is None


def test_a_job_that_is_not_shown_has_ended_where_the_history_says_so() -> None:
    status = watch.ask(FakeHost(Answer(0, ""), Answer(0, "7|TIMEOUT|0:0|n1|2026-11-21T11:00:00\n")), Slurm(), JOB)
    assert status and status.state is State.TIMEOUT


def test_a_connection_that_breaks_is_another_matter(following: Following) -> None:
    followed, inbox = following(FakeHost(ConnectionLost("The connection to login is lost.")))
    assert inbox.get(timeout=PATIENCE) == WatchBroke(followed, "The connection to login is lost.", connection=True)


def test_an_answer_that_cannot_be_made_sense_of_ends_no_session(following: Following) -> None:
    _, inbox = following(FakeHost(ZeroDivisionError("ours"), shared(row("RUNNING"))), pace=NoPause())
    assert inbox.get(timeout=PATIENCE) == SchedulerMute("ZeroDivisionError('ours')")
    assert isinstance(inbox.get(timeout=PATIENCE), StatusChanged)


# --- soon, and never more ------------------------------------------------------------------------------------


def test_who_urges_has_a_new_answer_at_once(following: Following) -> None:
    host = FakeHost(shared(row()), shared(row("RUNNING")))
    followed, inbox = following(host, pace=LongPause())
    inbox.get(timeout=PATIENCE)
    followed.ask_soon()
    told = inbox.get(timeout=PATIENCE)
    assert isinstance(told, StatusChanged) and told.status and told.status.state is State.RUNNING
    assert host.max_ages() == [LONGEST, 0], "none from before"


def test_after_close_nothing_is_asked_or_told(following: Following) -> None:
    host = FakeHost()
    followed, inbox = following(host, pace=LongPause())
    assert host.done.wait(PATIENCE)  # a question is on its way
    (asking,) = (thread for thread in threading.enumerate() if thread.name == "poll")
    followed.close()
    host.close()
    asking.join(PATIENCE)
    followed.ask_soon()
    assert not asking.is_alive()
    assert len(host.asked) == 1
    assert inbox.empty()


def test_close_ends_a_long_pause(following: Following) -> None:
    followed, inbox = following(FakeHost(shared(row())), pace=LongPause())
    inbox.get(timeout=PATIENCE)
    (waiting,) = (thread for thread in threading.enumerate() if thread.name == "poll")
    followed.close()
    waiting.join(1)
    assert not waiting.is_alive()


# --- the evidence --------------------------------------------------------------------------------------------


class Knowing(Slurm):
    """A Slurm that tells more; what exactly is read is evidence.py's."""

    outlook = object()  # type: ignore[assignment]


class Gathered:
    """In place of ``gather``: notes for which reasons it is called; ``ahead``: what it finds, in turn."""

    def __init__(self, *ahead: int) -> None:
        self.ahead = list(ahead)
        self.reasons: list[str | None] = []
        self.answers: list[Answer] = []

    def __call__(self, host: Runs, outlook: Outlook, status: JobStatus, request: Request, user: str) -> Evidence:
        self.reasons.append(status.reason)
        self.answers.append(host.run(["squeue", "--partition=core"], login_shell=True))
        assert (request.flags, user) == ({"partition": "core"}, "alice")
        return Evidence(request, ahead=self.ahead.pop(0) if len(self.ahead) > 1 else self.ahead[0])


WITH_EVIDENCE: dict[str, Any] = {
    "scheduler": Knowing(), "request": Request({"partition": "core"}), "user": "alice"
}  # fmt: skip


def gathering(monkeypatch: pytest.MonkeyPatch, *ahead: int) -> Gathered:
    gathered = Gathered(*ahead)
    monkeypatch.setattr(watch, "gather", gathered)
    return gathered


def aheads(news: Sequence[object]) -> list[int | None]:
    return [item.evidence.ahead if item.evidence else None for item in news if isinstance(item, StatusChanged)]


def test_evidence_is_read_for_each_new_reason_and_shared(following: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    gathered = gathering(monkeypatch, 12, 3)
    pace = NoPause()
    host = FakeHost(
        *(shared(row()), shared("rows", age=20), shared(row()), shared(row(reason="Resources")), shared("rows")),
        *(shared(row()), shared(row("RUNNING"))),
    )
    told = played(host, following, pace=pace, submitted_ago=3600.0, **WITH_EVIDENCE)
    assert gathered.reasons == ["Priority", "Resources"]
    assert gathered.answers == [Answer(0, "rows")] * 2
    assert aheads(told) == [12, 3, 12, None]
    assert host.max_ages()[1] == watch.EVIDENCE_AGE
    assert pace.left == pytest.approx(BURST - 5 * QUESTION - watch.PART, abs=0.5)


def test_evidence_is_read_again_from_time_to_time(following: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else has changed, and how many are ahead is told."""
    gathering(monkeypatch, 12, 12, 4)
    monkeypatch.setattr(watch, "EVIDENCE_EVERY", 0.0)
    host = FakeHost(*[shared(row(), age=1), shared("rows", age=1)] * 3)
    assert aheads(played(host, following, **WITH_EVIDENCE)) == [12, 4]


@pytest.mark.parametrize(("reason", "ago"), [("Priority", 20.0), ("PartitionTimeLimit", 0.0)])
def test_evidence_is_none_of_before_the_job_was_queued(
    following: Following, monkeypatch: pytest.MonkeyPatch, reason: str, ago: float
) -> None:
    gathering(monkeypatch, 12)
    host = FakeHost(shared(row(reason=reason)), shared("rows"))
    played(host, following, submitted_ago=ago, **WITH_EVIDENCE)
    assert host.max_ages()[1] == pytest.approx(ago, abs=0.2)


def test_those_ahead_are_not_counted_for_a_job_that_may_start_at_once(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered = gathering(monkeypatch, 12)
    assert aheads(played(FakeHost(shared(row())), following, submitted_ago=5.0, **WITH_EVIDENCE)) == [None]
    assert gathered.reasons == []


def test_a_reason_that_flaps_does_not_cost_more_than_there_is(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered = gathering(monkeypatch, 12)
    flaps = [shared(row(reason=f"Reason{turn}"), age=1) for turn in range(9)]
    pace = NoPause()
    pace.spend(9)
    host = FakeHost(flaps[0], shared("rows"), flaps[1], shared("rows"), *flaps[2:])
    assert len(aheads(played(host, following, pace=pace, **WITH_EVIDENCE))) == len(flaps)
    assert gathered.reasons == ["Reason0", "Reason1"]
    assert pace.left >= QUESTION


@pytest.mark.parametrize("missing", [{"request": None}, {"scheduler": Slurm()}])
def test_without_a_request_or_a_scheduler_that_tells_more_no_evidence_is_read(
    following: Following, monkeypatch: pytest.MonkeyPatch, missing: dict[str, Any]
) -> None:
    monkeypatch.setattr(Slurm, "outlook", None)
    gathered = gathering(monkeypatch, 12)
    told = played(FakeHost(shared(row())), following, **(WITH_EVIDENCE | missing))
    assert gathered.reasons == [] and aheads(told) == [None]


# --- a real Slurm --------------------------------------------------------------------------------------------


def rpcs(cluster: PracticeCluster) -> int:
    """How many RPCs of alice's the controller has answered."""
    text = cluster.root("ctl", ["sdiag"], check=True).stdout
    found = re.search(r"^\s+alice\s+\(\s*\d+\) count:(\d+)", text, re.M)
    return int(found[1]) if found else 0


@pytest.mark.each_slurm
def test_what_the_questions_cost(cluster: PracticeCluster) -> None:
    """The pace is reckoned with these."""
    scheduler = Slurm()
    job = cluster.run("login", "alice", ["sbatch", "--parsable", "--hold", "--wrap", "true"], check=True).stdout.strip()
    for command, cost in [
        (scheduler.query_alone(JobRef(job)), watch.ALONE),
        (scheduler.query_own(None), QUESTION),
        (scheduler.query([JobRef(job)]), watch.OWN),
    ]:
        before = rpcs(cluster)
        answer = cluster.run("login", "alice", command, check=True).stdout
        assert rpcs(cluster) - before == cost, command
        status = (scheduler.read_query([JobRef(job)], Answer(0, answer)) or {})[job]
        assert (status.state, status.reason, status.partition) == (State.PENDING, "JobHeldUser", "core")
    cluster.run("login", "alice", ["scancel", job])


@pytest.mark.each_slurm
def test_a_controller_that_is_away_for_a_moment_is_ridden_out(
    cluster: PracticeCluster, start: Callable[..., Session]
) -> None:
    session = start("--json", "-b", "now+1hour")
    session.expect('"event": "waiting"')
    with cluster.no_slurmctld():
        session.expect('"event": "unanswered".*Unable to contact slurm controller')
    session.expect('"event": "waiting".*BeginTime', timeout=30)
