"""The job scripts for learners: what each of them says to its schedulers, and what it starts.

They run here with stand-ins for torchrun, mpirun, srun and Python, which print how they were called; on the practice
cluster they train (tests/cluster_tests/test_training_jobs.py).
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.paths import JOBSCRIPTS, ROOT

SCRIPTS = sorted(path for path in JOBSCRIPTS.glob("*.sh") if path.name != "jupyterlab.sh")
BSUB = ROOT / "tests" / "bsub.py"
# prints its name and arguments; srun and mpirun also do what they are asked to
SAYS = '#!/bin/bash\necho "${0##*/} $*"\n'
RUNS = SAYS + 'while [[ $1 == -* ]]; do shift; done; exec "$@"\n'
CONTAINER = SAYS + 'shift; while [[ $1 == -* ]]; do shift; done; shift; exec "$@"\n'
REQUEUED = ("train.sh", "train-multi-gpu.sh", "train-multi-node.sh")  # if they were stopped before their end
SLURM_JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n", "SLURM_JOB_NUM_NODES": "1", "SLURM_CPUS_PER_TASK": "8"}
Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a script in a folder of its own, with these variables, and return what it printed."""
    tools = tmp_path / "tools"
    tools.mkdir()
    texts = {"python3": SAYS, "torchrun": SAYS, "srun": RUNS, "mpirun": RUNS, "apptainer": CONTAINER}
    texts["scontrol"] = SAYS.replace("echo", '[ "$2" != hostnames ] || exec echo 127.0.0.1; echo')
    for name, text in {**texts, "nvidia-smi": "#!/bin/sh\nexit 9\n", "sleep": SAYS}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    # a login shell reads the machine's profile, which sets PATH: the script reads this first
    (tmp_path / ".bash_profile").write_text(f"PATH={path}\nmodule() {{ echo module $*; }}\n")

    def run(script: str, *arguments: str, code: int = 0, command: list[str] | None = None, **env: str) -> str:
        values = {"HOME": str(tmp_path), "PATH": path, **env}
        argv = command or ["bash", "-l", str(JOBSCRIPTS / script), *arguments]
        stdin = (JOBSCRIPTS / script).read_text() if command else None
        done = subprocess.run(argv, cwd=tmp_path, env=values, input=stdin, capture_output=True, text=True, timeout=30)
        assert done.returncode == code, done.stderr + done.stdout
        return done.stdout

    return run


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_each_fits_on_a_screen_and_says_first_what_it_is(script: Path) -> None:
    lines = script.read_text().splitlines()
    assert len(lines) <= 50
    assert lines[0] == "#!/bin/bash -l"
    assert re.fullmatch(rf"# {script.stem}: [a-z].*\.", lines[1])
    assert lines[2] == f"#SBATCH --job-name={script.stem}"
    # sbatch reads the lines of PBS and LSF as well, and fails at what it does not know
    assert ("#SBATCH --ignore-pbs" in lines) == any(line.startswith(("#PBS", "#BSUB")) for line in lines)


def test_the_first_job_knows_its_number_with_every_scheduler(run: Run) -> None:
    for variable in ("SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID", "JOB_ID"):
        assert "Hello from job 12 on " in run("first-job.sh", **{variable: "12"})
    assert "Hello from job (none: run by hand) on" in run("first-job.sh")


def test_software_is_chosen_by_a_variable(run: Run) -> None:
    assert "python3 training/image_classifier.py" in run("train.sh").splitlines()[-1]
    lines = run("train.sh", MODULES="2025 torch/2").splitlines()
    assert lines[0] == "module load 2025 torch/2"
    lines = run("gpu-check.sh", IMAGE="/sw/torch.sif", CUDA_VISIBLE_DEVICES="3").splitlines()
    assert lines[0].startswith("CUDA_VISIBLE_DEVICES=3 ")
    assert lines[-2:] == ["apptainer exec --nv /sw/torch.sif python3 -", "python3 -"]


def test_options_behind_the_scripts_name_win(run: Run) -> None:
    line = run("train.sh", "--max-epochs", "20", SLURM_JOB_ID="7").splitlines()[-1]
    assert line == (
        "python3 training/image_classifier.py --output runs/7 --accelerator auto --devices 1 --max-epochs 5 "
        "--max-epochs 20"
    )


