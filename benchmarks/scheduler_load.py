"""Measures a pending session's load on the scheduler, against other ways to wait: the table of docs/scheduler-load.md.

    make bench-scheduler-load     (root; uses the practice cluster, and brings it up if need be; an hour)

It counts the RPCs that Slurm's controller has answered, from ``sdiag``, by user: each method has its own user, so all
are measured at the same time. The partition is full, so that all jobs are pending.

The launcher's sessions are real ``launch-notebook`` processes on the laptop. The other methods are stand-ins: loops
that make the same queries as often as the program in question.

- ``squeue`` every 10 s, as in a quickly written script: ``squeue -j JOB``.
- notebook.py, the script of the course that this project began with: it reads its job's output file every 10 s, and
  queries the scheduler only once the file contains an address.
- jupyter-forward 2025.1: it prints the job's log through one ssh connection, again as soon as that returns, and never
  queries the scheduler. It is measured for only a minute, because it keeps the login node busy.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.conftest import clear, write_profile
from tests.practice_cluster import PracticeCluster

FIRST_MINUTES = 5  # reported separately, because the pauses are short at first
WAITS = ["-p", "node", "-N", "2", "-t", "1:00:00"]  # a request for the full partition
FULL = ["-p", "node", "-N", "2", "-t", "1-00:00:00", "--wrap", "sleep 86400"]

SQUEUE = 'job=$(sbatch --parsable "$@" --wrap hostname) && while squeue -j "$job" >/dev/null; do sleep 10; done'
NOTEBOOK_PY = """\
job=$(sbatch --parsable "$@" --wrap hostname) || exit
while [ -z "$(grep -s http:// "slurm-$job.out")" ]; do sleep 10; done
"""
JUPYTER_FORWARD = """\
ssh -M -S /tmp/forward -N login & trap 'kill $!' EXIT; while [ ! -S /tmp/forward ]; do sleep 0.1; done
job=$(ssh -S /tmp/forward login sbatch --parsable --output=forward.log "$@" --wrap=hostname) || exit
end=$((SECONDS + 60))
while [ "$SECONDS" -lt "$end" ]; do ssh -S /tmp/forward login "bash -lc 'cat forward.log'" >/dev/null 2>&1; echo; done
"""


@dataclass
class WaitMethod:
    """One method of waiting, with its user and number of sessions; ``processes``: those that wait."""

    name: str
    user: str
    sessions: int
    begin: Callable[[PracticeCluster, WaitMethod, Path], list[subprocess.Popen[bytes]]]
    processes: list[subprocess.Popen[bytes]]
    counts: list[int]

    def per_session(self, since: int, until: int) -> float:
        """RPCs per session between two counts."""
        return (self.counts[until] - self.counts[since]) / self.sessions


def rpcs(cluster: PracticeCluster, user: str) -> int:
    """Return how many RPCs of this user the controller has answered since its counters were reset."""
    text = cluster.root("ctl", ["sdiag"], check=True).stdout
    found = re.search(rf"^\s+{user}\s+\(\s*\d+\) count:(\d+)", text, re.M)
    return int(found[1]) if found else 0


def launch(cluster: PracticeCluster, method: WaitMethod, folder: Path) -> list[subprocess.Popen[bytes]]:
    """Start sessions on the laptop, one after the other, and wait until the last one is pending."""
    begun = []
    for number in range(method.sessions):
        output = folder / f"{method.user}-{number}"
        argv = ["launch-notebook", "--cluster", "practice", "--json", *WAITS]
        begun.append(start(cluster.argv("laptop", method.user, argv), output.open("wb")))
        until(lambda output=output: b'"pending"' in output.read_bytes(), f"session {number} of {method.user}")  # type: ignore[misc]
    return begun


def loop(script: str) -> Callable[[PracticeCluster, WaitMethod, Path], list[subprocess.Popen[bytes]]]:
    """Return a function that starts a loop on the login node."""

    def begin(cluster: PracticeCluster, method: WaitMethod, folder: Path) -> list[subprocess.Popen[bytes]]:
        return [
            start(
                cluster.argv("login", method.user, ["bash", "-c", script, "wait", *WAITS]),
                (folder / method.user).open("wb"),
            )
        ]

    return begin


def start(argv: Sequence[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a process of a method."""
    with output:
        return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=output, stderr=output)


