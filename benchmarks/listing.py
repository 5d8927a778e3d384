"""Measures how long ``launch-notebook list`` takes with many sessions, and how often it queries the scheduler.

    make bench-list       (root; uses the practice cluster, and brings it up if need be; a minute)

Some of the sessions have pending jobs in Slurm's queue; the others have ended in the last day. Each Slurm command that
the list runs on the login node is counted. It is timed alternately with ``ssh login squeue --me``, which lists jobs but
no sessions.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.practice import show, wait_for_empty_queue
from tests.conftest import PROFILE, write_profile
from tests.practice_cluster import PracticeCluster
from tests.session_directories import name_of, plant

ROOT = "/home/alice/.notebook-launcher/sessions"
SUBMIT = "for n in $(seq {}); do sbatch --parsable --begin=now+1hour --output=/dev/null --wrap=true; done"
COUNTED = "/home/alice/counted"  # comes first on PATH in the launcher's login shells
WRAPPER = f"""#!/bin/sh
echo "${{0##*/}}" >>{COUNTED}/log
PATH=${{PATH#*:}} exec "${{0##*/}}" "$@"
"""
COMMANDS = ("squeue", "sacct", "scontrol", "sinfo", "sdiag", "sprio", "sshare")


def as_archive(jobs: Sequence[str], sessions: int) -> bytes:
    """Return an archive of ``sessions`` session directories: the newest with these jobs, the others ended."""
    now = datetime.now(timezone.utc).replace(microsecond=0)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(sessions):
            made = now - timedelta(minutes=5 * number)  # 250 of them: in 21 hours
            name = name_of(made, number)
            if number < len(jobs):
                plant(Path(folder), name, made, job=jobs[number], secrets=True)
            else:
                plant(Path(folder), name, made, job=str(number), started=made, listens=True, ended=made)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            archive.add(folder, arcname=".")
        return packed.getvalue()


@contextlib.contextmanager
def with_sessions(cluster: PracticeCluster, sessions: int, live: int) -> Iterator[None]:
    """Give alice this number of sessions, ``live`` of them pending, and remove them afterwards."""
    remove = ["sh", "-c", f"rm -rf {ROOT} {COUNTED}"]
    cluster.run("login", "alice", remove, check=True)
    try:
        submit = ["sh", "-c", SUBMIT.format(live)]
        jobs = cluster.run("login", "alice", submit, check=True).stdout.split()
        unpack = ["sh", "-c", f"mkdir -p -m 700 {ROOT} && tar -xzf - -C {ROOT} && chmod 700 {ROOT}"]
        subprocess.run(cluster.argv("login", "alice", unpack), input=as_archive(jobs, sessions), check=True)
        for command in COMMANDS:
            put = f"mkdir -p {COUNTED}; cat >{COUNTED}/{command}; chmod +x {COUNTED}/{command}"
            cluster.run("login", "alice", ["sh", "-c", put], input=WRAPPER, check=True)
        write_profile(cluster, "laptop", "alice", f'login_setup = ["PATH={COUNTED}:$PATH"]\n{PROFILE}')
        yield
    finally:
        cluster.run("login", "alice", ["scancel", "--user=alice"])
        cluster.run("login", "alice", remove)
        write_profile(cluster, "laptop", "alice")
        wait_for_empty_queue(cluster)


def measure(cluster: PracticeCluster, argv: Sequence[str]) -> tuple[float, list[str]]:
    """Return the seconds that a command takes on the laptop, and its output lines."""
    began = time.monotonic()
    printed = cluster.run("laptop", "alice", argv, check=True).stdout
    return time.monotonic() - began, printed.splitlines()


def queries(cluster: PracticeCluster) -> list[str]:
    """Return the commands that were counted since the last time."""
    read = f"cat {COUNTED}/log 2>/dev/null; rm -f {COUNTED}/log"
    return cluster.run("login", "alice", ["sh", "-c", read]).stdout.split()


def main() -> None:
    """Measure both alternately, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--sessions", type=int, default=250)
    parser.add_argument("--live", type=int, default=20)
    parser.add_argument("--slurm", default="24.11")
    arguments = parser.parse_args()
    cluster = PracticeCluster(arguments.slurm)
    was_up = cluster.is_up()
    cluster.up(until_end_of=None if was_up else os.getpid())
    lists: list[float] = []
    squeues: list[float] = []
    asked: list[list[str]] = []
    with with_sessions(cluster, arguments.sessions, arguments.live):
        for run in range(arguments.runs + 1):
            queries(cluster)
            took, lines = measure(cluster, ["launch-notebook", "list", "--cluster", "practice", "--json"])
            listed = sum('"event": "session"' in line for line in lines)
            if listed != arguments.sessions:
                sys.exit(f"{listed} sessions were listed instead of {arguments.sessions}")
            if run:  # the first one compiles
                lists.append(took)
                asked.append(queries(cluster))
                squeues.append(measure(cluster, ["ssh", "login", "squeue", "--me"])[0])
    print(f"\n{arguments.sessions} sessions, {arguments.live} of them pending (Slurm {arguments.slurm})")
    show("launch-notebook list", lists)
    show("ssh login squeue --me", squeues)
    print(f"  {'queries of the scheduler, each time':<46} {' and '.join(sorted({' '.join(one) for one in asked}))}")


if __name__ == "__main__":
    main()
