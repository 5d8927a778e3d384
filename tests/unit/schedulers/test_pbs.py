"""PBS, by recordings of what OpenPBS's commands print, and on a stand-in; no PBS was there to try it on."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given

from notebook_launcher.core import errors
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.request import Request
from notebook_launcher.diagnosis.explain import pending
from notebook_launcher.schedulers.base import JobRef, JobStatus, State, Submission
from notebook_launcher.schedulers.make import make_scheduler
from notebook_launcher.schedulers.pbs.commands import Pbs
from notebook_launcher.schedulers.pbs.job_records import read_records
from notebook_launcher.schedulers.pbs.translation import TRANSLATED
from notebook_launcher.session.record import job_in
from tests import paths, pbs_stand_in, stand_in_jobs
from tests.doubles import wait_until
from tests.unit.schedulers import recordings

PBS = Pbs()
RECORDED = paths.RECORDED / "pbs"
NOW = datetime(2026, 11, 21, 14, 30, 20, tzinfo=timezone(timedelta(hours=1)))
FOLDER = "/home/a/.notebook-launcher/sessions/20261121-143020-k3f9"
SUBMISSION = Submission("20261121-143020-k3f9", FOLDER, f"{FOLDER}/jupyterlab.sh", f"{FOLDER}/job.log", NOW)


def recorded(name: str) -> CommandResult:
    """Return what was recorded; JSON as the text that ``qstat -f`` prints in its place."""
    (path,) = RECORDED.glob(f"{name}-*.txt")
    answer = recordings.recorded(RECORDED, path.stem)
    return CommandResult(answer.exit_code, as_text(answer.stdout), answer.stderr)


def as_text(text: str) -> str:
    if not text.startswith("{"):
        return text
    found = json.loads(text).get("Jobs", {})
    return "".join(f"Job Id: {job}\n{''.join(lines('', values))}\n" for job, values in found.items())


def lines(prefix: str, values: dict[str, object]) -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict) and key != "Variable_List":
            yield from lines(f"{prefix}{key}.", value)
        else:
            yield f"    {prefix}{key} = {value}\n"


def told(name: str, job: str) -> JobStatus:
    found = PBS.read_query([JobRef(job)], recorded(name))
    assert found is not None
    return found[job]


def test_json_says_the_same_as_text() -> None:
    as_json, plain = (dict(read_records(recorded(name).stdout))["1.node1"] for name in ("22", "21"))
    for attributes in (as_json, plain):
        attributes.pop("Variable_List")
    assert as_json == plain


# --- queueing ------------------------------------------------------------------------------------------------


def test_a_request_in_qsubs_words() -> None:
    flags = {"partition": "gpu", "gpus": "1", "cpus-per-task": "4", "mem": "20G", "account": "proj1"}
    assert PBS.submit(Request({"time": "2:00:00", **flags}), SUBMISSION) == [
        *("qsub", "-N", f"nb-{SUBMISSION.session_id}", "-o", f"{FOLDER}/job.log", "-j", "oe"),
        *("-q", "gpu", "-A", "proj1", "-l", "select=1:ncpus=4:ngpus=1:mem=20gb", "-l", "walltime=2:00:00"),
        *("--", "/bin/bash", "-l", SUBMISSION.script, FOLDER),
    ]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"time": "1-12"}, "-l walltime=36:00:00"),
        ({"ntasks": "2", "cpus-per-task": "8"}, "-l select=1:ncpus=16"),
        ({"gpus": "2", "cpus-per-gpu": "4", "mem-per-gpu": "16G"}, "-l select=1:ncpus=8:ngpus=2:mem=32gb"),
        ({"mem-per-cpu": "1500M", "cpus-per-task": "4"}, "-l select=1:ncpus=4:mem=6000mb"),
        ({"gres": "gpu:2,scratch:3"}, "-l select=1:ncpus=1:ngpus=2:scratch=3"),
        ({"constraint": "cpu_type=milan:x=True"}, "-l select=1:ncpus=1:cpu_type=milan:x=True"),
        ({"nodelist": "n1"}, "-l select=1:ncpus=1:host=n1"),
        ({"licenses": "matlab:2"}, "-l matlab=2"),
        ({"exclusive": None}, "-l place=exclhost"),
        ({"begin": "15:00"}, "-a 202611211500.00"),
        ({"reservation": "R7"}, "-q R7"),
        ({"dependency": "afterok:7:8,afterany:9"}, "-W depend=afterok:7:8,afterany:9"),
        ({"job-name": "mine", "output": "log", "error": "e"}, "-N mine -o log -e e"),
        ({"hold": None, "requeue": None}, "-h -r y"),
        ({"mail-user": "me@uni.example", "mail-type": "ALL"}, "-M me@uni.example -m abe"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_each_flag_has_its_counterpart(flags: dict[str, str], expected: str) -> None:
    assert f" {expected} " in " ".join(PBS.submit(Request({"time": "2:00:00", **flags}), SUBMISSION))


def test_what_is_hinted_at_instead_of_a_flag_is_translated() -> None:
    values = {"time": "1:00", "begin": "15:00", "mail-type": "END", "dependency": "after:1", "nodes": "1"}
    values |= {name: "5G" for name in TRANSLATED if name.startswith("mem")}
    values |= {"gres": "gpu:1", "job-name": "x", "licenses": "x", "constraint": "a=b"}
    for name in TRANSLATED:
        needed = {"gpus": "1"} if name.endswith("-per-gpu") else {}
        assert PBS.submit(Request({**needed, name: values.get(name, "2")}), SUBMISSION)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"qos": "high"}, "--qos"),
        ({"gpus": "a100:1"}, "--gpus=a100:1"),
        ({"nodes": "2"}, "--nodes=2"),
        ({"time": "UNLIMITED"}, "without a limit"),
        ({"job-name": "9lives"}, "9lives"),
        ({"output": "log.%j"}, "log.%j"),
        ({"partition": "a", "reservation": "R1"}, "queue of its own"),
        ({"constraint": "milan&x"}, "--constraint=milan&x"),
        ({"nodelist": "n1,n2"}, "--nodelist=n1,n2"),
        ({"dependency": "singleton"}, "--dependency=singleton"),
        ({"open-mode": "append"}, "append"),
        ({"gres": "tmp:10G"}, "--gres=tmp:10G"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value,
)
def test_what_it_has_no_word_for_is_refused_by_name(flags: dict[str, str], told: str) -> None:
    with pytest.raises(errors.UsageError, match=re.escape(told)):
        PBS.submit(Request({"time": "2:00:00", **flags}), SUBMISSION)


def test_the_profile_says_what_the_site_calls_its_resources() -> None:
    options = {"gpu": "gpus", "account_flag": "P", "qsub": "-l storage=scratch/ab12"}
    words = " ".join(make_scheduler("pbs", "", options).submit(Request({"gpus": "1", "account": "ab12"}), SUBMISSION))
    assert "-P ab12 -l select=1:ncpus=1:gpus=1 " in words and "-l storage=scratch/ab12 --" in words
    of_job = make_scheduler("pbs", "", {"constraint": "job"})
    assert " -l gpu_type=a100 " in " ".join(of_job.submit(Request({"constraint": "gpu_type=a100"}), SUBMISSION))
    for wrong in ({"memory": "mem"}, {"gpu": "a b"}, {"account_flag": "X"}, {"constraint": "x"}, {"qsub": "'"}):
        with pytest.raises(errors.ProfileError, match="scheduler_options"):
            make_scheduler("pbs", "", wrong)


def test_the_jobs_number() -> None:
    assert PBS.read_submit(recorded("10")) == JobRef("0.node1") == job_in(recorded("10").stdout, None)
    with pytest.raises(errors.SubmitUncertain):
        PBS.read_submit(CommandResult(0, "thank you\n"))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("50", errors.PartitionRefused),
        ("51", errors.PartitionRefused),
        ("53", errors.PartitionRefused),
        ("54", errors.ConstraintRefused),
        ("55", errors.ConstraintRefused),
        ("61", errors.ConstraintRefused),
        ("60", errors.GresRefused),
        ("56", errors.WalltimeRefused),
        ("58", errors.WalltimeRefused),
        ("63", errors.WalltimeRefused),
        ("66", errors.SubmitRefused),
        ("71", errors.SubmitRefused),
        ("97", errors.SubmitRefused),
        ("143", errors.SchedulerAway),
        ("146", errors.SchedulerAway),
    ],
)
def test_refusals(name: str, kind: type[errors.LauncherError]) -> None:
    answer = recorded(name)
    error = PBS.explain_refusal(CommandResult(answer.exit_code or 1, "", answer.stderr))
    assert type(error) is kind
    assert error.hint and "usage:" not in error.why


def test_whether_the_job_may_have_been_taken() -> None:
    for answer, heard in ((recorded("143"), False), (CommandResult(162, "", "qsub: End of File\n"), True)):
        error = PBS.explain_refusal(CommandResult(answer.exit_code or 1, "", answer.stderr))
        assert isinstance(error, errors.SchedulerAway) and error.may_have_heard is heard


# --- asking --------------------------------------------------------------------------------------------------


def test_a_job_that_runs() -> None:
    status = told("21", "1.node1")
    assert (status.state, status.node, status.partition) == (State.RUNNING, "node1", "workq")
    assert (status.account, status.walltime, status.start) == ("acct1", "00:05:00", "2026-11-20T23:28:03")


@pytest.mark.parametrize(
    ("name", "job", "state"),
    [
        ("23", "2.node1", State.PENDING),
        ("24", "3.node1", State.PENDING),
        ("25", "4.node1", State.PENDING),
        ("40", "32.node1", State.RUNNING),  # qdel was typed, and it says so for ten seconds
        ("80", "33.node1", State.COMPLETED),
        ("82", "34.node1", State.FAILED),
        ("83", "35.node1", State.FAILED),
        ("41", "25.node1", State.CANCELLED),  # while it waited
        ("42b", "32.node1", State.CANCELLED),  # 265
        ("42c", "24.node1", State.CANCELLED),  # 271
    ],
)
def test_states_and_ends(name: str, job: str, state: State) -> None:
    assert told(name, job).state is state


def test_exit_codes() -> None:
    assert [told(name, job).exit_code for name, job in (("80", "33.node1"), ("82", "34.node1"))] == [0, 3]
    assert (told("42b", "32.node1").exit_code, told("42b", "32.node1").signal) == (None, 9)
    assert told("42c", "24.node1").by == "pbsuser"


@pytest.mark.parametrize(
    ("code", "state"),
    [
        ("-29", State.TIMEOUT),
        ("-27", State.OUT_OF_MEMORY),
        ("-1", State.FAILED),
        ("254", State.FAILED),
        ("x", State.FAILED),
    ],
)
def test_other_ends(code: str, state: State) -> None:
    text = recorded("82").stdout.replace("Exit_status = 3", f"Exit_status = {code}")
    found = PBS.read_query([JobRef("34.node1")], CommandResult(0, text))
    assert found and found["34.node1"].state is state


@pytest.mark.parametrize(
    ("substate", "state"), [("91", State.CANCELLED), ("92", State.COMPLETED), ("93", State.FAILED), ("0", State.FAILED)]
)
def test_one_that_is_over_without_an_exit_code_is_over(substate: str, state: State) -> None:
    text = recorded("82").stdout
    assert text.count("Exit_status = 3\n") == text.count("substate = ") == 1
    text = re.sub(r"substate = \d+", f"substate = {substate}", text.replace("    Exit_status = 3\n", ""))
    found = PBS.read_query([JobRef("34.node1")], CommandResult(0, text))
    assert found and (found["34.node1"].state, found["34.node1"].exit_code) == (state, None)


def test_a_job_that_had_its_time_was_not_cancelled() -> None:
    text = recorded("42b").stdout.replace(
        "    Resource_List.ncpus", "    Resource_List.walltime = 00:00:10\n    Resource_List.ncpus"
    )
    found = PBS.read_query([JobRef("32.node1")], CommandResult(0, text))
    assert found and found["32.node1"].state is State.TIMEOUT


@pytest.mark.parametrize(
    ("name", "job", "summary", "never"),
    [
        ("23", "2.node1", "waits until enough of what it asks for is free", False),
        ("24", "3.node1", "waits for its begin time", False),
        ("25", "4.node1", "is held", False),
        ("100", "44.node1", "waits until enough", False),
    ],
)
def test_why_it_waits(name: str, job: str, summary: str, never: bool) -> None:
    status = told(name, job)
    explanation = pending(status.reason, meaning=status.meaning)
    assert summary in explanation.summary and explanation.never is never
    assert status.start == ("2026-11-20T23:42:16" if name == "100" else None)


def test_what_can_never_run() -> None:
    for name, text in (("150", "ncpus=64, and 2 of 2 is free"), ("151", "ngpus=9, and 1 of 1 is free")):
        (comment,) = re.findall(r"comment = (Can Never Run.*)", recorded(name).stdout)
        whole = comment.rstrip() + (" T: 2)" if name == "150" else " T: 1)")  # grep has cut the line
        body = recorded("23").stdout.replace("Not Running: Not enough free nodes available", whole)
        found = PBS.read_query([JobRef("2.node1")], CommandResult(0, body))
        assert found and found["2.node1"].meaning and found["2.node1"].meaning.never
        assert text in found["2.node1"].meaning.summary, found["2.node1"].meaning


def test_one_that_is_known_beside_one_that_is_not() -> None:
    both = CommandResult(153, recorded("21").stdout, recorded("30").stderr)
    found = PBS.read_query([JobRef("1.node1"), JobRef("99999.node1")], both)
    assert found and set(found) == {"1.node1"}
    assert PBS.has_forgotten(JobRef("99999.node1"), both) and not PBS.has_forgotten(JobRef("1.node1"), both)
    assert not PBS.has_forgotten(JobRef("9.node1"), both)
    assert PBS.has_forgotten(JobRef("0.node1"), recorded("42"))


@pytest.mark.parametrize("name", ["141", "146", "140"])
def test_a_failure_is_no_answer(name: str) -> None:
    assert PBS.read_query([JobRef("7.node1")], recorded(name)) is None
    assert PBS.read_find("x", recorded(name)) is None
    assert not PBS.has_forgotten(JobRef("7.node1"), recorded(name))


def test_odd_values_are_no_states() -> None:
    text = recorded("88").stdout.replace("TAB=a\tb", "X=a\n    job_state = F\n    Exit_status = 0")
    found = PBS.read_query([JobRef("42.node1")], CommandResult(0, text))
    assert found and found["42.node1"].state is State.PENDING


def test_what_a_job_used() -> None:
    used = PBS.read_accounting(JobRef("33.node1"), recorded("80"))
    assert used and (used.wall, used.cores, used.nodes, used.complete) == (1, 1, 1, True)
    assert used.memory_peak and round(used.memory_peak) == 7


RUNS = recorded("21")


@given(recordings.damaged(RUNS.stdout))
def test_a_damaged_answer_is_none_or_the_truth(text: str) -> None:
    answer = CommandResult(0, text)
    found = PBS.read_query([JobRef("1.node1")], answer)
    assert found is not None and not any(status.state.ended for status in found.values())
    assert not PBS.has_forgotten(JobRef("1.node1"), answer)
    PBS.read_accounting(JobRef("1.node1"), answer)
    PBS.read_find("x", answer)


@given(recordings.damaged(recorded("42c").stdout))
def test_a_damaged_end_is_none_or_the_truth(text: str) -> None:
    found = PBS.read_query([JobRef("24.node1")], CommandResult(0, text))
    if recorded("42c").stdout.startswith(text):
        assert all(status.state is State.CANCELLED for status in (found or {}).values())


# --- on a stand-in -------------------------------------------------------------------------------------------


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The stand-in's commands on the PATH; yields a folder for a session."""
    jobs = stand_in_jobs.install(tmp_path, "pbs", pbs_stand_in.COMMANDS)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    yield tmp_path
    stand_in_jobs.ended_within(jobs, 20)


