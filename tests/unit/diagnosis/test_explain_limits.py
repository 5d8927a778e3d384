"""Why a job waits: the limits of its account and QOS, in numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from notebook_launcher.core.request import Request
from notebook_launcher.diagnosis.explain import Explanation, pending
from notebook_launcher.schedulers.cluster_info import Evidence, Limit
from tests.unit.diagnosis.sample_evidence import evidence, request

SHORT_GPUS = Limit("QOS short", "gres/gpu", "user", "2", "1")


GROUP_GPUS = Limit("account proj1", "gres/gpu", "group", "4", "4")


LIMIT_CASES = [
    pytest.param(
        "QOSMaxGRESPerUser",
        request(gpus="2"),
        (SHORT_GPUS,),
        Explanation(
            "QOS short allows at most 2 GPUs per user, 1 in use", "it starts when other jobs of yours have ended"
        ),
        id="in use",
    ),
    pytest.param(
        "QOSMaxGRESPerUser",
        request(gpus="4"),
        (SHORT_GPUS,),
        Explanation("it asks for 4 GPUs, and QOS short allows 2 per user", "try --gpus 2", never=True),
        id="too many",
    ),
    pytest.param(
        "AssocGrpGRES",
        request(gpus="1"),
        (SHORT_GPUS, GROUP_GPUS, Limit("account proj1", "cpu", "group", "9", "9")),
        Explanation(
            "account proj1 allows at most 4 GPUs for all together, 4 in use",
            "it starts when other jobs of your group have ended",
        ),
        id="the limit that is meant",
    ),
    pytest.param(
        "AssocGrpGRES",
        request(gpus="5"),
        (GROUP_GPUS,),
        Explanation("it asks for 5 GPUs, and account proj1 may use 4 at a time", "try --gpus 4", never=True),
        id="too many for the group",
    ),
    pytest.param(
        "AssocGrpGRES",
        request(gpus="1"),
        (GROUP_GPUS, Limit("account all", "gres/gpu", "group", "99", "7")),
        Explanation(
            "account proj1 allows at most 4 GPUs for all together, 4 in use",
            "it starts when other jobs of your group have ended",
        ),
        id="of two, the one that is reached",
    ),
    pytest.param(
        "AssocGrpGRES",
        request(gpus="a100:2"),
        (Limit("account proj1", "gres/gpu:a100", "group", "1", "0"),),
        Explanation(
            "it asks for 2 GPUs of type a100, and account proj1 may use 1 at a time", "try --gpus a100:1", never=True
        ),
        id="one type",
    ),
    pytest.param(
        "AssocGrpGRES",
        request(gpus="1"),
        (Limit("account proj1", "gres/gpu", "group", "0", "0"),),
        Explanation(
            "it asks for 1 GPU, and account proj1 may use 0 at a time", "try another account with -A", never=True
        ),
        id="none at all",
    ),
    pytest.param(
        "AssocGrpGRES",
        request(gpus="1"),
        (replace(GROUP_GPUS, used=None),),
        Explanation(
            "account proj1 allows at most 4 GPUs for all together, how much is in use is not known",
            "it starts when other jobs of your group have ended",
        ),
        id="use not told",
    ),
    pytest.param(
        "AssocGrpCPUMinutesLimit",
        request(),
        (Limit("account proj1", "cpu minutes", "group", "600", "580"),),
        Explanation(
            "account proj1 allows at most 600 CPU minutes for all together, 580 used",
            "ask whoever runs the project for more, or try another account with -A",
        ),
        id="used up, which may come back",
    ),
    pytest.param(
        "QOSGrpCPURunMinutesLimit",
        request(),
        (Limit("QOS short", "running cpu minutes", "group", "600", "580"),),
        Explanation(
            "QOS short allows at most 600 CPU minutes ahead in running jobs for all together, 580 in use",
            "it starts when other jobs of the QOS have ended",
        ),
        id="running minutes",
    ),
    pytest.param(
        "QOSMaxWallDurationPerJobLimit",
        request(time="5:00:00"),
        (Limit("QOS short", "walltime", "job", "02:00:00"),),
        Explanation(
            "its walltime of 5 hours is longer than QOS short allows (02:00:00)", "try -t 02:00:00", never=True
        ),
        id="walltime",
    ),
    pytest.param(
        "QOSMaxCpuPerUserLimit",
        request(ntasks="6"),
        (Limit("QOS normal", "cpu", "user", "4", "0"),),
        Explanation(
            "it asks for 6 CPUs, and QOS normal allows 4 per user",
            "try fewer cores: 4 in all (-n times -c)",
            never=True,
        ),
        id="cores",
    ),
    pytest.param(
        "QOSMaxMemoryPerUser",
        request(mem="5G"),
        (Limit("partition core (QOS p)", "mem", "user", "1G", "0"),),
        Explanation(
            "it asks for 5G of memory, and partition core (QOS p) allows 1G per user", "try --mem 1G", never=True
        ),
        id="memory, by the partition's QOS",
    ),
    pytest.param(
        "QOSMaxNodePerJobLimit",
        request(nodes="2"),
        (Limit("QOS short", "node", "job", "1"),),
        Explanation("it asks for 2 nodes, and QOS short allows 1 per job", "try -N 1", never=True),
        id="nodes",
    ),
    pytest.param(
        "MaxJobsPerAccount",
        request(),
        (Limit("QOS short", "jobs", "account", "3", "3"),),
        Explanation(
            "QOS short allows at most 3 jobs per account, 3 in use",
            "it starts when other jobs of your account have ended",
        ),
        id="jobs",
    ),
    pytest.param(
        "QOSMaxJobsPerUserLimit",
        request(),
        (Limit("QOS short", "jobs", "user", "0", "0"),),
        Explanation("QOS short lets no job start at all", "try another QOS with -q", never=True),
        id="no jobs at all",
    ),
    pytest.param(
        "AssocMaxGRESPerNode",
        request(gpus="4"),
        (Limit("account proj1", "gres/gpu", "node", "2"),),
        Explanation("account proj1 allows at most 2 GPUs per node", "ask for fewer, or try another account with -A"),
        id="per node, which may be spread",
    ),
    pytest.param(
        "QOSMaxGRESPerJob",
        request(gpus="4", partition="gpu,long"),
        (Limit("QOS short", "gres/gpu", "job", "2"),),
        Explanation("QOS short allows at most 2 GPUs per job", "ask for fewer, or try another QOS with -q"),
        id="of several partitions, another may have other limits",
    ),
]


@pytest.mark.parametrize(("reason", "asked", "limits", "explanation"), LIMIT_CASES)
def test_a_limit_in_numbers(reason: str, asked: Request, limits: tuple[Limit, ...], explanation: Explanation) -> None:
    assert pending(reason, evidence(asked, limits=limits)) == explanation


@pytest.mark.parametrize(
    ("reason", "known", "told", "command"),
    [
        ("AssocGrpGRES", None, "was not read", "sacctmgr show assoc tree format=account,user,GrpTRES"),
        (
            "AssocGrpGRES",
            evidence(request(account="proj1", qos="normal")),
            "was not read",
            "sacctmgr show assoc account=proj1 format=account,user,GrpTRES",
        ),
        (
            "AssocGrpGRES",
            evidence(request(account="proj1")),
            "was not read: which QOS the job has was not reported",
            "sacctmgr show assoc account=proj1 format=account,user,GrpTRES",
        ),
        (
            "QOSMaxGRESPerUser",
            evidence(request(gpus="99")),
            "was not read: which account and QOS the job has was not reported",
            "sacctmgr show qos format=name,MaxTRESPU",
        ),
        ("QOSMaxGRESPerUser", None, "was not read", "sacctmgr show qos format=name,MaxTRESPU"),
        (
            "QOSMinGRES",
            evidence(request(), limits=(SHORT_GPUS,)),
            "is not known",
            "sacctmgr show qos format=name,MinTRES",
        ),
        (
            "AssocGrpGRES",
            evidence(request(), limits=()),
            "is not known",
            "sacctmgr show assoc tree format=account,user,GrpTRES",
        ),
    ],
)
def test_a_limit_whose_size_is_not_known(reason: str, known: Evidence | None, told: str, command: str) -> None:
    explanation = pending(reason, known)
    assert explanation.summary.endswith(f" (how large the limit is {told})")
    assert explanation.action.endswith(f"; on the login node, see the limit with: {command}")
    assert ("unless it is over that limit by itself" in explanation.action) is (not explanation.never)
