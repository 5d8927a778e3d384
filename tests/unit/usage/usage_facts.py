"""Samples, accounting and reports that the tests of usage make."""

from __future__ import annotations

import dataclasses
import functools
from datetime import datetime, timedelta, timezone

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.usage_samples import GpuSample, Sample
from notebook_launcher.profiles.models import Price
from notebook_launcher.schedulers.base import AccountingRecord, JobRef, State
from notebook_launcher.schedulers.slurm.commands import Slurm
from notebook_launcher.session.record import SessionRecord
from notebook_launcher.usage.bill import Facts, make_bill
from tests import paths

SLURM = Slurm()
RECORDED = paths.RECORDED  # what alice was told on the practice cluster
ID = "20261121-014455-k3f9"
BEGAN = datetime(2026, 11, 21, 1, 45, tzinfo=timezone.utc)
HOUR = 3600
#: a session that runs, as it is seen at this time
NOW = datetime(2026, 11, 21, 13, 0, tzinfo=timezone.utc)
FOLDER = "/home/alice/.notebook-launcher/sessions/20261121-120000-k3fa"
SEEN = events.SessionEntry(
    session="20261121-120000-k3fa",
    state="running",
    job="7",
    cluster=None,
    node="gpu1",
    environment="tf-gpu",
    program="jupyterlab",
    created=NOW.replace(hour=12).isoformat(),
    ends=NOW.replace(hour=14).isoformat(),
    seconds_left=3600,
    walltime="2 hours",
    launched_from="laptop",
    directory=FOLDER,
)

each_release = pytest.mark.parametrize("release", ["22.05", "24.11", "26.05"])


def sample(seconds: float, cores: float = 0.5, memory: float = 3174.0, gpus: tuple[GpuSample, ...] = ()) -> Sample:
    return Sample(BEGAN + timedelta(seconds=seconds), seconds, cores, memory, gpus)


def gpu(index: str = "0", percent: float | None = 40.0, memory: float = 12288.0) -> GpuSample:
    return GpuSample(index, "NVIDIA A100-SXM4-40GB", percent, memory, 40960.0, 180.0)


def steady(seconds: int, every: int = 5, **about: object) -> list[Sample]:
    return list(_steady(seconds, every, frozenset(about.items())))


@functools.cache  # hundreds of samples, none of which changes
def _steady(seconds: int, every: int, about: frozenset[tuple[str, object]]) -> tuple[Sample, ...]:
    return tuple(sample(at, **dict(about)) for at in range(every, seconds + 1, every))  # type: ignore[arg-type]


def record(flags: dict[str, str | None] | None = None, scheduler: str = "slurm") -> SessionRecord:
    asked: dict[str, str | None] = {"time": "2:00:00"} if flags is None else flags
    return SessionRecord(id=ID, created=BEGAN, scheduler=scheduler, flags=asked, log="/log")


def accounted(**about: object) -> AccountingRecord:
    told = AccountingRecord(
        JobRef("7"),
        state=State.CANCELLED,
        wall=72 * 60,
        walltime=2 * HOUR,
        cores=8,
        nodes=1,
        gpus=1,
        gpu_type="a100",
        cpu_used=1680.0,
        cpu_reserved=72 * 60 * 8,
        memory_peak=3000.0,
        memory_requested=55 * 1024.0,
        memory_limit=55 * 1024.0,
    )
    return dataclasses.replace(told, **about)  # type: ignore[arg-type]


def billed(facts: Facts, flags: dict[str, str | None] | None = None, price: Price | None = None) -> events.Bill:
    bill = make_bill(record(flags), "7", facts, price)
    assert bill is not None
    return bill
