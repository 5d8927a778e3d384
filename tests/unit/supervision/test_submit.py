"""Submitting the job: refused, not answered, or not heard."""

from __future__ import annotations

import dataclasses
import io
import tarfile
from collections.abc import Callable
from typing import Literal

import pytest

from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    AccountRefused,
    ClusterRefused,
    ConnectionLost,
    ConstraintRefused,
    HostCommandFailed,
    Interrupted,
    LauncherError,
    LicenceRefused,
    LoginShellSilent,
    PartitionRefused,
    SchedulerAway,
    SizeRefused,
    SubmitUncertain,
    WalltimeRefused,
)
from notebook_launcher.core.interrupts import HungUp, Kind
from notebook_launcher.core.package_data import JOB_FILES, checksums, digest_in, job_files
from notebook_launcher.core.request import Request, merge_flags
from notebook_launcher.jobs.submit import name_profile_in_refusal
from notebook_launcher.planning.course_summary import idle_rules
from notebook_launcher.profiles import ClusterProfile
from notebook_launcher.profiles.models import CourseProfile
from tests.unit.supervision.launcher_doubles import PLAN, TARGET, Launcher, failing, no_answer


@pytest.mark.real_time
def test_ctrl_c_while_the_scheduler_takes_its_time(launcher: Launcher) -> None:
    """As with a site's wrapper around sbatch that queues the job and answers half a minute later."""
    launcher.set_timing(submit_slow_after=0.2)
    answers = launcher.blocks("sbatch")
    launcher.launch()
    launcher.noted("slow to accept the job")
    launcher.presses_ctrl_c(4)
    launcher.noted("cancelled as soon as that is done")
    assert launcher.host.count("scancel") == 0
    answers.set()
    launcher.fails(Interrupted)
    assert launcher.host.commands("scancel") == ["scancel 7"]
    assert len(launcher.notes) == 2


def test_a_scheduler_that_took_the_job_and_did_not_say_so(launcher: Launcher) -> None:
    """slurmctld may have the job when sbatch gives up waiting for its answer; it shows a moment later."""
    launcher.set_timing(submitted_appears_within=20.0, lookup_pause=0.01)
    rows = [CommandResult(1, "", "Socket timed out"), CommandResult(0, ""), None]
    launcher.host.answers["sbatch"] = no_answer
    launcher.host.answers["find"] = lambda: (
        rows.pop(0) or CommandResult(0, f"7|x|{launcher.host.commands('sbatch')[0].split()[-2]}\n")
    )
    launcher.launch()
    launcher.shown(events.Pending)
    assert launcher.shown(events.Submitted).job == "7"
    launcher.presses_ctrl_c(1)
    launcher.fails(Interrupted)


@pytest.mark.parametrize(
    ("found", "kind"),
    [(CommandResult(0, ""), SchedulerAway), (CommandResult(1, "", "Socket timed out"), SubmitUncertain)],
)
def test_a_scheduler_that_did_not_hear(launcher: Launcher, found: CommandResult, kind: type[LauncherError]) -> None:
    launcher.set_timing(submitted_appears_within=0.1)
    launcher.host.answers |= {"sbatch": no_answer, "find": lambda: found}
    launcher.launch()
    error = launcher.fails(kind)
    assert "Socket timed out" in error.why
    assert launcher.host.count("rm") == (kind is SchedulerAway)
    if kind is SubmitUncertain:
        assert "squeue" in error.hint


@pytest.mark.parametrize("asked", [frozenset(), frozenset({"partition"})], ids=["by the profile", "by the user"])
def test_a_refusal_of_what_the_profile_asked_for_says_so(launcher: Launcher, asked: frozenset[str]) -> None:
    launcher.host.answers["sbatch"] = lambda: CommandResult(1, "", "sbatch: error: invalid partition specified: old\n")
    profile = ClusterProfile(defaults={"partition": "old"})
    plan = dataclasses.replace(PLAN, target=dataclasses.replace(TARGET, profile=profile))
    launcher.launch(dataclasses.replace(plan, request=Request({"partition": "old"}), user_flags=asked))
    error = launcher.fails(PartitionRefused)
    assert asked or "specified: old. The profile" in error.why
    assert ("The profile “uni” asks for it: --partition=old." in error.why) is not asked


