"""What the samples of a session add up to. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.usage_samples import GpuSample, Sample

GAP = 900.0  # seconds; a pause longer than this and than ten times the usual one is a gap: nobody knows what happened
OCCUPIED = 500.0  # MiB; a GPU with more was in use, while the driver alone takes less


class Use(Frozen):
    """What the samples add up to, in seconds, MiB and watt-hours; ``None``: not known.

    ``seconds``: the time that they cover; ``gpu_seconds``: the time in which they report GPU utilization. ``gpus``: the
    number of GPUs seen; ``idle_gpus``: of these, those on which nothing ever ran or was loaded.
    """

    count: int = 0
    seconds: float = 0.0
    cpu: float | None = None
    cores_peak: float | None = None
    memory_peak: float | None = None
    gpus: int = 0
    gpu_seconds: float = 0.0
    idle_gpus: int = 0
    gpu_name: str = ""
    gpu_percent: float | None = None
    gpu_memory_peak: float | None = None
    gpu_memory_total: float | None = None
    watt_hours: float | None = None


def add_up(samples: Sequence[Sample]) -> Use:
    """Return what the samples add up to; each stands for the time since the one before it."""
    weights = time_of_each(samples)
    weighted = [(sample, weight) for sample, weight in zip(samples, weights, strict=True)]
    cpu = [sample.cpu_cores * weight for sample, weight in weighted if sample.cpu_cores is not None]
    gpus = [(gpu, weight) for sample, weight in weighted for gpu in sample.gpus]
    busy = [(gpu.percent, weight) for gpu, weight in gpus if gpu.percent is not None]
    watts = [gpu.watts * weight for gpu, weight in gpus if gpu.watts is not None]
    most = max((gpu for gpu, _ in gpus), key=lambda gpu: gpu.memory_mib or 0.0, default=None)
    indices = {gpu.index for gpu, _ in gpus}
    return Use(
        count=len(samples),
        seconds=sum(weights),
        cpu=sum(cpu) if cpu else None,
        cores_peak=max((sample.cpu_cores for sample in samples if sample.cpu_cores is not None), default=None),
        memory_peak=max((sample.memory_mib for sample in samples if sample.memory_mib is not None), default=None),
        gpus=len(indices),
        gpu_seconds=sum(weight for sample, weight in weighted if any(gpu.percent is not None for gpu in sample.gpus)),
        idle_gpus=len(indices - {gpu.index for gpu, _ in gpus if _works(gpu)}),
        gpu_name=most.name if most else "",
        gpu_percent=_mean(busy),
        gpu_memory_peak=most.memory_mib if most else None,
        gpu_memory_total=most.memory_total_mib if most else None,
        watt_hours=sum(watts) / 3600 if watts else None,
    )


def last_run(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Return the samples since the job was last requeued: its seconds start again at 0 then."""
    for place in range(len(samples) - 1, 0, -1):
        if samples[place].seconds < samples[place - 1].seconds:
            return samples[place:]
    return samples


def time_of_each(samples: Sequence[Sample]) -> list[float]:
    """Return the seconds that each sample stands for: the time since the one before it, or the usual pause.

    The usual pause counts after a gap, and after the job was requeued, when its seconds start again at 0.
    """
    if not samples:
        return []
    import statistics

    since = [samples[0].seconds, *(b.seconds - a.seconds for a, b in itertools.pairwise(samples))]
    between = [seconds for seconds in since[1:] if seconds > 0]
    usual = statistics.median(between) if between else max(since)
    return [seconds if 0 <= seconds <= max(GAP, 10 * usual) else usual for seconds in since]


def _works(gpu: GpuSample) -> bool:
    return gpu.percent is None or gpu.percent > 0 or (gpu.memory_mib or 0.0) > OCCUPIED


def _mean(weighted: Sequence[tuple[float, float]]) -> float | None:
    seconds = sum(weight for _, weight in weighted)
    return sum(value * weight for value, weight in weighted) / seconds if seconds else None
