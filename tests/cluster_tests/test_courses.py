"""A course on the practice cluster: a student types one command, and their changes are kept on every computer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.cluster_tests import in_box
from tests.conftest import Session, assert_nothing_left, write_profile
from tests.practice_cluster import PracticeCluster

LAUNCH = in_box.launch

Start = Callable[..., Session]
COURSE = f"""\
name = "gpulab"
description = "Lab: what a GPU is good for"
cluster = "practice"
account = "proj1"
environment = "tf-mkl"
notebooks = ["beginner.ipynb", "week2/lab3.ipynb"]
open_at = "beginner.ipynb"

[[reservations]]
name = "lab1"
open_at = "week2/lab3.ipynb"
first = {date.today() - timedelta(days=1)}
last = {date.today() + timedelta(days=1)}

[defaults]
ntasks = 3
time = "0:20:00"
"""


@pytest.fixture
def home(cluster: PracticeCluster) -> Iterator[Path]:
    """Alice's home on the cluster; what the course leaves there and on the laptop is removed at the end."""
    home = cluster.directory / "home" / "alice"
    yield home
    forget = "rm -rf gpulab .notebook-launcher/courses .config/notebook-launcher/courses course other-config"
    for box in ("laptop", "login"):
        cluster.run(box, "alice", ["sh", "-c", forget], check=True)
        write_profile(cluster, box, "alice")


def on_laptop(cluster: PracticeCluster, files: dict[str, str]) -> None:
    for name, text in files.items():
        script = 'mkdir -p "$(dirname "$1")" && cat >"$1"'
        cluster.run("laptop", "alice", ["sh", "-c", script, "sh", f"course/{name}"], input=text, check=True)


def leave_the_queue(session: Session) -> None:
    session.expect("waits for its begin time")
    session.send("\x03")
    assert session.end() == 130


def test_a_student_types_one_line_and_keeps_their_work(cluster: PracticeCluster, start: Start, home: Path) -> None:
    notebooks = {"beginner.ipynb": '{"v": 1}', "week2/lab3.ipynb": '{"lab": 1}'}
    on_laptop(cluster, {"course.toml": COURSE, **notebooks})
    session = start("--course", "course/course.toml", columns=200)
    session.ready()
    opened = "/lab/tree/gpulab/week2/lab3.ipynb?token="
    assert opened in session.url, "JupyterLab opens in the course's folder with the notebook of the day's lab"
    assert "Notebooks copied to ~/gpulab: beginner.ipynb, week2/lab3.ipynb." in session.printed
    assert "reservation lab1 is used" in session.printed
    job = cluster.run("login", "alice", ["scontrol", "show", "job", session.job_id]).stdout
    for word in ("Account=proj1", "Reservation=lab1", "NumTasks=3", "TimeLimit=00:20:00"):
        assert word in job, word
    record = home / ".notebook-launcher" / "sessions" / session.session_id / "session.json"
    assert json.loads(record.read_text())["course"] == "gpulab"
    assert {name: (home / "gpulab" / name).read_text() for name in notebooks} == notebooks
    # once the course is saved, other commands use its cluster by default
    listed = in_box.launcher(cluster, "laptop", "alice", "list", "--json").stdout
    assert session.session_id in listed
    session.send("\n")
    assert session.end() == 0

    cluster.run("login", "alice", ["sh", "-c", "echo mine >gpulab/beginner.ipynb"], check=True)
    again = start("-b", "now+1hour", columns=200)  # the course is the default from now on
    leave_the_queue(again)
    assert "Course gpulab" in again.printed and "Notebooks copied" not in again.printed
    assert (home / "gpulab" / "beginner.ipynb").read_text() == "mine\n"

    # as on another computer, to which the course is new, and with changed notebooks of the teacher's
    on_laptop(cluster, {"beginner.ipynb": '{"v": 2}', "week2/lab3.ipynb": '{"lab": 2}'})
    other = "cp -r .config/notebook-launcher other-config && rm -rf other-config/courses && " \
        "echo 'cluster = \"practice\"' >other-config/config.toml"  # fmt: skip
    cluster.run("laptop", "alice", ["sh", "-c", other], check=True)
    words = ["launch-notebook", "--new", "--course", "course/course.toml", "-b", "now+1hour"]
    env = {"TERM": "xterm-256color", "NOTEBOOK_LAUNCHER_CONFIG": "other-config"}
    second = Session(cluster.argv("laptop", "alice", words, env=env), columns=200)
    leave_the_queue(second)
    assert "Left as you have changed them: beginner.ipynb." in second.printed
    assert (home / "gpulab" / "beginner.ipynb").read_text() == "mine\n"
    assert (home / "gpulab" / "week2" / "lab3.ipynb").read_text() == '{"lab": 2}'
    (new,) = (home / "gpulab").glob("beginner.new-*.ipynb")
    assert new.read_text() == '{"v": 2}'
    assert_nothing_left(cluster)
