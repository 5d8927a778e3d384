"""The pauses between two questions, on a clock that the tests turn."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from notebook_launcher.core.timing import DEFAULT_TIMING as USUAL
from notebook_launcher.jobs.polling import JITTER, QUERY_RPCS, Polling
from tests.fuzzing import examples


class Clock:
    """Seconds, as they pass in a test."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Asking:
    """Asks at the polling, each question for so many RPCs; ``asked``: when."""

    def __init__(self, cost: int = 1, seed: int = 1) -> None:
        self.clock = Clock()
        self.polling = Polling(self.clock, random.Random(seed))
        self.cost = cost
        self.asked: list[float] = []

    def question(self, start_in: float | None = None) -> float:
        """Ask, wait for the pause, and return it."""
        self.asked.append(self.clock.now)
        self.polling.spend(self.cost)
        pause = self.polling.pause_after_answer(start_in)
        self.clock.now += pause
        return pause

    def for_hours(self, hours: float) -> None:
        until = self.clock.now + 3600 * hours
        while self.clock.now < until:
            self.question()


def gaps(moments: Sequence[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(moments)]


def between(pause: float, shortest: float) -> bool:
    return shortest <= pause <= shortest * (1 + JITTER)


def test_it_backs_off_from_two_seconds_to_a_minute() -> None:
    asking = Asking()
    pauses = [asking.question() for _ in range(12)]
    for pause, shortest in zip(pauses, [2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60, 60], strict=True):
        assert between(pause, shortest)


def test_a_change_makes_it_quick_again() -> None:
    asking = Asking()
    asking.for_hours(1)
    asking.polling.note_change()
    assert between(asking.question(), 2)
    assert between(asking.question(), 4)


def test_launchers_that_begin_together_do_not_ask_together_for_long() -> None:
    everybody = [Asking(seed=seed) for seed in range(30)]
    for asking in everybody:
        asking.for_hours(0.25)
    moments = sorted(asking.asked[-1] for asking in everybody)
    assert moments[-1] - moments[0] > USUAL.longest_poll_pause / 2


def test_what_others_have_asked_for_costs_nothing() -> None:
    """With many sessions, most answers are another launcher's: every one of them is looked at once a minute."""
    asking = Asking(cost=0)
    asking.for_hours(3)
    assert len(asking.asked) > 3 * 3600 / (USUAL.longest_poll_pause * (1 + JITTER))


@pytest.mark.parametrize(("cost", "longest"), [(1, 100), (QUERY_RPCS, 180)])
def test_nobody_is_left_without_news_for_long(cost: int, longest: float) -> None:
    asking = Asking(cost=cost)
    asking.for_hours(10)
    assert max(gaps(asking.asked)) <= longest


# --- around the estimate -------------------------------------------------------------------------------------


def test_it_asks_more_often_around_the_estimate_and_then_no_more() -> None:
    asking = Asking()
    asking.for_hours(1)
    start = asking.clock.now + 600
    while asking.clock.now < start + 600:
        asking.question(start - asking.clock.now)
    near = [moment for moment in asking.asked if abs(moment - start) <= USUAL.near_start]
    before = [moment for moment in asking.asked if start - 600 <= moment < start - USUAL.near_start]
    after = [moment for moment in asking.asked if moment > start + USUAL.near_start]
    assert len(near) >= 5
    assert len(before) <= 9 and len(after) <= 9
    assert min(gaps(near)) >= USUAL.near_start_pause


@given(st.floats(-59, 59))
def test_an_estimate_that_slides_along_is_near_only_once(ahead: float) -> None:
    asking = Asking()
    asking.for_hours(1)
    began = asking.clock.now
    while asking.clock.now < began + 3600:
        asking.question(ahead)
    late = [moment for moment in asking.asked if moment > began + 2 * USUAL.near_start]
    assert min(gaps(late)) >= USUAL.longest_poll_pause


# --- a scheduler that does not answer ------------------------------------------------------------------------


def test_a_mute_scheduler_is_asked_again_soon_and_at_no_cost() -> None:
    asking = Asking()
    asking.for_hours(1)
    left = asking.polling.left
    pauses = [asking.polling.pause_without_answer() for _ in range(8)]
    assert between(pauses[0], 2) and between(pauses[1], 4)
    assert max(pauses) == USUAL.longest_unanswered_pause == pauses[-1]
    assert asking.polling.left == left
    asking.question()
    assert between(asking.polling.pause_without_answer(), 2), "the next time it begins anew"


# --- never too much ------------------------------------------------------------------------------------------


def test_somebody_who_urges_is_heard_at_once_and_not_for_ever() -> None:
    asking = Asking()
    asking.for_hours(2)
    for _ in range(2):
        assert asking.polling.pause_when_urgent() == 0
        asking.polling.spend(QUERY_RPCS)
    for _ in range(4):
        asking.polling.spend(1)
    assert asking.polling.pause_when_urgent() > 30
    asking.clock.now += asking.polling.pause_when_urgent()
    assert asking.polling.pause_when_urgent() == pytest.approx(0, abs=1e-6)


happenings = st.one_of(
    st.none(),  # nothing new
    st.just("news"),
    st.just("urged"),
    st.just("mute"),
    st.just("evidence"),
    st.floats(-100, 4000),  # an estimate
)


@settings(max_examples=examples(12), deadline=None)
@given(st.lists(happenings, min_size=1, max_size=40), st.integers(0, 99), st.sampled_from([1, QUERY_RPCS]))
def test_in_no_hour_more_is_asked_than_allowed(what: list[object], seed: int, cost: int) -> None:
    """Whatever happens, again and again for four hours."""
    clock = Clock()
    asked = Polling(clock, random.Random(seed))
    spent: list[tuple[float, int]] = []

    def spend(rpcs: int) -> None:
        asked.spend(rpcs)
        spent.append((clock.now, rpcs))

    turn = 0
    while clock.now < 1000 + 4 * 3600:
        happens, turn = what[turn % len(what)], turn + 1
        if happens == "mute":
            clock.now += asked.pause_without_answer()
            continue
        spend(cost)
        if happens == "news":
            asked.note_change()
        if happens == "evidence" and asked.left >= 4:
            spend(4)
        pause = asked.pause_after_answer(happens if isinstance(happens, float) else None)
        clock.now += min(pause, asked.pause_when_urgent()) if happens == "urged" else pause
        assert pause > 0
    for begin, _ in spent:
        assert sum(rpcs for moment, rpcs in spent if begin <= moment < begin + 3600) <= USUAL.rpcs_per_hour
