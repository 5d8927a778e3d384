"""What the steps of a running job use, as reported by ``sstat`` (its manual, 22.05 and newer).

sstat queries the node daemons, and works only where the site gathers accounting data; it has no ``-M`` for other
clusters.
"""

from __future__ import annotations

import re

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.text import whole_number
from notebook_launcher.schedulers.base import JobRef, StepSample
from notebook_launcher.schedulers.slurm.accounting import cpu_seconds, mib
from notebook_launcher.schedulers.slurm.clean_env import with_clean_env

_FIELDS = (
    *("JobID", "NTasks", "Nodelist", "AveCPU", "MinCPU", "MinCPUNode", "MinCPUTask"),
    *("MaxRSS", "MaxRSSNode", "MaxRSSTask", "TRESUsageInAve"),
)
_GPU_USE = re.compile(r"(?:^|,)gres/gpuutil=(\d{1,9})(?:,|$)", re.A)
_MOST_STEPS = 50  # the most steps that are kept


def steps_command(job: JobRef) -> list[str] | None:
    """Return ``sstat`` for all steps of a job; ``None`` if the job is on another cluster."""
    if job.cluster:
        return None
    words = ["--allsteps", "--noheader", "--parsable2", "--noconvert", f"--jobs={job.id}"]
    return with_clean_env(["sstat", *words, f"--format={','.join(_FIELDS)}"], of_a_job=True)


def parse_steps(job: JobRef, answer: CommandResult) -> tuple[StepSample, ...]:
    """Return the current steps, without ``extern``; none if sstat does not answer."""
    rows = (line.split("|") for line in answer.stdout.splitlines()) if answer.exit_code == 0 else ()
    found = []
    for row in rows:
        of = dict(zip(_FIELDS, row, strict=False))
        number, dot, step = of["JobID"].partition(".")
        if len(row) != len(_FIELDS) or number != job.id or not dot or step == "extern":
            continue
        use = _GPU_USE.search(of["TRESUsageInAve"])
        found.append(
            StepSample(
                name=step,
                tasks=whole_number(of["NTasks"]),
                nodes=of["Nodelist"],
                cpu_mean=cpu_seconds(of["AveCPU"]),
                cpu_least=cpu_seconds(of["MinCPU"]),
                least_task=of["MinCPUTask"],
                least_node=of["MinCPUNode"],
                memory_peak=mib(of["MaxRSS"]),
                memory_task=of["MaxRSSTask"],
                memory_node=of["MaxRSSNode"],
                gpu_percent=float(use[1]) if use else None,
            )
        )
    return tuple(found[:_MOST_STEPS])
