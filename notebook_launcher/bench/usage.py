"""Reads the resources that each run of a bench used (time, CPU, memory, GPU, energy) from the files fetched with it.

They are known whether or not the notebook has recorded anything. The files come from a job, and are not trusted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from notebook_launcher.bench.run_usage import RunUsage
from notebook_launcher.core.bounded_read import bounded_lines, read_regular
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.core.usage_samples import Sample, read_samples
from notebook_launcher.notebook.results import MOST_BYTES, RECORD, USAGE
from notebook_launcher.session.record import json_object
from notebook_launcher.usage.totals import add_up, last_run

_LONGEST_RUN = 1e9  # seconds of a run: thirty years


def read_usage(folder: Path) -> RunUsage:
    """Return the resources used by the run in a results folder, as far as its files record them."""
    return run_usage(_record(folder / RECORD), _samples(folder / USAGE))


def run_usage(record: Mapping[str, object], samples: Sequence[Sample]) -> RunUsage:
    """Return the resources used by a run. ``record``: its ``run.json``; ``samples``: those in its ``usage.csv``."""
    began, ended = (parse_iso(str(record.get(key) or "")) for key in ("started", "ended"))
    wall = None
    if began and ended and (began.tzinfo is None) == (ended.tzinfo is None):
        wall = (ended - began).total_seconds()
    use = add_up(last_run(samples))
    return RunUsage(
        wall=wall if wall is not None and 0 < wall <= _LONGEST_RUN else use.seconds or None,
        cores=use.cpu / use.seconds if use.cpu is not None and use.seconds else None,
        memory_peak=use.memory_peak,
        gpu_percent=use.gpu_percent,
        gpu_memory_peak=use.gpu_memory_peak,
        watt_hours=use.watt_hours,
    )


def _record(path: Path) -> Mapping[str, object]:
    with contextlib.suppress(OSError):
        return json_object(read_regular(path, MOST_BYTES) or b"")
    return {}


def _samples(path: Path) -> list[Sample]:
    with contextlib.suppress(OSError):
        return read_samples(bounded_lines(path, MOST_BYTES))
    return []
