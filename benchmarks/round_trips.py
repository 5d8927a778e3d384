"""How many round trips a launch takes until its job is queued, beside ``ssh login sbatch``.

    make bench-round-trips     (root; uses the practice cluster, and brings it up if need be; two minutes)

Each is timed on the cluster as it is, and with a longer line between the laptop and the login node. What it takes
longer, in units of what was added to each round trip, is how often it waits for the other side, one wait after the
other. That counts everything: TCP with its slow start, SSH's login, channels and commands. Of all runs the quickest
counts: whatever else the machine does only adds to it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.practice import IMAGE, wait_for_empty_queue
from tests.conftest import write_profile
from tests.practice_cluster import PracticeCluster

QUEUED = ["--time=10:00", "--begin=now+1hour"]  # nothing starts


def measure_ssh(cluster: PracticeCluster) -> float:
    """Return the seconds that ``ssh login sbatch`` takes."""
    began = time.monotonic()
    cluster.run("laptop", "alice", ["ssh", "login", "sbatch", *QUEUED, "--output=/dev/null", "--wrap=true"], check=True)
    return time.monotonic() - began


def measure_launch(cluster: PracticeCluster, engine: str) -> float:
    """Return the seconds from the command until the launcher says that the job is submitted."""
    command = ["launch-notebook", "--cluster", "practice", "--engine", engine, "--json", *QUEUED, "--", IMAGE]
    began = time.monotonic()
    process = subprocess.Popen(
        cluster.argv("laptop", "alice", command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == "error":
            sys.exit(f"the launch failed: {line}")
        if event["event"] == "submitted":
            took = time.monotonic() - began
            cluster.run("login", "alice", ["scancel", event["job"]], check=True)
            break
    else:
        sys.exit("the launch ended before its job was submitted")
    process.stdout.read()
    process.wait(60)
    # as after sessions that ended by themselves: the next launch need not ask the scheduler about this one
    cluster.run("login", "alice", ["sh", "-c", "rm -rf ~/.notebook-launcher/sessions/2*"], check=True)
    return took


def main() -> None:
    """Measure all in turn, near and far, and print the quickest of each and the round trips."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--milliseconds", type=float, default=300, help="added to each round trip")
    parser.add_argument("--slurm", default="24.11")
    arguments = parser.parse_args()
    cluster = PracticeCluster(arguments.slurm)
    was_up = cluster.is_up()
    cluster.up(until_end_of=None if was_up else os.getpid())
    write_profile(cluster, "laptop", "alice")
    ways: dict[str, Callable[[], float]] = {
        "ssh login sbatch": lambda: measure_ssh(cluster),
        "launch-notebook, paramiko": lambda: measure_launch(cluster, "paramiko"),
        "launch-notebook, openssh": lambda: measure_launch(cluster, "openssh"),
    }
    taken: dict[tuple[str, bool], list[float]] = {(name, far): [] for name in ways for far in (False, True)}
    for run in range(arguments.runs + 1):
        for far in (False, True):
            with cluster.delayed(arguments.milliseconds) if far else contextlib.nullcontext():
                for name, measure in ways.items():
                    seconds = measure()
                    if run:  # the first one compiles, looks up addresses, and leaves the job scripts
                        taken[name, far].append(seconds)
        cluster.run("login", "alice", ["scancel", "--user=alice"])
        wait_for_empty_queue(cluster)
    least = None
    print(f"\nuntil the job is queued, with {arguments.milliseconds:.0f} ms more for each round trip")
    for name in ways:
        near, far = min(taken[name, False]), min(taken[name, True])
        trips = 1000 * (far - near) / arguments.milliseconds
        least = trips if least is None else least
        print(f"  {name:<28} {near:6.2f} s  {far:6.2f} s  {trips:5.1f} round trips  ({trips - least:+.1f})")


if __name__ == "__main__":
    main()
