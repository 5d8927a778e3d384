"""usage.sh beside a job: started, heard of and ended with it."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from notebook_launcher.core.package_data import job_script
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.jobs.messages import IdleReported, UsageSampled
from notebook_launcher.jobs.watcher import JobWatcher
from notebook_launcher.schedulers.base import JobRef
from notebook_launcher.schedulers.slurm.commands import Slurm
from tests.doubles import wait_until
from tests.unit.jobscripts.job import STAND_IN, Job
from tests.unit.jobscripts.usage_sampler import BUSY, Sampler

pytestmark = pytest.mark.real_time


def heard(inbox: queue.SimpleQueue[object], kind: type[Any], seconds: float = 15) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        item = inbox.get(timeout=max(0.01, deadline - time.monotonic()))
        if isinstance(item, kind):
            return item


def has_worked(samples: list[Any]) -> bool:
    return any(sample.cpu_cores is not None and sample.cpu_cores > 0.2 for sample in samples)


def test_the_launcher_hears_of_it(sampler: Sampler) -> None:
    sampler.nvidia_smi("nvidia-smi-two-a100.csv", 2)
    sampler.start(job=BUSY)
    shutil.copy(job_script("watch.sh"), sampler.dir)
    inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
    host = LocalHost()
    watch = JobWatcher(host, Slurm(), JobRef("7"), str(sampler.dir), inbox)
    watch.start()
    try:
        samples = []
        deadline = time.monotonic() + 15  # the machine may be too busy at first for what the job wants to compute
        while not samples or not has_worked(samples) or len(samples[-1].gpus) != 2:
            samples.append(heard(inbox, UsageSampled, deadline - time.monotonic()).sample)
        (sampler.dir / "idle.json").write_text('{"version":1,"since":"2026-11-21T01:44:55Z"}\n')
        assert heard(inbox, IdleReported).data == {"version": 1, "since": "2026-11-21T01:44:55Z"}
        (sampler.dir / "idle.json").unlink()
        assert heard(inbox, IdleReported).data is None
    finally:
        watch.close()
        host.close()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    job.tool("jupyter-lab", STAND_IN)
    job.in_a_scheduler()
    job.tool("nvidia-smi", "#!/bin/bash\nwhile :; do echo '0, NVIDIA T4, 1, 2, 3, 4'; sleep 0.5; done\n")
    yield job
    job.end()


def niceness(job: Job) -> set[int]:
    found = set()
    for process in job.processes():
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            if any("usage.sh" in word for word in process.cmdline()):
                found.add(process.nice())
    return found


def beside(job: Job) -> list[str]:
    return [command for command in job.commands() if "usage.sh" in command or "nvidia-smi" in command]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_job_starts_it_and_leaves_none(job: Job, how: signal.Signals) -> None:
    job.ask("usage=1")
    job.start()
    job.endpoint()
    wait_until(lambda: len(beside(job)) == 2, what="both run")
    assert niceness(job) == {min(os.nice(0) + 10, 19)}
    # It waits for the next sample then: bash 5.2 loses a trap that is due while it parses a command substitution.
    table = job.dir / "usage.csv"
    wait_until(lambda: table.exists() and len(table.read_text().splitlines()) > 1, what="a sample")
    job.send(how)
    if how == signal.SIGTERM:
        assert job.exit()["cause"] == "stopped"
        assert job.processes() == []
    else:
        wait_until(lambda: not beside(job), what="it has noticed")
    assert "sampling took" in job.log.read_text()


def test_a_job_of_which_nothing_is_sampled(job: Job) -> None:
    job.ask("usage=0")
    job.start()
    job.endpoint()
    assert beside(job) == []
