"""Variations of a request that may start sooner: fewer or other GPUs, a shorter walltime, another partition. Pure.

The scheduler has to test each variation, so there are few. None is longer or larger than the request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, zip_longest

from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.request import GPU_FLAGS, Request, merge_flags, parse_gres
from notebook_launcher.core.sbatch_options import as_typed
from notebook_launcher.core.walltime import UNLIMITED, Walltime
from notebook_launcher.diagnosis.partition_fit import may_use
from notebook_launcher.diagnosis.requirements import least_nodes
from notebook_launcher.schedulers.cluster_info import Node, Partition

MOST = 8  # including the request itself

Changes = dict[str, str | None]

_ROUND = tuple(Walltime(minutes=n) for n in (10, 15, 30, 60, 120, 240, 480, 720, 1440, 2880, 4320, 7200))
_LONG_ENOUGH = Walltime(days=2)  # an unlimited walltime is shortened to this first
_OF_ONE_NODE = GPU_FLAGS - {"gpus"}  # flags whose count must be available on one node


class Variation(Frozen):
    """A request, and the flags (as typed) that turn the original request into it; for the original, all its flags."""

    request: Request
    flags: str


def find_alternatives(
    request: Request,
    partitions: Sequence[Partition] | None,
    nodes: Sequence[Node] | None,
    account: str | None,
    qos: str | None = None,
    possible: Callable[[Request], bool] = lambda _: True,
) -> list[Variation]:
    """Return the request itself and up to seven useful variations, the most promising of each kind first.

    ``partitions``, ``nodes``: ``None`` if not known; then nothing is guessed about them. ``account``, ``qos``: those of
    the request, ``None``: not known. ``possible``: returns ``False`` for a request that can never start.
    """
    cluster = _Cluster(request, partitions or (), nodes or (), account, qos)
    kinds = (
        _fewer_gpus(cluster),
        _shorter(cluster),
        _other_gpus(cluster),
        _other_partitions(cluster),
        _quick_trial(cluster),
    )
    found = [Variation(request, as_typed(request.flags))]
    for changes in chain.from_iterable(zip_longest(*kinds, fillvalue={})):
        changed = Request(merge_flags(request.flags, changes))
        if all(changed != other.request for other in found) and possible(changed):
            found.append(Variation(changed, as_typed(changes)))
    return found[:MOST]


# --- the request and the cluster ---------------------------------------------------------------------------------


class _Gpus(Frozen):
    """The requested GPUs, if a single flag describes them; ``type`` is empty if any type will do."""

    flag: str
    type: str
    count: int


class _Cluster(Frozen):
    """The request and the cluster."""

    request: Request
    partitions: Sequence[Partition]
    nodes: Sequence[Node]
    account: str | None
    qos: str | None

    @property
    def own(self) -> list[Partition]:
        """The requested partitions, or the default one."""
        partitions = (self.request.flags.get("partition") or "").split(",")
        named = [partition for partition in self.partitions if partition.name in partitions]
        return named if partitions != [""] else [partition for partition in self.partitions if partition.is_default]

    @property
    def others(self) -> list[Partition]:
        """The other partitions in which the request could run, the best first.

        Those where jobs may be preempted come last, and before them those that may be closed to the user. A reservation
        or a node list ties the request to its own partitions.
        """
        own = self.own
        if not own or self.request.flags.keys() & {"reservation", "nodelist"}:
            return []
        fitting = [partition for partition in self.partitions if partition not in own and self._allows(partition)]
        return sorted(fitting, key=lambda partition: (partition.preemptible, not self._is_open(partition)))

    def usable(self, partition: Partition) -> list[Node]:
        """Return the partition's nodes that are in service."""
        return [node for node in self.nodes if node.partition == partition.name and node.available]

    def _allows(self, partition: Partition) -> bool:
        nodes = least_nodes(self.request)
        return (
            partition.is_up is not False
            and (not partition.whole_nodes or "exclusive" in self.request.flags)
            and (partition.max_nodes is None or nodes <= partition.max_nodes)
            and (partition.min_nodes is None or nodes >= partition.min_nodes)
            and may_use(self.account, partition.accounts, partition.denied_accounts)
            and may_use(self.qos, partition.qos, partition.denied_qos)
        )

    def _is_open(self, partition: Partition) -> bool:
        """Return whether no restriction with unknown values could exclude the user."""
        account = partition.accounts is None or self.account is not None
        qos = partition.qos is None or self.qos is not None
        return account and qos and partition.groups is None


def _gpus(request: Request) -> _Gpus | None:
    """Return the requested GPUs; ``None`` if there are none, or several flags or types."""
    requested = []
    for flag in sorted(GPU_FLAGS & request.flags.keys()):
        for name, count in _gpu_items(flag, request.flags[flag] or ""):
            requested.append(_Gpus(flag, name.partition(":")[2], count))
    return requested[0] if len(requested) == 1 else None


def _gpu_items(flag: str, value: str) -> list[tuple[str, int]]:
    if flag in ("gres", "tres-per-task"):
        items = parse_gres(value.replace("gres/", "").replace("=", ":"))
        return [(name, count) for name, count in items if re.fullmatch(r"gpu(:.*)?", name)]
    # --gpus=2 names no type, --gpus=t4:2 does
    return parse_gres(",".join(f"gpu:{part.strip()}" for part in value.split(",")))


