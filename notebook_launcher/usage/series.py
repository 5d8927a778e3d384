"""What a session used over its time: its samples as evenly spaced series for graphs, with means and peaks. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from notebook_launcher.core.events import Series
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.usage_samples import GpuSample, Sample, read_samples
from notebook_launcher.schedulers.base import AccountingRecord
from notebook_launcher.usage.limits import cores_of, is_on_one_node, memory_of
from notebook_launcher.usage.totals import last_run, time_of_each

VALUES = 240  # that a series has at most: a wide terminal shows fewer
SINGLE_GPUS = 4  # so many are shown one by one; of more, the mean
IDLE_AFTER = timedelta(minutes=10)
IDLE_PERCENT = 1.0  # below this, a GPU is not used
_USUAL = 5.0  # seconds between two samples, where they do not show it
_PAUSE = 15.0  # seconds: a shorter time without samples is no gap
_LATE = 3  # so many times the usual pause without a sample is one
_AROUND = 5  # pauses before it, and after it, tell what is usual
_YEAR = timedelta(days=366)  # a clock that is wrong by so much says nothing

_Getter = Callable[[Sample], "float | None"]


class Used(Frozen):
    """What a session used from ``since`` until ``until``: the first and the newest sample, ``None`` without any.

    ``began``: when its job began to run, for the first time that is known. ``notes``: what should be known of it.
    """

    began: datetime | None = None
    since: datetime | None = None
    until: datetime | None = None
    series: tuple[Series, ...] = ()
    notes: tuple[str, ...] = ()


def add_rows(samples: list[Sample], rows: Iterable[str]) -> None:
    """Add what was written to ``usage.csv`` meanwhile; the rows of one moment may come one by one."""
    for sample in read_samples(rows):
        if samples and (samples[-1].time, samples[-1].seconds) == (sample.time, sample.seconds):
            before = samples.pop()
            known = {gpu.index for gpu in before.gpus}
            gpus = before.gpus + tuple(gpu for gpu in sample.gpus if gpu.index not in known)
            sample = Sample(sample.time, sample.seconds, before.cpu_cores, before.memory_mib, gpus)
        samples.append(sample)


def used(
    samples: Sequence[Sample],
    flags: Mapping[str, str | None],
    accounted: AccountingRecord | None = None,
    *,
    window: timedelta | None = None,
    values: int = VALUES,
) -> Used:
    """Return what the samples tell, of the last ``window`` only where one is given.

    ``flags``, ``accounted``: those that the session was queued with, and what the scheduler has allocated, for what
    there is of cores and memory. ``values``: how many each series has at most; fewer where there are fewer samples.
    """
    known = _in_order(samples)
    if not known:
        return Used()
    newest = known[-1].time
    shown = [sample for sample in known if window is None or newest - sample.time <= window]
    timeline = _Timeline(shown, time_of_each(known)[-len(shown) :], values)
    limits = (cores_of(flags, accounted), memory_of(flags, accounted))
    if not is_on_one_node(flags, accounted):  # the samples are of the first
        limits = (None, None)
    quantities = (timeline.series(*quantity) for quantity in _quantities(shown, *limits))
    series = tuple(one for one in quantities if one is not None)
    began = known[0].time - timedelta(seconds=min(known[0].seconds, _YEAR.total_seconds()))
    return Used(began, shown[0].time, newest, series, tuple(_idle_notes(known)))


def shrunk(values: Sequence[float | None], count: int) -> list[float | None]:
    """Return at most ``count`` values in place of more, each the mean of those that it stands for."""
    if len(values) <= count:
        return list(values)
    edges = [place * len(values) // count for place in range(count + 1)]
    return [_mean(values[begin:end]) for begin, end in itertools.pairwise(edges)]


def _in_order(samples: Sequence[Sample]) -> list[Sample]:
    """Sort by time, which a node's clock may have jumped in; a moment that cannot be is left out.

    Each comes once: where the file was thinned out, it was read again.
    """
    if not samples:
        return []
    ordered = sorted(
        {(sample.time, sample.seconds): sample for sample in reversed(samples)}.values(), key=lambda sample: sample.time
    )
    middle = ordered[len(ordered) // 2].time
    return [sample for sample in ordered if abs(sample.time - middle) <= _YEAR]


# --- what is measured ---


def _quantities(
    samples: Sequence[Sample], cores: float | None, memory: float | None
) -> Iterable[tuple[str, str, float | None, _Getter]]:
    """Yield a label, a unit, what there is of it, and how it is taken from a sample."""
    indexes = list(dict.fromkeys(gpu.index for sample in samples for gpu in sample.gpus))
    if len(indexes) > SINGLE_GPUS:
        yield from _of_gpus(samples, f"{len(indexes)} GPUs", None)
    else:
        for index in indexes:
            yield from _of_gpus(samples, f"GPU {index}", index)
    yield "CPU", "cores", cores, lambda sample: sample.cpu_cores
    yield "memory", "GiB", _gib(memory), lambda sample: _gib(sample.memory_mib)


def _of_gpus(
    samples: Sequence[Sample], label: str, index: str | None
) -> Iterable[tuple[str, str, float | None, _Getter]]:
    """Yield what is known of one GPU, or of all of them in the mean."""

    def of(get: Callable[[GpuSample], float | None]) -> _Getter:
        return lambda sample: _mean([get(gpu) for gpu in sample.gpus if index in (None, gpu.index)])

    total = max((most for sample in samples if (most := of(lambda gpu: gpu.memory_total_mib)(sample))), default=None)
    yield label, "%", 100.0, of(lambda gpu: gpu.percent)
    yield f"{label} memory", "GiB", _gib(total), of(lambda gpu: _gib(gpu.memory_mib))
    yield f"{label} power", "W", None, of(lambda gpu: gpu.watts)


def _gib(mebibytes: float | None) -> float | None:
    return None if mebibytes is None else mebibytes / 1024


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


# --- over time ---


class _Timeline:
    """The time of some samples, in intervals of the same length; ``weights``: the seconds that each covers."""

    def __init__(self, samples: Sequence[Sample], weights: Sequence[float], most: int) -> None:
        import statistics

        self._samples, self._weights = samples, weights
        seconds = [(sample.time - samples[0].time).total_seconds() for sample in samples]
        pauses = [after - before for before, after in itertools.pairwise(seconds)]
        usual = statistics.median([pause for pause in pauses if pause > 0] or [_USUAL])
        self._count = max(1, min(most, round(seconds[-1] / usual) + 1))
        width = seconds[-1] / self._count or 1.0
        self._places = [min(int(at / width), self._count - 1) for at in seconds]
        self._is_gap = [pause > _PAUSE and _is_long(pauses, place) for place, pause in enumerate(pauses)]

    def series(self, label: str, unit: str, most: float | None, get: _Getter) -> Series | None:
        """Return one quantity; ``None`` where it was never reported."""
        readings = [get(sample) for sample in self._samples]
        weighed = [(value, weight) for value, weight in zip(readings, self._weights, strict=True) if value is not None]
        if not weighed:
            return None
        numbers, seconds = [value for value, _ in weighed], sum(weight for _, weight in weighed)
        mean = sum(value * weight for value, weight in weighed) / seconds if seconds > 0.01 else _mean(numbers)
        values = tuple(_rounded(value) for value in self._spread(readings))
        return Series(
            label, unit, values, _rounded(most), _rounded(mean), _rounded(max(numbers)), _rounded(readings[-1])
        )

    def _spread(self, readings: Sequence[float | None]) -> list[float | None]:
        """Return the mean of each piece of time; a piece without a sample has that of the next, but for gaps."""
        sums, counts = [0.0] * self._count, [0] * self._count
        for place, value in zip(self._places, readings, strict=True):
            if value is not None:
                sums[place] += value
                counts[place] += 1
        values = [total / count if count else None for total, count in zip(sums, counts, strict=True)]
        for before, after, is_gap in zip(self._places, self._places[1:], self._is_gap, strict=False):
            if not is_gap:  # a sample covers the time since the one before it
                values[before + 1 : after] = [values[after]] * max(0, after - before - 1)
        return values


def _is_long(pauses: Sequence[float], place: int) -> bool:
    """Whether a pause is longer than those around it; of a thinned file the older ones are longer."""
    import statistics

    before, after = pauses[max(0, place - _AROUND) : place], pauses[place + 1 : place + 1 + _AROUND]
    usual = max((statistics.median(some) for some in (before, after) if some), default=_USUAL)
    return pauses[place] > _LATE * usual


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


# --- what should be known of it ---


def _idle_notes(samples: Sequence[Sample]) -> Iterable[str]:
    """Yield a sentence where GPUs were not used for a while; of a job that was requeued, its last run counts."""
    run = last_run(samples)
    until, began = run[-1].time, run[0].time
    never, lately = [], []
    for index in dict.fromkeys(gpu.index for sample in run for gpu in sample.gpus):
        percents = [(s.time, g.percent) for s in run for g in s.gpus if g.index == index and g.percent is not None]
        if not percents or until - percents[0][0] < IDLE_AFTER:
            continue
        last = next((time for time, percent in reversed(percents) if percent >= IDLE_PERCENT), None)
        if last is None:
            never.append(index)
        elif until - last >= IDLE_AFTER:
            lately.append(index)
    if never:
        yield f"{_gpus(never)} not used at all in {_minutes(until - began)} min."
    if lately:
        yield f"{_gpus(lately)} not used in the last {_minutes(IDLE_AFTER)} min."


def _gpus(indexes: Sequence[str]) -> str:
    *others, last = indexes
    return f"GPUs {', '.join(others)} and {last} were" if others else f"GPU {last} was"


def _minutes(time: timedelta) -> int:
    return int(time.total_seconds() // 60)
