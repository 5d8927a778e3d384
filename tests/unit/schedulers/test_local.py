"""The embedded scheduler's commands and answers, as text; ``local.sh`` itself is tested where it runs."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import LauncherError, SubmitRefused, UsageError
from notebook_launcher.core.package_data import job_script
from notebook_launcher.core.request import Request
from notebook_launcher.schedulers.base import JobRef, JobStatus, State, Submission
from notebook_launcher.schedulers.local import HONOURED, Local

ROOT = "/home/alice/.notebook-launcher/sessions"
ID = "20261121-014455-k3f9"
SCRIPT = f"{ROOT}/{ID}/local.sh"
LOCAL = Local(ROOT)
SUBMISSION = Submission(ID, f"{ROOT}/{ID}", f"{ROOT}/{ID}/jupyterlab.sh", f"{ROOT}/{ID}/job.log")


def submit(**flags: str | None) -> list[str]:
    return LOCAL.submit(Request({name.replace("_", "-"): value for name, value in flags.items()}), SUBMISSION)


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def test_submit() -> None:
    assert submit() == [
        "bash",
        SCRIPT,
        "submit",
        "--root",
        ROOT,
        "--id",
        ID,
        "--time",
        "3540",
        "--name",
        ID,
        "--output",
        f"{ROOT}/{ID}/job.log",
        "--",
        f"{ROOT}/{ID}/jupyterlab.sh",
        f"{ROOT}/{ID}",
    ]


@pytest.mark.parametrize(
    ("flags", "name", "value"),
    [
        ({"time": "2:00:00"}, "--time", "7200"),
        ({"time": "UNLIMITED"}, "--time", "0"),
        ({"job_name": "$(date) 'x'"}, "--name", "$(date) 'x'"),
        ({"output": "lab.log"}, "--output", "lab.log"),
    ],
)
def test_what_is_honoured(flags: dict[str, str | None], name: str, value: str) -> None:
    assert option(submit(**flags), name) == value


def test_every_flag_that_is_called_honoured_changes_the_command() -> None:
    values = {"time": "2:00:00", "begin": "now+1hour", "job-name": "mine", "output": "lab.log"}
    assert values.keys() == HONOURED
    for name, value in values.items():
        assert LOCAL.submit(Request({name: value}), SUBMISSION) != submit()


def test_submit_speaks_the_scripts_language() -> None:
    script = job_script("local.sh").read_text()
    for word in [*submit(begin="now"), *LOCAL.query([JobRef(ID)]), *LOCAL.cancel(JobRef(ID))]:
        if word.startswith("--") and word != "--":
            assert re.search(rf"^ +{word}\)", script, re.M), word


def test_begin_travels_as_seconds_since_1970() -> None:
    in_two_hours = datetime.now().timestamp() + 7200
    assert abs(int(option(submit(begin="now+2hours"), "--begin")) - in_two_hours) < 10
    noon = int(option(submit(begin="noon"), "--begin"))
    ahead = datetime.fromtimestamp(noon) - datetime.now()
    assert datetime.fromtimestamp(noon).strftime("%H:%M:%S") == "12:00:00"
    assert timedelta(0) < ahead <= timedelta(days=1, hours=1)


def test_a_begin_time_that_only_a_scheduler_understands_is_refused() -> None:
    with pytest.raises(UsageError, match="not understood"):
        submit(begin="112226")


def test_the_answer_to_submit() -> None:
    assert LOCAL.read_submit(CommandResult(0, f"a note\n{ID}\n")) == JobRef(ID)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (CommandResult(1, "", "mkdir: No space left on device\n"), "No space left"),
        (CommandResult(127, "", "bash: command not found\n"), "not found"),
        (CommandResult(2, "noise\n", ""), "exit code 2"),
        (CommandResult(0, "\n", ""), "exit code 0"),
    ],
)
def test_a_refused_submit(answer: CommandResult, why: str) -> None:
    with pytest.raises(SubmitRefused) as caught:
        LOCAL.read_submit(answer)
    assert why in caught.value.why


def test_query_and_cancel() -> None:
    assert LOCAL.query([JobRef(ID), JobRef("b")]) == ["bash", SCRIPT, "queue", "--root", ROOT, ID, "b"]
    assert LOCAL.cancel(JobRef(ID)) == ["bash", SCRIPT, "cancel", "--root", ROOT, ID]
    assert LOCAL.find(ID, Request()) == ["bash", SCRIPT, "queue", "--root", ROOT, ID]
    assert LOCAL.history(JobRef(ID)) is None
    assert LOCAL.read_history(JobRef(ID), CommandResult(0, "anything")) is None
    assert LOCAL.same_machine


NOON = datetime(2026, 11, 21, 12, 0)
SECONDS = int(NOON.timestamp())


@pytest.mark.parametrize(
    ("row", "status"),
    [
        (
            f"a|RUNNING|None|box|{SECONDS}|{SECONDS + 3540}|",
            JobStatus(JobRef("a"), State.RUNNING, node="box", start="2026-11-21T12:00:00"),
        ),
        (
            f"a|PENDING|BeginTime|box|{SECONDS}||",
            JobStatus(JobRef("a"), State.PENDING, reason="BeginTime", node="box", start="2026-11-21T12:00:00"),
        ),
        ("a|FAILED|None|box|||7", JobStatus(JobRef("a"), State.FAILED, node="box", exit_code=7)),
        ("a|TIMEOUT|None|box|||143", JobStatus(JobRef("a"), State.TIMEOUT, node="box", exit_code=143)),
        ("a|NODE_FAIL|None|box|||", JobStatus(JobRef("a"), State.NODE_FAIL, node="box")),
    ],
)
def test_a_row_of_the_queue(row: str, status: JobStatus) -> None:
    assert LOCAL.read_query([JobRef("a")], CommandResult(0, f"{row}\n")) == {"a": status}


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (CommandResult(1, "", "local.sh: there is no job a\n"), {}),
        (CommandResult(127, "", "bash: local.sh: No such file or directory\n"), None),
        (CommandResult(2, "", "local.sh: --root is missing\n"), None),
    ],
)
def test_forgotten_is_not_the_same_as_no_answer(answer: CommandResult, found: dict[str, JobStatus] | None) -> None:
    assert LOCAL.read_query([JobRef("a")], answer) == found


@pytest.mark.parametrize(
    ("answer", "jobs"),
    [
        (CommandResult(0, f"{ID}|RUNNING|None|box|||\n"), [JobRef(ID)]),
        (CommandResult(0, f"{ID}|PENDING|BeginTime|box|||\n"), [JobRef(ID)]),
        (CommandResult(0, f"{ID}|CANCELLED|None|box|||\n"), []),
        (CommandResult(1, "", "local.sh: there is no job\n"), []),
        (CommandResult(127), None),
    ],
)
def test_find(answer: CommandResult, jobs: list[JobRef] | None) -> None:
    assert LOCAL.read_find(ID, answer) == jobs


@given(st.text() | st.text(alphabet="aRUNING|None0123456789\n", max_size=80), st.sampled_from([0, 1, 2, 127]))
def test_no_text_makes_the_readers_stumble(stdout: str, exit_code: int) -> None:
    answer = CommandResult(exit_code, stdout)
    LOCAL.read_query([JobRef("a")], answer)
    LOCAL.read_find(ID, answer)
    try:
        assert LOCAL.read_submit(answer).id
    except LauncherError as error:
        assert error.what
