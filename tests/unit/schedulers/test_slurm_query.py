"""Slurm: the states of jobs by squeue, scontrol and sacct, and damaged text."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import LauncherError
from notebook_launcher.core.request import Request
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.schedulers.base import JobRef, JobStatus, State
from notebook_launcher.schedulers.slurm.commands import Slurm
from tests.unit.schedulers.slurm_doubles import bare

SLURM = Slurm()


ID = "20261121-014455-k3f9"


DIRECTORY = f"/home/alice/.notebook-launcher/sessions/{ID}"


FIELDS = "--format=%i|%T|%P|%N|%S|%e|%a|%q|%l|%r"


def test_query_asks_once_for_all() -> None:
    assert bare(SLURM.query([JobRef("7"), JobRef("8")])) == [
        "squeue",
        "--noheader",
        "--states=all",
        "--jobs=7,8",
        FIELDS,
    ]
    assert "--clusters=snowy" in SLURM.query([JobRef("7", "snowy")])


def test_all_of_ones_own_jobs_are_asked_for_without_a_look_at_the_federation() -> None:
    """Where ``--clusters`` names one, squeue looks only there by itself."""
    assert bare(SLURM.query_own(None)) == ["squeue", "--local", "--noheader", "--states=all", "--me", FIELDS]
    assert bare(SLURM.query_own("snowy"))[1] == "--clusters=snowy"


def test_one_job_alone_is_asked_for_by_scontrol() -> None:
    assert bare(SLURM.query_alone(JobRef("7"))) == ["scontrol", "--local", "--oneliner", "show", "job", "7"]
    assert bare(SLURM.query_alone(JobRef("7", "snowy")))[1] == "--clusters=snowy"


COMMANDS = {
    "squeue": SLURM.query([JobRef("7")]),
    "squeue --me": SLURM.query_own(None),
    "find": SLURM.find(ID, Request()),
    "ahead": SLURM.cluster_info.ahead("core", None),
    "waiting": SLURM.cluster_info.pending_jobs(None),
    "scontrol": SLURM.query_alone(JobRef("7")),
    "sacct": SLURM.history(JobRef("7")),
    "sacct --duplicates": SLURM.runs(JobRef("7")),
    "sacct of what was used": SLURM.accounting(JobRef("7")),
    "scancel": SLURM.cancel(JobRef("7")),
}


# what a user's start-up files may hold, by the manuals of squeue, sacct, scontrol and scancel
HARMFUL = [
    *(f"SQUEUE_{what}" for what in ("PARTITION", "ACCOUNT", "QOS", "NAMES", "USERS", "STATES", "LICENSES")),
    *(f"SQUEUE_{how}" for how in ("FORMAT", "FORMAT2", "SORT", "ARRAY", "PRIORITY", "FEDERATION", "LOCAL", "SIBLING")),
    *("SACCT_FORMAT", "SACCT_LOCAL", "SACCT_FEDERATION"),
    *("SCONTROL_LOCAL", "SCONTROL_FEDERATION", "SCONTROL_FUTURE", "SCONTROL_SIBLING"),
    *(f"SCANCEL_{what}" for what in ("ACCOUNT", "NAME", "PARTITION", "QOS", "STATE", "USER", "WCKEY", "INTERACTIVE")),
]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_users_own_variables_take_no_rows_away(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands are run, in place of Slurm's with some that print what they were given."""
    for word in ("squeue", "scontrol", "sacct", "scancel"):
        (tmp_path / word).write_text("#!/bin/sh\necho of ${0##*/}\nenv\n")
        (tmp_path / word).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for variable in [*HARMFUL, "SLURM_TIME_FORMAT", "SLURM_CONF"]:
        monkeypatch.setenv(variable, "x")
    told = LocalHost().run(COMMANDS[name]).stdout.splitlines()
    asked = next(line.removeprefix("of ").upper() for line in told if line.startswith("of "))
    assert [line for line in told if line.startswith(f"{asked}_")] == []
    assert {"SLURM_TIME_FORMAT=%Y-%m-%dT%H:%M:%S%z", "SLURM_CONF=x"} <= set(told)


