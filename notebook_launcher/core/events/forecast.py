"""Events of ``when`` and ``queue``."""

from __future__ import annotations

from notebook_launcher.core.events.base import Event
from notebook_launcher.core.frozen import Frozen


class Forecast(Event, name="forecast"):
    """When the request would start. ``start``: ISO with zone; ``seconds`` until then, 0: now.

    ``flags``: the request as it is typed. If it cannot start, ``start`` is ``None``, and ``what``, ``why``, ``hint``
    and ``exit_code`` are those of a ``LauncherError``. ``delayed_by``: what may delay it beyond ``start``, or why no
    start is known; ``note``: a further remark; both may be empty.
    """

    flags: str
    start: str | None
    seconds: int | None
    partition: str | None
    nodes: str | None
    delayed_by: str = ""
    note: str = ""
    what: str = ""
    why: str = ""
    hint: str = ""
    exit_code: int = 0


class Alternative(Event, name="alternative"):
    """When an alternative request would start.

    ``flags``: the change, as it is typed. ``sooner``: whether it starts sooner than the request itself. ``note``: a
    remark, may be empty. ``what``: why it cannot start, empty if it can.
    """

    flags: str
    start: str | None
    seconds: int | None
    partition: str | None
    nodes: str | None
    sooner: bool
    note: str = ""
    what: str = ""


class ForecastDone(Event, name="forecast_done"):
    """A forecast is complete. ``as_of``: its time (ISO with the cluster's zone), ``text``: how reliable it is."""

    as_of: str
    text: str


class ResourceLoad(Frozen):
    """How many GPUs of a type (``""`` if it has no name), or ``cores``, are free, busy and out of service.

    ``free`` and ``busy`` are ``None`` if the scheduler does not report them.
    """

    type: str
    free: int | None
    busy: int | None
    unavailable: int


class PartitionLoad(Frozen):
    """One partition: ``walltime`` is its limit as typed, ``None``: not reported; ``pending`` and ``yours`` are jobs.

    ``cores``: of its nodes without GPUs. ``pending_gpus``: how many GPUs the pending jobs request. These three are
    ``None`` if not reported.
    """

    name: str
    default: bool
    up: bool | None
    walltime: str | None
    gpus: tuple[ResourceLoad, ...]
    cores: ResourceLoad
    pending: int | None
    pending_gpus: int | None
    yours: int | None


class Queue(Event, name="queue"):
    """What is free, and what is pending; ``gpus``, ``cores`` and ``pending`` count each node and job once.

    ``hidden``: whether other people's jobs are not shown to this user; ``None``: not known.
    """

    partitions: tuple[PartitionLoad, ...]
    gpus: tuple[ResourceLoad, ...]
    cores: ResourceLoad
    pending: int | None
    pending_gpus: int | None
    yours: int | None
    hidden: bool | None
