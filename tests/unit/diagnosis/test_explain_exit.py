"""Why a job waits and why it ended: evidence in, a sentence out, nothing guessed."""

from __future__ import annotations

import re
import signal
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.core.errors import (
    ActivationFailed,
    BindMissing,
    BootFailed,
    ContainerFailed,
    DeadlinePassed,
    HomeUnusable,
    ImageUnusable,
    JobCancelled,
    JobFailed,
    JobLost,
    JobTimedOut,
    JupyterCrashed,
    JupyterMissing,
    JupyterSlow,
    LauncherError,
    ModuleFailed,
    NodeFailed,
    OutOfMemory,
    Preempted,
    Revoked,
)
from notebook_launcher.core.package_data import folder
from notebook_launcher.core.request import Request
from notebook_launcher.diagnosis import exit_causes as causes
from notebook_launcher.diagnosis import explain
from notebook_launcher.diagnosis.explain import Explanation, beyond, ended, needs, pending
from notebook_launcher.schedulers.base import JobRef, JobStatus, State
from notebook_launcher.schedulers.cluster_info import UNLIMITED, Evidence, Limit, Partition

JOB = JobRef("7", "snowy")
LOG = ["one", "two"]


# --- evidence ------------------------------------------------------------------------------------------------


HOUR, DAY = timedelta(hours=1), timedelta(days=1)
CORE = Partition("core", is_default=True, is_up=True, walltime=10 * DAY, nodes=3)
NODE = Partition("node", is_up=True, walltime=10 * DAY, nodes=2)
DEVCORE = Partition("devcore", is_up=True, walltime=HOUR, nodes=2)
LONG = Partition("long", is_up=True, walltime=UNLIMITED, nodes=2, max_nodes=1)
URGENT = Partition("urgent", is_up=True, walltime=10 * DAY, nodes=3, accounts=frozenset({"proj2"}))
CLOSED = Partition("closed", is_up=False, walltime=10 * DAY, nodes=3)
UNTOLD = Partition("untold", walltime=10 * DAY, nodes=3)
STAFF = Partition("staff", is_up=True, walltime=10 * DAY, nodes=3, groups=frozenset({"staff"}))
PARTITIONS = (CORE, NODE, LONG, DEVCORE, URGENT, CLOSED, UNTOLD, STAFF)


def request(**flags: str | None) -> Request:
    return Request({name.replace("_", "-"): value for name, value in flags.items()})


def evidence(asked: Request, **others: object) -> Evidence:
    return Evidence(asked, asked.flags.get("partition"), **others)  # type: ignore[arg-type]


# --- waiting -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "summary", "never"),
    [
        ("Priority", "ahead in the queue", False),
        ("Resources", "is free", False),
        ("BeginTime", "begin time", False),
        ("Reservation", "reservation to begin", False),
        ("ReqNodeNotAvail, UnavailableNodes:node[1-2]", "down, drained or reserved", False),
        ("JobHeldUser", "held", False),
        ("JobHeldAdmin", "held by an operator", False),
        ("PartitionTimeLimit", "longer than the partition allows", True),
        ("PartitionNodeLimit", "more or fewer nodes", False),
        ("DependencyNeverSatisfied", "did not end as asked", True),
        ("InvalidAccount", "not valid, or the accounting database is away", False),
        ("InvalidQOS", "not valid, or the accounting database is away", False),
        ("Configuring", "its nodes are being prepared", False),
        ("QOSMaxJobsPerUserLimit", "as many jobs at once as the QOS allows", False),
        ("AssocMaxWallDurationPerJobLimit", "longer than your account allows", True),
        (None, "has not looked at it yet", False),
        ("None", "has not looked at it yet", False),
        ("", "has not looked at it yet", False),
        (" ", "has not looked at it yet", False),
        ("Nonesuch: new in 31.05", "the scheduler says “Nonesuch: new in 31.05”", False),
    ],
)
def test_why_a_job_waits(reason: str | None, summary: str, never: bool) -> None:
    explanation = pending(reason)
    assert summary in explanation.summary
    assert explanation.never is never


def test_a_command_to_type_has_the_jobs_number() -> None:
    assert pending("JobHeldUser", job="7").action == "release it with: scontrol release 7"
    assert pending("JobHeldUser").action == "release it with: scontrol release JOB"


@pytest.mark.parametrize(
    ("reason", "known", "summary"),
    [
        ("Priority", Evidence(ahead=12, partition="gpu"), "12 jobs are ahead in partition gpu"),
        ("Priority", Evidence(ahead=1, partition="gpu,core"), "1 job is ahead in partitions gpu and core"),
        ("Priority", Evidence(ahead=2), "2 jobs are ahead"),
        ("Priority", Evidence(partition="gpu"), "other jobs are ahead in the queue (how many is not known)"),
        ("Priority", None, "other jobs are ahead in the queue"),
        ("Resources", Evidence(ahead=0, partition="gpu"),
         "first in line in partition gpu, waits until enough of what it asks for is free"),
        ("Resources", Evidence(ahead=3), "waits until enough of what it asks for is free, 3 jobs are ahead"),
        ("Resources", Evidence(), "waits until enough of what it asks for is free"),
        (None, Evidence(ahead=3), "the scheduler has not looked at it yet, 3 jobs are ahead"),
    ],
)  # fmt: skip
def test_how_many_are_ahead(reason: str | None, known: Evidence | None, summary: str) -> None:
    assert pending(reason, known) == Explanation(summary)


