"""The accounting of a finished job: ``sacct`` as text, 22.05 and newer.

One job has a row for itself and one for each of its steps (``7``, ``7.batch``, ``7.0``), and all of these again for
each time that it was requeued. Fields and units are those of sacct's manual, JOB ACCOUNTING FIELDS: ``CPUTimeRAW`` is
allocated CPU time, whether used or not; ``TotalCPU`` is used CPU time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.text import whole_number
from notebook_launcher.schedulers.base import AccountingRecord, JobRef, State
from notebook_launcher.schedulers.slurm.clean_env import on_cluster, with_clean_env

FIELDS = (
    *("JobIDRaw", "State", "UID", "Partition", "ElapsedRaw", "TimelimitRaw", "AllocCPUS", "AllocNodes", "AllocTRES"),
    *("TotalCPU", "CPUTimeRAW", "MaxRSS", "ReqMem", "ConsumedEnergyRaw"),
)
_MIB = {"": 1 / 1024**2, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)([KMGTP]?)([cn]?)", re.A)
_CPU_TIME = re.compile(r"(?:(?:(\d{1,6})-)?(\d{1,6}):)?(\d{1,6}):(\d{1,6}(?:\.\d{1,9})?)", re.A)
_GPUS = re.compile(r"gres/gpu(?::([^=]+))?", re.A)
_NO_JOULES = frozenset({0, 2**32 - 2, 2**64 - 2})  # not measured; Slurm's encodings of "no value"

_Row = Mapping[str, str]


def accounting_command(job: JobRef) -> list[str]:
    """Return ``sacct`` for one job, with its steps, which have the memory, and its earlier runs, which also cost."""
    words = ["--noheader", "--parsable2", "--noconvert", "--duplicates", f"--jobs={job.id}"]
    return with_clean_env(["sacct", *on_cluster(job.cluster), *words, f"--format={','.join(FIELDS)}"], of_a_job=True)


def parse_accounting(job: JobRef, answer: CommandResult) -> AccountingRecord | None:
    """Return the accounting of a job, ``None`` if the site has none, or the job is not in it (yet)."""
    if answer.exit_code != 0:
        return None
    runs = runs_in(job, (line.split("|") for line in answer.stdout.splitlines()), FIELDS)
    return last_run(job, runs)[0] if runs else None


def last_run(job: JobRef, runs: Sequence[Run]) -> tuple[AccountingRecord, Run]:
    """Return the accounting of the last of a job's runs, and that run."""
    last = runs[-1]
    # not the last one if the job was cancelled while it was pending again: the last that ran
    run = next((run for run in reversed(runs) if run.wall), last)
    earlier = [before for before in runs[: runs.index(run)] if before.is_earlier_of(run)]
    return _accounted(job, run, sum(before.wall or 0 for before in earlier), complete=last.is_complete), run


class Run(Frozen):
    """One run of a job: its own row, and those of its steps."""

    row: _Row
    steps: list[_Row]

    @property
    def state(self) -> State:
        """The state in which it is, or in which it ended."""
        return State.read(self.row["State"])

    @property
    def wall(self) -> int | None:
        """Its elapsed time in seconds."""
        return whole_number(self.row["ElapsedRaw"])

    @property
    def is_complete(self) -> bool:
        """Whether no more rows are expected: those of the steps, with what they used, arrive after that of the job."""
        steps_ended = all(State.read(step["State"]).ended for step in self.steps)
        return self.state.ended and steps_ended and (bool(self.steps) or not self.wall)

    def is_earlier_of(self, other: Run) -> bool:
        """Whether the job was requeued after this run; otherwise, the other run's job has reused the id."""
        requeued = self.state.waits or self.state in (State.PREEMPTED, State.NODE_FAIL, State.BOOT_FAIL)
        return requeued and self.row["UID"] == other.row["UID"]


def runs_in(job: JobRef, rows: Iterable[Sequence[str]], names: Sequence[str]) -> list[Run]:
    """Return the runs of a job in rows with these columns; rows of another length (a site's plugins) are skipped."""
    runs: list[Run] = []
    for fields in rows:
        if len(fields) != len(names):
            continue
        row = dict(zip(names, map(str.strip, fields), strict=True))
        if row["JobIDRaw"] == job.id:
            runs.append(Run(row, []))
        elif row["JobIDRaw"].startswith(f"{job.id}.") and runs:
            runs[-1].steps.append(row)
    return runs


