"""``when`` and ``queue`` on the practice cluster while all its GPUs are in use; also the evidence for a waiting job."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.request import Request
from notebook_launcher.diagnosis import explain
from notebook_launcher.hosts.base import RUN_TIMEOUT
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.jobs.evidence import gather_evidence
from notebook_launcher.schedulers.base import JobRef, JobStatus, State
from notebook_launcher.schedulers.cluster_info import Limit
from notebook_launcher.schedulers.slurm.commands import Slurm
from tests.cluster_tests import in_box
from tests.cluster_tests.in_box import launch
from tests.conftest import clear, people_processes
from tests.doubles import wait_until
from tests.practice_cluster import PracticeCluster

each_slurm = pytest.mark.each_slurm
T4 = ["-t", "2:00:00", "-p", "gpu", "--gpus", "t4:1"]


def sbatch(cluster: PracticeCluster, user: str, *flags: str) -> str:
    submit = ["sbatch", "--parsable", "--output=/dev/null", *flags, "--wrap=sleep 3600"]
    return cluster.run("login", user, submit, check=True).stdout.strip()


@pytest.fixture(scope="module")
def crowd(cluster: PracticeCluster) -> Iterator[dict[str, str]]:
    """Let bob have all t4 for an hour and all a100 for half an hour; his jobs and then one of alice's wait for a t4."""
    clear(cluster)
    jobs = {
        "t4": sbatch(cluster, "bob", "-p", "gpu", "--gpus=t4:2", "-t", "60"),
        "a100": sbatch(cluster, "bob", "-p", "gpu", "--gpus=a100:4", "-t", "30"),
    }
    wait_until(lambda: states(cluster, *jobs.values()) == {"RUNNING"}, 60, "bob has the GPUs")
    jobs["bobs"] = sbatch(cluster, "bob", "-p", "gpu", "--gpus=t4:1", "-t", "20", "--array=1-3")
    jobs["held"] = sbatch(cluster, "bob", "-p", "gpu", "--gpus=t4:1", "-t", "20", "--hold")
    jobs["alices"] = sbatch(cluster, "alice", "-A", "proj2", "-p", "gpu", "--gpus=t4:1", "-t", "30")
    wait_until(lambda: reason(cluster, jobs["alices"]) == "Priority", 60, "alice waits behind bob")
    yield jobs
    clear(cluster)


def states(cluster: PracticeCluster, *jobs: str) -> set[str]:
    told = cluster.run("login", "alice", ["squeue", "-h", f"--jobs={','.join(jobs)}", "--format=%T"])
    return set(told.stdout.split())


def reason(cluster: PracticeCluster, job: str) -> str:
    return cluster.run("login", "alice", ["squeue", "-h", f"--jobs={job}", "--format=%r"]).stdout.strip()


def told(cluster: PracticeCluster, box: str, *words: str, code: int = 0) -> list[dict[str, Any]]:
    """Return the events that a command of alice's prints."""
    done = in_box.launcher(cluster, box, "alice", *words, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def named(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == name]


@each_slurm
def test_when_is_what_slurm_says_with_other_ways_to_ask_and_costs_the_controller_little(
    cluster: PracticeCluster, crowd: dict[str, str]
) -> None:
    before = cluster.squeue()
    cluster.root("ctl", ["sdiag", "--reset"])
    events = told(cluster, "login", "when", *T4)
    counted = re.search(r"alice\s+\(\s*\d+\) count:(\d+)", cluster.root("ctl", ["sdiag"]).stdout)
    assert counted
    # each `sbatch --test-only` costs two RPCs; partitions, nodes and limits cost five
    assert int(counted[1]) == 2 * (1 + len(named(events, "alternative"))) + 5
    test = ["sbatch", "--test-only", "-t", "2:00:00", "-p", "gpu", "--gpus", "t4:1", "--wrap", "true"]
    said = cluster.run("login", "alice", test, check=True).stderr
    [forecast] = named(events, "forecast")
    assert forecast["start"][:19] in said
    assert (forecast["partition"], forecast["nodes"], forecast["exit_code"]) == ("gpu", "gpu1", 0)
    assert cluster.squeue() == before
    others = {event["flags"]: event for event in named(events, "alternative")}
    trial = others["-t 1:00:00 -p devcore --gpus 0"]
    assert (trial["seconds"], trial["partition"], trial["sooner"]) == (0, "devcore", True)
    assert others["--gpus a100:1"]["sooner"]
    assert "-t 1:00:00" in others
    starts = [event["start"] for event in others.values()]
    assert starts == sorted(starts)


def test_a_refused_request_has_the_refusals_exit_code(cluster: PracticeCluster, crowd: dict[str, str]) -> None:
    done = in_box.launcher(cluster, "laptop", "alice", "when", "-p", "gpu", "--gpus", "h100:1", "--json")
    [forecast] = named([json.loads(line) for line in done.stdout.splitlines()], "forecast")
    assert done.returncode == forecast["exit_code"] != 0
    assert "Requested node configuration is not available" in forecast["why"]


@each_slurm
def test_queue_counts_what_is_free_and_what_waits(cluster: PracticeCluster, crowd: dict[str, str]) -> None:
    [queue] = named(told(cluster, "laptop", "queue"), "queue")
    assert queue["gpus"] == [
        {"type": "a100", "free": 0, "busy": 4, "unavailable": 0}, {"type": "t4", "free": 0, "busy": 2, "unavailable": 0}
    ]  # fmt: skip
    partitions = {partition["name"]: partition for partition in queue["partitions"]}
    assert partitions.keys() >= {"core", "node", "devcore", "gpu"}
    assert partitions["devcore"]["cores"] == {"type": "cores", "free": 40, "busy": 0, "unavailable": 0}
    assert partitions["gpu"]["gpus"] == queue["gpus"]
    assert (queue["pending"], queue["pending_gpus"], queue["yours"], queue["hidden"]) == (5, 5, 1, False)


@each_slurm
def test_another_cluster_is_another_queue(cluster: PracticeCluster, crowd: dict[str, str]) -> None:
    [queue] = named(told(cluster, "login", "queue", "-M", "snowy"), "queue")
    assert queue["gpus"] == [{"type": "t4", "free": 1, "busy": 0, "unavailable": 0}]
    [forecast] = named(told(cluster, "login", "when", "-M", "snowy", "--gpus", "1"), "forecast")
    assert (forecast["seconds"], forecast["nodes"]) == (0, "s1")


class Login(LocalHost):
    """The login node: runs commands there as alice."""

    def __init__(self, cluster: PracticeCluster) -> None:
        super().__init__()
        self._cluster = cluster

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", login_shell: bool = False, timeout: float = RUN_TIMEOUT
    ) -> CommandResult:
        done = self._cluster.run("login", "alice", list(argv), timeout=timeout)
        return CommandResult(done.returncode, done.stdout, done.stderr)


