"""Measures how soon JupyterLab is usable again after each fault: the table of the documentation.

    make bench-faults     (root; uses the practice cluster, and brings it up if need be; about half an hour)

For each fault, a notebook with a kernel that has a variable is open in a real browser on the laptop, in a tab that is
never reloaded. The time is from the fault's end (or its beginning, if it has no end) until another cell has printed
something that needs the variable.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.cluster_tests.jupyterlab_page import Tab, chromium
from tests.cluster_tests.network_faults import LONG, QUICK, Fault, usable_again
from tests.conftest import clear, launch, write_profile
from tests.practice_cluster import PracticeCluster


def measure(cluster: PracticeCluster, engine: str, fault: Fault) -> float:
    """Launch, run a cell, let the fault happen, and return the seconds until the next cell has been answered."""
    cluster.run("login", "alice", ["sh", "-c", "rm -rf ~/.jupyter/lab ~/Untitled*.ipynb"])
    session = launch(cluster, "laptop", "--engine", engine, columns=160)
    session.ready()
    session.read_along()
    with tempfile.TemporaryDirectory() as folder, chromium(cluster, Path(folder)) as browser:
        seconds = usable_again(cluster, session, Tab(browser, session.url), fault, patience=900)
    session.send("\n")
    session.end()
    return seconds


def main() -> None:
    """Bring the practice cluster up if need be, measure every fault, and print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default="paramiko,openssh")
    parser.add_argument("--which", choices=("quick", "long", "all"), default="all", help="long: up to ten minutes each")
    parser.add_argument("--slurm", default="24.11", help="the practice cluster's release of Slurm: 24.11 or 22.05")
    arguments = parser.parse_args()
    cluster = PracticeCluster(arguments.slurm)
    was_up = cluster.is_up()
    cluster.up(until_end_of=None if was_up else os.getpid())
    write_profile(cluster, "laptop", "alice")
    engines = arguments.engines.split(",")
    print(f"| fault | {' | '.join(f'seconds, {engine}' for engine in engines)} |")
    print("|---" * (1 + len(engines)) + "|", flush=True)
    faults = {"quick": QUICK, "long": LONG, "all": (*QUICK, *LONG)}[arguments.which]
    for fault in faults:
        cells = [f"{measure(cluster, engine, fault):.1f}" for engine in engines]
        print(f"| {fault.name} | {' | '.join(cells)} |", flush=True)
    clear(cluster)


if __name__ == "__main__":
    main()
