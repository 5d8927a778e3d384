"""How many cores and how much memory a job has: the same figures in ``status``, ``usage`` and ``bill``. Pure.

But of a job on several nodes ``status`` and ``usage`` name none, as their samples are those of one node; and without a
scheduler, which would have allocated them, ``bill`` names none.

What the scheduler has allocated counts; a job may have got its memory by a default for each core, or all that the node
has. Without accounting, what was asked for counts. ``None``: not known, or no limit.
"""

from __future__ import annotations

from collections.abc import Mapping

from notebook_launcher.core.request import Request
from notebook_launcher.diagnosis.requirements import amount_requested
from notebook_launcher.schedulers.base import AccountingRecord

Flags = Mapping[str, "str | None"]


def cores_of(flags: Flags, accounted: AccountingRecord | None) -> float | None:
    """Return the job's cores; ``None`` also if it asked for no number of them."""
    if accounted and accounted.cores:
        return float(accounted.cores)
    is_numbered = flags.keys() & {"ntasks", "cpus-per-task", "ntasks-per-node"} and "exclusive" not in flags
    return amount_requested(_request(flags), "cpu") if is_numbered else None


def memory_of(flags: Flags, accounted: AccountingRecord | None) -> float | None:
    """Return the job's memory in MiB."""
    if accounted and accounted.memory_limit:
        return accounted.memory_limit
    return amount_requested(_request(flags), "mem") or None  # 0 is Slurm's word for all that the node has


def is_on_one_node(flags: Flags, accounted: AccountingRecord | None) -> bool:
    """Whether the job has one node, of which its samples are."""
    if accounted and accounted.nodes:
        return accounted.nodes == 1
    return flags.get("nodes") in (None, "1")


def _request(flags: Flags) -> Request:
    # without those that a request would check
    return Request({name: value for name, value in flags.items() if name not in ("time", "time-min")})
