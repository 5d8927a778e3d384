"""Measures how long commands take to start, against ``python -c pass``: processor time and elapsed time.

    make bench-start      (needs no cluster, and contacts nothing)

All are started alternately, so that other load on the machine affects all of them, and the medians are printed. They
use a temporary home, and are started once before, so that bytecode and validated profiles are cached. A launch is also
started on a terminal, and timed until it shows that it is connecting, to a port on which nothing listens.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pty
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

LAUNCH = [LAUNCHER, "--host", "you@127.0.0.1:1", "-t", "10", "--", "/image.sif"]
SIGN = b"connecting"


def measure_first_sign(environment: Mapping[str, str]) -> float:
    """Return the seconds until a launch shows on its terminal that it is connecting."""
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as screen:
        began = time.perf_counter()
        process = subprocess.Popen(
            LAUNCH, env={**environment, "TERM": "xterm"}, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        shown, seconds = b"", 0.0
        with contextlib.suppress(OSError):  # Linux: the terminal of a process that has ended
            while data := screen.read(65536):
                shown += data
                if SIGN in shown and not seconds:
                    seconds = time.perf_counter() - began
        process.wait()
    if not seconds:
        raise SystemExit(f"the launch said: {shown.decode(errors='replace')}")
    return seconds


def measure_start(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Return the processor time of a command and its children, and its elapsed time, in seconds."""
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
    """Start all commands alternately, and print the medians and their ratio to ``python -c pass``."""
    cores: dict[str, list[float]] = {name: [] for name in COMMANDS}
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    signs: list[float] = []
    with tempfile.TemporaryDirectory() as home:
        plain = {"HOME": home, "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        for run in range(runs + 1):
            for name, argv in COMMANDS.items():
                used, took = measure_start(argv, plain | TAB if name.startswith("TAB") else plain)
                if run:
                    cores[name].append(used)
                    seconds[name].append(took)
            sign = measure_first_sign(plain)
            signs += [sign] if run else []
    least = statistics.median(cores[PASS])
    print(f"\nstarting (medians of {runs})")
    for name in COMMANDS:
        used, took = statistics.median(cores[name]), statistics.median(seconds[name])
        print(f"  {name:<46} {used:6.3f} core-s  {took:6.3f} s  {used / least:5.1f} × {PASS}")
    print(f"  {'a launch, until it says that it connects':<46} {statistics.median(signs):24.3f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=15)
    show_starts(parser.parse_args().runs)
