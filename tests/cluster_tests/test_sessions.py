"""Sessions that outlive their launcher: ``list``, ``connect`` and ``stop`` from other machines."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.cluster_tests import in_box
from tests.cluster_tests.kernel_api import running_cell
from tests.cluster_tests.situation import STAND_IN, venv
from tests.cluster_tests.situations import LIGHT
from tests.conftest import Session, assert_nothing_left, fetch
from tests.doubles import wait_until
from tests.practice_cluster import PracticeCluster
from tests.session_directories import ODDITIES, name_of, plant

Start = Callable[..., Session]
LAUNCH = in_box.launch
each_scheduler = pytest.mark.each_scheduler


def told(cluster: PracticeCluster, box: str, *arguments: str) -> list[dict[str, Any]]:
    """Return the events that a command prints with ``--json``."""
    done = in_box.launcher(cluster, box, "alice", *arguments, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def listed(cluster: PracticeCluster, box: str, *arguments: str) -> dict[str, dict[str, Any]]:
    """Return the sessions of ``launch-notebook list``, by name."""
    return {event["session"]: event for event in told(cluster, box, "list", *arguments) if event["event"] == "session"}


@pytest.fixture
def root(cluster: PracticeCluster) -> Iterator[Path]:
    """The folder of alice's session directories, empty at first, and removed at the end."""
    home = cluster.directory / "home" / "alice"
    root = home / ".notebook-launcher" / "sessions"
    subprocess.run(["rm", "-rf", str(root)], check=True)
    cluster.run("login", "alice", ["mkdir", "-m", "700", "-p", ".notebook-launcher/sessions"], check=True)
    yield root
    subprocess.run(["rm", "-rf", str(root)], check=True)


@contextlib.contextmanager
def login_profile(cluster: PracticeCluster, line: str) -> Iterator[None]:
    """Give alice a .bash_profile with this line on the cluster."""
    cluster.run("login", "alice", ["sh", "-c", f"echo {shlex.quote(line)} >~/.bash_profile"], check=True)
    try:
        yield
    finally:
        cluster.run("login", "alice", ["rm", "-f", ".bash_profile"], check=True)


def give_to_alice(root: Path) -> None:
    subprocess.run(["chown", "-Rh", f"--reference={root.parent}", str(root)], check=True)


@each_scheduler
def test_a_session_whose_launcher_was_killed_is_found_from_elsewhere(
    cluster: PracticeCluster, start: Start, root: Path
) -> None:
    with venv("light", STAND_IN)(cluster):
        first = start("-n", "1", "-t", "2:00:00", *LIGHT)
        first.ready()
    first.child.kill(signal.SIGKILL)
    first.end()

    seen = listed(cluster, "login")[first.session_id]
    assert (seen["state"], seen["job"], seen["environment"]) == ("running", first.job_id, "plain")
    assert seen["node"].startswith("node") and 7000 < seen["seconds_left"] <= 7200 and seen["walltime"] == "2 hours"
    with login_profile(cluster, "export TZ=America/New_York"):  # used by Slurm, not by `date` without a login
        elsewhere = listed(cluster, "laptop")[first.session_id]
    assert 7000 < elsewhere["seconds_left"] <= seen["seconds_left"]

    again = start("connect", first.job_id, box="login")  # from another machine, and by the job id
    again.ready(started_here=False)
    assert again.token == first.token
    assert fetch(cluster, "login", again.api, again.token)[0] == 200

    names = [event["event"] for event in told(cluster, "login", "stop")]
    assert "ended" in names
    again.end()
    assert "Traceback" not in again.printed
    assert (root / first.session_id / "token").exists()
    seen = listed(cluster, "laptop")[first.session_id]
    assert (seen["state"], seen["detail"], seen["seconds_left"]) == ("ended", "stopped", None)
    assert not (root / first.session_id / "token").exists(), "a list removes what opens nothing any more"
    assert_nothing_left(cluster)


@each_scheduler
def test_a_launch_offers_the_session_that_is_there(cluster: PracticeCluster, start: Start, root: Path) -> None:
    with venv("light", STAND_IN)(cluster):
        first = start("-n", "1", "-t", "2:00:00", *LIGHT)
        first.ready()
    first.send("d\n")
    assert first.end() == 0
    again = start("launch", "-n", "2")
    again.expect(r"runs on node\d since \d\d:\d\d \(plain\), (1 h 5\d min|2 h 0 min) left")
    again.expect(r"Connect to it instead of starting another\? \[yes/no\]")
    again.send("yes\n")
    again.ready(started_here=False)
    assert again.token == first.token and cluster.squeue() == [first.job_id]
    again.send("\n")
    assert again.end() == 0
    assert_nothing_left(cluster)


def test_a_session_on_another_cluster_is_asked_for_there(cluster: PracticeCluster, start: Start, root: Path) -> None:
    here = start("-n", "1", "-b", "now+1hour")
    there = start("-n", "1", "-b", "now+1hour", "-M", "snowy", "--new")
    for session in (here, there):
        session.expect("waits for its begin time")
        session.send("d\n")
        assert session.end() == 0
    seen = listed(cluster, "laptop")
    assert {one["session"]: (one["state"], one["cluster"]) for one in seen.values()} == {
        here.session_id: ("pending", None),
        there.session_id: ("pending", "snowy"),
    }
    ended = [event["session"] for event in told(cluster, "login", "stop", "--all") if event["event"] == "ended"]
    assert set(ended) == {here.session_id, there.session_id}
    assert_nothing_left(cluster)