PARTITION_CASES = [
    pytest.param(
        "PartitionTimeLimit", request(time="2:00:00", partition="devcore"),
        Explanation("its walltime of 2 hours is longer than partition devcore allows (1:00:00)",
                    "try -t 1:00:00, or -p core or -p node", never=True),
        id="too long",
    ),
    pytest.param(
        "PartitionTimeLimit", request(time="2:00:00", partition="devcore", gpus="1"),
        Explanation("its walltime of 2 hours is longer than partition devcore allows (1:00:00)", "try -t 1:00:00",
                    never=True),
        id="where GPUs are is not known",
    ),
    pytest.param(
        "PartitionTimeLimit", request(time="unlimited", partition="core"),
        Explanation("its walltime has no limit, and partition core allows 10-00:00:00",
                    "try -t 10-00:00:00, or -p long", never=True),
        id="no limit",
    ),
    pytest.param(
        "PartitionTimeLimit", request(time="20-0", partition="devcore,core", nodes="2"),
        Explanation("its walltime of 20 days is longer than partition core allows (10-00:00:00) and partition devcore "
                    "allows (1:00:00)", "try -t 10-00:00:00", never=True),
        id="too long for both",
    ),
    pytest.param(
        "PartitionTimeLimit", request(time="2:00:00", partition="devcore,core"),
        Explanation("one of its partitions does not take it: its walltime is longer than the partition allows",
                    "ask for less with -t, or another partition with -p, for example -p node or -p long"),
        id="too long for one of two",
    ),
    pytest.param(
        "PartitionTimeLimit", request(time="2:00:00", partition="devcore,elsewhere"),
        Explanation("one of its partitions does not take it: its walltime is longer than the partition allows",
                    "ask for less with -t, or another partition with -p, for example -p core or -p node"),
        id="of one nothing is known",
    ),
    pytest.param(
        "PartitionTimeLimit", request(time="20-0"),
        Explanation("its walltime of 20 days is longer than partition core allows (10-00:00:00)",
                    "try -t 10-00:00:00, or -p long", never=True),
        id="the default partition",
    ),
    pytest.param(
        "PartitionTimeLimit", request(time="30", partition="devcore"),
        Explanation("its walltime is longer than partition devcore allows", "ask for less with -t, or another partition"
                    " with -p, for example -p core or -p node"),
        id="what was read says otherwise",
    ),
    pytest.param(
        "PartitionNodeLimit", request(nodes="5", partition="node"),
        Explanation("it asks for 5 nodes, and partition node has 2", "try -N 2", never=True), id="too many nodes",
    ),
    pytest.param(
        "PartitionNodeLimit", request(nodes="2-4", partition="long"),
        Explanation("it asks for 2 nodes, and partition long allows 1 at most",
                    "try -N 1, or -p core or -p node", never=True),
        id="more nodes than a job may have",
    ),
    pytest.param(
        "PartitionNodeLimit", request(nodes="1", partition="node"),
        Explanation("it asks for more or fewer nodes than partition node allows, or has in service", "ask for another "
                    "number of nodes (-N), or another partition (-p), for example -p core or -p long"),
        id="nodes may be down",
    ),
    pytest.param(
        "PartitionConfig", request(partition="urgent", account="proj1"),
        Explanation("account proj1 may not use partition urgent", "another account: -A, or -p core or -p node",
                    never=True),
        id="closed to the account",
    ),
    pytest.param(
        "PartitionConfig", request(partition="devcore"),
        Explanation("partition devcore does not allow it: its account, its QOS, its group or its size",
                    "another partition (-p) or account (-A), or ask for less, for example -p core or -p node",
                    never=True),
        id="for a reason that is not known",
    ),
    pytest.param(
        "PartitionDown", request(partition="closed"),
        Explanation("partition closed is closed at the moment",
                    "another partition: -p, for example -p core or -p node"),
        id="closed",
    ),
    pytest.param(
        "AccountNotAllowed", request(partition="urgent,core", account="proj1"),
        Explanation("one of its partitions does not take it: the account may not use this partition",
                    "another account (-A) or partition (-p), for example -p node or -p long"),
        id="closed to the account, one of two",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "asked", "explanation"), PARTITION_CASES)
def test_what_a_partition_allows(reason: str, asked: Request, explanation: Explanation) -> None:
    assert pending(reason, evidence(asked, partitions=PARTITIONS)) == explanation


def test_where_the_partition_was_not_read_that_is_said() -> None:
    told = pending("PartitionTimeLimit", evidence(request(time="2:00:00", partition="devcore")))
    assert told.summary == "its walltime is longer than partition devcore allows (how long that is was not read)"
    assert "sinfo -o '%P %l'" in told.action
    assert told.never


def test_of_several_partitions_one_may_still_take_it() -> None:
    assert not pending("PartitionTimeLimit", evidence(request(time="2:00:00", partition="devcore,core"))).never
    assert not pending("QOSMaxWallDurationPerJobLimit", evidence(request(partition="devcore,core"))).never