def _of_type(cluster: _Cluster, gpus: _Gpus, kind: str) -> Changes:
    """Return the flags for the same number of GPUs of another type."""
    value = cluster.request.flags[gpus.flag] or ""
    if gpus.flag in ("gres", "tres-per-task"):
        return {gpus.flag: re.sub(rf"(gpu[:=/]){re.escape(gpus.type)}(?=[:=,]|$)", rf"\g<1>{kind}", value, count=1)}
    return {gpus.flag: f"{kind}:{gpus.count}"}


def _types(nodes: Sequence[Node]) -> list[str]:
    return sorted({kind for node in nodes for kind in node.gpus if kind})


def _of_count(cluster: _Cluster, gpus: _Gpus, count: int) -> Changes:
    """Return the flags for another number of GPUs of the same type."""
    value = cluster.request.flags[gpus.flag] or ""
    if gpus.flag in ("gres", "tres-per-task"):
        counted = rf"(\bgpu(?:[:/=][^,]*)?[:=]){gpus.count}(?=,|$)"
        changed = re.sub(counted, rf"\g<1>{count}", value, count=1)
        return {gpus.flag: changed} if changed != value else {}
    return {gpus.flag: f"{gpus.type}:{count}" if gpus.type else str(count)}


def _has(nodes: Sequence[Node], gpus: _Gpus, kind: str) -> bool:
    """Return whether there are enough GPUs of a type (``""``: of any), in use or not."""
    return _most(nodes, gpus, kind) >= gpus.count


def _most(nodes: Sequence[Node], gpus: _Gpus, kind: str) -> int:
    """Return the largest number of GPUs of a type that the flag could request."""
    counts = [sum(n for name, n in node.gpus.items() if kind in ("", name)) for node in nodes]
    return max(counts, default=0) if gpus.flag in _OF_ONE_NODE else sum(counts)


# --- kinds of variations -----------------------------------------------------------------------------------------


def _shorter(cluster: _Cluster) -> Iterator[Changes]:
    """Yield the partition's limit if the request exceeds it, and then about half and a quarter of the walltime."""
    if "time-min" in cluster.request.flags:  # Slurm shortens the walltime itself
        return
    limits = [partition.walltime for partition in cluster.own if partition.walltime is not None]
    limit = max(limits, default=UNLIMITED)
    requested = cluster.request.walltime
    longest = min(requested, limit)
    if longest < requested:
        yield {"time": longest.as_typed()}
    base = _LONG_ENOUGH if longest.is_unlimited else longest
    for part in (2, 4):
        below = [walltime for walltime in _ROUND if walltime * part <= base]
        if below:
            yield {"time": below[-1].as_typed()}


def _fewer_gpus(cluster: _Cluster) -> Iterator[Changes]:
    """Yield the most GPUs that one of the requested partitions has, if none has enough."""
    gpus = _gpus(cluster.request)
    if gpus is None:
        return
    most = max((_most(cluster.usable(partition), gpus, gpus.type) for partition in cluster.own), default=0)
    if 0 < most < gpus.count:
        yield _of_count(cluster, gpus, most)


def _other_gpus(cluster: _Cluster) -> Iterator[Changes]:
    """Yield the same number of GPUs of other types, if a type was named; in other partitions if found only there."""
    gpus = _gpus(cluster.request)
    if gpus is None or not gpus.type:
        return
    seen = {gpus.type}
    for partition in (*cluster.own, *_long_enough(cluster)):
        move: Changes = {} if partition in cluster.own else {"partition": partition.name}
        nodes = cluster.usable(partition)
        for kind in _types(nodes):
            if kind not in seen and _has(nodes, gpus, kind):
                seen.add(kind)
                yield {**move, **_of_type(cluster, gpus, kind)}


def _long_enough(cluster: _Cluster) -> list[Partition]:
    walltime = cluster.request.walltime
    return [partition for partition in cluster.others if partition.walltime is None or walltime <= partition.walltime]


def _other_partitions(cluster: _Cluster) -> Iterator[Changes]:
    """Yield other partitions for the same request; those with GPUs on every node only if GPUs are requested."""
    gpus = _gpus(cluster.request)
    for partition in _long_enough(cluster):
        nodes = cluster.usable(partition)
        if cluster.request.gpus:
            fits = gpus is not None and _has(nodes, gpus, gpus.type)
        else:
            fits = not cluster.nodes or any(not node.gpus for node in nodes)
        if fits:
            yield {"partition": partition.name}


def _quick_trial(cluster: _Cluster) -> Iterator[Changes]:
    """Yield a request for a quick test: without GPUs, in the partition with the shortest limit, and within that."""
    gpus: Changes = {"gpus": "0"} if cluster.request.gpus else {}
    places = [
        partition
        for partition in (*cluster.own, *cluster.others)
        if any(not node.gpus for node in cluster.usable(partition))
    ]
    if not places:
        return
    place = min(places, key=lambda partition: (partition.walltime or UNLIMITED, partition.preemptible))
    move: Changes = {} if place in cluster.own else {"partition": place.name}
    limit = place.walltime or UNLIMITED
    time: Changes = {"time": limit.as_typed()} if cluster.request.walltime > limit else {}
    if move or gpus:
        yield {**time, **move, **gpus}
