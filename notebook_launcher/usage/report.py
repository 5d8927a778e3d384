"""What a job asked for and used, with the accounting's columns explained: the courses' exercise with sacct. Pure.

There are two sources: the scheduler's accounting, and, of a job of the launcher's, its usage report. Either may be
missing; an unknown value is left out, and the report says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import datetime

from notebook_launcher.core import events
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.quantities import counted, duration, gigabytes, precise_duration
from notebook_launcher.core.request import Request
from notebook_launcher.core.text import joined, whole_number
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.core.walltime import Walltime
from notebook_launcher.schedulers.base import AccountingRecord, JobAccounts, State, StepUse
from notebook_launcher.usage.limits import cores_of, memory_of
from notebook_launcher.usage.pricing import type_requested
from notebook_launcher.usage.training_result import TrainingResult

SHORT = 60  # seconds; of a shorter job nothing is advised
WORTH = 3600  # seconds that a shorter walltime must save to be worth a word
MUCH = 4 * 1024.0  # MiB; of less memory nobody else has much use
_IDLE_GPU = 30.0  # %

_STATES = {
    State.PENDING: "it waits in the queue",
    State.RUNNING: "it runs; all other values are those so far",
    State.SUSPENDED: "it was paused, and keeps its place",
    State.COMPLETING: "it has ended, and its nodes are being cleaned up",
    State.COMPLETED: "it ended by itself, with exit code 0",
    State.FAILED: "it ended by itself, with an exit code other than 0",
    State.CANCELLED: "somebody cancelled it; the number is a user's (id -un NUMBER)",
    State.TIMEOUT: "it was ended at its time limit: ask for more with -t, or save and continue",
    State.OUT_OF_MEMORY: "it was ended as it used more memory than it had: ask for more with --mem",
    State.NODE_FAIL: "its node failed; that is not your script's fault",
    State.PREEMPTED: "it was preempted by a job with a higher priority",
    State.BOOT_FAIL: "its node could not be made ready",
    State.DEADLINE: "it could not be done before its deadline",
}


class Evidence(Frozen):
    """What is known of one job. ``bill``: the usage report, of a job of the launcher's; ``result``: the job's own.

    ``flags``: of that session, as submitted.
    """

    accounts: JobAccounts | None = None
    bill: events.Bill | None = None
    session: str | None = None
    name: str = ""
    job: str = ""
    state: str = ""
    flags: Mapping[str, str | None] = field(default_factory=dict)
    result: TrainingResult = TrainingResult()


def make_report(evidence: Evidence, *, explained: bool = True) -> events.JobReport | None:
    """Return the report; ``None`` if nothing is known of the job. ``explained``: with the accounting's columns."""
    accounts, bill = evidence.accounts, evidence.bill
    if accounts is None and bill is None:
        return None
    joules, energy_of = _energy(accounts, bill)
    # the energy is that of the last run; what a training reports may have begun in an earlier one
    result = TrainingResult() if accounts and accounts.record.earlier else evidence.result
    steps = [step for step in accounts.steps if step.name != "extern"] if accounts else []
    return events.JobReport(
        job=evidence.job,
        job_name=evidence.name or (accounts.columns["JobName"] if accounts else ""),
        session=evidence.session,
        state=(accounts.columns["State"] if accounts else "") or evidence.state,
        columns=tuple(_columns(accounts)) if accounts and explained else (),
        use=tuple(_use(evidence)),
        steps=tuple(map(_step, steps)),
        joules=joules,
        energy_of=energy_of,
        epochs=result.epochs,
        images=result.images,
        advice=tuple(_advice(accounts, bill)),
        unknown=tuple(_unknown(evidence, joules)),
        explained=explained,
    )


# --- the columns, explained ------------------------------------------------------------------------------------


