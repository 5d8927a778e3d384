"""``run``: a notebook is executed from top to bottom in a job, with real Slurm, sshd and Apptainer."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator

import pytest

from tests.cluster_tests import in_box
from tests.conftest import Session, assert_nothing_left
from tests.practice_cluster import PracticeCluster

LAUNCH = in_box.launch
each_scheduler = pytest.mark.each_scheduler

Start = Callable[..., Session]
ENV = ("-t", "10", "--gpus", "1", "-n", "2", "--", "tf-gpu")

#: a folder with a notebook, a module that it imports, and data that it reads
MAKE = r"""
import json, os, pathlib
os.makedirs("lab", exist_ok=True)
def cell(kind, source, tags=()):
    more = {"outputs": [], "execution_count": None} if kind == "code" else {}
    return {"cell_type": kind, "id": str(len(cells)), "metadata": {"tags": list(tags)}, "source": source, **more}
cells = []
for kind, source, *tags in (
    ("code", "SECONDS = 0", "parameters"),
    ("markdown", "## Load"),
    ("code", "import helper\nprint(helper.twice(SECONDS), open('data.txt').read())"),
    ("markdown", "## Train"),
    ("code", "import os, time\nfor _ in range(SECONDS * 10):\n"
             "    time.sleep(0 if os.path.exists(os.path.expanduser('~/goes-on')) else 0.1)"),
    ("markdown", "## Save"),
    ("code", "import os\nos.makedirs('out', exist_ok=True)\nprint('saved', open('out/table.csv', 'w').write('a,b'))"),
):
    cells.append(cell(kind, source, tags))
