"""Grid Engine, by recordings of what its commands print; ``cluster_tests/test_grid_engine.py`` tries it for real."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.core import errors
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.request import Request
from notebook_launcher.diagnosis.explain import pending
from notebook_launcher.planning.plan import make_plan
from notebook_launcher.planning.target import LaunchOptions, LaunchTarget, LocalMachine
from notebook_launcher.profiles import ClusterProfile
from notebook_launcher.schedulers.base import JobRef, JobStatus, State, Submission
from notebook_launcher.schedulers.gridengine.commands import GridEngine
from notebook_launcher.schedulers.gridengine.listing import DETAILS, state_of
from notebook_launcher.schedulers.gridengine.translation import TRANSLATED
from notebook_launcher.schedulers.make import make_scheduler
from notebook_launcher.session.record import job_in
from tests import paths
from tests.unit.schedulers import recordings

GRID = GridEngine()
RECORDED = paths.RECORDED / "gridengine"
NOW = datetime(2026, 11, 21, 14, 30, 20, tzinfo=timezone(timedelta(hours=1)))
FOLDER = "/home/a/.notebook-launcher/sessions/20261121-143020-k3f9"
SUBMISSION = Submission("20261121-143020-k3f9", FOLDER, f"{FOLDER}/jupyterlab.sh", f"{FOLDER}/job.log", NOW)


def recorded(name: str) -> CommandResult:
    return recordings.recorded(RECORDED, name)


LISTED = recorded("list-and-details")
#: the recorded jobs, by the names that they were given
JOBS = {"long": "15", "many": "18", "gpus": "19", "held": "20", "error": "21", "too long": "25", "later": "26"}


def qsub(options: dict[str, str] | None = None, **flags: str | None) -> list[str]:
    named = {name.replace("_", "-"): value for name, value in flags.items()}
    scheduler = make_scheduler("gridengine", "", options)
    return scheduler.submit(Request({"time": "2:00:00", **named}), SUBMISSION)


# --- queueing ------------------------------------------------------------------------------------------------


def test_a_request_in_qsubs_words() -> None:
    words = qsub(partition="gpu.q", gpus="1", cpus_per_task="4", mem="20G", account="proj1")
    assert words == [
        *("qsub", "-terse", "-N", f"nb-{SUBMISSION.session_id}", "-o", f"{FOLDER}/job.log", "-j", "y"),
        *("-q", "gpu.q", "-P", "proj1", "-l", "h_rt=2:00:00", "-l", "h_vmem=5G", "-l", "gpu=1", "-pe", "smp", "4"),
        *("-notify", "-b", "y", "-shell", "n", "bash", "-c", "trap '' USR1; exec bash -l \"$@\"", "bash"),
        *(SUBMISSION.script, FOLDER),
    ]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"time": "90"}, "-l h_rt=1:30:00"),
        ({"time": "1-12"}, "-l h_rt=36:00:00"),
        ({"ntasks": "2", "cpus-per-task": "8"}, "-pe smp 16"),
        ({"gpus": "2", "cpus-per-gpu": "4"}, "-pe smp 8"),
        ({"mem": "10G", "cpus-per-task": "3"}, "-l h_vmem=3414M"),
        ({"mem-per-gpu": "16G", "gpus": "2"}, "-l h_vmem=32G"),
        ({"gres": "gpu:2,scratch:3"}, "-l gpu=2 -l scratch=3"),
        ({"licenses": "matlab:2"}, "-l matlab=2"),
        ({"constraint": "cpu_type=skylake"}, "-l cpu_type=skylake"),
        ({"nodelist": "n1,n2"}, "-l hostname=n1|n2"),
        ({"exclude": "n1,n2"}, "-l hostname=!(n1|n2)"),
        ({"nodelist": "n1,n2", "exclude": "n2"}, "-l hostname=(n1|n2)&!(n2)"),
        ({"begin": "15:00"}, "-a 202611211500.00"),
        ({"reservation": "7"}, "-ar 7"),
        ({"dependency": "afterany:7:8"}, "-hold_jid 7,8"),
        ({"job-name": "mine", "output": "log.%j", "error": "e"}, "-N mine -o log.$JOB_ID -e e"),
        ({"hold": None, "no-requeue": None}, "-h -r n"),
        ({"mail-user": "me@uni.example", "mail-type": "BEGIN,FAIL"}, "-M me@uni.example -m ba"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_each_flag_has_its_counterpart(flags: dict[str, str], expected: str) -> None:
    assert f" {expected} " in " ".join(GRID.submit(Request({"time": "2:00:00", **flags}), SUBMISSION))


def test_what_is_hinted_at_instead_of_a_flag_is_translated() -> None:
    values = {"time": "1:00", "begin": "15:00", "mail-type": "END", "dependency": "afterany:1", "nodes": "1"}
    values |= {name: "5G" for name in TRANSLATED if name.startswith("mem")} | {
        "gres": "gpu:1",
        "job-name": "x",
        "licenses": "x",
    }
    for name in TRANSLATED:
        needed = {"gpus": "1"} if name.endswith("-per-gpu") else {}
        qsub({"exclusive": "exclusive"}, **{"time": "1:00", **needed, name: values.get(name, "2")})
    with pytest.raises(errors.UsageError, match="There is no flag --licnese") as caught:
        target = LaunchTarget(ClusterProfile().changed(scheduler="gridengine"), "g", None, "gridengine")
        make_plan(LaunchOptions({"licnese": "1"}), LocalMachine("laptop"), target)
    assert "licenses" in caught.value.hint


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"qos": "high", "signal": "USR1@60"}, "--qos, --signal"),
        ({"gpus": "a100:1"}, "--gpus=a100:1"),
        ({"nodes": "2"}, "--nodes=2"),
        ({"mem": "0"}, "--mem=0"),
        ({"time": "UNLIMITED"}, "without a limit"),
        ({"job-name": "9lives"}, "9lives"),
        ({"job-name": "a b"}, "a b"),
        ({"dependency": "afterok:7"}, "--dependency=afterok:7"),
        ({"mail-type": "TIME_LIMIT"}, "--mail-type=TIME_LIMIT"),
        ({"exclusive": None}, "whole host"),
        ({"open-mode": "truncate"}, "truncate"),
        ({"gres": "a b:1"}, "--gres=a b:1"),
        ({"licenses": "a:1,b:2k"}, "--licenses=a:1,b:2k"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value,
)
def test_what_it_has_no_word_for_is_refused_by_name(flags: dict[str, str], told: str) -> None:
    with pytest.raises(errors.UsageError, match=re.escape(told)):
        GRID.submit(Request({"time": "2:00:00", **flags}), SUBMISSION)


def test_the_profile_says_what_the_site_calls_its_resources() -> None:
    options = {"parallel_environment": "threads", "gpu": "ngpus", "memory": "mem", "memory_per": "job"}
    words = " ".join(qsub({**options, "qsub": "-l os=rhel9"}, gpus="1", cpus_per_task="4", mem="20G"))
    assert "-l mem=20G -l ngpus=1 -pe threads 4 -l os=rhel9 " in words
    assert "-l whole=true" in " ".join(qsub({"exclusive": "whole"}, exclusive=None))
    for wrong in ({"gpus": "gpu"}, {"gpu": "a b"}, {"memory_per": "node"}, {"qsub": "'"}):
        with pytest.raises(errors.ProfileError, match=re.escape(f"scheduler_options{'' if 'gpus' in wrong else '.'}")):
            make_scheduler("gridengine", "", wrong)
    with pytest.raises(errors.ProfileError, match="Slurm does not have"):
        make_scheduler("slurm", "", {"gpu": "gpu"})


def test_a_constraint_may_be_a_variable_of_the_context() -> None:
    grid = make_scheduler("gridengine", "", {"constraint": "context"})
    words = grid.submit(Request({"time": "5", "constraint": "allow=L"}), SUBMISSION)
    assert "-ac allow=L" in " ".join(words) and "-l allow" not in " ".join(words)
    with pytest.raises(errors.ProfileError, match="neither resource nor context"):
        make_scheduler("gridengine", "", {"constraint": "both"})


def test_the_jobs_number() -> None:
    assert GRID.read_submit(recorded("qsub")) == JobRef("1")
    assert GRID.read_submit(CommandResult(0, "Welcome\n12.1-3:1\n")) == JobRef("12")
    assert job_in(recorded("qsub").stdout, None) == JobRef("1")  # as submit.sh keeps it
    with pytest.raises(errors.SubmitUncertain):
        GRID.read_submit(CommandResult(0, "thank you\n"))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("qsub-bad-queue", errors.PartitionRefused),
        ("qsub-bad-project", errors.AccountRefused),
        ("qsub-bad-resource", errors.ConstraintRefused),
        ("qsub-bad-memory", errors.ConstraintRefused),
        ("qsub-no-gpus-there", errors.GresRefused),
        ("qsub-bad-pe", errors.SizeRefused),
        ("qsub-verify-too-many", errors.SizeRefused),
        ("qsub-bad-time", errors.WalltimeRefused),
        ("qsub-bad-begin", errors.WalltimeRefused),
        ("qsub-bad-reservation", errors.ReservationRefused),
        ("qsub-bad-option", errors.SubmitRefused),
        ("qsub-no-master", errors.SchedulerAway),
        ("qsub-name-with-space", errors.SchedulerAway),  # that crashes the answer; such a name is refused before
    ],
)
def test_refusals(name: str, kind: type[errors.LauncherError]) -> None:
    with pytest.raises(errors.LauncherError) as refused:
        GRID.read_submit(recorded(name))
    assert type(refused.value) is kind
    assert refused.value.hint
    missing = GRID.explain_refusal(CommandResult(1, "", 'error: SGE_ROOT directory "/x" doesn\'t exist'))
    assert isinstance(missing, errors.SchedulerMissing)


def test_whether_the_job_may_have_been_taken() -> None:
    message = "error: failed receiving gdi request response for mid=1 (got syncron message receive timeout error)."
    late = CommandResult(1, "", message)
    for answer, heard in ((recorded("qsub-no-master"), False), (recorded("qsub-name-with-space"), True), (late, True)):
        error = GRID.explain_refusal(answer)
        assert isinstance(error, errors.SchedulerAway)
        assert error.may_have_heard is heard


# --- asking --------------------------------------------------------------------------------------------------


def told(job: str) -> JobStatus:
    found = GRID.read_query([JobRef(job)], LISTED)
    assert found is not None
    return found[job]


def test_a_job_that_runs() -> None:
    status = told(JOBS["long"])
    assert (status.state, status.node, status.partition) == (State.RUNNING, "gpu1", "gpu.q")
    assert (status.walltime, status.start, status.ends) == (
        "0:10:00",
        "2026-11-27T18:36:01+00:00",
        "2026-11-27T18:46:01+00:00",
    )


@pytest.mark.parametrize(
    ("job", "summary"),
    [
        ("many", "only 0 cores are free in the parallel environment smp"),
        ("gpus", "gpu1 offers only gpu=5"),
        ("held", "is held, or waits for another job"),
        (
            "error",
            'Grid Engine could not start it: can\'t open output file "/nonexistent/x": No such file or directory',
        ),
        ("too long", "because of cluster queue"),
        ("later", "waits for its begin time"),
    ],
)
def test_why_it_waits(job: str, summary: str) -> None:
    status = told(JOBS[job])
    explanation = pending(status.reason, job=JOBS[job], meaning=status.meaning)
    assert (status.state, status.node, status.ends) == (State.PENDING, None, None)
    assert summary in explanation.summary and "hard queue list" not in explanation.summary
    assert ("qrls 20" in explanation.action) == (job == "held")


def test_one_in_an_error_state_never_starts() -> None:
    """Nobody but the user, by hand, gets it out of there; after exit code 100 it is where its script wanted it."""
    error = told(JOBS["error"])
    assert error.meaning and error.meaning.never
    ended = f"<job_info>{ENTRY.replace('qw', 'Eqw')}</job_info>\n{DETAILS}\n{recorded('qstat-j-exit-100').stdout}"
    found = GRID.read_query([JobRef("1")], CommandResult(0, ended.replace(">7<", ">1<")))
    assert found and found["1"].meaning and found["1"].meaning.never
    assert "ended with exit code 100" in found["1"].meaning.summary


def test_a_site_may_not_tell_why() -> None:
    text = f"<job_info>{ENTRY}</job_info>\n{DETAILS}\n{'=' * 62}\njob_number:                 7\n"
    off = "scheduling info:            (Collecting of scheduler job information is turned off)\n"
    found = GRID.read_query([JobRef("7")], CommandResult(0, text + off))
    assert found and found["7"].meaning and "does not report" in found["7"].meaning.summary


ENTRY = (
    '<job_list state="pending"><JB_job_number>7</JB_job_number><state>qw</state><queue_name></queue_name></job_list>'
)


@pytest.mark.parametrize(
    ("letters", "state"),
    [
        ("qw", State.PENDING),
        ("hqw", State.PENDING),
        ("Rq", State.PENDING),
        ("Eqw", State.PENDING),
        ("t", State.RUNNING),
        ("Rr", State.RUNNING),
        ("hr", State.RUNNING),
        ("s", State.SUSPENDED),
        ("T", State.SUSPENDED),
        ("dr", State.COMPLETING),
        ("", State.UNKNOWN),
        ("h", State.UNKNOWN),
    ],
)
def test_states(letters: str, state: State) -> None:
    assert state_of(letters) is state


def test_only_what_qstat_says_is_gone_is_gone() -> None:
    assert GRID.read_query([JobRef("99999")], LISTED) == {}
    assert GRID.has_forgotten(JobRef("99999"), LISTED)
    assert not GRID.has_forgotten(JobRef("77"), LISTED)
    assert GRID.read_query([JobRef("7")], recorded("qstat-no-master")) is None
    assert not GRID.has_forgotten(JobRef("7"), recorded("qstat-no-master"))
    assert GRID.read_query([JobRef("7")], recorded("qstat-empty-xml")) == {}


def test_a_job_is_found_by_its_name_or_its_folder() -> None:
    names = {7: f"nb-{SUBMISSION.session_id}", 8: "mine", 9: "other"}
    rule = "=" * 62
    jobs = "".join(
        ENTRY.replace("7<", f"{number}<").replace("</job_list>", f"<JB_name>{name}</JB_name></job_list>")
        for number, name in names.items()
    )
    details = "".join(
        f"{rule}\njob_number:                 {number}\njob_name:                   x\njob_args:    {args}\n"
        for number, args in ((8, f"-c,x,bash,{FOLDER}/jupyterlab.sh,{FOLDER}"), (9, "1"))
    )
    answer = CommandResult(0, f"<job_info>{jobs}</job_info>\n{DETAILS}\n{details}")
    assert GRID.read_find(SUBMISSION.session_id, answer) == [JobRef("7"), JobRef("8")]
    assert GRID.read_find(SUBMISSION.session_id, recorded("qstat-no-master")) is None
    other = "20261121-143020-none"
    assert GRID.read_find(other, answer) is None, "it may be job 7, whose details are not there"
    gone = CommandResult(0, f"{answer.stdout}Following jobs do not exist: \n7\n")
    assert GRID.read_find(other, gone) == []


# --- the end -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "job", "state", "code"),
    [
        ("done-with-3", "22", State.FAILED, 3),
        ("walltime-notified", "16", State.TIMEOUT, 140),
        ("walltime-killed", "17", State.TIMEOUT, 137),
        ("deleted-notified", "27", State.CANCELLED, 140),
        ("deleted-killed", "28", State.CANCELLED, 137),
        ("exit-100", "1", State.FAILED, 100),
        ("output-not-opened", "21", State.FAILED, 0),
        ("memory", "24", State.FAILED, 1),
    ],
)
def test_ends(name: str, job: str, state: State, code: int) -> None:
    found = GRID.read_history(JobRef(job), recorded(f"qacct-{name}"))
    assert found and (found.state, found.exit_code) == (state, code)
    assert GRID.read_history(JobRef("2"), recorded(f"qacct-{name}")) is None, "that is another job"


@pytest.mark.parametrize(("per", "state"), [("core", State.CANCELLED), ("job", State.OUT_OF_MEMORY)])
def test_one_that_is_killed_beyond_its_memory_was_not_cancelled(per: str, state: State) -> None:
    text = recorded("qacct-deleted-killed").stdout
    for name, value in (("maxvmem", "250.5MB"), ("category", "-l h_rt=600,h_vmem=200M -pe smp 2"), ("slots", "2")):
        text, changed = re.subn(rf"^({name} +)[^ ].*$", rf"\g<1>{value}", text, flags=re.M)
        assert changed == 1
    grid = make_scheduler("gridengine", "", {"memory_per": per})
    found = grid.read_history(JobRef("28"), CommandResult(0, text))
    used = grid.read_accounting(JobRef("28"), CommandResult(0, text))
    assert found and found.state is state
    assert used and used.memory_limit == (200 if per == "job" else 400)


@pytest.mark.parametrize("name", ["deleted-while-held", "running", "unknown"])
def test_without_a_record_nothing_is_told(name: str) -> None:
    assert GRID.read_history(JobRef("15"), recorded(f"qacct-{name}")) is None
    assert GRID.read_accounting(JobRef("15"), recorded(f"qacct-{name}")) is None


def test_what_a_job_used() -> None:
    used = GRID.read_accounting(JobRef("27"), recorded("qacct-deleted-notified"))
    assert used and (used.wall, used.walltime, used.cores, used.gpus, used.partition) == (3, 600, 1, 0, "gpu.q")
    assert (used.cpu_used, used.cpu_reserved, used.memory_peak) == (0.008, 3, None)


def test_a_job_that_was_put_back_has_several_records() -> None:
    once = recorded("qacct-deleted-notified").stdout
    again = once.replace("failed       0    ", "failed       25  : rescheduling")
    assert GRID.read_history(JobRef("27"), CommandResult(0, once + again)) is None
    found = GRID.read_history(JobRef("27"), CommandResult(0, again + once))
    assert found and found.state is State.CANCELLED


def test_what_it_does_not_have_is_not_pretended() -> None:
    assert GRID.step(JobRef("7"), ["true"]) is None
    assert GRID.cancel_all([JobRef("7"), JobRef("8")]) == ["qdel", "7", "8"]
    assert GRID.log_files({"output": "out.%j", "error": "e"}, JobRef("7"), user="a", node=None) == ["e", "out.7"]


# --- beyond one's own jobs -----------------------------------------------------------------------------------


INFO = GRID.cluster_info
assert INFO is not None
RUNNING = recorded("list-and-details").stdout.partition(DETAILS)[0]


def test_queues() -> None:
    found = INFO.read_partitions(recorded("qconf-queue"))
    assert found and [one.name for one in found] == ["all.q", "gpu.q"]
    assert found[0].walltime and found[0].walltime.is_unlimited
    assert found[1].walltime and found[1].walltime.as_text() == "2 days"
    assert found[0].accounts is None
    special = (
        recorded("qconf-queue")
        .stdout.replace("48:00:00", "24:00:00,[gpu1=48:00:00]")
        .replace("projects              NONE", "projects              p1 p2")
    )
    found = INFO.read_partitions(CommandResult(0, special))
    assert found and found[1].walltime and found[1].walltime.as_text() == "1 day"
    assert found[1].accounts == {"p1", "p2"}


def test_hosts_with_what_is_in_use() -> None:
    hosts = recorded("qhost-xml").stdout
    found = INFO.read_nodes(CommandResult(0, f"{hosts}--- jobs that run ---\n{RUNNING}"))
    assert found and [(one.name, one.partition, one.cores) for one in found] == [
        ("gpu1", "gpu.q", 16),
        ("node1", "all.q", 20),
        ("node2", "all.q", 20),
    ]
    assert (found[0].gpus, found[0].gpus_used, found[1].gpus) == ({"": 6}, {"": 1}, {})
    assert all(one.available for one in found)
    closed = hosts.replace("name='state_string'></queuevalue>", "name='state_string'>au</queuevalue>")
    found = INFO.read_nodes(CommandResult(0, closed))
    assert found and not any(one.available for one in found)


def test_who_waits() -> None:
    found = INFO.read_pending_jobs(recorded("qstat-all-pending"))
    assert found and {(one.id, one.cores, one.gpus) for one in found} >= {("18", 30, 0), ("19", 1, 9)}
    assert INFO.read_ahead("19", recorded("qstat-all-pending")) == 1, "one before it is in an error state"
    assert INFO.read_ahead("77", recorded("qstat-all-pending")) is None
    assert INFO.read_pending_jobs(recorded("qstat-no-master")) is None


def test_whether_it_could_start() -> None:
    words = INFO.estimate_start(Request({"time": "1:00", "gpus": "1"}))
    expected = "verify -N nb-verified -o /dev/null -j y -l h_rt=0:01:00 -l gpu=1"
    assert " ".join(words[3:]) == expected
    assert re.findall(r"qsub (\S+ -w \S+)", words[2]) == ['"$@" -w p', '"$@" -w v'], "whatever a profile's qsub says"
    assert INFO.read_start_estimate(CommandResult(0, "now 2026-11-27T18:00:00+00:00\n")).start
    later = INFO.read_start_estimate(CommandResult(0, "ever\n"))
    assert later.start is None and later.refusal is None and later.is_later and "does not estimate" in later.message
    assert not INFO.read_start_estimate(CommandResult(0, "")).is_later
    never = INFO.read_start_estimate(recorded("qsub-verify-too-long"))
    assert isinstance(never.refusal, errors.SizeRefused)


@given(
    st.sampled_from(["qconf-queue", "qhost-xml", "qstat-all-pending"]).flatmap(
        lambda name: recordings.damaged(recorded(name).stdout)
    )
)
def test_damaged_tables_break_nothing(text: str) -> None:
    for code in (0, 1):
        answer = CommandResult(code, text)
        INFO.read_partitions(answer)
        INFO.read_nodes(answer)
        INFO.read_pending_jobs(answer)
        INFO.read_ahead("19", answer)
        INFO.read_start_estimate(answer)


TRUE_STATES = {job: status.state for job, status in (GRID.read_query(
    [JobRef(job) for job in JOBS.values()], LISTED) or {}).items()}  # fmt: skip


@given(recordings.damaged(LISTED.stdout))
def test_a_damaged_list_is_no_answer_or_the_truth(text: str) -> None:
    """Lines in another order may belong to another job: but none is called over, and none is called gone."""
    answer = CommandResult(0, text)
    found = GRID.read_query([JobRef(job) for job in JOBS.values()], answer)
    assert not any(status.state.ended for status in (found or {}).values())
    GRID.read_find("x", answer)
    if LISTED.stdout.startswith(text):  # cut
        assert all(status.state is TRUE_STATES[job] for job, status in (found or {}).items())
        assert not any(GRID.has_forgotten(JobRef(job), answer) for job in JOBS.values())


@given(recordings.damaged(recorded("qacct-walltime-killed").stdout), st.sampled_from([0, 1]))
def test_a_damaged_record_is_no_end_or_the_truth(text: str, code: int) -> None:
    found = GRID.read_history(JobRef("17"), CommandResult(code, text))
    assert found is None or found.state.ended
    if recorded("qacct-walltime-killed").stdout.startswith(text):
        assert found is None or found.state is State.TIMEOUT
    GRID.read_accounting(JobRef("17"), CommandResult(code, text))
