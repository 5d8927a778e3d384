"""``bench`` with four combinations, of which one fails; its launcher is killed, and it runs again."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
from collections.abc import Iterator

import pytest

from notebook_launcher.core.package_data import folder
from tests.conftest import PROFILE, Session, assert_nothing_left, clear, write_profile
from tests.doubles import wait_until
from tests.practice_cluster import PracticeCluster

each_scheduler = pytest.mark.each_scheduler
CELLS = [
    ("parameters", "import timing\nSIZE = timing.setting('SIZE', 1000)\nBROKEN = timing.setting('BROKEN', 0)"),
    ("", "import pathlib, time\nwhile SIZE == 2000 and not pathlib.Path('~/may-end').expanduser().exists():\n"
         "    time.sleep(0.2)"),
    ("", "if BROKEN == SIZE and timing.allotted_cores() > 1:\n    raise ValueError('made to fail')"),
    ("", "data = list(range(SIZE))\ntiming.measure(lambda: sum(data), name='sum', work=SIZE, unit='numbers', "
         "max_repeats=7, budget=0.2).record()"),
]  # fmt: skip
NOTEBOOK = {
    "cells": [
        {"cell_type": "code", "id": f"c{place}", "metadata": {"tags": [tag] if tag else []}, "source": source,
         "execution_count": None, "outputs": []}
        for place, (tag, source) in enumerate(CELLS)
    ],
    "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
                 "language_info": {"name": "python"}},
    "nbformat": 4, "nbformat_minor": 5,
}  # fmt: skip
MATRIX = "cores=1,2 SIZE=1000,2000"
COMMAND = ["launch-notebook", "bench", "tiny.ipynb", "--matrix", MATRIX, "-p", "BROKEN", "2000", "-t", "5",
           "--gpus", "0", "--at-once", "2", "--", "tf-mkl"]  # fmt: skip


@pytest.fixture
def alice(cluster: PracticeCluster) -> Iterator[PracticeCluster]:
    """The cluster, with the notebook in a folder on alice's laptop; what she leaves is removed at the end."""
    write_profile(cluster, "laptop", "alice", PROFILE)
    cluster.run("login", "alice", ["rm", "-rf", ".notebook-launcher", "may-end"])
    write(cluster, "tiny.ipynb", json.dumps(NOTEBOOK))
    write(cluster, "timing.py", (folder("notebooks") / "timing.py").read_text())
    yield cluster
    clear(cluster)
    cluster.run("login", "alice", ["rm", "-f", "may-end"])
    cluster.run("laptop", "alice", ["rm", "-rf", "lab"])


def write(cluster: PracticeCluster, name: str, text: str) -> None:
    cluster.run("laptop", "alice", ["sh", "-c", 'mkdir -p lab; cat >"lab/$1"', "write", name], input=text, check=True)


def in_lab(words: list[str]) -> list[str]:
    return ["sh", "-c", 'cd lab && exec "$@"', "in-lab", *words]


def read(cluster: PracticeCluster, path: str) -> str:
    return cluster.run("laptop", "alice", ["cat", f"lab/bench-tiny/{path}"]).stdout


def entries(cluster: PracticeCluster) -> list[dict[str, object]]:
    return list(json.loads(read(cluster, "bench.json") or '{"entries": []}')["entries"])


def sessions(cluster: PracticeCluster) -> list[str]:
    """Return the names of all sessions that ever had a job."""
    found = cluster.run("login", "alice", ["sh", "-c", "ls -d .notebook-launcher/sessions/2*/job"]).stdout
    return [path.split("/")[-2] for path in found.split()]