notebook = {"nbformat": 4, "nbformat_minor": 5, "cells": cells,
            "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}}
pathlib.Path("lab/train.ipynb").write_text(json.dumps(notebook))
pathlib.Path("lab/helper.py").write_text("def twice(x): return 2 * x\n")
pathlib.Path("lab/data.txt").write_text("the data\n")
"""


@pytest.fixture
def lab(cluster: PracticeCluster) -> Iterator[Callable[..., str]]:
    """Create the folder on both machines; yield a function that runs a command of alice's and returns its output."""

    made = ("lab", "runs", "other", "goes-on")

    def told(*argv: str, box: str = "laptop") -> str:
        return cluster.run(box, "alice", list(argv), check=True).stdout

    for box in ("laptop", "login"):
        told("rm", "-rf", *made, box=box)
        told("python3", "-c", MAKE, box=box)
    yield told
    for box in ("laptop", "login"):
        told("rm", "-rf", *made, box=box)


def result(lab: Callable[..., str], name: str, box: str = "laptop", where: str = "runs") -> str:
    """Return the content of a file of the only run."""
    return lab("sh", "-c", f"cat {where}/*/{name}", box=box)


@each_scheduler
def test_a_run_with_parameters_from_the_laptop_to_its_results(
    cluster: PracticeCluster, start: Start, lab: Callable[..., str]
) -> None:
    with cluster.start_up_file("alice", ".bashrc", "echo Welcome; printf 'to the site'\n"):
        run = start("run", "lab/train.ipynb", "-p", "SECONDS", "3", "--with", "lab/data.txt", "--follow", *ENV)
        run.expect(r"Notebook train.ipynb: 4 code cells, with SECONDS=3; data.txt, helper.py go")
        run.expect("6 the data")
        run.expect(r"Cell 3 of 4 · Train · 0:\d\d · ")
        run.expect(r"\d (min|s) left")
        run.expect("saved 3")
        run.expect("finished: 4 code cells")
        run.expect(r"runs/train-[\w-]+/train.ipynb")
        run.expect("beside it: out/table.csv, train.html, usage.csv")
        assert run.end() == 0
    text = result(lab, "train.ipynb")
    assert "6 the data" in result(lab, "train.html")
    assert "6 the data" in text and "saved 3" in text and "injected-parameters" in text
    record = json.loads(result(lab, "run.json"))
    assert record["parameters"] == {"SECONDS": 3} and record["cause"] == "finished" and record["job"] == run.job_id
    assert record["image"]["image"].endswith("jupyterlab.sif")
    assert result(lab, "out/table.csv") == "a,b" and result(lab, "usage.csv").startswith("time")
    assert lab("sh", "-c", "find runs -perm /077") == ""
    assert_nothing_left(cluster)


def test_a_run_goes_on_alone_and_another_laptop_gets_its_results(
    cluster: PracticeCluster, start: Start, lab: Callable[..., str]
) -> None:
    """Attach from a folder without any of its files, and get the results so far while the run continues."""
    run = start("run", "lab/train.ipynb", "-p", "SECONDS", "200", "--with", "lab/data.txt", "--detach", *ENV)
    run.expect(r"results: +launch-notebook results \w")
    assert run.end() == 0
    name = run.session_id  # in full: the last characters may all be digits, as of a job id
    other = "mkdir -p other && cd other && exec launch-notebook"
    killed = start_at(cluster, f"{other} connect --follow {name}")
    killed.expect("400 the data")  # printed before ``connect``
    killed.expect("Cell 3 of 4 · Train")
    killed.child.kill(signal.SIGKILL)
    cluster.root("laptop", ["pkill", "-KILL", "-u", "alice"])
    partly = start_at(cluster, f"{other} results {name}")
    partly.expect("The results so far are here")
    partly.expect("has not finished yet")
    assert partly.end() == 0
    assert "400 the data" in result(lab, "train.ipynb", where="other/runs")
    listed = start("list", columns=200)  # wide enough for other sessions in the list
    listed.expect(r"train.ipynb, 2 of 4")
    assert listed.end() == 0
    with cluster.start_up_file("alice", ".bash_profile", "exec sh\n"):  # without an answer, there may still be a job
        for command in ("list", "stop"):
            asked = start(command)
            asked.expect("Your login shell on login runs no commands")
            asked.expect("Line 1 of ~/.bash_profile ends or replaces it: exec sh")
            assert asked.end() == 18
    opened = start("open", name)
    opened.expect("has no JupyterLab")
    assert opened.end() == 2
    lab("touch", "goes-on", box="login")
    come_back = start_at(cluster, f"{other} connect {name}")
    come_back.expect("finished")
    assert come_back.end() == 0
    assert "saved 3" in result(lab, "train.ipynb", where="other/runs")
    assert_nothing_left(cluster)


def start_at(cluster: PracticeCluster, line: str) -> Session:
    return Session(cluster.argv("laptop", "alice", ["sh", "-c", line], env={"TERM": "xterm-256color"}))


@pytest.mark.parametrize(("end", "code"), [("walltime", 32), ("ctrl-c", 130)])
def test_what_there_is_comes_when_the_job_is_ended(
    cluster: PracticeCluster, start: Start, lab: Callable[..., str], end: str, code: int
) -> None:
    run = start("run", "lab/train.ipynb", "-p", "SECONDS", "100", "--with", "lab/data.txt", *ENV)
    run.expect("Cell 3 of 4")
    if end == "ctrl-c":
        run.send("\x03")
    else:
        cluster.root("login", ["scontrol", "update", f"JobId={run.job_id}", "TimeLimit=0:00:01"], check=False)
    run.expect("The results so far are here:", timeout=120)
    run.expect(r"runs/train-[\w-]+/train.ipynb")
    assert run.end(timeout=60) == code, run.printed
    assert "200 the data" in result(lab, "train.ipynb")
    assert_nothing_left(cluster)


def test_a_run_as_a_script_on_the_login_node_works_in_the_notebooks_folder(
    cluster: PracticeCluster, start: Start, lab: Callable[..., str]
) -> None:
    """No files are copied: the notebook reads and writes relative paths in its folder, as when it is run by hand."""
    run = start("run", "lab/train.ipynb", "--to", "script", "--output", "other", *ENV, box="login")
    run.expect("finished")
    assert run.end() == 0
    assert "the data" in result(lab, "train.out", box="login", where="other")
    assert "import helper" in result(lab, "train.py", box="login", where="other")
    assert lab("cat", "lab/out/table.csv", box="login") == "a,b"
    assert_nothing_left(cluster)
