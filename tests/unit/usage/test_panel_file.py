"""What a launch tells the panel in JupyterLab's page."""

from __future__ import annotations

import json
from datetime import datetime, timezone

from notebook_launcher.core.request import Request
from notebook_launcher.planning.plan import Plan
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles import ClusterProfile, Environment
from notebook_launcher.profiles.models import Price
from notebook_launcher.schedulers.base import Scheduler
from notebook_launcher.schedulers.local import Local
from notebook_launcher.schedulers.slurm.commands import Slurm
from notebook_launcher.session.record import new_session
from notebook_launcher.usage.panel_file import panel_file

PRICED = ClusterProfile(price=Price(unit="SEK", gpu_hour=3.5))
FLAGS: dict[str, str | None] = {"time": "2:00:00", "gpus": "2", "cpus-per-task": "4", "mem": "8G"}


def told(profile: ClusterProfile, flags: dict[str, str | None], scheduler: Scheduler) -> dict[str, object]:
    """Return what is told of a launch, without the session's name, which is another one each time."""
    plan = Plan(
        LaunchTarget(profile, "my cluster", None, "slurm", is_default=True), Request(flags), None, Environment(), None
    )
    now = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
    session = new_session(
        "/s", plan.request, scheduler=scheduler.name, cluster=None, host=None, environment=None, now=now
    )
    content = panel_file(plan, scheduler, session)
    assert content.count(b"\n") == 1
    return dict(json.loads(content.decode().replace(session.id, "NAME")))


def test_the_request_its_price_and_commands_that_work_wherever_the_cluster_is_known() -> None:
    assert told(PRICED, FLAGS, Slurm()) == {
        "version": 1,
        "walltime_seconds": 7200,
        "cores": 4,
        "memory_mib": 8192,
        "price_per_hour": 7.0,
        "unit": "SEK",
        "connect": "launch-notebook connect --cluster 'my cluster' NAME",
        "renew": "launch-notebook renew --cluster 'my cluster' NAME",
        "bill": "launch-notebook bill --cluster 'my cluster' NAME",
    }


def test_what_is_not_known_is_not_told() -> None:
    assert {"walltime_seconds", "price_per_hour"}.isdisjoint(told(PRICED, {**FLAGS, "time": "UNLIMITED"}, Slurm()))
    assert "memory_mib" not in told(ClusterProfile(), {"time": "30"}, Slurm())
    # this machine keeps a job from nothing
    assert {"cores", "memory_mib", "price_per_hour"}.isdisjoint(told(PRICED, FLAGS, Local("/s")))
