"""What can be made to go wrong with jobs on the practice cluster does go wrong, as Slurm's own commands tell it.

The launcher has no part in this: what it says about all of it is in other tests.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.conftest import clear
from tests.doubles import wait_until
from tests.practice_cluster import ClusterError, NotPossibleHereError, PracticeCluster
from tests.practice_cluster.service_faults import MEMORY_CGROUPS

SLEEP = "sleep 300"


@pytest.fixture(autouse=True)
def _cleared(cluster: PracticeCluster) -> Iterator[None]:
    yield
    clear(cluster)


def run(cluster: PracticeCluster, command: str, user: str = "alice", box: str = "login") -> str:
    """Both outputs of a command of a user, who has no login shell around it."""
    return cluster.run(box, user, ["sh", "-c", f"exec 2>&1; {command}"], login=False, timeout=60).stdout.strip()


def sbatch(cluster: PracticeCluster, flags: str = "", script: str = SLEEP, user: str = "alice") -> str:
    """What sbatch answers: a job id, or an error."""
    argv = ["sbatch", "--parsable", *flags.split(), "--wrap", script]
    done = cluster.run("login", user, argv, login=False)
    return (done.stdout + done.stderr).strip()


def submit(cluster: PracticeCluster, flags: str = "", script: str = SLEEP, user: str = "alice") -> str:
    """The id of a job that was taken."""
    job = sbatch(cluster, flags, script, user)
    assert re.fullmatch(r"\d+(;\w+)?", job), job
    return job.partition(";")[0]


def is_now(cluster: PracticeCluster, job: str, state: str, reason: str = "", seconds: float = 30) -> None:
    """Wait until the job is in this state, for this reason."""

    def matches() -> bool:
        found = run(cluster, f"squeue -h -t all -j {job} -o '%T %r'", user="root")
        return found.startswith(state) and reason in found

    wait_until(matches, seconds, f"job {job} is {state} {reason}")


def running(cluster: PracticeCluster, flags: str = "", script: str = SLEEP) -> str:
    job = submit(cluster, flags, script)
    is_now(cluster, job, "RUNNING")
    return job


def is_accounted(cluster: PracticeCluster, job: str, first: str) -> None:
    """Wait until this is the state and the exit code that the database has of the job's first time in the queue."""

    def matches() -> bool:
        lines = run(cluster, f"sacct -nXPD -j {job} -o state,exitcode", user="root").splitlines()
        return lines[:1] == [first]

    wait_until(matches, 15, f"the database says of job {job}: {first}")


# ---- limits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name", "limits", "flags", "reason"),
    [
        ("qos", "normal", {"MaxTRESPerUser": "gres/gpu=1"}, "-p gpu --gres=gpu:2", "QOSMaxGRESPerUser"),
        ("account", "proj1", {"GrpTRES": "gres/gpu=0,cpu=8"}, "-p gpu --gres=gpu:1", "AssocGrpGRES"),
        ("association", "proj1/alice", {"MaxJobs": 0}, "", "AssocMaxJobsLimit"),
        ("qos", "short", {"MaxWall": "00:05:00"}, "--qos=short -t 10", "QOSMaxWallDurationPerJobLimit"),
    ],
)
def test_who_exceeds_a_limit_waits(
    cluster: PracticeCluster, kind: str, name: str, limits: dict[str, int | str], flags: str, reason: str
) -> None:
    with cluster.limited(kind, name, **limits):
        is_now(cluster, submit(cluster, flags), "PENDING", reason)


@pytest.mark.parametrize(
    ("kind", "name", "limits", "said"),
    [
        ("association", "proj1/alice", {"MaxSubmitJobs": 0}, "AssocMaxSubmitJobLimit"),
        ("qos", "normal", {"MaxWall": "00:05:00", "Flags": "DenyOnLimit"}, "QOSMaxWallDurationPerJobLimit"),
    ],
)
def test_who_exceeds_another_limit_is_refused(
    cluster: PracticeCluster, kind: str, name: str, limits: dict[str, int | str], said: str
) -> None:
    with cluster.limited(kind, name, **limits):
        assert said in sbatch(cluster, "-t 10")
    submit(cluster, "-t 10")


