"""Faults of jobs that the practice cluster can cause, but that no situation of the launcher uses.

Most faults are tested by the situations, which could not happen without them. These tests check the others with
Slurm's own commands, and that everything is undone at the end.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator

import pytest

from tests.conftest import clear
from tests.doubles import wait_until
from tests.practice_cluster import ClusterError, NotPossibleHereError, PracticeCluster
from tests.practice_cluster.slurm_service_faults import MEMORY_CGROUPS

SLEEP = "sleep 300"


@pytest.fixture(autouse=True)
def _cleared(cluster: PracticeCluster) -> Iterator[None]:
    yield
    clear(cluster)


def run(cluster: PracticeCluster, command: str, user: str = "alice", box: str = "login") -> str:
    """Run a command as a user without a login shell, and return its standard output and error."""
    return cluster.run(box, user, ["sh", "-c", f"exec 2>&1; {command}"], login=False, timeout=60).stdout.strip()


def sbatch(cluster: PracticeCluster, flags: str = "", script: str = SLEEP) -> str:
    """Run sbatch, and return what it prints: a job id or an error."""
    return run(cluster, f"sbatch --parsable {flags} --wrap '{script}'")


def is_now(cluster: PracticeCluster, job: str, state: str, reason: str = "") -> None:
    """Wait until the job is in this state, for this reason."""

    def matches() -> bool:
        found = run(cluster, f"squeue -h -t all -j {job} -o '%T %r'", user="root")
        return found.startswith(state) and reason in found

    wait_until(matches, 60, f"job {job} is {state} {reason}")


def running(cluster: PracticeCluster, flags: str = "") -> str:
    job = sbatch(cluster, flags)
    is_now(cluster, job, "RUNNING")
    return job


def is_accounted(cluster: PracticeCluster, job: str, found: str) -> None:
    """Wait until the database has this state and exit code (``STATE|CODE``) of the job."""
    look = f"sacct -nXPD -j {job} -o state,exitcode"
    wait_until(lambda: run(cluster, look, user="root") == found, 60, f"the database says of job {job}: {found}")


# ---- limits, partitions, nodes, settings ---------------------------------------------------------------------


def test_a_limit_goes_back_to_what_it_was(cluster: PracticeCluster) -> None:
    show = "sacctmgr -nP show qos short format=MaxWall,MaxTRESPerUser,Flags"
    before = run(cluster, show)
    with cluster.limited("qos", "short", MaxTRESPerUser="gres/gpu=2,cpu=3"):
        limits = {"MaxWall": "00:01:00", "MaxTRESPerUser": "gres/gpu=1", "Flags": "DenyOnLimit"}
        with cluster.limited("qos", "short", **limits):
            assert run(cluster, show) == "00:01:00|cpu=3,gres/gpu=1|DenyOnLimit"
        assert run(cluster, show) == "02:00:00|cpu=3,gres/gpu=2|"
    assert run(cluster, show) == before
    for nobody in (("qos", "nosuch"), ("association", "proj1"), ("user", "alice")):
        with pytest.raises(ClusterError), cluster.limited(*nobody, MaxJobs=1):
            pass


def all_of_slurm(cluster: PracticeCluster) -> str:
    """Return Slurm's settings, and what its commands report about partitions, reservations, nodes and limits."""
    settings = (cluster.directory / "slurm" / "slurm.conf").read_text()
    shown = "scontrol -o show partition; scontrol -o show reservation; sinfo -hNo '%N %P %t'"  # in any order
    associations = "user,account,MaxSubmitJobs,GrpTRES"
    database = f"sacctmgr -nP show federation; sacctmgr -nP show qos; sacctmgr -nP show assoc format={associations}"
    return settings + run(cluster, f"({shown}) | sort; {database}")


def test_of_what_was_changed_nothing_stays_also_after_an_exception(cluster: PracticeCluster) -> None:
    before = all_of_slurm(cluster)
    arrangements = (
        cluster.federated(),
        cluster.configured(EnforcePartLimits="ALL", PrivateData="jobs"),  # it would resume a node that is down
        cluster.limited("account", "proj1", GrpTRES="gres/gpu=0,cpu=8"),
        cluster.limited("association", "proj1/alice", MaxSubmitJobs=0),
        cluster.reservation("service", "now+30minutes", nodes="ALL", flags="MAINT,IGNORE_JOBS"),
        cluster.partition_state("devcore", "INACTIVE"),
        cluster.drained("node1"),
        cluster.node_fails("node2"),
    )
    with pytest.raises(ZeroDivisionError), contextlib.ExitStack() as stack:
        for arrangement in arrangements:
            stack.enter_context(arrangement)
        meanwhile = all_of_slurm(cluster)
        for changed in ("cpu=8", "=service ", "State=INACTIVE", "drain", "down", "EnforcePartLimits=ALL", "practice|"):
            assert changed in meanwhile, meanwhile
        _ = 1 / 0
    assert all_of_slurm(cluster) == before