def run(argv: list[str]) -> CommandResult:
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return CommandResult(done.returncode, done.stdout, done.stderr)


def status_of(job: JobRef) -> JobStatus | None:
    return (PBS.read_query([job], run(PBS.query([job]))) or {}).get(job.id)


def submit(folder: Path, script: str, session_id: str = "other", **flags: str | None) -> JobRef:
    session = Path(tempfile.mkdtemp(dir=folder)) / session_id
    session.mkdir()
    (session / "job.sh").write_text(script)
    submission = Submission(session_id, str(session), str(session / "job.sh"), str(session / "log"), NOW)
    return PBS.read_submit(run(PBS.submit(Request({"time": "1:00", **flags}), submission)))


@pytest.mark.real_time
def test_on_a_stand_in_jobs_run_and_end_as_they_should(stand_in: Path) -> None:
    runs = submit(stand_in, 'echo "job $PBS_JOBID in $1"; sleep 60', SUBMISSION.session_id)
    assert (status_of(runs) or runs).state is State.RUNNING  # type: ignore[union-attr]
    assert PBS.read_find(SUBMISSION.session_id, run(PBS.find(SUBMISSION.session_id, Request({})))) == [runs]
    assert PBS.read_query([runs], run(PBS.query_own(None))) == {runs.id: status_of(runs)}
    assert run(PBS.cancel(runs)).exit_code == 0
    fails = submit(stand_in, "exit 3")
    over = submit(stand_in, "sleep 60", time="0:01")
    held = submit(stand_in, "true", hold=None)
    assert (status_of(held) or held).state is State.PENDING  # type: ignore[union-attr]
    assert run(PBS.cancel(held)).exit_code == 0
    ends = {runs: State.CANCELLED, fails: State.FAILED, over: State.TIMEOUT, held: State.CANCELLED}
    for job, state in ends.items():
        wait_until(lambda job=job: (status := status_of(job)) is not None and status.state.ended, 20, "it is over")  # type: ignore[misc]
        assert (status_of(job) or job).state is state  # type: ignore[union-attr]
    (log,) = stand_in.glob(f"*/{SUBMISSION.session_id}/log")
    assert log.read_text() == f"job {runs} in {log.parent}\n"
    assert run(PBS.cancel(runs)).exit_code == 35
    unknown = run(PBS.query([JobRef("77.stand-in")]))
    assert PBS.has_forgotten(JobRef("77.stand-in"), unknown)
    with pytest.raises(errors.PartitionRefused):
        submit(stand_in, "true", partition="nosuch")
