"""Makes a scheduler from its name; only the modules of that scheduler are imported."""

from __future__ import annotations

from collections.abc import Mapping

from notebook_launcher.core.errors import SchedulerMissing
from notebook_launcher.schedulers.base import Scheduler
from notebook_launcher.schedulers.user_jobs import UserJobs


def make_scheduler(name: str, root: str, options: Mapping[str, str] | None = None) -> Scheduler:
    """Return the scheduler of that name; ``root``: the directory of the sessions.

    ``options``: a profile's ``scheduler_options``, which only submissions need. Raises ``SchedulerMissing`` for an
    unknown name, and ``ProfileError`` for an option that the scheduler does not have.
    """
    scheduler = _made(name, root)
    if options:
        scheduler.configure(options)
    return scheduler


def _made(name: str, root: str) -> Scheduler:
    if name == "local":
        from notebook_launcher.schedulers.local import Local

        return Local(root)
    if name in ("slurm", "auto"):
        from notebook_launcher.schedulers.slurm.commands import Slurm

        return Slurm()
    if name == "lsf":
        from notebook_launcher.schedulers.lsf.commands import Lsf

        return Lsf()
    if name == "pbs":
        from notebook_launcher.schedulers.pbs.commands import Pbs

        return Pbs()
    if name == "gridengine":
        from notebook_launcher.schedulers.gridengine.commands import GridEngine

        return GridEngine()
    raise SchedulerMissing(
        f"This version does not support the scheduler “{name}”.", hint="check for a newer version of launch-notebook"
    )


def make_user_jobs(scheduler: Scheduler) -> UserJobs | None:
    """Return the object that lists the jobs of several users; ``None``: this scheduler has none."""
    from notebook_launcher.schedulers.slurm.user_jobs import SlurmUserJobs  # only teachers' commands need it

    return SlurmUserJobs() if scheduler.name == "slurm" else None
