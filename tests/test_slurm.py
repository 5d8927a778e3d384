"""Slurm's commands and answers: golden command lines, recorded texts, and damaged ones."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.answer import Answer
from notebook_launcher.errors import LauncherError, SchedulerMissing, SubmitRefused, SubmitUncertain
from notebook_launcher.request import Request, merge_flags
from notebook_launcher.schedulers.base import JobRef, JobStatus, State, Submission
from notebook_launcher.schedulers.slurm import Slurm

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


# what sbatch says (24.11 and 22.05), a word of our explanation, a word of what to do
REFUSALS = [
    ("Batch job submission failed: Invalid account or account/partition combination specified", "account", "-A"),
    ("invalid partition specified: cor\nsbatch: error: Batch job submission failed: Invalid partition name specified",
     "partition", "sinfo"),
    ("Batch job submission failed: User's group not permitted to use this partition", "may not use", "-p"),
    ("Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)", "walltime", "-t"),
    ("Invalid --time specification", "walltime", "-t"),
    ("Batch job submission failed: Invalid qos specification", "QOS", "sacctmgr"),
    ("Batch job submission failed: Access denied to requested reservation", "not for you", "teacher"),
    ("Batch job submission failed: Requested reservation is invalid", "no reservation of that name", "scontrol"),
    ("Batch job submission failed: Invalid generic resource (gres) specification", "no such GPU", "sinfo"),
    ("Batch job submission failed: Invalid Trackable RESource (TRES) specification", "no such resource", "sinfo"),
    ("Batch job submission failed: Invalid feature specification", "--constraint", "sinfo"),
    ("Batch job submission failed: Requested node configuration is not available", "No node can ever", "ask for less"),
    ("CPU count per node can not be satisfied\nsbatch: error: Batch job submission failed: Requested node "
     "configuration is not available", "No node can ever", "ask for less"),
    ("Memory specification can not be satisfied", "No node can ever", "ask for less"),
    ("Batch job submission failed: Node count specification invalid", "No node can ever", "ask for less"),
    ("Batch job submission failed: More processors requested than permitted", "No node can ever", "ask for less"),
    ("Batch job submission failed: Invalid license specification", "licence", "scontrol"),
    ("AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job "
     "submit limit, user's size and/or time limits)", "limit of your account", "squeue --me"),
    ("'snwy' can't be reached now, or it is an invalid entry for --cluster.  Use 'sacctmgr list clusters' to see "
     "available clusters.", "no such cluster", "sacctmgr"),
    ("No cluster 'snwy' known by database.", "no such cluster", "sacctmgr"),
    ("Batch job submission failed: Unable to contact slurm controller (connect failure)", "does not answer", "again"),
    ("Batch job submission failed: Socket timed out on send/recv operation", "does not answer", "again"),
    ("Batch job submission failed: Something new in Slurm 31.05", "refused the job.", "sbatch --help"),
    ("unrecognized option '--segment=1'\nTry \"sbatch --help\" for more information", "refused the job.",
     "sbatch --help"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "meaning", "mend"), REFUSALS, ids=[said[:50] for said, _, _ in REFUSALS])
def test_a_refusal_is_told_in_its_words_and_in_ours(said: str, meaning: str, mend: str) -> None:
    with pytest.raises(SubmitRefused) as caught:
        SLURM.read_submit(Answer(1, "", f"sbatch: error: {said}\n"))
    assert meaning in caught.value.what
    assert mend in caught.value.mend
    assert said.splitlines()[0] in caught.value.why
    assert "sbatch: error:" not in caught.value.why


def test_a_number_printed_before_a_refusal_is_not_a_job() -> None:
    with pytest.raises(SubmitRefused):
        SLURM.read_submit(Answer(1, "Hours left:\n1234\n", "sbatch: error: Invalid qos specification\n"))


def test_an_answer_without_a_number_is_no_refusal() -> None:
    with pytest.raises(SubmitUncertain) as caught:
        SLURM.read_submit(Answer(0, "queued, thank you\n"))
    assert "queued, thank you" in caught.value.why
    assert "squeue --me" in caught.value.mend


@pytest.mark.parametrize("answer", [Answer(127), Answer(127, "", "bash: line 1: exec: sbatch: not found\n")])
def test_no_sbatch_there(answer: Answer) -> None:
    with pytest.raises(SchedulerMissing, match="not found"):
        SLURM.read_submit(answer)


# --- the queue -----------------------------------------------------------------------------------------------


def test_query_asks_once_for_all() -> None:
    assert SLURM.query([JobRef("7"), JobRef("8")]) == [
        "squeue", "--noheader", "--states=all", "--jobs=7,8", "--format=%i|%T|%N|%S|%r",
    ]  # fmt: skip
    assert "--clusters=snowy" in SLURM.query([JobRef("7", "snowy")])


ROWS = [
    ("7|PENDING||N/A|Priority", JobStatus(JobRef("7"), State.PENDING, reason="Priority")),
    (
        "7|PENDING||2026-11-21T15:00:00|BeginTime",
        JobStatus(JobRef("7"), State.PENDING, reason="BeginTime", start="2026-11-21T15:00:00"),
    ),
    (
        "7|PENDING||N/A|ReqNodeNotAvail, UnavailableNodes:node[1-2]",
        JobStatus(JobRef("7"), State.PENDING, reason="ReqNodeNotAvail, UnavailableNodes:node[1-2]"),
    ),
    (
        "7|PENDING||N/A|a reason | with pipes | and ünïcode",
        JobStatus(JobRef("7"), State.PENDING, reason="a reason | with pipes | and ünïcode"),
    ),
    (
        "7|RUNNING|node1|2026-11-21T01:44:55|None",
        JobStatus(JobRef("7"), State.RUNNING, node="node1", start="2026-11-21T01:44:55"),
    ),
    ("7|CONFIGURING|node1|N/A|None", JobStatus(JobRef("7"), State.PENDING, node="node1")),
    ("7|COMPLETING|node1|N/A|TimeLimit", JobStatus(JobRef("7"), State.COMPLETING, node="node1", reason="TimeLimit")),
    ("7|REQUEUE_HOLD||N/A|(null)", JobStatus(JobRef("7"), State.PENDING)),
    ("7|TIMEOUT|node1|N/A|TimeLimit", JobStatus(JobRef("7"), State.TIMEOUT, node="node1", reason="TimeLimit")),
    ("7|SHRUGGING|node1|N/A|None", JobStatus(JobRef("7"), State.UNKNOWN, node="node1")),
]


@pytest.mark.parametrize(("row", "status"), ROWS, ids=[row[:30] for row, _ in ROWS])
def test_a_row_of_squeue(row: str, status: JobStatus) -> None:
    assert SLURM.read_query([JobRef("7")], Answer(0, f"{row}\n")) == {"7": status}


def test_rows_of_another_cluster_and_noise() -> None:
    text = "squeue: note\nCLUSTER: snowy\n8|RUNNING|s1|N/A|None\n\n7|PENDING||N/A|Priority\n9|PENDING||N/A|Priority\n"
    jobs = [JobRef("7", "snowy"), JobRef("8", "snowy")]
    found = SLURM.read_query(jobs, Answer(0, text))
    assert found is not None
    assert found.keys() == {"7", "8"}
    assert found["8"] == JobStatus(JobRef("8", "snowy"), State.RUNNING, node="s1")


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


# --- the history ---------------------------------------------------------------------------------------------


def test_history_asks_for_one_job() -> None:
    assert SLURM.history(JobRef("7", "snowy")) == [
        "sacct", "--clusters=snowy", "--noheader", "--parsable2", "--allocations", "--jobs=7",
        "--format=JobIDRaw,State,ExitCode,NodeList,Start",
    ]  # fmt: skip


HISTORY = [
    (
        "7|COMPLETED|0:0|node1|2026-11-21T01:44:55",
        JobStatus(JobRef("7"), State.COMPLETED, node="node1", start="2026-11-21T01:44:55", exit_code=0),
    ),
    (
        "7|CANCELLED by 2001|0:15|node1|2026-11-21T01:44:55",
        JobStatus(
            JobRef("7"), State.CANCELLED, node="node1", start="2026-11-21T01:44:55", exit_code=0, signal=15, by="2001"
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
    assert SLURM.cancel(JobRef("7")) == ["scancel", "7"]
    assert SLURM.cancel(JobRef("7", "snowy")) == ["scancel", "--clusters=snowy", "7"]


def test_find_asks_for_ones_own_jobs_where_they_went() -> None:
    assert SLURM.find(ID, Request()) == ["squeue", "--noheader", "--me", "--format=%i|%j|%o"]
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

GOOD = "\n".join([row for row, _ in ROWS] + [text for text, _ in HISTORY] + ["7;snowy", f"7|{ID}|{DIRECTORY}/x"])


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
