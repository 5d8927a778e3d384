"""usage.sh: processor and memory, of real processes and in real cgroups where there are any."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from notebook_launcher.core.usage_samples import COLUMNS, read_samples
from tests.doubles import wait_until
from tests.unit.jobscripts.usage_sampler import (
    BIG,
    BUSY,
    BUSY_IN_CHILDREN,
    CGROUPS,
    DAEMON,
    New,
    Sampler,
    cores,
    processor_time,
    used,
)

pytestmark = pytest.mark.real_time


def test_processor_and_memory_of_a_process_and_its_children(sampler: Sampler) -> None:
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-Sc', {BIG!r}])\n{BUSY}"
    begun = time.time()
    sampler.start(job=code)
    samples = sampler.samples(3)
    assert sampler.script is not None
    script = psutil.Process(sampler.script.pid)
    really = sum(map(processor_time, [script, *script.children()]))
    measured = used(samples, samples[0].seconds - 1)
    # others may use this machine too, so what it got counts; some of it before the first look and after the last
    assert 0.4 * really < measured < really + 0.05
    memory = samples[-1].memory_mib
    assert memory is not None and 200 <= memory < 260
    assert sampler.rows()[0] == ",".join(COLUMNS)
    assert stat.S_IMODE((sampler.dir / "usage.csv").stat().st_mode) == 0o600
    assert abs(samples[0].time.timestamp() - begun) < 60, "in UTC"
    assert abs((samples[-1].seconds - samples[0].seconds) - (len(samples) - 1)) <= 1, "on a steady grid"


def test_processes_that_come_and_go(new: New, tmp_path: Path) -> None:
    """Children that end within a sample, a daemon that leaves its parent and its session, a name that is none."""
    brief, daemon, odd = new(), new(), new()
    pid, program = tmp_path / "pid", tmp_path / ") R 1 1 (x\n) S"
    shutil.copy("/bin/sleep", program)
    brief.start(job=BUSY_IN_CHILDREN)
    daemon.start(job=DAEMON.format(pid=str(pid)))
    odd.start(job=f"import subprocess; subprocess.Popen([{str(program)!r}, '20']); import time; time.sleep(600)")
    samples = brief.samples(3)
    assert brief.script is not None and daemon.script is not None
    times = psutil.Process(brief.script.pid).cpu_times()
    really = times.user + times.system + times.children_user + times.children_system
    measured = used(samples, samples[0].seconds - 1)
    assert 0.4 * really < measured < really + 0.7, "what has ended is not lost, nor counted twice"
    process, above = psutil.Process(int(pid.read_text())), daemon.script.pid
    wait_until(lambda: above not in {one.pid for one in process.parents()}, what="its parent has ended")
    before = daemon.samples(3)
    really = -processor_time(process)
    samples = daemon.samples(len(before) + 2)
    really += processor_time(process)
    assert used(samples[len(before) :], samples[len(before) - 1].seconds) > 0.4 * really
    assert odd.samples(3)[-1].cpu_cores is not None and odd.samples()[-1].memory_mib


def test_no_name_makes_a_stranger_part_of_the_job(sampler: Sampler) -> None:
    """proc(5) shows a process's name, which it chooses itself, before its session."""
    job = sampler.job("import time; time.sleep(600)")
    sampler.start()
    sampler.samples(2)
    name = f"import ctypes; ctypes.CDLL(None).prctl(15, b'a) S 1 1 {job.pid} ', 0, 0, 0)"
    busy = "import time\nwhile time.process_time() < 0.8: pass\ntime.sleep(600)"
    stranger = subprocess.Popen([sys.executable, "-Sc", f"{name}\n{busy}"], start_new_session=True)
    try:
        wait_until(lambda: processor_time(psutil.Process(stranger.pid)) > 0.5, what="the stranger has computed")
        samples = sampler.samples(len(sampler.samples()) + 1)
        assert used(samples, samples[0].seconds - 1) < 0.2
    finally:
        stranger.kill()
        stranger.wait()


def test_it_ends_with_the_job_and_says_what_it_cost(sampler: Sampler) -> None:
    sampler.nvidia_smi("nvidia-smi-two-a100.csv", 2)
    sampler.start(60)
    wait_until(sampler.gpu_programs, what="nvidia-smi runs")
    assert sampler.script is not None and sampler.process is not None
    sampler.script.kill()  # and it is not waited for: it lingers on, dead
    log = sampler.log()
    assert sampler.process.returncode == 0
    assert "usage.csv has 0 more samples; sampling took " in log and "% of one core" in log
    assert sampler.gpu_programs() == []


def test_it_ends_at_once_when_it_is_told_to(sampler: Sampler) -> None:
    sampler.nvidia_smi("nvidia-smi-two-a100.csv", 2)
    sampler.start(3600)
    wait_until(sampler.gpu_programs, what="nvidia-smi runs")
    begun = time.monotonic()
    assert "sampling took" in sampler.end()
    assert time.monotonic() - begun < 10  # its next look is in an hour
    assert sampler.gpu_programs() == []


def test_a_killed_sampler_leaves_no_nvidia_smi(sampler: Sampler) -> None:
    sampler.nvidia_smi("nvidia-smi-two-a100.csv", 2)
    sampler.start()
    wait_until(sampler.gpu_programs, what="nvidia-smi runs")
    assert sampler.process is not None
    sampler.process.kill()
    wait_until(lambda: not sampler.gpu_programs(), what="it is ended by its next word")


