"""The command that runs torchrun on all nodes of a session: what it starts, and where it is not of use."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from notebook_launcher.core.package_data import job_script
from tests.unit.jobscripts.job import Job

SAYS = '#!/bin/bash\nprintf "%s\\n" "${0##*/}" "$@"\n'
RUNS = '#!/bin/bash\nprintf "%s\\n" srun "$@" "${!SLURM_NTASKS@}"\nwhile [[ $1 == -* ]]; do shift; done; exec "$@"\n'
JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "SLURMD_NODENAME": "127.0.0.1", "SLURM_NTASKS_PER_NODE": "4"}


def start(place: Path, *words: str, without: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    for name, text in {"torchrun": SAYS, "srun": RUNS}.items():
        if name != without:
            (place / name).write_text(text)
            (place / name).chmod(0o755)
    for name in ("bash", "env", "uname"):
        (place / name).symlink_to(f"/usr/bin/{name}")
    command = ["/bin/bash", str(job_script("torchrun_nodes.sh")), *words]
    return subprocess.run(command, env={"PATH": str(place), **env}, capture_output=True, text=True, timeout=20)


@pytest.mark.parametrize(("gpus", "processes"), [({}, "1"), ({"CUDA_VISIBLE_DEVICES": "0,1"}, "gpu")])
def test_each_node_runs_torchrun_once_and_they_meet_at_a_free_port(
    tmp_path: Path, gpus: dict[str, str], processes: str
) -> None:
    done = start(tmp_path, "--max-restarts=0", "train.py", "two words", **JOB, **gpus)
    srun, _, torchrun = done.stdout.partition("torchrun\n")[2].partition("torchrun\n")
    told, asked = torchrun.splitlines(), done.stdout.partition("\ntorchrun\n")[0].splitlines()
    assert asked[0] == "srun" and {"--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--overlap"} <= set(asked)
    assert "SLURM_NTASKS_PER_NODE" not in srun, "what the job was asked for is not asked for again"
    assert told[:2] == ["--nnodes=2", f"--nproc-per-node={processes}"]
    assert told[-3:] == ["--max-restarts=0", "train.py", "two words"], "later options count"
    host, _, port = told[4].removeprefix("--rdzv-endpoint=").rpartition(":")
    assert host == "127.0.0.1" and 20000 <= int(port) < 32000
    with socket.socket() as listener:
        listener.bind((host, int(port)))


@pytest.mark.parametrize(
    ("without", "env", "says"),
    [
        ("", {}, "This is not a Slurm job. On one node, type: torchrun --standalone SCRIPT"),
        ("srun", JOB, "There is no srun here, as in most images: use a job script instead"),
        ("torchrun", JOB, "There is no torchrun in this environment: pip install torch."),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, without: str, env: dict[str, str], says: str) -> None:
    done = start(tmp_path, "train.py", without=without, **env)
    assert done.returncode == 1 and done.stderr.startswith(f"torchrun-all-nodes: {says}")


def test_without_a_script_it_says_how_it_is_called(tmp_path: Path) -> None:
    assert start(tmp_path, **JOB).stderr.startswith("usage: torchrun-all-nodes ")


@pytest.mark.real_time
@pytest.mark.parametrize("nodes", ["1", "2"])
def test_a_notebook_on_several_nodes_finds_it(quick: Job, nodes: str) -> None:
    quick.env["SLURM_JOB_NUM_NODES"] = nodes
    quick.start()
    quick.endpoint()
    server = quick.process_with("/jupyter-lab").environ()
    last = Path(server["PATH"].split(":")[-1])
    assert (last == quick.dir / "runtime" / "bin") is (nodes == "2")
    if nodes == "2":
        assert stat.S_IMODE((last / "torchrun-all-nodes").stat().st_mode) == 0o700
        assert os.access(last / "torchrun-all-nodes", os.X_OK)