def test_a_session_on_another_cluster_of_a_federation(cluster: PracticeCluster, root: Path) -> None:
    """The cluster where it was queued reports it as REVOKED, no matter if it runs on another one or has ended."""
    now = datetime.now(timezone.utc)
    names = [name_of(now, number) for number in (1, 2)]
    with cluster.federated(), cluster.busy("core"):
        for name in names:
            there = f"/home/alice/.notebook-launcher/sessions/{name}"
            script = f"trap 'echo {{}} >{there}/exit.json; exit' TERM; touch {there}/runs; sleep 90 & wait"
            submit = ["sbatch", "--parsable", "-n", "1", "-o", "/dev/null", "--wrap", script]
            plant(root, name, now, job=None, secrets=True)
            give_to_alice(root)
            job = cluster.run("login", "alice", submit, check=True).stdout.strip()
            (root / name / "job").write_text(f"{job}\n")
        give_to_alice(root)
        wait_until(lambda: all((root / name / "runs").exists() for name in names), 30, "both jobs run")
        seen = listed(cluster, "login")
        assert [seen[name]["state"] for name in names] == ["unknown", "unknown"]
        assert all((root / name / "token").exists() for name in names)
        ended = [event["session"] for event in told(cluster, "login", "stop", "--all") if event["event"] == "ended"]
        assert set(ended) == set(names)
        states = cluster.run("login", "alice", ["squeue", "-M", "snowy", "--me", "-h", "-o", "%T"]).stdout
        assert "RUNNING" not in states


def test_a_place_full_of_sessions_and_oddities(cluster: PracticeCluster, start: Start, root: Path) -> None:
    """``list`` and ``stop`` among 200 ended, 50 pending and some damaged sessions, with one query of the scheduler."""
    submit = "for i in $(seq 50); do sbatch --parsable -n 1 -o /dev/null --begin=now+1hour --wrap 'sleep 60'; done"
    jobs = cluster.run("login", "alice", ["sh", "-c", submit], check=True).stdout.split()
    now = datetime.now(timezone.utc)
    for number in range(200):
        plant(root, name_of(now, number), now - timedelta(days=3), ended=now - timedelta(days=2))
    for number, job in enumerate(jobs):
        plant(root, name_of(now, 1000 + number), now, job=job)
    for number, make in enumerate(ODDITIES.values()):
        odd = plant(root, name_of(now, 2000 + number), now, ended=now)
        (odd / "session.json").unlink()
        make(odd / "session.json")
    plant(root, name_of(now, 3000), now).chmod(0)
    (root / name_of(now, 3002)).write_text("a file")
    give_to_alice(root)
    plant(root, name_of(now, 3001), now)  # it stays root's

    told(cluster, "laptop", "list")  # so that the second one finds the files in memory
    cluster.root("ctl", ["sdiag", "--reset"])
    began = time.monotonic()
    *sessions, end = told(cluster, "laptop", "list")
    print(f"listed in {end['elapsed']:.2f} s by its own clock, {time.monotonic() - began:.2f} s with its start")
    counted = re.search(r"alice\s+\(\s*\d+\) count:(\d+)", cluster.root("ctl", ["sdiag"]).stdout)
    assert counted and int(counted[1]) == 2, "squeue asks two things, whatever it is about"
    assert (end["active"], end["hidden"]) == (50, 200)
    assert {one["state"] for one in sessions if one["event"] == "session"} == {"pending"}
    named = set(end["unreadable"])
    assert {name_of(now, 3000), name_of(now, 3002)} < named and name_of(now, 3001) not in named
    assert len(named) >= len(ODDITIES)

    began = time.monotonic()
    ended = [event for event in told(cluster, "laptop", "stop", "--all") if event["event"] == "ended"]
    print(f"50 ended in {time.monotonic() - began:.2f} s")
    assert len(ended) == 50
    wait_until(lambda: not cluster.squeue(), 30, "the queue is empty")
    assert_nothing_left(cluster)


def test_a_session_whose_kernel_is_busy_ends_when_that_is_confirmed(cluster: PracticeCluster, start: Start) -> None:
    """Both the attached launcher and ``stop`` ask for confirmation; a second Ctrl-C is one."""
    session = start("-t", "10")
    session.ready()
    session.read_along()
    with running_cell(cluster, session, "import time; time.sleep(300)"):
        session.send("\x03")
        session.saw("still running")
        session.saw(r"again\s+within")
        assert cluster.squeue(), "it runs on"
        stop = start("stop", session.session_id)
        stop.expect(r"still running[\s\S]*End session [\s\S]*anyway\? \[yes/no\] ")
        stop.send("no\n")
        assert stop.end() == 0
        assert "Nothing was ended" in stop.printed
        assert cluster.squeue(), "it runs on"
        session.send("help\n")  # a line in between: the next Ctrl-C is a first one again
        session.saw(r"f\s+PORT\s+forwards")
        session.send("\x03")
        session.saw(r"again\s+within")
        session.send("\x03")
        assert session.end() == 0
    assert_nothing_left(cluster)
