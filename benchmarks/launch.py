"""Measures the time from the command to a usable JupyterLab, against the minimum; and a run, against nbconvert.

    make bench            (root; uses the practice cluster, and brings it up if need be)

All are measured alternately in one run on one machine, and the medians are printed. Ratios are those of the means,
because Slurm starts jobs once a second: each run begins at another moment of that second, the same for all methods. The
minimum, which cannot be improved without changing Slurm or Jupyter, is ``ssh login sbatch`` of the same container and
JupyterLab, with a program already waiting on the compute node that tries every 20 ms until Jupyter answers there. The
launcher's time ends when Jupyter has answered on the laptop, through the tunnel, and its address is printed.
JupyterLab's own start is measured from the time when Slurm has written the job's script on the node. Runs of a
notebook: ``notebook_run.py``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.notebook_run import measure_by_hand, measure_run
from benchmarks.practice import IMAGE, show, show_ratio, wait_for_empty_queue, wait_for_turn
from benchmarks.start import show_starts
from tests.conftest import write_profile
from tests.practice_cluster import PracticeCluster

FLOOR_JOB = f"""#!/bin/bash
export JUPYTER_RUNTIME_DIR=$1/runtime JUPYTER_TOKEN=floor
exec apptainer exec --nv {IMAGE} jupyter-lab --no-browser --ServerApp.ip=127.0.0.1 --ServerApp.port=0
"""

# waits on the node before the command is given; prints the time of the first answer (all boxes share one clock)
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
    """One launch: seconds from the command to each event."""

    began: float
    moments: dict[str, float]

    @property
    def usable(self) -> float:
        """Seconds until the address was printed."""
        return self.moments["address printed"]

    @property
    def jupyterlab(self) -> float:
        """Seconds from the job's start until JupyterLab listens."""
        return self.moments["Jupyter listens"] - self.moments[JOB_STARTS]


JOB_STARTS = "Slurm starts the job"
KEEPS_IMPORTS = 5.0  # seconds in which a session writes its import cache


def measure_floor(cluster: PracticeCluster, number: int) -> tuple[float, float]:
    """Return seconds to the first answer on the node: from ``ssh login sbatch``, and from the job's start."""
    folder = f"/home/alice/floor-{number}"
    write = f"mkdir -p {folder}/runtime; cat >{folder}/job.sh"
    subprocess.run(cluster.argv("login", "alice", ["sh", "-c", write]), input=FLOOR_JOB, text=True, check=True)
    poller = subprocess.Popen(
        cluster.argv("gpu1", "alice", ["python3", "-c", POLLER, folder]), stdout=subprocess.PIPE, text=True
    )
    time.sleep(0.5)  # until it is ready
    began = time.time()
    sbatch = ["ssh", "login", "sbatch", "--parsable", "--gpus=1", f"--output={folder}/log", f"{folder}/job.sh", folder]
    job = subprocess.run(
        cluster.argv("laptop", "alice", sbatch), text=True, capture_output=True, check=True
    ).stdout.strip()
    answered = float(poller.communicate(timeout=60)[0])
    started = job_start(cluster, job)
    cluster.run("login", "alice", ["scancel", job])
    wait_for_empty_queue(cluster)
    return answered - began, answered - started


def measure_launch(cluster: PracticeCluster, stay: float = 0.0) -> Launch:
    """Return the times of one launch from the laptop, which is ended after ``stay`` seconds."""
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
    directory = job = ""
    for line in process.stdout:
        event, now = json.loads(line), time.time() - began
        directory, job = event.get("directory", directory), event.get("job", job)
        if event["event"] == "error":
            sys.exit(f"the launch failed: {line}")
        names = {"connecting": "imports done, connecting", "submitted": "sbatch answered",
                 "running": "job known to run", "ready": "address printed"}  # fmt: skip
        if event["event"] in names:
            moments[names[event["event"]]] = now
        if event["event"] == "ready":
            for name, moment in {JOB_STARTS: job_start(cluster, job), **file_times(cluster, directory)}.items():
                moments[name] = moment - began
            time.sleep(stay)
            process.stdin.write("\n")
            process.stdin.flush()
    process.wait(60)
    wait_for_empty_queue(cluster)
    return Launch(began, moments)