def test_torchrun_starts_a_process_for_each_gpu(run: Run) -> None:
    assert "torchrun --standalone --nproc-per-node=gpu training/train_ddp.py --output runs/9 " in run(
        "train-multi-gpu.sh", LSB_JOBID="9"
    )


def test_several_nodes_meet_at_a_port_that_is_free(run: Run) -> None:
    job = {"SLURM_JOB_ID": "12005", "SLURM_JOB_NODELIST": "n", "SLURM_JOB_NUM_NODES": "2", "SLURM_CPUS_PER_TASK": "8"}
    with socket.create_server(("127.0.0.1", 20005)):
        printed = run("train-multi-node.sh", IMAGE="/sw/torch.sif", **job)
    assert "The processes meet at 127.0.0.1:20006." in printed
    assert (
        "torchrun --nnodes=2 --nproc-per-node=gpu --rdzv-backend=c10d --rdzv-id=12005 --rdzv-endpoint=127.0.0.1:20006"
        in printed
    )
    assert (
        "\nsrun --cpus-per-task=8 --kill-on-bad-exit=1 apptainer exec --nv /sw/torch.sif torchrun --nnodes=2" in printed
    )


def test_mpirun_tells_its_processes_where_they_meet(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tools" / "env").write_text(SAYS)
    (tmp_path / "tools" / "env").chmod(0o755)
    printed = run("train-mpi.sh", PBS_JOBID="31.server", MPIRUN="mpirun --oversubscribe")
    assert (
        f"mpirun --oversubscribe env MASTER_ADDR={socket.gethostname()} MASTER_PORT=20031 OMP_NUM_THREADS=1 " in printed
    )
    assert "--output runs/31.server" in printed


@pytest.mark.parametrize(
    ("env", "folder", "rate"),
    [
        ({"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_JOB_ID": "5", "SLURM_JOB_ID": "6"}, "runs/5", "0.01"),
        ({"PBS_ARRAY_INDEX": "3", "PBS_JOBID": "8[3].server"}, "runs/8", "0.0001"),
        ({"SGE_TASK_ID": "2", "JOB_ID": "4"}, "runs/4", "0.001"),
    ],
)
def test_each_task_of_an_array_has_its_learning_rate(run: Run, env: dict[str, str], folder: str, rate: str) -> None:
    printed = run("train-array.sh", **env)
    assert f"train_ddp.py --output {folder}/rate-{rate} --learning-rate {rate}" in printed


@pytest.mark.parametrize(
    "variables", [{"SLURM_ARRAY_TASK_ID": "4"}, {"LSB_JOBINDEX": "0"}, {"SGE_TASK_ID": "undefined"}]
)
def test_a_task_without_a_learning_rate_says_so(run: Run, variables: dict[str, str]) -> None:
    """LSF and Grid Engine have the last two in jobs that are no arrays."""
    run("train-array.sh", code=2, **variables)


def test_grid_engine_runs_bash_where_its_own_default_is_csh() -> None:
    for script in SCRIPTS:
        marks = [line for line in script.read_text().splitlines() if line.startswith("#$ ")]
        assert not marks or any("-S /bin/bash" in line for line in marks)


# ---- back into the queue ------------------------------------------------------------------------------------------


def test_what_was_stopped_before_its_end_goes_back_into_slurms_queue(run: Run, tmp_path: Path) -> None:
    assert "scontrol" not in run("train.sh", SLURM_JOB_ID="7")
    (tmp_path / "runs" / "7" / "unfinished").touch()
    for script in REQUEUED:
        assert run(script, **SLURM_JOB).splitlines()[-1] == "scontrol requeue 7"
    run("train.sh", code=99, PBS_JOBID="7")


def test_a_job_is_not_put_back_for_ever(run: Run, tmp_path: Path) -> None:
    """With a walltime as short as the signal's lead, each run does a single step."""
    (tmp_path / "runs" / "7").mkdir(parents=True)
    (tmp_path / "runs" / "7" / "unfinished").touch()
    (tmp_path / "runs" / "7" / "requeued").write_text("7\n" * 49 + "77\n" * 9)
    assert run("train.sh", **SLURM_JOB).splitlines()[-1] == "scontrol requeue 7"
    for script in REQUEUED:
        assert "scontrol requeue" not in run(script, code=1, **SLURM_JOB)


def test_by_hand_in_a_job_it_does_not_put_that_back(run: Run, tmp_path: Path) -> None:
    """The job's own script may be somebody's JupyterLab; Slurm sets the variable to the process that it started."""
    (tmp_path / "runs" / "7").mkdir(parents=True)
    (tmp_path / "runs" / "7" / "unfinished").touch()
    for script in REQUEUED:
        printed = run(script, code=99, **SLURM_JOB, SLURM_TASK_PID="1")
        assert printed.splitlines()[-1] == "Not done yet: run the same command again."


def test_another_folder_has_all_that_belongs_to_a_run(run: Run, tmp_path: Path) -> None:
    (tmp_path / "my run").mkdir()
    (tmp_path / "my run" / "stop").touch()  # of a run that was killed before it saw this
    (tmp_path / "my run" / "unfinished").touch()
    for script in REQUEUED:
        printed = run(script, OUTPUT="my run", **SLURM_JOB)
        assert "--output my run " in printed and printed.splitlines()[-1] == "scontrol requeue 7"
    assert not (tmp_path / "my run" / "stop").exists() and not (tmp_path / "runs").exists()


def test_the_step_has_all_cores_of_the_job(run: Run) -> None:
    """Since 22.05, srun does not take them from the job, and would bind all threads to one core."""
    for script in ("train.sh", "train-multi-gpu.sh"):
        assert "srun --ntasks=1 --cpus-per-task=8 " in run(script, **SLURM_JOB)


@pytest.mark.parametrize("count", [1, 3])
def test_usr1_to_the_script_leaves_the_file_and_its_own_exit_code(run: Run, tmp_path: Path, count: int) -> None:
    """The signal is for the script alone; what it started is asked by the file, and ends as it likes."""
    signals = "kill -USR1 $PPID; until [ -e runs/7/stop ]; do read -rt 0.02 <> <(:); done; rm runs/7/stop\n" * count
    trainer = f"#!/bin/bash\nkill -USR1 $$\n{signals}"
    (tmp_path / "tools" / "python3").write_text(trainer + "echo stopped; exit 3\n")
    (tmp_path / "tools" / "srun").write_text('#!/bin/bash\nshift; "$@"\n')
    assert run("train.sh", code=3, LSB_JOBID="7") == "stopped\n"


def test_lsf_runs_it_again_in_a_stand_in(run: Run, tmp_path: Path) -> None:
    """The stand-in reads the #BSUB lines: the output's file, the GPUs, and the exit code that means once more."""
    # what a trainer leaves that was asked to stop in its first run
    trainer = '#!/bin/bash\necho "run on $CUDA_VISIBLE_DEVICES: $*"\nmkdir -p runs/101; cd runs/101\n'
    trainer += "if [ -e unfinished ]; then rm unfinished; else touch unfinished; fi\n"
    (tmp_path / "tools" / "torchrun").write_text(trainer)
    printed = run("train-multi-gpu.sh", command=[sys.executable, str(BSUB)])
    assert printed == "Job <101> is submitted to queue <gpuv100>.\n"
    log = (tmp_path / "train-multi-gpu-101.out").read_text().splitlines()
    assert len(log) == 2 and log[0] == log[1]
    assert log[0].startswith("run on 0,1: --standalone --nproc-per-node=gpu training/train_ddp.py --output runs/101 ")
    run("train-array.sh", command=[sys.executable, str(BSUB)])
    rates = [line for n in (1, 2, 3) for line in (tmp_path / f"train-array-102_{n}.out").read_text().splitlines()]
    assert [line for line in rates if line.startswith("Task")] == [
        "Task 1: learning rate 0.01", "Task 2: learning rate 0.001", "Task 3: learning rate 0.0001"
    ]  # fmt: skip
