"""What the panel in JupyterLab's page is told, from whatever files and environment a session has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.jobscripts.written_usage import Sampler, loaded

facts = loaded("panel_facts")
STARTED = {"version": 1, "job": "7", "node": "gpu1", "started": "2026-11-21T12:00:00Z"}
BEGAN = 1795262400.0  # the same, in seconds
SLURM = {
    "SLURM_JOB_START_TIME": "1795262398",
    "SLURM_JOB_END_TIME": "1795269598",
    "SLURM_JOB_PARTITION": "gpu",
    "SLURM_CPUS_ON_NODE": "8",
    "SLURM_MEM_PER_CPU": "2048",
}


def known(folder: Path, environ: dict[str, str] | None = None, **files: object) -> dict[str, Any]:
    """Return what is known of a session with these files, as far as anything is."""
    for name, content in files.items():
        (folder / f"{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    found = facts.session_facts(folder, environ or {})
    json.dumps(found, allow_nan=False)
    return {name: value for name, value in found.items() if value is not None and name != "session"}


def test_a_slurm_job_submitted_by_hand_knows_what_slurm_tells_it(tmp_path: Path) -> None:
    assert known(tmp_path, SLURM, started=STARTED) == {
        "job": "7", "node": "gpu1", "partition": "gpu", "began": 1795262398.0, "ends": 1795269598.0, "cores": 8.0,
        "memory_mib": 16384.0,
    }  # fmt: skip
    assert known(tmp_path, {**SLURM, "SLURM_MEM_PER_NODE": "4096"})["memory_mib"] == 4096
    without_limit = {**SLURM, "SLURM_JOB_END_TIME": str(1795262398 + 366 * 86400 * 11)}
    assert "ends" not in known(tmp_path, without_limit)


def test_elsewhere_it_knows_what_was_requested(tmp_path: Path) -> None:
    requested = {
        "walltime_seconds": 600,
        "cores": 2,
        "price_per_hour": 1.5,
        "unit": "SEK",
        "connect": "launch-notebook",
    }
    idle = {"why": "unused", "ends": "2026-11-21T12:05:00Z", "message": "Nobody has used it."}
    assert known(tmp_path, started=STARTED, panel=requested, idle=idle) == {
        "job": "7", "node": "gpu1", "began": BEGAN, "ends": BEGAN + 600, "walltime": 600.0, "cores": 2.0,
        "price": {"per_hour": 1.5, "unit": "SEK"}, "connect": "launch-notebook",
        "idle": {"why": "unused", "ends": BEGAN + 300, "message": "Nobody has used it."},
    }  # fmt: skip


def test_a_class_ends_its_sessions_before_their_walltime(tmp_path: Path) -> None:
    notice = {"version": 1, "message": "Submit it.", "ends": "2026-11-21T12:05:00Z"}
    found = known(tmp_path, started=STARTED, panel={"walltime_seconds": 600}, notice=notice)
    assert found["notice"] == {"message": "Submit it.", "ends": BEGAN + 300} and found["ends"] == BEGAN + 300
    found = known(tmp_path, panel={"walltime_seconds": 60})
    assert found["ends"] == BEGAN + 60 and found["notice"]["ends"] == BEGAN + 300
    assert "notice" not in known(tmp_path, notice={**notice, "ends": "soon"})


@pytest.mark.parametrize(
    "damaged",
    ["", "[]", "7", "{", "[" * 100_000, '{"walltime_seconds":1e999,"price_per_hour":NaN,"cores":-1,"unit":{}}',
     '{"started":7,"job":7,"node":[],"ends":"soon","message":null}'],
)  # fmt: skip
def test_damaged_files_are_as_good_as_none(tmp_path: Path, damaged: str) -> None:
    found = known(tmp_path, {"SLURM_JOB_END_TIME": "x"}, started=damaged, panel=damaged, idle=damaged, notice=damaged)
    assert not found or found == {"idle": {"why": None, "ends": None, "message": None}}


def test_a_directory_that_has_gone_is_as_good_as_an_empty_one(tmp_path: Path) -> None:
    assert known(tmp_path / "gone") == {}
    assert facts.Samples(tmp_path / "gone" / "usage.csv").read() == []


def test_samples_are_read_on_as_the_file_grows(tmp_path: Path) -> None:
    sampler = Sampler(tmp_path / "usage.csv")
    samples = facts.Samples(sampler.path)
    assert samples.read() == []
    sampler.sample(5, "40", "", cores="1.50")
    gpu = {"index": "0", "name": "Tesla T4, 16", "percent": 40.0, "memory_mib": 5000.0, "total_mib": 15360.0}
    first = {
        "time": BEGAN + 5,
        "cores": 1.5,
        "memory_mib": 900.0,
        "gpus": [gpu, {**gpu, "index": "1", "percent": None}],
    }
    assert samples.read() == [first]
    with sampler.path.open("a") as file:
        file.write("2026-11-21T12:00:10Z,10,0.25,9")
    assert samples.read() == [first], "half a line"
    with sampler.path.open("a") as file:
        file.write("01,,,,,,\nnonsense\n")
    second = {"time": BEGAN + 10, "cores": 0.25, "memory_mib": 901.0, "gpus": []}
    assert samples.read() == samples.read() == [first, second]


def test_only_the_newest_samples_are_kept_and_a_thinned_file_is_read_anew(tmp_path: Path) -> None:
    sampler = Sampler(tmp_path / "usage.csv")
    for second in range(0, 15_000, 5):
        sampler.sample(second)
    samples = facts.Samples(sampler.path)
    times = [sample["time"] - BEGAN for sample in samples.read()]
    assert times == list(range(14_700, 15_000, 5))
    thinned = Sampler(tmp_path / "new")
    thinned.sample(14_995)
    thinned.sample(15_000)
    thinned.path.replace(sampler.path)
    assert [sample["time"] - BEGAN for sample in samples.read()] == [14_995, 15_000]
