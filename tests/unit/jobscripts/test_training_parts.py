"""The parts of jobscripts/training that need no PyTorch: ranks, ports, how a batch is split, how a death is told."""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.doubles import wait_until
from tests.paths import JOBSCRIPTS

TRAINING = JOBSCRIPTS / "training"
sys.path.insert(0, str(TRAINING))
image_classifier, ranks, plan = (importlib.import_module(name) for name in ("image_classifier", "ranks", "plan"))
sys.path.remove(str(TRAINING))


# ---- who am I, and where are the others --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "expected", "launcher"),
    [
        ({}, (0, 1, 0, 1), ""),
        ({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, (3, 4, 1, 2), "torchrun"),
        (
            {
                **{"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"},
                **{"OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "SLURM_PROCID": "0"},
            },
            (2, 4, 0, 2),
            "mpirun (Open MPI)",
        ),
        (
            {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"},
            (1, 2, 1, 2),
            "mpirun (MPICH)",
        ),
        (
            {
                **{"SLURM_PROCID": "4", "SLURM_STEP_NUM_TASKS": "5", "SLURM_LOCALID": "0", "SLURM_NODEID": "2"},
                "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
            },
            (4, 5, 0, 1),
            "srun",
        ),
        # a batch script is one process, however many tasks the job has
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}, (0, 1, 0, 1), ""),
    ],
)
def test_each_launcher_says_which_process_this_is(
    env: dict[str, str], expected: tuple[int, ...], launcher: str
) -> None:
    found = ranks.this_process(env, "node2")
    assert (found.rank, found.processes, found.local_rank, found.local_processes) == expected
    assert (found.launcher, found.node) == (launcher, "node2")


@pytest.mark.parametrize("env", [{"RANK": "x", "WORLD_SIZE": "2"}, {"RANK": "2", "WORLD_SIZE": "2"}])
def test_a_rank_that_cannot_be_is_refused(env: dict[str, str]) -> None:
    with pytest.raises(ranks.TrainingError, match=r"RANK=x is not a number|rank 2 of only 2"):
        ranks.this_process(env)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node1", "node1"),
        ("node[1-2]", "node1"),
        ("gpu[03-05,09],cpu1", "gpu03"),
        ("r1n[7,9]-ib", "r1n7-ib"),
        ("a,b", "a"),
    ],
)
def test_the_first_host_of_slurms_list(nodes: str, first: str) -> None:
    assert ranks.first_host(nodes) == first


def test_where_the_processes_meet() -> None:
    task = ranks.Process(1, 4, 1, 2, "node1", "srun")
    slurm = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "node[1-2]", "SLURM_JOB_NODELIST": "x"}
    assert ranks.meeting_point(slurm, task) == ("node1", 20007)
    assert ranks.meeting_point({**slurm, "MASTER_ADDR": "there", "MASTER_PORT": "1234"}, task) == ("there", 1234)
    assert ranks.meeting_point({}, ranks.Process(0, 2, 0, 2)) == ("127.0.0.1", 20000)
    with pytest.raises(ranks.TrainingError, match="set MASTER_ADDR to the name of rank 0's node"):
        ranks.meeting_point({"LSB_JOBID": "5"}, ranks.Process(0, 4, 0, 2))
    with pytest.raises(ranks.TrainingError, match="MASTER_PORT=70000 is not a port"):
        ranks.meeting_point({"MASTER_PORT": "70000"}, task)


@pytest.mark.parametrize("job", ["1", "31999", "123456789", "77.server", "9" * 40, "odd"])
def test_the_port_is_below_those_that_linux_hands_out(job: str) -> None:
    assert 20000 <= ranks.port_for({"PBS_JOBID": job}) < 32000


@pytest.mark.parametrize(
    ("env", "count"),
    [
        ({}, 0),
        ({"CUDA_VISIBLE_DEVICES": ""}, 0),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, 0),
        ({"CUDA_VISIBLE_DEVICES": "0,3"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "0", "SLURM_GPUS_ON_NODE": "4"}, 4),
    ],
)
def test_how_many_gpus_the_job_has_here(env: dict[str, str], count: int) -> None:
    assert ranks.gpus_of_job(env) == count