SHORT_GPUS = Limit("QOS short", "gres/gpu", "user", "2", "1")
GROUP_GPUS = Limit("account proj1", "gres/gpu", "group", "4", "4")

LIMIT_CASES = [
    pytest.param(
        "QOSMaxGRESPerUser", request(gpus="2"), (SHORT_GPUS,),
        Explanation("QOS short allows at most 2 GPUs per user, 1 in use",
                    "it starts when other jobs of yours have ended"),
        id="in use",
    ),
    pytest.param(
        "QOSMaxGRESPerUser", request(gpus="4"), (SHORT_GPUS,),
        Explanation("it asks for 4 GPUs, and QOS short allows 2 per user", "try --gpus 2", never=True), id="too many",
    ),
    pytest.param(
        "AssocGrpGRES", request(gpus="1"), (SHORT_GPUS, GROUP_GPUS, Limit("account proj1", "cpu", "group", "9", "9")),
        Explanation("account proj1 allows at most 4 GPUs for all together, 4 in use",
                    "it starts when other jobs of your group have ended"),
        id="the limit that is meant",
    ),
    pytest.param(
        "AssocGrpGRES", request(gpus="5"), (GROUP_GPUS,),
        Explanation("it asks for 5 GPUs, and account proj1 may use 4 at a time", "try --gpus 4", never=True),
        id="too many for the group",
    ),
    pytest.param(
        "AssocGrpGRES", request(gpus="1"), (GROUP_GPUS, Limit("account all", "gres/gpu", "group", "99", "7")),
        Explanation("account proj1 allows at most 4 GPUs for all together, 4 in use",
                    "it starts when other jobs of your group have ended"),
        id="of two, the one that is reached",
    ),
    pytest.param(
        "AssocGrpGRES", request(gpus="a100:2"), (Limit("account proj1", "gres/gpu:a100", "group", "1", "0"),),
        Explanation("it asks for 2 GPUs of type a100, and account proj1 may use 1 at a time", "try --gpus a100:1",
                    never=True),
        id="one type",
    ),
    pytest.param(
        "AssocGrpGRES", request(gpus="1"), (Limit("account proj1", "gres/gpu", "group", "0", "0"),),
        Explanation("it asks for 1 GPU, and account proj1 may use 0 at a time", "another account: -A", never=True),
        id="none at all",
    ),
    pytest.param(
        "AssocGrpGRES", request(gpus="1"), (replace(GROUP_GPUS, used=None),),
        Explanation("account proj1 allows at most 4 GPUs for all together, how much is in use is not known",
                    "it starts when other jobs of your group have ended"),
        id="use not told",
    ),
    pytest.param(
        "AssocGrpCPUMinutesLimit", request(), (Limit("account proj1", "cpu minutes", "group", "600", "580"),),
        Explanation("account proj1 allows at most 600 CPU minutes for all together, 580 used",
                    "ask whoever runs the project for more, or another account: -A"),
        id="used up, which may come back",
    ),
    pytest.param(
        "QOSGrpCPURunMinutesLimit", request(), (Limit("QOS short", "running cpu minutes", "group", "600", "580"),),
        Explanation("QOS short allows at most 600 CPU minutes ahead in running jobs for all together, 580 in use",
                    "it starts when other jobs of the QOS have ended"),
        id="running minutes",
    ),
    pytest.param(
        "QOSMaxWallDurationPerJobLimit", request(time="5:00:00"), (Limit("QOS short", "walltime", "job", "02:00:00"),),
        Explanation("its walltime of 5 hours is longer than QOS short allows (02:00:00)", "try -t 02:00:00",
                    never=True),
        id="walltime",
    ),
    pytest.param(
        "QOSMaxCpuPerUserLimit", request(ntasks="6"), (Limit("QOS normal", "cpu", "user", "4", "0"),),
        Explanation("it asks for 6 CPUs, and QOS normal allows 4 per user",
                    "try fewer cores: 4 in all (-n times -c)", never=True),
        id="cores",
    ),
    pytest.param(
        "QOSMaxMemoryPerUser", request(mem="5G"), (Limit("partition core (QOS p)", "mem", "user", "1G", "0"),),
        Explanation("it asks for 5G of memory, and partition core (QOS p) allows 1G per user", "try --mem 1G",
                    never=True),
        id="memory, by the partition's QOS",
    ),
    pytest.param(
        "QOSMaxNodePerJobLimit", request(nodes="2"), (Limit("QOS short", "node", "job", "1"),),
        Explanation("it asks for 2 nodes, and QOS short allows 1 per job", "try -N 1", never=True), id="nodes",
    ),
    pytest.param(
        "MaxJobsPerAccount", request(), (Limit("QOS short", "jobs", "account", "3", "3"),),
        Explanation("QOS short allows at most 3 jobs per account, 3 in use",
                    "it starts when other jobs of your account have ended"),
        id="jobs",
    ),
    pytest.param(
        "QOSMaxJobsPerUserLimit", request(), (Limit("QOS short", "jobs", "user", "0", "0"),),
        Explanation("QOS short lets no job start at all", "another QOS: -q", never=True), id="no jobs at all",
    ),
    pytest.param(
        "AssocMaxGRESPerNode", request(gpus="4"), (Limit("account proj1", "gres/gpu", "node", "2"),),
        Explanation("account proj1 allows at most 2 GPUs per node", "ask for fewer, or another account: -A"),
        id="per node, which may be spread",
    ),
    pytest.param(
        "QOSMaxGRESPerJob", request(gpus="4", partition="gpu,long"), (Limit("QOS short", "gres/gpu", "job", "2"),),
        Explanation("QOS short allows at most 2 GPUs per job", "ask for fewer, or another QOS: -q"),
        id="of several partitions, another may have other limits",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "asked", "limits", "explanation"), LIMIT_CASES)
