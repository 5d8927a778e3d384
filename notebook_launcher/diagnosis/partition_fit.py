"""Whether a partition accepts a request, and which others do. Pure: limits that were not reported exclude nothing."""

from __future__ import annotations

from collections.abc import Sequence

from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.quantities import counted
from notebook_launcher.core.request import Request
from notebook_launcher.diagnosis.requirements import least_nodes, least_walltime, most_nodes
from notebook_launcher.schedulers.cluster_info import Evidence, Partition

MOST_OTHERS = 2  # the most partitions to suggest


class Obstacle(Frozen):
    """Why a partition does not accept a request: what is requested, what is allowed, and what to type instead."""

    asks: str
    allows: str
    instead: str

    @property
    def why(self) -> str:
        """What is requested and what is allowed, in one sentence."""
        return f"{self.asks} {self.allows}"


def partition_names(evidence: Evidence) -> tuple[str, ...]:
    """Return the partitions in which the job may start, as reported or else as requested; none if not known."""
    requested = evidence.request.flags.get("partition") if evidence.request else None
    found = [name.strip() for name in (evidence.partition or requested or "").split(",")]
    if not any(found):
        found = [partition.name for partition in evidence.partitions or () if partition.is_default]
    return tuple(name for name in found if name)


def known_partitions(evidence: Evidence) -> tuple[Partition, ...] | None:
    """Return these partitions; ``None`` if not all of them are known."""
    known = {partition.name: partition for partition in evidence.partitions or ()}
    wanted = partition_names(evidence)
    return tuple(known[name] for name in wanted) if wanted and known.keys() >= set(wanted) else None


def too_long(request: Request, partition: Partition) -> Obstacle | None:
    """Return the obstacle if the request's walltime exceeds the partition's limit."""
    walltime = least_walltime(request)
    if walltime is None or partition.walltime is None or walltime <= partition.walltime:
        return None
    allowed = partition.walltime.as_typed()
    if walltime.is_unlimited:
        return Obstacle(
            "its walltime has no limit, and", f"partition {partition.name} allows {allowed}", f"-t {allowed}"
        )
    asks = f"its walltime of {walltime.as_text()} is longer than"
    return Obstacle(asks, f"partition {partition.name} allows ({allowed})", f"-t {allowed}")


def wrong_size(request: Request, partition: Partition) -> Obstacle | None:
    """Return the obstacle if the partition does not accept jobs with so many, or so few, nodes."""
    least, most, name = least_nodes(request), most_nodes(request), f"partition {partition.name}"
    asks = f"it asks for {counted(least, 'node')}, and"
    if partition.max_nodes is not None and least > partition.max_nodes:
        return Obstacle(asks, f"{name} allows {partition.max_nodes} at most", f"-N {partition.max_nodes}")
    # a partition without nodes may get some when they are needed
    if partition.nodes and least > partition.nodes:
        return Obstacle(asks, f"{name} has {partition.nodes}", f"-N {partition.nodes}")
    if partition.min_nodes is not None and most is not None and most < partition.min_nodes:
        asks = f"it asks for {counted(most, 'node')} at most, and"
        return Obstacle(asks, f"{name} is for {partition.min_nodes} or more", f"-N {partition.min_nodes}")
    return None


def closed_to(request: Request, partition: Partition) -> Obstacle | None:
    """Return the obstacle if the request's account or QOS may not use the partition.

    An account that inherits its permission appears to have none (slurm.conf's manual), so this can explain a refusal
    but not predict one.
    """
    account, qos = request.flags.get("account"), request.flags.get("qos")
    if not may_use(account, partition.accounts, partition.denied_accounts):
        return Obstacle(f"account {account} may not use", f"partition {partition.name}", "try another account with -A")
    if not may_use(qos, partition.qos, partition.denied_qos):
        return Obstacle(f"QOS {qos} may not be used in", f"partition {partition.name}", "try another QOS with -q")
    return None


def may_use(own: str | None, allowed: frozenset[str] | None, denied: frozenset[str]) -> bool:
    """Return whether an account or a QOS is allowed; what is not known excludes nothing."""
    return not own or (own not in denied and (allowed is None or own in allowed))


def other_partitions(evidence: Evidence) -> Sequence[str]:
    """Return other partitions that are up, allow the walltime and the size, and are open to the account and QOS.

    It is empty if that depends on what is not known here: GPUs, features, or named nodes.
    """
    request = evidence.request
    if request is None or request.gpus or request.flags.keys() & {"constraint", "nodelist", "reservation", "gres"}:
        return ()
    own = partition_names(evidence)
    found = [
        partition.name
        for partition in evidence.partitions or ()
        if partition.name not in own and partition.is_up and _takes(partition, request)
    ]
    return found[:MOST_OTHERS]


def _takes(partition: Partition, request: Request) -> bool:
    if partition.walltime is None or partition.groups is not None or partition.nodes == 0:
        return False
    account, qos = request.flags.get("account"), request.flags.get("qos")
    if account is None and (partition.accounts is not None or partition.denied_accounts):
        return False
    if qos is None and (partition.qos is not None or partition.denied_qos):
        return False
    return not any(check(request, partition) for check in (too_long, wrong_size, closed_to))
