"""What is known about a request's start if the scheduler estimates it only for jobs in its queue. Pure.

A request that its partitions do not allow counts as refused; otherwise the free resources are reported, without a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from notebook_launcher.core.errors import LauncherError, PartitionRefused, WalltimeRefused
from notebook_launcher.core.quantities import counted
from notebook_launcher.core.request import Request
from notebook_launcher.diagnosis.request_check import SchedulerReport, assess_partition, assess_walltime
from notebook_launcher.diagnosis.requirements import amount_requested
from notebook_launcher.schedulers.cluster_info import Node, QueuedJob, StartEstimate


def estimate_before_submission(
    request: Request, report: SchedulerReport, waiting: Sequence[QueuedJob] | None, scheduler: str
) -> StartEstimate:
    """Return why the request would be refused, or a message that says what is free for it now.

    ``waiting``: all pending jobs, ``None``: not reported. ``scheduler``: its name in sentences.
    """
    names = report.partitions_of(request)
    if refusal := _refusal(request, names, report):
        return StartEstimate(refusal=refusal, message=refusal.what)
    opening = f"{scheduler} estimates the start of a job only once it is queued."
    return StartEstimate(message=f"{opening} {_free(request, names, report)}{_ahead(names, waiting)}.", is_later=True)


def _refusal(request: Request, names: Sequence[str], report: SchedulerReport) -> LauncherError | None:
    partition = assess_partition(names, report, request.flags.get("account"))
    if partition.result == "fault":
        return PartitionRefused(partition.found, hint=partition.hint)
    walltime = assess_walltime(request, names, report)
    if walltime.result == "fault":
        return WalltimeRefused(walltime.found, hint=walltime.hint)
    return None


def _free(request: Request, names: Sequence[str], report: SchedulerReport) -> str:
    where = f"partition {', '.join(names)}" if names else "the cluster"
    nodes = {node.name: node for node in report.nodes or () if not names or node.partition in names}
    if not nodes:
        return f"What is free in {where} is not reported"
    cores, gpus = int(amount_requested(request, "cpu") or 1), int(amount_requested(request, "gres/gpu") or 0)
    able = [node for node in nodes.values() if _has_free(node, cores, gpus)]
    asked = f"{cores} free {'core' if cores == 1 else 'cores'}"
    if gpus:
        asked += f" and {gpus} free {'GPU' if gpus == 1 else 'GPUs'}"
    are = "has" if len(able) == 1 else "have"
    return f"At the moment, {len(able) or 'none'} of {counted(len(nodes), 'node')} in {where} {are} {asked}"


def _has_free(node: Node, cores: int, gpus: int) -> bool:
    free_cores = None if node.cores is None else node.cores - (node.cores_used or 0)
    free_gpus = sum(node.gpus.values()) - sum((node.gpus_used or {}).values())
    return node.available and (free_cores is None or free_cores >= cores) and free_gpus >= gpus


def _ahead(names: Sequence[str], waiting: Sequence[QueuedJob] | None) -> str:
    """Return how many jobs are pending for these partitions, as text; empty if that is not reported."""
    if waiting is None or not names:
        return ""
    count = sum(job.tasks for job in waiting if not set(job.partition.split(",")).isdisjoint(names))
    return f", and {counted(count, 'job') if count else 'no job'} {'are' if count > 1 else 'is'} waiting"