def test_a_limit_in_numbers(reason: str, asked: Request, limits: tuple[Limit, ...], explanation: Explanation) -> None:
    assert pending(reason, evidence(asked, limits=limits)) == explanation


@pytest.mark.parametrize(
    ("reason", "known", "told", "command"),
    [
        ("AssocGrpGRES", None, "was not read", "sacctmgr show assoc tree format=account,user,GrpTRES"),
        ("AssocGrpGRES", evidence(request(account="proj1", qos="normal")), "was not read",
         "sacctmgr show assoc account=proj1 format=account,user,GrpTRES"),
        ("AssocGrpGRES", evidence(request(account="proj1")), "was not read: which QOS the job has was not told",
         "sacctmgr show assoc account=proj1 format=account,user,GrpTRES"),
        ("QOSMaxGRESPerUser", evidence(request(gpus="99")),
         "was not read: which account and QOS the job has was not told", "sacctmgr show qos format=name,MaxTRESPU"),
        ("QOSMaxGRESPerUser", None, "was not read", "sacctmgr show qos format=name,MaxTRESPU"),
        ("QOSMinGRES", evidence(request(), limits=(SHORT_GPUS,)), "was not told",
         "sacctmgr show qos format=name,MinTRES"),
        ("AssocGrpGRES", evidence(request(), limits=()), "was not told",
         "sacctmgr show assoc tree format=account,user,GrpTRES"),
    ],
)  # fmt: skip
def test_a_limit_whose_size_is_not_known(reason: str, known: Evidence | None, told: str, command: str) -> None:
    explanation = pending(reason, known)
    assert explanation.summary.endswith(f" (how large the limit is {told})")
    assert explanation.action.endswith(f"; the limit is shown by: {command}")
    assert ("unless it is over that limit by itself" in explanation.action) is (not explanation.never)


@pytest.mark.parametrize(
    ("reason", "worth"),
    [
        ("Priority", {"ahead"}), ("Resources", {"ahead"}), (None, {"ahead"}), ("None", {"ahead"}),
        ("PartitionTimeLimit", {"partitions"}), ("PartitionDown", {"partitions"}), ("PartitionConfig", {"partitions"}),
        ("Job's account not permitted to use this partition (urgent allows proj2 not proj1)", {"partitions"}),
        ("AssocGrpGRES", {"limits"}), ("QOSMaxCpuPerUserLimit", {"limits"}), ("MaxJobsPerAccount", {"limits"}),
        ("BeginTime", {"partitions", "limits"}), ("Dependency", {"partitions", "limits"}),
        ("Licenses", set()), ("JobHeldUser", set()), ("new in 31.05", set()),
    ],
)  # fmt: skip
def test_only_what_a_reason_calls_for_is_read(reason: str | None, worth: set[str]) -> None:
    assert needs(reason) == worth


@pytest.mark.parametrize("reason", ["PartitionNodeLimit", "PartitionConfig"])
def test_a_partition_without_nodes_may_get_some(reason: str) -> None:
    dynamic = Partition("dyn", nodes=0, walltime=timedelta(days=1))
    asked = request(partition="dyn", account="proj1", qos="normal")
    assert not pending(reason, evidence(asked, partitions=(dynamic,))).never
    assert beyond(asked, evidence(asked, partitions=(dynamic,))) is None
    assert "dyn" not in pending("PartitionDown", evidence(request(partition="core"), partitions=(CORE, dynamic))).action


# --- what can never start, whatever it is said to wait for ----------------------------------------------------

DEVCORE_FOR_TWO_HOURS = request(partition="devcore", time="2:00:00")


