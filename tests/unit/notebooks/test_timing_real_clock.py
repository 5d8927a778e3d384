"""``notebooks/timing.py`` on a real clock, and with a device that works later, in real time."""

from __future__ import annotations

import gc
import itertools
import random
import statistics
import sys
import time
import timeit
from collections.abc import Iterable

import pytest

from tests.unit.notebooks.timing_doubles import LaterDevice, fake_torch, timing

pytestmark = [pytest.mark.usefixtures("nothing_set"), pytest.mark.real_time]


class Naps:
    """Sleeps of the lengths given, in seconds, and how much longer each took: a busy machine wakes people late."""

    def __init__(self, lengths: Iterable[float]) -> None:
        self._lengths = iter(lengths)
        self._late: list[float] = []
        self._took: list[float] = []

    def __call__(self) -> None:
        length, began = next(self._lengths), time.perf_counter()
        time.sleep(length)
        self._took.append(time.perf_counter() - began)
        self._late.append(self._took[-1] - length)

    @property
    def late(self) -> float:
        """The median of how late they woke, in seconds."""
        return statistics.median(self._late)

    def longer(self, median: float) -> float:
        """By how much the median of what was really slept is above the one that was asked for, in seconds."""
        return max(0.0, statistics.median(self._took) - median)


def test_a_sleep_of_known_length() -> None:
    naps = Naps(itertools.repeat(0.020))
    m = timing.measure(naps, name="sleep", work=2, unit="naps", budget=3)
    assert 0.020 <= m.median < 0.022 + naps.late  # the kernel wakes late, never early
    assert m.low <= m.median <= m.high
    assert m.throughput == pytest.approx(2 / m.median)


def test_a_jittery_sleep() -> None:
    chance = random.Random(3)
    naps = Naps(chance.uniform(0.002, 0.006) for _ in itertools.count())
    m = timing.measure(naps, name="jittery", precision=0.05, budget=3)
    longer = naps.longer(0.004)  # on a busy machine short ones and long ones wake late by different times
    assert m.low <= 0.0043 + longer  # the true median of what is asked for is 4 ms
    assert m.high >= 0.0039
    assert 0.0035 < m.median < 0.0048 + longer


def test_a_sleep_with_an_outlier() -> None:
    naps = Naps(itertools.chain([0.005] * 5, [0.5], itertools.repeat(0.005)))
    m = timing.measure(naps, name="outlier", min_repeats=15, budget=3)
    assert 0.005 <= m.median < 0.006 + naps.late
    assert max(m.times) > 0.4


def test_what_is_too_short_is_right_or_refused() -> None:
    with pytest.raises(timing.TooShort, match="to call a function that does nothing takes"):
        timing.measure(lambda: None, name="nothing")
    numbers = list(range(200))
    ratios = []
    for _ in range(25):  # in short rounds, as many calls at a time: what else the machine does hits both
        m = timing.measure(lambda: sum(numbers), name="sum", budget=0.02)
        assert m.calls_per_time > 50
        alone = timeit.repeat(lambda: sum(numbers), number=m.calls_per_time, repeat=len(m.times))
        ratios.append(m.median * m.calls_per_time / statistics.median(alone))
    assert 0.85 < statistics.median(ratios) < 1.18


def test_the_collector_of_garbage_is_as_it_was() -> None:

    seen: list[bool] = []

    def fn() -> None:
        seen.append(gc.isenabled())
        time.sleep(0.001)
        if len(seen) > 2:
            raise KeyError

    with pytest.raises(KeyError):
        timing.measure(fn, name="raises")
    assert gc.isenabled()
    assert seen[1] is False


def test_a_device_is_waited_for(later: LaterDevice) -> None:
    m = timing.measure(lambda: later.launch(0.005), name="kernel", device=later, budget=2)
    assert 0.005 <= m.median < 0.0095
    assert m.synchronised
    assert m.device is later


def test_calls_that_only_queue_work_are_caught(later: LaterDevice) -> None:
    with pytest.raises(timing.Unsynchronised, match=r"then worked for another .* time to queue the work, not to do it"):
        timing.measure(lambda: later.launch(0.005), name="kernel", device=later, synchronise=False, budget=2)


def test_a_backlog_that_shows_only_in_the_end_is_caught(later: LaterDevice) -> None:
    """The first call is as long as it looks; those of the series leave work behind."""
    calls = iter(range(10_000))

    def fn() -> None:
        time.sleep(0.006)
        if next(calls) > 2:
            later.launch(0.04)

    with pytest.raises(timing.Unsynchronised, match="calls returned after"):
        timing.measure(fn, name="backlog", device=later, synchronise=False, max_repeats=6, budget=2)


def test_a_function_that_waits_by_itself_is_believed_but_not_compared(later: LaterDevice) -> None:
    def fn() -> None:
        later.launch(0.002)
        later.synchronise()

    m = timing.measure(fn, name="own wait", device=later, synchronise=False, budget=0.2)
    assert not m.synchronised
    assert "not synchronised" in str(m)
    with pytest.raises(timing.Unsynchronised, match=r"own wait was timed without waiting for the GPU"):
        timing.compare(m, m)


def test_a_gpu_that_was_not_named_is_found(monkeypatch: pytest.MonkeyPatch, later: LaterDevice) -> None:
    """The usual trap: the model lies on the GPU, and the CPU's clock is read."""
    monkeypatch.setitem(sys.modules, "torch", fake_torch(gpus=1, pending=later.synchronise))
    with pytest.raises(timing.Unsynchronised, match=r"say which, by device=timing\.best_device\(\)"):
        timing.measure(lambda: later.launch(0.005), name="forward", budget=1)
    with pytest.raises(timing.Unsynchronised, match="say which"):
        for _ in timing.Laps("fit", 2):
            later.launch(0.05)
    named = timing.Device("gpu", "Card 0", "torch", "cuda:0")
    m = timing.measure(lambda: later.launch(0.005), name="forward", device=named, budget=1)
    assert 0.005 <= m.median < 0.0095


def test_a_gpu_that_was_left_alone_is_no_trap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the wait for it is long now and then: something else has the core."""
    waits = itertools.count(1)

    def wait() -> None:  # without sleeping, as CUDA does
        until = time.perf_counter() + (0.02 if next(waits) % 6 == 0 else 0.0005)
        while time.perf_counter() < until:
            pass

    held_up = fake_torch(gpus=1, pending=wait)
    monkeypatch.setitem(sys.modules, "torch", held_up)
    for _ in range(3):
        m = timing.measure(lambda: time.sleep(0.002), name="on the CPU", budget=0.1)
        assert m.synchronised
    assert next(waits) > 12


def test_laps_wait_for_the_device(later: LaterDevice) -> None:
    laps = timing.Laps("fit", 13, device=later, work=100, unit="images", parameters={"size": 3})
    for lap in laps:
        later.launch(0.05 if lap == 0 else 0.01)
    assert len(laps) == len(laps.seconds) == 13
    m = laps.measurement
    assert len(m.times) == 12
    assert (m.warmup, m.work, m.unit, m.parameters["size"]) == (1, 100, "images", 3)
    assert 0.010 <= min(m.times) < 0.015  # the quickest: the others wait for a busy machine as well
    assert m.synchronised
