"""Checks of the scheduler: its commands, accounts, reservations, and how much room there is."""

from __future__ import annotations

import dataclasses
from datetime import date, datetime, timedelta
from typing import cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from notebook_launcher.core import events
from notebook_launcher.core.check_runner import CheckRunner
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    AccountRefused,
    ChecksFailed,
    ReservationRefused,
)
from notebook_launcher.core.finding import fault, ok
from notebook_launcher.core.request import Request
from notebook_launcher.diagnosis.request_check import SchedulerReport, assess_account, assess_reservation, gpu_types
from notebook_launcher.doctor.checks.course import check_reservations
from notebook_launcher.doctor.checks.queue import check_request, check_scheduler
from notebook_launcher.doctor.findings import (
    assess_programs,
    covers,
    expand,
    nodes_in_service,
    sessions_on,
)
from notebook_launcher.hosts.base import Host
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles.models import ClusterProfile, CourseProfile, Reservation
from notebook_launcher.schedulers.cluster_info import Node, ReservationInfo
from notebook_launcher.schedulers.lsf.commands import Lsf
from notebook_launcher.schedulers.slurm.cluster_info import SlurmClusterInfo
from notebook_launcher.schedulers.slurm.commands import Slurm
from tests.doubles import FakeHost, RecordingView
from tests.fuzzing import examples
from tests.unit.doctor.check_results import NOW, results
from tests.unit.schedulers.test_lsf_cluster_info import QUEUES


def test_a_scheduler_is_not_asked_what_it_cannot_tell() -> None:
    shown, scheduler = RecordingView(), Lsf()
    scheduler.cluster_info = None
    nobody = cast(Host, None)  # it is not asked
    told = check_request(CheckRunner(shown), nobody, scheduler, Request({"time": "2:00:00"}), "alice", NOW)
    assert results(shown) == dict.fromkeys(("account", "walltime", "start"), "unknown")
    assert told.partitions is None


@pytest.mark.parametrize(("walltime", "start"), [("2:00:00", "unknown"), ("200:00:00", "skipped")])
def test_where_no_start_is_estimated_the_limits_are_judged(walltime: str, start: str) -> None:
    host = FakeHost(lambda argv: CommandResult(0, QUEUES if "bqueues" in argv else ""))
    shown = RecordingView()
    check_request(CheckRunner(shown), host, Lsf(), Request({"time": walltime, "partition": "hpc"}), "alice", NOW)
    assert results(shown)["start"] == start
    assert results(shown)["walltime"] == ("ok" if start == "unknown" else "fault")


def test_commands_that_are_not_found() -> None:
    assert assess_programs({"sbatch": "", "squeue": ""}, "").result == "fault"
    assert assess_programs({"sbatch": "/usr/bin/sbatch", "sacct": ""}, "slurm 24.11").result == "warning"
    assert assess_programs({"sbatch": "/usr/bin/sbatch"}, "slurm 24.11") == ok("slurm 24.11: sbatch")


def test_where_a_module_may_bring_the_commands_it_is_named() -> None:
    def answer(argv: list[str]) -> CommandResult:
        return CommandResult(0, "sbatch \nsqueue \n" if argv[0] == "sh" else "\nmodule slurm/24.11\n")

    shown = RecordingView()
    target = LaunchTarget(ClusterProfile(), "uni", None, "slurm")
    check_scheduler(CheckRunner(shown), FakeHost(answer), Slurm(), target)
    assert results(shown) == {"scheduler": "fault"}
    found = shown.all(events.CheckResult)[-1].found
    assert found == "There is no sbatch on the login node. A module may provide the commands: slurm/24.11."
    assert "clusters edit uni --set 'login_setup=[\"module load slurm\"]'" in shown.all(events.CheckResult)[-1].hint


def test_accounts() -> None:
    refusal = AccountRefused("There is no such account.", why="Invalid account", hint="sacctmgr show assoc")
    assert assess_account("proj1", ("proj1",), None).result == "ok"
    assert assess_account("from-a-plugin", ("proj1",), None).result == "ok"  # the scheduler takes it: it knows better
    near = assess_account("prj1", ("proj1", "other"), refusal)
    assert (
        near.found == "The account prj1 is not yours. Yours are: proj1, other."
        and near.hint == "did you mean -A proj1?"
    )
    assert assess_account("proj1", None, refusal).hint == "sacctmgr show assoc"