def test_a_second_run_goes_on_in_the_same_file(sampler: Sampler) -> None:
    """As after a requeue; the first one was killed while it wrote."""
    whole = "2026-11-21T01:44:55Z,5.0,0.50,100,,,,,,"
    (sampler.dir / "usage.csv").write_text(f"{','.join(COLUMNS)}\n{whole}\n{whole[:30]}")
    sampler.start()
    samples = sampler.samples(2)
    assert (samples[0].seconds, samples[0].cpu_cores) == (5.0, 0.5)
    assert sampler.rows()[:3] == [",".join(COLUMNS), whole, whole[:30]]
    assert sum(row.startswith("time,") for row in sampler.rows()) == 1


def test_the_file_does_not_grow_for_ever(sampler: Sampler) -> None:
    """With a tenth of the rows that it keeps otherwise, which takes a tenth of the time."""

    def row(number: int, gpu: int) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_800_000_000 + number))
        cores, memory, percent = {401: ("3.75", 100, 50), 501: ("0.50", 900, 99 * gpu)}.get(number, ("0.50", 100, 50))
        return f"{stamp},{number}.0,{cores},{memory},{gpu},NVIDIA A100,{percent},1,2,3.0\n"

    file = sampler.dir / "usage.csv"
    file.write_text(",".join(COLUMNS) + "\n" + "".join(row(n, gpu) for n in range(1599) for gpu in (0, 1)))
    whole = file.stat().st_size
    sampler.start(keeping=3200)
    wait_until(lambda: file.stat().st_size < 0.8 * whole, 60, "rows are left out")
    samples = read_samples(sampler.rows())
    assert 1_900 < len(sampler.rows()) < 2_100
    assert all(len(sample.gpus) == 2 for sample in samples[:-5]), "whole samples"
    assert [s.seconds for s in samples[:3]] == [0, 2, 4], "of the old ones every other"
    assert (max(s.cpu_cores or 0 for s in samples), max(s.memory_mib or 0 for s in samples[:-5])) == (3.75, 900), (
        "peaks stay"
    )
    assert max(gpu.percent or 0 for s in samples for gpu in s.gpus) == 99
    assert samples[700].seconds - samples[699].seconds == 1, "of the new ones all"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not list(sampler.dir.glob("*.new*"))


def test_where_nothing_can_be_written(sampler: Sampler) -> None:
    (sampler.dir / "usage.csv").mkdir()
    sampler.start()
    assert "is not sampled: " in sampler.log()


@pytest.fixture
def job_cgroups() -> Iterator[Callable[..., list[Path]]]:
    """Make real cgroups as Slurm does, for job 4242."""
    made: list[Path] = []

    def make(*controllers: str) -> list[Path]:
        for controller in controllers:
            top = CGROUPS / controller
            if os.geteuid() != 0 or not (top / "cgroup.procs").exists() or not os.access(top, os.W_OK):
                pytest.skip(f"there is no cgroup {top} to make one in")
            place = top / f"nbl_test_{os.getpid()}" / "job_4242" / "step_batch"
            place.mkdir(parents=True)
            made.append(place)
        return made[-len(controllers) :]

    yield make
    for place in made:
        for pid in map(int, (place / "cgroup.procs").read_text().split()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for folder in (place, place.parent, place.parent.parent):
            with_patience = time.monotonic() + 5
            while time.monotonic() < with_patience:
                try:
                    folder.rmdir()
                    break
                except OSError:
                    time.sleep(0.05)


def joined(sampler: Sampler, places: list[Path]) -> psutil.Process:
    """Start a job's script that sleeps in these cgroups, and beside it what is busy there and no child of it."""
    joins = "".join(f"open({str(place / 'cgroup.procs')!r}, 'w').write(str(os.getpid()));" for place in places)
    script = sampler.job(f"import os, time; {joins} time.sleep(600)")
    wait_until(lambda: "job_4242" in Path(f"/proc/{script.pid}/cgroup").read_text(), what="it has moved")
    beside = subprocess.Popen([sys.executable, "-Sc", f"import os; {joins} held = b'x' * (100 << 20)\n{BUSY}"])
    sampler.start()
    return psutil.Process(beside.pid)


def test_the_jobs_own_cgroup_counts(new: New, job_cgroups: Callable[..., list[Path]]) -> None:
    """What the scheduler counts is seen, also where it is no child of the job's script; the node's is not."""
    first, second = new(SLURM_JOB_ID="4242"), new(SLURM_JOB_ID="4242")
    other, node = new(SLURM_JOB_ID="42"), new()
    beside_first = joined(first, job_cgroups("cpuacct", "memory"))
    beside_second = joined(second, job_cgroups("unified"))
    for sampler in (other, node):
        sampler.script = first.script
        sampler.start()
    for sampler, beside in ((first, beside_first), (second, beside_second)):
        samples = sampler.samples(3)
        really = processor_time(beside)
        assert 0.3 * really < used(samples, samples[0].seconds - 1) < really + 0.5
    memory = first.samples()[-1].memory_mib
    assert memory is not None and 100 <= memory < 150
    memory = second.samples()[-1].memory_mib
    assert memory is not None and memory < 50, "none is accounted there, so it is that of the job's processes"
    for sampler in (other, node):
        assert cores(sampler.samples(2)) < 0.1
