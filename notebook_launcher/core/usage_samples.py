"""Parses ``usage.csv``: samples of the resources that a session uses, taken by its job. Pure.

One row for each GPU of each sample, or one without a GPU; the columns are ``COLUMNS``. A value that a node does not
report is an empty field.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from datetime import MAXYEAR, MINYEAR, datetime, timezone

from notebook_launcher.core.frozen import Frozen

#: ``time``: UTC, ``2026-11-21T01:44:55Z``; ``seconds``: since the job's script began; ``cpu_cores``: mean number of
#: busy cores since the previous sample; ``memory_mib``: of all processes of the job; ``gpu``: its index on the node;
#: ``gpu_percent``: share of the time in which something ran on it; ``gpu_watts``: power drawn
COLUMNS = (
    "time",
    "seconds",
    "cpu_cores",
    "memory_mib",
    "gpu",
    "gpu_name",
    "gpu_percent",
    "gpu_memory_mib",
    "gpu_memory_total_mib",
    "gpu_watts",
)


_LONGEST_JOB = 1e9  # seconds since a job's script began: thirty years


class GpuSample(Frozen):
    """One GPU at one time; ``None``: not measured."""

    index: str
    name: str
    percent: float | None
    memory_mib: float | None
    memory_total_mib: float | None
    watts: float | None


class Sample(Frozen):
    """One sample of a job; ``None``: not measured."""

    time: datetime
    seconds: float
    cpu_cores: float | None
    memory_mib: float | None
    gpus: tuple[GpuSample, ...] = ()


def read_samples(lines: Iterable[str]) -> list[Sample]:
    """Return the samples in the rows of a ``usage.csv``; the heading and damaged rows are skipped."""
    found: list[Sample] = []
    for line in lines:  # no field contains a comma or a quote
        sample = _sample(line.strip().split(","))
        if sample is None:
            continue
        if found and found[-1].time == sample.time and found[-1].seconds == sample.seconds:
            before = found.pop()
            sample = Sample(sample.time, sample.seconds, before.cpu_cores, before.memory_mib, before.gpus + sample.gpus)
        found.append(sample)
    return found


def _sample(row: Sequence[str]) -> Sample | None:
    if len(row) != len(COLUMNS):
        return None
    try:
        time = datetime.strptime(row[0], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    seconds = _number(row[1])
    if seconds is None or seconds > _LONGEST_JOB or not MINYEAR < time.year < MAXYEAR:
        return None
    gpus = (GpuSample(row[4], row[5], *map(_number, row[6:10])),) if row[4] else ()
    return Sample(time, seconds, _number(row[2]), _number(row[3]), gpus)


def _number(text: str) -> float | None:
    with contextlib.suppress(ValueError):
        number = float(text)
        if 0 <= number < 1e12:  # excludes "nan" and "inf"
            return number
    return None