def _columns(accounts: JobAccounts) -> Iterator[events.ReportColumn]:
    of, record = accounts.columns, accounts.record
    if accounts.meanings is not None:
        shown = ((name, of.get(name, ""), meaning) for name, meaning in accounts.meanings.items())
        yield from (events.ReportColumn(name, value, meaning) for name, value, meaning in shown if value)
        return
    for name, value, meaning in (
        ("State", of["State"], _STATES.get(record.state, "how it ended")),
        ("ExitCode", of["ExitCode"], "the script's exit code; after the colon, the signal that ended it"),
        ("Partition", of["Partition"], "the queue that it waited and ran in"),
        ("Account", of["Account"], "the project that pays for it"),
        ("Submit", of["Submit"][:19], _waited(of)),
        ("Elapsed", _clock(record.wall), "how long it ran"),
        ("Timelimit", _clock(record.walltime), "the longest that it was allowed to run (-t)"),
        ("NodeList", of["NodeList"], f"where it ran: {counted(record.nodes, 'node')}" if record.nodes else ""),
        ("AllocCPUS", of["AllocCPUS"], _cores_meaning(of)),
        ("CPUTime", _clock(record.cpu_reserved), "Elapsed × AllocCPUS: the time of all its cores, used or not"),
        ("TotalCPU", _cpu_time(record.cpu_used), _efficiency(record)),
        ("ReqMem", gib(record.memory_requested), "the memory that it asked for, or got by the site's default"),
        ("MaxRSS", gib(record.memory_peak), _peak_meaning(accounts)),
        ("ReqTRES", of["ReqTRES"], "all that it asked for, or got by the site's defaults"),
        ("AllocTRES", of["AllocTRES"], "all that it was allocated and is charged for; gres/gpu are GPUs"),
        (
            "ConsumedEnergy",
            f"{record.joules:.0f} J" if record.joules else "",
            "the energy that its nodes used; 3600 J are 1 Wh",
        ),
    ):
        if value and value not in ("Unknown", "None assigned"):
            yield events.ReportColumn(name, value, meaning)


def _waited(of: Mapping[str, str]) -> str:
    submit, start = parse_iso(of["Submit"]), parse_iso(of["Start"])
    if submit is None or start is None or (submit.tzinfo is None) != (start.tzinfo is None):
        return "when it was submitted"
    return f"when it was submitted; it began {duration(_seconds_between(submit, start))} later (Start)"


def _seconds_between(first: datetime, last: datetime) -> float:
    return max(0.0, (last - first).total_seconds())


def _cores_meaning(of: Mapping[str, str]) -> str:
    asked = whole_number(of["ReqCPUS"])
    held = "the cores that it was allocated"
    return f"{held}; {asked} were asked for" if asked and of["AllocCPUS"] != of["ReqCPUS"] else held


def _efficiency(record: AccountingRecord) -> str:
    what = "the CPU time that its processes used"
    if record.cpu_used is None or not record.cpu_reserved:
        return what
    return f"{what}: {_percent(record.cpu_used / record.cpu_reserved)} of CPUTime, the CPU efficiency"


def _peak_meaning(accounts: JobAccounts) -> str:
    record = accounts.record
    step = max(accounts.steps, key=lambda step: step.memory_peak or 0.0, default=None)
    where = f" (on {step.memory_node})" if step and step.memory_node else ""
    is_known = record.memory_peak and record.memory_requested and not _several_tasks(accounts)
    share = (record.memory_peak or 0.0) / (record.memory_requested or 1.0) if is_known else None
    of = f"; {_percent(share)} of ReqMem" if share is not None else ""
    return f"the most memory that one of its tasks had{where}{of}"


def _several_tasks(accounts: JobAccounts) -> bool:
    """Whether the memory peak, which is that of one task, is less than the job's."""
    return (accounts.record.nodes or 1) > 1 or any((step.tasks or 1) > 1 for step in accounts.steps)


# --- asked for, against used -----------------------------------------------------------------------------------


def _use(evidence: Evidence) -> Iterator[events.ReportUse]:
    bill, facts, requested = evidence.bill, _Facts.of(evidence.accounts, evidence.bill), _Requested.of(evidence)
    if facts.run_time is not None:
        asked = duration(facts.walltime) if facts.walltime else "no limit is known"
        yield use_row("time", asked, precise_duration(facts.run_time), facts.run_time, facts.walltime)
    if facts.cores:
        asked = asked_for(str(requested.cores or ""), str(facts.cores))
        yield use_row("cores", asked, _busy(facts.busy), facts.busy, facts.cores)
    if facts.memory_peak is not None or facts.memory:
        asked = asked_for(gib(requested.memory), gib(facts.memory))
        used = "not reported" if facts.memory_peak is None else f"{gib(facts.memory_peak)} at most"
        if facts.memory_peak is not None and facts.of_one_task:
            used += ", of one task"
        yield use_row("memory", asked, used, None if facts.of_one_task else facts.memory_peak, facts.memory)
    if facts.gpus:
        share = facts.gpu_percent
        used = "not reported" if share is None else f"busy {share:.0f} % of the time"
        asked = asked_for(_gpus(requested.gpus, requested.gpu_type), _gpus(facts.gpus, facts.gpu_type))
        yield events.ReportUse("GPUs", asked, used, share)
    if bill is not None and bill.cost is not None:
        yield events.ReportUse("cost", "", f"{bill.cost:.2f} {bill.unit}")


def _gpus(count: int | None, kind: str | None) -> str:
    return " ".join(filter(None, [str(count), kind])) if count else ""