@pytest.mark.parametrize(
    ("asked", "known", "summary"),
    [
        (DEVCORE_FOR_TWO_HOURS, Evidence(partitions=PARTITIONS), "longer than partition devcore allows"),
        (request(time="20-0"), Evidence(partitions=PARTITIONS), "longer than partition core allows"),
        (DEVCORE_FOR_TWO_HOURS, Evidence(partition="core", partitions=PARTITIONS), ""),  # moved by the site
        (request(partition="devcore", time="2:00:00", time_min="30"), Evidence(partitions=PARTITIONS), ""),
        (request(partition="devcore", time="4:00:00", time_min="2:00:00"), Evidence(partitions=PARTITIONS), "longer"),
        (request(partition="devcore", time="2:00:00", qos="long"), Evidence(partitions=PARTITIONS), ""),
        (request(partition="devcore,core", time="2:00:00"), Evidence(partitions=PARTITIONS), ""),
        (request(partition="devcore,elsewhere", time="2:00:00"), Evidence(partitions=PARTITIONS), ""),
        (request(partition="devcore,node", nodes="3", time="2:00:00"), Evidence(partitions=PARTITIONS),
         "it asks for 3 nodes, and partition node has 2; its walltime of 2 hours is longer than partition devcore"),
        (DEVCORE_FOR_TWO_HOURS, Evidence(), ""),
        (request(partition="urgent", account="proj1"), Evidence(partitions=PARTITIONS), ""),  # may be inherited
        (request(partition="long", time="unlimited"), Evidence(partitions=PARTITIONS), ""),
        (request(gpus="5"), Evidence(limits=(GROUP_GPUS,)), "asks for 5 GPUs, and account proj1 may use 4"),
        (request(gpus="4"), Evidence(limits=(GROUP_GPUS,)), ""),
        (request(gpus="5", partition="gpu,long"), Evidence(limits=(GROUP_GPUS,)), ""),
        (request(), Evidence(limits=(Limit("account proj1", "jobs", "user", "0", "0"),)), "lets no job start"),
        (request(time="5:00:00"), Evidence(limits=(Limit("account proj1", "walltime", "job", "02:00:00"),)), "longer"),
        (request(time="5:00:00"), Evidence(limits=(Limit("account proj1", "walltime", "group", "02:00:00"),)), ""),
        (request(ntasks="4"), Evidence(limits=(Limit("account proj1", "cpu", "node", "2"),)), ""),
        (request(ntasks="4"), Evidence(limits=(Limit("account proj1", "cpu minutes", "group", "2", "2"),)), ""),
        (request(ntasks="4"), Evidence(limits=(Limit("account proj1", "odd", "group", "2", "2"),)), ""),
        (request(gpus="5"), Evidence(limits=(Limit("account proj1", "gres/gpu", "group", "many"),)), ""),
    ],
)  # fmt: skip
def test_what_can_never_start_is_told_only_where_that_is_certain(asked: Request, known: Evidence, summary: str) -> None:
    told = beyond(asked, known)
    if not summary:
        assert told is None
    else:
        assert told is not None
        assert summary in told.summary
        assert told.never
        assert told.action


# --- ended ---------------------------------------------------------------------------------------------------


def status(state: State, **others: object) -> JobStatus:
    return JobStatus(JOB, state, **others)  # type: ignore[arg-type]


def record(cause: str, message: str = "", **others: object) -> dict[str, object]:
    return {"version": 1, "cause": cause, "message": message, **others}


STOPPED = record("stopped", "The job was ended by signal SIGTERM.")


@pytest.mark.parametrize(
    ("exit_record", "of_scheduler", "kind", "says"),
    [
        # the job's own word goes before the scheduler's
        (record("image-missing", "No image /x.sif."), status(State.FAILED), ImageUnusable, "No image /x.sif."),
        (record("image-missing", "No image /x.sif."), None, ImageUnusable, "No image /x.sif."),
        (record("image-unreadable", "m"), None, ImageUnusable, "m"),
        (record("bind-missing", "m"), None, BindMissing, "m"),
        (record("container-command-missing", "m"), None, ContainerFailed, "m"),
        (record("container-failed", "m"), None, ContainerFailed, "m"),
        (record("module-failed", "m"), None, ModuleFailed, "m"),
        (record("module-command-missing", "m"), None, ModuleFailed, "m"),
        (record("conda-missing", "m"), None, ActivationFailed, "m"),
        (record("venv-missing", "m"), None, ActivationFailed, "m"),
        (record("activate-failed", "m"), None, ActivationFailed, "m"),
        (record("jupyter-missing", "m"), None, JupyterMissing, "m"),
        (record("jupyter-failed", "m"), status(State.FAILED, exit_code=1), JupyterCrashed, "m"),
        (record("jupyter-silent", "m"), None, JupyterSlow, "m"),
        (record("session-unusable", "m"), None, HomeUnusable, "m"),
        (record("finished", "JupyterLab was ended by its user."), None, JobFailed, "ended by its user"),
        (record("new-cause"), None, JobFailed, "failed (new-cause)"),
        # except that a signal, or a crash, is explained by the scheduler
        (STOPPED, status(State.CANCELLED, by="2001"), JobCancelled, "cancelled by user 2001"),
        (STOPPED, status(State.TIMEOUT), JobTimedOut, "reached its walltime"),
        (STOPPED, status(State.PREEMPTED), Preempted, "make room"),
        (STOPPED, status(State.RUNNING), JobCancelled, "stopped from outside"),
        (STOPPED, None, JobCancelled, "stopped from outside"),
        (record("jupyter-failed", "m"), status(State.OUT_OF_MEMORY), OutOfMemory, "more memory"),
        # without a word of the job's
        (None, status(State.CANCELLED), JobCancelled, "was cancelled, by whom is not known"),
        ({}, status(State.TIMEOUT), JobTimedOut, "walltime"),
        ({}, status(State.OUT_OF_MEMORY), OutOfMemory, "more memory"),
        ({}, status(State.NODE_FAIL), NodeFailed, "node failed"),
        ({}, status(State.BOOT_FAIL), BootFailed, "boot"),
        ({}, status(State.DEADLINE), DeadlinePassed, "deadline"),
        ({}, status(State.REVOKED), Revoked, "another cluster"),
        ({}, status(State.FAILED, exit_code=127), JobFailed, "exit code 127"),
        ({}, status(State.FAILED, exit_code=0, signal=9), JobFailed, "SIGKILL"),
        ({}, status(State.FAILED, reason="RaisedSignal:9(Killed)"), JobFailed, "SIGKILL"),
        ({}, status(State.FAILED), JobFailed, "7 on snowy failed."),
        ({}, status(State.FAILED, reason="NonZeroExitCode"), JobFailed, "7 on snowy failed."),
        ({}, status(State.FAILED, exit_code=73), HomeUnusable, "session's directory"),
        # the log's file could not be opened: 24.11, and the history of both
        ({}, status(State.FAILED, reason="RaisedSignal:53(Real-time signal 19)"), BootFailed, "could not be started"),
        ({}, status(State.FAILED, exit_code=0, signal=53), BootFailed, "could not be started"),
        ({}, status(State.FAILED, reason="JobLaunchFailure"), JobFailed, "was killed, or could not be started"),
        ({}, status(State.FAILED, reason="SystemFailure"), BootFailed, "because of Slurm"),
        ({}, status(State.FAILED, reason="OutOfMemory"), OutOfMemory, "more memory"),
        ({}, status(State.COMPLETED), JobFailed, "ended by itself"),
        ({}, status(State.UNKNOWN), JobLost, "left no word"),
        (None, None, JobLost, "left no word"),
    ],
)  # fmt: skip
def test_why_a_job_ended(
    exit_record: dict[str, object] | None, of_scheduler: JobStatus | None, kind: type[LauncherError], says: str
) -> None:
    error = ended(JOB, exit_record, of_scheduler, LOG)
    assert type(error) is kind
    assert says in error.what
    assert "7 on snowy" in error.what
    assert error.log == ("one", "two")


