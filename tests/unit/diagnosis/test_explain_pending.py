"""Why a job waits: the reason in words, who is ahead, what is worth reading, and what can never start."""

from __future__ import annotations

import pytest

from notebook_launcher.core.request import Request
from notebook_launcher.core.walltime import UNLIMITED, Walltime
from notebook_launcher.diagnosis.explain import Explanation, evidence_needed, never_starts, pending
from notebook_launcher.schedulers.cluster_info import Evidence, Limit, Partition
from tests.unit.diagnosis.sample_evidence import HOUR, evidence, request

CORE = Partition("core", is_default=True, is_up=True, walltime=Walltime(days=10), nodes=3)


NODE = Partition("node", is_up=True, walltime=Walltime(days=10), nodes=2)


DEVCORE = Partition("devcore", is_up=True, walltime=HOUR, nodes=2)


LONG = Partition("long", is_up=True, walltime=UNLIMITED, nodes=2, max_nodes=1)


URGENT = Partition("urgent", is_up=True, walltime=Walltime(days=10), nodes=3, accounts=frozenset({"proj2"}))


CLOSED = Partition("closed", is_up=False, walltime=Walltime(days=10), nodes=3)


UNTOLD = Partition("untold", walltime=Walltime(days=10), nodes=3)


STAFF = Partition("staff", is_up=True, walltime=Walltime(days=10), nodes=3, groups=frozenset({"staff"}))


PARTITIONS = (CORE, NODE, LONG, DEVCORE, URGENT, CLOSED, UNTOLD, STAFF)


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
        ("DependencyNeverSatisfied", "did not end as required", True),
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
        (
            "Resources",
            Evidence(ahead=0, partition="gpu"),
            "first in line in partition gpu, waits until enough of what it asks for is free",
        ),
        ("Resources", Evidence(ahead=3), "waits until enough of what it asks for is free, 3 jobs are ahead"),
        ("Resources", Evidence(), "waits until enough of what it asks for is free"),
        (None, Evidence(ahead=3), "the scheduler has not looked at it yet, 3 jobs are ahead"),
    ],
)
def test_how_many_are_ahead(reason: str | None, known: Evidence | None, summary: str) -> None:
    assert pending(reason, known) == Explanation(summary)


def test_nodes_that_others_have_taken_are_not_called_broken() -> None:
    """It is Slurm's word for a node that is simply busy, too."""
    reason = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
    assert evidence_needed(reason) == {"ahead", "partitions"}
    known = evidence(request(partition="node"), partitions=(NODE, CORE), ahead=1)
    assert pending(reason, known) == Explanation(
        "the nodes that it could use are kept for jobs with a higher priority, or are down or drained, "
        "1 job is ahead in partition node",
        "try another partition with -p, for example -p core",
    )


GROUP_GPUS = Limit("account proj1", "gres/gpu", "group", "4", "4")


@pytest.mark.parametrize(
    ("reason", "worth"),
    [
        ("Priority", {"ahead"}),
        ("Resources", {"ahead"}),
        (None, {"ahead"}),
        ("None", {"ahead"}),
        ("PartitionTimeLimit", {"partitions"}),
        ("PartitionDown", {"partitions"}),
        ("PartitionConfig", {"partitions"}),
        ("Job's account not permitted to use this partition (urgent allows proj2 not proj1)", {"partitions"}),
        ("AssocGrpGRES", {"limits"}),
        ("QOSMaxCpuPerUserLimit", {"limits"}),
        ("MaxJobsPerAccount", {"limits"}),
        ("BeginTime", {"partitions", "limits"}),
        ("Dependency", {"partitions", "limits"}),
        ("Licenses", set()),
        ("JobHeldUser", set()),
        ("new in 31.05", set()),
    ],
)
def test_only_what_a_reason_calls_for_is_read(reason: str | None, worth: set[str]) -> None:
    assert evidence_needed(reason) == worth


@pytest.mark.parametrize("reason", ["PartitionNodeLimit", "PartitionConfig"])
def test_a_partition_without_nodes_may_get_some(reason: str) -> None:
    dynamic = Partition("dyn", nodes=0, walltime=Walltime(days=1))
    asked = request(partition="dyn", account="proj1", qos="normal")
    assert not pending(reason, evidence(asked, partitions=(dynamic,))).never
    assert never_starts(asked, evidence(asked, partitions=(dynamic,))) is None
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
        (
            request(partition="devcore,node", nodes="3", time="2:00:00"),
            Evidence(partitions=PARTITIONS),
            "it asks for 3 nodes, and partition node has 2; its walltime of 2 hours is longer than partition devcore",
        ),
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
)
def test_what_can_never_start_is_told_only_where_that_is_certain(asked: Request, known: Evidence, summary: str) -> None:
    told = never_starts(asked, known)
    if not summary:
        assert told is None
    else:
        assert told is not None
        assert summary in told.summary
        assert told.never
        assert told.action
