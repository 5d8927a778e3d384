"""What a scheduler reports beyond one's own job: partitions, limits, nodes, who waits, and when something would start.

Not every scheduler tells all of it, and not every site lets everybody read it. What was not told is ``None``, which is
not the same as none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import LauncherError
from notebook_launcher.core.request import Request
from notebook_launcher.core.walltime import Walltime


@dataclass(frozen=True)
class Partition:
    """One partition and what it allows. ``accounts`` and the like: those allowed, ``None``: all, or not told.

    ``whole_nodes``: a job gets whole nodes there, whatever it asks for. ``preemptible``: it may have to make room for
    jobs that go first.
    """

    name: str
    is_default: bool = False
    is_up: bool | None = None
    walltime: Walltime | None = None  # the longest; ``None``: not told
    min_nodes: int | None = None
    max_nodes: int | None = None
    nodes: int | None = None
    accounts: frozenset[str] | None = None
    denied_accounts: frozenset[str] = frozenset()
    qos: frozenset[str] | None = None
    denied_qos: frozenset[str] = frozenset()
    groups: frozenset[str] | None = None
    whole_nodes: bool = False
    preemptible: bool = False


@dataclass(frozen=True)
class Limit:
    """One limit that concerns the user.

    ``of``: who set it, as people say it (``account proj1``, ``QOS short``, ``partition gpu (QOS courses)``). ``on``:
    what is limited, in Slurm's words for trackable resources (``gres/gpu``, ``cpu``, ``mem``, ``node``), or ``jobs``,
    ``submitted jobs``, ``walltime``; with `` minutes`` behind a resource what jobs may use up in all, with ``running ``
    before that what those that run at one time may still use up. ``per``: ``job``, ``node`` (of a job), ``user``,
    ``account`` or ``group`` (all who share it). ``value``: the limit as sbatch takes it (``2``, ``100G``,
    ``1-00:00:00``); ``used``: how much of it is in use now, written likewise, ``None`` where that was not told.
    """

    of: str
    on: str
    per: str
    value: str
    used: str | None = None


@dataclass(frozen=True)
class Node:
    """One node in one partition: what it has and what of it is in use. GPUs by type; type ``""`` where none is named.

    ``available``: whether jobs can start there; ``state`` in the scheduler's word, ``reason`` why it is not.
    """

    name: str
    partition: str
    state: str
    available: bool
    cores: int | None = None
    cores_used: int | None = None
    gpus: Mapping[str, int] = field(default_factory=dict)
    gpus_used: Mapping[str, int] | None = None
    reason: str | None = None


@dataclass(frozen=True)
class QueuedJob:
    """Somebody's job that waits, or ``tasks`` of them in one array. ``gpus``, ``cores``: how many each asks for.

    ``None``: not told.
    """

    id: str
    user: str
    partition: str
    reason: str | None = None
    priority: int | None = None
    cores: int | None = None
    gpus: int | None = None
    tasks: int = 1


@dataclass(frozen=True)
class ReservationInfo:
    """A reservation: from when to when (ISO; without a zone on the cluster's clock), on which nodes, for whom.

    ``nodes`` in the scheduler's short form; ``users`` and ``accounts`` with commas, empty: not limited by these.
    """

    name: str
    start: str | None = None
    end: str | None = None
    nodes: str = ""
    users: str = ""
    accounts: str = ""


@dataclass(frozen=True)
class StartEstimate:
    """What the scheduler says to a request without queueing it: ``start`` (the cluster's clock, ISO without zone),
    or ``refusal``; both ``None`` where it said something that is not understood (``said``). ``preempts``: the jobs that
    would have to make room for it."""

    start: str | None = None
    partition: str | None = None
    nodes: str | None = None
    refusal: LauncherError | None = None
    said: str = ""
    preempts: tuple[str, ...] = ()


class ClusterInfo(ABC):
    """Pairs of a command and a reading, as in ``Scheduler``. Readings give ``None`` where nothing was told."""

    @abstractmethod
    def ahead(self, partition: str, cluster: str | None) -> list[str]:
        """Return the command that lists who waits in a partition, with what decides who goes first."""

    @abstractmethod
    def read_ahead(self, job_id: str, answer: CommandResult) -> int | None:
        """Return how many jobs go before this one; ``None``: not known (a site may hide other people's jobs)."""

    @abstractmethod
    def partitions(self, cluster: str | None) -> list[str]:
        """Return the command that describes all partitions; ``cluster``: another one, as with ``-M``."""

    @abstractmethod
    def read_partitions(self, answer: CommandResult) -> tuple[Partition, ...] | None:
        """Return the partitions."""

    @abstractmethod
    def limits(self, user: str, cluster: str | None) -> list[str]:
        """Return the command that tells the limits on a user's accounts and QOS."""

    @abstractmethod
    def read_limits(self, request: Request, answer: CommandResult) -> tuple[Limit, ...] | None:
        """Return the limits that apply to this request's account and QOS."""

    @abstractmethod
    def read_defaults(self, request: Request, answer: CommandResult) -> tuple[str | None, str | None]:
        """Return the account and the QOS that this request counts on, from what ``limits`` told; ``None``: not told."""

    def accounts(self, user: str, cluster: str | None) -> list[str] | None:
        """Return the command that lists the accounts of a user; ``None``: there is none."""
        return None

    def read_accounts(self, answer: CommandResult) -> tuple[str, ...] | None:
        """Return the user's accounts."""
        return None

    def reservations(self, cluster: str | None) -> list[str] | None:
        """Return the command that describes all reservations; ``None``: there is none."""
        return None

    def read_reservations(self, answer: CommandResult) -> tuple[ReservationInfo, ...] | None:
        """Return the reservations; an empty tuple where there are none."""
        return None

    @abstractmethod
    def nodes(self, cluster: str | None) -> list[str]:
        """Return the command that describes all nodes, once for each of their partitions."""

    @abstractmethod
    def read_nodes(self, answer: CommandResult) -> tuple[Node, ...] | None:
        """Return the nodes."""

    @abstractmethod
    def pending_jobs(self, cluster: str | None) -> list[str]:
        """Return the command that lists all jobs that wait."""

    @abstractmethod
    def read_pending_jobs(self, answer: CommandResult) -> tuple[QueuedJob, ...] | None:
        """Return the jobs that wait, as far as this user may see them."""

    @abstractmethod
    def private_data(self, cluster: str | None) -> list[str]:
        """Return the command that tells whether users see each other's jobs."""

    @abstractmethod
    def read_private_data(self, answer: CommandResult) -> bool | None:
        """Return whether other people's jobs are hidden; ``None``: not told."""

    @abstractmethod
    def estimate_start(self, request: Request) -> list[str]:
        """Return the command that asks when a request would start, and queues nothing."""

    @abstractmethod
    def read_start_estimate(self, answer: CommandResult) -> StartEstimate:
        """Return what it answered."""


@dataclass(frozen=True)
class Evidence:
    """What is known besides a job's own status, when it is to be explained. ``None``: not read; never a guess.

    ``partition``: where the job waits. ``request``: what was asked for, with the account, QOS, partition and walltime
    that the job has by the scheduler's word (without an account or QOS that was not told): the user's settings and a
    site's plug-ins change them. ``ahead``: how many jobs go before it.
    """

    request: Request | None = None
    partition: str | None = None
    partitions: Sequence[Partition] | None = None
    limits: Sequence[Limit] | None = None
    ahead: int | None = None