def test_a_limit_goes_back_to_what_it_was(cluster: PracticeCluster) -> None:
    show = "sacctmgr -nP show qos short format=MaxWall,MaxTRESPerUser,Flags"
    before = run(cluster, show)
    with cluster.limited("qos", "short", MaxTRESPerUser="gres/gpu=2,cpu=3"):
        limits = {"MaxWall": "00:01:00", "MaxTRESPerUser": "gres/gpu=1", "Flags": "DenyOnLimit"}
        with pytest.raises(ZeroDivisionError), cluster.limited("qos", "short", **limits):
            assert run(cluster, show) == "00:01:00|cpu=3,gres/gpu=1|DenyOnLimit"
            _ = 1 / 0
        assert run(cluster, show) == "02:00:00|cpu=3,gres/gpu=2|"
    assert run(cluster, show) == before
    for nobody in (("qos", "nosuch"), ("association", "proj1"), ("user", "alice")):
        with pytest.raises(ClusterError), cluster.limited(*nobody, MaxJobs=1):
            pass


# ---- reservations, partitions, nodes, licences ---------------------------------------------------------------


def test_reservations_that_come_and_those_of_others(cluster: PracticeCluster) -> None:
    with cluster.reservation("tomorrow", "now+1day", users="alice"), cluster.reservation("bobs", "now", users="bob"):
        mine = submit(cluster, "--reservation=tomorrow")
        is_now(cluster, mine, "PENDING", "Reservation")
        assert "Access denied to requested reservation" in sbatch(cluster, "--reservation=bobs")
        is_now(cluster, submit(cluster, "-w node1"), "PENDING", "ReqNodeNotAvail, May be reserved for other job")
        is_now(cluster, submit(cluster, "--reservation=bobs", user="bob"), "RUNNING")
    assert run(cluster, "scontrol show reservation -o").count("ReservationName=") == 1


def test_a_maintenance_is_in_the_way_of_long_jobs(cluster: PracticeCluster) -> None:
    with cluster.reservation("service", "now+30minutes", nodes="ALL", flags="MAINT,IGNORE_JOBS"):
        is_now(cluster, submit(cluster, "-t 60"), "PENDING", "ReqNodeNotAvail, Reserved for maintenance")
        running(cluster, "-t 5")


def test_drained_nodes_and_partitions_that_are_down(cluster: PracticeCluster) -> None:
    before = running(cluster, "-p gpu")
    with cluster.drained("gpu1"), cluster.partition_state("devcore", "DOWN"):
        job = submit(cluster, "-p gpu")
        is_now(cluster, job, "PENDING", "Nodes required for job are DOWN, DRAINED")
        assert "coffee" in run(cluster, "sinfo -R")
        is_now(cluster, submit(cluster, "-p devcore"), "PENDING", "PartitionDown")
        is_now(cluster, before, "RUNNING")
    is_now(cluster, job, "RUNNING")
    for state in ("DRAIN", "INACTIVE"):
        with cluster.partition_state("devcore", state):
            assert "Required partition not available" in sbatch(cluster, "-p devcore")
    submit(cluster, "-p devcore")


def test_licences_that_there_are_not_or_that_are_used_up(cluster: PracticeCluster) -> None:
    for too_much in ("matlab:2", "nosuch:1"):
        assert "Invalid license specification" in sbatch(cluster, f"-L {too_much}")
    with cluster.licence_taken("matlab"):
        job = submit(cluster, "-L matlab:1")
        is_now(cluster, job, "PENDING", "Licenses")


def test_a_node_fails_under_its_jobs(cluster: PracticeCluster) -> None:
    requeued, lost = running(cluster, "-w node1"), running(cluster, "-w node1 --no-requeue")
    with cluster.node_fails("node1"):
        is_now(cluster, lost, "NODE_FAIL", "NodeDown")
        is_now(cluster, requeued, "PENDING")
        # The exit codes of the generations differ.
        wait_until(lambda: "NODE_FAIL" in run(cluster, f"sacct -nXPD -j {requeued} -o state"), 15, "it is accounted")
    running(cluster, "-w node1")


