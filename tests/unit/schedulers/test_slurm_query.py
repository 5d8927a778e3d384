"""Slurm's commands and answers: golden command lines, recorded texts, and damaged ones."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.core.command_result import Answer
from notebook_launcher.core.errors import LauncherError
from notebook_launcher.core.request import Request, merge_flags
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.schedulers.base import JobRef, JobStatus, State, Submission
from notebook_launcher.schedulers.slurm.commands import Slurm

SLURM = Slurm()
ID = "20261121-014455-k3f9"
DIRECTORY = f"/home/alice/.notebook-launcher/sessions/{ID}"
SUBMISSION = Submission(ID, DIRECTORY, f"{DIRECTORY}/jupyterlab.sh", f"{DIRECTORY}/job.log")
OURS = [f"--job-name={ID}", "--open-mode=append", f"--output={DIRECTORY}/job.log"]
TAIL = [SUBMISSION.script, DIRECTORY]

Flags = dict[str, str | None]


def submit(flags: Flags, defaults: Flags | None = None) -> list[str]:
    return SLURM.submit(Request(merge_flags(defaults or {}, flags)), SUBMISSION)


# --- the submit command --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        pytest.param({}, [*OURS, "--time=0:59:00"], id="no flags"),
        pytest.param(
            {"ntasks": "4", "partition": "devcore", "gres": "gpu:t4:0"},
            [f"--job-name={ID}", "--ntasks=4", "--open-mode=append", f"--output={DIRECTORY}/job.log",
             "--partition=devcore", "--time=0:59:00"],
            id="-n 4 -p devcore --gres=gpu:t4:0",
        ),
        pytest.param(
            {"time": "3:00:00", "begin": "15:00"}, ["--begin=15:00", *OURS, "--time=3:00:00"], id="-t 3:00:00 -b 15:00"
        ),
        pytest.param(
            {"clusters": "snowy", "account": "proj1", "reservation": "lab1", "qos": "short", "exclusive": None,
             "constraint": "skylake", "mem": "55G"},
            ["--account=proj1", "--clusters=snowy", "--constraint=skylake", "--exclusive", f"--job-name={ID}",
             "--mem=55G", "--open-mode=append", f"--output={DIRECTORY}/job.log", "--qos=short", "--reservation=lab1",
             "--time=0:59:00"],
            id="-M snowy -A proj1 and the rest",
        ),
        pytest.param({"gpus": "1"}, ["--gpus=1", *OURS, "--time=0:59:00"], id="--gpus 1"),
        pytest.param(
            {"job-name": "mine"}, ["--job-name=mine", *OURS[1:], "--time=0:59:00"], id="a name of the user's own"
        ),
        pytest.param(
            {"output": "lab-%j.log"}, [OURS[0], "--output=lab-%j.log", "--time=0:59:00"], id="a log of the user's own"
        ),
        pytest.param(
            {"open-mode": "truncate"}, [OURS[0], "--open-mode=truncate", OURS[2], "--time=0:59:00"], id="open mode"
        ),
        pytest.param(
            {"parsable": None, "wait": None, "quiet": None, "ignore-pbs": None, "hold": None},
            ["--hold", *OURS, "--time=0:59:00"],
            id="what the launcher fulfils by itself",
        ),
        pytest.param(
            {"comment": "$(date) `id`; 'x' \"y\" *"},
            ["--comment=$(date) `id`; 'x' \"y\" *", *OURS, "--time=0:59:00"],
            id="a value is one word, as it is",
        ),
    ],
)  # fmt: skip
def test_submit(flags: Flags, words: list[str]) -> None:
    assert submit(flags) == ["sbatch", "--parsable", *words, *TAIL]


def test_submit_with_a_courses_defaults() -> None:
    course: Flags = {"account": "g2021027", "clusters": "snowy", "gres": "gpu:t4:1", "partition": "core", "ntasks": "4"}
    assert submit({"ntasks": "16", "partition": "devcore", "gres": "gpu:t4:0"}, course) == [
        "sbatch", "--parsable", "--account=g2021027", "--clusters=snowy", f"--job-name={ID}", "--ntasks=16",
        "--open-mode=append", f"--output={DIRECTORY}/job.log", "--partition=devcore", "--time=0:59:00", *TAIL,
    ]  # fmt: skip


# --- its answer ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stdout", "job"),
    [
        ("7\n", JobRef("7")),
        ("7;snowy\n", JobRef("7", "snowy")),
        ("Welcome!\n*** maintenance on Friday ***\n\n1234567\n", JobRef("1234567")),
        ("42 jobs in the queue\n7;snowy\n\n", JobRef("7", "snowy")),
        ("7\r\n", JobRef("7")),
        ("7\nlua: your job was charged to proj1\n", JobRef("7")),
        ("Submitted batch job 7\n", JobRef("7")),
        ("Submitted batch job 7 on cluster snowy\n", JobRef("7", "snowy")),
    ],
)
def test_the_jobs_number_is_read(stdout: str, job: JobRef) -> None:
    assert SLURM.read_submit(Answer(0, stdout, "sbatch: lua: a note\n")) == job


# --- the queue -----------------------------------------------------------------------------------------------


def bare(command: Sequence[str], job: bool = True) -> list[str]:
    """Return a command without what keeps a user's own variables from it, after a look at that."""
    assert command[0] == "env"
    assert "SLURM_TIME_FORMAT=%Y-%m-%dT%H:%M:%S%z" in command
    own = next(n for n, word in enumerate(command) if word in ("squeue", "sacct", "scontrol", "scancel"))
    assert ("SLURM_CLUSTERS" in command[:own]) is job
    return list(command[own:])


