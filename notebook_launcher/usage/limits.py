"""How many cores and how much memory a job has: the same values in ``status``, ``usage`` and ``bill``. Pure.

What the scheduler has allocated counts: it may come from a site's default per core, or be all that the node has.
Without accounting, what was requested counts. ``None``: not known, or no limit.

``status`` and ``usage`` show no limits for a job on several nodes, since their samples are those of one node; ``bill``
shows none without a scheduler, since nothing was allocated.
"""

from __future__ import annotations

from collections.abc import Mapping

from notebook_launcher.core.request import Request
from notebook_launcher.diagnosis.requirements import amount_requested
from notebook_launcher.schedulers.base import AccountingRecord

Flags = Mapping[str, "str | None"]


def cores_of(flags: Flags, accounted: AccountingRecord | None) -> float | None:
    """Return the number of the job's cores; ``None`` if it is not known, and none was requested."""
    if accounted and accounted.cores:
        return float(accounted.cores)
    is_numbered = flags.keys() & {"ntasks", "cpus-per-task", "ntasks-per-node"} and "exclusive" not in flags
    return amount_requested(_request(flags), "cpu") if is_numbered else None


def memory_of(flags: Flags, accounted: AccountingRecord | None) -> float | None:
    """Return the job's memory in MiB; ``None`` if it is not known."""
    if accounted and accounted.memory_limit:
        return accounted.memory_limit
    return amount_requested(_request(flags), "mem") or None  # in Slurm, 0 means all that the node has


def is_on_one_node(flags: Flags, accounted: AccountingRecord | None) -> bool:
    """Return whether the job has only one node, so that its samples cover all of it."""
    if accounted and accounted.nodes:
        return accounted.nodes == 1
    return flags.get("nodes") in (None, "1")


def _request(flags: Flags) -> Request:
    # without the flags that ``Request`` would validate
    return Request({name: value for name, value in flags.items() if name not in ("time", "time-min")})