def test_slurm_finds_out_that_a_slurmd_has_died(cluster: PracticeCluster) -> None:
    job = running(cluster, "-w node2 --no-requeue")
    # Half a minute, and what it takes until nobody answers, are for ordinary days.
    with cluster.configured(SlurmdTimeout="5", MessageTimeout="3"), cluster.no_slurmd("node2"):
        is_now(cluster, job, "RUNNING")
        assert processes_of_jobs(cluster, "node2")
        is_now(cluster, job, "NODE_FAIL", "NodeDown", seconds=60)
    wait_until(lambda: not processes_of_jobs(cluster, "node2"), 10, "what was left of the job is ended")


def test_a_slurmd_dies_with_all_that_runs_there_or_without(cluster: PracticeCluster) -> None:
    job = running(cluster, "-w node1")
    with cluster.no_slurmd("node1"):
        pass
    is_now(cluster, job, "RUNNING")
    assert processes_of_jobs(cluster, "node1")
    with cluster.no_slurmd("node1", kill_steps=True):
        assert not processes_of_jobs(cluster, "node1")
    running(cluster, "-w node1")


def processes_of_jobs(cluster: PracticeCluster, node: str) -> list[str]:
    return [args for _, user, args in cluster.processes(node) if args == SLEEP or "slurmstepd" in args]


def test_a_prolog_fails(cluster: PracticeCluster) -> None:
    with cluster.failing_prolog("gpu1"):
        job = submit(cluster, "-p gpu")
        is_now(cluster, job, "PENDING", "launch failed requeued held")
        assert "Prolog error" in run(cluster, "sinfo -R")
    running(cluster, "-p gpu")


# ---- services ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["practice", "snowy"])
def test_a_controller_goes_and_comes_back_and_jobs_do_not_notice(cluster: PracticeCluster, where: str) -> None:
    job = submit(cluster, f"-M {where}")
    state = f"squeue -h -M {where} -j {job} -o %T"
    wait_until(lambda: "RUNNING" in run(cluster, state), 30, "the job runs")
    with cluster.no_slurmctld(where):
        assert "can't be reached now" in run(cluster, state)
    assert "RUNNING" in run(cluster, state)
    submit(cluster, f"-M {where}")


def test_a_site_without_accounting(cluster: PracticeCluster) -> None:
    with cluster.no_accounting():
        job = submit(cluster)
        assert run(cluster, "sacct") == "Slurm accounting storage is disabled"
        assert "not running a supported accounting_storage plugin" in run(cluster, "sacctmgr show assoc")
        is_now(cluster, job, "RUNNING")
    is_accounted(cluster, job, "RUNNING|0:0")


def test_the_accounting_database_is_out_of_reach(cluster: PracticeCluster) -> None:
    with cluster.no_slurmdbd():
        assert "Problem talking to the database" in run(cluster, "sacct")
        running(cluster)
    assert "Problem" not in run(cluster, "sacct")


# ---- the queue -----------------------------------------------------------------------------------------------


def test_others_fill_nodes_for_a_known_time(cluster: PracticeCluster) -> None:
    with cluster.busy("gpu", "node1", walltime="2:00:00") as jobs:
        assert run(cluster, "squeue -h -t RUNNING -o '%i %N' --sort=i").split() == [jobs[0], "gpu1", jobs[1], "node1"]
        job = submit(cluster, "-p gpu -t 10")
        is_now(cluster, job, "PENDING", "Resources")
        estimate = f"date -d $(squeue -h -j {job} -o %S) +%s"
        wait_until(lambda: run(cluster, estimate).isdigit(), 15, "there is an estimate")
        assert 110 * 60 < int(run(cluster, estimate)) - time.time() <= 121 * 60
    is_now(cluster, job, "RUNNING")
    assert not run(cluster, "squeue -h -u bob")


def test_others_take_gpus_and_leave_the_rest(cluster: PracticeCluster) -> None:
    with cluster.busy("gpu1", gres="gpu:a100:4"):
        running(cluster, "-p gpu --gres=gpu:t4:2 -t 10")
        is_now(cluster, submit(cluster, "-p gpu --gres=gpu:a100:1"), "PENDING", "Resources")