@pytest.mark.parametrize("state", list(State), ids=lambda state: state.name)
def test_every_state_gives_one_error_that_says_what_to_do(state: State) -> None:
    error = ended(JOB, None, status(state), [])
    assert error.what.endswith(".")
    assert error.mend or error.why
    assert isinstance(error, JobLost) is not state.ended


@pytest.mark.parametrize(
    ("by", "who", "reason", "says", "mend"),
    [
        ("2001", "alice", None, "cancelled by you (alice), from elsewhere.", "start again"),
        ("0", "root", None, "cancelled by root: an operator.", "support"),
        ("0", None, None, "cancelled by root: an operator.", "support"),
        ("2002", "bob", None, "cancelled by bob.", "start again"),
        ("2002", "user 2002", None, "cancelled by user 2002.", "start again"),
        (None, None, None, "cancelled, by whom is not known.", "start again"),
        (None, None, "JobHeldUser", "cancelled, by whom is not known.", "start again"),
        (None, None, "DependencyNeverSatisfied", "cancelled by the scheduler: the job it depends on", "--dependency"),
    ],
)
def test_by_whom_it_was_cancelled(by: str | None, who: str | None, reason: str | None, says: str, mend: str) -> None:
    error = ended(JOB, STOPPED, status(State.CANCELLED, by=by, reason=reason), [], user="alice", who=who)
    assert type(error) is JobCancelled
    assert says in error.what
    assert mend in error.mend


def test_which_walltime_it_reached() -> None:
    error = ended(JOB, STOPPED, status(State.TIMEOUT), [], walltime=timedelta(hours=2))
    assert error.what == "Job 7 on snowy reached its walltime of 2 hours."


def test_which_file_could_not_be_opened() -> None:
    error = ended(JOB, {}, status(State.FAILED, signal=53), [], output="/not/there/log")
    assert "(/not/there/log)." in error.what
    assert "-o" in error.mend


@pytest.mark.parametrize(
    ("code", "number", "why"),
    [
        (127, None, "A command was not found."),
        (126, None, "Something that should run may not be executed."),
        (137, None, "It was killed, perhaps for want of memory."),
        (9, None, "If it stands for 137, it was killed, perhaps for want of memory."),  # Slurm takes 128 off
        (0, 9, "It was killed, perhaps for want of memory."),
        (0, 7, "A bus error, perhaps because a disk is full."),
        (135, None, "A bus error, perhaps because a disk is full."),
        (0, 11, "It crashed."),
        (1, None, ""),
        (2, None, ""),
        (0, 62, ""),
    ],
)
def test_codes_and_signals_are_explained_as_far_as_they_tell_anything(code: int, number: int | None, why: str) -> None:
    assert ended(JOB, {}, status(State.FAILED, exit_code=code, signal=number), []).why == why


def test_the_exit_code_of_a_crashed_jupyterlab_is_explained() -> None:
    crashed = record("jupyter-failed", "JupyterLab on node1 ended with exit code 135.", exit_code=135)
    assert ended(JOB, crashed, None, []).why == "Exit code 135: a bus error, perhaps because a disk is full."
    assert ended(JOB, {**crashed, "exit_code": 1}, None, []).why == ""


