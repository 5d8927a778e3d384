"""Results as notebooks record them, and runs that have recorded them."""

from __future__ import annotations

import json
import random

from notebook_launcher.bench.compare import CombinationRun, read_recording
from notebook_launcher.bench.report import Report, make_report


def record(name: str = "fit", median: float = 1.0, repeats: int = 9, **others: object) -> str:
    chance = random.Random(median)
    times = sorted(median * (1 + chance.gauss(0, 0.01)) for _ in range(repeats))
    middle = times[repeats // 2]
    data = {
        "version": 1,
        "name": name,
        "parameters": {"EPOCHS": 1},
        "times": times,
        "median": middle,
        "low": times[0],
        "high": times[-1],
        "iqr": 0.1,
        "work": 1000,
        "unit": "images",
        "throughput": 1000 / middle,
        "synchronised": True,
        "warmup": 1,
        "device": {"kind": "cpu", "name": "AMD EPYC", "library": "numpy"},
        "recorded": "2026-11-22T04:00:00Z",
        "fingerprint": {"cpu": "AMD EPYC", "cores_allotted": 4, "libraries": {"numpy": "2.3.1"}, "job": "7"},
    }
    return json.dumps({**data, **others})


def ran(values: dict[str, str], *lines: str, state: str = "done", **others: object) -> CombinationRun:
    name = " ".join(f"{key}={value}" for key, value in values.items())
    lines = tuple(line.replace('"cores_allotted": 4', f'"cores_allotted": {values.get("cores", 4)}') for line in lines)
    return CombinationRun(name, tuple(values.items()), state, read_recording("\n".join(lines)), **others)  # type: ignore[arg-type]


def reported(*runs: CombinationRun, baseline: str = "") -> Report:
    return make_report(
        "tiny.ipynb", "cores=1,4", "launch-notebook bench tiny.ipynb", "2026-11-22 05:00", runs, baseline
    )


def timed(*series: list[float]) -> list[CombinationRun]:
    """Combinations ``a=1``, ``a=2`` … with these times."""
    runs = []
    for number, times in enumerate(series, 1):
        ordered = sorted(times)
        summed_up = {"times": times, "median": ordered[len(times) // 2], "low": ordered[0], "high": ordered[-1]}
        runs.append(ran({"a": str(number)}, json.dumps({**json.loads(record()), **summed_up})))
    return runs
