"""All that ``sacct`` reports about one job and its steps: the columns of its manual, 22.05 and newer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.text import whole_number
from notebook_launcher.schedulers.base import JobAccounts, JobRef, State, StepUse
from notebook_launcher.schedulers.slurm.accounting import FIELDS, cpu_seconds, last_run, measured_joules, mib, runs_in
from notebook_launcher.schedulers.slurm.clean_env import on_cluster, with_clean_env

_MORE = (
    *("JobID", "ExitCode", "Account", "QOS", "Submit", "Start", "End", "ReqCPUS", "NTasks", "NodeList"),
    *("MaxRSSNode", "MaxRSSTask", "AveRSS", "TRESUsageInAve", "ReqTRES"),
)
_NAMES = (*FIELDS, *_MORE, "JobName")  # the job's name comes last: it may contain a "|"
_GPU_USE = re.compile(r"(?:^|,)gres/gpuutil=(\d{1,9})(?:,|$)", re.A)
_WAITING = re.compile(r"(\d{1,12})_\[([^\]%]*)[^\]]*\]?", re.A)
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?(?::(\d{1,9}))?", re.A)
_MOST_TASKS = 100_000  # the most tasks of an array that are counted
_MOST_STEPS = 200  # the most steps that are kept


def report_command(job: JobRef) -> list[str]:
    """Return ``sacct`` for one job, or one task of an array: with its steps and its earlier runs."""
    words = [*on_cluster(job.cluster), "--noheader", "--parsable2", "--noconvert", "--duplicates", f"--jobs={job.id}"]
    return with_clean_env(["sacct", *words, f"--format={','.join(_NAMES)}"], of_a_job=True)


def parse_report(job: JobRef, answer: CommandResult) -> JobAccounts | None:
    """Return all details of a job, ``None`` if there is no accounting, or the job is not in it (yet)."""
    rows = list(_rows(answer.stdout)) if answer.exit_code == 0 else []
    raw_id, shown_id = _NAMES.index("JobIDRaw"), _NAMES.index("JobID")
    jobs = [row for row in rows if "." not in row[raw_id]]
    array = tuple(
        dict.fromkeys(task for row in jobs if row[shown_id].startswith(f"{job.id}_") for task in _tasks(row[shown_id]))
    )
    mine = next((row[raw_id] for row in jobs if job.id == row[raw_id] or job.id in _tasks(row[shown_id])), "")
    first = mine or next((row[raw_id] for row in jobs if array and array[0] in _tasks(row[shown_id])), "")
    its = JobRef(first, job.cluster)
    runs = runs_in(its, rows, _NAMES) if first else []
    if not runs:
        return None
    record, run = last_run(its, runs)
    return JobAccounts(record, run.row, tuple(_step(row) for row in run.steps[:_MOST_STEPS]), array)


def parse_array_report(job: JobRef, answer: CommandResult) -> dict[int, JobAccounts]:
    """Return all details of each task of a job array, by its number; one row may stand for several pending tasks."""
    by_task: dict[str, list[list[str]]] = {}  # the rows of a task and its steps, by its own raw id
    raw_id, shown_id = _NAMES.index("JobIDRaw"), _NAMES.index("JobID")
    for row in _rows(answer.stdout) if answer.exit_code == 0 else ():
        by_task.setdefault(row[raw_id].partition(".")[0], []).append(row)
    found: dict[int, JobAccounts] = {}
    for raw, rows in by_task.items():
        # a raw id may have rows under two ids: of several pending tasks, and then of the last of these, which keeps it
        for shown in dict.fromkeys(row[shown_id] for row in rows if row[raw_id] == raw):
            its = [row for row in rows if row[shown_id].partition(".")[0] == shown]
            record, run = last_run(JobRef(raw, job.cluster), runs_in(JobRef(raw, job.cluster), its, _NAMES))
            accounts = JobAccounts(record, run.row, tuple(_step(row) for row in run.steps[:_MOST_STEPS]))
            for task in _tasks(shown):
                array, _, number = task.partition("_")
                if array == job.id and whole_number(number) is not None:
                    found[int(number)] = accounts
    return found


def _tasks(shown: str) -> list[str]:
    """Return the ids of the tasks in a row: ``7_[1-3,8%2]``, pending ones, are 7_1, 7_2, 7_3 and 7_8."""
    match = _WAITING.fullmatch(shown)
    if match is None:
        return [shown]
    found: list[str] = []
    for first, last, step in _RANGE.findall(match[2]):
        numbers = range(int(first), int(last or first) + 1, int(step or 1) or 1)
        found += (f"{match[1]}_{number}" for number in numbers[: _MOST_TASKS - len(found)])
    return found or [shown]


def _rows(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        fields = line.split("|", len(_NAMES) - 1)
        if len(fields) == len(_NAMES):
            yield fields


def _step(row: Mapping[str, str]) -> StepUse:
    use = _GPU_USE.search(row["TRESUsageInAve"])
    return StepUse(
        row["JobIDRaw"].partition(".")[2],
        State.read(row["State"]),
        row["ExitCode"],
        whole_number(row["NTasks"]),
        row["NodeList"],
        whole_number(row["AllocCPUS"]),
        whole_number(row["ElapsedRaw"]),
        cpu_seconds(row["TotalCPU"]),
        mib(row["MaxRSS"]),
        row["MaxRSSNode"],
        row["MaxRSSTask"],
        mib(row["AveRSS"]),
        float(use[1]) if use else None,
        measured_joules([row["ConsumedEnergyRaw"]]),
    )
