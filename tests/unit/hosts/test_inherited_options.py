"""What the launcher sends to bash, where BASH_ENV sets every option that could be in the way."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from notebook_launcher.core.errors import FolderUnsafe
from notebook_launcher.doctor.bounded_command import run_bounded
from notebook_launcher.hosts.commands import bound_to_stdin
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.jobs import follow
from notebook_launcher.notebook import deploy
from notebook_launcher.schedulers import missing
from notebook_launcher.schedulers.slurm.clean_env import without_job_variables
from notebook_launcher.usage import cost_estimate

pytestmark = pytest.mark.real_time


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalHost:
    (tmp_path / "bash_env").write_text("set -Ceuf +B\nshopt -s failglob nocasematch\nIFS=/_S\numask 000\n")
    monkeypatch.setenv("BASH_ENV", str(tmp_path / "bash_env"))
    return LocalHost()


def test_a_command_that_fails_is_reported_with_its_exit_code(host: LocalHost) -> None:
    code, lines = run_bounded(host, ["sh", "-c", "echo out; exit 3"], 10)
    assert (code, [line for line in lines if line]) == (3, ["out"])


def test_no_variable_of_a_job_is_left(host: LocalHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SRUN_CPUS", "7")
    assert "S" in (answer := host.run(without_job_variables(["env"]))).stdout
    assert "SLURM_JOB_ID" not in answer.stdout and "SRUN_CPUS" not in answer.stdout


def test_schedulers_are_found(host: LocalHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "qsub").write_text("#!/bin/sh\n")
    (tmp_path / "qsub").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert "qsub" in missing.read_found(host.run(["bash", "-c", missing.FIND_SCHEDULERS]).stdout)[0]


def test_files_are_read_and_written(host: LocalHost, tmp_path: Path) -> None:
    folder = tmp_path / "notebooks_S"
    there, _ = deploy._inspect(host, str(folder), str(tmp_path / "record"), ["a.ipynb"])
    assert there == {"a.ipynb": ""}
    move = deploy.FileWrite("a.ipynb", "a.ipynb")
    assert deploy._write(host, str(folder), [move], {"a.ipynb": b"{}"}) == {move}
    assert (folder / "a.ipynb").read_bytes() == b"{}"


@pytest.mark.parametrize("writes", [False, True])
def test_an_unsafe_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: bool) -> None:
    """Also by a sh that is bash, with errexit, where a command on the way fails: there is no home."""
    for name, value in {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SHELLOPTS": "errexit", "HOME": "/none"}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "sh").symlink_to("/bin/bash")
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(FolderUnsafe):
        LocalHost().write_files(f"{shared}/new", {}) if writes else LocalHost().refuse_unsafe(str(shared))


def test_a_log_is_read(host: LocalHost, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("one\ntwo\n")
    answer = host.run(["bash", "-c", follow._READ_LINES, "read-lines", str(log), "-1", "once", ""])
    assert answer.stdout == "2\ntwo\n"


def test_a_balance_is_read(host: LocalHost) -> None:
    answer = host.run(["bash", "-c", cost_estimate._BOUNDED, "5", "sh", "-c", "echo 7; exit 3"])
    assert (answer.stdout, answer.exit_code) == ("7\n", 3)


def test_a_command_lives_as_long_as_its_input() -> None:
    """Also where TMOUT, which many a site sets, ends what reads; and its exit code arrives."""
    words = bound_to_stdin(["sh", "-c", "sleep 1.5; echo done; exit 3"])
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "TMOUT": "1"})
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.read() == b"done\n"
    assert process.wait(30) == 3
    process.stdin.close()
