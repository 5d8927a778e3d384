"""LSF, by recordings of what its commands print and by values that were seen in them; no LSF was there to try it on."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.core import errors, package_data
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.request import Request
from notebook_launcher.diagnosis.explain import pending
from notebook_launcher.planning.plan import make_plan
from notebook_launcher.planning.target import LaunchOptions, LocalMachine, find_target
from notebook_launcher.schedulers.base import JobRef, JobStatus, State, Submission
from notebook_launcher.schedulers.lsf.commands import TRANSLATED, Lsf
from notebook_launcher.session.record import job_in
from tests import paths
from tests.unit.schedulers import recordings

LSF = Lsf()
RECORDED = paths.RECORDED / "lsf"
NOW = datetime(2026, 11, 21, 14, 30, 20, tzinfo=timezone(timedelta(hours=1)))
FOLDER = "/zhome/a/.notebook-launcher/sessions/20261121-143020-k3f9"
SUBMISSION = Submission("20261121-143020-k3f9", FOLDER, f"{FOLDER}/jupyterlab.sh", f"{FOLDER}/job.log", NOW)


def recorded(name: str) -> CommandResult:
    return recordings.recorded(RECORDED, name)


def bsub(**flags: str | None) -> list[str]:
    named = {name.replace("_", "-"): value for name, value in flags.items()}
    return LSF.submit(Request({"time": "2:00:00", **named}), SUBMISSION)


def after(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


# --- queueing ------------------------------------------------------------------------------------------------


def test_what_is_hinted_at_instead_of_a_flag_is_translated() -> None:
    values = {"time": "1:00", "begin": "15:00", "mail-type": "END", "mem": "5G", "mem-per-cpu": "5G"}
    values |= {"nodes": "1", "gres": "gpu:1", "mem-per-gpu": "5G", "signal": "USR1@120"}
    for name in TRANSLATED:
        needed = {"gpus": "1"} if name.endswith("-per-gpu") else {}
        assert LSF.submit(Request({**needed, name: values.get(name, "2")}), SUBMISSION)
    with pytest.raises(errors.UsageError) as caught:
        bsub(licenses="matlab")
    assert caught.value.hint.startswith("leave it out")
    laptop = LocalMachine("laptop")
    for typed, hint in (("licnese", "docs/lsf.md"), ("mem-per-gpus", "or --mem-per-gpu")):
        with pytest.raises(errors.UsageError) as caught:
            make_plan(LaunchOptions({typed: "1"}, cluster="dtu"), laptop)
        assert hint in caught.value.hint and "licenses" not in caught.value.hint


def test_a_request_in_bsubs_words() -> None:
    words = bsub(partition="gpuv100", gpus="1", ntasks="1", cpus_per_task="4", mem="20G", account="proj1")
    assert words == [
        "bsub",
        "-J",
        SUBMISSION.session_id,
        "-o",
        f"{FOLDER}/job.log",
        "-q",
        "gpuv100",
        "-P",
        "proj1",
        "-W",
        "2:00",
        "-n",
        "4",
        "-R",
        "span[hosts=1] rusage[mem=5GB]",
        "-gpu",
        "num=1:mode=exclusive_process",
        f"bash -l {FOLDER}/jupyterlab.sh {FOLDER}",
    ]


@pytest.mark.parametrize(
    ("flags", "flag", "value"),
    [
        ({"time": "90"}, "-W", "1:30"),
        ({"time": "0:00:30"}, "-W", "0:01"),
        ({"time": "1-12"}, "-W", "36:00"),
        ({"partition": "gpuv100,gpua100"}, "-q", "gpuv100 gpua100"),
        ({"ntasks": "2", "cpus-per-task": "8"}, "-n", "16"),
        ({"ntasks-per-node": "4", "nodes": "1"}, "-n", "4"),
        ({"gpus": "2", "cpus-per-gpu": "4"}, "-n", "8"),
        ({"mem-per-cpu": "1500M", "cpus-per-task": "4"}, "-R", "span[hosts=1] rusage[mem=1500MB]"),
        ({"mem": "10G", "cpus-per-task": "3"}, "-R", "span[hosts=1] rusage[mem=3414MB]"),
        ({"mem-per-gpu": "16G", "gpus": "2", "cpus-per-task": "8"}, "-R", "span[hosts=1] rusage[mem=4GB]"),
        ({"mem": "1K", "cpus-per-task": "2"}, "-R", "span[hosts=1] rusage[mem=1MB]"),
        ({"constraint": "gpu80gb"}, "-R", "select[gpu80gb] span[hosts=1]"),
        ({"gres": "gpu:2"}, "-gpu", "num=2:mode=exclusive_process"),
        ({"gpus-per-node": "1"}, "-gpu", "num=1:mode=exclusive_process"),
        ({"begin": "15:00"}, "-b", "11:21:15:00"),
        ({"begin": "09:00"}, "-b", "11:22:09:00"),
        ({"begin": "now+2hours"}, "-b", "11:21:16:31"),
        ({"begin": "2026-12-31T23:59:00+00:00"}, "-b", "01:01:00:59"),
        ({"reservation": "course#1"}, "-U", "course#1"),
        ({"nodelist": "n1,n2"}, "-m", "n1 n2"),
        ({"job-name": "mine"}, "-J", "mine"),
        ({"output": "log.%j", "open-mode": "truncate"}, "-oo", "log.%J"),
        ({"error": "log.err"}, "-e", "log.err"),
        ({"mail-user": "me@uni.example", "mail-type": "BEGIN,END"}, "-u", "me@uni.example"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_each_flag_has_its_counterpart(flags: dict[str, str], flag: str, value: str) -> None:
    words = LSF.submit(Request({"time": "2:00:00", **flags}), SUBMISSION)
    assert after(words, flag) == value


def test_flags_without_a_value() -> None:
    assert {"-x", "-H", "-r", "-B", "-N"} <= set(bsub(exclusive=None, hold=None, requeue=None, mail_type="ALL"))
    assert "-gpu" not in bsub()


def test_a_begin_time_that_has_come_is_left_out() -> None:
    assert "-b" not in bsub(begin="2026-11-21T14:00:00+01:00")  # LSF would take it for next year's


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"qos": "high", "licenses": "a"}, "--licenses, --qos"),
        ({"signal": "10@60"}, "--signal=10@60"),
        ({"gpus-per-task": "1"}, "--gpus-per-task"),
        ({"gpus": "a100:1"}, "--gpus=a100:1"),
        ({"gres": "gpu:1,scratch:1"}, "--gres"),
        ({"nodes": "2"}, "--nodes=2"),
        ({"mem": "0"}, "--mem=0"),
        ({"ntasks": "many"}, "--ntasks=many"),
        ({"time": "UNLIMITED"}, "without a limit"),
        ({"begin": "010127"}, "010127"),
        ({"job-name": "a[1-3]"}, "job array"),
        ({"mail-type": "FAIL,TIME_LIMIT"}, "--mail-type=FAIL,TIME_LIMIT"),
        ({"mail-type": "END,FAIL"}, "--mail-type=END,FAIL"),
        ({"mem-per-gpu": "16G"}, "--mem-per-gpu=16G"),
        ({"cpus-per-gpu": "4", "gpus": "0"}, "--cpus-per-gpu=4"),
        ({"constraint": "x] span[hosts=2"}, "--constraint=x] span[hosts=2"),
        ({"nodelist": "n[1-3]"}, "--nodelist=n[1-3]"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value,
)
def test_what_lsf_has_no_word_for_is_refused_by_name(flags: dict[str, str], told: str) -> None:
    with pytest.raises(errors.UsageError, match=re.escape(told)):
        LSF.submit(Request({"time": "2:00:00", **flags}), SUBMISSION)


def test_a_folder_with_odd_characters_stays_one_word_on_the_node() -> None:
    folder = "/home/o'neil $x/s"
    words = LSF.submit(Request({}), Submission("s", folder, f"{folder}/jupyterlab.sh", f"{folder}/log", NOW))
    assert shlex.split(words[-1]) == ["bash", "-l", f"{folder}/jupyterlab.sh", folder]


@pytest.mark.parametrize(
    ("name", "job"),
    [
        ("openlava-bsub-stdin-script", "101"),
        ("openlava-bsub-begin", "104"),
        ("lsf-bsub-default-queue", "2329803"),
        ("lsf-bsub-gpu-exclusive_process", "54086"),
        ("lsf-bsub-cannot-connect-then-submitted", "12345678"),
    ],
)
def test_the_jobs_number(name: str, job: str) -> None:
    assert LSF.read_submit(recorded(name)) == JobRef(job)
    assert job_in(recorded(name).stdout, None) == JobRef(job)  # as submit.sh keeps it


def test_a_session_is_listed_with_its_job(tmp_path: Path) -> None:
    folder = tmp_path / "20261121-143020-k3f7"
    folder.mkdir()
    (folder / "session.json").write_text("{}\n")
    (folder / "job").write_text(recorded("lsf-bsub-cannot-connect-then-submitted").stdout)
    script = package_data.job_script("sessions.sh")
    done = subprocess.run(["bash", str(script), str(tmp_path), "list"], capture_output=True, text=True, check=True)
    assert "20261121-143020-k3f7 job 12345678\n" in done.stdout


def test_a_number_that_cannot_be_read_is_uncertain() -> None:
    with pytest.raises(errors.SubmitUncertain, match="could not be read"):
        LSF.read_submit(CommandResult(0, "thank you\n"))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("openlava-bsub-bad-queue", errors.PartitionRefused),
        ("openlava-bsub-W-over-limit", errors.WalltimeRefused),
        ("openlava-bsub-bad-W", errors.WalltimeRefused),
        ("openlava-bsub-bad-begin", errors.WalltimeRefused),
        ("openlava-bsub-n-over-limit", errors.SizeRefused),
        ("openlava-bsub-n-over-host", errors.SizeRefused),
        ("lsf-bsub-too-many-processors", errors.SizeRefused),
        ("openlava-bsub-bad-resreq", errors.ConstraintRefused),
        ("openlava-bsub-unknown-resource", errors.ConstraintRefused),
        ("openlava-bsub-unknown-rusage", errors.ConstraintRefused),
        ("lsf-bsub-bad-select", errors.ConstraintRefused),
        ("lsf-bsub-duplicate-select", errors.ConstraintRefused),
        ("lsf-bsub-ampersand-in-select", errors.ConstraintRefused),
        ("lsf-bsub-bad-rusage", errors.ConstraintRefused),
        ("openlava-bsub-unknown-host", errors.ConstraintRefused),
        ("openlava-bsub-bad-option", errors.GresRefused),
        ("openlava-bsub-dependency-missing-job", errors.DependencyRefused),
        ("openlava-mbatchd-down-bsub", errors.SchedulerAway),
        ("openlava-lim-down-lsid", errors.SchedulerAway),
        ("lsf-bsub-non-lsf-host", errors.SchedulerAway),
        ("openlava-no-lsf-env", errors.SchedulerMissing),
    ],
)
def test_refusals(name: str, kind: type[errors.LauncherError]) -> None:
    with pytest.raises(errors.LauncherError) as refused:
        LSF.read_submit(recorded(name))
    assert type(refused.value) is kind
    first = recorded(name).stderr.strip().splitlines()
    assert not first or first[0].split()[0] in refused.value.why  # in its own words
    assert refused.value.hint


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("gpua100: User's pending job limit reached. Job not submitted.", errors.LimitRefused),
        ("n-62-gpu1: Bad host name, host group name or cluster name. Job not submitted.", errors.ConstraintRefused),
        ("Bad host name, host group name or cluster name <n-62-gpu1>. Job not submitted.", errors.ConstraintRefused),
        ("Project <p> is not allowed in queue <gpuv100>. Job not submitted.", errors.AccountRefused),
        ("The reservation <gpulab> does not exist. Job not submitted.", errors.ReservationRefused),
        ("limit: No such queue. Job not submitted.", errors.PartitionRefused),
        ("gpu: RUNLIMIT: Cannot exceed queue's hard limit(s). Job not submitted.", errors.WalltimeRefused),
        ("Bad GPU requirement syntax. Job not submitted.", errors.GresRefused),
    ],
)
def test_a_name_in_a_refusal_is_not_its_reason(said: str, kind: type[errors.LauncherError]) -> None:
    error = LSF.explain_refusal(CommandResult(255, "", said))
    assert type(error) is kind
    assert said in error.why


def test_a_daemon_that_was_reached_may_have_taken_the_job() -> None:
    error = LSF.explain_refusal(recorded("openlava-mbatchd-down-bsub"))
    assert isinstance(error, errors.SchedulerAway)
    assert error.may_have_heard


# --- asking --------------------------------------------------------------------------------------------------

# fields and values as they were seen (bjobs -json of LSF 10.1), apart by the delimiter, "-" for what is not known
_ROW = {
    "jobid": "22005",
    "stat": "RUN",
    "queue": "gpuv100",
    "exec_host": "4*n-62-20-5",
    "start_time": "Nov 21 14:31",
    "estimated_start_time": "-",
    "finish_time": "Nov 21 16:31 L",
    "proj_name": "default",
    "runtimelimit": "120.0",
    "exit_code": "-",
    "exit_reason": "-",
    "pend_reason": "-",
}


def row(**fields: str) -> str:
    return "^".join((_ROW | fields).values()) + "\n"


def told(text: str, job: str = "22005", code: int = 0, stderr: str = "") -> JobStatus:
    found = LSF.read_query([JobRef(job)], CommandResult(code, text, stderr))
    assert found is not None
    return found[job]


def test_the_fields_are_asked_for_in_the_order_in_which_they_are_read() -> None:
    words = LSF.query([JobRef("1"), JobRef("2")])
    assert words[:2] == ["bash", "-c"] and 'bjobs -noheader -o "$@"' in words[2]
    assert words[3].split()[: len(_ROW)] == list(_ROW)
    assert words[3].endswith('delimiter="^"')
    assert words[4:] == ["1", "2"]


def test_a_job_that_runs() -> None:
    status = told(row())
    assert (status.state, status.node, status.partition) == (State.RUNNING, "n-62-20-5", "gpuv100")
    assert (status.walltime, status.exit_code, status.account) == ("2:00:00", None, "default")
    assert status.start is not None
    assert status.ends is not None
    assert status.start.endswith("-11-21T14:31:00")
    assert status.ends.endswith("-11-21T16:31:00")


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"stat": "PEND"}, State.PENDING),
        ({"stat": "PSUSP"}, State.PENDING),
        ({"stat": "USUSP"}, State.SUSPENDED),
        ({"stat": "SSUSP"}, State.SUSPENDED),
        ({"stat": "UNKWN"}, State.UNKNOWN),
        ({"stat": "ZOMBI"}, State.NODE_FAIL),
        ({"stat": "DONE"}, State.COMPLETED),
        ({"stat": "EXIT", "exit_code": "3"}, State.FAILED),
        ({"stat": "EXIT", "exit_code": "137"}, State.FAILED),
        ({"stat": "EXIT", "exit_code": "130"}, State.CANCELLED),
        ({"stat": "EXIT", "exec_host": "-"}, State.CANCELLED),
        ({"stat": "EXIT", "exit_code": "140"}, State.TIMEOUT),
        (
            {
                "stat": "EXIT",
                "exit_code": "1",
                "exit_reason": "TERM_RUNLIMIT: job killed after reaching LSF run time limit",
            },
            State.TIMEOUT,
        ),
        (
            {
                "stat": "EXIT",
                "exit_code": "137",
                "exit_reason": "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit",
            },
            State.OUT_OF_MEMORY,
        ),
        ({"stat": "NEW"}, State.UNKNOWN),
    ],
    ids=lambda value: " ".join(value.values())[:20] if isinstance(value, dict) else "",
)
def test_states(fields: Mapping[str, str], state: State) -> None:
    assert told(row(**fields)).state is state


@pytest.mark.parametrize(
    ("said", "start"),
    [("Nov 21 16:31", "-11-21T16:31:00"), ("-", None), ("Nov 21", None), ("tomorrow", None), ("Nov 41 16:31", None)],
)
def test_the_estimate_of_a_job_that_waits(said: str, start: str | None) -> None:
    waits = told(row(stat="PEND", exec_host="-", start_time="-", finish_time="-", estimated_start_time=said))
    assert waits.start == (start and f"{waits.start and waits.start[:4]}{start}")
    runs = told(row(estimated_start_time=said)).start
    assert runs and runs.endswith("-11-21T14:31:00")


def test_an_exit_code_counts_only_at_the_end() -> None:
    assert told(row(exit_code="0")).exit_code is None
    assert told(row(stat="DONE")).exit_code == 0
    ended = told(row(stat="EXIT", exit_code="137"))
    assert (ended.exit_code, ended.signal) == (137, 9)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("New job is waiting for scheduling;", "New job is waiting for scheduling"),
        ("Job slot limit reached: 1 host;", "Job slot limit reached: 1 host"),
        ("The job was suspended by the user while pending: 1 host;", "suspended by the user while pending"),
        ("The job has a specified start time: 1 host;", "begin"),
    ],
)
def test_why_it_waits_is_told_in_lsfs_words(reason: str, words: str) -> None:
    status = told(row(stat="PEND", exec_host="-", start_time="-", finish_time="-", pend_reason=reason))
    assert words in pending(status.reason).summary
    assert status.ends is None


def test_reasons_on_several_lines_and_lines_that_ask_for_patience() -> None:
    text = "LSF is processing your request. Please wait ...\n" + row(
        stat="PEND", pend_reason="Not enough GPUs: 2 hosts;\n  Closed by administrator: 1 host;"
    )
    assert told(text).reason == "Not enough GPUs: 2 hosts; Closed by administrator: 1 host"


def test_one_that_is_known_beside_one_that_is_not() -> None:
    """As recorded: it fails, and tells of the other all the same."""
    answer = recorded("lsf-bjobs-known-and-unknown")
    assert (answer.exit_code, answer.stdout) == (255, "1^DONE^-\n")
    both = CommandResult(answer.exit_code, row(jobid="1", stat="DONE"), answer.stderr)
    found = LSF.read_query([JobRef("1"), JobRef("2")], both)
    assert found is not None
    assert set(found) == {"1"}
    assert LSF.has_forgotten(JobRef("2"), both)
    assert not LSF.has_forgotten(JobRef("1"), both)


@pytest.mark.parametrize("name", ["lsf-bjobs-empty", "openlava-bjobs-empty", "openlava-bjobs-unknown"])
def test_no_jobs_are_an_answer(name: str) -> None:
    answer = recorded(name)
    assert LSF.read_query([JobRef("7")], answer) == {}
    assert LSF.has_forgotten(JobRef("99999"), answer) is (name == "openlava-bjobs-unknown")
    if name != "openlava-bjobs-unknown":
        assert LSF.read_find("20261121-143020-k3f9", answer) == []


@pytest.mark.parametrize("name", ["openlava-mbatchd-down-bsub", "openlava-no-lsf-env"])
def test_a_failure_is_no_answer(name: str) -> None:
    assert LSF.read_query([JobRef("7")], recorded(name)) is None
    assert LSF.read_find("20261121-143020-k3f9", recorded(name)) is None


def test_nothing_said_is_not_forgotten() -> None:
    assert LSF.read_query([JobRef("7")], CommandResult(0, "")) == {}
    assert not LSF.has_forgotten(JobRef("7"), CommandResult(0, ""))


def test_the_history() -> None:
    done = LSF.read_history(JobRef("130"), recorded("openlava-bhist-l-done"))
    assert done == JobStatus(JobRef("130"), State.COMPLETED, node="node1", exit_code=0)
    assert LSF.read_history(JobRef("130"), recorded("openlava-bhist-running")) is None
    assert LSF.read_history(JobRef("131"), recorded("openlava-bhist-l-done")) is None  # of another job


@pytest.mark.parametrize(
    ("end", "state", "signal"),
    [
        ("Exited with exit code 3. The CPU time used is 0.0 seconds;", State.FAILED, None),
        ("Exited with exit code 140. The CPU time used is 0.0 second\n                     s;", State.TIMEOUT, 12),
        ("Exited; TERM_OWNER: job killed by owner;", State.CANCELLED, None),
    ],
)
def test_ends_in_the_history(end: str, state: State, signal: int | None) -> None:
    text = recorded("openlava-bhist-l-done").stdout.replace("Done successfully. The CPU time used is 0.0 seconds;", end)
    found = LSF.read_history(JobRef("130"), CommandResult(0, text))
    assert found is not None
    assert (found.state, found.signal) == (state, signal)


def test_a_job_is_found_by_its_name_or_its_folder() -> None:
    text = f"7^{SUBMISSION.session_id}^bash -l x\n8^mine^bash -l {FOLDER}/jupyterlab.sh {FOLDER}\n9^other^sleep 1\n"
    assert LSF.read_find(SUBMISSION.session_id, CommandResult(0, text)) == [JobRef("7"), JobRef("8")]


def test_what_it_does_not_have_is_not_pretended() -> None:
    assert LSF.step(JobRef("7"), ["true"]) is None
    assert LSF.terminal_step(JobRef("7"), ["true"]) is None


def test_ending_jobs() -> None:
    assert LSF.cancel_all([JobRef("7"), JobRef("8")]) == ["bkill", "7", "8"]


def test_log_files() -> None:
    assert LSF.log_files({"output": "out.%j", "error": "e.%x"}, JobRef("7"), user="alice", node=None) == ["out.7"]


@given(st.text())
def test_no_text_breaks_the_readings(text: str) -> None:
    for answer in (CommandResult(0, text), CommandResult(255, text, text)):
        LSF.read_query([JobRef("7")], answer)
        LSF.read_history(JobRef("7"), answer)
        LSF.read_find("x", answer)


@given(st.text(alphabet=st.characters(blacklist_characters="^\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")))
def test_no_value_breaks_a_row(value: str) -> None:
    for field in list(_ROW)[1:]:
        assert told(row(**{field: value})).job == JobRef("22005")


# --- where it is used ----------------------------------------------------------------------------------------


def test_on_a_login_node_of_lsf_it_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path))
    assert find_target(LaunchOptions(), LocalMachine("login1", ("lsf",))).scheduler == "lsf"
    assert find_target(LaunchOptions(), LocalMachine("login1", ("slurm", "lsf"))).scheduler == "slurm"
