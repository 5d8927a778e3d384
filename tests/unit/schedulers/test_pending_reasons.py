"""Slurm's reasons why a job waits: every one that any Slurm from 22.05 on can print has a sentence of its own."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.schedulers.slurm import limit_reasons, pending_reasons
from tests import paths

RECORDED = paths.RECORDED / "slurm_reasons.txt"
WORDS = [line for line in RECORDED.read_text().splitlines() if not line.startswith("#")]
LIMITS = [word for word in WORDS if re.match(r"Assoc(Grp|Max)|QOS(Grp|Max|Min)|Max.*Per(User|Account)$", word)]


def test_every_reason_of_slurm_is_known() -> None:
    for word in WORDS:
        meaning = pending_reasons.parse_reason(word)
        assert meaning is not None, word
        assert word not in meaning.summary
        assert meaning.action or not meaning.never, word
        assert pending_reasons.parse_reason(f"({word.upper()})") == meaning
        assert (meaning.limit is not None) is (word in LIMITS), word


def test_the_list_is_complete() -> None:
    assert (len(set(WORDS)), len(LIMITS)) == (223, 163)


def test_no_two_limits_are_told_alike() -> None:
    told: dict[str, list[str]] = {}
    for word in LIMITS:
        meaning = pending_reasons.parse_reason(word)
        assert meaning is not None
        told.setdefault(meaning.summary, []).append(word)
    assert [words for words in told.values() if len(words) > 1] == []


def test_every_limit_names_the_command_that_shows_its_size() -> None:
    columns = set()
    for word in LIMITS:
        limit = limit_reasons.parse_limit_reason(word)
        assert limit is not None
        command = limit_reasons.command(limit)
        assert re.fullmatch(r"sacctmgr show (qos|assoc tree) format=[\w,]+", command), command
        assert ("qos" in command) is (limit.by == "QOS")
        columns.add(command.rpartition(",")[2])
    assert columns == {
        "GrpTRES",
        "GrpTRESMins",
        "GrpTRESRunMins",
        "GrpJobs",
        "GrpSubmit",
        "GrpWall",
        "MaxTRES",
        "MaxTRESMins",
        "MaxWall",
        "MaxTRESPerNode",
        "MaxJobs",
        "MaxSubmit",
        "MaxJobsPU",
        "MaxSubmitPU",
        "MaxTRESPU",
        "MaxTRESRunMinsPU",
        "MaxJobsPA",
        "MaxSubmitPA",
        "MaxTRESPA",
        "MaxTRESRunMinsPA",
        "MinTRES",
    }


@pytest.mark.parametrize(
    ("word", "summary", "action", "never"),
    [
        (
            "AssocGrpGRES",
            "with it, your account's group would use more GPUs (GRES) at once than it may",
            "it starts when other jobs of your group have ended",
            False,
        ),
        (
            "AssocGrpCPUMinutesLimit",
            "your account's group has used up its CPU minutes, or too few are left for this job",
            "ask whoever runs the project for more, or try another account with -A",
            False,
        ),
        (
            "AssocGrpWallLimit",
            "your account's group has used up its walltime, or too little is left for this job",
            "ask whoever runs the project for more, or try another account with -A",
            False,
        ),
        (
            "AssocMaxJobsLimit",
            "you run as many jobs at once as your account allows one user",
            "it starts when other jobs of yours have ended",
            False,
        ),
        (
            "AssocMaxWallDurationPerJobLimit",
            "its walltime is longer than your account allows one job",
            "ask for less with -t, or try another account with -A",
            True,
        ),
        (
            "AssocMaxGRESPerNode",
            "it asks for more GPUs (GRES) on one node than your account allows",
            "ask for fewer, or try another account with -A",
            False,
        ),
        (
            "AssocMaxMemPerJob",
            "it asks for more memory than your account allows one job",
            "ask for less, or try another account with -A",
            True,
        ),
        (
            "QOSGrpNodeRunMinutes",
            "with it, all who use the QOS would have more node minutes ahead in running jobs than they may",
            "it starts when other jobs of the QOS have ended",
            False,
        ),
        (
            "QOSGrpBB",
            "with it, all who use the QOS would use more burst-buffer space at once than they may",
            "it starts when other jobs of the QOS have ended",
            False,
        ),
        (
            "QOSGrpSubmitJobsLimit",
            "all who use the QOS have as many jobs, waiting and running, as they may",
            "it starts when other jobs of the QOS have ended",
            False,
        ),
        (
            "QOSMaxMemoryPerUser",
            "with it, you would use more memory at once than the QOS allows one user",
            "it starts when other jobs of yours have ended",
            False,
        ),
        (
            "QOSMaxCpuMinutesPerJobLimit",
            "it asks for more CPU minutes (size times walltime) than the QOS allows one job",
            "ask for fewer, or less time, or try another QOS with -q",
            True,
        ),
        (
            "QOSMinCpuNotSatisfied",
            "it asks for fewer CPUs than the QOS demands of a job",
            "ask for more, or try another QOS with -q",
            True,
        ),
        (
            "MaxJobsPerAccount",
            "your account runs as many jobs at once as the QOS allows one account",
            "it starts when other jobs of your account have ended",
            False,
        ),
        (
            "MaxGRESRunMinsPerUser",
            "with it, you would have more GPU (GRES) minutes ahead in running jobs than the QOS allows one user",
            "it starts when other jobs of yours have ended",
            False,
        ),
    ],
)
def test_a_limit_is_told_by_its_parts(word: str, summary: str, action: str, never: bool) -> None:
    meaning = pending_reasons.parse_reason(word)
    assert meaning is not None
    assert (meaning.summary, meaning.action, meaning.never) == (summary, action, never)


# What squeue prints in place of a word. Seen on 24.11 or 22.05, except those marked: they are in Slurm's sources.
SENTENCES = [
    ("ReqNodeNotAvail, UnavailableNodes:node[1-2]", r"down, drained or reserved \(node\[1-2\]\)", False),
    ("ReqNodeNotAvail, UnavailableNodes:", "down, drained or reserved", False),
    ("ReqNodeNotAvail, May be reserved for other job", "reserved for another job", False),
    ("ReqNodeNotAvail, Reserved for maintenance", "maintenance", False),
    ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", "kept for", False),
    (
        "Job's account not permitted to use this partition (urgent allows proj2 not proj1)",
        "partition urgent is only for proj2",
        True,
    ),
    (
        "Job's account not permitted to use this partition (devcore denies proj1 including proj1)",
        "partition devcore is closed to proj1",
        True,
    ),
    (
        "Job's QOS not permitted to use this partition (devcore allows short,long not normal)",
        "partition devcore takes only the QOS short,long",
        True,
    ),
    (
        "Job's QOS not permitted to use this partition (devcore denies normal including normal)",
        "partition devcore does not take the QOS normal",
        True,
    ),  # not seen
    ("Job's account not permitted to use this partition", "the account may not use this partition", True),  # not seen
    (
        "uid 2001 not in group permitted to use this partition (devcore). groups allowed: staff",
        "partition devcore is only for members of staff",
        True,
    ),  # not seen
    ("launch failed requeued held", "is held: it could not be started", False),
    ("launch failure limit exceeded requeued held", "is held: its start has failed too often", False),  # not seen
    ("user env retrieval failed requeued held", "is held: your start-up files", False),  # not seen
    ("job requeued in held state", "put back into the queue, and is held", False),
    ("job requeued in special exit state", "special state, and is held", False),  # not seen
    ("Reservation later was deleted", "reservation was removed", True),  # not seen
    ("RESERVATION DELETED", "reservation was removed", True),  # not seen
    ("Reservation later is invalid", "not valid any more", True),  # not seen
    ("Reservation later, which this job was running under, has ended", "reservation that has ended", False),  # not seen
    ("RaisedSignal:53(Real-time signal 19)", "ended by a signal", False),
    ("burst_buffer/lua: stage_in: no such pool", "“stage_in: no such pool”", False),  # not seen
    ("burst buffer/lua: no such pool", "“no such pool”", False),  # as scontrol has it, without underscores
    ("Burst buffer pre_run error", "“pre_run error”", False),  # not seen
    ("Job is at or exceeds QOS short's group wall limit of 5 with 7", "used up", False),  # not seen
    ("Priority,JobArrayTaskLimit", "other jobs are ahead", False),  # of a job array
    ("Dependency:afterok", "waits for another job", False),
    (" Resources ", "is free", False),
]


@pytest.mark.parametrize(("reason", "summary", "never"), SENTENCES, ids=[reason[:40] for reason, _, _ in SENTENCES])
def test_a_sentence_in_place_of_a_reason(reason: str, summary: str, never: bool) -> None:
    meaning = pending_reasons.parse_reason(reason)
    assert meaning is not None
    assert re.search(summary, meaning.summary)
    assert meaning.never is never


@pytest.mark.parametrize(
    "reason", ["NewIn3105", "AssocMaxFunPerJob", "QOS", "Grp", "", "()", "Assoc Grp GRES", "QOSMaxPerJob"]
)
def test_what_is_not_known_is_not_guessed(reason: str) -> None:
    assert pending_reasons.parse_reason(reason) is None


@given(
    st.one_of(
        st.text(max_size=80), st.sampled_from(WORDS).flatmap(lambda word: st.integers(0, 9).map(lambda n: word[n:]))
    )
)
def test_no_reason_makes_the_reading_stumble(reason: str) -> None:
    meaning = pending_reasons.parse_reason(reason)
    assert meaning is None or meaning.summary
