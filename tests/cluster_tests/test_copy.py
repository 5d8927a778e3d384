"""``copy`` to and from the cluster: Ctrl-C, a connection that is lost, a full home, shells that print noise."""

from __future__ import annotations

import contextlib
import filecmp
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster_tests import in_box
from tests.conftest import Session
from tests.practice_cluster import PracticeCluster

LAUNCH = in_box.launch
each_scheduler = pytest.mark.each_scheduler

# large enough that even on a busy machine the copy is not finished before it is interrupted
SIZE, STOPPED_AT = 250, 20  # MiB


@pytest.fixture(autouse=True)
def _cleared(cluster: PracticeCluster) -> Iterator[None]:
    yield
    for box in ("laptop", "login"):
        cluster.run(box, "alice", ["sh", "-c", "rm -rf big back .*.part-* "])


def home(cluster: PracticeCluster, box: str) -> Path:
    """Return alice's home on the laptop or the cluster, as a folder of this machine."""
    return cluster.directory / ("laptop-home" if box == "laptop" else "home") / "alice"


def mebibytes(folder: Path) -> float:
    """Return how much a copy that is not finished has written to the folder so far."""
    return sum(part.stat().st_size for part in folder.glob(".back.part-*")) / 2**20


def wait_for_part(folder: Path, size: float) -> None:
    deadline = time.monotonic() + 30
    while mebibytes(folder) < size:
        assert time.monotonic() < deadline, "nothing arrives"
        time.sleep(0.01)


@pytest.mark.parametrize(("engine", "up"), [("paramiko", True), ("openssh", False)])
def test_after_ctrl_c_the_same_command_goes_on_and_survives_a_cut(
    cluster: PracticeCluster, start: Callable[..., Session], engine: str, up: bool
) -> None:
    source, destination = ("laptop", "login") if up else ("login", "laptop")
    cluster.run(source, "alice", ["sh", "-c", f"head -c {SIZE}M /dev/urandom >big"], check=True)
    words = ["--engine", engine, *(["big", "login:back"] if up else ["login:big", "back"])]
    stopped = start("copy", *words)
    stopped.read_along()
    wait_for_part(home(cluster, destination), STOPPED_AT)
    stopped.send("\x03")
    assert stopped.end(30) == 130
    assert "type the same command to continue from there" in stopped.printed
    again = start("copy", *words)
    again.read_along()
    again.saw(rf"/{SIZE}\.0 MiB")  # on a busy machine, a look at the files would come too late
    cluster.kill_connections("login", "alice")
    again.saw("Connected again")
    assert again.end() == 0, again.printed
    printed = " ".join(again.printed.split())
    assert re.search(r"[\d.]+ MiB of it were there from an earlier attempt", printed), printed
    assert "The checksums are the same at both ends" in printed
    assert filecmp.cmp(home(cluster, source) / "big", home(cluster, destination) / "back", shallow=False)
    assert mebibytes(home(cluster, destination)) == 0


@each_scheduler
def test_a_full_home_and_a_file_that_may_not_be_read(cluster: PracticeCluster, start: Callable[..., Session]) -> None:
    cluster.run("laptop", "ivan", ["sh", "-c", "head -c 9M /dev/urandom >big; echo x >shut; chmod 0 shut"], check=True)
    session = start("copy", "big", "login:", user="ivan")
    assert session.end() == 100
    assert "There is no room for 9.0 MiB" in session.printed
    session = start("copy", "shut", "login:", user="ivan")
    assert session.end() == 100
    assert "may be read" in session.printed and "shut" in session.printed
    session = start("copy", "big", "login:/root/", user="ivan")
    assert session.end() == 100
    cluster.run("laptop", "ivan", ["rm", "-f", "big", "shut"])
    assert cluster.run("login", "ivan", ["sh", "-c", "ls -A | grep part"]).stdout == ""


@pytest.mark.parametrize(("user", "bashrc"), [("frank", ""), ("grace", "echo Welcome; printf 'to the site'\n")])
def test_a_shell_that_says_much(
    cluster: PracticeCluster, start: Callable[..., Session], user: str, bashrc: str
) -> None:
    """Frank's shell is a tcsh that prints noise; grace's is bash, which reads .bashrc for each command."""
    make = "mkdir -p d/e; printf '%s' 1 >'d/a b'; printf 2 >d/e/-x; printf 3 >\"$(printf 'd/new\\nline')\""
    cluster.run("laptop", user, ["sh", "-c", make], check=True)
    with cluster.start_up_file(user, ".bashrc", bashrc) if bashrc else contextlib.nullcontext():
        for words in (("d", "login:d2"), ("login:d2", "d3")):
            assert start("copy", *words, user=user).end() == 0
    done = cluster.run("laptop", user, ["diff", "-r", "d", "d3"])
    assert (done.returncode, done.stdout) == (0, "")
    cluster.run("laptop", user, ["rm", "-rf", "d", "d3"])
    cluster.run("login", user, ["rm", "-rf", "d2"])