def test_a_refused_launch_of_a_course_says_how_to_launch_without_it() -> None:
    plan = dataclasses.replace(PLAN, target=dataclasses.replace(TARGET, course=CourseProfile(name="ml")))
    with pytest.raises(AccountRefused) as refused, name_profile_in_refusal(plan):
        raise AccountRefused("The account is not yours.", hint="name one of yours with -A")
    assert refused.value.hint == ("name one of yours with -A   or without the course: launch-notebook course forget ml")


@pytest.mark.parametrize(
    ("idle_stop", "gpu_idle", "gpus", "rule"),
    [
        (1800, "end", "1", "A session of this course ends by itself after 30 min without use, or with an idle GPU."),
        (1800, "warn", "1", "A session of this course ends by itself after 30 min without use."),
        (1800, "end", "0", "A session of this course ends by itself after 30 min without use."),
        (0, "end", "1", None),
    ],
)
def test_the_idle_rules_of_a_course_are_said_in_a_line(
    idle_stop: int, gpu_idle: Literal["warn", "end"], gpus: str, rule: str | None
) -> None:
    target = dataclasses.replace(TARGET, course=CourseProfile(name="ml"), profile=ClusterProfile(gpu_idle=gpu_idle))
    plan = dataclasses.replace(PLAN, target=target, idle_stop=idle_stop, request=Request({"gpus": gpus}))
    assert idle_rules(plan) == rule
    assert idle_rules(dataclasses.replace(plan, target=TARGET)) is None


def test_the_launchers_own_walltime_is_no_wish_of_the_profiles(launcher: Launcher) -> None:
    launcher.host.answers["sbatch"] = lambda: CommandResult(1, "", "sbatch: error: Requested time limit is invalid\n")
    launcher.launch(dataclasses.replace(PLAN, request=Request(merge_flags({}, {}))))
    assert "profile" not in launcher.fails(WalltimeRefused).why


def test_an_interrupt_while_the_job_is_looked_for(launcher: Launcher) -> None:
    launcher.host.answers["sbatch"] = lambda: CommandResult(0, "thank you\n")
    launcher.hooks.at("find", lambda: launcher.interrupts.arrive("end"))
    launcher.host.answers["find"] = lambda: CommandResult(0, f"7|x|{launcher.host.commands('sbatch')[0].split()[-2]}\n")
    launcher.launch()
    launcher.fails(Interrupted)
    assert launcher.host.commands("scancel") == ["scancel 7"]
    assert launcher.host.count("rm") == 0


def test_refused(launcher: Launcher) -> None:
    launcher.host.answers["sbatch"] = lambda: CommandResult(1, "", "sbatch: error: invalid partition specified: x\n")
    launcher.launch()
    assert "no partition of that name" in launcher.fails(PartitionRefused).what
    directory = launcher.host.commands("sbatch")[0].split()[2]
    assert launcher.host.commands("rm") == [f"rm -rf -- {directory}"]
    assert launcher.host.count("scancel") == 0
    assert launcher.names == []


def test_a_refusal_is_explained_by_what_the_cluster_reports(launcher: Launcher) -> None:
    """Asked for with one login, after the refusal; the scheduler's own message stays."""
    refused = "sbatch: error: Batch job submission failed: Requested node configuration is not available\n"
    launcher.host.answers["sbatch"] = lambda: CommandResult(1, "", refused)
    partition = "PartitionName=core Default=YES State=UP TotalNodes=3 MaxTime=1-00:00:00"
    answers = ["", "", "", "", partition]  # the nodes, limits, accounts and reservations are not reported
    launcher.host.answers["ask"] = lambda: CommandResult(0, "".join(f"{one}\n--answered-- 0\n" for one in answers))
    launcher.launch(dataclasses.replace(PLAN, request=Request({"nodes": "9", "time": "1:00:00"})))
    error = launcher.fails(SizeRefused)
    assert error.what == "Slurm refused the job. It asks for 9 nodes, and partition core has 3."
    assert error.hint == "try -N 3, or another partition with -p"
    assert "Requested node configuration is not available" in error.why
    assert launcher.host.count("ask") == 1


