"""notebooks/timing.py compared with PyTorch's own timer, in a job in the bundled image with PyTorch."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.conftest import assert_nothing_left
from tests.paths import ROOT
from tests.practice_cluster import PracticeCluster
from tests.practice_cluster.bundled_images import provide_image

CHECKOUT = ROOT
FILES = (CHECKOUT / "notebooks" / "timing.py", CHECKOUT / "benchmarks" / "timing_against_torch.py")
PYTHON = "/opt/torch/bin/python3"


@pytest.fixture
def folder(cluster: PracticeCluster) -> str:
    """A folder of alice's with the module and the program that compares it."""
    made = cluster.run("login", "alice", ["sh", "-c", "rm -rf ~/timing; mkdir ~/timing; echo ~/timing"]).stdout.strip()
    for path in FILES:
        put = cluster.argv("login", "alice", ["tee", f"{made}/{path.name}"])
        subprocess.run(put, input=path.read_bytes(), stdout=subprocess.DEVNULL, check=True)
    return str(made)


def run_in_job(cluster: PracticeCluster, folder: str, *argv: str, timeout: float) -> str:
    """Run Python in the image, as a job of one core, and return what it printed."""
    image = provide_image(cluster, "torch-cpu")
    job = ["srun", "-A", "proj1", "-c1", "-t15", f"--chdir={folder}", "apptainer", "exec", image, PYTHON, *argv]
    done = subprocess.run(
        cluster.argv("login", "alice", job), capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(900)  # the image may have to be built
def test_every_workload_takes_about_as_long_by_pytorchs_timer(cluster: PracticeCluster, folder: str) -> None:
    """The limit of 50 % finds wrong units; on an idle machine, the benchmark shows how close the timers are."""
    few = ("--rounds", "4", "4", "--limit", "0.5")
    printed = run_in_job(cluster, folder, "timing_against_torch.py", *few, folder, timeout=700)
    assert "10 workloads, medians within 50 %" in printed
    assert re.search(r"An empty call takes [\d.]+ ns by measure", printed)
    assert_nothing_left(cluster)