def test_partitions_refuse_jobs(cluster: PracticeCluster) -> None:
    with cluster.configured(EnforcePartLimits="ALL"):
        assert "Requested time limit is invalid" in sbatch(cluster, "-p devcore -t 300")
    with cluster.partition_state("devcore", "INACTIVE"):
        assert "Required partition not available" in sbatch(cluster, "-p devcore")


def test_others_take_gpus_and_leave_the_rest(cluster: PracticeCluster) -> None:
    with cluster.busy("gpu1", gres="gpu:a100:4"):
        running(cluster, "-p gpu --gres=gpu:t4:2 -t 10")
        is_now(cluster, sbatch(cluster, "-p gpu --gres=gpu:a100:1"), "PENDING", "Resources")


# ---- services, and how jobs end ------------------------------------------------------------------------------


def test_a_slurmd_dies_without_what_runs_there(cluster: PracticeCluster) -> None:
    def sleeps() -> bool:
        return any(args == SLEEP for _, _, args in cluster.processes("node1"))

    job = running(cluster, "-w node1")
    wait_until(sleeps, 30, "its script has begun, a moment after the job")
    with cluster.no_slurmd("node1"):
        pass
    is_now(cluster, job, "RUNNING")
    assert sleeps()


def test_the_accounting_database_is_out_of_reach(cluster: PracticeCluster) -> None:
    with cluster.no_slurmdbd():
        assert "Problem talking to the database" in run(cluster, "sacct")
        running(cluster)
    assert "Problem" not in run(cluster, "sacct")


EAT = 'python3 -c "import time; eaten = bytes([1]) * (300 << 20); time.sleep(60)"; echo it ended with $?'


def test_more_memory_than_the_kernel_allows(cluster: PracticeCluster) -> None:
    try:
        with cluster.memory_cgroup("node2"):
            job = sbatch(cluster, "-w node2 --mem=100M", EAT)
            is_now(cluster, job, "OUT_OF_MEMORY", "OutOfMemory")
            is_accounted(cluster, job, "OUT_OF_MEMORY|0:125")
            assert re.search(r"ended with 137\n.*Detected 1 oom.kill event", run(cluster, f"cat slurm-{job}.out"))
    except NotPossibleHereError as error:  # as documented: only without cgroups of version 1
        assert not (MEMORY_CGROUPS / "cgroup.procs").exists() and "control groups" in str(error)


def test_what_slurm_is_told_of_a_job(cluster: PracticeCluster) -> None:
    starved, not_booted = running(cluster), running(cluster)
    cluster.out_of_memory(starved)
    cluster.boot_fails(not_booted)
    is_now(cluster, starved, "OUT_OF_MEMORY", "OutOfMemory")
    is_accounted(cluster, starved, "OUT_OF_MEMORY|0:125")
    is_now(cluster, not_booted, "PENDING", "BeginTime")


# ---- what is around Slurm ------------------------------------------------------------------------------------


def test_a_command_fails_for_ordinary_people(cluster: PracticeCluster) -> None:
    with cluster.failing("scancel", "it's not 5 o'clock", status=7):
        assert run(cluster, "scancel 1; echo $?", box="login2") == "it's not 5 o'clock\n7"
        assert cluster.root("login", ["scancel", "--version"]).returncode == 0


def test_containers_start_slowly(cluster: PracticeCluster) -> None:
    def seconds(command: str) -> float:
        before = time.monotonic()
        assert cluster.run("node1", "alice", command.split(), check=True)
        return time.monotonic() - before

    with cluster.slow_container(4):
        version = seconds("apptainer --version")
        assert version < 4 <= seconds("apptainer exec /sw/images/no-jupyter.sif true")
    assert run(cluster, "command -v apptainer", box="node1") == "/usr/bin/apptainer"


def test_a_home_that_cannot_be_written(cluster: PracticeCluster) -> None:
    writes = "touch a && rm a"
    with cluster.read_only_home("alice"):
        assert "Read-only file system" in run(cluster, writes, box="node2")
        assert run(cluster, writes) == ""
    with cluster.read_only_home("alice", "login"):
        assert "Read-only file system" in run(cluster, writes)
        assert run(cluster, writes, box="node2") == ""
    assert run(cluster, writes) == ""
    with pytest.raises(ClusterError), cluster.full_home("alice"):
        pass
