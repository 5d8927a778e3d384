"""How long from a notebook here to the notebook with its outputs here: ``launch-notebook run``, and by hand.

Part of ``make bench``. By hand is what nobody can do faster with Jupyter's own command: one ``ssh`` that sends the
notebook and submits ``jupyter nbconvert --execute`` in the same container, a program that already waits on the login
node and looks every 20 ms whether the result is there, and one ``ssh`` that fetches it.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.launch import IMAGE, wait_for_empty_queue
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
import os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""


def measure_by_hand(cluster: PracticeCluster, number: int) -> float:
    """Return the seconds from ``ssh`` with the notebook to the notebook with its outputs on the laptop."""
    folder = f"/home/alice/by-hand-{number}"
    cluster.run("login", "alice", ["sh", "-c", f"mkdir {folder}; cat >{folder}/job.sh"], input=JOB, check=True)
    poller = subprocess.Popen(cluster.argv("login", "alice", ["python3", "-c", POLLER, f"{folder}/out.ipynb"]))
    time.sleep(0.5)  # it stands ready
    began = time.monotonic()
    submit = f"cat >{folder}/one.ipynb && sbatch --gpus=1 --output={folder}/log {folder}/job.sh {folder}"
    cluster.run("laptop", "alice", ["ssh", "login", submit], input=json.dumps(NOTEBOOK), check=True)
    poller.wait(120)
    fetched = cluster.run("laptop", "alice", ["ssh", "login", f"cat {folder}/out.ipynb"], check=True).stdout
    took = time.monotonic() - began
    _check(fetched)
    wait_for_empty_queue(cluster)
    return took


def measure_run(cluster: PracticeCluster) -> tuple[float, dict[str, float]]:
    """Return the seconds until ``run`` says that the notebook is here, and those until each event."""
    script = f"cd $(mktemp -d) && cat >one.ipynb && {shlex.join(_RUN)} </dev/null"
    began = time.monotonic()
    process = subprocess.Popen(
        cluster.argv("laptop", "alice", ["sh", "-c", script]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(NOTEBOOK))
    process.stdin.close()
    moments: dict[str, float] = {}
    folder = ""
    for line in process.stdout:
        event, now = json.loads(line), time.monotonic() - began
        if event["event"] == "error":
            sys.exit(f"the run failed: {line}")
        is_here = event["event"] == "querying" and event["text"].startswith("the notebook is in")
        moments.setdefault(HERE if is_here else event["event"], now)
        folder = event.get("folder", folder)
    moments["end of the command"] = time.monotonic() - began
    process.wait(60)
    _check(cluster.run("laptop", "alice", ["sh", "-c", f"cat {folder}/one.ipynb"], check=True).stdout)
    wait_for_empty_queue(cluster)
    return moments[HERE], moments


_FLAGS = ["--cluster", "practice", "--gpus", "1", "--json", "--output", "/tmp/runs"]
_RUN = ["launch-notebook", "run", "one.ipynb", *_FLAGS, "--", IMAGE]


def _check(text: str) -> None:
    (cell,) = json.loads(text)["cells"]
    assert cell["outputs"][0]["data"]["text/plain"] in ("42", ["42"])
