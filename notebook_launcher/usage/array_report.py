"""What the tasks of a job array asked for and used, all together, and how each of them ended. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from notebook_launcher.core import events
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.quantities import counted, duration, precise_duration
from notebook_launcher.core.walltime import Walltime
from notebook_launcher.schedulers.base import AccountingRecord, JobAccounts, State
from notebook_launcher.usage.report import MUCH, SHORT, WORTH, asked_for, gib, use_row

MOST_TASKS = 50  # that are shown one by one
_ENDS = {
    State.CANCELLED: "cancelled",
    State.TIMEOUT: "walltime reached",
    State.OUT_OF_MEMORY: "out of memory",
    State.NODE_FAIL: "its node failed",
    State.PREEMPTED: "preempted",
}


class TaskOutcome(Frozen):
    """How one task ended. ``reason``: in a few words."""

    state: State
    reason: str = ""

    @property
    def is_success(self) -> bool:
        """Whether its script ended with exit code 0."""
        return self.state is State.COMPLETED


def outcomes(exits: Mapping[int, Mapping[str, object]], accounts: Mapping[int, JobAccounts]) -> dict[int, TaskOutcome]:
    """Return how tasks ended, by number: by the accounting, and as they have recorded it in their ``exit.json``."""
    found = {}
    for number in sorted(exits.keys() | accounts.keys()):
        record, task = exits.get(number, {}), accounts.get(number)
        state = task.record.state if task and task.record.state.ended else _recorded(record)
        if state is not None:
            found[number] = TaskOutcome(state, _reason(state, record, task))
    return found


def _recorded(record: Mapping[str, object]) -> State | None:
    """Return how a task ended by its own record: it does not know who stopped it."""
    by_cause = {None: None, "finished": State.COMPLETED, "stopped": State.CANCELLED}
    return by_cause.get(str(record["cause"]) if "cause" in record else None, State.FAILED)


def _reason(state: State, record: Mapping[str, object], task: JobAccounts | None) -> str:
    if state is not State.FAILED:
        return _ENDS.get(state, state.name)
    code = record.get("exit_code")
    if record.get("cause") not in (None, "script-failed"):
        return str(record["cause"]).replace("-", " ")
    if type(code) is not int and task is not None:
        code = task.columns["ExitCode"].partition(":")[0]
    return f"exit code {code}"


def make_array_report(
    job: str, name: str, session: str | None, accounts: Mapping[int, JobAccounts], *, explained: bool
) -> events.JobReport | None:
    """Return the report on all tasks; ``None`` if the accounting knows none. ``explained``: see ``make_report``."""
    if not accounts:
        return None
    records = [task.record for task in accounts.values()]
    states = Counter(record.state for record in records)
    joules = [record.joules for record in records if record.wall]
    shown = dict(sorted(accounts.items())[:MOST_TASKS])
    return events.JobReport(
        job=job,
        job_name=name or next(iter(accounts.values())).columns["JobName"],
        session=session,
        state=", ".join(f"{count} {state.name}" for state, count in states.most_common()),
        columns=(),
        use=tuple(_use(records)),
        steps=tuple(_task(number, task) for number, task in shown.items()),
        joules=sum(filter(None, joules)) if joules and all(joules) else None,
        energy_of="nodes" if joules and all(joules) else "",
        advice=tuple(_advice(records)),
        unknown=tuple(_unknown(records)),
        explained=explained,
        tasks=len(records),
    )


def _use(records: Sequence[AccountingRecord]) -> Iterator[events.ReportUse]:
    done = sum(record.state is State.COMPLETED for record in records)
    yield use_row("tasks", str(len(records)), f"{done} completed", done, len(records))
    ran = [record for record in records if record.wall]
    if not ran:
        return
    yield _time_per_task(ran)
    held = sum(record.cpu_reserved or 0 for record in ran)
    worked = [record.cpu_used for record in ran if record.cpu_used is not None]
    busy = f"{duration(sum(worked))} busy" if worked else "not reported"
    yield use_row("core time of all tasks", asked_for("", duration(held)), busy, sum(worked) if worked else None, held)
    requested = max(record.memory_requested or 0.0 for record in ran)
    memory = max(map(_memory, ran))
    asked = asked_for(gib(requested or None), gib(memory or None))
    peak = max((record.memory_peak or 0 for record in ran), default=0.0)
    yield use_row(
        *("memory per task", asked, f"{gib(peak)} at most" if peak else "not reported"),
        *(peak or None, memory),
    )
    if gpu_time := sum((record.gpus or 0) * (record.wall or 0) for record in ran):
        yield events.ReportUse("GPU time of all tasks", asked_for("", duration(gpu_time)), "not reported")


def _time_per_task(ran: Sequence[AccountingRecord]) -> events.ReportUse:
    """Return how long tasks ran: not those that were cancelled, whose time says nothing of what a task needs."""
    limit = max(record.walltime or 0 for record in ran)
    asked = duration(limit) if limit else "no limit is known"
    walls = [record.wall or 0 for record in ran if record.state is not State.CANCELLED]
    if not walls:
        return use_row("time per task", asked, "all were cancelled", None, limit)
    left_out = ", without cancelled ones" if len(walls) < len(ran) else ""
    used = f"{precise_duration(sum(walls) / len(walls))} on average, {precise_duration(max(walls))} at most{left_out}"
    return use_row("time per task", asked, used, max(walls), limit)


def _memory(record: AccountingRecord) -> float:
    """Return the memory that a task had in MiB; 0: not known."""
    return record.memory_limit or record.memory_requested or 0.0


def _task(number: int, task: JobAccounts) -> events.ReportStep:
    record = task.record
    where = f"{task.columns['NodeList']}, {precise_duration(record.wall)}" if record.wall else ""
    busy = record.cpu_used / record.wall if record.cpu_used is not None and record.wall else None
    cpu = f"{busy:.1f} of {record.cores} busy" if busy is not None and record.cores else ""
    return events.ReportStep(str(number), record.state.name, where, cpu, gib(record.memory_peak))


def _advice(records: Sequence[AccountingRecord]) -> Iterator[str]:
    """Yield what to ask for next time, if tasks ran to their end for a minute or more."""
    ran = [record for record in records if record.state is State.COMPLETED and (record.wall or 0) >= SHORT]
    if not ran or any(record.state in (State.TIMEOUT, State.OUT_OF_MEMORY) for record in records):
        return
    longest, limit = max(record.wall or 0 for record in ran), ran[0].walltime or 0
    cores, worked = ran[0].cores or 0, sum(record.cpu_used or 0.0 for record in ran)
    busy = worked / sum(record.wall or 0 for record in ran)
    if cores > 1 and worked and busy < cores / 2:
        yield (
            f"On average {busy:.1f} of {cores} cores of a task were busy: with fewer (-c), more tasks run at once, and "
            "they cost less."
        )
    if limit - 2 * longest >= WORTH:
        yield (
            f"The longest task took {duration(longest)} of {Walltime(seconds=limit).as_text()}: with a shorter -t they "
            "may start sooner."
        )
    peak, memory = max(record.memory_peak or 0.0 for record in ran), _memory(ran[0])
    if peak and memory >= max(MUCH, 2 * peak) and (ran[0].nodes or 1) == 1:
        yield (
            f"The most that a task used is {gib(peak)} of {gib(memory)} of memory: with less (--mem), more tasks run "
            "at once."
        )


def _unknown(records: Sequence[AccountingRecord]) -> Iterator[str]:
    if live := sum(not record.state.ended for record in records):
        yield f"{counted(live, 'task')} {'is' if live == 1 else 'are'} not over: all values are those so far."
    elif not all(record.complete for record in records):
        yield "The accounting is not complete yet: last values come some seconds after a job's end."
    if len(records) > MOST_TASKS:
        yield f"Only the first {MOST_TASKS} tasks are listed; the sums are of all tasks."