CRASHED = record("jupyter-failed", "JupyterLab on node1 ended with exit code 1.", exit_code=1)
NO_SPACE = "OSError: [Errno 28] No space left on device: '/home/alice/.ipython'"
KILLED = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch. Some of the step tasks have been OOM Killed."
TOO_LATE = "slurmstepd-node1: error: *** JOB 7 ON node1 CANCELLED AT 2026-11-21T18:49:33 DUE TO TIME LIMIT ***"
NODE_FELL = (
    "slurmstepd-node2: error: *** JOB 7 ON node2 CANCELLED AT 2026-11-21T18:47:27 DUE TO NODE FAILURE, SEE SLURMCTLD "
    "LOG FOR DETAILS ***"
)
SCANCELLED = "slurmstepd-node1: error: *** JOB 7 ON node1 CANCELLED AT 2026-11-21T18:46:35 ***"
# what 24.11 writes where it watches the memory itself, without cgroups
OVER_MEMORY = [
    "slurmstepd-node1: error: StepId=7.batch exceeded memory limit (210477056 > 20971520), being killed",
    SCANCELLED,
    "slurmstepd-node1: error: Exceeded job memory limit",
]


@pytest.mark.parametrize(
    ("exit_record", "of_scheduler", "log", "kind"),
    [
        (CRASHED, status(State.FAILED, exit_code=1), [NO_SPACE], HomeUnusable),
        (CRASHED, None, ["OSError: [Errno 122] Disk quota exceeded: '/home/alice/x'"], HomeUnusable),
        (CRASHED, None, ["touch: cannot touch 'x': Read-only file system"], HomeUnusable),
        (CRASHED, None, ["torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"], OutOfMemory),
        (CRASHED, None, ["MemoryError"], OutOfMemory),
        (CRASHED, None, [KILLED], OutOfMemory),
        ({}, status(State.FAILED, exit_code=0, signal=9), OVER_MEMORY, OutOfMemory),
        ({}, status(State.CANCELLED, by="0"), OVER_MEMORY, OutOfMemory),
        ({}, status(State.FAILED, exit_code=1), [NO_SPACE], HomeUnusable),
        # where the scheduler keeps no history
        (STOPPED, None, [TOO_LATE], JobTimedOut),
        ({}, None, [TOO_LATE], JobTimedOut),
        ({}, None, [NODE_FELL], NodeFailed),
        ({}, None, [TOO_LATE.replace("TIME LIMIT", "PREEMPTION")], Preempted),
        ({}, None, [SCANCELLED], JobCancelled),
        (STOPPED, None, [SCANCELLED], JobCancelled),
        ({}, None, [NODE_FELL, SCANCELLED], JobCancelled),  # the first of them is of an earlier run
    ],
)  # fmt: skip
def test_the_logs_last_words_may_name_the_cause(
    exit_record: dict[str, object], of_scheduler: JobStatus | None, log: list[str], kind: type[LauncherError]
) -> None:
    error = ended(JOB, exit_record, of_scheduler, log)
    assert type(error) is kind
    assert re.fullmatch(r"The log says “.+”\.", error.why)
    assert error.why[len("The log says “") : -2] in log


@pytest.mark.parametrize(
    ("exit_record", "of_scheduler", "log", "kind"),
    [
        (record("image-missing", "No image."), None, [NO_SPACE], ImageUnusable),
        (CRASHED, None, ["Killed", "error", NO_SPACE, *["later"] * 10], JupyterCrashed),
        (CRASHED, None, [NODE_FELL], JupyterCrashed),
        (CRASHED, None, ["print('CANCELLED AT 12 DUE TO TIME LIMIT')"], JupyterCrashed),
        ({}, status(State.FAILED, exit_code=1), [NODE_FELL], JobFailed),
        ({}, status(State.TIMEOUT), [NO_SPACE], JobTimedOut),
        ({}, status(State.COMPLETED), [NO_SPACE], JobFailed),
        ({}, status(State.CANCELLED), [NO_SPACE], JobCancelled),
    ],
)
def test_the_logs_last_words_may_be_about_something_else(
    exit_record: dict[str, object], of_scheduler: JobStatus | None, log: list[str], kind: type[LauncherError]
) -> None:
    error = ended(JOB, exit_record, of_scheduler, log)
    assert type(error) is kind
    assert "The log says" not in error.why


def test_the_job_script_tells_in_the_log_where_it_can_tell_nowhere_else() -> None:
    line = "notebook-launcher: The session directory /home/alice/s cannot be made on node1."
    error = ended(JOB, {}, status(State.FAILED, reason="NonZeroExitCode"), ["mkdir: cannot create", line])
    assert type(error) is HomeUnusable
    assert error.why == "The session directory /home/alice/s cannot be made on node1."


def test_every_cause_that_the_job_script_gives_has_its_error_and_no_other() -> None:
    names = ("jupyterlab.sh", "lib.sh", "containers.sh", "image.sh")
    scripts = "".join((folder("jobscripts") / name).read_text() for name in names)
    given_causes = set(re.findall(r"\b(?:leave|fail) ([a-z]+(?:-[a-z]+)+|stopped|finished)\b", scripts))
    execute = (folder("jobscripts") / "execute.py").read_text()
    given_causes |= set(re.findall(r'\b(?:GaveUp|conclude)\("([a-z-]+)"', execute))
    assert causes.BY_SCRIPT.keys() == given_causes - {"stopped"}
    assert given_causes >= causes.MAYBE_IN_THE_LOG
    assert {str(cause) for cause in explain.ASK_THE_SCHEDULER if cause} <= given_causes
    assert f"EXIT_UNUSABLE={causes.EXIT_UNUSABLE}\n" in scripts


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (15, "SIGTERM"), (125, "125"), (0, "0"), (-3, "-3")])
def test_names_of_signals(number: int, name: str) -> None:
    assert causes.signal_name(number) == name
    assert causes.signal_name(signal.SIGINT) == "SIGINT"