OWN = {"account": "proj1", "qos": "short", "walltime": "2:00:00"}


ROWS = [
    (
        "7|PENDING|core||N/A|N/A|proj1|short|2:00:00|Priority",
        JobStatus(JobRef("7"), State.PENDING, reason="Priority", partition="core", **OWN),
    ),
    (
        "7|PENDING|core||2026-11-21T15:00:00|2026-11-21T17:00:00|proj1|short|2:00:00|BeginTime",
        JobStatus(JobRef("7"), State.PENDING, reason="BeginTime", start="2026-11-21T15:00:00", partition="core", **OWN),
    ),
    (
        "7|PENDING|core||N/A|N/A|proj1|short|2:00:00|ReqNodeNotAvail, UnavailableNodes:node[1-2]",
        JobStatus(
            JobRef("7"), State.PENDING, reason="ReqNodeNotAvail, UnavailableNodes:node[1-2]", partition="core", **OWN
        ),
    ),
    (
        "7|PENDING|core||N/A|N/A|proj1|short|2:00:00|a reason | with pipes | and ünïcode",
        JobStatus(JobRef("7"), State.PENDING, reason="a reason | with pipes | and ünïcode", partition="core", **OWN),
    ),
    (
        "7|RUNNING|core|node1|2026-11-21T01:44:55+0100|2026-11-21T03:44:55+0100|proj1|short|2:00:00|None",
        JobStatus(
            JobRef("7"),
            State.RUNNING,
            node="node1",
            start="2026-11-21T01:44:55+0100",
            partition="core",
            ends="2026-11-21T03:44:55+0100",
            **OWN,
        ),
    ),
    (
        "7|RUNNING|core|node1|2026-11-21T01:44:55|NONE|proj1|short|UNLIMITED|None",
        JobStatus(
            JobRef("7"),
            State.RUNNING,
            node="node1",
            start="2026-11-21T01:44:55",
            partition="core",
            **{**OWN, "walltime": "UNLIMITED"},
        ),
    ),
    *(
        (
            f"7|{state}|core|node1|N/A|N/A|proj1|short|2:00:00|None",
            JobStatus(JobRef("7"), State.PENDING, reason="Configuring", node="node1", partition="core", **OWN),
        )
        for state in ("CONFIGURING", "POWER_UP_NODE")
    ),
    (
        "7|COMPLETING|core|node1|N/A|N/A|proj1|short|2:00:00|TimeLimit",
        JobStatus(JobRef("7"), State.COMPLETING, node="node1", reason="TimeLimit", partition="core", **OWN),
    ),
    (
        "7|REQUEUE_HOLD|core||N/A|N/A|proj1|short|2:00:00|(null)",
        JobStatus(JobRef("7"), State.PENDING, partition="core", **OWN),
    ),
    (
        "7|TIMEOUT|core|node1|N/A|N/A|proj1|short|2:00:00|TimeLimit",
        JobStatus(JobRef("7"), State.TIMEOUT, node="node1", reason="TimeLimit", partition="core", **OWN),
    ),
    (
        "7|SHRUGGING|core|node1|N/A|N/A|proj1|short|2:00:00|None",
        JobStatus(JobRef("7"), State.UNKNOWN, node="node1", partition="core", **OWN),
    ),
    (
        "7|PENDING|core||N/A|N/A|(null)||NOT_SET|Priority",
        JobStatus(JobRef("7"), State.PENDING, reason="Priority", partition="core"),
    ),
]


@pytest.mark.parametrize(("row", "status"), ROWS, ids=[row[:30] for row, _ in ROWS])
def test_a_row_of_squeue(row: str, status: JobStatus) -> None:
    assert SLURM.read_query([JobRef("7")], CommandResult(0, f"{row}\n")) == {"7": status}


