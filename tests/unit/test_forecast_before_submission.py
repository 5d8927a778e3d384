"""``when`` and ``queue`` where no start is estimated before a job is queued, with doubles of LSF's commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from notebook_launcher.cli.app import run
from notebook_launcher.core import errors
from tests.unit.schedulers.test_lsf_cluster_info import GPUS, GROUPS, HOSTS, QUEUES

Told = Callable[..., tuple[int, str]]


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Told:
    """Run a command on a login node of LSF; its exit code and what it printed."""
    config = tmp_path / "config"
    (config / "clusters").mkdir(parents=True)
    (config / "clusters" / "mine.toml").write_text('host = "login1"\nlogin_nodes = ["*"]\nscheduler = "lsf"\n')
    for name, text in (
        ("bqueues", QUEUES.replace("Open:Inact_Adm ", "Open:Active    ")),
        ("bhosts", f"case $* in *gpu*) cat <<'.'\n{GPUS}.\n;; *) cat <<'.'\n{HOSTS}.\n;; esac"),
        ("bmgroup", GROUPS),
        ("bjobs", "7^bob^gpuv100^4\n"),
        ("bsub", ""),
    ):
        path = tmp_path / name
        path.write_text("#!/bin/sh\n" + (text if text.startswith("case") else f"cat <<'.'\n{text}.\n"))
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(config))
    monkeypatch.setenv("COLUMNS", "80")

    def call(*words: str) -> tuple[int, str]:
        code = run([*words, "--cluster", "mine"])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return call


def test_what_is_free_is_told_and_no_time_is_made_of_it(told: Told) -> None:
    code, text = told("when", "-t", "2:00:00", "-p", "hpc", "-c", "8")
    assert code == 0, text
    assert "LSF estimates the start of a job only once it is queued" in text
    assert "At the moment, 1 of 2 nodes in partition hpc has 8 free cores, and no job is waiting." in text
    code, text = told("when", "-t", "2:00:00", "-p", "gpuv100", "--gpus", "1", "--json")
    (forecast,) = [one for one in map(json.loads, text.splitlines()) if one["event"] == "forecast"]
    assert code == 0 and forecast["start"] is None
    assert "none of 2 nodes in partition gpuv100 have" in forecast["delayed_by"]
    assert forecast["delayed_by"].endswith("and 1 job is waiting.")


def test_what_a_queue_does_not_allow_is_a_refusal(told: Told) -> None:
    code, text = told("when", "-t", "48:00:00", "-p", "gpuv100")
    assert code == errors.WalltimeRefused.exit_code and "longer than" in text and "-t 1-00:00:00" in text, text
    code, text = told("when", "-t", "1:00:00", "-p", "gpu100")
    assert code == errors.PartitionRefused.exit_code and "The partitions are: gpuv100, hpc" in text, text


def test_the_queue(told: Told) -> None:
    code, text = told("queue")
    assert code == 0 and "hpc (default)" in text and "Waiting: 1 job, none of them yours." in text, text
