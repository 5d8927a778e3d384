"""usage.sh: what nvidia-smi tells, by a stand-in that repeats recordings."""

from __future__ import annotations

import shlex
from collections.abc import Callable

import pytest

from notebook_launcher.core.usage_samples import GpuSample, Sample, read_samples
from tests.doubles import wait_until
from tests.unit.jobscripts.usage_sampler import RECORDED, New, Sampler

pytestmark = pytest.mark.real_time


def gpus_of(sampler: Sampler, wanted: Callable[[Sample], object]) -> tuple[GpuSample, ...]:
    wait_until(lambda: any(map(wanted, read_samples(sampler.rows()))), 30, f"GPUs in {sampler.rows()}")
    return next(filter(wanted, read_samples(sampler.rows()))).gpus


def test_what_gpus_tell(new: New) -> None:
    two, odd, divided, amd = new(), new(), new(), new()
    two.nvidia_smi("nvidia-smi-two-a100.csv", 2)
    odd.nvidia_smi("nvidia-smi-odd.csv", 8)
    divided.nvidia_smi("nvidia-smi-mig.csv", 2)
    amd.tool("rocm-smi", f"#!/bin/bash\ncat {shlex.quote(str(RECORDED / 'rocm-smi.csv'))}\n")
    for sampler in (two, odd, divided, amd):
        sampler.start()
    gpus = gpus_of(two, lambda sample: sample.gpus and sample.gpus[0].percent == 100)
    assert gpus[0] == GpuSample("0", "NVIDIA A100-SXM4-40GB", 100, 31782, 40960, 398.02)
    assert [gpu.index for gpu in gpus] == ["0", "1"]
    assert two.noted("arguments") == [
        "--query-gpu=index,name,utilization.gpu,memory.used,memory.total,power.draw --format=csv,noheader,nounits -l 1"
    ], "one that runs all the time"
    assert gpus_of(odd, lambda sample: len(sample.gpus) == 4) == (
        GpuSample("0", "GeForce GTX 960", None, 412, 2002, None),
        GpuSample("1", "Tesla T4", None, None, 15360, None),
        GpuSample("2", "Made  by hand   or   worse", 12, 100, 200, 9.5),
        GpuSample("4", "NVIDIA GB10", 41, None, None, 10.22),
    )
    assert not any(set(row) & set('"|[]') for row in odd.rows())
    first, second = gpus_of(divided, lambda sample: len(sample.gpus) == 2)
    assert (first.percent, first.memory_mib, first.watts) == (None, 13241, 118.9)
    assert (second.percent, second.memory_mib) == (None, None)
    # never tried on a real card: the output is composed, as the README beside it says
    first, second = gpus_of(amd, lambda sample: len(sample.gpus) == 2)
    assert first == GpuSample("0", "AMD INSTINCT MI250 (MCM) OAM AC MBA", 88, 32768, 65520, 237)
    assert (second.percent, second.watts) == (12, None)


def test_a_sample_has_the_mean_of_what_was_read_since_the_one_before(new: New) -> None:
    sampler = new()
    recording = shlex.quote(str(RECORDED / "nvidia-smi-h100.csv"))
    sampler.tool("nvidia-smi", f"#!/bin/bash\nsed -n 8,14p {recording}\nexec sleep 600\n")
    sampler.start()
    first, second = sampler.samples(2)[:2]
    # two lines without memory or use to speak of, and five of the training
    assert first.gpus == (GpuSample("0", "NVIDIA H100 80GB HBM3", 67, 2707, 81559, 343.37),)
    assert second.gpus == first.gpus, "nothing new was read"


UUID = "GPU-10fb0fbd-2696-43f3-467f-d280d906a107"


PART = "MIG-5c89852c-d268-c3f3-1b07-005d5ae1dc3f"


WHOSE: list[tuple[dict[str, str], str | None]] = [
    ({"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "1,3", "SLURM_JOB_GPUS": "5,7"}, "-i 1,3"),
    ({"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "5"}, "-i 5"),
    ({"CUDA_VISIBLE_DEVICES": UUID}, f"-i {UUID}"),
    ({"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": PART}, "-l 1"),
    ({}, "-l 1"),
    # others on the node may have some; they are no business of such a job's
    ({"SLURM_JOB_ID": "7"}, None),
    ({"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "NoDevFiles"}, None),
    ({"CUDA_VISIBLE_DEVICES": ""}, None),
]


def test_only_the_jobs_gpus_are_looked_at(new: New) -> None:
    samplers = [(new(**variables), asked) for variables, asked in WHOSE]
    for sampler, _ in samplers:
        sampler.nvidia_smi("nvidia-smi-two-a100.csv", 2)
        sampler.start()
    for sampler, asked in samplers:
        sampler.samples(1)
        if asked is None:
            assert sampler.noted("arguments") == [] and sampler.samples()[-1].gpus == (), sampler.env
        else:
            wait_until(lambda one=sampler: one.noted("arguments"), what="nvidia-smi runs")
            assert sampler.noted("arguments")[0].endswith(asked), sampler.env


BROKEN = {
    "exec yes 'GPU 0: all is well'": "talks nonsense",
    "exec cat /dev/zero": "",
    "exec tr '\\0' x </dev/zero": "talks nonsense",
    "echo 'No devices were found'; exit 6": "has ended",
    "echo '0, NVIDIA A100, 1, 2, 3, 4'": "has ended",
    "trap '' TERM; printf '0, Half a l'; exec sleep 600": "",
}


def test_a_broken_nvidia_smi_disturbs_nobody(new: New) -> None:
    for program, said in BROKEN.items():  # one after the other: some of them use a core for as long as they may
        sampler = new()
        sampler.tool("nvidia-smi", f"#!/bin/bash\nprintf '%s\\n' $$ >>{sampler.notes}/pids\n{program}\n")
        sampler.start()
        samples = sampler.samples(3)
        assert samples[2].seconds - samples[0].seconds < 30, program
        assert samples[2].cpu_cores is not None and samples[2].gpus == (), program
        wait_until(lambda one=sampler, said=said: said in one.said.read_text(), what=f"{said}: {program}")
        assert "sampling took" in sampler.end(), program
        assert len(sampler.noted("pids")) == 1, "it is not tried again at once"
        assert sampler.gpu_programs() == []
