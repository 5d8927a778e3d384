"""A job that should start Dask's workers, in an environment that cannot; and what the workers of a node are."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from notebook_launcher.core.package_data import job_script
from notebook_launcher.session.credentials import new_tls
from tests.unit.jobscripts.job import Job

pytestmark = pytest.mark.real_time
NODE: dict[str, Any] = runpy.run_path(str(job_script("dask_node.py")))


@pytest.mark.parametrize("program", ["jupyterlab", "notebook"])
def test_an_environment_without_dask_says_what_adds_it(quick: Job, program: str) -> None:
    """As it is known before JupyterLab is started, that is not."""
    quick.tool("python3", '#!/bin/sh\ncase "$*" in *find_spec*) exit 1 ;; esac\nexec /usr/bin/python3 "$@"\n')
    quick.tool("python", "#!/bin/sh\nexit 1\n")
    quick.ask("with=dask", f"program={program}", "venv=" + str(quick.home / "lab"))
    activate = quick.home / "lab" / "bin" / "activate"
    activate.parent.mkdir(parents=True)
    activate.touch()
    (activate.parent / "python").symlink_to(quick.bin / "python")
    for name, content in new_tls("session").items():
        (quick.dir / name).write_bytes(content)
    report = quick.run()
    assert (report["cause"], report["exit_code"]) == ("workers-missing", 1)
    assert f"the virtual environment {quick.home / 'lab'}; install it there" in report["message"]
    assert report["message"].endswith("with: pip install 'dask[distributed]' bokeh.")
    assert not (quick.dir / "endpoint.json").exists()
    assert quick.processes() == []


def test_what_a_part_that_failed_has_left_is_found_without_a_scheduler(quick: Job) -> None:
    del quick.env["PBS_JOBID"]
    for name in ("python", "python3"):
        quick.tool(name, "#!/bin/sh\nsetsid sleep 300 </dev/null >/dev/null 2>&1 &\nexit 1\n")
    quick.ask("with=dask")
    for name, content in new_tls("session").items():
        (quick.dir / name).write_bytes(content)
    assert quick.run()["cause"] == "workers-missing"
    assert quick.processes() == []


def test_without_keys_nothing_is_started(quick: Job) -> None:
    quick.ask("with=dask")
    report = quick.run()
    assert report["cause"] == "workers-failed" and "dask-ca.pem" in report["message"]


def test_a_framework_that_nobody_knows_is_told(quick: Job) -> None:
    quick.ask("with=spark")
    quick.start()
    assert "dask" not in quick.endpoint()
    assert "with='spark' is neither dask nor ray; no workers are started" in quick.log.read_text()


@pytest.mark.parametrize(
    ("slurm", "most", "expected"),
    [
        ({}, 1000, 1000),
        ({"SLURM_MEM_PER_NODE": "4"}, 2**40, 4 * 2**20),
        ({"SLURM_MEM_PER_CPU": "2"}, 2**40, 16 * 2**20),
        ({"SLURM_MEM_PER_GPU": "8", "CUDA_VISIBLE_DEVICES": "0,3"}, 2**40, 16 * 2**20),
        ({"SLURM_MEM_PER_NODE": "0"}, 1000, 1000),  # all that there is
        ({"SLURM_MEM_PER_NODE": "4"}, 1000, 1000),
    ],
)
def test_the_workers_have_the_memory_of_the_job(
    slurm: dict[str, str], most: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in slurm.items():
        monkeypatch.setenv(name, value)
    assert NODE["memory_here"](8, most) == expected
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(nodename="node1"))
    monkeypatch.setenv("NBL_FIRST_NODE", "node1")
    assert NODE["memory_here"](8, most) == expected * 3 // 4


def test_the_workers_have_the_cores_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)), raising=False)
    for name, count in (("", 64), ("LSB_DJOB_NUMPROC", 4), ("SLURM_CPUS_ON_NODE", 8)):
        monkeypatch.delenv("SLURM_CPUS_ON_NODE", raising=False)
        if name:
            monkeypatch.setenv(name, str(count))
        assert NODE["cores_here"]() == count
    monkeypatch.delenv("SLURM_CPUS_ON_NODE")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0}, raising=False)
    assert NODE["cores_here"]() == 1, "no more than it may use"


def test_each_gpu_has_a_worker_with_its_part_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert NODE["gpus_here"]() == ["2", "5"]
    assert NODE["processes_and_threads"](16, 2) == (2, 8)
    assert NODE["processes_and_threads"](1, 4) == (4, 1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "NoDevFiles")
    assert NODE["gpus_here"]() == []


@pytest.mark.parametrize(
    ("names", "complete"),
    [
        ([], 0),
        (["n1-1-of-2"], 0),
        (["n1-1-of-2", "n1-2-of-2"], 1),
        (["a-of-b-1-of-1", "n-2-1-of-2", "n-2-2-of-2"], 2),
        (["n1-1-of-2", "n1-2-of-2", "n2-1-of-2", "alice's own"], 1),
    ],
)
def test_a_node_has_joined_with_all_of_its_workers(names: list[str], complete: int) -> None:
    workers = [SimpleNamespace(name=name, nthreads=2, memory_limit=100) for name in names]
    assert NODE["joined"](workers) == f"{complete} {len(names)} {2 * len(names)} {100 * len(names)}"


@pytest.mark.parametrize(
    ("host", "origin", "served"),
    [
        ("127.0.0.1:8787", None, True),
        ("localhost:8787", "http://localhost:8787", True),
        ("port-8787.localhost:8787", "http://port-8787.localhost:8787", True),
        ("evil.example:8787", None, False),
        ("localhost.evil.example", None, False),
        ("evil-localhost:8787", None, False),
        ("127.0.0.1:8787", "https://evil.example", False),
        ("127.0.0.1:8787", "http://127.0.0.1:8888", False),
        ("127.0.0.1:8787", "null", False),
        ("", None, False),
        ("[localhost", None, False),
        ("127.0.0.1:8787", "http://[", False),
    ],
)
def test_the_dashboard_is_for_its_own_pages(host: str, origin: str | None, served: bool) -> None:
    headers = {"Host": host} | ({"Origin": origin} if origin else {})
    assert NODE["is_from_here"](headers) is served


@pytest.mark.parametrize(
    ("mapped", "seen"), [("0 0 4294967295", True), ("1000 1000 1", False), ("0 1000 1\n1 100000 65536", False)]
)
def test_in_a_user_namespace_root_cannot_be_told_from_others(tmp_path: Path, mapped: str, seen: bool) -> None:
    (tmp_path / "uid_map").write_text(mapped + "\n")
    assert runpy.run_path(str(job_script("own_connections.py")))["is_root_seen"](tmp_path / "uid_map") is seen