def test_gpus_that_nobody_uses_are_told() -> None:
    here = ranks.Process(node="gpu1")
    assert ranks.unused_gpus(here, 4, 4) == ranks.unused_gpus(here, 0, 0) == ""
    assert ranks.unused_gpus(here, 4, 1) == (
        "The job has 4 GPUs on gpu1, and the training uses 1: 3 are idle. Start 4 processes on the node, or ask for "
        "fewer GPUs."
    )
    assert ranks.unused_gpus(here, 1, 0) == (
        "The job has 1 GPU on gpu1, and the training uses none: it computes on the CPU."
    )


# ---- what is decided before ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("processes", "accumulate"), [(1, 1), (4, 1), (2, 4), (8, 2)])
def test_a_step_is_the_same_on_any_number_of_processes(processes: int, accumulate: int) -> None:
    found = plan.split(1000, 64, processes, accumulate)
    assert found.steps == 15
    assert found.per_process * processes == found.per_part * accumulate * processes == 64


def test_what_cannot_be_split_is_refused_with_a_size_that_can() -> None:
    with pytest.raises(
        plan.TrainingError, match="64 images cannot be split evenly into 3 processes: use --batch-size 63"
    ):
        plan.split(1000, 64, 3, 1)
    with pytest.raises(plan.TrainingError, match="evenly into 4 processes and 32 parts each: use --batch-size 128"):
        plan.split(1000, 64, 4, 32)
    with pytest.raises(plan.TrainingError, match="50 images do not fill one batch of 64"):
        plan.split(50, 64, 1, 1)


def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    now = plan.settings(plan.read_options(["--max-epochs", "9"]))
    plan.check_same({**now, "max_epochs": 2, "accumulate": 4}, now, tmp_path)
    with pytest.raises(plan.TrainingError, match=r"made with --learning-rate 0.1, and this is --learning-rate 0.001\."):
        plan.check_same({**now, "learning_rate": 0.1}, now, tmp_path)