class _Requested(Frozen):
    """What was asked for: by the accounting, or else by the session's flags. Memory in MiB; ``None``: not known."""

    cores: int | None
    memory: float | None
    gpus: int | None
    gpu_type: str | None

    @classmethod
    def of(cls, evidence: Evidence) -> _Requested:
        record = evidence.accounts.record if evidence.accounts else None
        bill, flags = evidence.bill, evidence.flags
        if record is None and bill is not None:  # without accounting, its figures are those of the flags
            return cls(bill.cores, bill.memory, bill.gpus, bill.gpu_type)
        if record is None:
            return cls(None, None, None, None)
        gpus = Request(flags).gpus if record.gpus_requested is None else record.gpus_requested
        cores = record.cores_requested or cores_of(flags, None)
        return cls(
            int(cores) if cores else None,
            record.memory_requested or memory_of(flags, None),
            gpus,
            record.gpu_type_requested or type_requested(flags),
        )


class _Facts(Frozen):
    """The figures of both sources; the usage report's come first, as it knows the samples as well.

    On one node, the samples are of the whole job; the accounting has the largest task of each step.
    """

    run_time: int | None
    walltime: int | None
    cores: int | None
    busy: float | None
    memory_peak: float | None
    memory: float | None
    of_one_task: bool  # whether the memory peak is
    gpus: int
    gpu_type: str | None
    gpu_percent: float | None

    @classmethod
    def of(cls, accounts: JobAccounts | None, bill: events.Bill | None) -> _Facts:
        record = accounts.record if accounts else None
        run_time = bill.run_time if bill else record.wall if record else None
        used = bill.cpu_used if bill else record.cpu_used if record else None
        peak = record.memory_peak if record else None
        is_sampled = bool(bill and bill.memory_peak and bill.memory_peak > (peak or 0.0))
        by_steps = [step.gpu_percent for step in (accounts.steps if accounts else ()) if step.gpu_percent is not None]
        return cls(
            run_time=run_time,
            walltime=bill.walltime if bill else record.walltime if record else None,
            cores=bill.cores if bill else record.cores if record else None,
            busy=used / run_time if used is not None and run_time else None,
            memory_peak=bill.memory_peak if bill else record.memory_peak if record else None,
            memory=bill.memory if bill else (record.memory_limit or record.memory_requested) if record else None,
            of_one_task=accounts is not None
            and _several_tasks(accounts)
            and not (is_sampled and _is_one_node(accounts)),
            gpus=(bill.gpus if bill else record.gpus if record else None) or 0,
            gpu_type=bill.gpu_type if bill else record.gpu_type if record else None,
            gpu_percent=bill.gpu_percent if bill and bill.gpu_percent is not None else max(by_steps, default=None),
        )


def use_row(of: str, asked: str, used: str, amount: float | None, limit: float | None) -> events.ReportUse:
    """Return a row of the table, with which share of the limit the amount is."""
    share = round(100 * amount / limit, 1) if amount is not None and limit else None
    return events.ReportUse(of, asked, used, share)


def asked_for(requested: str, allocated: str) -> str:
    """Return what was requested, and what was allocated if that differs or is all that is known; "": not known."""
    if not requested:
        return f"{allocated} allocated" if allocated else "not known"
    return requested if allocated in ("", requested) else f"{requested} ({allocated} allocated)"


def _busy(busy: float | None) -> str:
    return "not reported" if busy is None else f"{busy:.{2 if busy < 0.1 else 1}f} busy on average"


def _step(step: StepUse) -> events.ReportStep:
    names = {"batch": "batch (the script)", "interactive": "interactive"}
    name = names.get(step.name) or (f"{step.name} (srun)" if step.name.isdecimal() else step.name)
    tasks = f"{counted(step.tasks, 'task')}" if step.tasks else ""
    where = f" on {step.nodes}" if step.nodes else ""
    cpu = ""
    if step.cpu_used is not None and step.wall:
        of = f" of {step.cores}" if step.cores else ""
        cpu = f"{step.cpu_used / step.wall:.1f}{of} busy"
    memory = gib(step.memory_peak)
    if memory and step.memory_node and (step.tasks or 0) > 1:
        memory += f" (task {step.memory_task} on {step.memory_node})"
    return events.ReportStep(name, step.state.name, f"{tasks}{where}".strip(), cpu, memory)


# --- energy ----------------------------------------------------------------------------------------------------


def _energy(accounts: JobAccounts | None, bill: events.Bill | None) -> tuple[float | None, str]:
    """Return the joules of the nodes, by the accounting, or else those of the GPUs, by the samples of the only node."""
    if accounts and accounts.record.joules:
        return accounts.record.joules, "nodes"
    return (bill.energy * 3600, bill.energy_of) if bill and bill.energy and _is_one_node(accounts) else (None, "")