LAB = ReservationInfo("lab1", "2026-11-20T08:00:00+0000", "2026-11-27T18:00:00+0000", "gpu[1-2]", "alice,bob")


def test_reservations() -> None:
    assert assess_reservation("lab1", (LAB,), NOW, None).result == "ok"
    assert "for users alice,bob" in assess_reservation("lab1", (LAB,), NOW, None).found
    assert assess_reservation("lab", (LAB,), NOW, None).hint == "did you mean lab1?"
    assert assess_reservation("lab1", (LAB,), NOW + timedelta(days=9), None).found.startswith("The reservation is over")
    refused = assess_reservation("lab1", (LAB,), NOW, ReservationRefused("Access denied."))
    assert refused.result == "fault" and "alice,bob" in refused.hint
    assert assess_reservation("lab1", None, NOW, None).result == "unknown"
    early = assess_reservation("lab1", (LAB,), NOW - timedelta(days=9), None)
    assert early.result == "ok" and "waits until then" in early.found


def course_checks(now: datetime, *names: str, asked: str | None = None) -> tuple[RecordingView, CheckRunner]:
    """Check a course with lab1 and one of a later day, where there are reservations with these names."""
    shown = RecordingView()
    checks = CheckRunner(shown)
    course = CourseProfile(name="c", reservations=(
        Reservation(name="lab1", first=date(2026, 11, 20), last=date(2026, 11, 27)),
        Reservation(name="gpulab-2", first=date(2026, 12, 1), last=date(2026, 12, 1)),
    ))  # fmt: skip
    there = tuple(dataclasses.replace(LAB, name=name, end="2026-12-02T00:00:00+0000") for name in names)
    check_reservations(checks, course, SchedulerReport(reservations=there), now, asked)
    return shown, checks


def test_who_stumbles_over_a_reservation_of_a_later_day() -> None:
    shown, checks = course_checks(NOW, "lab1")
    assert results(shown) == {"reservation lab1": "ok", "reservation gpulab-2": "fault"}
    with pytest.raises(ChecksFailed) as failed:
        checks.summarise()
    assert failed.value.why == "Students on 2026-12-01 would fail because of this."
    assert "--reservation" not in failed.value.hint
    checks.report("account", fault("Not yours.", "another"))
    with pytest.raises(ChecksFailed) as failed:
        checks.summarise()
    assert failed.value.why == "Students on 2026-12-01 and a launch would fail because of this."


def test_a_reservation_is_told_once_and_one_whose_days_are_over_is_missed_by_nobody() -> None:
    assert results(course_checks(NOW, "lab1", "gpulab-2", asked="lab1")[0]) == {"reservation gpulab-2": "ok"}
    later = course_checks(NOW + timedelta(days=8), "gpulab-2")[0]
    assert results(later) == {"reservation lab1": "ok", "reservation gpulab-2": "ok"}


def test_whether_a_reservation_covers_the_days_of_a_course() -> None:
    assert covers(LAB, date(2026, 11, 20), date(2026, 11, 27), NOW)
    assert not covers(LAB, date(2026, 11, 20), date(2026, 11, 28), NOW)


def test_the_short_form_of_nodes() -> None:
    assert expand("gpu[1-3,07],login,n[08-10]-ib") == [
        "gpu1", "gpu2", "gpu3", "gpu07", "login", "n08-ib", "n09-ib", "n10-ib",
    ]  # fmt: skip
    assert expand("") == []


NAMES = st.sampled_from(["gpu[", "]", "-", ",", "1", "07", "9" * 12, "9" * 5000, "٣", "x", "[0-99999999999]"])


@settings(deadline=None, max_examples=examples(8))
@given(st.lists(NAMES).map("".join))
@example("n[0-" + "9" * 15 + "]")
@example("n[1-" + "9" * 5000 + "]")
@example("n[" + "0-99999," * 99 + "]")
def test_any_list_of_nodes_has_an_end(names: str) -> None:
    assert len(expand(names)) <= 20_000


