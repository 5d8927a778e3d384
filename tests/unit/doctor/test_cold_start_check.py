"""Whether an environment of many files starts slowly from where it is."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.check_runner import CheckRunner
from notebook_launcher.core.request import Request
from notebook_launcher.doctor.checks.cold_start import assess_cold_start, check_cold_start
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.planning.plan import Plan
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles.models import ClusterProfile, Environment
from notebook_launcher.session.record import Site
from tests.doubles import RecordingView


def checked(home: Path, environment: Environment, container: str | None = None) -> list[events.CheckResult]:
    plan = Plan(LaunchTarget(ClusterProfile(), None, None, "local"), Request({}), "e", environment, container)
    view = RecordingView()
    site = Site(str(home), "alice", "login", datetime.now(timezone.utc))
    check_cold_start(CheckRunner(view), LocalHost(), plan, site)
    return [event for event in view.events if isinstance(event, events.CheckResult)]


def test_a_folder_is_measured_and_an_image_in_one_file_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "env" / "lib"
    folder.mkdir(parents=True)
    for number in range(800):
        (folder / f"{number}.py").touch()
    (found,) = checked(tmp_path, Environment(venv="~/env"))
    assert (found.check, found.result) == ("cold start", "ok")
    assert found.found.startswith(f"opening a file in {tmp_path}/env takes ")
    (found,) = checked(tmp_path, Environment(uv="~/nowhere"))
    assert found.result == "unknown"
    assert checked(tmp_path, Environment(conda="by-name")) == []
    assert checked(tmp_path, Environment(venv="/in/it"), "/proj/torch.sif") == []


@pytest.mark.parametrize(
    ("milliseconds", "staged", "result", "text"),
    [
        (0.03, False, "ok", "would hardly be worth it"),
        (0.03, True, "ok", "is hardly worth it"),
        (4.2, True, "ok", "is worth it"),
        (4.2, False, "warning", "takes 4.2 ms on the login node, 3000 take 13 s, so JupyterLab starts slowly."),
    ],
)
def test_what_follows(milliseconds: float, staged: bool, result: str, text: str) -> None:
    found = assess_cold_start("/proj/env", milliseconds, staged=staged)
    assert found.result == result
    assert text in found.found
    assert ("stage = true" in found.hint) == (result == "warning")