def _is_one_node(accounts: JobAccounts | None) -> bool:
    return accounts is None or (accounts.record.nodes or 1) == 1


# --- advice, and what is not known -----------------------------------------------------------------------------


def _advice(accounts: JobAccounts | None, bill: events.Bill | None) -> Iterator[str]:
    """Yield what to ask for next time, the most worth first: nothing after a job that was cut short, or of a minute."""
    facts, state = _Facts.of(accounts, bill), accounts.record.state if accounts else State.UNKNOWN
    if state not in (State.COMPLETED, State.TIMEOUT, State.UNKNOWN) or (facts.run_time or 0) < SHORT:
        return
    if accounts and accounts.record.earlier:
        return  # the last run alone is known, which may have had little left to do
    if found := [one for one in bill.recommendations if not _is_unsafe(one[0], facts)] if bill else []:
        flags, why = " ".join(one for one, _ in found), "; ".join(why for _, why in found)
        ran_out = state is State.TIMEOUT or (facts.run_time or 0) >= (facts.walltime or math.inf) - 60
        yield f"Next time try {flags}: {why}." if ran_out else f"Next time {flags} is enough: {why}."
        return
    if facts.gpus and facts.gpu_percent is not None and facts.gpu_percent < _IDLE_GPU:
        yield f"The GPU was busy {facts.gpu_percent:.0f} % of the time: does the program use it, and wait for its data?"
    if facts.cores and facts.cores > 1 and facts.busy is not None and facts.busy < facts.cores / 2:
        yield (
            f"On average {facts.busy:.1f} of {facts.cores} cores were busy: with fewer (-c) it may start sooner, and "
            "costs less."
        )
    run_time, limit = facts.run_time or 0, facts.walltime or 0
    if limit - 2 * run_time >= WORTH:
        yield (
            f"It took {duration(run_time)} of {Walltime(seconds=limit).as_text()}: with a shorter -t it may start "
            "sooner."
        )
    together = sum(step.memory_peak or 0.0 for step in (accounts.steps if accounts else ()))  # steps may run at once
    needed = max(facts.memory_peak or 0.0, together)
    if facts.memory_peak and facts.memory and facts.memory >= max(MUCH, 2 * needed) and not facts.of_one_task:
        yield (
            f"The most that was measured is {gib(facts.memory_peak)} of {gib(facts.memory)} of memory: with less "
            "(--mem) it fits on more nodes."
        )


def _is_unsafe(flag: str, facts: _Facts) -> bool:
    """Whether a flag rests on the peak of one task among several: of memory, and of what brings memory with it."""
    return facts.of_one_task and not flag.startswith("-t ")


def _unknown(evidence: Evidence, joules: float | None) -> Iterator[str]:
    accounts, bill = evidence.accounts, evidence.bill
    facts = _Facts.of(accounts, bill)
    if accounts and accounts.is_live:
        yield "The job is not over: the accounting has its CPU time, memory and energy some seconds after its end."
        return
    if accounts is None:
        yield "There is no accounting to ask here; this is what the job itself has measured and recorded."
    elif not accounts.complete:
        yield "The accounting is not complete yet: last values come some seconds after a job's end."
    if facts.memory_peak is None and accounts:
        yield "Memory: no step reported any; it ended before it was measured, or the site does not measure it."
    if facts.gpus and facts.gpu_percent is None:
        yield joined("GPU use: it was not measured", "nvidia-smi in the job shows it while it runs.")
    yield from _unknown_energy(evidence, joules)


def _unknown_energy(evidence: Evidence, joules: float | None) -> Iterator[str]:
    accounts, bill = evidence.accounts, evidence.bill
    if joules is None and bill and bill.energy and not _is_one_node(accounts):
        yield "Energy: only the GPUs of its first node were measured, and the scheduler has reported none."
    elif joules is None:
        yield "Energy: not known, because neither the scheduler nor a GPU has measured it."
    elif accounts and accounts.record.earlier:
        yield "Energy: that of the last run; the job was requeued, and what earlier runs used is not in it."


# --- forms -----------------------------------------------------------------------------------------------------


def _clock(seconds: float | None) -> str:
    """Return a time as sacct prints it: ``0:10:02``, ``2-00:00:00``."""
    return "" if seconds is None else Walltime(seconds=round(seconds)).as_typed()


def _cpu_time(seconds: float | None) -> str:
    """Return a CPU time: as sacct prints it, but a short one with its fraction."""
    return f"{seconds:.1f} s" if seconds is not None and seconds < 60 else _clock(seconds)


def gib(mib: float | None) -> str:
    """Return memory as text: ``96 MiB``, ``12.5 GiB``."""
    return "" if mib is None else f"{mib:.0f} MiB" if mib < 0.1 * 1024 else f"{gigabytes(mib)} GiB"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"