# what scontrol of 24.11 and of 22.05 prints, without most of what does not matter here
RECORDS = [
    (
        "JobId=7 JobName=a Account=x QOS=y JobState=RUNNING b UserId=alice(2001) Account=proj1 QOS=short "
        "JobState=PENDING Reason=Nodes_required_for_job_are_DOWN,_DRAINED Dependency=(null) ExitCode=0:0 "
        "RunTime=00:00:00 TimeLimit=1-02:00:00 TimeMin=N/A "
        "SubmitTime=2026-11-21T18:39:03 StartTime=Unknown EndTime=Unknown Scheduler=Main Partition=core,devcore "
        "AllocNode:Sid=login:0 ReqNodeList=gpu1,node[1-2] ExcNodeList=(null) NodeList= "
        "NumNodes=3 ReqTRES=cpu=3 StdErr=/home/alice/my JobId=8 log \n",
        JobStatus(
            JobRef("7"),
            State.PENDING,
            reason="Nodes required for job are DOWN, DRAINED",
            partition="core,devcore",
            account="proj1",
            qos="short",
            walltime="1-02:00:00",
        ),
    ),
    (
        "JobId=7 JobName=wrap UserId=alice(2001) GroupId=alice(2001) MCS_label=N/A Priority=1 Nice=0 Account=proj2 "
        "QOS=short JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 "
        "ExitCode=0:0 RunTime=00:00:02 TimeLimit=00:30:00 TimeMin=N/A SubmitTime=2026-11-21T19:51:31 "
        "EligibleTime=2026-11-21T19:51:31 AccrueTime=2026-11-21T19:51:31 StartTime=2026-11-21T19:51:32 "
        "EndTime=2026-11-21T20:21:32 Deadline=N/A Scheduler=Main Partition=core AllocNode:Sid=login:0 "
        "ReqNodeList=(null) ExcNodeList=(null) NodeList=node1 BatchHost=node1 NumNodes=1 NumCPUs=1 \n",
        JobStatus(
            JobRef("7"),
            State.RUNNING,
            node="node1",
            start="2026-11-21T19:51:32",
            partition="core",
            account="proj2",
            qos="short",
            walltime="30:00",
            ends="2026-11-21T20:21:32",
        ),
    ),
    (
        "JobId=7 JobName=wrap UserId=alice(2001) GroupId=alice(2001) MCS_label=N/A Priority=0 Nice=0 Account=proj1 "
        "QOS=normal WCKey=* JobState=CONFIGURING Reason=None Dependency=(null) Requeue=1 Restarts=0 "
        "RunTime=00:00:00 TimeLimit=Partition_Limit TimeMin=N/A SubmitTime=2026-11-21T19:52:22 "
        "StartTime=2026-11-21T19:52:24 EndTime=Unknown Partition=core AllocNode:Sid=login:0 ReqNodeList=(null) "
        "ExcNodeList=(null) NodeList=node1 NumNodes=1 NumCPUs=1 TRES=cpu=1 Power= \n",
        JobStatus(
            JobRef("7"),
            State.PENDING,
            reason="Configuring",
            node="node1",
            start="2026-11-21T19:52:24",
            partition="core",
            account="proj1",
            qos="normal",
        ),
    ),
    (  # a site without accounting
        "JobId=7 JobName=wrap Account=(null) QOS=(null) JobState=RUNNING Reason=None Dependency=(null) "
        "RunTime=00:00:01 TimeLimit=UNLIMITED TimeMin=N/A "
        "StartTime=2026-11-21T18:22:30-0500 EndTime=Unknown Partition=node AllocNode:Sid=login:0 "
        "ReqNodeList=(null) ExcNodeList=(null) NodeList=node[1-2] BatchHost=node1 NumNodes=2 TRES=cpu=2 Power= \n",
        JobStatus(
            JobRef("7"),
            State.RUNNING,
            node="node[1-2]",
            start="2026-11-21T18:22:30-0500",
            partition="node",
            walltime="UNLIMITED",
        ),
    ),
]


