"""Combinations that are refused: one, all of them, or for now."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from notebook_launcher.core.errors import (
    AccountRefused,
    BenchIncomplete,
    GresRefused,
    LimitRefused,
    SchedulerAway,
)
from notebook_launcher.session.record import Session
from tests.unit.bench.fake_cluster import TIMING, FakeCluster, run, states

IMPATIENT = dataclasses.replace(TIMING, retry_for=0.05)


def test_a_refusal_of_one_is_one_failure(fake: FakeCluster) -> None:
    def refuse(session: Session) -> None:
        if fake.flags[session.id].get("gpus") == "1":
            fake.refuse(session, GresRefused("Slurm refused the job.", why="There is no GPU there."))

    fake.at_queueing = refuse
    with pytest.raises(BenchIncomplete, match="1 of 2") as caught:
        run("gpus=0,1")
    assert "There is no GPU there." in caught.value.why
    assert states() == {"gpus=0": "done", "gpus=1": "failed"}


def test_what_refuses_all_of_them_ends_the_work_at_once(fake: FakeCluster) -> None:
    def refuse(session: Session) -> None:
        fake.refuse(session, AccountRefused("The account is not yours."))

    fake.at_queueing = refuse
    with pytest.raises(AccountRefused):
        run()
    assert set(states().values()) == {"planned"}
    fake.at_queueing = lambda _session: None
    run()
    assert len(fake.queued) == 6


def test_a_limit_on_jobs_is_kept_to(fake: FakeCluster) -> None:
    def refuse(session: Session) -> None:
        if sum("exit" not in files for files in fake.files.values()) >= 2:
            fake.refuse(session, LimitRefused("No more than two jobs."))

    fake.at_queueing = refuse
    view = run()
    assert len(fake.queued) == 6
    assert fake.most == 2
    assert view.text.count("No more than 2 jobs are taken at once") == 1


def test_a_scheduler_that_is_away_is_tried_again_and_then_given_up(fake: FakeCluster) -> None:
    refusals = iter(range(3))

    def away(session: Session) -> None:
        if next(refusals, None) is not None:
            fake.refuse(session, SchedulerAway("The scheduler does not answer."))

    fake.at_queueing = away
    run("EPOCHS=1,2")
    assert fake.epochs == [1, 2]
    refusals = iter(range(1000))
    with pytest.raises(SchedulerAway) as caught:
        run("EPOCHS=3", timing=IMPATIENT)
    assert "run the same command again" in caught.value.hint


def test_a_limit_that_lets_nothing_in_ends_the_work(fake: FakeCluster) -> None:
    def refuse(session: Session) -> None:
        fake.refuse(session, LimitRefused("No more jobs of yours are taken."))

    fake.at_queueing = refuse
    for matrix in ("EPOCHS=1,2,3", "cores=1,2"):
        with pytest.raises(LimitRefused):
            run(matrix, output=Path(matrix[:5]))
        assert set(states(matrix[:5]).values()) == {"planned"}


def test_a_limit_that_others_use_up_is_waited_for_and_not_for_ever(fake: FakeCluster) -> None:
    refusals = iter(range(3))

    def refuse(session: Session) -> None:
        if fake.queued and next(refusals, None) is not None:
            fake.refuse(session, LimitRefused("No more jobs of yours are taken."))

    fake.at_queueing = refuse
    run("EPOCHS=1,2", at_once=1)
    assert set(states().values()) == {"done"}
    fake.queued.clear()
    refusals = iter(range(100_000))
    with pytest.raises(LimitRefused) as caught:
        run("EPOCHS=3,4", at_once=1, timing=IMPATIENT)
    assert "run the same command again" in caught.value.hint


def test_one_that_is_too_large_for_a_limit_fails_and_the_others_go_on(fake: FakeCluster) -> None:
    def refuse(session: Session) -> None:
        if fake.flags[session.id]["cpus-per-task"] == "64":
            fake.refuse(session, LimitRefused("More cores than you may have."))

    fake.at_queueing = refuse
    with pytest.raises(BenchIncomplete, match="1 of 3 combinations failed"):
        run("cores=64,1,2")
    assert states() == {"cores=64": "failed", "cores=1": "done", "cores=2": "done"}