def test_killed_in_the_middle_and_run_again_nothing_is_run_twice(alice: PracticeCluster) -> None:
    killed = subprocess.Popen(
        alice.argv("laptop", "alice", in_lab(COMMAND)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        wait_until(lambda: {"done", "queued"} <= {entry["state"] for entry in entries(alice)}, 90, "one is done")
    finally:
        alice.root("laptop", ["pkill", "-KILL", "-u", "alice", "-f", "launch-notebook bench"])
        killed.communicate(timeout=60)
    before = {str(entry["session"]) for entry in entries(alice) if entry["session"]}
    assert any(entry["state"] == "queued" for entry in entries(alice)), "one of them waits in its notebook"
    alice.run("login", "alice", ["touch", "may-end"], check=True)
    done = alice.run("laptop", "alice", in_lab(COMMAND), timeout=150)
    assert done.returncode == 37, done.stdout + done.stderr
    found = entries(alice)
    states = {str(entry["name"]): entry["state"] for entry in found}
    assert len(states) == 4
    assert [name for name, state in states.items() if state == "failed"] == ["cores=2 BROKEN=2000 SIZE=2000"], (
        done.stderr
    )
    assert list(states.values()).count("done") == 3
    after = {str(entry["session"]) for entry in found}
    # Sessions whose jobs were queued are used again. One session may have lost its launcher before its job was queued;
    # no job can be queued for it any more.
    never = before - after
    assert never <= {str(session) for entry in found for session in entry["earlier"]}  # type: ignore[attr-defined]
    assert len(never) <= 1
    assert sorted(sessions(alice)) == sorted(after)
    assert len(jobs(alice, before | after)) == 4
    check_report(alice, done.stderr)
    assert_nothing_left(alice)


def jobs(cluster: PracticeCluster, names: set[str]) -> set[str]:
    """Return the ids of all jobs in Slurm's accounting for these sessions and those whose directories exist."""
    told = cluster.run("login", "alice", ["sacct", "-X", "-n", "-P", "-S", "now-1hour", "-o", "JobID,JobName"]).stdout
    rows = [line.partition("|") for line in told.splitlines()]  # other tests have jobs with odd names
    return {job for job, _, name in rows if name in {*names, *sessions(cluster)}}


def check_report(cluster: PracticeCluster, said: str) -> None:
    assert "1 of 4 combinations failed" in said
    assert "ValueError: made to fail" in said
    rows = list(csv.DictReader(io.StringIO(read(cluster, "report.csv"))))
    assert len(rows) == 4
    measured = [row for row in rows if row["state"] == "done"]
    assert len(measured) == 3
    for row in measured:
        assert 0 < float(row["median_s"]) < 1
        assert row["result"].startswith("sum")
        assert row["synchronised"] == "yes"
        assert row["image"].startswith("sha256:")
        assert float(row["queued_s"]) >= 0
        assert 0 < float(row["run_time_s"]) < 120
    assert all("made to fail" in row["why"] for row in rows if row["state"] == "failed")
    assert {row["cores"] for row in measured} == {"1", "2"}
    page, text = read(cluster, "report.html"), read(cluster, "report.md")
    for part in ("tiny.ipynb, measured", "4 combinations: 3 done, 1 failed", "cores_allotted", "other work than"):
        assert part in page
        assert part.replace("_", "\\_") in text
    assert "launch-notebook bench tiny.ipynb" in page
    # the plots need no matplotlib, which the practice cluster's laptop does not have
    assert "data:image/svg+xml;base64," in page
    assert read(cluster, "report-plots/1-times.svg").startswith("<svg ")


@each_scheduler
def test_ctrl_c_in_a_terminal_asks_and_ends_the_jobs(alice: PracticeCluster) -> None:
    slow = {**NOTEBOOK, "cells": [{**NOTEBOOK["cells"][1], "source": "import time; time.sleep(300)"}]}  # type: ignore
    write(alice, "slow.ipynb", json.dumps(slow))
    words = ["launch-notebook", "bench", "slow.ipynb", "--matrix", "cores=1,2", "-t", "5", "--gpus", "0"]
    session = Session(alice.argv("laptop", "alice", in_lab(words), env={"TERM": "xterm-256color"}), columns=100)
    session.read_along()
    session.saw(r"0 of 2 done, 2 run", 90)
    session.child.kill(signal.SIGINT)
    session.saw("2 jobs of this bench are in the queue or running. Let them go on")
    session.send("no\n")
    session.saw("The jobs were cancelled", 60)
    assert session.end() == 130
    assert_nothing_left(alice)
