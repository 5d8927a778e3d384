"""What a job costs by the profile's rates, before it is queued and after it has ended, and the account's balance. Pure.

A cost is never guessed: if the amount of something that has a price is not known, there is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.quantities import duration, plural
from notebook_launcher.core.request import GPU_FLAGS, Request, parse_gres
from notebook_launcher.core.safe_regex import RegexTimeout, search_lines
from notebook_launcher.core.text import printable
from notebook_launcher.diagnosis.requirements import amount_requested, most_nodes
from notebook_launcher.profiles.models import Budget, Price, Rates

_MOST_LINES = 2000  # of a budget command's output; what is longer is not a table of accounts


class Share(Frozen):
    """What a job is allocated; ``None``: not known.

    ``gpu_type``: the scheduler's name for the type of its GPUs; ``gpu_name``: the driver's name for it; ``feature``:
    the feature that its nodes must have, which is the type of GPU on some sites. ``partitions``: the job's partition,
    or those in which it may start. ``meant``: the type of GPU by the profile, if the request names none.
    """

    gpus: int = 0
    cores: int | None = None
    nodes: int | None = None
    gpu_type: str | None = None
    gpu_name: str = ""
    feature: str | None = None
    partitions: tuple[str, ...] = ()
    meant: str | None = None


class Estimate(Frozen):
    """What a request will cost at most, and how that is calculated: ``2 h × 1 A100``."""

    cost: float
    reckoning: str


class _Part(Frozen):
    """One resource that has a price: what an hour of the job's amount costs, and the amount as text."""

    hourly: float
    name: str


# --- the cost, before and after ------------------------------------------------------------------------------------


def cost_of(price: Price, share: Share, seconds: float) -> float | None:
    """Return what a share costs for this time, in ``price.unit``.

    ``None`` if an amount that has a price is not known, or if the cost depends on which of several partitions is used.
    """
    costs = {_sum(price, parts) for parts in _in_each_partition(price, share)}
    hourly = costs.pop() if len(costs) == 1 else None
    return None if hourly is None else seconds / 3600 * hourly


def estimate(price: Price, request: Request, meant: str | None = None) -> Estimate | None:
    """Return what the whole walltime costs at most; ``None`` if an amount is not known, or the walltime is unlimited.

    Of several partitions, the most expensive one counts. ``meant``: the type of GPU by the profile, if the request
    names none.
    """
    walltime = request.walltime
    if walltime.is_unlimited:
        return None
    share = replace(share_of(request), meant=meant)
    seconds, in_each = walltime.total_seconds(), _in_each_partition(price, share)
    known = [(_sum(price, parts), parts) for parts in in_each if parts is not None]
    if len(known) < len(in_each):
        return None
    hourly, parts = max(known, key=lambda pair: pair[0] or 0.0)
    return Estimate(seconds / 3600 * (hourly or 0.0), f"{duration(seconds)} × {_in_words(price, parts)}")


def missing(price: Price, request: Request, meant: str | None = None) -> str:
    """Return for the user why there is no estimate, with a hint; empty if there is one."""
    if request.walltime.is_unlimited:
        return "it has no time limit"
    share = replace(share_of(request), meant=meant)
    if price.partitions and not share.partitions:
        return "its partition is left to the scheduler (name it with -p)"
    for rates in _rates(price, share):
        if share.gpus and _of_a_gpu(rates, share) is None:
            if kind := _kind(rates, share):
                return f"the profile has no price for {kind}"
            *kinds, last = rates.gpu_hour if isinstance(rates.gpu_hour, dict) else [""]
            named = f"{', '.join(kinds)} or {last}" if kinds else last
            return f"it depends on the type of GPU: {named} (--gpus {(*kinds, last)[0]}:{share.gpus})"
        if share.cores is None and rates.core_hour:
            return "how many cores it gets is left to the scheduler" + (
                "" if "exclusive" in request.flags else " (set it with -c)"
            )
    return ""


