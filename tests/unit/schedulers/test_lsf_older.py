"""Versions of LSF whose ``bjobs`` has no ``-o``, by recordings of openlava, which speaks as they do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.schedulers.base import JobRef, State
from notebook_launcher.schedulers.lsf.commands import Lsf
from tests import paths
from tests.unit.schedulers import recordings

LSF = Lsf()


def recorded(name: str) -> CommandResult:
    return recordings.recorded(paths.RECORDED / "lsf", name)


@pytest.mark.parametrize(
    ("name", "job", "state", "node"),
    [
        ("running-script", "119", State.RUNNING, "node1"),
        ("pending", "121", State.PENDING, None),
        ("held", "123", State.PENDING, None),
        ("after-bkill-running", "120", State.CANCELLED, "node1"),
        ("done", "130", State.COMPLETED, "node1"),
        ("exit3", "124", State.FAILED, "node1"),
        ("runlimit-exceeded", "129", State.TIMEOUT, "node1"),
    ],
)
def test_what_older_versions_print_instead(name: str, job: str, state: State, node: str | None) -> None:
    answer = recorded(f"openlava-bjobs-l-{name}")
    found = LSF.read_query([JobRef(job)], answer)
    assert found and (found[job].state, found[job].node) == (state, node)
    assert (found[job].reason is not None) == (state is State.PENDING)
    assert (found[job].walltime == "0:01:00") == (name == "runlimit-exceeded")
    assert LSF.read_find("fromscript", answer) == ([JobRef(job)] if "fromscript" in answer.stdout else [])


def test_a_line_that_is_cut_before_a_space() -> None:
    """The recording is an excerpt, without the job's end."""
    whole = recorded("lsf-bjobs-l-exit-127").stdout + "\n SCHEDULING PARAMETERS:\n"
    found = LSF.read_query([JobRef("67593160")], CommandResult(0, whole))
    assert found, whole
    status = found["67593160"]
    assert (status.state, status.exit_code, status.node) == (State.FAILED, 127, "node188.hpc.local")


def test_older_versions_are_asked_in_their_own_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = recorded("openlava-bjobs-o-json").stderr
    (tmp_path / "bjobs").write_text(
        f"#!/bin/bash\n[[ $1 == -l ]] && echo \"$@\" && exit\ncat >&2 <<'E'\n{said}E\nexit 255\n"
    )
    (tmp_path / "bjobs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    done = subprocess.run(LSF.query([JobRef("7")]), capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "-l 7\n", "")
    (tmp_path / "bjobs").write_text("#!/bin/bash\necho out; echo 'Job <7> is not found' >&2; exit 255\n")
    done = subprocess.run(LSF.query([JobRef("7")]), capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (255, "out\n", "Job <7> is not found\n")


@pytest.mark.parametrize("said", ["estimated_start_time: no such field", "Unknown field name", "Bad Field"])
def test_one_that_does_not_know_the_field_of_the_estimate(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No words of such a version were seen."""
    refuse = f"[[ $3 != *estimated* ]] || {{ echo '{said}' >&2; exit 255; }}"
    (tmp_path / "bjobs").write_text(f'#!/bin/bash\n{refuse}\necho "$3"; shift 3; echo "$@"\n')
    (tmp_path / "bjobs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    done = subprocess.run(LSF.query([JobRef("7"), JobRef("8")]), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    fields, jobs = done.stdout.splitlines()
    assert fields == LSF.query([JobRef("7")])[3].replace("estimated_start_time", "start_time") and jobs == "7 8"


WAITS = recorded("openlava-bjobs-l-pending").stdout
# in the form that openlava's own bjobs has for it, which stands before the reasons
EXPECTED = WAITS.replace(" PENDING REASONS:", "Fri Nov 20 23:52:16: Will be started;\n PENDING REASONS:")


def test_the_estimate_of_a_job_that_waits() -> None:
    starts = {text: LSF.read_query([JobRef("121")], CommandResult(0, text)) for text in (WAITS, EXPECTED)}
    without, with_it = (found and found["121"].start for found in starts.values())
    assert without is None and with_it and with_it.endswith("-11-20T23:52:16")


@given(recordings.damaged(EXPECTED))
def test_a_damaged_estimate_is_none_or_the_truth(text: str) -> None:
    found = LSF.read_query([JobRef("121")], CommandResult(0, text)) or {}
    if EXPECTED.startswith(text):
        assert all(status.start is None or status.start.endswith("-11-20T23:52:16") for status in found.values())


LONG = recorded("openlava-bjobs-l-runlimit-exceeded").stdout


@given(recordings.damaged(LONG))
def test_a_damaged_answer_of_an_older_version_is_none_or_the_truth(text: str) -> None:
    found = LSF.read_query([JobRef("129")], CommandResult(0, text))
    assert found is not None
    if LONG.startswith(text):
        assert all(status.state is State.TIMEOUT for status in found.values())
    LSF.read_find("x", CommandResult(0, text))
