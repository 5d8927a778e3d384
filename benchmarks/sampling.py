"""Measures the cost of sampling a job's usage: the table of docs/job-script.md.

    make bench-sampling     (root; two minutes)

``usage.sh`` samples every 5 s, as in a job, while a number of other processes sleep on the "node": a new PID namespace,
so that other processes of this machine do not count. It is measured from its second sample on, by the nanoseconds of
its run time in the kernel. The job is a script with twelve sleeping children, similar to JupyterLab with some kernels.

Both methods are measured: by the processes (``/proc``), and by the job's cgroup (version 1 or 2, whichever accounts for
memory here). With a GPU, the processor time of ``nvidia-smi`` has its own column.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

USAGE = Path(__file__).resolve().parent.parent / "jobscripts" / "lib" / "usage.sh"
CGROUPS = Path("/sys/fs/cgroup")
JOB = 4242
SECONDS = 5
CHILDREN = 12
CROWDS = (100, 1000)

# The first process of the namespace: starts the node's other processes, the job, and the sampler.
NODE = f"""\
import os, shutil, subprocess, sys
if shutil.which("nvidia-smi"):
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")  # the job has asked for one
crowd, directory, *cgroups = sys.argv[1:]
for _ in range(int(crowd) - {CHILDREN} - 3):
    subprocess.Popen(["sleep", "3600"])
def enter():
    for place in cgroups:
        open(place + "/cgroup.procs", "w").write("0")
job = subprocess.Popen(["sh", "-c", "for i in $(seq {CHILDREN}); do sleep 3600 & done; wait"], preexec_fn=enter)
os.environ["SLURM_JOB_ID"] = "{JOB}"
subprocess.run(["bash", {str(USAGE)!r}, directory, "{SECONDS}", str(job.pid)])
"""


@dataclass
class Measured:
    """The results of one node: its number of processes, the method, and the cost of a sample."""

    processes: int
    mode: str
    samples: int
    seconds: float  # of processor time
    gpu_seconds: float | None  # likewise, of nvidia-smi
    elapsed: float

    @property
    def per_hour(self) -> float:
        """Seconds of processor time."""
        return self.seconds / self.elapsed * 3600

    @property
    def per_sample(self) -> float:
        """Seconds per sample, including the work between two samples."""
        return self.seconds / self.samples


def job_cgroups() -> list[Path]:
    """Return where cgroups with CPU and memory accounting can be created: one (version 2), two (version 1), or none."""
    unified = CGROUPS / "cgroup.subtree_control"
    if unified.exists() and "memory" in unified.read_text():
        return [CGROUPS]
    apart = [CGROUPS / name for name in ("cpuacct", "memory")]
    return apart if all((place / "cgroup.procs").exists() for place in apart) else []


@contextlib.contextmanager
def cgroups(of: str) -> Iterator[list[Path]]:
    """Create the job's cgroups."""
    made = [place / f"bench_{os.getpid()}_{of}" / f"job_{JOB}" for place in job_cgroups()]
    for place in made:
        place.mkdir(parents=True)
        control = place.parent / "cgroup.subtree_control"
        if control.exists() and place.parent.parent == CGROUPS:
            control.write_text("+memory")
    try:
        yield made
    finally:
        for place in made:
            deadline = time.monotonic() + 10
            while (place / "cgroup.procs").read_text() and time.monotonic() < deadline:
                time.sleep(0.1)
            place.rmdir()
            place.parent.rmdir()


@dataclass(frozen=True)
class Reading:
    """The state of a sampler: its processor time and that of ``nvidia-smi``, the time, in seconds; and its samples."""

    seconds: float
    gpu_seconds: float | None
    moment: float
    samples: int


@dataclass
class Node:
    """A node that is being measured."""

    processes: int
    mode: str
    directory: Path
    starter: subprocess.Popen[bytes]
    begun: Reading = Reading(0.0, None, 0.0, 0)

    @property
    def samples(self) -> int:
        """The number of samples in its file."""
        file = self.directory / "usage.csv"
        return max(0, file.read_text().count("\n") - 1) if file.exists() else 0

    def read(self) -> Reading:
        """Return its current state."""
        sampler = sampler_of(self.directory)
        return Reading(run_time(sampler), gpu_time(sampler), time.monotonic(), self.samples)


def sampler_of(directory: Path) -> int:
    """Return the process id outside the namespace."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or [""]
        if words[0] == "bash" and str(USAGE) in words and str(directory) in words:
            return process.pid
    sys.exit(f"The sampler in {directory} has ended.")


def gpu_time(sampler: int) -> float | None:
    """Return the run time of its ``nvidia-smi``, with all threads, in seconds; ``None``: there is none."""
    for child in psutil.Process(sampler).children():
        if child.name() == "nvidia-smi":
            return sum(map(run_time, Path(f"/proc/{child.pid}/task").glob("*")))
    return None


def run_time(task: int | Path) -> float:
    """Return the run time of a process, or of a thread by its folder in /proc, in seconds."""
    folder = task if isinstance(task, Path) else Path(f"/proc/{task}")
    return int((folder / "schedstat").read_text().split()[0]) / 1e9


def start(processes: int, mode: str, directory: Path, places: list[Path]) -> Node:
    """Start a node, and the sampler on it."""
    directory.mkdir()
    inside = [sys.executable, "-c", NODE, str(processes), str(directory), *map(str, places)]
    argv = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *inside]
    return Node(processes, mode, directory, subprocess.Popen(argv, stderr=subprocess.DEVNULL))


def measure(seconds: int) -> list[Measured]:
    """Measure all at the same time."""
    with contextlib.ExitStack() as stack:
        top = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        nodes = []
        for processes in CROWDS:
            modes = {"processes": list[Path]()}
            if job_cgroups():
                modes["cgroup"] = stack.enter_context(cgroups(str(processes)))
            for mode, places in modes.items():
                nodes.append(start(processes, mode, top / f"{mode}{processes}", places))
                stack.callback(nodes[-1].starter.wait)
                stack.callback(nodes[-1].starter.kill)
        while any(node.samples < 1 for node in nodes):
            time.sleep(0.2)
        for node in nodes:
            node.begun = node.read()
        time.sleep(seconds)
        return [result(node) for node in nodes]


def result(node: Node) -> Measured:
    """Return what the sampler has used since the measurement began."""
    begun, now = node.begun, node.read()
    gpu = None if now.gpu_seconds is None or begun.gpu_seconds is None else now.gpu_seconds - begun.gpu_seconds
    used, elapsed = now.seconds - begun.seconds, now.moment - begun.moment
    return Measured(node.processes, node.mode, now.samples - begun.samples, used, gpu, elapsed)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=105, help="to measure for; other processes are forgotten in 100")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("This needs root: it makes namespaces and cgroups.")
    print("| processes on the node | measured by | a sample | an hour at 5 s | of one core | nvidia-smi: of one core |")
    print("|---|---|---|---|---|---|")
    for one in measure(arguments.seconds):
        gpu = "no GPU" if one.gpu_seconds is None else f"{100 * one.gpu_seconds / one.elapsed:.2f} %"
        print(
            f"| {one.processes} | {one.mode} | {1000 * one.per_sample:.1f} ms | {one.per_hour:.1f} s |"
            f" {one.per_hour / 36:.2f} % | {gpu} |"
        )


if __name__ == "__main__":
    main()