@pytest.mark.parametrize(
    ("refused", "sixth_answer", "flags", "kind", "meant"),
    [
        ("feature", "core|thin,skylake", {"constraint": "thn"}, ConstraintRefused, "-C thin"),
        ("license", "LicenseName=matlab Total=1 Used=0", {"licenses": "matlb"}, LicenceRefused, "-L matlab"),
    ],
)
def test_features_and_licences_are_asked_for_with_the_rest_if_one_is_refused(
    launcher: Launcher, refused: str, sixth_answer: str, flags: dict[str, str], kind: type[LauncherError], meant: str
) -> None:
    refusal = f"sbatch: error: Batch job submission failed: Invalid {refused} specification\n"
    launcher.host.answers["sbatch"] = lambda: CommandResult(1, "", refusal)
    answers = ["", "", "", "", "PartitionName=core Default=YES State=UP", sixth_answer]
    launcher.host.answers["ask"] = lambda: CommandResult(0, "".join(f"{one}\n--answered-- 0\n" for one in answers))
    launcher.launch(dataclasses.replace(PLAN, request=Request({**flags, "time": "1:00:00"})))
    assert launcher.fails(kind).hint == f"did you mean {meant}?"
    assert launcher.host.count("ask") == 1


def test_for_an_unknown_cluster_only_those_that_there_are_are_asked_for(launcher: Launcher) -> None:
    refused = "sbatch: error: No cluster 'snwy' known by database.\n"
    launcher.host.answers["sbatch"] = lambda: CommandResult(1, "", refused)
    launcher.host.answers["ask"] = lambda: CommandResult(0, "practice\nsnowy\n\n--answered-- 0\n")
    launcher.launch(dataclasses.replace(PLAN, request=Request({"clusters": "snwy", "time": "1:00:00"})))
    error = launcher.fails(ClusterRefused)
    assert error.what == "The job was not queued. There is no cluster snwy. The clusters are: snowy, practice."
    assert error.hint == "did you mean -M snowy?"
    assert "scontrol" not in launcher.host.commands("ask")[0]


@pytest.mark.parametrize("error", [ConnectionLost("Lost."), HostCommandFailed("It did not answer within 15 s.")])
def test_a_refusal_that_cannot_be_explained_is_still_the_error(launcher: Launcher, error: LauncherError) -> None:
    launcher.host.answers["sbatch"] = lambda: CommandResult(1, "", "sbatch: error: invalid partition specified: x\n")
    launcher.host.answers["ask"] = failing(error)
    launcher.launch()
    assert "no partition of that name" in launcher.fails(PartitionRefused).what


def test_a_number_that_cannot_be_read_is_looked_up_by_name(launcher: Launcher) -> None:
    launcher.host.answers["sbatch"] = lambda: CommandResult(0, "Your job was sent. Good luck!\n")

    def ours() -> CommandResult:
        name = launcher.host.commands("sbatch")[0].split()[2].rpartition("/")[2]
        return CommandResult(0, f"6|other|/home/alice/other.sh\n7|{name}|/x\n")

    launcher.host.answers["find"] = ours
    launcher.launch()
    launcher.attach()
    launcher.types("")
    launcher.well()
    assert launcher.host.commands("scancel") == ["scancel 7"]
    assert launcher.host.count("rm") == 0


@pytest.mark.parametrize(
    "error",
    [
        ConnectionLost("The connection to login is lost."),
        HostCommandFailed("It did not answer within 90 s."),
        LoginShellSilent("Your login shell on login runs no commands."),
    ],
    ids=["connection", "too slow", "its output goes elsewhere"],
)
def test_the_answer_of_sbatch_is_lost_but_noted_there(launcher: Launcher, error: LauncherError) -> None:
    launcher.host.answers["sbatch"] = failing(error)
    launcher.host.files["job"] = "7\n"
    launcher.launch()
    assert launcher.attach().job == "7"
    launcher.types("")
    launcher.well()


