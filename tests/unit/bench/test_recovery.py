"""A bench that was killed finds its jobs again; a lost connection is remade."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import pytest

from notebook_launcher.core.errors import (
    ConnectionLost,
    SchedulerSilent,
    SubmitUncertain,
)
from notebook_launcher.jobs.session_index import SessionIndex
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session
from tests.unit.bench.fake_cluster import (
    TIMING,
    FakeCluster,
    Killed,
    killed,
    run,
    states,
)


@pytest.mark.parametrize("at", range(1, 7))
def test_killed_just_after_a_job_was_queued_and_run_again(fake: FakeCluster, at: int) -> None:
    """The id of the session is noted by then, that of the job is not."""

    def kill(session: Session) -> None:
        if len(fake.queued) == at:
            raise Killed

    fake.after_queueing = kill
    with pytest.raises(Killed):
        run()
    fake.after_queueing = lambda _session: None
    run()
    assert sorted(fake.epochs) == [1, 2, 3, 4, 5, 6]  # type: ignore[type-var]
    assert set(states().values()) == {"done"}


def test_killed_before_a_job_was_queued_and_run_again(fake: FakeCluster) -> None:
    def kill(session: Session) -> None:
        if len(fake.queued) == 2:
            raise Killed

    fake.at_queueing = kill
    with pytest.raises(Killed):
        run()
    fake.at_queueing = lambda _session: None
    view = run()
    assert sorted(fake.epochs) == [1, 2, 3, 4, 5, 6]  # type: ignore[type-var]
    assert len(fake.discarded) == 1  # so that nobody can queue it any more
    assert "was not queued; it is queued again" in view.text


def test_a_job_whose_number_nobody_has_noted_is_found_in_the_queue(fake: FakeCluster) -> None:
    def kill(session: Session) -> None:
        raise Killed

    fake.at_queueing = kill
    with pytest.raises(Killed):
        run("EPOCHS=1")
    (session,) = fake.sessions.values()
    fake.files[session.id] = {}
    fake.host.queue_fails = 1
    with pytest.raises(SchedulerSilent) as caught:  # then nothing is queued, and nothing is taken away
        run("EPOCHS=1")
    assert "run the same command again" in caught.value.hint
    fake.host.queue_fails, fake.host.in_queue = 0, [f"77|{session.id}|/x"]
    run("EPOCHS=1")
    assert (fake.queued, fake.discarded) == ([], [])
    assert states() == {"EPOCHS=1": "done"}


def test_killed_while_results_are_fetched_and_run_again(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(*_: object) -> None:
        raise Killed

    fake.fetch = kill
    with pytest.raises(Killed):
        run("EPOCHS=1,2")
    fake.fetch = fake.usual_fetch
    run("EPOCHS=1,2")
    assert sorted(fake.epochs) == [1, 2]  # type: ignore[type-var]
    assert set(states().values()) == {"done"}


@pytest.mark.parametrize("misses", [1, 2])
def test_a_job_that_a_look_does_not_list_is_looked_for_again(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, misses: int
) -> None:
    """A file server that is behind shows no directory for a moment."""
    fake.after_queueing = killed
    with pytest.raises(Killed):
        run("EPOCHS=1")
    fake.after_queueing = lambda _session: None
    behind = iter(range(misses))
    fake.look = lambda context, **_: unseen(fake, context, behind)
    view = run("EPOCHS=1", timing=dataclasses.replace(TIMING, visible_within=30))
    assert (len(fake.queued), states()) == (1, {"EPOCHS=1": "done"})
    assert view.text.count("looking again") == 1


def test_a_job_in_the_queue_is_not_queued_again_where_its_directory_stays_away(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.after_queueing = killed
    with pytest.raises(Killed):
        run("EPOCHS=1")
    fake.after_queueing = lambda _session: None
    (session,) = fake.queued
    fake.look = lambda context, **_: unseen(fake, context, itertools.count())
    for fails, rows in ((0, [f"77|{session}|/x"]), (1, [])):
        fake.host.queue_fails, fake.host.in_queue = fails, rows
        with pytest.raises(SchedulerSilent, match="is not known"):
            run("EPOCHS=1")
    assert len(fake.queued) == 1


def unseen(fake: FakeCluster, context: Context, misses: Iterator[int]) -> SessionIndex:
    """Look at the sessions; as often as ``misses`` lasts, nothing of them is seen."""
    if next(misses, None) is None:
        return fake.usual_look(context)
    return fake.unseen(context)


def test_a_lost_connection_is_remade_and_nothing_is_queued_twice(fake: FakeCluster) -> None:
    lost = iter([2, 4])
    next_at = [next(lost)]

    def lose(session: Session) -> None:
        if len(fake.queued) == next_at[0]:
            next_at[0] = next(lost, 99)
            raise ConnectionLost("The connection to login is lost.")

    fake.after_queueing = lose
    view = run()
    assert fake.host.reconnected == 2
    assert sorted(fake.epochs) == [1, 2, 3, 4, 5, 6]  # type: ignore[type-var]
    assert view.text.count("Connected again") == 2


def test_a_connection_that_never_holds_is_given_up_with_a_hint(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(*_: object, **__: object) -> SessionIndex:
        raise ConnectionLost("The connection to login is lost.")

    fake.look = lose
    with pytest.raises(ConnectionLost) as caught:
        run()
    assert "run the same command again" in caught.value.hint
    fake.look = fake.usual_look
    run()
    assert len(fake.queued) == 6


def test_an_answer_that_was_not_heard_is_looked_for(fake: FakeCluster) -> None:
    def unheard(session: Session) -> None:
        if len(fake.queued) == 1:
            raise SubmitUncertain("It may have been queued.")

    fake.after_queueing = unheard
    run("EPOCHS=1,2")
    assert sorted(fake.epochs) == [1, 2]  # type: ignore[type-var]
