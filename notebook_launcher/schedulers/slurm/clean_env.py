"""Slurm's commands without the effects of variables in a user's start-up files.

A variable such as ``SQUEUE_PARTITION`` acts like the flag of that name: rows are left out, and a running job seems to
be gone; with ``SCANCEL_STATE``, running jobs may not be cancelled. So the variables are removed that change which rows
are printed, how they are formatted, or which jobs are selected (ENVIRONMENT VARIABLES in the manuals of squeue, sacct,
scontrol and scancel). ``SQUEUE_ALL`` and ``SCONTROL_ALL`` stay: they only add rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from notebook_launcher.core.bash_options import PLAIN_BASH

_REMOVED = {
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
# the clusters that Slurm's commands use without -M
_CLUSTERS = "SLURM_CLUSTERS"
# with the time zone: a TZ in a start-up file changes the times that Slurm prints
_TIMES = "SLURM_TIME_FORMAT=%Y-%m-%dT%H:%M:%S%z"


def with_clean_env(command: Sequence[str], *more: str, of_a_job: bool = False) -> list[str]:
    """Return a command that prints what its flags request and nothing else, with times in ISO format with their zone.

    ``more``: variables to set (``NAME=value``). ``of_a_job``: the command is about a job on a known cluster, which is
    the local one if the command names none; other commands use the cluster that the user's submissions go to.
    """
    removed = [*_REMOVED.get(command[0], ()), *([_CLUSTERS] if of_a_job else [])]
    return ["env", *(word for name in removed for word in ("-u", name)), _TIMES, *more, *command]


# srun also reads nearly all of its flags from SLURM_* and SRUN_*, and a shell inside a job has dozens of the former
_OF_NO_JOB = PLAIN_BASH + (
    "for name in $(compgen -v SLURM_; compgen -v SRUN_); do "
    'case $name in SLURM_CONF | SLURM_CONF_SERVER | SLURM_JWT) ;; *) unset "$name" ;; esac; done; exec "$@"'
)


def without_job_variables(command: Sequence[str]) -> list[str]:
    """Return a command that runs without Slurm's variables, except those for its configuration and authentication."""
    return ["bash", "-c", _OF_NO_JOB, "of-no-job", *command]


def on_cluster(cluster: str | None) -> list[str]:
    """Return the flag that sends a command to another cluster (``-M``); an empty list for the local one."""
    return [f"--clusters={cluster}"] if cluster else []
