"""Whether a request is refused only because its nodes are out of service. Pure: reports in, a sentence out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from notebook_launcher.core.errors import LauncherError, SizeRefused
from notebook_launcher.core.request import Request, gpu_items
from notebook_launcher.diagnosis.request_check import SchedulerReport, explain_refusal
from notebook_launcher.schedulers.cluster_info import Node

#: the hint for that finding
HINT = "see which nodes are free: launch-notebook queue; ask the cluster's support when these are back"

# The answer of ``sbatch --test-only``, which considers only nodes in service; a real submission would be queued.
_NO_SUCH_NODE = "configuration is not available"


def waits_for_nodes(refusal: LauncherError | None, request: Request, report: SchedulerReport, now: datetime) -> str:
    """Return a sentence that the job will wait until nodes are back, if that is the only cause of its refusal.

    Otherwise the text is empty; so it is if no nodes were reported, or one in service could run the job. Arguments as
    for ``explain_refusal``.
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