def _accounted(job: JobRef, run: Run, earlier: int, *, complete: bool) -> AccountingRecord:
    row = run.row
    cores, nodes = whole_number(row["AllocCPUS"]) or None, whole_number(row["AllocNodes"]) or None
    tres, requested_tres = _tres(row["AllocTRES"]), _tres(row.get("ReqTRES", ""))  # ReqTRES is queried only for reports
    (gpus, gpu_type), (gpus_requested, type_requested) = _gpus(tres), _gpus(requested_tres)
    minutes = whole_number(row["TimelimitRaw"])
    requested, allocated = _requested_memory(row["ReqMem"], cores, nodes), mib(tres.get("mem", ""), plain_unit="M")
    return AccountingRecord(
        job,
        state=run.state,
        wall=run.wall,
        walltime=60 * minutes if minutes else None,
        cores=cores,
        nodes=nodes,
        gpus=gpus if tres else None,
        gpu_type=gpu_type,
        partition=row["Partition"] or None,
        cpu_used=_cpu_used(run),
        cpu_reserved=whole_number(row["CPUTimeRAW"]),
        memory_peak=max(filter(None, (mib(step["MaxRSS"]) for step in run.steps)), default=None),
        memory_limit=allocated or requested,
        memory_requested=requested,
        cores_requested=whole_number(requested_tres.get("cpu")) or whole_number(row.get("ReqCPUS")) or None,
        gpus_requested=gpus_requested if requested_tres else None,
        gpu_type_requested=type_requested,
        joules=_joules(run),
        earlier=earlier,
        complete=complete,
    )


def _tres(text: str) -> dict[str, str]:
    """Return the amounts in ``cpu=4,mem=600M,gres/gpu=2``, by name."""
    return dict(item.partition("=")[::2] for item in text.split(",") if item)


def _cpu_used(run: Run) -> float | None:
    """Return the job's own value or the sum of its steps, whichever is larger: the job's own is missing at first."""
    of_steps = [seconds for step in run.steps if (seconds := cpu_seconds(step["TotalCPU"])) is not None]
    own = cpu_seconds(run.row["TotalCPU"])
    return max(own or 0.0, sum(of_steps)) if of_steps or own is not None else None


def _gpus(tres: Mapping[str, str]) -> tuple[int, str | None]:
    """Return the number of GPUs, and their type if all have the same.

    ``gres/gpu=2,gres/gpu:a100=2`` means two GPUs: the second entry only adds the type. A site may have either entry.
    """
    counts = {
        match[1] or "": whole_number(value) or 0 for name, value in tres.items() if (match := _GPUS.fullmatch(name))
    }
    types = [kind for kind, count in counts.items() if kind and count]
    of_types = sum(count for kind, count in counts.items() if kind)
    total = max(counts.get("", 0), of_types)
    return total, types[0] if len(types) == 1 and of_types == total else None


def _joules(run: Run) -> float | None:
    """Return the energy used by the job's nodes; of several steps the largest value, since they share the meter."""
    return measured_joules(row["ConsumedEnergyRaw"] for row in (run.row, *run.steps))


def measured_joules(values: Iterable[str]) -> float | None:
    """Return the largest of these values of ``ConsumedEnergyRaw``; ``None`` if nothing was measured."""
    measured = (whole_number(value) or 0 for value in values)
    return float(max((joules for joules in measured if joules not in _NO_JOULES), default=0)) or None


def _requested_memory(text: str, cores: int | None, nodes: int | None) -> float | None:
    """Return the total requested memory in MiB: ``4000M``, or in older rows ``4000Mc`` per core, ``4Gn`` per node."""
    match = _SIZE.fullmatch(text)
    times = {"c": cores, "n": nodes, "": 1}[match[3]] if match else None
    one = mib(text, plain_unit="M")
    return one * times or None if one and times else None


def mib(text: str, plain_unit: str = "") -> float | None:
    """Return a size in MiB; ``plain_unit``: the unit of a number without one."""
    match = _SIZE.fullmatch(text)
    return float(match[1]) * _MIB[match[2] or plain_unit] if match else None


def cpu_seconds(text: str) -> float | None:
    """Parse ``[[DD-]HH:]MM:SS[.mmm]`` to seconds; ``None`` for any other text."""
    match = _CPU_TIME.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes = (int(part or 0) for part in match.groups()[:3])
    return ((days * 24 + hours) * 60 + minutes) * 60 + float(match[4])
