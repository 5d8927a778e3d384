"""When a watcher reads the evidence on why a job waits, and what that may cost."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.request import Request
from notebook_launcher.core.timing import DEFAULT_TIMING as USUAL
from notebook_launcher.core.timing import Timing
from notebook_launcher.hosts.base import CommandRunner
from notebook_launcher.jobs import watcher
from notebook_launcher.jobs.messages import StatusChanged
from notebook_launcher.jobs.polling import QUERY_RPCS
from notebook_launcher.jobs.watcher import JobWatcher
from notebook_launcher.schedulers.base import JobStatus, State
from notebook_launcher.schedulers.cluster_info import ClusterInfo, Evidence
from notebook_launcher.schedulers.slurm.commands import Slurm
from tests.unit.jobs.watcher_doubles import FakeHost, NoPause, played, row, shared

PATIENCE = 8.0  # seconds in which anything that should happen has happened


CLOCK = "2026-11-21T12:00:00+0100"


Play = CommandResult | Exception | Callable[[], CommandResult]


Following = Callable[..., tuple[JobWatcher, queue.SimpleQueue[object]]]


class Knowing(Slurm):
    """A Slurm that tells more; what exactly is read is evidence.py's."""

    cluster_info = object()  # type: ignore[assignment]


class Gathered:
    """In place of ``gather``: notes for which reasons it is called; ``ahead``: what it finds, in turn."""

    def __init__(self, *ahead: int) -> None:
        self.ahead = list(ahead)
        self.reasons: list[str | None] = []
        self.answers: list[CommandResult] = []

    def __call__(
        self, host: CommandRunner, cluster_info: ClusterInfo, status: JobStatus, request: Request, user: str
    ) -> Evidence:
        self.reasons.append(status.reason)
        self.answers.append(host.run(["squeue", "--partition=core"], login_shell=True))
        assert (request.flags, user) == ({"partition": "core"}, "alice")
        return Evidence(request, ahead=self.ahead.pop(0) if len(self.ahead) > 1 else self.ahead[0])


WITH_EVIDENCE: dict[str, Any] = {"scheduler": Knowing(), "request": Request({"partition": "core"}), "user": "alice"}


def gathering(monkeypatch: pytest.MonkeyPatch, *ahead: int) -> Gathered:
    gathered = Gathered(*ahead)
    monkeypatch.setattr(watcher, "gather_evidence", gathered)
    return gathered


def aheads(news: Sequence[object]) -> list[int | None]:
    return [item.evidence.ahead if item.evidence else None for item in news if isinstance(item, StatusChanged)]


def test_evidence_is_read_for_each_new_reason_and_shared(following: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    gathered = gathering(monkeypatch, 12, 3)
    polling = NoPause()
    host = FakeHost(
        *(shared(row()), shared("rows", age=20), shared(row()), shared(row(reason="Resources")), shared("rows")),
        *(shared(row()), shared(row("RUNNING"))),
    )
    told = played(host, following, polling=polling, submitted_ago=3600.0, **WITH_EVIDENCE)
    assert gathered.reasons == ["Priority", "Resources"]
    assert gathered.answers == [CommandResult(0, "rows")] * 2
    assert aheads(told) == [12, 3, 12, None]
    assert host.max_ages()[1] == USUAL.evidence_shared_for
    assert polling.left == pytest.approx(USUAL.rpcs_at_once - 5 * QUERY_RPCS - watcher.EVIDENCE_PART_RPCS, abs=0.5)


def test_evidence_is_read_again_from_time_to_time(following: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else has changed, and how many are ahead is told."""
    gathering(monkeypatch, 12, 12, 4)
    host = FakeHost(*[shared(row(), age=1), shared("rows", age=1)] * 3)
    assert aheads(played(host, following, timing=Timing(evidence_every=0.0), **WITH_EVIDENCE)) == [12, 4]


def test_a_job_that_starts_while_evidence_is_read_was_not_requeued(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would wait for its first word again, which has come already."""

    def start() -> CommandResult:
        host.on_line('started {"node": "n1"}')
        return shared("rows")

    gathering(monkeypatch, 12)
    host = FakeHost(shared(row(), age=20))
    host.answers += [start, shared(row("RUNNING"))]
    told = played(host, following, **WITH_EVIDENCE)
    assert [item.status and item.status.state for item in told if isinstance(item, StatusChanged)] == [State.RUNNING]


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
    polling = NoPause()
    polling.spend(9)
    host = FakeHost(flaps[0], shared("rows"), flaps[1], shared("rows"), *flaps[2:])
    assert len(aheads(played(host, following, polling=polling, **WITH_EVIDENCE))) == len(flaps)
    assert gathered.reasons == ["Reason0", "Reason1"]
    assert polling.left >= QUERY_RPCS


@pytest.mark.parametrize("missing", [{"request": None}, {"scheduler": Slurm()}])
def test_without_a_request_or_a_scheduler_that_tells_more_no_evidence_is_read(
    following: Following, monkeypatch: pytest.MonkeyPatch, missing: dict[str, Any]
) -> None:
    monkeypatch.setattr(Slurm, "cluster_info", None)
    gathered = gathering(monkeypatch, 12)
    told = played(FakeHost(shared(row())), following, **(WITH_EVIDENCE | missing))
    assert gathered.reasons == [] and aheads(told) == [None]
