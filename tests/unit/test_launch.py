"""What a launch writes into the session's directory."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from notebook_launcher.core.request import Request
from notebook_launcher.launch import Payload, session_env
from notebook_launcher.planning.plan import Plan
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles import ClusterProfile, Environment
from notebook_launcher.schedulers.slurm.commands import Slurm
from notebook_launcher.session.record import Site


@pytest.mark.parametrize(
    ("fast", "program", "said"), [(True, "jupyterlab", 0), (False, "jupyterlab", 1), (False, "notebook", 0)]
)
def test_a_profile_can_have_jupyterlab_start_with_everything(fast: bool, program: str, said: int) -> None:
    target = LaunchTarget(ClusterProfile(fast_start=fast), None, None, "slurm")
    plan = Plan(target, Request({}), "plain", Environment(), None)
    site = Site("/home/alice", "alice", "login", datetime.now(timezone.utc))
    assert session_env(plan, Slurm(), site, Payload(program=program)).splitlines().count("fast_start=no") == said
