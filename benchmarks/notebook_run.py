"""Measures the time from a notebook to the fetched notebook with its outputs: ``launch-notebook run``, and by hand.

Part of ``make bench``. "By hand" is the fastest possible use of Jupyter's own command: one ``ssh`` that sends the
notebook and submits ``jupyter nbconvert --execute`` in the same container, a program already waiting on the login node
that checks every 20 ms whether the result exists, and one ``ssh`` that fetches it.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.practice import IMAGE, wait_for_empty_queue
from tests.practice_cluster import PracticeCluster

NOTEBOOK = {
    "cells": [{"cell_type": "code", "id": "one", "metadata": {}, "source": "6 * 7", "outputs": [],
               "execution_count": None}],
    "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}  # fmt: skip

HERE = "the notebook is here"
JOB = f"""#!/bin/bash
cd "$1" || exit
exec apptainer exec --nv {IMAGE} jupyter nbconvert --to notebook --execute --output=out.ipynb one.ipynb
"""
POLLER = """
import glob, sys, time
while not glob.glob(sys.argv[1]):
    time.sleep(0.02)
print(time.time())
"""


@contextlib.contextmanager
def _poller(cluster: PracticeCluster, box: str, pattern: str) -> Iterator[subprocess.Popen[str]]:
    """Wait in a box for a file, and print the time when it appears (all boxes share one clock)."""
    argv = cluster.argv(box, "alice", ["python3", "-c", POLLER, pattern])
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as poller:
        try:
            time.sleep(0.5)  # until it is ready
            yield poller
        finally:
            poller.kill()


def measure_by_hand(cluster: PracticeCluster, number: int) -> float:
    """Return the seconds from ``ssh`` with the notebook to the notebook with its outputs on the laptop."""
    folder = f"/home/alice/by-hand-{number}"
    cluster.run("login", "alice", ["sh", "-c", f"mkdir {folder}; cat >{folder}/job.sh"], input=JOB, check=True)
    with _poller(cluster, "login", f"{folder}/out.ipynb") as poller:
        began = time.time()
        submit = f"cat >{folder}/one.ipynb && sbatch --gpus=1 --output={folder}/log {folder}/job.sh {folder}"
        cluster.run("laptop", "alice", ["ssh", "login", submit], input=json.dumps(NOTEBOOK), check=True)
        poller.wait(120)
    fetched = cluster.run("laptop", "alice", ["ssh", "login", f"cat {folder}/out.ipynb"], check=True).stdout
    took = time.time() - began
    _check(fetched)
    wait_for_empty_queue(cluster)
    return took


def measure_run(cluster: PracticeCluster) -> tuple[float, dict[str, float]]:
    """Return the seconds until the notebook with its outputs is on the laptop, and those until each event."""
    folder = cluster.run("laptop", "alice", ["mktemp", "-d"], check=True).stdout.strip()
    run = ["launch-notebook", "run", "one.ipynb", *_FLAGS, "--output", f"{folder}/runs", "--", IMAGE]
    script = f"cd {folder} && cat >one.ipynb && {shlex.join(run)} </dev/null"
    moments: dict[str, float] = {}
    with _poller(cluster, "laptop", f"{folder}/runs/*/one.ipynb") as poller:
        began = time.time()
        process = subprocess.Popen(
            cluster.argv("laptop", "alice", ["sh", "-c", script]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(NOTEBOOK))
        process.stdin.close()
        for line in process.stdout:
            event, now = json.loads(line), time.time() - began
            if event["event"] == "error":
                sys.exit(f"the run failed: {line}")
            moments.setdefault(event["event"], now)
        moments["end of the command"] = time.time() - began
        process.wait(60)
        moments[HERE] = float(poller.communicate(timeout=10)[0]) - began
    if moments[HERE] > moments["notebook_finished"]:
        sys.exit("The notebook was not fetched before its job had ended, as it should be once its last cell has run.")
    _check(cluster.run("laptop", "alice", ["sh", "-c", f"cat {folder}/runs/*/one.ipynb"], check=True).stdout)
    wait_for_empty_queue(cluster)
    return moments[HERE], moments


_FLAGS = ["--cluster", "practice", "--gpus", "1", "--json"]


def _check(text: str) -> None:
    (cell,) = json.loads(text)["cells"]
    assert cell["outputs"][0]["data"]["text/plain"] in ("42", ["42"])
