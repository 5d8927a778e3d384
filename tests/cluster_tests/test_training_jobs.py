"""The bundled training jobs: one process, and two nodes with srun and with mpirun, in an image and without one.

PyTorch is that of the image torch-cpu; jobs without an image load it from a module with the same files.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import assert_nothing_left
from tests.doubles import wait_until
from tests.paths import JOBSCRIPTS, ROOT
from tests.practice_cluster import PracticeCluster
from tests.practice_cluster.bundled_images import provide_image
from tests.practice_cluster.layout import USERS
from tests.practice_cluster.training_software import provide_open_mpi_module, provide_torch_module, remove_modules

# Ten steps in each epoch are enough for a machine with two cores.
SMALL = ("--images", "640")
ALL_EPOCHS = 4
LOADED = 150.0  # seconds: in this time several processes load PyTorch while other tests run


@dataclass(frozen=True)
class Jobs:
    """Alice's copy of the job scripts, in a folder of hers."""

    cluster: PracticeCluster
    folder: Path
    image: str

    def submit(self, script: str, *flags: str, arguments: tuple[str, ...] = (), **env: str) -> str:
        """Submit a script without its GPUs, and return the job's number."""
        command = ["sbatch", "--parsable", "--gpus-per-node=0", *flags, script, *SMALL, *arguments]
        env = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", **env}
        words = ["env", "-C", self.folder.name, *(f"{name}={value}" for name, value in env.items()), *command]
        return self.cluster.run("login", "alice", words, check=True).stdout.strip()

    def end(self, job: str) -> str:
        """Wait for a job's end, and return its state."""
        ask = ["sacct", "-nXP", "-o", "State", "-j", job]
        over = re.compile(r"COMPLETED|FAILED|TIMEOUT|CANCELLED|OUT_OF_MEMORY|NODE_FAIL")
        found = wait_until(lambda: over.match(self.cluster.run("login", "alice", ask).stdout), 200, f"job {job} ends")
        return found[0]

    def log(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    def result(self, folder: str) -> Any:
        return json.loads((self.folder / "runs" / folder / "result.json").read_text())


@pytest.fixture(scope="module")
def jobs(cluster: PracticeCluster) -> Iterator[Jobs]:
    folder = cluster.directory / "home" / "alice" / "training-jobs"
    shutil.copytree(JOBSCRIPTS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "tests" / "bsub.py", folder)
    for path in (folder, *folder.rglob("*")):
        shutil.chown(path, USERS["alice"].uid, USERS["alice"].uid)
    provide_torch_module(cluster, ("node1", "node2"))
    provide_open_mpi_module(cluster)
    yield Jobs(cluster, folder, provide_image(cluster, "torch-cpu"))
    shutil.rmtree(folder)
    remove_modules(cluster)


@pytest.fixture(scope="module")
def alone(jobs: Jobs) -> Any:
    """The result of one process, the second task of the array: its learning rate is the other scripts' default."""
    job = jobs.submit("train-array.sh", "--array=2", arguments=("--max-epochs", str(ALL_EPOCHS)), MODULES="torch/2")
    assert jobs.end(f"{job}_2") == "COMPLETED", jobs.log(f"train-array-{job}_2.out")
    result = jobs.result(f"{job}/rate-0.001")
    assert (result["processes"], result["communication_share"], result["backend"]) == (1, 0.0, None)
    return result


def assert_it_learned_the_same(result: Any, alone: Any) -> None:
    """Check that four processes have the losses of one to 1e-5 after each epoch, and plausible measurements."""
    assert len(result["epochs"]) == ALL_EPOCHS
    for epoch, expected in zip(result["epochs"], alone["epochs"], strict=True):
        for name in ("loss", "validation_loss"):
            assert epoch[name] == pytest.approx(expected[name], abs=1e-5)
    assert (result["processes"], result["nodes"], result["backend"]) == (4, ["node1", "node2"], "gloo")
    assert 0 < result["communication_share"] < 1 and result["images_per_second"] > 0
    assert alone["loss"] > result["epochs"][-1]["validation_loss"] * 0.5  # false for NaN


@pytest.mark.timeout(600)
def test_two_nodes_under_srun_in_an_image_stopped_by_the_walltime(jobs: Jobs, alone: Any) -> None:
    """At USR1, which Slurm sends before the walltime, it saves a checkpoint; requeued, it ends with the same losses."""
    slow = ("--max-epochs", str(ALL_EPOCHS), "--pause", "1.5")
    job = jobs.submit("train-multi-node.sh", "-p", "node", "--time=20", "--cpus-per-task=2",
                      arguments=slow, IMAGE=jobs.image, PROCESSES="2")  # fmt: skip
    name = f"train-multi-node-{job}.out"
    wait_until(lambda: "epoch 1/4" in jobs.log(name), LOADED, "the first epoch")
    ask = ["squeue", "-ho", "%M", "-j", job]
    minutes = int(jobs.cluster.run("login", "alice", ask, check=True).stdout.strip().rpartition(":")[0] or 0)
    # at once less than two minutes are left, which is when the script's --signal is sent
    change = ["scontrol", "update", f"jobid={job}", f"timelimit={minutes + 2}"]
    jobs.cluster.run("login", "alice", change, check=True)
    wait_until(lambda: "Asked to stop in epoch" in jobs.log(name), 100, "the checkpoint")
    wait_until(lambda: "(BeginTime)" in jobs.cluster.run("login", "alice", ["squeue", "-ho", "(%r)", "-j", job]).stdout,
               60, "the job is in the queue again")  # fmt: skip
    jobs.cluster.root("ctl", ["scontrol", "update", f"jobid={job}", "timelimit=20"], check=True)
    assert jobs.end(job) == "COMPLETED", jobs.log(name)
    log = jobs.log(name)
    assert log.count("4 processes on 2 nodes (node1, node2), CPU, gloo; a step is 64 images, 16 of each process") == 2
    assert re.search(rf"Continues from runs/{job}/checkpoint.pt: epoch [234], after step \d+\.", log), log
    result = jobs.result(job)
    assert (result["restarts"], result["launcher"]) == (1, "torchrun")
    assert_it_learned_the_same(result, alone)
    assert not (jobs.folder / "runs" / job / "unfinished").exists()


def test_two_nodes_under_mpirun_with_modules_until_a_rank_is_killed(jobs: Jobs, alone: Any) -> None:
    """The losses are the same with ``--accumulate``. Then a rank is killed: the job ends, and its log names it."""
    job = jobs.submit("train-mpi.sh", "--cpus-per-task=1", "-w", "node[1-2]",
                      arguments=("--max-epochs", "500", "--accumulate", "2", "--pause", "0.3"),
                      MODULES="torch/2 openmpi/5")  # fmt: skip
    name = f"train-mpi-{job}.out"
    wait_until(lambda: f"epoch {ALL_EPOCHS}/500" in jobs.log(name), LOADED, f"{ALL_EPOCHS} epochs")
    assert "4 processes on 2 nodes (node1, node2), CPU, gloo; a step is 64 images, 16 of each process" in jobs.log(name)
    found = re.findall(r"^epoch \d+/500: loss ([\d.]+), validation loss ([\d.]+)", jobs.log(name), re.M)
    for losses, expected in zip(found, alone["epochs"], strict=False):
        assert float(losses[0]) == pytest.approx(expected["loss"], abs=1e-5)
        assert float(losses[1]) == pytest.approx(expected["validation_loss"], abs=1e-5)
    # the newest process of the last rank is the training; its parent stays and reports the signal
    kill = ["pkill", "-KILL", "-n", "-u", "alice", "-f", "python3.* training/train_ddp.py"]
    jobs.cluster.root("node2", kill, check=True)
    assert jobs.end(job) == "FAILED"
    told = r"^Rank [23] on node2 was killed by SIGKILL \(9\), so the training ends. Often the memory was used up"
    assert re.search(told, jobs.log(name), re.M), jobs.log(name)
    assert "Traceback" not in jobs.log(name)
    assert_nothing_left(jobs.cluster)


def test_the_exercise_as_an_lsf_job_in_a_stand_in(jobs: Jobs) -> None:
    """Its flags are written into the script, as the exercise says; tests/bsub.py stands in for LSF."""
    flags = "--images 640 --trainer.accelerator 'cpu' --trainer.devices 1 --trainer.max_epochs 2"
    text = (jobs.folder / "train.sh").read_text().replace('"$@"', flags)
    command = ["env", "-C", jobs.folder.name, f"IMAGE={jobs.image}", "OMP_NUM_THREADS=1", "python3", "bsub.py"]
    done = jobs.cluster.run("node1", "alice", command, input=text, timeout=LOADED)
    assert (done.stdout, done.returncode) == ("Job <101> is submitted to queue <gpuv100>.\n", 0), done.stderr
    log = jobs.log("gpu_101.out")
    assert "The job has 1 GPU on node1, and the training uses none: it computes on the CPU." in log
    assert re.search(r"epoch 2/2: loss \d\.\d{6}, validation loss \d\.\d{6}, accuracy", log), jobs.log("gpu_101.err")
    assert jobs.log("gpu_101.err") == ""
    assert jobs.result("101")["settings"]["batch_size"] == 32
