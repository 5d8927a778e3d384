"""How long from the command to a usable JupyterLab, beside the floor; and how long commands take to start.

    make bench            (root; uses the practice cluster, and brings it up if need be)

Both are measured in turn in one run on one machine, and the medians are printed. The floor is what nobody can beat
without changing Slurm or Jupyter: ``ssh login sbatch`` of the same container and JupyterLab, and a program that
already waits on the compute node and tries every 20 ms until Jupyter answers there. The launcher's time runs until
Jupyter answered
*on the laptop*, through the tunnel, and its address is printed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.start import show_starts
from tests.practice_cluster import PracticeCluster

IMAGE = "/sw/images/jupyterlab.sif"

FLOOR_JOB = f"""#!/bin/bash
export JUPYTER_RUNTIME_DIR=$1/runtime JUPYTER_TOKEN=floor
exec apptainer exec --nv {IMAGE} jupyter-lab --no-browser --ServerApp.ip=127.0.0.1 --ServerApp.port=0
"""

# waits on the node before the command is given; prints the moment of the first answer (all boxes share one clock)
POLLER = """
import glob, json, sys, time, urllib.request
while True:
    for name in glob.glob(sys.argv[1] + "/runtime/jpserver-*.json"):
        try:
            url = json.load(open(name))["url"] + "api/status?token=floor"
            if urllib.request.urlopen(url, timeout=5).status == 200:
                print(time.time(), flush=True)
                sys.exit()
        except (OSError, ValueError, KeyError):
            pass
    time.sleep(0.02)
"""


@dataclass(frozen=True)
class Launch:
    """One launch: seconds from the command to each thing that happened."""

    began: float
    moments: dict[str, float]

    @property
    def usable(self) -> float:
        """Seconds until the address was printed."""
        return self.moments["address printed"]


def measure_floor(cluster: PracticeCluster, number: int) -> float:
    """Return seconds from ``ssh login sbatch`` to the first answer on the node."""
    folder = f"/home/alice/floor-{number}"
    write = f"mkdir -p {folder}/runtime; cat >{folder}/job.sh"
    subprocess.run(cluster.argv("login", "alice", ["sh", "-c", write]), input=FLOOR_JOB, text=True, check=True)
    poller = subprocess.Popen(
        cluster.argv("gpu1", "alice", ["python3", "-c", POLLER, folder]), stdout=subprocess.PIPE, text=True
    )
    time.sleep(0.5)  # it stands ready
    began = time.time()
    sbatch = ["ssh", "login", "sbatch", "--parsable", "--gpus=1", f"--output={folder}/log", f"{folder}/job.sh", folder]
    job = subprocess.run(
        cluster.argv("laptop", "alice", sbatch), text=True, capture_output=True, check=True
    ).stdout.strip()
    answered = float(poller.communicate(timeout=60)[0])
    cluster.run("login", "alice", ["scancel", job])
    wait_for_empty_queue(cluster)
    return answered - began


def measure_launch(cluster: PracticeCluster) -> Launch:
    """Return the moments of one launch from the laptop."""
    began = time.time()
    process = subprocess.Popen(
        cluster.argv(
            "laptop", "alice", ["launch-notebook", "--cluster", "practice", "--json", "--gpus", "1", "--", IMAGE]
        ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    moments: dict[str, float] = {}
    directory = ""
    for line in process.stdout:
        event, now = json.loads(line), time.time() - began
        directory = event.get("directory", directory)
        if event["event"] == "error":
            sys.exit(f"the launch failed: {line}")
        names = {"connecting": "imports done, connecting", "submitted": "sbatch answered",
                 "running": "job known to run", "ready": "address printed"}  # fmt: skip
        if event["event"] in names:
            moments[names[event["event"]]] = now
        if event["event"] == "ready":
            for name, moment in file_times(cluster, directory).items():
                moments[name] = moment - began
            process.stdin.write("\n")
            process.stdin.flush()
    process.wait(60)
    wait_for_empty_queue(cluster)
    return Launch(began, moments)


def file_times(cluster: PracticeCluster, directory: str) -> dict[str, float]:
    """Return when the job began and when Jupyter listened, from the times of their files."""
    names = {"started.json": "job script's first line", "endpoint.json": "Jupyter listens"}
    stat = "".join(f"stat -c '{name} %.6Y' {directory}/{name};" for name in names)
    lines = cluster.run("login", "alice", ["sh", "-c", stat]).stdout.split("\n")
    return {names[name]: float(moment) for name, moment in (line.split() for line in lines if line)}


def wait_for_empty_queue(cluster: PracticeCluster) -> None:
    """Wait until nothing of the run before is left."""
    while cluster.squeue():
        time.sleep(0.2)


def show(name: str, values: list[float], unit: str = "s") -> None:
    """Print one figure: median, and the range."""
    middle = statistics.median(values)
    print(f"  {name:<42} {middle:7.3f} {unit}   ({min(values):.3f} to {max(values):.3f}, {len(values)} runs)")


def main() -> None:
    """Measure in turn, print the medians, their difference and what it is spent on."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--slurm", default="24.11")
    arguments = parser.parse_args()
    cluster = PracticeCluster(arguments.slurm)
    if not cluster.is_up():
        cluster.up()
    measure_floor(cluster, 0), measure_launch(cluster)  # warm: the image is in the page cache
    floors, launches = [], []
    for number in range(1, arguments.runs + 1):
        floors.append(measure_floor(cluster, number))
        launches.append(measure_launch(cluster))
    cluster.run("login", "alice", ["sh", "-c", "rm -rf ~/floor-*"])

    print(f"\nfrom the command to a usable JupyterLab (Slurm {arguments.slurm}, idle cluster, warm image)")
    show("floor: ssh login sbatch, polled on the node", floors)
    show("launch-notebook: address printed on the laptop", [launch.usable for launch in launches])
    paired = [launch.usable - floor for launch, floor in zip(launches, floors, strict=True)]
    show("difference, run by run", paired)
    ratio = statistics.median([launch.usable / floor for launch, floor in zip(launches, floors, strict=True)])
    print(f"  {'ratio':<42} {ratio:7.3f}")
    print("\nwhere a launch is, in seconds from the command (medians)")
    names = sorted(launches[0].moments, key=lambda name: launches[0].moments[name])
    for name in names:
        show(name, [launch.moments[name] for launch in launches if name in launch.moments])

    show_starts(15)


if __name__ == "__main__":
    main()
