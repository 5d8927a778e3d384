"""Finds the rank of a process, the number of processes of the training, and the address at which they meet.

Each launcher sets its own environment variables for that: torchrun, mpirun (Open MPI, MPICH, Intel MPI) and srun. This
file reads them all, and does not import PyTorch.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass

#: Below 32768, where the range begins that Linux uses for outgoing connections.
FIRST_PORT, PORTS = 20000, 12000

# launcher: the variables with the rank, the number of processes, and the same two for this node
LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "mpirun (Open MPI)": (
        *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        *("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ),
    "mpirun (MPICH)": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    # Not SLURM_NTASKS, which is also set in the batch script, a single process.
    "srun": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""),
}


class TrainingError(Exception):
    """Raised for a mistake that the user can correct; the text says how."""


@dataclass(frozen=True)
class Process:
    """The position of one process among all processes of a training."""

    rank: int = 0
    processes: int = 1
    local_rank: int = 0
    local_processes: int = 1
    node: str = ""
    launcher: str = ""

    @property
    def name(self) -> str:
        """The name of this process in messages."""
        return f"Rank {self.rank} on {self.node}"


def this_process(env: Mapping[str, str], node: str | None = None) -> Process:
    """Return the position of this process, from the variables of its launcher.

    A process that was started without a launcher, by hand or by a batch script, is the only one.
    """
    node = node or socket.gethostname().partition(".")[0]
    for launcher, (rank, processes, local_rank, local_processes) in LAUNCHERS.items():
        if rank not in env or processes not in env:
            continue
        process = Process(
            rank=_number(env, rank),
            processes=_number(env, processes),
            local_rank=_number(env, local_rank, "SLURM_LOCALID"),
            local_processes=_number(env, local_processes) if local_processes in env else _tasks_here(env),
            node=node,
            launcher=launcher,
        )
        if not process.rank < process.processes:
            found = f"rank {process.rank} of only {process.processes} processes"
            raise TrainingError(f"{launcher} says that this is {found}.")
        return process
    return Process(node=node)


def _number(env: Mapping[str, str], *names: str) -> int:
    for name in names:
        if name in env:
            if not env[name].isdecimal():
                raise TrainingError(f"{name}={env[name]} is not a number.")
            return int(env[name])
    return 0


def _tasks_here(env: Mapping[str, str]) -> int:
    """Return how many tasks of the step are on this node, from SLURM_STEP_TASKS_PER_NODE, for example ``2(x3),1``."""
    counts: list[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", env.get("SLURM_STEP_TASKS_PER_NODE", "")):
        counts += [int(count)] * min(int(times or 1), 100_000)
    node = _number(env, "SLURM_NODEID")
    return counts[node] if node < len(counts) else 1


def meeting_point(env: Mapping[str, str], process: Process) -> tuple[str, int]:
    """Return the host of rank 0 and the port on which the processes meet there.

    They are MASTER_ADDR and MASTER_PORT if set. Otherwise the host is the first node of the Slurm job, or this machine
    if all processes are here.
    """
    port = _number(env, "MASTER_PORT") or port_for(env)
    if not 0 < port < 65536:
        raise TrainingError(f"MASTER_PORT={port} is not a port: use one from 1024 to 65535.")
    if host := env.get("MASTER_ADDR"):
        return host, port
    nodes = env.get("SLURM_STEP_NODELIST") if process.launcher == "srun" else env.get("SLURM_JOB_NODELIST")
    if nodes:
        return first_host(nodes), port
    if process.processes == process.local_processes:
        return "127.0.0.1", port
    raise TrainingError(
        f"{process.processes} processes do not know where to meet: set MASTER_ADDR to the name of rank 0's node, "
        "as train-mpi.sh does."
    )


def port_for(env: Mapping[str, str]) -> int:
    """Return a port that is the same for all processes of a job, and probably different for another job on the node."""
    job = next((env[name] for name in ("SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID", "JOB_ID") if env.get(name)), "0")
    digits = re.match(r"\d*", job)
    number = int(digits[0][-9:] or 0) if digits else 0
    step = _number(env, "SLURM_STEP_ID") if env.get("SLURM_STEP_ID", "").isdecimal() else 0
    return FIRST_PORT + (number + 101 * step) % PORTS


def first_host(nodes: str) -> str:
    """Return the first name of a Slurm node list: ``gpu03`` for ``gpu[03-05,9],cpu1``."""
    found = re.match(r"([^\[\],]+)(?:\[(\d+)[^\]]*\])?([^\[\],]*)", nodes)
    if not found:
        raise TrainingError(f"The list of nodes cannot be read: {nodes!r}. Set MASTER_ADDR to the name of the first.")
    return "".join(part or "" for part in found.groups())


def threads(env: Mapping[str, str], process: Process) -> int:
    """Return the number of threads for computing on CPUs: this process's share of the job's cores on this node."""
    if env.get("SLURM_CPUS_PER_TASK", "").isdecimal() and process.launcher == "srun":
        return max(1, int(env["SLURM_CPUS_PER_TASK"]))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // process.local_processes)


def gpus_of_job(env: Mapping[str, str]) -> int:
    """Return how many GPUs the job has on this node, as far as the scheduler reports it."""
    if env.get("SLURM_GPUS_ON_NODE", "").isdecimal():
        return int(env["SLURM_GPUS_ON_NODE"])
    visible = env.get("CUDA_VISIBLE_DEVICES", "")
    return 0 if visible.strip() in ("", "-1", "NoDevFiles") else len(visible.split(","))


def unused_gpus(process: Process, of_job: int, in_use: int) -> str:
    """Return a sentence about unused GPUs of this node, or "".

    ``of_job``: how many the job has here; ``in_use``: how many the processes here compute on, together.
    """
    idle = of_job - in_use
    if idle <= 0:
        return ""
    gpus = f"{of_job} GPU{'s' * (of_job > 1)}"
    if not in_use:
        return f"The job has {gpus} on {process.node}, and the training uses none: it computes on the CPU."
    return (
        f"The job has {gpus} on {process.node}, and the training uses {in_use}: {idle} "
        f"{'is' if idle == 1 else 'are'} idle. Start {of_job} processes on the node, or ask for fewer GPUs."
    )
