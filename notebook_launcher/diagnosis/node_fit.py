"""Whether any node is large enough for a request, and how large the largest one is. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from notebook_launcher.core.finding import Finding, fault
from notebook_launcher.core.quantities import counted, memory_as_typed
from notebook_launcher.core.request import Request
from notebook_launcher.core.text import listed
from notebook_launcher.diagnosis.name_suggestions import closest_first
from notebook_launcher.diagnosis.requirements import amount_requested, cores_of_node, memory_of_node
from notebook_launcher.schedulers.cluster_info import Node, NodeSize

#: flags that require nodes of a certain size
SIZE_FLAGS = frozenset(
    {"cpus-per-task", "ntasks", "ntasks-per-node", "mem", "mem-per-cpu", "mincpus", "cores-per-socket"}
)
MOST_OTHERS = 3  # the most other partitions that are suggested


def assess_node_size(
    request: Request, names: Sequence[str], sizes: Sequence[NodeSize], usable: Sequence[str]
) -> Finding | None:
    """Return the fault if no node of these partitions is large enough; ``None`` if nothing shows that.

    ``names``: the partitions of the request, empty: any. ``usable``: those that the user may use instead.
    """
    cores, memory = cores_of_node(request), memory_of_node(request)
    if cores and (found := _too_large(cores, names, sizes, usable, lambda size: size.cores, _cores_text)):
        most, others = found
        is_typed = cores == _typed_cores(request)
        flag = f"-c {most}" if is_typed else f"{_cores_text(most)} on each node"
        return _fault(f"{_cores_text(cores)} on one node", _where(names), _cores_text(most), flag, others)
    if memory and (found := _too_large(memory, names, sizes, usable, lambda size: size.memory, _memory_text)):
        most, others = found
        flag = f"--mem={memory_as_typed(most)}" if "mem" in request.flags else f"{_memory_text(most)} on each node"
        return _fault(f"{_memory_text(memory)} on one node", _where(names), _memory_text(most), flag, others)
    return None


def assess_cores(
    request: Request, names: Sequence[str], nodes: Sequence[Node], usable: Sequence[str]
) -> Finding | None:
    """Return the fault if each of these partitions has fewer cores in total than the request needs; else ``None``."""
    wanted = amount_requested(request, "cpu")
    totals: dict[str, int] = {}
    for node in nodes:
        if node.cores is None:
            return None
        totals[node.partition] = totals.get(node.partition, 0) + node.cores
    there = [most for name, most in totals.items() if name in names or not names]
    if not there or wanted is None or wanted <= max(there):
        return None
    most = max(there)
    where = _where(names) if names else "the largest partition"
    others = [f"-p {name} ({_cores_text(totals[name])})" for name in usable if totals.get(name, 0) >= wanted]
    also = f", or name a larger partition: {listed(others, MOST_OTHERS)}" if others else ""
    asked, instead = _cores_text(int(wanted)), _cores_text(most)
    return fault(f"It asks for {asked}, and {where} has {most}.", f"ask for at most {instead}{also}")


def _too_large(
    wanted: int,
    names: Sequence[str],
    sizes: Sequence[NodeSize],
    usable: Sequence[str],
    amount: Callable[[NodeSize], int],
    text: Callable[[int], str],
) -> tuple[int, list[str]] | None:
    """Return the largest amount in these partitions, and other partitions with enough; ``None`` if it is enough."""
    largest: dict[str, int] = {}
    for size in sizes:
        largest[size.partition] = max(largest.get(size.partition, 0), amount(size))
    there = [most for name, most in largest.items() if name in names or not names]
    if not there or wanted <= max(there):
        return None
    typed = closest_first(names[0] if names else "", usable)
    others = [f"-p {name} ({text(largest[name])})" for name in typed if largest.get(name, 0) >= wanted]
    return max(there), others


def _fault(asks: str, where: str, most: str, instead: str, others: Sequence[str]) -> Finding:
    also = f", or name a partition with larger nodes: {listed(others, MOST_OTHERS)}" if others else ""
    return fault(f"It asks for {asks}, and the largest node of {where} has {most}.", f"ask for at most {instead}{also}")


def _where(names: Sequence[str]) -> str:
    return f"partition {', '.join(names)}" if names else "the cluster"


def _typed_cores(request: Request) -> int:
    text = request.flags.get("cpus-per-task") or ""
    return int(text) if text.isascii() and text.isdecimal() else 0


def _cores_text(count: int) -> str:
    return counted(count, "core")


def _memory_text(mib: int) -> str:
    return f"{memory_as_typed(mib)} of memory"
