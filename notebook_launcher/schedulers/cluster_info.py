"""What a scheduler reports besides the user's own job: partitions, limits, nodes, pending jobs and start estimates.

Not every scheduler reports all of it, and not every site lets everybody read it. ``None`` means that something was not
reported, which is not the same as that there is none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import field

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import LauncherError, UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.request import Request
from notebook_launcher.core.walltime import Walltime


class Partition(Frozen):
    """One partition and what it allows. ``accounts``, ``qos``, ``groups`` and ``users``: those allowed; ``None``: all,
    or not reported.

    ``usual``: the walltime of a job that requests none. ``whole_nodes``: jobs are allocated whole nodes there.
    ``preemptible``: jobs there may be preempted by others.
    """

    name: str
    is_default: bool = False
    is_up: bool | None = None
    walltime: Walltime | None = None  # the maximum; ``None``: not reported
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
    users: frozenset[str] | None = None
    usual: Walltime | None = None


class Limit(Frozen):
    """One limit that applies to the user.

    ``of``: what sets it (``account proj1``, ``QOS short``, ``partition gpu (QOS courses)``). ``on``: the limited
    resource, by Slurm's name for trackable resources (``gres/gpu``, ``cpu``, ``mem``, ``node``), or ``jobs``,
    ``submitted jobs``, ``walltime``. With ``minutes`` after the resource it limits the total that jobs may use up; if
    ``running`` precedes it as well, the total that running jobs may still use up. ``per``: ``job``, ``node`` (of a
    job), ``user``, ``account`` or ``group`` (all who share it). ``value``: the limit as sbatch accepts it (``2``,
    ``100G``, ``1-00:00:00``); ``used``: how much of it is in use now, in the same form, ``None`` if not reported.
    """

    of: str
    on: str
    per: str
    value: str
    used: str | None = None


class Node(Frozen):
    """One node in one partition: its resources and those in use. GPUs are given by type, ``""`` if that has no name.

    ``available``: whether jobs can start there; ``state``: as the scheduler spells it; ``reason``: why it is not
    available.
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


class NodeSize(Frozen):
    """The cores and the memory (MiB) of some nodes of a partition."""

    partition: str
    cores: int
    memory: int


class QueuedJob(Frozen):
    """A pending job of any user, or ``tasks`` of them in one array. ``gpus``, ``cores``: how many each requests.

    ``None``: not reported.
    """

    id: str
    user: str
    partition: str
    reason: str | None = None
    priority: int | None = None
    cores: int | None = None
    gpus: int | None = None
    tasks: int = 1


class ReservationInfo(Frozen):
    """A reservation: its start and end (ISO; without a zone, on the cluster's clock), its nodes, and who may use it.

    ``nodes``: in the scheduler's short form; ``users``, ``accounts``: separated by commas; empty: no restriction.
    """

    name: str
    start: str | None = None
    end: str | None = None
    nodes: str = ""
    users: str = ""
    accounts: str = ""


class Licence(Frozen):
    """A licence that jobs can request, and how many of it there are; ``None``: not reported."""

    name: str
    total: int | None = None


class StartEstimate(Frozen):
    """The scheduler's estimate for a request that is not submitted.

    ``start`` (ISO; without a zone, on the cluster's clock) or ``refusal``. Both are ``None`` if the ``message`` was not
    understood or, with ``is_later``, if the job would start later and the ``message`` is all that is known about it.
    ``preempts``: the jobs that would be preempted.
    """

    start: str | None = None
    partition: str | None = None
    nodes: str | None = None
    refusal: LauncherError | None = None
    message: str = ""
    preempts: tuple[str, ...] = ()
    is_later: bool = False


def read_walltime(text: str | None) -> Walltime | None:
    """Parse a walltime in one of sbatch's formats; ``None`` for any other text."""
    try:
        return Walltime.parse(text) if text else None
    except UsageError:
        return None


#: the command where a scheduler has nothing to query
_NOTHING = ["true"]