FIELDS = "--format=%i|%T|%P|%N|%S|%e|%a|%q|%l|%r"


def test_query_asks_once_for_all() -> None:
    assert bare(SLURM.query([JobRef("7"), JobRef("8")])) == [
        "squeue", "--noheader", "--states=all", "--jobs=7,8", FIELDS,
    ]  # fmt: skip
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
    "ahead": SLURM.outlook.ahead("core", None),
    "waiting": SLURM.outlook.waiting(None),
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
            JobRef("7"), State.RUNNING, node="node1", start="2026-11-21T01:44:55+0100", partition="core",
            ends="2026-11-21T03:44:55+0100", **OWN,
        ),
    ),
    (
        "7|RUNNING|core|node1|2026-11-21T01:44:55|NONE|proj1|short|UNLIMITED|None",
        JobStatus(
            JobRef("7"), State.RUNNING, node="node1", start="2026-11-21T01:44:55", partition="core",
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
]  # fmt: skip


@pytest.mark.parametrize(("row", "status"), ROWS, ids=[row[:30] for row, _ in ROWS])
def test_a_row_of_squeue(row: str, status: JobStatus) -> None:
    assert SLURM.read_query([JobRef("7")], Answer(0, f"{row}\n")) == {"7": status}


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
            JobRef("7"), State.PENDING, reason="Nodes required for job are DOWN, DRAINED", partition="core,devcore",
            account="proj1", qos="short", walltime="1-02:00:00",
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
            JobRef("7"), State.RUNNING, node="node1", start="2026-11-21T19:51:32", partition="core",
            account="proj2", qos="short", walltime="30:00", ends="2026-11-21T20:21:32",
        ),
    ),
    (
        "JobId=7 JobName=wrap UserId=alice(2001) GroupId=alice(2001) MCS_label=N/A Priority=0 Nice=0 Account=proj1 "
        "QOS=normal WCKey=* JobState=CONFIGURING Reason=None Dependency=(null) Requeue=1 Restarts=0 "
        "RunTime=00:00:00 TimeLimit=Partition_Limit TimeMin=N/A SubmitTime=2026-11-21T19:52:22 "
        "StartTime=2026-11-21T19:52:24 EndTime=Unknown Partition=core AllocNode:Sid=login:0 ReqNodeList=(null) "
        "ExcNodeList=(null) NodeList=node1 NumNodes=1 NumCPUs=1 TRES=cpu=1 Power= \n",
        JobStatus(
            JobRef("7"), State.PENDING, reason="Configuring", node="node1", start="2026-11-21T19:52:24",
            partition="core", account="proj1", qos="normal",
        ),
    ),
    (  # a site without accounting
        "JobId=7 JobName=wrap Account=(null) QOS=(null) JobState=RUNNING Reason=None Dependency=(null) "
        "RunTime=00:00:01 TimeLimit=UNLIMITED TimeMin=N/A "
        "StartTime=2026-11-21T18:22:30-0500 EndTime=Unknown Partition=node AllocNode:Sid=login:0 "
        "ReqNodeList=(null) ExcNodeList=(null) NodeList=node[1-2] BatchHost=node1 NumNodes=2 TRES=cpu=2 Power= \n",
        JobStatus(
            JobRef("7"), State.RUNNING, node="node[1-2]", start="2026-11-21T18:22:30-0500", partition="node",
            walltime="UNLIMITED",
        ),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("line", "status"), RECORDS, ids=["pending", "running", "configuring", "no accounting"])
