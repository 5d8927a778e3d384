"""A class on the practice cluster: its group, its folder, its course, and a stand-in for JupyterLab."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.cluster_tests import in_box
from tests.cluster_tests.situation import STAND_IN
from tests.conftest import write_profile
from tests.practice_cluster import PracticeCluster

TEACHER, STUDENTS = "grace", ("alice", "ivan", "judy")
FOLDER = "/home/class"
GROUP = "lab"
ROSTER = "user,name\nalice,Alice A.\nivan,Ivan I.\njudy,Judy J.\n"
COURSE = f"""\
name = "lab"
cluster = "practice"
contact = "teacher@uni.example"
account = "proj1"
class_folder = "{FOLDER}"
environment = "stand-in"

[defaults]
ntasks = 1
time = "0:10:00"

[environments.stand-in]
venv = "~/stand-in"
"""
#: the boxes on which Slurm or the kernel checks who is in the group
_BOXES = ("login", "ctl", "node1", "node2", "gpu1")
_JOIN = f"grep -q ^{GROUP}: /etc/group || echo {GROUP}:x:3000:$1 >>/etc/group"
_LEAVE = f"sed -i /^{GROUP}:/d /etc/group"
_FOLDER = f"mkdir -p {FOLDER}; chown {TEACHER}:{GROUP} {FOLDER}; chmod 3770 {FOLDER}"
_VENV = """\
mkdir -p ~/stand-in/bin ~/lab; cd ~/stand-in/bin; ln -sf /usr/bin/python3 python
echo 'PATH=~/stand-in/bin:$PATH' >activate
cat >jupyter-lab; chmod 755 jupyter-lab
"""


@contextlib.contextmanager
def class_on(cluster: PracticeCluster, *others: str) -> Iterator[None]:
    """Create the group and the class folder, and give the course file and a stand-in for JupyterLab to each member.

    ``others``: users who are in the class besides the teacher and the students. Everything is removed at the end.
    """
    members = (TEACHER, *STUDENTS, *others)
    try:
        for box in _BOXES:
            in_box.run(cluster, box, "root", ["sh", "-c", _JOIN, "join", ",".join(members)]).check_returncode()
        in_box.run(cluster, "login", "root", ["sh", "-c", _FOLDER]).check_returncode()
        for user in members:
            program = f"#!/bin/bash\n{STAND_IN}"
            in_box.run(cluster, "login", user, ["sh", "-c", _VENV], input=program).check_returncode()
            give(cluster, user, "course.toml", COURSE)
        give(cluster, TEACHER, "students.csv", ROSTER)
        yield
    finally:
        in_box.run(cluster, "login", "root", ["rm", "-rf", FOLDER])
        for box in _BOXES:
            in_box.run(cluster, box, "root", ["sh", "-c", _LEAVE])
        for user in members:
            forget = "rm -rf stand-in lab course.toml students.csv .config/notebook-launcher/courses lab-*"
            for box in ("login", "laptop"):
                in_box.run(cluster, box, user, ["sh", "-c", f"cd; {forget}"])
                write_profile(cluster, box, user)  # in place of the saved course, which is the default


def give(cluster: PracticeCluster, user: str, name: str, text: str) -> None:
    """Write a file into a user's home on the laptop."""
    in_box.run(cluster, "laptop", user, ["sh", "-c", f'cat >~/"{name}"'], input=text).check_returncode()
