"""What is free, busy and pending on a cluster, counted from its nodes and its queue. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from notebook_launcher.core import events
from notebook_launcher.schedulers.cluster_info import Node, Partition, QueuedJob


def count_load(
    nodes: Sequence[Node],
    partitions: Sequence[Partition] | None,
    waiting: Sequence[QueuedJob] | None,
    hidden: bool | None,
    user: str,
) -> events.Queue:
    """Return the counts. A node or a pending job in several partitions counts only once in the totals.

    ``partitions`` and ``waiting`` are ``None`` if not reported.
    """
    described = {partition.name: partition for partition in partitions or ()}
    names = list(described) or list(dict.fromkeys(node.partition for node in nodes))
    each_once = list({node.name: node for node in nodes}.values())
    return events.Queue(
        tuple(_partition(name, described.get(name), nodes, waiting, user) for name in names),
        _gpu_loads(each_once),
        _core_load(each_once),
        *_waiting(waiting, user),
        hidden,
    )


def _partition(
    name: str, partition: Partition | None, nodes: Iterable[Node], waiting: Sequence[QueuedJob] | None, user: str
) -> events.PartitionLoad:
    theirs = [node for node in nodes if node.partition == name]
    jobs = None if waiting is None else [job for job in waiting if name in job.partition.split(",")]
    longest = partition.walltime if partition else None
    return events.PartitionLoad(
        name,
        partition is not None and partition.is_default,
        partition.is_up if partition else None,
        None if longest is None else longest.as_typed(),
        _gpu_loads(theirs),
        _core_load([node for node in theirs if not node.gpus]),
        *_waiting(jobs, user),
    )


def _waiting(jobs: Sequence[QueuedJob] | None, user: str) -> tuple[int | None, int | None, int | None]:
    """Return the number of jobs, of the GPUs that they request, and of the user's own jobs; ``None``: not reported."""
    if jobs is None:
        return None, None, None
    yours = sum(job.tasks for job in jobs if job.user == user)
    return sum(job.tasks for job in jobs), _gpus_of(jobs), yours


def _gpus_of(jobs: Iterable[QueuedJob]) -> int | None:
    gpus = [None if job.gpus is None else job.gpus * job.tasks for job in jobs]
    known = [count for count in gpus if count is not None]
    return sum(known) if len(known) == len(gpus) else None


def _gpu_loads(nodes: Sequence[Node]) -> tuple[events.ResourceLoad, ...]:
    kinds = sorted({kind for node in nodes for kind in node.gpus})
    return tuple(_gpu_load(kind, [node for node in nodes if node.gpus.get(kind)]) for kind in kinds)


def _gpu_load(kind: str, nodes: Sequence[Node]) -> events.ResourceLoad:
    """Count the GPUs of one type. Those of a node without a free core count as busy."""
    used = [None if node.gpus_used is None else min(node.gpus_used.get(kind, 0), node.gpus[kind]) for node in nodes]
    known = [count for count in used if count is not None]
    free = busy = out = 0
    for node, count in zip(nodes, used, strict=True):
        unused = node.gpus[kind] - (count or 0)
        busy += count or 0
        if not node.available:
            out += unused
        elif _is_full(node):
            busy += unused
        else:
            free += unused
    return (
        events.ResourceLoad(kind, free, busy, out)
        if len(known) == len(used)
        else events.ResourceLoad(kind, None, None, out)
    )


def _is_full(node: Node) -> bool:
    return node.cores is not None and node.cores_used is not None and node.cores_used >= node.cores


def _core_load(nodes: Sequence[Node]) -> events.ResourceLoad:
    known = [node for node in nodes if node.cores is not None]
    total = sum(node.cores or 0 for node in known)
    busy = sum(node.cores_used or 0 for node in known)
    out = sum((node.cores or 0) - (node.cores_used or 0) for node in known if not node.available)
    return events.ResourceLoad("cores", total - busy - out, busy, out)
