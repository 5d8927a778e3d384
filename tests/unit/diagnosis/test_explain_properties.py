"""Any evidence at all gets a sentence, and any end an error."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.core.errors import (
    JobFailed,
    UsageError,
)
from notebook_launcher.core.request import Request
from notebook_launcher.core.walltime import UNLIMITED, Walltime
from notebook_launcher.diagnosis import exit_causes
from notebook_launcher.diagnosis.explain import ended, evidence_needed, never_starts, pending
from notebook_launcher.schedulers.base import JobRef, JobStatus, State
from notebook_launcher.schedulers.cluster_info import Evidence, Limit, Partition
from tests.unit.diagnosis.sample_evidence import NODE_FELL

JOB = JobRef("7", "snowy")


NO_SPACE = "OSError: [Errno 28] No space left on device: '/home/alice/.ipython'"


KILLED = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch. Some of the step tasks have been OOM Killed."


TOO_LATE = "slurmstepd-node1: error: *** JOB 7 ON node1 CANCELLED AT 2026-11-21T18:49:33 DUE TO TIME LIMIT ***"


SCANCELLED = "slurmstepd-node1: error: *** JOB 7 ON node1 CANCELLED AT 2026-11-21T18:46:35 ***"


REASONS = st.text(max_size=40) | st.sampled_from(
    [
        "Priority",
        "PartitionTimeLimit",
        "PartitionNodeLimit",
        "AssocGrpGRES",
        "QOSMaxGRESPerUser",
        "BeginTime",
        "QOSMaxWallDurationPerJobLimit",
        "QOSMaxMemoryPerUser",
        "MaxJobsPerAccount",
    ]
)


VALUES = st.text(max_size=8) | st.sampled_from(["0", "2", "5G", "1-00:00:00", "02:00:00", "unlimited", "9" * 30])


NAMES = st.sampled_from(["", "core", "devcore", "core,devcore", "gpu", "a b", ",", "é"])


def is_walltime(text: str | None) -> bool:
    """Whether a request takes this for a walltime."""
    try:
        return text is None or bool(Walltime.parse(text))
    except UsageError:
        return False


FLAGS = st.dictionaries(
    st.sampled_from(
        [
            "partition",
            "nodes",
            "gpus",
            "gres",
            "gpus-per-node",
            "gpus-per-task",
            "tres-per-task",
            "ntasks",
            "cpus-per-task",
            "ntasks-per-node",
            "mem",
            "mem-per-cpu",
            "mem-per-gpu",
            "qos",
            "account",
            "time-min",
            "overcommit",
        ]
    ),
    st.none() | VALUES | NAMES,
    max_size=5,
).filter(lambda flags: is_walltime(flags.get("time-min")))


def as_walltime(length: timedelta) -> Walltime:
    return Walltime(length.days, length.seconds, length.microseconds)


SPANS = st.none() | st.timedeltas(min_value=timedelta(0)).map(as_walltime) | st.just(UNLIMITED)


COUNTS = st.none() | st.integers(-1, 5)


SETS = st.none() | st.frozensets(NAMES, max_size=2)


ANY_PARTITION = st.builds(
    Partition,
    name=NAMES,
    is_default=st.booleans(),
    is_up=st.none() | st.booleans(),
    walltime=SPANS,
    min_nodes=COUNTS,
    max_nodes=COUNTS,
    nodes=COUNTS,
    accounts=SETS,
    qos=SETS,
    groups=SETS,
)


ANY_LIMIT = st.builds(
    Limit,
    of=st.sampled_from(["account a", "QOS b", "", "partition c (QOS d)"]),
    on=st.text(max_size=5)
    | st.sampled_from(
        [
            "gres/gpu",
            "gres/gpu:t4",
            "cpu",
            "mem",
            "node",
            "jobs",
            "submitted jobs",
            "walltime",
            "cpu minutes",
            "running mem minutes",
            "license/x",
            "",
            "/",
            "gres/",
            "billing",
        ]
    ),
    per=st.sampled_from(["job", "user", "account", "group", "node", ""]),
    value=VALUES,
    used=st.none() | VALUES,
)


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
    st.text(max_size=9) | st.none() | st.integers() | st.sampled_from([*sorted(exit_causes.BY_SCRIPT), "stopped"]),
)


ANY_NUMBER = st.none() | st.integers(-1, 300)


ANY_STATUS = st.builds(
    JobStatus,
    job=st.just(JOB),
    state=st.sampled_from(State),
    reason=st.none() | REASONS,
    exit_code=ANY_NUMBER,
    signal=ANY_NUMBER,
    by=st.none() | st.text(max_size=5),
)


ANY_LOG = st.lists(
    st.text(max_size=20) | st.sampled_from([NO_SPACE, KILLED, TOO_LATE, NODE_FELL, SCANCELLED]), max_size=4
)


@given(st.none() | REASONS, st.none() | EVIDENCE)
def test_any_reason_with_any_evidence_gets_a_sentence(reason: str | None, known: Evidence | None) -> None:
    told = pending(reason, known)
    assert told.summary.strip()
    assert told.action.strip() or not told.never
    assert evidence_needed(reason) <= {"partitions", "limits", "ahead"}
    if known is not None and known.request is not None and (certain := never_starts(known.request, known)):
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
