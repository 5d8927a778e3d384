"""From a scheduler's name to the scheduler; only the one that is named is loaded."""

from __future__ import annotations

from notebook_launcher.core.errors import SchedulerMissing
from notebook_launcher.schedulers.base import Scheduler
from notebook_launcher.schedulers.user_jobs import UserJobs


def make_scheduler(name: str, root: str) -> Scheduler:
    """Return the scheduler of that name; ``root``: where the sessions are. Raises ``SchedulerMissing``."""
    if name == "local":
        from notebook_launcher.schedulers.local import Local

        return Local(root)
    if name in ("slurm", "auto"):
        from notebook_launcher.schedulers.slurm.commands import Slurm

        return Slurm()
    if name == "lsf":
        from notebook_launcher.schedulers.lsf.commands import Lsf

        return Lsf()
    raise SchedulerMissing(
        f"This version does not support the scheduler “{name}”.", hint="check for a newer version of launch-notebook"
    )


def make_user_jobs(scheduler: Scheduler) -> UserJobs | None:
    """Return what lists the jobs of several users; ``None``: with this scheduler, nothing does."""
    from notebook_launcher.schedulers.slurm.user_jobs import SlurmUserJobs  # of a teacher's commands only

    return SlurmUserJobs() if scheduler.name == "slurm" else None