def share_of(request: Request) -> Share:
    """Return what a request will be allocated, as far as its flags determine it."""
    flags = request.flags
    gpus = int(amount_requested(request, "gres/gpu") or 0)
    nodes = most_nodes(request) or int(amount_requested(request, "node") or 1)
    partitions = tuple(filter(None, (name.strip() for name in (flags.get("partition") or "").split(","))))
    cores, feature = _cores(request, gpus), flags.get("constraint")
    return Share(gpus, cores, nodes, type_requested(flags), feature=feature, partitions=partitions)


def type_requested(flags: Mapping[str, str | None]) -> str | None:
    """Return the type of GPU that the flags name: ``a100`` for ``--gpus a100:2`` or ``--gres=gpu:a100:2``.

    ``None`` if they name none, or several.
    """
    kinds = {kind.lower(): kind for flag in sorted(GPU_FLAGS & flags.keys()) for kind in _types_in(flag, flags[flag])}
    return next(iter(kinds.values())) if len(kinds) == 1 else None


def _types_in(flag: str, value: str | None) -> Iterable[str]:
    for name, _ in parse_gres((value or "").replace("=", ":")):
        kind = name.removeprefix("gres/").removeprefix("gres:").removeprefix("gpu").removeprefix(":")
        if kind and not kind.isdecimal() and (flag not in ("gres", "tres-per-task") or "gpu:" in name):
            yield kind


def _cores(request: Request, gpus: int) -> int | None:
    """Return how many cores are requested; ``None`` if that is left to the scheduler.

    That is so for whole nodes, and for GPUs if no number of cores is set, since they bring cores on many sites (Slurm's
    ``DefCpuPerGPU``).
    """
    flags = request.flags
    if "exclusive" in flags:
        return None
    if per_gpu := re.fullmatch(r"\d{1,6}", flags.get("cpus-per-gpu") or "", re.A):
        return max(1, gpus * int(per_gpu[0]))
    sets_tasks = {"ntasks", "cpus-per-task", "ntasks-per-node"} & flags.keys()
    cores = amount_requested(request, "cpu")
    return int(cores) if cores is not None and (sets_tasks or not gpus) else None


def _in_each_partition(price: Price, share: Share) -> list[list[_Part] | None]:
    """Return the parts of the cost for each of the rates that may apply; ``None`` if an amount is not known.

    A single ``None`` if partitions have rates of their own, and the scheduler chooses the partition.
    """
    if price.partitions and not share.partitions:
        return [None]
    return [_parts(rate, share) for rate in _rates(price, share)]


def _rates(price: Price, share: Share) -> list[Rates]:
    rates: list[Rates] = []
    for name in share.partitions or ("",):
        rate = price.partitions.get(name, price)
        rates += [rate] if rate not in rates else []
    return rates


def _parts(rates: Rates, share: Share) -> list[_Part] | None:
    of_a_gpu = _of_a_gpu(rates, share) if share.gpus else 0.0
    if of_a_gpu is None:
        return None
    gpu = _kind(rates, share) or plural("GPU", share.gpus)
    least = rates.least_cores * (share.nodes or 1)
    cores = None if share.cores is None else max(share.cores, least)
    core = "cores, the least there" if cores != share.cores else plural("core", cores or 0)
    counts = (
        (share.gpus, of_a_gpu, gpu),
        (cores, rates.core_hour, core),
        (share.nodes, rates.node_hour, plural("node", share.nodes or 0)),
    )
    if any(count is None and each for count, each, _ in counts):
        return None
    return [_Part(count * each, f"{count} {name}") for count, each, name in counts if count and each]


def _sum(price: Price, parts: list[_Part] | None) -> float | None:
    """Return what an hour costs: the sum of the parts or, with the rule ``max``, the most expensive one."""
    if parts is None:
        return None
    hourly = [part.hourly for part in parts]
    return max(hourly, default=0.0) if price.rule == "max" else sum(hourly)


