"""What a launch writes into the session's directory."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from notebook_launcher.core.request import Request
from notebook_launcher.hosts.ssh_config import Destination
from notebook_launcher.launch import Payload, dry_run, session_env, software_note
from notebook_launcher.planning.plan import Plan
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles import ClusterProfile, Environment
from notebook_launcher.schedulers.local import Local
from notebook_launcher.schedulers.slurm.commands import Slurm
from notebook_launcher.session.record import Site
from tests.doubles import RecordingView


@pytest.mark.parametrize(
    ("name", "environment", "said"),
    [
        (
            "torch",
            Environment(container="x.sif", definition="torch"),
            "\n  launch-notebook image build torch --clu",
        ),
        (None, Environment(), "No software was named, so JupyterLab starts only if"),
        ("conda", Environment(conda="mine"), None),
        ("image", Environment(container="/sw/x.sif"), None),
    ],
)
def test_a_dry_run_says_when_there_would_be_no_jupyterlab(
    name: str | None, environment: Environment, said: str | None
) -> None:
    target = LaunchTarget(ClusterProfile(environments={"torch": Environment()}), "u", Destination("login"), "slurm")
    plan = Plan(target, Request({}), name, environment, environment.container)
    view = RecordingView()
    dry_run(plan, view)
    assert (said in view.notes) if said else not view.notes
    assert software_note(plan, Local("/s")) is None  # that is this machine, whose JupyterLab is the launcher's


@pytest.mark.parametrize(
    ("fast", "program", "said"), [(True, "jupyterlab", 0), (False, "jupyterlab", 1), (False, "notebook", 0)]
)
def test_a_profile_can_have_jupyterlab_start_with_everything(fast: bool, program: str, said: int) -> None:
    target = LaunchTarget(ClusterProfile(fast_start=fast), None, None, "slurm")
    plan = Plan(target, Request({}), "plain", Environment(), None)
    site = Site("/home/alice", "alice", "login", datetime.now(timezone.utc))
    assert session_env(plan, Slurm(), site, Payload(program=program)).splitlines().count("fast_start=no") == said