@pytest.mark.parametrize(("line", "status"), RECORDS, ids=["pending", "running", "configuring", "no accounting"])
def test_a_line_of_scontrol(line: str, status: JobStatus) -> None:
    assert SLURM.read_query([JobRef("7"), JobRef("8")], CommandResult(0, f"a note\n{line}")) == {"7": status}


def test_rows_of_another_cluster_and_noise() -> None:
    waiting = "".join(f"{job}|PENDING|core||N/A|N/A|proj1|short|2:00:00|Priority\n" for job in (7, 9))
    text = f"squeue: note\nCLUSTER: snowy\n8|RUNNING|core|s1|N/A|N/A|proj1|short|2:00:00|None\n\n{waiting}"
    jobs = [JobRef("7", "snowy"), JobRef("8", "snowy")]
    found = SLURM.read_query(jobs, CommandResult(0, text))
    assert found is not None
    assert found.keys() == {"7", "8"}
    assert found["8"] == JobStatus(JobRef("8", "snowy"), State.RUNNING, node="s1", partition="core", **OWN)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (CommandResult(0, ""), {}),
        (CommandResult(0, "CLUSTER: snowy\n"), {}),
        (CommandResult(1, "", "slurm_load_jobs error: Invalid job id specified\n"), {}),
        (CommandResult(1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"), None),
        (CommandResult(1, "", "slurm_load_jobs error: Socket timed out on send/recv operation\n"), None),
        (CommandResult(127, "", "squeue: command not found\n"), None),
    ],
)
def test_forgotten_is_not_the_same_as_no_answer(answer: CommandResult, found: dict[str, JobStatus] | None) -> None:
    assert SLURM.read_query([JobRef("7")], answer) == found


@pytest.mark.parametrize(
    ("answer", "forgotten"),
    [
        (CommandResult(1, "", "slurm_load_jobs error: Invalid job id specified\n"), True),
        (CommandResult(0, ""), False),
        (CommandResult(0, "JOBID               \n"), False),
        (CommandResult(1, "", "slurm_load_jobs error: Socket timed out on send/recv operation\n"), False),
    ],
)
def test_only_slurms_word_makes_a_job_forgotten(answer: CommandResult, forgotten: bool) -> None:
    assert SLURM.has_forgotten(JobRef("7"), answer) is forgotten


# --- the history ---------------------------------------------------------------------------------------------


def test_history_asks_for_one_job() -> None:
    assert bare(SLURM.history(JobRef("7", "snowy"))) == [
        "sacct",
        "--clusters=snowy",
        "--noheader",
        "--parsable2",
        "--allocations",
        "--jobs=7",
        "--format=JobIDRaw,State,ExitCode,NodeList,Start,End",
    ]