def _of_a_gpu(rates: Rates, share: Share) -> float | None:
    """Return the price of one GPU, ``None`` if it is not known for its type."""
    if not isinstance(rates.gpu_hour, dict):
        return rates.gpu_hour
    prices, kind = _by_type(rates), _kind(rates, share)
    if kind:
        return prices.get(kind.lower())
    if not share.gpu_name:
        same = set(prices.values())
        return same.pop() if len(same) == 1 else None
    name = share.gpu_name.lower()
    return next((prices[word] for word in sorted(prices, key=len, reverse=True) if word in name), None)


def _kind(rates: Rates, share: Share) -> str | None:
    """Return the type of the GPUs; a feature counts as one only if it has a price."""
    prices = _by_type(rates)
    if share.gpu_type or (share.feature or "").lower() in prices:
        return share.gpu_type or share.feature
    return share.meant if not prices or (share.meant or "").lower() in prices else None


def _by_type(rates: Rates) -> dict[str, float]:
    return {word.lower(): each for word, each in rates.gpu_hour.items()} if isinstance(rates.gpu_hour, dict) else {}


def _in_words(price: Price, parts: list[_Part]) -> str:
    if price.rule == "max" and parts:
        return max(parts, key=lambda part: part.hourly).name
    names = [part.name for part in parts]
    return f"({' + '.join(names)})" if len(names) > 1 else "".join(names) or "what costs nothing"


# --- what is left --------------------------------------------------------------------------------------------------


def left_of(budget: Budget, account: str | None, output: str) -> float | None:
    """Return what is left of the account, read from the ``output`` of the budget command; ``None`` if that is unclear.

    If the pattern contains the account and none is given, the output must be about a single account. Colours in the
    output are ignored, and so is what follows the first ``safe_regex.LONGEST_TEXT`` characters of a line.
    """
    pattern = budget.pattern.replace("{account}", re.escape(account) if account else r"\S+")
    lines = printable(output).splitlines()[:_MOST_LINES]
    try:
        numbers = [read_number(match["left"] or "") for match in search_lines(pattern, lines)]
    except RegexTimeout:
        return None
    found = [number for number in numbers if number is not None]
    if account is None and "{account}" in budget.pattern and len(found) > 1:
        return None
    return found[0] if found else None


_GROUPED = re.compile(r"\d{1,3}(?P<mark>[ ,.'’_\u00a0\u2009\u202f])\d{3}(?:(?P=mark)\d{3})*")


def read_number(text: str) -> float | None:
    """Parse a number as people and tools write it: ``1840``, ``1,840``, ``1 840``, ``1'840.5``, ``1.840,5``.

    ``1.840`` is 1.84, since a plain decimal number has precedence over one with digit grouping. ``None`` if it is not a
    number.
    """
    text = text.strip().replace("\u2212", "-")
    sign = -1 if text.startswith("-") else 1
    text = text.lstrip("+-")
    if not re.fullmatch(r"\d[\d ,.'’_\u00a0\u2009\u202f]{0,40}", text, re.A):
        return None
    if re.fullmatch(r"\d+(\.\d*)?", text, re.A):
        return sign * float(text)
    whole, point, decimals = text, "", ""
    if (match := re.fullmatch(r"(.*)([.,])(\d+)", text)) and not (match[2] == "," and _is_grouped(text)):
        whole, point, decimals = match[1], match[2], match[3]
    if point and (mark := _GROUPED.fullmatch(whole)) and mark["mark"] == point:  # 1.840.000
        whole, decimals = text, ""
    if not (whole.isdecimal() or _is_grouped(whole)):
        return None
    return sign * float(f"{re.sub(r'[^0-9]', '', whole)}.{decimals or 0}")


def _is_grouped(text: str) -> bool:
    return _GROUPED.fullmatch(text) is not None
