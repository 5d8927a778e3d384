"""Slurm's commands without what a user's start-up files make of them.

A variable such as ``SQUEUE_PARTITION`` counts like the flag of that name: rows are left out, and a job that runs looks
as if it were gone; with ``SCANCEL_STATE`` no running job is cancelled. Those are taken away that change which rows
there are, how they are written, or which jobs are meant, by the manuals of squeue, sacct, scontrol and scancel,
ENVIRONMENT VARIABLES. ``SQUEUE_ALL`` and ``SCONTROL_ALL`` stay: they only add rows.
"""

from __future__ import annotations

from collections.abc import Sequence

_TAKEN_AWAY = {
    "squeue": (
        *(f"SQUEUE_{what}" for what in ("ACCOUNT", "LICENSES", "NAMES", "PARTITION", "QOS", "STATES", "USERS")),
        *(f"SQUEUE_{how}" for how in ("ARRAY", "FORMAT", "FORMAT2", "PRIORITY", "SORT")),
        *(f"SQUEUE_{where}" for where in ("FEDERATION", "LOCAL", "SIB", "SIBLING")),
    ),
    "sacct": ("SACCT_FEDERATION", "SACCT_FORMAT", "SACCT_LOCAL"),
    "scancel": (
        *(f"SCANCEL_{which}" for which in ("ACCOUNT", "NAME", "PARTITION", "QOS", "STATE", "USER", "WCKEY")),
        *(f"SCANCEL_{how}" for how in ("BATCH", "CRON", "CTLD", "FULL", "HURRY", "INTERACTIVE")),
    ),
    "scontrol": (
        "SCONTROL_FEDERATION",
        "SCONTROL_FUTURE",
        "SCONTROL_LOCAL",
        "SCONTROL_SIB",
        "SCONTROL_SIBLING",
    ),
}
# where Slurm's commands go without -M
_ELSEWHERE = "SLURM_CLUSTERS"
# with the zone: a TZ in a start-up file is Slurm's clock, and not that of other commands
_TIMES = "SLURM_TIME_FORMAT=%Y-%m-%dT%H:%M:%S%z"


def plain(command: Sequence[str], *more: str, of_a_job: bool = False) -> list[str]:
    """Return a command that prints what its flags ask for and nothing else, times as ISO with their zone.

    ``more``: variables that it needs (``NAME=value``). ``of_a_job``: it is about a job whose cluster is known, which is
    this one where the command names none; any other goes where the user's submissions go.
    """
    taken = [*_TAKEN_AWAY.get(command[0], ()), *([_ELSEWHERE] if of_a_job else [])]
    return ["env", *(word for name in taken for word in ("-u", name)), _TIMES, *more, *command]


# srun takes nearly all of its flags from SLURM_* and SRUN_* as well, and a shell within a job has dozens of the former
_OF_NO_JOB = (
    "for name in $(compgen -v SLURM_; compgen -v SRUN_); do "
    'case $name in SLURM_CONF | SLURM_CONF_SERVER | SLURM_JWT) ;; *) unset "$name" ;; esac; done; exec "$@"'
)


def of_no_job(command: Sequence[str]) -> list[str]:
    """Return a command that takes nothing from Slurm's variables but where the cluster is and who one is."""
    return ["bash", "-c", _OF_NO_JOB, "of-no-job", *command]


def on_cluster(cluster: str | None) -> list[str]:
    """Return the flag that sends a command to another cluster, as ``-M`` does; none for the own one."""
    return [f"--clusters={cluster}"] if cluster else []
