"""What PBS reports besides the user's own jobs: queues, hosts and pending jobs.

It estimates a start only for jobs that are queued already, and has no limits that everybody can read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from notebook_launcher.core.bash_options import PLAIN_BASH
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.request import Request
from notebook_launcher.core.text import whole_number
from notebook_launcher.schedulers.cluster_info import ClusterInfo, Node, Partition, QueuedJob, read_walltime

_QUEUES = f"{PLAIN_BASH}export LC_ALL=C; qstat -Q -f || exit; qstat -B -f 2>/dev/null; exit 0"
# -v lists vnodes: a host's cores and GPUs may be divided among several
_HOSTS = f"{PLAIN_BASH}export LC_ALL=C; pbsnodes -av || exit; echo; qstat -Q -f 2>/dev/null; exit 0"
_WAITING = ["env", "LC_ALL=C", "qstat", "-i", "-w"]

_HEAD = re.compile(r"^(Queue|Server): ([\w.-]{1,128})[ \t]*$", re.M | re.A)
_ATTRIBUTE = re.compile(r"^ {4,5}([A-Za-z_][\w.]*) = (.*)$", re.M | re.A)
_VNODE = re.compile(r"^([A-Za-z0-9][\w.-]*(?:\[\d+\])?)[ \t]*\n(?= {5}\w)", re.M | re.A)
_JOB = re.compile(r"\d{1,12}(?:\[\d*\])?\.[\w.-]+", re.A)
_WAITS = frozenset("QHWT")
# states in which a host runs jobs, and accepts more when resources become free, from the manual of pbsnodes
_IN_SERVICE = frozenset({"free", "job-busy", "job-exclusive", "busy", "sleep"})
# A queue's default_chunk.NAME restricts it to hosts with that value, unless it is an amount (PBS's Administrator's
# Guide, on associating vnodes with queues).
_AMOUNTS = frozenset({"ncpus", "ngpus", "mem", "vmem", "mpiprocs", "ompthreads", "nodect", "place"})


class Queue(Frozen):
    """One queue. ``longest``: its maximum walltime; ``usual``: its default walltime, without ``-l walltime``.

    ``users``, ``groups``: those who may use it, ``None``: all. ``hosts``: the values that its hosts must have, by
    resource. ``runs``: whether it is an execution queue; a routing queue passes jobs on to other queues.
    """

    name: str
    is_default: bool
    is_up: bool | None
    runs: bool
    longest: str | None
    usual: str | None
    most_hosts: int | None
    users: frozenset[str] | None
    groups: frozenset[str] | None
    hosts: Mapping[str, str]


class PbsInfo(ClusterInfo):
    """Pairs of a command and a parser. ``gpu``: returns the name of the resource for GPUs.

    ``check``: raises ``UsageError`` for a request that cannot be translated.
    """

    def __init__(self, check: Callable[[Request], object], gpu: Callable[[], str]) -> None:
        self._check, self._gpu = check, gpu

    def partitions(self, cluster: str | None) -> list[str]:
        """Return ``qstat`` for all queues, and for the server, which reports the default queue."""
        return ["bash", "-c", _QUEUES]

    def read_partitions(self, answer: CommandResult) -> tuple[Partition, ...] | None:
        """Return the queues, with their maximum walltimes."""
        found = tuple(map(_partition, read_queues(answer.stdout))) if answer.exit_code == 0 else ()
        return found or None

    def nodes(self, cluster: str | None) -> list[str]:
        """Return ``pbsnodes``, and ``qstat`` for the queues, which shows which hosts are in which queue."""
        return ["bash", "-c", _HOSTS]

    def read_nodes(self, answer: CommandResult) -> tuple[Node, ...] | None:
        """Return each host once for each queue whose jobs may run there."""
        start = _HEAD.search(answer.stdout)
        hosts = _hosts(answer.stdout[: start.start()] if start else answer.stdout, self._gpu())
        if answer.exit_code != 0 or not hosts:
            return None
        queues = [queue for queue in read_queues(answer.stdout[start.start() :] if start else "") if queue.runs]
        return tuple(_node(host, queue.name) for queue in queues for host in hosts.values() if host.is_in(queue))

    def pending_jobs(self, cluster: str | None) -> list[str]:
        """Return ``qstat`` for all pending jobs."""
        return _WAITING

    def read_pending_jobs(self, answer: CommandResult) -> tuple[QueuedJob, ...] | None:
        """Return the pending jobs, without the GPUs they request; qstat truncates queue names to 15 characters."""
        if answer.exit_code != 0:
            return None
        return tuple(_waiting(answer.stdout))

    def private_data(self, cluster: str | None) -> list[str]:
        """Return ``qstat`` for the server."""
        return ["env", "LC_ALL=C", "qstat", "-B", "-f"]

    def read_private_data(self, answer: CommandResult) -> bool | None:
        """Return whether the server hides other users' jobs (``query_other_jobs``)."""
        match = re.search(r"^    query_other_jobs = (True|False)[ \t]*$", answer.stdout, re.M)
        return None if match is None else match[1] == "False"

    def estimate_start(self, request: Request) -> None:
        """Return ``None``: PBS estimates a start only for jobs in the queue."""
        self._check(request)