@each_slurm
def test_evidence_of_a_job_that_waits(
    cluster: PracticeCluster, crowd: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = frozenset({"partitions", "limits", "ahead"})
    monkeypatch.setattr(explain, "evidence_needed", lambda _: needed)
    job = JobRef(crowd["alices"])
    status = JobStatus(job, State.PENDING, "Priority", partition="gpu", account="proj2", qos="short")
    request = Request({"partition": "gpu"})
    evidence = gather_evidence(Login(cluster), Slurm.cluster_info, status, request, "alice")
    assert evidence.ahead == 3
    assert {partition.name for partition in evidence.partitions or ()} >= {"core", "node", "devcore", "gpu"}
    assert evidence.limits == (Limit("QOS short", "walltime", "job", "02:00:00"),)


# --- in a terminal -----------------------------------------------------------------------------------------------


def test_in_a_terminal_of_eighty_columns_no_row_is_folded(cluster: PracticeCluster, crowd: dict[str, str]) -> None:
    session = launch(cluster, "laptop", "queue", columns=80)
    assert session.end() == 0
    rows = [line.rstrip() for line in session.printed.splitlines()]
    heading = next(place for place, row in enumerate(rows) if row.startswith("Partition"))
    assert rows[heading].endswith("Waiting  GPUs asked")
    table = rows[heading + 1 : rows.index("", heading)]
    assert len(table) >= 7  # two kinds of GPUs and cores in core, cores in node and devcore, two kinds of GPUs in gpu
    assert [row for row in table if not re.search(r" (a100|t4|cores) +\d+ +\d+ +\d+( +\d+ +\d+)?$", row)] == []
    assert "Waiting: 5 jobs (5 GPUs asked for), 1 of them yours." in rows


SLOW_SBATCH = '#!/bin/sh\necho asked >>$HOME/asked\nsleep 25\nexec /usr/bin/sbatch "$@"\n'


@contextlib.contextmanager
def slow_sbatch(cluster: PracticeCluster) -> Iterator[None]:
    """Give alice a wrapper around sbatch on the login node that records each call and then sleeps for 25 seconds."""
    put = (
        f"mkdir -p ~/wrapped; printf %s '{SLOW_SBATCH}' >~/wrapped/sbatch; chmod +x ~/wrapped/sbatch; rm -f ~/asked; "
        "echo 'PATH=$HOME/wrapped:$PATH' >~/.bash_profile"
    )
    cluster.run("login", "alice", ["sh", "-c", put], check=True)
    try:
        yield
    finally:
        cluster.run("login", "alice", ["sh", "-c", "rm -rf ~/wrapped ~/asked ~/.bash_profile"], check=True)


def test_ctrl_c_ends_at_once_and_leaves_nothing(cluster: PracticeCluster, crowd: dict[str, str]) -> None:
    def calls() -> int:
        return cluster.run("login", "alice", ["sh", "-c", "cat ~/asked"]).stdout.count("asked")

    before = cluster.squeue()
    with slow_sbatch(cluster):
        session = launch(cluster, "laptop", "when", *T4, "--engine", "openssh")
        wait_until(lambda: calls() == 1, 60, "sbatch is asked")
        session.send("\x03")
        assert session.end(timeout=20) == 130  # before sbatch has ended
        wait_until(lambda: not people_processes(cluster, ("laptop", "login")), 60, "nothing of alice runs")
        assert calls() == 1
    assert cluster.squeue() == before
