"""Why a job waits: what the partition allows of the request."""

from __future__ import annotations

import pytest

from notebook_launcher.core.request import Request
from notebook_launcher.core.walltime import UNLIMITED, Walltime
from notebook_launcher.diagnosis.explain import Explanation, pending
from notebook_launcher.schedulers.cluster_info import Partition
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


PARTITION_CASES = [
    pytest.param(
        "PartitionTimeLimit",
        request(time="2:00:00", partition="devcore"),
        Explanation(
            "its walltime of 2 hours is longer than partition devcore allows (1:00:00)",
            "try -t 1:00:00, or -p core or -p node",
            never=True,
        ),
        id="too long",
    ),
    pytest.param(
        "PartitionTimeLimit",
        request(time="2:00:00", partition="devcore", gpus="1"),
        Explanation(
            "its walltime of 2 hours is longer than partition devcore allows (1:00:00)", "try -t 1:00:00", never=True
        ),
        id="where GPUs are is not known",
    ),
    pytest.param(
        "PartitionTimeLimit",
        request(time="unlimited", partition="core"),
        Explanation(
            "its walltime has no limit, and partition core allows 10-00:00:00",
            "try -t 10-00:00:00, or -p long",
            never=True,
        ),
        id="no limit",
    ),
    pytest.param(
        "PartitionTimeLimit",
        request(time="20-0", partition="devcore,core", nodes="2"),
        Explanation(
            "its walltime of 20 days is longer than partition core allows (10-00:00:00) and partition devcore "
            "allows (1:00:00)",
            "try -t 10-00:00:00",
            never=True,
        ),
        id="too long for both",
    ),
    pytest.param(
        "PartitionTimeLimit",
        request(time="2:00:00", partition="devcore,core"),
        Explanation(
            "one of its partitions does not take it: its walltime is longer than the partition allows",
            "ask for less with -t, or another partition with -p, for example -p node or -p long",
        ),
        id="too long for one of two",
    ),
    pytest.param(
        "PartitionTimeLimit",
        request(time="2:00:00", partition="devcore,elsewhere"),
        Explanation(
            "one of its partitions does not take it: its walltime is longer than the partition allows",
            "ask for less with -t, or another partition with -p, for example -p core or -p node",
        ),
        id="of one nothing is known",
    ),
    pytest.param(
        "PartitionTimeLimit",
        request(time="20-0"),
        Explanation(
            "its walltime of 20 days is longer than partition core allows (10-00:00:00)",
            "try -t 10-00:00:00, or -p long",
            never=True,
        ),
        id="the default partition",
    ),
    pytest.param(
        "PartitionTimeLimit",
        request(time="30", partition="devcore"),
        Explanation(
            "its walltime is longer than partition devcore allows",
            "ask for less with -t, or another partition with -p, for example -p core or -p node",
        ),
        id="what was read says otherwise",
    ),
    pytest.param(
        "PartitionNodeLimit",
        request(nodes="5", partition="node"),
        Explanation("it asks for 5 nodes, and partition node has 2", "try -N 2", never=True),
        id="too many nodes",
    ),
    pytest.param(
        "PartitionNodeLimit",
        request(nodes="2-4", partition="long"),
        Explanation(
            "it asks for 2 nodes, and partition long allows 1 at most", "try -N 1, or -p core or -p node", never=True
        ),
        id="more nodes than a job may have",
    ),
    pytest.param(
        "PartitionNodeLimit",
        request(nodes="1", partition="node"),
        Explanation(
            "it asks for more or fewer nodes than partition node allows, or has in service",
            "ask for another number of nodes (-N), or another partition (-p), for example -p core or -p long",
        ),
        id="nodes may be down",
    ),
    pytest.param(
        "PartitionConfig",
        request(partition="urgent", account="proj1"),
        Explanation(
            "account proj1 may not use partition urgent",
            "try another account with -A, or -p core or -p node",
            never=True,
        ),
        id="closed to the account",
    ),
    pytest.param(
        "PartitionConfig",
        request(partition="devcore"),
        Explanation(
            "partition devcore does not allow it: its account, its QOS, its group or its size",
            "try another partition (-p) or account (-A), or ask for less, for example -p core or -p node",
            never=True,
        ),
        id="for a reason that is not known",
    ),
    pytest.param(
        "PartitionDown",
        request(partition="closed"),
        Explanation(
            "partition closed is closed at the moment", "try another partition with -p, for example -p core or -p node"
        ),
        id="closed",
    ),
    pytest.param(
        "AccountNotAllowed",
        request(partition="urgent,core", account="proj1"),
        Explanation(
            "one of its partitions does not take it: the account may not use this partition",
            "try another account (-A) or partition (-p), for example -p node or -p long",
        ),
        id="closed to the account, one of two",
    ),
]


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
