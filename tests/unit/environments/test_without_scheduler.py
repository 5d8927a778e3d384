"""A host without a supported scheduler: what is meant for a job does not run on its login node instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from notebook_launcher.core.errors import SchedulerMissing
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.request import Request
from notebook_launcher.environments import create, images
from notebook_launcher.environments.check import check_environment
from notebook_launcher.environments.create import NewEnvironment, create_environment
from notebook_launcher.environments.images import Machine, Recipe, make_image
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.planning.plan import Plan
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles import ClusterProfile, Environment
from notebook_launcher.session import open_context as opening
from tests.doubles import FakePrompts, RecordingView


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A plan for a host on which a scheduler is looked for in vain."""

    def missing(_host: LocalHost, _target: LaunchTarget) -> str:
        raise SchedulerMissing("None of Slurm and LSF was found on login.")

    monkeypatch.setattr(opening, "find_scheduler", missing)
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path / "config"))
    (tmp_path / "requirements.txt").write_text("numpy\n")
    target = LaunchTarget(ClusterProfile(session_root=str(tmp_path / "sessions")), None, None, "auto")
    return Plan(target, Request({}), None, Environment(), None)


def checks(plan: Plan, tmp_path: Path) -> None:
    check_environment(plan, RecordingView(), FakePrompts(), Interrupts(), node=True)


def creates(plan: Plan, tmp_path: Path) -> None:
    new = NewEnvironment(tmp_path / "requirements.txt", "new", venv=str(tmp_path / "new"))
    create_environment(plan, new, RecordingView(), FakePrompts(), Interrupts(), job=True)


def makes(plan: Plan, tmp_path: Path, machine: Machine = "job") -> None:
    recipe = Recipe("docker://example/x:1", str(tmp_path / "x.sif"))
    make_image(plan, recipe, machine, RecordingView(), FakePrompts(), Interrupts())


@pytest.mark.parametrize("command", [checks, creates, makes])
def test_what_is_meant_for_a_job_is_refused(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[[Plan, Path], None]
) -> None:
    monkeypatch.setattr(create, "_profile_name", lambda _target: "uni")
    with pytest.raises(SchedulerMissing):
        command(plan, tmp_path)
    assert not (tmp_path / "sessions").exists()


@pytest.mark.parametrize("machine", ["login", "here"])
def test_an_image_is_made_there_if_that_is_requested(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Machine
) -> None:
    made = {"digest": "sha256:" + "0" * 64, "bytes": 1}
    monkeypatch.setattr(images, "_run_image_script", lambda *_: made)
    makes(plan, tmp_path, machine)
