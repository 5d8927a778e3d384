"""How long commands take to start, beside ``python -c pass``: processor time and time by the clock.

    make bench-start      (needs no cluster, and contacts nothing)

All are started in turn, so that whatever else the machine does hits all of them, and the medians are printed. They run
in a home of their own, and are started once before, so that Python has compiled them and profiles are found valid.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

LAUNCHER = str(Path(sys.executable).parent / "launch-notebook")
PASS = "python -c pass"
COMMANDS: dict[str, list[str]] = {
    PASS: [sys.executable, "-c", "pass"],
    "launch-notebook --version": [LAUNCHER, "--version"],
    "launch-notebook --help": [LAUNCHER, "--help"],
    "launch-notebook list --cluster here": [LAUNCHER, "list", "--cluster", "here"],
    "launch-notebook --cluster snellius --dry-run": [LAUNCHER, "--cluster", "snellius", "-A", "p1", "--dry-run"],
    "TAB: launch-notebook --cluster s": [LAUNCHER],
}
TAB = {"_LAUNCH_NOTEBOOK_COMPLETE": "bash_complete", "COMP_WORDS": "launch-notebook --cluster s", "COMP_CWORD": "2"}


def measure_start(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Return the core-seconds that a command and its children use, and the seconds that it takes."""
    began = time.perf_counter()
    process = subprocess.Popen(
        argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(argv)} ended with exit code {process.returncode}")
    return used.ru_utime + used.ru_stime, time.perf_counter() - began


def show_starts(runs: int) -> None:
    """Start every command in turn, and print the medians and their ratio to ``python -c pass``."""
    cores: dict[str, list[float]] = {name: [] for name in COMMANDS}
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as home:
        plain = {"HOME": home, "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        for run in range(runs + 1):
            for name, argv in COMMANDS.items():
                used, took = measure_start(argv, plain | TAB if name.startswith("TAB") else plain)
                if run:
                    cores[name].append(used)
                    seconds[name].append(took)
    least = statistics.median(cores[PASS])
    print(f"\nstarting (medians of {runs})")
    for name in COMMANDS:
        used, took = statistics.median(cores[name]), statistics.median(seconds[name])
        print(f"  {name:<46} {used:6.3f} core-s  {took:6.3f} s  {used / least:5.1f} × {PASS}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=15)
    show_starts(parser.parse_args().runs)
