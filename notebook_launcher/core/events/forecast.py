"""Events of ``when`` and ``queue``."""

from __future__ import annotations

from dataclasses import dataclass

from notebook_launcher.core.events.base import Event


@dataclass(frozen=True)
class Forecast(Event, name="forecast"):
    """When the request would start. ``start``: ISO with zone; ``seconds`` until then, 0: now.

    ``flags``: the request as it is typed. Where it cannot start, ``start`` is ``None``, and ``what``, ``why``, ``hint``
    and ``exit_code`` are those of a ``LauncherError``. ``delayed_by``: what keeps it waiting for longer than ``start``
    says, ``note``: what else is to be known; both may be empty.
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


@dataclass(frozen=True)
class Alternative(Event, name="alternative"):
    """When an alternative request would start.

    ``flags``: the change, as it is typed. ``sooner``: than the request itself. ``note``: what else is to be known, may
    be empty. ``what``: why it cannot start, empty where it can.
    """

    flags: str
    start: str | None
    seconds: int | None
    partition: str | None
    nodes: str | None
    sooner: bool
    note: str = ""
    what: str = ""


@dataclass(frozen=True)
class ForecastDone(Event, name="forecast_done"):
    """A forecast is complete. ``as_of``: when it was made (ISO with the cluster's zone), ``text``: what it is worth."""

    as_of: str
    text: str


@dataclass(frozen=True)
class ResourceLoad:
    """How many GPUs of a type (``""`` where none is named), or ``cores``, are free, busy and out of service.

    ``free`` and ``busy`` are ``None`` where that is not told.
    """

    type: str
    free: int | None
    busy: int | None
    unavailable: int


@dataclass(frozen=True)
class PartitionLoad:
    """One partition: ``walltime`` is its limit as it is typed, ``None``: not told; ``pending`` and ``yours`` are jobs.

    ``cores``: of its nodes without GPUs. ``pending_gpus``: how many GPUs those that wait ask for. These three are
    ``None`` where that is not told.
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


@dataclass(frozen=True)
class Queue(Event, name="queue"):
    """What is free, and what waits; ``gpus``, ``cores`` and ``pending`` count each node and job once.

    ``hidden``: whether other people's jobs are not shown to this user; ``None``: not known.
    """

    partitions: tuple[PartitionLoad, ...]
    gpus: tuple[ResourceLoad, ...]
    cores: ResourceLoad
    pending: int | None
    pending_gpus: int | None
    yours: int | None
    hidden: bool | None
