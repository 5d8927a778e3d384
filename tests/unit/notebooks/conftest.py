"""What the tests of ``notebooks/timing.py`` begin with."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.notebooks.timing_doubles import LaterDevice, timing

_SCHEDULED = re.compile(r"SLURM_|LSB_|PBS_|NBL_|NCPUS|NSLOTS|QUEUE|JOB_ID|OMP_|TF_NUM|.*_NUM_THREADS|VECLIB_|CUDA_")


@pytest.fixture
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No library is imported, no variable of a job, of threads or GPUs is set, no energy told; in an empty folder."""
    for name in [name for name in os.environ if _SCHEDULED.match(name)]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "environ", os.environ.copy())  # what use_threads sets is gone afterwards
    for name in ("torch", "tensorflow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    timing._nvml.cache_clear()
    monkeypatch.setattr(timing, "_NVML", "no such library")
    monkeypatch.setattr(timing, "_POWERCAP", tmp_path / "no powercap")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def later() -> Iterator[LaterDevice]:
    device = LaterDevice("gpu", "Simulated", "")
    device.start()
    yield device
    device.launch(0)
    device.work.put(None)  # type: ignore[attr-defined]
