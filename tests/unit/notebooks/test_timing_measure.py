"""What ``notebooks/timing.py`` measures is right, and what it cannot measure it refuses."""

from __future__ import annotations

import math
import random
import statistics
import time

import pytest

from tests.unit.notebooks.timing_doubles import (
    Simulated,
    timing,
)

pytestmark = pytest.mark.usefixtures("nothing_set")


@pytest.mark.parametrize(
    ("count", "out", "covered"),  # from tables of the binomial distribution
    [
        (1, 0, 0.0),
        (2, 0, 0.5),
        (5, 0, 0.9375),
        (6, 0, 0.96875),
        (8, 0, 0.9921875),
        (9, 1, 0.9609375),
        (20, 5, 0.958611),
    ],
)
def test_the_interval_of_the_median_is_that_of_order_statistics(count: int, out: int, covered: float) -> None:
    assert timing._ranks(count, 0.95) == (out, pytest.approx(covered, abs=1e-6))


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999, 1 - 1e-12])
@pytest.mark.parametrize("count", [7, 999, 1000, 1001, 1002, 1500])
def test_the_interval_of_many_times_is_that_of_order_statistics_too(count: int, confidence: float) -> None:
    out, covered = timing._ranks(count, confidence)
    outside = [2 * sum(math.comb(count, below) for below in range(most + 1)) / 2**count for most in (out, out + 1)]
    assert covered == pytest.approx(1 - outside[0], abs=1e-9)
    assert 1 - outside[1] < confidence + 1e-9
    assert 1 - outside[0] >= min(confidence, 1 - 2 / 2**count) - 1e-9


def test_the_interval_of_very_many_times_takes_no_time() -> None:
    before = time.process_time()
    assert timing._ranks(100_000, 0.95)[0] == pytest.approx(50_000 - 1.96 * math.sqrt(100_000) / 2, abs=2)
    assert time.process_time() - before < 0.5


def test_the_true_median_lies_in_the_interval_whatever_the_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lognormal times around 10 ms: the 95 % interval holds the true median of most of 300 runs."""
    held, errors = 0, []
    for seed in range(300):
        chance = random.Random(seed)
        clock = Simulated(monkeypatch, lambda chance=chance: 0.010 * chance.lognormvariate(0, 0.1))  # type: ignore[misc]
        m = timing.measure(clock.work, name="jittery", budget=30)
        held += m.low <= 0.010 <= m.high
        errors.append(abs(m.median / 0.010 - 1))
        assert m.narrow
    assert held >= 0.90 * 300  # a little under 95 %: it stops when it is narrow, which a lucky series is sooner
    assert statistics.median(errors) < 0.02


def test_an_outlier_does_not_move_the_median(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = iter([0.010] * 4 + [5.0] + [0.010] * 1000)
    clock = Simulated(monkeypatch, lambda: next(taken))
    m = timing.measure(clock.work, name="outlier", min_repeats=20, budget=60)
    assert max(m.times) > 4.9
    assert m.median == pytest.approx(0.010, rel=1e-3)
    assert m.high == pytest.approx(0.010, rel=1e-3)
    assert m.narrow


def test_the_first_call_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = iter([9.0] + [0.010] * 1000)
    m = timing.measure(Simulated(monkeypatch, lambda: next(taken)).work, name="cold")
    assert max(m.times) < 0.011
    assert m.warmup == 1


def test_it_repeats_until_the_interval_is_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    steady = timing.measure(Simulated(monkeypatch, lambda: 0.01).work, name="steady")
    chance = random.Random(1)
    wild = timing.measure(
        Simulated(monkeypatch, lambda: 0.01 * chance.lognormvariate(0, 0.2)).work, name="wild", budget=60
    )
    assert len(steady.times) in (6, 7)
    assert len(wild.times) > 100
    assert steady.narrow
    assert wild.narrow


def test_a_spent_budget_ends_it_and_the_interval_says_how_much_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(1)
    clock = Simulated(monkeypatch, lambda: chance.uniform(0.5, 1.5))
    m = timing.measure(clock.work, name="wild", budget=20)
    assert not m.narrow
    assert sum(m.times) < 22
    assert "not within ±2 %" in str(m)
    slow = timing.measure(Simulated(monkeypatch, lambda: 60.0).work, name="slow", budget=10, min_repeats=2)
    assert len(slow.times) == 2
    assert (slow.covered, slow.narrow) == (0.5, False)
    assert "50 % interval" in str(slow)


def test_short_calls_are_timed_several_together(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Simulated(monkeypatch, lambda: 10e-6)
    m = timing.measure(clock.work, name="short")
    assert m.calls_per_time >= 20
    assert m.median == pytest.approx(10e-6, rel=0.01)
    assert timing.measure(Simulated(monkeypatch, lambda: 0.1).work, name="long").calls_per_time == 1


@pytest.mark.parametrize("hiccup", [300e-6, 0.5])
def test_a_hiccup_in_the_first_call_is_not_taken_for_a_long_one(monkeypatch: pytest.MonkeyPatch, hiccup: float) -> None:
    taken = iter([10e-6, hiccup])
    m = timing.measure(Simulated(monkeypatch, lambda: next(taken, 10e-6)).work, name="short", budget=0.3)
    assert m.calls_per_time >= 20
    assert m.median == pytest.approx(10e-6, rel=0.01)


def test_a_coarse_clock_is_refused_or_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock of 1 ms: what lasts 100 µs is timed ten thousand times together, or not at all."""

    class Coarse(Simulated):
        def read(self) -> float:
            return round(super().read(), 3)

    clock = Coarse(monkeypatch, lambda: 100e-6, step=1e-6)
    assert timing.measure(clock.work, name="coarse", budget=30).median == pytest.approx(100e-6, rel=0.01)
    with pytest.raises(timing.TooShort, match=r"at a time are needed.*larger budget"):
        timing.measure(Coarse(monkeypatch, lambda: 100e-6, step=1e-6).work, name="coarse", budget=0.5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"warmup": -1}, "warmup"),
        ({"min_repeats": 0}, "min_repeats"),
        ({"min_repeats": 9, "max_repeats": 8}, "max_repeats"),
        ({"precision": 0}, "precision"),
        ({"confidence": 95}, "confidence"),
        ({"budget": 0}, "budget"),
        ({"work": 0}, "work"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(timing.TimingError, match=message):
        timing.measure(lambda: time.sleep(0.001), name="sleep", **settings)  # type: ignore[arg-type]
