"""Whether a request is refused only because its nodes are out of service now. Pure: reports in, a sentence out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from notebook_launcher.core.errors import LauncherError, SizeRefused
from notebook_launcher.core.request import Request, gpu_items
from notebook_launcher.diagnosis.request_check import SchedulerReport, explain_refusal
from notebook_launcher.schedulers.cluster_info import Node

#: what helps then, for a finding
HINT = "see which nodes are free: launch-notebook queue; ask the cluster's support when these are back"

# The answer of ``sbatch --test-only``, which counts only nodes in service; sbatch itself queues such a job.
_NO_SUCH_NODE = "configuration is not available"


def waits_for_nodes(refusal: LauncherError | None, request: Request, report: SchedulerReport, now: datetime) -> str:
    """Return that a request waits until nodes are back, if no more is behind its refusal; else an empty text.

    Empty as well if no nodes were reported, or if one in service could take the request. Arguments as for
    ``explain_refusal``.
    """
    if not isinstance(refusal, SizeRefused) or _NO_SUCH_NODE not in refusal.why:
        return ""
    if explain_refusal(refusal, request, report, now):
        return ""
    names = report.partitions_of(request)
    nodes = {node.name: node for node in report.nodes or () if not names or node.partition in names}
    able = [node for node in nodes.values() if _has_gpus(node, request)]
    if not able or any(node.available for node in able):
        return ""
    states = ", ".join(sorted({one.state for one in able}))
    return f"{_which(able, names)}: the job waits until a node is back (now: {states})."


def _has_gpus(node: Node, request: Request) -> bool:
    wanted = [
        kind for flag, value in request.flags.items() for kind, count in gpu_items(flag, value or "") or () if count
    ]
    return all(kind in node.gpus if kind else bool(node.gpus) for kind in wanted)


def _which(nodes: Sequence[Node], partitions: Sequence[str]) -> str:
    where = f"partition {', '.join(partitions)}" if partitions else "the cluster"
    if len(nodes) == 1:
        return f"The only node of {where} that could run the job is out of service"
    return f"None of the {len(nodes)} nodes of {where} that could run the job is in service"
