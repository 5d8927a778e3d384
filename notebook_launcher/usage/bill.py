"""The usage report of an ended session: what it requested, what it used, and what it cost. Pure.

There are three sources: the scheduler's accounting, the job's own samples, and the request. Any of them may be missing;
an unknown value is ``None``, and never guessed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from notebook_launcher.core import events
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.quantities import counted
from notebook_launcher.core.request import Request
from notebook_launcher.core.usage_samples import Sample
from notebook_launcher.profiles.models import Price
from notebook_launcher.schedulers.base import AccountingRecord, JobRef, Scheduler
from notebook_launcher.schedulers.make import make_scheduler
from notebook_launcher.session.record import SessionRecord
from notebook_launcher.usage.limits import cores_of, memory_of
from notebook_launcher.usage.pricing import Share, cost_of, share_of, type_requested
from notebook_launcher.usage.recommendations import next_time
from notebook_launcher.usage.totals import Use, add_up, last_run


class Facts(Frozen):
    """The evidence. ``wall``: the job's seconds by its own clock; ``node``: where it ran."""

    accounted: AccountingRecord | None = None
    samples: Sequence[Sample] = ()
    wall: float | None = None
    node: str | None = None


def make_bill(record: SessionRecord, job: str, facts: Facts, price: Price | None) -> events.Bill | None:
    """Return the usage report of an ended session, ``None`` if it never ran as far as is known."""
    accounted, request, flags = facts.accounted, Request(record.flags), record.flags
    use = add_up(last_run(facts.samples))
    wall = accounted.wall if accounted and accounted.complete else None
    by_files = 0 if facts.wall is None else max(1, int(facts.wall))  # it ran, be it for less than a second
    wall = wall or by_files or (accounted.wall if accounted else None) or int(use.seconds)
    if not wall:
        return None
    shared = record.scheduler != "local"  # only a scheduler allocates resources
    limit = request.walltime
    gpus = accounted.gpus if accounted and accounted.gpus is not None else request.gpus if shared else use.gpus
    requested = flags if shared else {}  # without a scheduler, flags allocate nothing
    cores = cores_of(requested, accounted)
    peaks = [peak for peak in (accounted.memory_peak if accounted else None, use.memory_peak) if peak]
    energy, energy_of = _energy(accounted, use)
    gpu_type = (accounted.gpu_type if accounted else None) or type_requested(flags)
    bill = events.Bill(
        session=record.id,
        job=job,
        run_time=wall,
        walltime=(accounted.walltime if accounted else None)
        or (None if limit.is_unlimited else int(limit.total_seconds())),
        cores=None if cores is None else int(cores),
        cpu_used=_cpu_used(accounted, use),
        cpu_reserved=accounted.cpu_reserved if accounted else None,
        memory_peak=max(peaks, default=None),
        memory_requested=(accounted.memory_requested if accounted else None) or memory_of(requested, None),
        memory_allocated=accounted.memory_limit if accounted else None,
        gpus=gpus,
        gpu_percent=use.gpu_percent,
        gpu_memory_peak=use.gpu_memory_peak,
        gpu_memory_total=use.gpu_memory_total,
        energy=energy,
        energy_of=energy_of,
        cost=_cost(price, flags, wall, accounted, Share(gpus, gpu_type=gpu_type, gpu_name=use.gpu_name)),
        unit=price.unit if price else "",
        measured_by=_measured(facts, use, gpus, scheduler=make_scheduler(record.scheduler, "")),
        recommendations=(),
        node=facts.node,
        gpu_type=gpu_type,
    )
    advice = next_time(bill, use, flags, accounted) if shared else ()
    return dataclasses.replace(bill, recommendations=advice)


# --- choosing a value ----------------------------------------------------------------------------------------


def _cpu_used(accounted: AccountingRecord | None, use: Use) -> float | None:
    """Return the larger value of the accounting and the samples: the first may still grow, or lack killed processes."""
    values = [seconds for seconds in (accounted.cpu_used if accounted else None, use.cpu) if seconds is not None]
    return max(values, default=None)


def _energy(accounted: AccountingRecord | None, use: Use) -> tuple[float | None, str]:
    if use.watt_hours:
        return use.watt_hours, "GPUs"
    return (accounted.joules / 3600, "node") if accounted and accounted.joules else (None, "")


def _cost(
    price: Price | None, flags: Mapping[str, str | None], wall: int, accounted: AccountingRecord | None, share: Share
) -> float | None:
    """Return the cost of the whole time, including earlier runs; ``None`` if a value that has a price is missing."""
    if price is None:
        return None
    cores, nodes, earlier = (accounted.cores, accounted.nodes, accounted.earlier) if accounted else (None, None, 0)
    requested = share_of(Request(flags))
    where = (accounted.partition,) if accounted and accounted.partition else requested.partitions
    share = dataclasses.replace(share, cores=cores, nodes=nodes, feature=requested.feature, partitions=where)
    return cost_of(price, share, wall + earlier)


def _measured(facts: Facts, use: Use, gpus: int, *, scheduler: Scheduler) -> str:
    """Return the sources of the values, as text."""
    accounting = f"{scheduler.title}'s accounting"
    accounted = facts.accounted
    samples = f"{counted(use.count, 'sample')} of the job" if use.count else ""
    sources = " and ".join(filter(None, (accounting if accounted else "", samples)))
    parts = [f"by {sources}" if sources else "by the job's own clock"]
    if use.count and use.gpu_percent is None and gpus:
        parts.append(f"neither nvidia-smi nor rocm-smi reported GPUs on {facts.node or 'the node'}")
    if accounted and not accounted.complete:
        parts.append("the last figures have not come to the accounting yet")
    if accounted is None and scheduler.accounting(JobRef("0")) is not None:
        parts.append(f"{accounting} has nothing about it")
    if accounted and accounted.earlier:
        parts.append(f"the cost is that of earlier runs, too ({max(1, round(accounted.earlier / 60))} min)")
    return "; ".join(parts)
