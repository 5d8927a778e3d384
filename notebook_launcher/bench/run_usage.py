"""What one run of a bench used, as a report has it. Pure; ``usage`` reads it from a run's files."""

from __future__ import annotations

from notebook_launcher.core.frozen import Frozen


class RunUsage(Frozen):
    """What one run used as a whole, its start-up included; ``None``: not known.

    ``wall``: seconds from its job's start to its end. ``cores``: kept busy on average. ``memory_peak``: MiB.
    ``gpu_percent``: of the time in which something ran on a GPU, on average over its GPUs; ``gpu_memory_peak``: MiB, on
    the fullest of them. ``watt_hours``: of its GPUs.
    """

    wall: float | None = None
    cores: float | None = None
    memory_peak: float | None = None
    gpu_percent: float | None = None
    gpu_memory_peak: float | None = None
    watt_hours: float | None = None
