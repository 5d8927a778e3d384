"""The timings of a class: one value per student and configuration, their distribution, and outliers. Pure.

A configuration is what was measured, its parameters, the device and the number of cores; only times of the same
configuration are compared. Results are not trusted; ``bench.compare`` parses them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from notebook_launcher.bench.compare import Recording, Result
from notebook_launcher.core.frozen import Frozen

FEWEST_FOR_OUTLIERS = 5  # students with a value: with fewer, none is called an outlier
FENCE = 1.5  # times the interquartile range, as in Tukey's box plots
_LEAST_RATIO = 1.1  # a time within a tenth of the quartiles is no outlier, however close the others are
MOST_CONFIGURATIONS = 200


class StudentTime(Frozen):
    """One student's result in a configuration. ``name``: as shown; ``seconds``: the median per call."""

    name: str
    seconds: float
    is_outlier: bool = False


class Configuration(Frozen):
    """What was measured, on which hardware, and the students' times, shortest first."""

    what: str
    where: str
    times: tuple[StudentTime, ...]
    low: float  # the quartiles
    middle: float
    high: float

    @property
    def outliers(self) -> tuple[StudentTime, ...]:
        """The times of the outliers."""
        return tuple(one for one in self.times if one.is_outlier)


class ClassTimes(Frozen):
    """All configurations. ``unsynchronised``: the number of results left out because they did not wait for the device.

    ``damaged``: the number of lines that are not valid results.
    """

    configurations: tuple[Configuration, ...]
    students: int
    results: int
    unsynchronised: int = 0
    damaged: int = 0


def class_times(recordings: Mapping[str, Recording]) -> ClassTimes:
    """Return the distribution of each configuration. ``recordings``: by the name shown.

    If a student has several results for one configuration, the last one counts: the attempts before may have been
    faulty.
    """
    values: dict[tuple[str, str], dict[str, float]] = {}
    unsynchronised = damaged = results = 0
    for name, recording in recordings.items():
        damaged += recording.damaged
        for result in recording.results:
            if not result.synchronised:
                unsynchronised += 1
                continue
            results += 1
            key = (_what(result), _where(result))
            if key in values or len(values) < MOST_CONFIGURATIONS:
                values.setdefault(key, {})[name] = result.median
    found = [_configuration(what, where, times) for (what, where), times in sorted(values.items())]
    having = {one.name for configuration in found for one in configuration.times}
    return ClassTimes(tuple(found), len(having), results, unsynchronised, damaged)


def _what(result: Result) -> str:
    parameters = ", ".join(f"{name}={value}" for name, value in result.parameters)
    return f"{result.name} ({parameters})" if parameters else result.name


def _where(result: Result) -> str:
    cores = result.fingerprint.get("cores_allotted", "")
    of_cores = f"{cores} core{'' if cores == '1' else 's'}" if cores else ""
    device = result.device or result.device_kind or "an unknown device"
    return ", ".join(filter(None, (device, of_cores)))


def _configuration(what: str, where: str, times: Mapping[str, float]) -> Configuration:
    ordered = sorted(times.items(), key=lambda pair: (pair[1], pair[0]))
    seconds = [value for _, value in ordered]
    low, middle, high = quartiles(seconds)
    shown = tuple(StudentTime(name, value, is_outlier(value, low, high, len(seconds))) for name, value in ordered)
    return Configuration(what, where, shown, low, middle, high)


def quartiles(ordered: Sequence[float]) -> tuple[float, float, float]:
    """Return the lower quartile, the median and the upper quartile of sorted values.

    The quartiles are the medians of the two halves; each half includes the middle value.
    """
    half = (len(ordered) + 1) // 2
    return median(ordered[:half]), median(ordered), median(ordered[-half:])


def is_outlier(value: float, low: float, high: float, count: int) -> bool:
    """Whether a time is far from the others, by ratios: twice as long is as far as half as long."""
    if count < FEWEST_FOR_OUTLIERS:
        return False
    reach = max(FENCE * (math.log(high) - math.log(low)), math.log(_LEAST_RATIO))
    return not math.log(low) - reach <= math.log(value) <= math.log(high) + reach