def test_a_line_of_scontrol(line: str, status: JobStatus) -> None:
    assert SLURM.read_query([JobRef("7"), JobRef("8")], Answer(0, f"a note\n{line}")) == {"7": status}


def test_rows_of_another_cluster_and_noise() -> None:
    waiting = "".join(f"{job}|PENDING|core||N/A|N/A|proj1|short|2:00:00|Priority\n" for job in (7, 9))
    text = f"squeue: note\nCLUSTER: snowy\n8|RUNNING|core|s1|N/A|N/A|proj1|short|2:00:00|None\n\n{waiting}"
    jobs = [JobRef("7", "snowy"), JobRef("8", "snowy")]
    found = SLURM.read_query(jobs, Answer(0, text))
    assert found is not None
    assert found.keys() == {"7", "8"}
    assert found["8"] == JobStatus(JobRef("8", "snowy"), State.RUNNING, node="s1", partition="core", **OWN)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (Answer(0, ""), {}),
        (Answer(0, "CLUSTER: snowy\n"), {}),
        (Answer(1, "", "slurm_load_jobs error: Invalid job id specified\n"), {}),
        (Answer(1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"), None),
        (Answer(1, "", "slurm_load_jobs error: Socket timed out on send/recv operation\n"), None),
        (Answer(127, "", "squeue: command not found\n"), None),
    ],
)
def test_forgotten_is_not_the_same_as_no_answer(answer: Answer, found: dict[str, JobStatus] | None) -> None:
    assert SLURM.read_query([JobRef("7")], answer) == found


@pytest.mark.parametrize(
    ("answer", "forgotten"),
    [
        (Answer(1, "", "slurm_load_jobs error: Invalid job id specified\n"), True),
        (Answer(0, ""), False),
        (Answer(0, "JOBID               \n"), False),
        (Answer(1, "", "slurm_load_jobs error: Socket timed out on send/recv operation\n"), False),
    ],
)
def test_only_slurms_word_makes_a_job_forgotten(answer: Answer, forgotten: bool) -> None:
    assert SLURM.has_forgotten(JobRef("7"), answer) is forgotten


# --- the history ---------------------------------------------------------------------------------------------


def test_history_asks_for_one_job() -> None:
    assert bare(SLURM.history(JobRef("7", "snowy"))) == [
        "sacct", "--clusters=snowy", "--noheader", "--parsable2", "--allocations", "--jobs=7",
        "--format=JobIDRaw,State,ExitCode,NodeList,Start",
    ]  # fmt: skip


HISTORY = [
    (
        "7|COMPLETED|0:0|node1|2026-11-21T01:44:55",
        JobStatus(JobRef("7"), State.COMPLETED, node="node1", start="2026-11-21T01:44:55+0000", exit_code=0),
    ),
    (
        "7|CANCELLED by 2001|0:15|node1|2026-11-21T01:44:55",
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
        "7|CANCELLED by 2001|0:0|None assigned|Unknown",
        JobStatus(JobRef("7"), State.CANCELLED, exit_code=0, by="2001"),
    ),
    ("7|CANCELLED+|0:0|None assigned|None", JobStatus(JobRef("7"), State.CANCELLED, exit_code=0)),
    ("7|FAILED|127:0|node1|Unknown", JobStatus(JobRef("7"), State.FAILED, node="node1", exit_code=127)),
    ("7|TIMEOUT|0:0|node1|Unknown", JobStatus(JobRef("7"), State.TIMEOUT, node="node1", exit_code=0)),
    (
        "7|OUT_OF_MEMORY|0:125|node1|Unknown",
        JobStatus(JobRef("7"), State.OUT_OF_MEMORY, node="node1", exit_code=0, signal=125),
    ),
    # requeued: the last run counts
    (
        "7|NODE_FAIL|1:0|node1|Unknown\n7|COMPLETED|0:0|node2|Unknown",
        JobStatus(JobRef("7"), State.COMPLETED, node="node2", exit_code=0),
    ),
    # other jobs, steps and notes are passed over
    (
        "sacct: note\n70|FAILED|1:0|x|Unknown\n7.batch|FAILED|1:0|x|Unknown\n7|RUNNING|0:0|node1|Unknown",
        JobStatus(JobRef("7"), State.RUNNING, node="node1", exit_code=0),
    ),
    ("7|FAILED||node1|Unknown", JobStatus(JobRef("7"), State.FAILED, node="node1")),
]