def test_others_stand_ahead_in_the_queue(cluster: PracticeCluster) -> None:
    with cluster.busy("gpu"), cluster.held_back_by(3, "gpu") as others:
        job = submit(cluster, "-p gpu")
        is_now(cluster, job, "PENDING", "Priority")
        ahead = run(cluster, "squeue -h -p gpu -t PENDING --sort=-p,i -o %i").split()
        assert ahead == [*others, job]


def test_an_urgent_job_takes_the_place_of_others(cluster: PracticeCluster) -> None:
    requeued, ended, elsewhere = (
        running(cluster, flags)
        for flags in ("-p scavenge -w node1", "-p scavenge-cancel -w node1", "-p scavenge -w node2")
    )
    with cluster.preempts("node1") as urgent:
        assert run(cluster, f"squeue -h -j {urgent} -o '%u %T'") == "bob RUNNING"
        is_now(cluster, requeued, "PENDING", "BeginTime")
        is_now(cluster, ended, "PREEMPTED")
        for job in (requeued, ended):
            is_accounted(cluster, job, "PREEMPTED|0:0")
    is_now(cluster, elsewhere, "RUNNING")
    for nobodys_prey in ("core", "node", "devcore", "gpu"):
        assert "PreemptMode=OFF" in run(cluster, f"scontrol show partition {nobodys_prey}")


def test_jobs_of_others_are_hidden(cluster: PracticeCluster) -> None:
    with cluster.busy("node1") as jobs:
        with cluster.hidden_jobs():
            assert run(cluster, "squeue -h") == ""
            assert jobs[0] in run(cluster, "squeue -h", user="bob")
        assert jobs[0] in run(cluster, "squeue -h")


def test_a_setting_is_changed_and_restored(cluster: PracticeCluster) -> None:
    with cluster.configured(EnforcePartLimits="ALL"):
        assert "Requested time limit is invalid" in sbatch(cluster, "-p devcore -t 300")
    is_now(cluster, submit(cluster, "-p devcore -t 300"), "PENDING", "PartitionTimeLimit")


def test_a_job_of_a_federation_is_revoked_where_it_does_not_run(cluster: PracticeCluster) -> None:
    with cluster.federated(), cluster.busy("core"):
        job = submit(cluster)
        is_now(cluster, job, "REVOKED")
        assert "RUNNING" in run(cluster, f"squeue -h -M snowy -j {job} -o %T")
    assert int(running(cluster)) < 1 << 26


# ---- how jobs end --------------------------------------------------------------------------------------------

EAT = "python3 -c 'import time; eaten = b\"x\" * (300 << 20); time.sleep(60)'; echo it ended with $?"


def test_more_memory_than_was_asked_for(cluster: PracticeCluster) -> None:
    job = submit(cluster, "--mem=100M --acctg-freq=1", EAT)
    is_now(cluster, job, "FAILED")
    is_accounted(cluster, job, "FAILED|0:9")
    log = run(cluster, f"cat slurm-{job}.out")
    assert re.search(r"exceeded memory limit \(\d+ > 104857600\), being killed", log)
    assert "Exceeded job memory limit" in log
    assert "it ended" not in log


def test_more_memory_than_the_kernel_allows(cluster: PracticeCluster) -> None:
    try:
        with cluster.memory_cgroup("node2"):
            job = submit(cluster, "-w node2 --mem=100M", EAT)
            is_now(cluster, job, "OUT_OF_MEMORY", "OutOfMemory")
            is_accounted(cluster, job, "OUT_OF_MEMORY|0:125")
            assert re.search(r"ended with 137\n.*Detected 1 oom.kill event", run(cluster, f"cat slurm-{job}.out"))
    except NotPossibleHereError as error:  # as documented, and only there
        assert not (MEMORY_CGROUPS / "cgroup.procs").exists() and "control groups" in str(error)
    running(cluster, "-w node2")


def test_a_job_is_said_to_be_out_of_memory(cluster: PracticeCluster) -> None:
    job = running(cluster)
    cluster.out_of_memory(job)
    is_now(cluster, job, "OUT_OF_MEMORY", "OutOfMemory")
    is_accounted(cluster, job, "OUT_OF_MEMORY|0:125")


def test_a_node_does_not_boot(cluster: PracticeCluster) -> None:
    requeued, lost = running(cluster), running(cluster, "--no-requeue")
    for job in (requeued, lost):
        cluster.boot_fails(job)
    is_now(cluster, requeued, "PENDING", "BeginTime")
    is_now(cluster, lost, "BOOT_FAIL")


