"""What a launch writes into the session's directory."""

from __future__ import annotations

import contextlib
import dataclasses
from datetime import datetime, timezone
from pathlib import Path

import pytest

from notebook_launcher import launch as launch_module
from notebook_launcher.core.errors import ImageNotMade, UsageError, WalltimeRefused
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.request import Request
from notebook_launcher.hosts.ssh_config import Destination
from notebook_launcher.launch import Payload, dry_run, launch, session_env, software_note
from notebook_launcher.planning.plan import Plan
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles import ClusterProfile, Environment
from notebook_launcher.schedulers.local import Local
from notebook_launcher.schedulers.slurm.commands import Slurm
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Site
from tests.doubles import FakePrompts, RecordingView


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


def test_a_place_that_is_not_there_is_refused_before_an_image_is_built_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch = Environment(container=str(tmp_path / "torch.sif"), definition="torch")
    target = LaunchTarget(ClusterProfile(session_root=str(tmp_path / "sessions")), "u", None, "local")
    plan = Plan(target, Request({}), "torch", torch, torch.container, open_at="nowhere")
    offered = []

    def offer(offered_for: Plan, _context: Context) -> bool:
        offered.append(offered_for)
        return False

    with pytest.raises(UsageError, match="no nowhere in"):
        launch(plan, RecordingView(), FakePrompts(), Interrupts(), offer)
    assert not offered
    with pytest.raises(ImageNotMade):
        launch(dataclasses.replace(plan, open_at="."), RecordingView(), FakePrompts(), Interrupts(), offer)
    assert offered


@pytest.mark.parametrize("refused", [True, False])
def test_a_launch_says_when_its_job_is_queued_and_not_when_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    def queue(*_arguments: object, **_named: object) -> object:
        if refused:
            raise WalltimeRefused("too long")
        return None, None

    class Queued(Exception):
        pass

    def stop() -> None:
        raise Queued

    monkeypatch.setattr(launch_module, "queue_session", queue)
    monkeypatch.setattr("notebook_launcher.jobs.cancel.cancelled_on_failure", lambda *_: contextlib.nullcontext())
    target = LaunchTarget(ClusterProfile(session_root=str(tmp_path / "sessions")), "u", None, "local")
    plan = Plan(target, Request({}), None, Environment(), None)
    with pytest.raises(WalltimeRefused if refused else Queued):
        launch(plan, RecordingView(), FakePrompts(), Interrupts(), job_queued=stop)


@pytest.mark.parametrize(
    ("fast", "program", "said"), [(True, "jupyterlab", 0), (False, "jupyterlab", 1), (False, "notebook", 1)]
)
def test_a_profile_can_have_a_program_start_with_everything(fast: bool, program: str, said: int) -> None:
    target = LaunchTarget(ClusterProfile(fast_start=fast), None, None, "slurm")
    plan = Plan(target, Request({}), "plain", Environment(), None)
    site = Site("/home/alice", "alice", "login", datetime.now(timezone.utc))
    assert session_env(plan, Slurm(), site, Payload(program=program)).splitlines().count("fast_start=no") == said


@pytest.mark.parametrize(("panel", "said"), [(True, 0), (False, 1)])
def test_a_session_can_go_without_a_panel(panel: bool, said: int) -> None:
    plan = Plan(
        LaunchTarget(ClusterProfile(), None, None, "slurm"), Request({}), None, Environment(), None, panel=panel
    )
    site = Site("/home/alice", "alice", "login", datetime.now(timezone.utc))
    assert session_env(plan, Slurm(), site).splitlines().count("panel=no") == said


def test_workers_are_asked_for_in_a_session_of_each_kind() -> None:
    plan = Plan(LaunchTarget(ClusterProfile(), None, None, "slurm"), Request({}), "plain", Environment(), None)
    site = Site("/home/alice", "alice", "login", datetime.now(timezone.utc))
    for program in ("jupyterlab", "notebook"):
        asked = session_env(dataclasses.replace(plan, distributed="dask"), Slurm(), site, Payload(program=program))
        assert "with=dask" in asked.splitlines()
        assert "with=" not in session_env(plan, Slurm(), site, Payload(program=program))


@pytest.mark.parametrize(("profile", "environment", "said"), [(True, None, 3), (True, False, 0), (False, True, 3)])
def test_an_environment_is_staged_as_it_says_itself_or_as_the_profile_says(
    profile: bool, environment: bool | None, said: int
) -> None:
    cluster = ClusterProfile(stage=profile, stage_dir="/scratch/$USER", stage_limit=9)
    plan = Plan(LaunchTarget(cluster, None, None, "slurm"), Request({}), "plain", Environment(stage=environment), None)
    site = Site("/home/alice", "alice", "login", datetime.now(timezone.utc))
    lines = session_env(plan, Slurm(), site, Payload(program="notebook")).splitlines()
    assert len({"stage=yes", "stage_dir=/scratch/alice", "stage_limit=9"} & set(lines)) == said