@pytest.mark.parametrize(("text", "status"), HISTORY, ids=[text[:30] for text, _ in HISTORY])
def test_rows_of_sacct(text: str, status: JobStatus) -> None:
    assert SLURM.read_history(JobRef("7"), Answer(0, f"{text}\n")) == status


@pytest.mark.parametrize(
    "answer",
    [
        Answer(0, ""),
        Answer(1, "", "Slurm accounting storage is disabled\n"),
        Answer(1, "7|COMPLETED|0:0|node1|Unknown\n", "sacct: error: Sending PersistInit msg: Connection refused\n"),
    ],
)  # fmt: skip
def test_no_history(answer: Answer) -> None:
    assert SLURM.read_history(JobRef("7"), answer) is None


# --- cancel, find --------------------------------------------------------------------------------------------


def test_cancel() -> None:
    assert bare(SLURM.cancel(JobRef("7"))) == ["scancel", "7"]
    assert bare(SLURM.cancel(JobRef("7", "snowy"))) == ["scancel", "--clusters=snowy", "7"]


def test_a_cancel_that_a_user_is_to_type_is_short() -> None:
    assert SLURM.cancel_typed(JobRef("7", "snowy")) == ["scancel", "--clusters=snowy", "7"]


def test_find_asks_for_ones_own_jobs_where_they_went() -> None:
    words = ["squeue", "--noheader", "--me", "--format=%i|%j|%o"]
    assert bare(SLURM.find(ID, Request()), job=False) == words  # without -M, where SLURM_CLUSTERS sends submissions
    assert "--clusters=snowy" in SLURM.find(ID, Request({"clusters": "snowy"}))


@pytest.mark.parametrize(
    ("text", "jobs"),
    [
        ("", []),
        (f"7|{ID}|{DIRECTORY}/jupyterlab.sh\n", [JobRef("7")]),
        (f"7|mine|{DIRECTORY}/jupyterlab.sh\n", [JobRef("7")]),
        (f"CLUSTER: snowy\n7|{ID}|x\n", [JobRef("7", "snowy")]),
        (f"7|other|/x.sh\n8|{ID}x|/home/alice/{ID}-copy/x\n", []),
        (f"note\n7|a name | with pipes|{DIRECTORY}/jupyterlab.sh\n", [JobRef("7")]),
        (f"7_[1-3]|{ID}|x\n", []),
    ],
)
def test_find_reads_the_sessions_jobs(text: str, jobs: list[JobRef]) -> None:
    assert SLURM.read_find(ID, Answer(0, text)) == jobs


def test_find_without_an_answer() -> None:
    assert SLURM.read_find(ID, Answer(1, "", "slurm_load_jobs error: Unable to contact slurm controller\n")) is None


# --- states --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", list(State), ids=lambda state: state.name)
def test_every_spelling_of_a_state_is_read_and_belongs_to_one(state: State) -> None:
    for word in state.value:
        assert State.read(word) is state
        assert State.read(word.lower()) is state
        assert [other for other in State if word in other.value] == [state]


@pytest.mark.parametrize(
    ("word", "state"),
    [("CANCELLED by 0", State.CANCELLED), ("COMPLETED+", State.COMPLETED), ("", State.UNKNOWN), (" ", State.UNKNOWN)],
)
def test_odd_words_for_states(word: str, state: State) -> None:
    assert State.read(word) is state


def test_waiting_running_and_ended_do_not_overlap() -> None:
    assert not any(state.waits and state.ended for state in State)
    assert not State.UNKNOWN.ended
    assert not State.COMPLETING.ended
    assert {state for state in State if state.waits} == {State.PENDING}


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
    answer = Answer(exit_code, stdout, stderr)
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
