"""What a session used over time: its samples as evenly spaced series for graphs, with means and peaks. Pure."""

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

VALUES = 240  # the most values of a series; even a wide terminal shows fewer
SINGLE_GPUS = 4  # up to this number, GPUs are shown one by one; of more, only the mean
IDLE_AFTER = timedelta(minutes=10)
IDLE_PERCENT = 1.0  # below this, a GPU is not used
_USUAL = 5.0  # seconds between two samples, if the samples themselves do not show it
_PAUSE = 15.0  # seconds; a shorter time without samples is never a gap
_LATE = 3  # a pause longer than this many times the usual one is a gap
_AROUND = 5  # the number of pauses before and after one that show what is usual
_YEAR = timedelta(days=366)  # a time that is off by more than this is wrong, and ignored

_Getter = Callable[[Sample], "float | None"]


class Used(Frozen):
    """What a session used from ``since`` to ``until``, the times of the first and the newest sample shown.

    These are ``None`` without samples. ``began``: when its job first started, as far as known. ``notes``: sentences for
    the user.
    """

    began: datetime | None = None
    since: datetime | None = None
    until: datetime | None = None
    series: tuple[Series, ...] = ()
    notes: tuple[str, ...] = ()


def add_rows(samples: list[Sample], rows: Iterable[str]) -> None:
    """Add new rows of ``usage.csv``; rows of the same moment (of several GPUs) are joined, even if they come later."""
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
    """Return the series of these samples; ``window``: only those of the last time of this length.

    ``flags``, ``accounted``: the flags that the session was queued with, and its accounting, for the limits of cores
    and memory. ``values``: the most values of each series; with fewer samples, there are fewer.
    """
    known = _in_order(samples)
    if not known:
        return Used()
    newest = known[-1].time
    shown = [sample for sample in known if window is None or newest - sample.time <= window]
    timeline = _Timeline(shown, time_of_each(known)[-len(shown) :], values)
    limits = (cores_of(flags, accounted), memory_of(flags, accounted))
    if not is_on_one_node(flags, accounted):  # the samples are only those of the first node
        limits = (None, None)
    quantities = (timeline.series(*quantity) for quantity in _quantities(shown, *limits))
    series = tuple(one for one in quantities if one is not None)
    began = known[0].time - timedelta(seconds=min(known[0].seconds, _YEAR.total_seconds()))
    return Used(began, shown[0].time, newest, series, tuple(_idle_notes(known)))


def shrunk(values: Sequence[float | None], count: int) -> list[float | None]:
    """Reduce the values to at most ``count``, each the mean of those that it replaces."""
    if len(values) <= count:
        return list(values)
    edges = [place * len(values) // count for place in range(count + 1)]
    return [_mean(values[begin:end]) for begin, end in itertools.pairwise(edges)]


def _in_order(samples: Sequence[Sample]) -> list[Sample]:
    """Return each sample once, sorted by time; those with impossible times are left out.

    The node's clock may have jumped, and samples are read again if the job has thinned out its file.
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
    """Yield the label, the unit, the capacity and the getter of each quantity."""
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
    """Yield the quantities of one GPU, or the means of all (``index``: ``None``)."""

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
    """The time of the samples, divided into equal intervals; ``weights``: the seconds that each sample stands for."""

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
        """Return the series of one quantity, ``None`` if it was never reported; ``most``: its capacity."""
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
        """Return the mean of each interval; one without a sample has that of the next, except in a gap."""
        sums, counts = [0.0] * self._count, [0] * self._count
        for place, value in zip(self._places, readings, strict=True):
            if value is not None:
                sums[place] += value
                counts[place] += 1
        values = [total / count if count else None for total, count in zip(sums, counts, strict=True)]
        for before, after, is_gap in zip(self._places, self._places[1:], self._is_gap, strict=False):
            if not is_gap:  # a sample stands for the time since the one before it
                values[before + 1 : after] = [values[after]] * max(0, after - before - 1)
        return values


def _is_long(pauses: Sequence[float], place: int) -> bool:
    """Return whether a pause is longer than those around it: in a thinned file, older pauses are longer anyway."""
    import statistics

    before, after = pauses[max(0, place - _AROUND) : place], pauses[place + 1 : place + 1 + _AROUND]
    usual = max((statistics.median(some) for some in (before, after) if some), default=_USUAL)
    return pauses[place] > _LATE * usual


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


# --- what should be known of it ---


def _idle_notes(samples: Sequence[Sample]) -> Iterable[str]:
    """Yield sentences about GPUs that were not used for a while, in the last run of a requeued job."""
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