def test_begin_anew_means_once_for_each_job(tmp_path: Path) -> None:
    """Put back into the queue, a job would otherwise begin anew for ever: its command is the same each time."""
    fresh = plan.read_options(["--fresh", "--output", str(tmp_path)])
    assert plan.begins_anew(fresh, {}) and plan.begins_anew(fresh, {"SLURM_JOB_ID": "7"})
    plan.unfinished_file(tmp_path).write_text("7\n")
    assert not plan.begins_anew(fresh, {"SLURM_JOB_ID": "7"}) and not plan.begins_anew(fresh, {"LSB_JOBID": "7"})
    assert plan.begins_anew(fresh, {"SLURM_JOB_ID": "8"}) and plan.begins_anew(fresh, {})
    plan.unfinished_file(tmp_path).write_text("\n")
    assert plan.begins_anew(fresh, {})
    plan.run_file(tmp_path).write_text(plan.this_run({"SLURM_JOB_ID": "7"}))  # preempted, and requeued
    assert not plan.begins_anew(fresh, {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1"})
    assert plan.begins_anew(fresh, {"SLURM_JOB_ID": "7"})  # twice in one run, as in an interactive job
    assert plan.begins_anew(fresh, {"SLURM_JOB_ID": "8", "SLURM_RESTART_COUNT": "1"})
    assert not plan.begins_anew(plan.read_options(["--output", str(tmp_path)]), {})


def test_scaling_is_measured_against_an_earlier_result(tmp_path: Path) -> None:
    earlier = tmp_path / "result.json"
    plan.write_json(earlier, {"processes": 1, "images_per_second": 1000.0})
    assert plan.scaling(None, 4, 3000.0) is None
    found = plan.scaling(earlier, 4, 3000.0)
    assert found is not None
    assert (found["speed_up"], found["efficiency"], found["baseline_processes"]) == (3.0, 0.75, 1)
    earlier.write_text("{}")
    assert "cannot be compared with" in str(plan.scaling(earlier, 4, 3000.0))
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.parametrize(
    ("flags", "env", "count"),
    [
        (["--accelerator", "gpu", "--devices", "1"], {}, 1),
        (["--trainer.accelerator", "gpu", "--trainer.devices", "2"], {"SLURM_GPUS_ON_NODE": "2"}, 2),
        (["--accelerator", "cpu", "--devices", "3"], {"SLURM_GPUS_ON_NODE": "1"}, 3),
        (["--accelerator", "gpu"], {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, 4),
        (["--devices", "-1"], {"CUDA_VISIBLE_DEVICES": "0,1"}, 2),
        ([], {}, 1),
        (["--accelerator", "cpu"], {"CUDA_VISIBLE_DEVICES": "0,1"}, 1),
    ],
)
def test_the_exercise_gets_a_process_for_each_device(flags: list[str], env: dict[str, str], count: int) -> None:
    options = image_classifier.read_options([*flags, "--trainer.max_epochs", "5"])
    assert image_classifier.processes(options, env) == count
    trainer = plan.read_options(image_classifier.arguments_of_trainer(options, count))
    assert (trainer.max_epochs, trainer.batch_size, trainer.learning_rate) == (5, 32 * count, 1e-4)


def test_more_devices_than_the_job_has_are_refused() -> None:
    options = image_classifier.read_options(["--accelerator", "gpu", "--devices", "4"])
    with pytest.raises(plan.TrainingError, match="--devices 4: the job has only 2 on this node"):
        image_classifier.processes(options, {"SLURM_GPUS_ON_NODE": "2"})


# ---- how it ends --------------------------------------------------------------------------------------------------

CHILD = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from ranks import Process, TrainingError
from supervise import supervise
def train(stop):
    os.kill(os.getppid() if sys.argv[2] == "stop" else os.getpid(), getattr(signal, sys.argv[3]))
    if sys.argv[2] == "lost":
        raise RuntimeError("[gloo/transport/tcp/pair.cc] Connection closed by peer [10.0.0.1]:5. This is\\ntypical")
    for _ in range(600 if sys.argv[3] == "SIGCONT" else 200):
        if stop.signal:
            print("asked by", stop.signal)
            return 0
        signal.sigtimedwait([], 0.05)
    raise TrainingError("no signal came")
sys.exit(supervise(train, Process(3, 4, 1, 2, "node2", *(sys.argv[4:] or ["srun"]))))
"""

# stands for torchrun, whose processes are in sessions of their own; it prints the id of one
TORCHRUN = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-S", "-c", *sys.argv[1:]], start_new_session=True)
print(child.pid, flush=True)
time.sleep(60)
"""


def supervised(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-S", "-c", CHILD, str(TRAINING), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


def test_who_is_killed_is_named_with_its_node() -> None:
    done = supervised("die", "SIGKILL")
    assert done.returncode == 137
    assert done.stderr == (
        "Rank 3 on node2 was killed by SIGKILL (9), so the training ends. Often the memory was used up: ask for more "
        "(--mem), or use smaller batches.\n"
    )


@pytest.mark.parametrize("number", ["SIGUSR1", "SIGUSR2"])
def test_a_signal_to_the_parent_asks_the_training_to_stop(number: str) -> None:
    done = supervised("stop", number)
    assert (done.stdout, done.stderr, done.returncode) == (f"asked by {number}\n", "", 0)


def test_what_was_asked_to_end_says_nothing() -> None:
    done = supervised("stop", "SIGTERM")
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 128 + signal.SIGTERM)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells a process that its parent has ended")
def test_a_torchrun_that_is_killed_leaves_no_process() -> None:
    command = [sys.executable, "-S", "-c", TORCHRUN, CHILD, str(TRAINING), "stop", "SIGCONT", "torchrun"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as torchrun:
        assert torchrun.stdout
        process = psutil.Process(int(torchrun.stdout.readline()))
        (training,) = wait_until(process.children)
        torchrun.kill()
    wait_until(lambda: not process.is_running() and not training.is_running())


def test_the_others_say_that_they_lost_the_connection() -> None:
    done = supervised("lost", "SIGCONT")
    assert done.returncode == 1
    assert done.stderr == (
        "Rank 3 on node2 lost the connection to another rank, and stops.\n  Connection closed by peer [10.0.0.1]:5\n"
    )


def test_nothing_here_loads_pytorch() -> None:
    """The parent of each process, and what is refused at once, need none."""
    code = "import sys, json; import train_ddp, image_classifier; print(json.dumps('torch' in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=TRAINING, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) is False
    done = subprocess.run(
        [sys.executable, "train_ddp.py", "--images", "10"], cwd=TRAINING, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (2, "10 images do not fill one batch of 64: use more --images.\n")