class ClusterInfo(ABC):
    """Pairs of a command and a parser, as in ``Scheduler``. Parsers return ``None`` if nothing was reported."""

    def ahead(self, partition: str, cluster: str | None) -> list[str]:
        """Return the command that lists the pending jobs of a partition, with their priorities."""
        return _NOTHING

    def read_ahead(self, job_id: str, answer: CommandResult) -> int | None:
        """Return how many jobs have priority over this one; ``None``: not known (a site may hide other users' jobs)."""
        return None

    @abstractmethod
    def partitions(self, cluster: str | None) -> list[str]:
        """Return the command that describes all partitions; ``cluster``: another cluster, as with ``-M``."""

    @abstractmethod
    def read_partitions(self, answer: CommandResult) -> tuple[Partition, ...] | None:
        """Return the partitions."""

    def limits(self, user: str, cluster: str | None) -> list[str]:
        """Return the command that prints the limits on a user's accounts and QOS."""
        return _NOTHING

    def read_limits(self, request: Request, answer: CommandResult) -> tuple[Limit, ...] | None:
        """Return the limits that apply to this request's account and QOS."""
        return None

    def read_defaults(self, request: Request, answer: CommandResult) -> tuple[str | None, str | None]:
        """Return the account and the QOS that apply to this request, from the output of ``limits``.

        ``None``: not reported.
        """
        return None, None

    def accounts(self, user: str, cluster: str | None) -> list[str] | None:
        """Return the command that lists a user's accounts; ``None``: there is none."""
        return None

    def read_accounts(self, answer: CommandResult) -> tuple[str, ...] | None:
        """Return the user's accounts."""
        return None

    def read_qos(self, answer: CommandResult) -> Mapping[str, tuple[str, ...]] | None:
        """Return the QOS that the user has with each account, from the output of ``accounts``."""
        return None

    def features(self, cluster: str | None) -> list[str] | None:
        """Return the command that lists the features of nodes; ``None``: there is none."""
        return None

    def read_features(self, answer: CommandResult) -> Mapping[str, tuple[str, ...]] | None:
        """Return the features of each partition's nodes."""
        return None

    def node_sizes(self, cluster: str | None) -> list[str] | None:
        """Return the command that lists the sizes of nodes; ``None``: there is none."""
        return None

    def read_node_sizes(self, answer: CommandResult) -> tuple[NodeSize, ...] | None:
        """Return the sizes of nodes, each once for each partition."""
        return None

    def reservations(self, cluster: str | None) -> list[str] | None:
        """Return the command that describes all reservations; ``None``: there is none."""
        return None

    def read_reservations(self, answer: CommandResult) -> tuple[ReservationInfo, ...] | None:
        """Return the reservations; an empty tuple if there are none."""
        return None

    def licences(self, cluster: str | None) -> list[str] | None:
        """Return the command that lists the licences; ``None``: there is none."""
        return None

    def read_licences(self, answer: CommandResult) -> tuple[Licence, ...] | None:
        """Return the licences; an empty tuple if there are none."""
        return None

    def clusters(self) -> list[str] | None:
        """Return the command that lists the clusters to which jobs can be sent; ``None``: there is none."""
        return None

    def read_clusters(self, answer: CommandResult) -> tuple[str, ...] | None:
        """Return the names of these clusters."""
        return None

    @abstractmethod
    def nodes(self, cluster: str | None) -> list[str]:
        """Return the command that describes each node, once for each of its partitions."""

    @abstractmethod
    def read_nodes(self, answer: CommandResult) -> tuple[Node, ...] | None:
        """Return the nodes."""

    @abstractmethod
    def pending_jobs(self, cluster: str | None) -> list[str]:
        """Return the command that lists all pending jobs."""

    @abstractmethod
    def read_pending_jobs(self, answer: CommandResult) -> tuple[QueuedJob, ...] | None:
        """Return the pending jobs, as far as this user may see them."""

    def private_data(self, cluster: str | None) -> list[str]:
        """Return the command that prints whether users can see each other's jobs."""
        return _NOTHING

    def read_private_data(self, answer: CommandResult) -> bool | None:
        """Return whether other users' jobs are hidden; ``None``: not reported."""
        return None

    def estimate_start(self, request: Request) -> list[str] | None:
        """Return the command that estimates when a request would start, without submitting it; ``None``: there is none.

        Raises ``UsageError`` for a flag that cannot be translated.
        """
        return None

    def read_start_estimate(self, answer: CommandResult) -> StartEstimate:
        """Return the estimate."""
        return StartEstimate()


class Evidence(Frozen):
    """What is known besides a job's own status, to explain it. ``None``: not read; nothing is guessed.

    ``partition``: where the job is pending. ``request``: what was requested, but with the account, QOS, partition and
    walltime that the scheduler reports for the job, since the user's settings and a site's plugins may change them (an
    account or QOS that it does not report is left out). ``ahead``: the number of jobs with priority over it.
    """

    request: Request | None = None
    partition: str | None = None
    partitions: Sequence[Partition] | None = None
    limits: Sequence[Limit] | None = None
    ahead: int | None = None
