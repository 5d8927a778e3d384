"""What each run of a bench used: its run time, CPU, memory, GPU and energy, from the files that were fetched with it.

These are known whether or not the notebook has recorded anything. The files come from a job, and are not trusted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from notebook_launcher.core.bounded_read import read_at_most
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.core.usage_samples import Sample, read_samples
from notebook_launcher.notebook.results import RECORD, USAGE
from notebook_launcher.session.record import json_object
from notebook_launcher.usage.totals import add_up, last_run

_LARGEST = 16 * 1024 * 1024  # bytes of a file that are read
_LONGEST = 1e9  # seconds of a run: thirty years


class RunUse(Frozen):
    """What one run used as a whole, its start-up included; ``None``: not known.

    ``wall``: seconds from its job's start to its end. ``cores``: kept busy on average. ``memory_peak``: MiB.
    ``gpu_percent``: of the time in which something ran on a GPU, on average over its GPUs; ``gpu_memory_peak``: MiB, on
    the fullest of them. ``watt_hours``: of its GPUs.
    """

    wall: float | None = None
    cores: float | None = None
    memory_peak: float | None = None
    gpu_name: str = ""
    gpu_percent: float | None = None
    gpu_memory_peak: float | None = None
    watt_hours: float | None = None


def read_use(folder: Path) -> RunUse:
    """Return what the run in a results folder used, as far as its files tell."""
    return run_use(json_object(_content(folder / RECORD)), _samples(folder / USAGE))


def run_use(record: Mapping[str, object], samples: Sequence[Sample]) -> RunUse:
    """Return what a run used. ``record``: its ``run.json``; ``samples``: of its ``usage.csv``."""
    began, ended = (parse_iso(str(record.get(key) or "")) for key in ("started", "ended"))
    wall = None
    if began and ended and (began.tzinfo is None) == (ended.tzinfo is None):
        wall = (ended - began).total_seconds()
    use = add_up(last_run(samples))
    return RunUse(
        wall=wall if wall is not None and 0 < wall <= _LONGEST else use.seconds or None,
        cores=use.cpu / use.seconds if use.cpu is not None and use.seconds else None,
        memory_peak=use.memory_peak,
        gpu_name=use.gpu_name,
        gpu_percent=use.gpu_percent,
        gpu_memory_peak=use.gpu_memory_peak,
        watt_hours=use.watt_hours,
    )


def _samples(path: Path) -> list[Sample]:
    return read_samples(_content(path).decode(errors="replace").splitlines())


def _content(path: Path) -> bytes:
    with contextlib.suppress(OSError):
        return read_at_most(path, _LARGEST) or b""
    return b""