HISTORY = [
    (
        "7|COMPLETED|0:0|node1|2026-11-21T01:44:55|Unknown",
        JobStatus(JobRef("7"), State.COMPLETED, node="node1", start="2026-11-21T01:44:55+0000", exit_code=0),
    ),
    (
        "7|CANCELLED by 2001|0:15|node1|2026-11-21T01:44:55|Unknown",
        JobStatus(
            JobRef("7"),
            State.CANCELLED,
            node="node1",
            start="2026-11-21T01:44:55+0000",
            exit_code=0,
            signal=15,
            by="2001",
        ),
    ),
    (
        "7|CANCELLED by 2001|0:0|None assigned|Unknown|Unknown",
        JobStatus(JobRef("7"), State.CANCELLED, exit_code=0, by="2001"),
    ),
    ("7|CANCELLED+|0:0|None assigned|None|Unknown", JobStatus(JobRef("7"), State.CANCELLED, exit_code=0)),
    ("7|FAILED|127:0|node1|Unknown|Unknown", JobStatus(JobRef("7"), State.FAILED, node="node1", exit_code=127)),
    ("7|TIMEOUT|0:0|node1|Unknown|Unknown", JobStatus(JobRef("7"), State.TIMEOUT, node="node1", exit_code=0)),
    (
        "7|OUT_OF_MEMORY|0:125|node1|Unknown|Unknown",
        JobStatus(JobRef("7"), State.OUT_OF_MEMORY, node="node1", exit_code=0, signal=125),
    ),
    # requeued: the last run counts
    (
        "7|NODE_FAIL|1:0|node1|Unknown|Unknown\n7|COMPLETED|0:0|node2|Unknown|Unknown",
        JobStatus(JobRef("7"), State.COMPLETED, node="node2", exit_code=0),
    ),
    # other jobs, steps and notes are passed over
    (
        "sacct: note\n70|FAILED|1:0|x|Unknown|Unknown\n7.batch|FAILED|1:0|x|Unknown|Unknown\n"
        "7|RUNNING|0:0|node1|Unknown|Unknown",
        JobStatus(JobRef("7"), State.RUNNING, node="node1", exit_code=0),
    ),
    ("7|FAILED||node1|Unknown|Unknown", JobStatus(JobRef("7"), State.FAILED, node="node1")),
    (
        "7|CANCELLED by 2001|0:0|None assigned|None|2026-11-21T01:44:55",
        JobStatus(JobRef("7"), State.CANCELLED, exit_code=0, by="2001", ends="2026-11-21T01:44:55+0000"),
    ),
]


@pytest.mark.parametrize(("text", "status"), HISTORY, ids=[text[:30] for text, _ in HISTORY])
def test_rows_of_sacct(text: str, status: JobStatus) -> None:
    assert SLURM.read_history(JobRef("7"), CommandResult(0, f"{text}\n")) == status


@pytest.mark.parametrize(
    "answer",
    [
        CommandResult(0, ""),
        CommandResult(1, "", "Slurm accounting storage is disabled\n"),
        CommandResult(
            1, "7|COMPLETED|0:0|node1|Unknown|Unknown\n", "sacct: error: Sending PersistInit msg: Connection refused\n"
        ),
    ],
)
def test_no_history(answer: CommandResult) -> None:
    assert SLURM.read_history(JobRef("7"), answer) is None


# --- damage --------------------------------------------------------------------------------------------------

GOOD = "\n".join(
    [row for row, _ in ROWS]
    + [line for line, _ in RECORDS]
    + [text for text, _ in HISTORY]
    + ["7;snowy", f"7|{ID}|{DIRECTORY}/x"]
)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """Real output, cut, shuffled, with characters changed or foreign text in between."""
    start, end = sorted((draw(st.integers(0, len(GOOD))), draw(st.integers(0, len(GOOD)))))
    text = GOOD[start:end]
    pieces = [text[i : i + 40] for i in range(0, len(text), 40)]
    random.Random(draw(st.integers(0, 9))).shuffle(pieces)
    return draw(st.text(max_size=10)).join(pieces)


@given(st.one_of(damaged(), st.text()), st.text(max_size=60), st.sampled_from([0, 1, 127, 255, -1]))
def test_no_text_makes_the_readers_stumble(stdout: str, stderr: str, exit_code: int) -> None:
    answer = CommandResult(exit_code, stdout, stderr)
    jobs = [JobRef("7"), JobRef("8")]
    queue = SLURM.read_query(jobs, answer)
    assert queue is None or queue.keys() <= {"7", "8"}
    history = SLURM.read_history(jobs[0], answer)
    assert history is None or history.job == jobs[0]
    found = SLURM.read_find(ID, answer)
    assert found is None or all(job.id.isdecimal() for job in found)
    try:
        assert SLURM.read_submit(answer).id.isdecimal()
        assert exit_code == 0
    except LauncherError as error:
        assert error.what
