"""The timings of a class: one value of each student for each configuration, their distribution, and outliers. Pure.

A configuration is what was measured, with its parameters, on which device and how many cores: only these are compared.
Results are not trusted; ``bench.compare`` reads them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from notebook_launcher.bench.compare import Recording, Result
from notebook_launcher.core.frozen import Frozen

FEWEST_FOR_OUTLIERS = 5  # students with a value: with fewer, nothing is far from the others
FENCE = 1.5  # times the interquartile range, as in Tukey's box plots
_LEAST_RATIO = 1.1  # nobody within a tenth of the quartiles is an outlier, however close the others are
MOST_CONFIGURATIONS = 200


class StudentTime(Frozen):
    """One student's result in a configuration. ``name``: as it is shown; ``seconds``: the median of a call."""

    name: str
    seconds: float
    is_outlier: bool = False


class Configuration(Frozen):
    """What was measured, on what, and the students' times, the shortest first."""

    what: str
    where: str
    times: tuple[StudentTime, ...]
    low: float  # the quartiles
    middle: float
    high: float

    @property
    def outliers(self) -> tuple[StudentTime, ...]:
        """The times that are far from the others."""
        return tuple(one for one in self.times if one.is_outlier)


class ClassTimes(Frozen):
    """All configurations; ``unsynchronised``: how many results are left out because they waited for no device.

    ``damaged``: lines that are no results.
    """

    configurations: tuple[Configuration, ...]
    students: int
    results: int
    unsynchronised: int = 0
    damaged: int = 0


def class_times(recordings: Mapping[str, Recording]) -> ClassTimes:
    """Return the distribution of each configuration. ``recordings``: by the name that is shown.

    Of several results of one student in one configuration, the last one counts: it was recorded when all else worked.
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
    """Return the quartiles of sorted values: the medians of the halves, each with the middle one, and of all."""
    half = (len(ordered) + 1) // 2
    return median(ordered[:half]), median(ordered), median(ordered[-half:])


def is_outlier(value: float, low: float, high: float, count: int) -> bool:
    """Whether a time is far from the others, by ratios: twice as long is as far as half as long."""
    if count < FEWEST_FOR_OUTLIERS:
        return False
    reach = max(FENCE * (math.log(high) - math.log(low)), math.log(_LEAST_RATIO))
    return not math.log(low) - reach <= math.log(value) <= math.log(high) + reach