def until(condition: Callable[[], bool], what: str, seconds: float = 120) -> None:
    """Wait for a condition; exit if it does not come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.2)


def forward_for_a_minute(cluster: PracticeCluster, user: str) -> tuple[int, int]:
    """Return how many RPCs and how many commands on the login node jupyter-forward's method takes in a minute."""
    before = rpcs(cluster, user)
    polls = cluster.run("laptop", user, ["bash", "-c", JUPYTER_FORWARD, "forward", *WAITS], check=True).stdout.count(
        "\n"
    )
    submitting = 1
    return rpcs(cluster, user) - before - submitting, polls


def show(methods: Sequence[WaitMethod], minutes: float, forward: tuple[int, int]) -> None:
    """Print the table, as Markdown: RPCs of one session."""
    print(f"| way to wait | sessions | in the first {FIRST_MINUTES} min | in an hour after that | in the first hour |")
    print("|---|---|---|---|---|")
    for method in methods:
        first, then = method.per_session(0, 1), method.per_session(1, 2) * 60 / (minutes - FIRST_MINUTES)
        whole = first + then * (60 - FIRST_MINUTES) / 60
        print(f"| {method.name} | {method.sessions} | {first:.1f} | {then:.1f} | {whole:.1f} |")
    asked, polls = forward
    cells = f"{FIRST_MINUTES * asked} | {60 * asked} | {60 * asked}"
    print(f"| jupyter-forward's way ({polls} times `cat` in a minute) | 1 | {cells} |")


def main() -> None:
    """Bring the practice cluster up if need be, measure all methods at once, and print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60, help=f"more than {FIRST_MINUTES}; scaled to an hour")
    parser.add_argument("--sessions", type=int, default=50, help="of the user with many")
    parser.add_argument("--slurm", default="24.11", help="the practice cluster's release of Slurm: 24.11 or 22.05")
    arguments = parser.parse_args()
    if arguments.minutes <= FIRST_MINUTES:
        parser.error(f"--minutes: more than {FIRST_MINUTES}")
    cluster = PracticeCluster(arguments.slurm)
    was_up = cluster.is_up()
    cluster.up(until_end_of=None if was_up else os.getpid())
    methods = [
        WaitMethod("launch-notebook, all of one user", "alice", arguments.sessions, launch, [], []),
        WaitMethod("launch-notebook", "bob", 1, launch, [], []),
        WaitMethod("`squeue -j JOB` every 10 s", "carol", 1, loop(SQUEUE), [], []),
        WaitMethod("notebook.py's way", "heidi", 1, loop(NOTEBOOK_PY), [], []),
    ]
    with ExitStack() as at_the_end, tempfile.TemporaryDirectory() as folder:
        at_the_end.callback(clear, cluster)
        clear(cluster)
        cluster.run("login", "erin", ["sbatch", *FULL], check=True)
        for method in methods:
            write_profile(cluster, "laptop", method.user)
            method.counts.append(rpcs(cluster, method.user))
            method.processes = method.begin(cluster, method, Path(folder))
            at_the_end.callback(end, method)
        for wait in (FIRST_MINUTES, arguments.minutes - FIRST_MINUTES):
            time.sleep(60 * wait)
            for method in methods:
                method.counts.append(rpcs(cluster, method.user))
                gone = [process for process in method.processes if process.poll() is not None]
                if gone:
                    sys.exit(f"{method.name}: {len(gone)} of {method.sessions} have ended")
        forward = forward_for_a_minute(cluster, "grace")
        show(methods, arguments.minutes, forward)


def end(method: WaitMethod) -> None:
    """End the launchers; their jobs, and the loops, end afterwards."""
    for process in method.processes:
        if process.poll() is None:
            process.communicate(b"d\n") if method.begin is launch else process.kill()


if __name__ == "__main__":
    main()