def file_times(cluster: PracticeCluster, directory: str) -> dict[str, float]:
    """Return when the job's script wrote its first file, and when Jupyter listened, from these files."""
    names = {"started.json": "job script's first file", "endpoint.json": "Jupyter listens"}  # written atomically
    stat = "".join(f"stat -c '{name} %.6Y' {directory}/{name};" for name in names)
    lines = cluster.run("login", "alice", ["sh", "-c", stat]).stdout.split("\n")
    return {names[name]: float(moment) for name, moment in (line.split() for line in lines if line)}


def job_start(cluster: PracticeCluster, job: str) -> float:
    """Return when Slurm wrote a running job's script on the node, just before running it."""
    script = f"/var/lib/slurm/slurmd/job{int(job):05}/slurm_script"
    moment = cluster.root("gpu1", ["stat", "-c", "%.6W", script], check=True).stdout.strip()
    if moment in ("-", "?") or float(moment) == 0:
        sys.exit("The practice cluster's file system does not keep when a file was made; ext4, XFS and Btrfs do.")
    return float(moment)


def main() -> None:
    """Measure alternately; print the medians, their ratios, and what the time is spent on."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--slurm", default="24.11")
    arguments = parser.parse_args()
    cluster = PracticeCluster(arguments.slurm)
    if not cluster.is_up():
        cluster.up()
    write_profile(cluster, "laptop", "alice")
    floors, launches, by_hand, runs = [], [], [], []
    for number in range(arguments.runs + 1):
        wait_for_turn(number, arguments.runs)
        floors.append(measure_floor(cluster, number))
        wait_for_turn(number, arguments.runs)
        # after its first start from an image, a session caches its imports for the next one
        launches.append(measure_launch(cluster, stay=0.0 if number else KEEPS_IMPORTS))
        wait_for_turn(number, arguments.runs)
        by_hand.append(measure_by_hand(cluster, number))
        wait_for_turn(number, arguments.runs)
        runs.append(measure_run(cluster))
    for measured in (floors, launches, by_hand, runs):
        del measured[0]  # the first one is not warm: the image was not in the page cache
    cluster.run("login", "alice", ["sh", "-c", "rm -rf ~/floor-* ~/by-hand-*"])

    print(f"\nfrom the command to a usable JupyterLab (Slurm {arguments.slurm}, idle cluster, warm image)")
    show("floor: ssh login sbatch, polled on the node", [whole for whole, _ in floors])
    show("launch-notebook: address printed", [launch.usable for launch in launches])
    show_ratio([launch.usable for launch in launches], [whole for whole, _ in floors])
    show("JupyterLab's start, of the floor", [start for _, start in floors])
    show("JupyterLab's start, of launch-notebook", [launch.jupyterlab for launch in launches])
    show_ratio([launch.jupyterlab for launch in launches], [start for _, start in floors])
    print("\nwhere a launch is, in seconds from the command (medians)")
    names = sorted(launches[0].moments, key=lambda name: launches[0].moments[name])
    for name in names:
        show(name, [launch.moments[name] for launch in launches if name in launch.moments])

    print("\nfrom the command to a notebook of one cell that has run, on the laptop")
    show("ssh, sbatch, nbconvert --execute, polled, ssh", by_hand)
    show("launch-notebook run: the notebook is here", [took for took, _ in runs])
    show_ratio([took for took, _ in runs], by_hand)
    show("launch-notebook run: with its HTML copy", [moments["results_fetched"] for _, moments in runs])
    print("\nwhere a run is, in seconds from the command (medians)")
    for name in runs[0][1]:
        show(name, [moments[name] for _, moments in runs if name in moments])

    show_starts(15)


if __name__ == "__main__":
    main()