def read_queues(text: str) -> list[Queue]:
    """Return the complete queues: those with the attribute ``started``, which comes near the end."""
    parts = _HEAD.split(text.replace("\n\t", ""))
    records = list(zip(parts[1::3], parts[2::3], map(_attributes, parts[3::3]), strict=True))
    default = next((found.get("default_queue") for kind, _, found in records if kind == "Server"), None)
    queues = [
        (name, found) for kind, name, found in records if kind == "Queue" and found.get("started") in ("True", "False")
    ]
    return [_queue(name, found, is_default=name == default) for name, found in queues]


def _attributes(block: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in _ATTRIBUTE.findall(block):
        found.setdefault(name, value.strip())
    return found


def _queue(name: str, found: Mapping[str, str], *, is_default: bool) -> Queue:
    return Queue(
        name,
        is_default=is_default,
        is_up=found.get("enabled") == "True" == found["started"] if "enabled" in found else None,
        runs=found.get("queue_type", "Execution").startswith("E"),
        longest=_walltime(found.get("resources_max.walltime")),
        usual=_walltime(found.get("resources_default.walltime")),
        most_hosts=whole_number(found.get("resources_max.nodect")),
        users=_allowed(found, "user"),
        groups=_allowed(found, "group"),
        hosts={
            key: value
            for text, value in found.items()
            if text.startswith("default_chunk.") and (key := text.partition(".")[2]) not in _AMOUNTS
        },
    )


def _allowed(found: Mapping[str, str], what: str) -> frozenset[str] | None:
    """Return the names in an access list, without hosts; ``None`` if it is not enabled, or excludes some names."""
    words = [word.strip() for word in found.get(f"acl_{what}s", "").split(",") if word.strip()]
    if found.get(f"acl_{what}_enable") != "True" or any(word.startswith("-") for word in words):
        return None
    return frozenset(word.removeprefix("+").partition("@")[0] for word in words)


def _walltime(text: str | None) -> str | None:
    """Return a walltime in sbatch's format; PBS writes ``48:00:00``, or seconds."""
    if re.fullmatch(r"\d{1,5}:\d\d:\d\d", text or "", re.A):
        return text
    seconds = whole_number(text)
    if seconds is None or seconds > 10**9:
        return None
    return f"{seconds // 3600}:{seconds % 3600 // 60:02d}:{seconds % 60:02d}"


def _partition(queue: Queue) -> Partition:
    return Partition(
        queue.name,
        is_default=queue.is_default,
        is_up=queue.is_up,
        walltime=read_walltime(queue.longest),
        usual=read_walltime(queue.usual),
        max_nodes=queue.most_hosts,
        groups=queue.groups,
        users=queue.users,
    )


# --- hosts ----------------------------------------------------------------------------------------------------------


class _Host(Frozen):
    """One host: the sum of its vnodes. ``has``: its resources; ``queue``: the only queue whose jobs it accepts."""

    name: str
    state: str
    available: bool
    cores: int
    cores_used: int
    gpus: int
    gpus_used: int
    has: Mapping[str, str]
    queue: str | None

    def is_in(self, queue: Queue) -> bool:
        if self.queue is not None:
            return self.queue == queue.name
        return all(value in self.has.get(key, "").split(",") for key, value in queue.hosts.items())


def _hosts(text: str, gpu: str) -> dict[str, _Host]:
    parts = _VNODE.split(text.replace("\n\t", ""))
    found: dict[str, _Host] = {}
    for name, block in zip(parts[1::2], parts[2::2], strict=True):
        values = _attributes(block)
        if "state" not in values or "resources_available.ncpus" not in values:
            continue
        host = _host(values.get("resources_available.host", name), values, gpu)
        found[host.name] = _together(found[host.name], host) if host.name in found else host
    return found


def _host(name: str, values: Mapping[str, str], gpu: str) -> _Host:
    def count(key: str) -> int:
        return whole_number(values.get(key)) or 0

    state = values["state"].replace(" ", "")
    return _Host(
        name,
        state,
        set(state.split(",")) <= _IN_SERVICE,
        count("resources_available.ncpus"),
        count("resources_assigned.ncpus"),
        count(f"resources_available.{gpu}"),
        count(f"resources_assigned.{gpu}"),
        {key.partition(".")[2]: value for key, value in values.items() if key.startswith("resources_available.")},
        values.get("queue"),
    )


def _together(one: _Host, other: _Host) -> _Host:
    """Return a host with another of its vnodes added; it is out of service if any of them is."""
    states = [part for part in (one, other) if not part.available] or [one]
    return _Host(
        one.name,
        states[0].state,
        one.available and other.available,
        one.cores + other.cores,
        one.cores_used + other.cores_used,
        one.gpus + other.gpus,
        one.gpus_used + other.gpus_used,
        {**one.has, **other.has},
        one.queue or other.queue,
    )


def _node(host: _Host, queue: str) -> Node:
    gpus = {"": host.gpus} if host.gpus else {}
    used = {"": min(host.gpus_used, host.gpus)} if gpus else None
    cores_used = host.cores if "exclusive" in host.state else min(host.cores_used, host.cores)
    return Node(host.name, queue, host.state, host.available, host.cores, cores_used, gpus, used)


def _waiting(text: str) -> Iterator[QueuedJob]:
    for line in text.splitlines():
        fields = line.split()
        if len(fields) == 11 and _JOB.fullmatch(fields[0]) and fields[9] in _WAITS:
            yield QueuedJob(fields[0], fields[1], fields[2], cores=whole_number(fields[6]))
