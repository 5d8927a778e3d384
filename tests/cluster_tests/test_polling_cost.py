"""How many RPCs each query of a job costs a real slurmctld."""

from __future__ import annotations

import re

import pytest

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.jobs import watcher
from notebook_launcher.jobs.polling import QUERY_RPCS
from notebook_launcher.schedulers.base import JobRef, State
from notebook_launcher.schedulers.slurm.commands import Slurm
from tests.practice_cluster import PracticeCluster


def rpcs(cluster: PracticeCluster) -> int:
    """Return how many RPCs of alice's the controller has answered."""
    text = cluster.root("ctl", ["sdiag"], check=True).stdout
    found = re.search(r"^\s+alice\s+\(\s*\d+\) count:(\d+)", text, re.M)
    return int(found[1]) if found else 0


@pytest.mark.each_slurm
def test_what_the_questions_cost(cluster: PracticeCluster) -> None:
    """The constants with which polling limits its RPCs are the measured numbers."""
    scheduler = Slurm()
    job = cluster.run("login", "alice", ["sbatch", "--parsable", "--hold", "--wrap", "true"], check=True).stdout.strip()
    for command, cost in [
        (scheduler.query_alone(JobRef(job)), watcher.ALONE),
        (scheduler.query_own(None), QUERY_RPCS),
        (scheduler.query([JobRef(job)]), watcher.OWN_QUERY_RPCS),
    ]:
        before = rpcs(cluster)
        answer = cluster.run("login", "alice", command, check=True).stdout
        assert rpcs(cluster) - before == cost, command
        status = (scheduler.read_query([JobRef(job)], CommandResult(0, answer)) or {})[job]
        assert (status.state, status.reason, status.partition) == (State.PENDING, "JobHeldUser", "core")
    cluster.run("login", "alice", ["scancel", job])
