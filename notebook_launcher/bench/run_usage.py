"""The resources that one run of a bench used. Pure; ``usage`` reads them from a run's files."""

from __future__ import annotations

from notebook_launcher.core.frozen import Frozen


class RunUsage(Frozen):
    """The resources that one whole run used, its start-up included; ``None``: not known.

    ``wall``: seconds from its job's start to its end. ``cores``: cores kept busy, on average. ``memory_peak``: MiB.
    ``gpu_percent``: percentage of the time in which a GPU was busy, on average over its GPUs; ``gpu_memory_peak``: MiB,
    on the fullest of them. ``watt_hours``: energy used by its GPUs.
    """

    wall: float | None = None
    cores: float | None = None
    memory_peak: float | None = None
    gpu_percent: float | None = None
    gpu_memory_peak: float | None = None
    watt_hours: float | None = None