@pytest.mark.parametrize(
    ("sbatch", "find"),
    [
        pytest.param(lambda: CommandResult(0, "Good luck!\n"), lambda: CommandResult(0, ""), id="no number and no job"),
        pytest.param(
            lambda: CommandResult(0, "Good luck!\n"),
            lambda: CommandResult(1, "", "Socket timed out"),
            id="no number and no squeue",
        ),
        pytest.param(
            failing(ConnectionLost("The connection to login is lost.")),
            failing(ConnectionLost("The connection to login is lost.")),
            id="no connection",
        ),
        pytest.param(
            failing(HostCommandFailed("It did not answer within 90 s.")),
            failing(HostCommandFailed("It did not answer within 90 s.")),
            id="too slow",
        ),
    ],
)
def test_whether_it_is_queued_is_not_known(
    launcher: Launcher, sbatch: Callable[[], CommandResult], find: Callable[[], CommandResult]
) -> None:
    launcher.host.answers |= {"sbatch": sbatch, "find": find}
    launcher.launch()
    error = launcher.fails(SubmitUncertain)
    assert "may have been queued" in error.what and "squeue" in error.hint and "--me" in error.hint
    assert "launch-notebook stop" in error.hint
    assert launcher.host.count("rm") == launcher.host.count("scancel") == 0
    assert {*launcher.names} <= {"note"}


def test_a_login_shell_that_did_not_submit_the_job_is_the_error(launcher: Launcher) -> None:
    silent = failing(LoginShellSilent("Your login shell on login runs no commands."))
    launcher.host.answers |= {"sbatch": silent, "find": silent}
    launcher.launch()
    launcher.fails(LoginShellSilent)
    assert (launcher.host.count("rm"), launcher.host.count("scancel")) == (1, 0)


def test_a_connection_that_breaks_while_the_job_is_queued_is_made_anew_for_the_answer(launcher: Launcher) -> None:
    def breaks() -> CommandResult:
        launcher.host.drops()
        raise ConnectionLost("The connection to login is lost.")

    launcher.host.answers["sbatch"] = breaks
    launcher.host.files["job"] = "7\n"
    launcher.launch()
    launcher.shown(events.Pending)
    assert launcher.host.connection == 1
    launcher.presses_ctrl_c(1)
    launcher.fails(Interrupted)
    assert launcher.host.commands("scancel") == ["scancel 7"]


@pytest.mark.real_time
def test_a_look_that_fails_takes_back_the_certainty_of_the_one_before(launcher: Launcher) -> None:
    launcher.set_timing(submitted_appears_within=0.2, lookup_pause=0.02)
    looks = iter([CommandResult(0, "")])
    launcher.host.answers |= {
        "sbatch": no_answer,
        "find": lambda: next(looks, CommandResult(1, "", "Socket timed out")),
    }
    launcher.launch()
    launcher.fails(SubmitUncertain)
    assert launcher.host.count("rm") == 0


def test_files_that_cannot_be_written(launcher: Launcher) -> None:
    launcher.host.answers["write"] = lambda: CommandResult(1, "", "tar: Disk quota exceeded")
    launcher.launch()
    assert "quota" in launcher.fails(HostCommandFailed).why
    assert launcher.host.count("sbatch") == launcher.host.count("scancel") == 0