def test_how_much_room_there_is() -> None:
    nodes = [Node("gpu1", "gpu", "idle", True, 16, 0, {"t4": 2}), Node("gpu1", "core", "idle", True, 16, 0, {"t4": 2}),
             Node("gpu2", "gpu", "down", False, 16, 0, {"t4": 2}), Node("n1", "core", "idle", True, 20, 0)]  # fmt: skip
    assert [node.name for node in nodes_in_service(["gpu1", "gpu2"], [], nodes)] == ["gpu1"]
    assert {node.name for node in nodes_in_service(None, ["core"], nodes)} == {"gpu1", "n1"}
    assert {node.name for node in nodes_in_service(None, ["gpu", "core"], nodes)} == {"gpu1", "n1"}


@pytest.mark.parametrize(
    ("flags", "count"),
    [({"gpus": "a100:2"}, 1), ({"gpus": "t4:2"}, 4), ({"gres": "gpu:3"}, 4), ({"gpus-per-node": "16"}, 0),
     ({"gpus": "t4:1,a100:1"}, 2), ({"ntasks": "4"}, 0)],
)  # fmt: skip
def test_room_is_counted_by_type_and_node_by_node(flags: dict[str, str | None], count: int) -> None:
    nodes = [Node("g1", "gpu", "idle", True, 16, 0, {"t4": 8}), Node("g2", "gpu", "idle", True, 16, 0, {"a100": 2}),
             Node("g3", "gpu", "idle", True, 16, 0, {"": 4, "h100": 2})]  # fmt: skip
    extra = [Node("g4", "gpu", "idle", True, 16, 0, {"t4": 2, "a100": 2})] if "," in (flags.get("gpus") or "") else []
    assert sessions_on([*nodes, *extra], Request(flags)) == count


def test_types_of_gpus_that_are_named() -> None:
    assert gpu_types(Request({"gpus": "a100:1"})) == {"a100"}
    assert gpu_types(Request({"gres": "gpu:t4:1,scratch:5"})) == {"t4"}
    assert gpu_types(Request({"gpus": "2"})) == gpu_types(Request({"gres": "gpu:1"})) == set()


def test_accounts_and_reservations_are_read_as_slurm_writes_them() -> None:
    cluster_info = SlurmClusterInfo()
    told = "practice\npractice|proj1\npractice|proj2\nsnowy|proj7\npractice|proj1\n"
    assert cluster_info.read_accounts(CommandResult(0, told)) == ("proj1", "proj2")
    assert cluster_info.read_accounts(CommandResult(1, "practice\n", "Slurm accounting storage is disabled")) is None
    told = "practice\npractice|proj1|normal,short\npractice|proj2|\nsnowy|proj7|gold\npractice|proj1|short,vip\n"
    assert cluster_info.read_accounts(CommandResult(0, told)) == ("proj1", "proj2")
    assert cluster_info.read_qos(CommandResult(0, told)) == {"proj1": ("normal", "short", "vip"), "proj2": ()}
    assert cluster_info.read_qos(CommandResult(1, "practice\n")) is None
    told = "core|gpu,skylake\ncore|thin,skylake\nbare|(null)\nnonsense\n"
    assert cluster_info.read_features(CommandResult(0, told)) == {"core": ("gpu", "skylake", "thin"), "bare": ()}
    assert cluster_info.read_features(CommandResult(1, "", "slurm_load_partitions: no")) is None
    line = (
        "ReservationName=lab1 StartTime=2026-11-21T23:14:20 EndTime=2027-11-21T23:14:20 Duration=365-00:00:00 "
        "Nodes=(null) NodeCnt=0 CoreCnt=0 Features=(null) PartitionName=core Flags=ANY_NODES TRES=(null) "
        "Users=alice Groups=(null) Accounts=proj1 Licenses=lab1:1 State=ACTIVE BurstBuffer=(null)\n"
    )
    assert cluster_info.read_reservations(CommandResult(0, line)) == (
        ReservationInfo("lab1", "2026-11-21T23:14:20", "2027-11-21T23:14:20", "", "alice", "proj1"),
    )
    assert cluster_info.read_reservations(CommandResult(0, "No reservations in the system\n")) == ()
    assert cluster_info.read_reservations(CommandResult(1)) is None