def test_a_deadline_and_a_dependency_that_cannot_be_met(cluster: PracticeCluster) -> None:
    with cluster.busy("gpu"):
        late = submit(cluster, "-p gpu -t 1 --deadline=now+62")
        first = submit(cluster, "--begin=now+1hour")
        second = submit(cluster, f"-d afterok:{first}")
        is_now(cluster, second, "PENDING", "Dependency")
        run(cluster, f"scancel {first}")
        is_now(cluster, second, "PENDING", "DependencyNeverSatisfied")
        is_now(cluster, late, "DEADLINE")


# ---- what is around Slurm ------------------------------------------------------------------------------------


def test_sbatch_answers_late(cluster: PracticeCluster) -> None:
    def seconds(flags: str = "", user: str = "alice") -> float:
        before = time.monotonic()
        submit(cluster, flags, user=user)
        return time.monotonic() - before

    with cluster.slow_sbatch("alice", 2):
        assert seconds(user="bob") < 2
        argv = cluster.argv("login", "alice", ["sbatch", "--parsable", "--wrap", SLEEP], login=False)
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as waiting:
            wait_until(lambda: "alice" in run(cluster, "squeue -h -o %u"), 2, "the job is in the queue")
            assert waiting.poll() is None
            assert waiting.stdout and waiting.stdout.read().strip().isdigit()
    assert seconds() < 2


def test_squeue_fails_for_ordinary_people(cluster: PracticeCluster) -> None:
    with cluster.failing_squeue(), cluster.failing("scancel", "it's not 5 o'clock", status=7):
        done = cluster.run("login", "alice", ["squeue"])
        said = "slurm_load_jobs error: Socket timed out on send/recv operation\n"
        assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
        done = cluster.run("login2", "alice", ["scancel", "1"])
        assert (done.returncode, done.stderr) == (7, "it's not 5 o'clock\n")
        assert cluster.root("login", ["squeue"]).returncode == 0
    assert cluster.run("login", "alice", ["squeue"]).returncode == 0


def test_containers_start_slowly(cluster: PracticeCluster) -> None:
    def seconds(command: str) -> float:
        before = time.monotonic()
        assert cluster.run("node1", "alice", command.split(), check=True)
        return time.monotonic() - before

    into = "apptainer exec /sw/images/no-jupyter.sif true"
    with cluster.slow_container(1.5):
        assert seconds("apptainer --version") < 1.5 <= seconds(into)
    seconds(into)


def test_a_home_that_is_full(cluster: PracticeCluster) -> None:
    def tries(box: str) -> str:
        return run(cluster, "head -c 9 /etc/passwd >a; touch b; mkdir c; rm -rf a b c", user="ivan", box=box)

    for box in ("login", "gpu1"):
        assert tries(box) == ""
    with cluster.full_home("ivan"):
        for box in ("login2", "gpu1"):
            assert re.fullmatch("head: .*No space left on device", tries(box))
    with cluster.full_home("ivan", inodes=True):
        assert tries("node1").count("No space left on device") == 3
    assert tries("node2") == ""
    run(cluster, "echo everywhere >a", user="ivan", box="gpu1")
    assert run(cluster, "cat a; rm a", user="ivan", box="login") == "everywhere"
    with pytest.raises(ClusterError), cluster.full_home("alice"):
        pass


@pytest.mark.parametrize("user", ["alice", "ivan"])
def test_a_home_that_cannot_be_written_on_the_nodes(cluster: PracticeCluster, user: str) -> None:
    with cluster.read_only_home(user):
        assert "Read-only file system" in run(cluster, "touch a", user=user, box="node2")
        assert run(cluster, "touch a && rm a", user=user) == ""
        job = submit(cluster, "-t 5", user=user)
        is_now(cluster, job, "FAILED")
        is_accounted(cluster, job, "FAILED|0:53")
    with cluster.read_only_home(user, "login"):
        assert "Read-only file system" in run(cluster, "touch a", user=user)
        assert run(cluster, "touch a && rm a", user=user, box="node2") == ""
    assert run(cluster, "touch a && rm a", user=user) == ""
