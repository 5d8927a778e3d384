"""Checks of environments and images, as far as the login node sees them."""

from __future__ import annotations

import os
import subprocess
from datetime import datetime, timezone
from pathlib import Path

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.check_runner import CheckRunner
from notebook_launcher.core.request import Request
from notebook_launcher.diagnosis.image_check import INSPECT_IMAGE, Image, Step, assess_image, read_image
from notebook_launcher.doctor.bounded_command import run_bounded
from notebook_launcher.doctor.checks import software
from notebook_launcher.doctor.checks.software import check_environment, check_image
from notebook_launcher.doctor.findings import assess_for_others
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.launch import session_env
from notebook_launcher.planning.plan import Plan
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles.models import ClusterProfile, Environment
from notebook_launcher.schedulers.local import Local
from notebook_launcher.session.record import Site, inspect_host
from tests.doubles import RecordingView
from tests.unit.doctor.check_results import results


@pytest.mark.real_time
def test_an_environment_that_hangs_is_ended_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "ENTER_TIMEOUT", 1.0)
    target = LaunchTarget(ClusterProfile(), None, None, "local")
    plan = Plan(target, Request({}), "slow", Environment(activate="sleep 987.25"), None)
    shown = RecordingView()
    old = tmp_path / ".checkup-1-old"
    old.mkdir()
    os.utime(old, (0, 0))
    host = LocalHost()
    check_environment(
        CheckRunner(shown),
        host,
        plan,
        str(tmp_path),
        lambda: session_env(plan, Local(str(tmp_path)), inspect_host(host)),
        checks_node=False,
    )
    assert results(shown) == {"environment": "warning"}
    assert "1 s" in shown.events[-1].found and "doctor --node" in shown.events[-1].hint  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == [], "what a killed checkup left goes as well"
    assert subprocess.run(["pgrep", "-f", "sleep 987[.]25"], capture_output=True).returncode == 1


def test_a_bounded_command_returns_its_output_and_exit_code() -> None:
    script = "echo out; echo err >&2; exit 3"
    code, lines = run_bounded(LocalHost(), ["sh", "-c", script], 10)
    assert (code, sorted(filter(None, lines))) == (3, ["err", "out"])


def look_at_image(path: Path | str, folder: Path) -> Image:
    words = ["sh", "-s", "--", str(path)]
    told = subprocess.run(words, input=INSPECT_IMAGE, text=True, capture_output=True, check=True, cwd=folder)
    return read_image(str(path), told.stdout)


def test_an_image_is_known_by_its_beginning(tmp_path: Path) -> None:
    (tmp_path / "good.sif").write_bytes(b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\00001\0")
    (tmp_path / "bad.sif").write_text("Bootstrap: docker\n")
    (tmp_path / "it is.sqsh").write_bytes(b"hsqs\0\0")
    (tmp_path / "folder").mkdir()
    kinds = [look_at_image(tmp_path / name, tmp_path).kind for name in ("good.sif", "bad.sif", "it is.sqsh", "folder")]
    assert kinds == ["sif", "other", "squashfs", "folder"]
    assert assess_image(look_at_image("good.sif", tmp_path)).result == "ok"
    assert assess_image(look_at_image(tmp_path / "bad.sif", tmp_path)).result == "fault"


def test_the_way_to_an_image_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    found = assess_image(look_at_image(tmp_path / "images/2026/tf.sif", tmp_path))
    assert found.result == "fault" and found.found.endswith(f"path exists only as far as {tmp_path}/images.")


def test_an_image_with_a_name_like_it_is_offered(tmp_path: Path) -> None:
    (tmp_path / "jupyterlab.sif").touch()
    found = assess_image(look_at_image(tmp_path / "jupyterlabb.sif", tmp_path))
    assert found.hint.startswith(f"did you mean {tmp_path}/jupyterlab.sif?")
    assert assess_image(look_at_image("jupyterlabb.sif", tmp_path)).hint.startswith("did you mean")
    assert assess_image(look_at_image(tmp_path / "quite-another", tmp_path)).hint.startswith(f"see: ls {tmp_path}")


def test_the_folder_that_keeps_a_user_out_is_named() -> None:
    steps = (Step("/proj", "drwxr-xr-x", "root", "root"), Step("/proj/lab", "drwxr-x---", "eva", "lab", enters=False))
    found = assess_image(Image("/proj/lab/tf.sif", "unknown", None, steps))
    assert found.found.startswith("You may not enter /proj/lab, where") and "ask eva" in found.hint


@pytest.mark.parametrize(
    ("folder", "image", "result", "hint"),
    [
        ("drwxr-xr-x", "-rw-r--r--", "ok", ""),
        ("drwx--x--x", "-r--r--r--", "ok", ""),
        ("drwxr-x---", "-rw-r--r--", "warning", "getent group lab"),
        ("drwx------", "-rw-r--r--", "fault", "chmod a+x /proj/lab"),
        ("drwxr-xr-x", "-rw-------", "fault", "chmod a+r /proj/lab/tf.sif"),
        ("drwxr-x---+", "-rw-r--r--", "unknown", "getfacl /proj/lab"),
    ],
)
def test_whether_a_whole_course_can_read_an_image(folder: str, image: str, result: str, hint: str) -> None:
    steps = (Step("/proj/lab", folder, "eva", "lab"), Step("/proj/lab/tf.sif", image, "eva", "lab"))
    found = assess_for_others(Image("/proj/lab/tf.sif", "sif", 1, steps))
    assert found.result == result and hint in found.hint


def test_an_image_that_the_user_can_make_is_told_how(tmp_path: Path) -> None:
    environment = Environment(container="~/torch.sif", definition="torch")
    target = LaunchTarget(ClusterProfile(), "uni", None, "slurm")
    plan = Plan(target, Request({}), "torch", environment, "~/torch.sif")
    view = RecordingView()
    site = Site(str(tmp_path), "alice", "login", datetime.now(timezone.utc))
    check_image(CheckRunner(view), LocalHost(), plan, site, for_others=False)
    assert view.one(events.CheckResult).hint == "build it once with: launch-notebook image build torch --cluster uni"