def sent_files(archive: bytes) -> set[str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        return set(files.getnames())


def test_the_round_trips_of_a_launch(launcher: Launcher) -> None:
    """Each command costs two. What is written is written by the command that submits the job."""
    launcher.launch()
    launcher.shown(events.Pending)
    assert [kind for kind, _ in launcher.host.ran][:4] == ["site", "list", "write", "sbatch"]
    assert sent_files(launcher.host.sent[0]) >= {"session.json", "token", "scripts.sha256", *JOB_FILES}
    launcher.presses_ctrl_c(1)
    launcher.fails(Interrupted)


@pytest.mark.parametrize("there", [True, False])
def test_job_scripts_that_a_session_has_left_are_not_sent_again(launcher: Launcher, there: bool) -> None:
    """Unless they turn out to be incomplete: then nothing was submitted, and they are sent."""
    answers = [*([] if there else [CommandResult(75, "job scripts needed\n")]), CommandResult(0, "7\n")]
    launcher.host.shared_scripts = ["0" * 64, digest_in(checksums(job_files()))]
    launcher.host.answers["sbatch"] = lambda: answers.pop(0)
    launcher.launch()
    assert launcher.shown(events.Submitted).job == "7"
    few, *rest = map(sent_files, launcher.host.sent)
    assert few & {*JOB_FILES} == {"submit.sh"} and few >= {"session.json", "session.env", "token", "scripts.sha256"}
    assert [files >= {*JOB_FILES} for files in rest] == ([] if there else [True])
    launcher.presses_ctrl_c(1)
    launcher.fails(Interrupted)


@pytest.mark.parametrize(("kind", "error"), [("end", Interrupted), ("leave", HungUp)])
def test_an_interrupt_before_the_job_scripts_are_sent_after_all(
    launcher: Launcher, kind: Kind, error: type[BaseException]
) -> None:
    """Nothing was submitted until then, so nothing is."""
    launcher.host.shared_scripts = [digest_in(checksums(job_files()))]
    launcher.host.answers["sbatch"] = lambda: CommandResult(75, "job scripts needed\n")
    launcher.hooks.at("sbatch", lambda: launcher.interrupts.arrive(kind))
    launcher.launch()
    raised = launcher.fails(error)
    assert not isinstance(raised, Interrupted) or "No job was started" in raised.why
    assert launcher.host.count("sbatch") == launcher.host.count("rm") == 1
    assert len([note for note in launcher.notes if "cancelled as soon" in note]) == (kind == "end")


@pytest.mark.real_time
@pytest.mark.parametrize(
    "lost",
    [ConnectionLost("The connection to login is lost."), HostCommandFailed("It did not answer within 90 s.")],
    ids=["connection", "too slow"],
)
@pytest.mark.parametrize("can_be_stopped", [True, False])
@pytest.mark.parametrize("find", [CommandResult(0, ""), CommandResult(1, "", "Socket timed out")])
def test_a_connection_that_breaks_while_the_files_are_written(
    launcher: Launcher, lost: LauncherError, can_be_stopped: bool, find: CommandResult
) -> None:
    """Nothing is submitted only where submit.sh can be kept from its place; the directory stays for that."""
    launcher.set_timing(submitted_appears_within=0.1, lookup_pause=0.02)
    launcher.host.answers |= {
        "write": failing(lost),
        "find": lambda: find,
        "mkdir": lambda: CommandResult(0 if can_be_stopped else 1),
    }
    launcher.launch()
    if can_be_stopped:
        assert "files were not written, and no job was submitted" in launcher.fails(type(lost)).why
    else:
        launcher.fails(SubmitUncertain)
    (blocked,) = launcher.host.commands("mkdir")
    directory = blocked.removeprefix("mkdir -- ").removesuffix("/submit.sh")
    removed = [f"rm -f -- {directory}/session.json {directory}/token"] if can_be_stopped else []
    assert launcher.host.commands("rm") == removed


def test_a_login_shell_that_takes_too_long_to_start_submits_nothing(launcher: Launcher) -> None:
    late = HostCommandFailed("bash did not answer within 90 s on login.")
    late.may_have_run = False
    launcher.host.answers["sbatch"] = failing(late)
    launcher.launch()
    assert "did not answer within 90 s" in launcher.fails(HostCommandFailed).what
    assert (launcher.host.count("find"), launcher.host.count("rm")) == (0, 1)


def test_a_submit_command_that_fails_with_the_same_exit_code_is_not_run_twice(launcher: Launcher) -> None:
    launcher.host.shared_scripts = [digest_in(checksums(job_files()))]
    launcher.host.answers["sbatch"] = lambda: CommandResult(75, "", "sbatch: error: invalid partition specified: x\n")
    launcher.launch()
    launcher.fails(PartitionRefused)
    assert launcher.host.count("sbatch") == 1