# --- anything at all -----------------------------------------------------------------------------------------

REASONS = st.text(max_size=40) | st.sampled_from(
    ["Priority", "PartitionTimeLimit", "PartitionNodeLimit", "AssocGrpGRES", "QOSMaxGRESPerUser", "BeginTime",
     "QOSMaxWallDurationPerJobLimit", "QOSMaxMemoryPerUser", "MaxJobsPerAccount"]
)  # fmt: skip
VALUES = st.text(max_size=8) | st.sampled_from(["0", "2", "5G", "1-00:00:00", "02:00:00", "unlimited", "9" * 30])
NAMES = st.sampled_from(["", "core", "devcore", "core,devcore", "gpu", "a b", ",", "é"])
FLAGS = st.dictionaries(
    st.sampled_from(
        ["partition", "nodes", "gpus", "gres", "gpus-per-node", "gpus-per-task", "tres-per-task", "ntasks",
         "cpus-per-task", "ntasks-per-node", "mem", "mem-per-cpu", "mem-per-gpu", "qos", "account", "time-min",
         "overcommit"]
    ),
    st.none() | VALUES | NAMES,
    max_size=5,
)  # fmt: skip
SPANS = st.none() | st.timedeltas(min_value=timedelta(0)) | st.just(UNLIMITED)
COUNTS = st.none() | st.integers(-1, 5)
SETS = st.none() | st.frozensets(NAMES, max_size=2)
ANY_PARTITION = st.builds(
    Partition, name=NAMES, is_default=st.booleans(), is_up=st.none() | st.booleans(), walltime=SPANS, min_nodes=COUNTS,
    max_nodes=COUNTS, nodes=COUNTS, accounts=SETS, qos=SETS, groups=SETS,
)  # fmt: skip
ANY_LIMIT = st.builds(
    Limit,
    of=st.sampled_from(["account a", "QOS b", "", "partition c (QOS d)"]),
    on=st.text(max_size=5) | st.sampled_from(
        ["gres/gpu", "gres/gpu:t4", "cpu", "mem", "node", "jobs", "submitted jobs", "walltime", "cpu minutes",
         "running mem minutes", "license/x", "", "/", "gres/", "billing"]
    ),
    per=st.sampled_from(["job", "user", "account", "group", "node", ""]),
    value=VALUES,
    used=st.none() | VALUES,
)  # fmt: skip
EVIDENCE = st.builds(
    Evidence,
    request=st.none() | st.builds(Request, FLAGS | st.sampled_from([{"time": "unlimited"}, {"time": "20-0"}])),
    partition=st.none() | NAMES,
    partitions=st.none() | st.lists(ANY_PARTITION, max_size=3),
    limits=st.none() | st.lists(ANY_LIMIT, max_size=4),
    ahead=st.none() | st.integers(-1, 10**6),
)
ANY_RECORD = st.dictionaries(
    st.sampled_from(["cause", "message", "exit_code"]),
    st.text(max_size=9) | st.none() | st.integers() | st.sampled_from([*sorted(causes.BY_SCRIPT), "stopped"]),
)
ANY_NUMBER = st.none() | st.integers(-1, 300)
ANY_STATUS = st.builds(
    JobStatus, job=st.just(JOB), state=st.sampled_from(State), reason=st.none() | REASONS, exit_code=ANY_NUMBER,
    signal=ANY_NUMBER, by=st.none() | st.text(max_size=5),
)  # fmt: skip
ANY_LOG = st.lists(
    st.text(max_size=20) | st.sampled_from([NO_SPACE, KILLED, TOO_LATE, NODE_FELL, SCANCELLED]), max_size=4
)


@given(st.none() | REASONS, st.none() | EVIDENCE)
def test_any_reason_with_any_evidence_gets_a_sentence(reason: str | None, known: Evidence | None) -> None:
    told = pending(reason, known)
    assert told.summary.strip()
    assert told.action.strip() or not told.never
    assert needs(reason) <= {"partitions", "limits", "ahead"}
    if known is not None and known.request is not None and (certain := beyond(known.request, known)):
        assert certain.never and certain.summary.strip() and certain.action.strip()


@given(st.none() | ANY_RECORD, st.none() | ANY_STATUS, ANY_LOG, st.none() | st.text(max_size=5), SPANS)
def test_no_end_makes_us_stumble(
    exit_record: dict[str, object] | None,
    of_scheduler: JobStatus | None,
    log: list[str],
    who: str | None,
    walltime: timedelta | None,
) -> None:
    error = ended(JOB, exit_record, of_scheduler, log, user="alice", who=who, walltime=walltime)
    assert error.what.startswith("Job 7 on snowy")
    assert type(error).exit_code >= JobFailed.exit_code
