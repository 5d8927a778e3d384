"""Measures how many round trips a launch takes until its job is queued, against ``ssh login sbatch``.

    make bench-round-trips     (root; uses the practice cluster, and brings it up if need be; three minutes)

Each is timed with two different delays between the laptop and the login node. The difference of the times, divided by
the difference of the round-trip times, is the number of sequential waits for the other side. That includes everything:
TCP's slow start, SSH's login, channels and commands. Computation takes the same time with both delays, and is not
counted. The result of each round and the median are printed, with the total time at the round trip of a distant
cluster.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
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
    """Return the seconds from the command until the launcher reports that the job is submitted."""
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
    # as if sessions had ended by themselves: the next launch need not query the scheduler about this one
    cluster.run("login", "alice", ["sh", "-c", "rm -rf ~/.notebook-launcher/sessions/2*"], check=True)
    return took


def main() -> None:
    """Measure all alternately with each delay, and print the medians of the times and of the round trips."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--delays", default="150,300,900", help="ms more for each round trip: usual, long, longer")
    parser.add_argument("--slurm", default="24.11")
    arguments = parser.parse_args()
    delays = [float(one) for one in arguments.delays.split(",")]
    cluster = PracticeCluster(arguments.slurm)
    was_up = cluster.is_up()
    cluster.up(until_end_of=None if was_up else os.getpid())
    write_profile(cluster, "laptop", "alice")
    ways: dict[str, Callable[[], float]] = {
        "ssh login sbatch": lambda: measure_ssh(cluster),
        "launch-notebook, paramiko": lambda: measure_launch(cluster, "paramiko"),
        "launch-notebook, openssh": lambda: measure_launch(cluster, "openssh"),
    }
    for measure in ways.values():  # the first one compiles, looks up addresses, and leaves the job scripts
        measure()
    taken: dict[tuple[str, float], list[float]] = {(name, delay): [] for name in ways for delay in delays}
    for _ in range(arguments.runs):
        for delay in delays:
            with cluster.delayed(delay):
                for name, measure in ways.items():
                    taken[name, delay].append(measure())
        cluster.run("login", "alice", ["scancel", "--user=alice"])
        wait_for_empty_queue(cluster)
    show(taken, list(ways), delays)


def show(taken: Mapping[tuple[str, float], Sequence[float]], ways: Sequence[str], delays: Sequence[float]) -> None:
    """Print a line for each method: its times, its round trips per round, and how many more than the first method."""
    longer, longest = delays[-2:]
    trips = {}
    for way in ways:
        rounds = zip(taken[way, longer], taken[way, longest], strict=True)
        trips[way] = [1000 * (far - near) / (longest - longer) for near, far in rounds]
    print("\nuntil the job is queued, with so many ms more for each round trip (medians); round trips")
    print(f"  {'':<28}" + "".join(f"{delay:>9.0f} ms" for delay in delays))
    for way in ways:
        times = "".join(f"{statistics.median(taken[way, delay]):>10.2f} s" for delay in delays)
        more = statistics.median(a - b for a, b in zip(trips[way], trips[ways[0]], strict=True))
        each = " ".join(f"{one:.1f}" for one in trips[way])
        print(f"  {way:<28}{times}  {statistics.median(trips[way]):5.1f}  ({more:+.1f}; in each round: {each})")


if __name__ == "__main__":
    main()
