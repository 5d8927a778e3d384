"""The minimum that a request needs, in the units of limits, and amounts as text. Pure.

It is a minimum because a scheduler may count more: whole nodes, hardware threads, a partition's defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.request import GPU_FLAGS, Request, parse_gres
from notebook_launcher.core.walltime import Walltime
from notebook_launcher.schedulers.cluster_info import Limit

_MEBIBYTES = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}
_THOUSANDS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_GPU = re.compile(r"gres/gpu(?::(?P<type>.+))?")
_PER_NODE = frozenset({"gres", "gpus-per-node"})
_PER_TASK = frozenset({"gpus-per-task", "tres-per-task"})


# --- the request ---------------------------------------------------------------------------------------------------


def amount_requested(request: Request, on: str) -> float | None:
    """Return how much of a resource a request needs at least; ``None`` if not known.

    ``on``: as in ``Limit.on``. Memory is in MiB, the walltime in seconds, and all others are counts.
    """
    if match := _GPU.fullmatch(on):
        return _gpus(request, match["type"])
    if on == "cpu":
        return _cores(request)
    if on == "mem":
        return _memory(request)
    if on == "node":
        return least_nodes(request)
    if on == "jobs":
        return 1
    if on == "walltime":
        walltime = least_walltime(request)
        return walltime.total_seconds() if walltime is not None else None
    return None


def least_walltime(request: Request) -> Walltime | None:
    """Return the shortest walltime that the request accepts; ``None``: its ``--time-min`` is invalid."""
    minimum = request.flags.get("time-min")
    if not minimum:
        return request.walltime
    try:
        return Walltime.parse(minimum)
    except UsageError:
        return None


def least_nodes(request: Request) -> int:
    """Return the smallest number of nodes that the request accepts: 2 for ``2-4``.

    sbatch reduces the number of nodes to that of tasks, if that is given and smaller.
    """
    text = request.flags.get("nodes") or ""
    if re.search(r"[a-zA-Z]", text):  # 1k
        return 1
    least = max(1, min(_numbers(text), default=1))
    return max(1, min(least, _count(request, "ntasks") or least))


def most_nodes(request: Request) -> int | None:
    """Return the largest number of nodes that the request accepts; ``None`` if it does not say."""
    match = re.fullmatch(r"\s*(?:\d{1,9}-)?(\d{1,9})\s*", request.flags.get("nodes") or "", re.A)
    return int(match[1]) if match else None


def cores_of_node(request: Request) -> int | None:
    """Return how many cores a node needs at least, for all tasks that have to be on it; ``None`` if not known."""
    if "overcommit" in request.flags:  # several tasks on one core
        return None
    per_task = _count(request, "cpus-per-task") or 1
    return max(_tasks_of_node(request) * per_task, _count(request, "mincpus") or 0)


def _tasks_of_node(request: Request) -> int:
    """Return the number of tasks that have to be on one node.

    With ``--ntasks``, ``--ntasks-per-node`` is a maximum (sbatch's manual).
    """
    tasks, on_node = _count(request, "ntasks"), _count(request, "ntasks-per-node")
    if tasks is None:
        return on_node or 1
    nodes = most_nodes(request)
    least = -(-tasks // nodes) if nodes else 1
    return max(1, min(least, on_node or least))


def memory_of_node(request: Request) -> int | None:
    """Return the MiB that a node needs at least; ``None``: not known, or all that the node has (``--mem=0``)."""
    if size := parse_amount("mem", request.flags.get("mem") or ""):
        return int(size)
    size, cores = parse_amount("mem", request.flags.get("mem-per-cpu") or ""), cores_of_node(request)
    return int(size * cores) if size and cores else None


def _numbers(text: str) -> Iterator[int]:
    return (int(number) for number in re.findall(r"\d{1,9}", text, re.A))


def _count(request: Request, flag: str) -> int | None:
    text = request.flags.get(flag) or ""
    return int(text) if re.fullmatch(r"\d{1,9}", text, re.A) else None


def _tasks(request: Request) -> int:
    per_node = _count(request, "ntasks-per-node") or 1
    return _count(request, "ntasks") or per_node * least_nodes(request)


def _cores(request: Request) -> int | None:
    if "overcommit" in request.flags:  # several tasks on one core
        return None
    return max(_tasks(request) * (_count(request, "cpus-per-task") or 1), least_nodes(request))


def _gpus(request: Request, kind: str | None) -> int | None:
    """Return the number of GPUs, or of those of the type ``kind``; ``None`` if the request does not name that type."""
    counts = [_gpus_in(request, flag, kind) for flag in GPU_FLAGS & request.flags.keys()]
    if kind is not None and not any(counts):
        return None
    return max(counts, default=0)


def _gpus_in(request: Request, flag: str, kind: str | None) -> int:
    text = (request.flags[flag] or "").replace("gres/", "").replace("=", ":")
    if flag not in ("gres", "tres-per-task"):  # --gpus=4, --gpus=t4:2
        text = ",".join(f"gpu:{part.strip()}" for part in text.split(",") if part.strip())
    items = [(name.split(":"), count) for name, count in parse_gres(text)]
    wanted = sum(n for name, n in items if name[0] == "gpu" and (kind is None or name[1:] == [kind]))
    times = least_nodes(request) if flag in _PER_NODE else _tasks(request) if flag in _PER_TASK else 1
    return wanted * times


def _memory(request: Request) -> float | None:
    flags = request.flags
    if size := parse_amount("mem", flags.get("mem") or ""):
        return size * least_nodes(request)
    if size := parse_amount("mem", flags.get("mem-per-cpu") or ""):
        cores = _cores(request)
        return size * cores if cores is not None else None
    if size := parse_amount("mem", flags.get("mem-per-gpu") or ""):
        return size * (_gpus(request, None) or 0)
    return None


# --- what is allowed -----------------------------------------------------------------------------------------------


def parse_amount(on: str, text: str) -> float | None:
    """Parse a limit's value as the scheduler writes it, to the unit of ``amount_requested``; ``None`` if invalid."""
    if on == "walltime":
        try:
            walltime = Walltime.parse(text)
        except UsageError:
            return None
        return None if walltime.is_unlimited else walltime.total_seconds()
    match = re.fullmatch(r"\s*(\d{1,15})(?:\.\d+)?([KMGTP]?)[BNCbnc]?\s*", text.upper(), re.A)
    units = _MEBIBYTES if on == "mem" else _THOUSANDS
    return int(match[1]) * units[match[2]] if match else None


def is_beyond(request: Request, limit: Limit) -> bool:
    """Return whether the request alone exceeds a limit, so that it does not help if other jobs end.

    ``False`` if either is not known. A walltime limit counts only if it is per job, since others are used up over time,
    and may be replenished.
    """
    if limit.on == "walltime" and limit.per != "job":
        return False
    if limit.per == "node":  # the scheduler chooses the number of nodes
        return False
    wanted, allowed = amount_requested(request, limit.on), parse_amount(limit.on, limit.value)
    return wanted is not None and allowed is not None and wanted > allowed


# --- in words ------------------------------------------------------------------------------------------------------


def amount_text(on: str, value: str) -> str:
    """Return an amount in words: ``2 GPUs``, ``5G of memory``, ``600 CPU minutes``."""
    if on == "walltime":
        return f"a walltime of {value}"
    running = on.startswith("running ")
    name, minutes, _ = on.removeprefix("running ").partition(" minutes")
    if minutes:
        return f"{value} {_noun(name, False)} minutes{' ahead in running jobs' if running else ''}"
    if on == "mem":
        return f"{value} of memory"
    return f"{value} {_noun(on, value != '1')}"


def _noun(on: str, many: bool) -> str:
    ending = "s" if many else ""
    if match := _GPU.fullmatch(on):
        return f"GPU{ending} of type {match['type']}" if match["type"] else f"GPU{ending}"
    kind, _, name = on.partition("/")
    if kind == "gres":
        return f"{name} (GRES)"
    if kind == "license":
        return f"licence{ending} of {name}" if name else f"licence{ending}"
    known = {"cpu": "CPU", "node": "node", "jobs": "job", "submitted jobs": "job", "billing": "billing unit"}
    if on in known:
        waiting = ", waiting and running," if on == "submitted jobs" else ""
        return f"{known[on]}{ending}{waiting}"
    return {"mem": "memory"}.get(on, on)
