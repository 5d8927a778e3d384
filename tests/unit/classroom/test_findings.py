"""What a class needs, assessed from what the scheduler and the cluster report."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from notebook_launcher.classroom import findings
from notebook_launcher.classroom.class_folder import FolderFacts
from notebook_launcher.classroom.findings import Demand
from notebook_launcher.core.request import Request
from notebook_launcher.core.walltime import UNLIMITED
from notebook_launcher.schedulers.cluster_info import Limit, Node, ReservationInfo

NOW = datetime(2026, 11, 17, 12, tzinfo=timezone.utc)
AT, HOUR = datetime(2026, 11, 24, 13, tzinfo=timezone.utc), timedelta(hours=1)
LAB = ReservationInfo("lab1", "2026-11-24T12:45:00", "2026-11-24T15:00:00", "g[1-3]", "", "proj1")
NODES = [Node(f"g{n}", "gpu", "idle", True, 16, 0, {"t4": 8}) for n in range(1, 5)]
NODES[2] = replace(NODES[2], available=False)
REQUEST = Request({"gpus": "1", "ntasks": "4", "time": "1:00:00"})


def test_who_may_use_the_account() -> None:
    assert findings.assess_members(("a", "b"), "proj1", {"a", "b"}).result == "ok"
    found = findings.assess_members(tuple("abcdefghijk"), "proj1", {"a"})
    assert found.found == "10 of 11 may not use proj1: b, c, d, e, f, g, h, i and 2 more."
    assert findings.assess_members(("a",), "proj1", None).result == "unknown"
    assert findings.assess_members(("a",), "proj1", set()).result == "unknown", "a site may hide them"


@pytest.mark.parametrize(
    ("begins", "lasts", "result"),
    [
        (AT, HOUR, "ok"),
        (AT, 3 * HOUR, "fault"),
        (AT - HOUR, HOUR, "fault"),
        (AT + timedelta(days=1), HOUR, "fault"),
        (None, HOUR, "unknown"),
    ],
)
def test_the_hour(begins: datetime | None, lasts: timedelta, result: str) -> None:
    assert findings.assess_hour("lab1", LAB, begins, lasts, NOW).result == result


def test_a_reservation_that_is_not_there() -> None:
    assert findings.assess_hour("lab2", None, AT, HOUR, NOW).found == "There is no reservation lab2, or it is over."


@pytest.mark.parametrize(
    ("users", "accounts", "account", "found"),
    [
        ("", "proj1", "proj1", "lab1 is for account proj1"),
        ("", "", None, "lab1 is for all"),
        ("", "proj2", "proj1", "lab1 is for account proj2, and not for the account proj1."),
        ("", "proj2", None, "lab1 is for account proj2, and not for the account (none is named)."),
        ("alice", "", "proj1", "1 of 2 may not use lab1: bob."),
        ("-bob", "", "proj1", "1 of 2 may not use lab1: bob."),
        ("teacher", "proj1", "proj1", "2 of 2 may not use lab1: alice, bob."),
        ("alice,bob,teacher", "proj1", "proj1", "lab1 is for users alice,bob,teacher and account proj1"),
    ],
)
def test_whom_a_reservation_is_for(users: str, accounts: str, account: str | None, found: str) -> None:
    reservation = replace(LAB, users=users, accounts=accounts)
    assert findings.assess_users_of_reservation(reservation, ("alice", "bob"), account).found == found


def test_a_session_has_to_fit_into_the_lesson_and_the_reservation() -> None:
    assert findings.assess_walltime_fits(2 * HOUR, HOUR, LAB, AT).result == "ok"
    short = findings.assess_walltime_fits(HOUR, 2 * HOUR, LAB, AT)
    assert short.found == "A session ends after 1 hour, before the lesson does (2 hours)."
    assert "30 minutes after the reservation" in findings.assess_walltime_fits(2.5 * HOUR, HOUR, LAB, AT).found
    assert findings.assess_walltime_fits(2 * HOUR, HOUR, None, None).result == "ok"
    assert "would end after the reservation" in findings.assess_walltime_fits(UNLIMITED, HOUR, LAB, AT).found


def test_room_for_all_of_them() -> None:
    by_cores = findings.assess_room(Demand(9, REQUEST), LAB, ["gpu"], NODES)
    assert by_cores.found == (
        "8 sessions fit into reservation lab1 at once, by its cores: 1 of 9 students would wait until others end."
    )
    assert findings.assess_room(Demand(8, REQUEST), LAB, ["gpu"], NODES).result == "ok"
    big = Request({"gpus": "3", "ntasks": "1", "time": "1:00:00"})
    assert findings.assess_room(Demand(5, big), LAB, ["gpu"], NODES).found.startswith(
        "4 sessions fit into reservation lab1"
    )
    everywhere = findings.assess_room(Demand(13, REQUEST), None, ["gpu"], NODES)
    assert (everywhere.result, "partition gpu" in everywhere.found) == ("warning", True)
    assert findings.assess_room(Demand(8, REQUEST), LAB, ["gpu"], None).result == "unknown"


def test_limits_that_all_share() -> None:
    shared = Limit("account proj1", "gres/gpu", "group", "24")
    found = findings.assess_limits(Demand(40, REQUEST), [shared])
    assert (
        found.found == "account proj1 allows 24 GPUs for all together: 24 sessions at once, and there are 40 students."
    )
    own = [replace(shared, per="user"), Limit("QOS short", "walltime", "group", "1:00:00"),
           Limit("account proj1", "cpu minutes", "group", "10")]  # fmt: skip
    assert findings.assess_limits(Demand(40, REQUEST), own).result == "ok"
    jobs = Limit("QOS short", "jobs", "group", "30")
    assert "30 sessions at once" in findings.assess_limits(Demand(40, REQUEST), [jobs]).found
    assert findings.assess_limits(Demand(40, REQUEST), None).result == "unknown"


@pytest.mark.parametrize(
    ("facts", "result"),
    [
        (FolderFacts("/class", "teacher", "lab", 0o3770), "ok"),
        (FolderFacts("/class", "teacher", "lab", 0o1770), "warning"),
        (FolderFacts("/class", "teacher", "lab", 0o2770), "fault"),
        (FolderFacts("/class", "teacher", "lab", 0o3750), "fault"),
        (FolderFacts(problem="/class cannot be read: No such file or directory"), "fault"),
    ],
)
def test_the_class_folder(facts: FolderFacts, result: str) -> None:
    found = findings.assess_class_folder(facts)
    assert found.result == result
    assert result == "ok" or found.hint in ("chmod 3770 /class", "create it: see docs/classroom.md")


def test_whether_the_teacher_sees_them() -> None:
    assert [findings.assess_sight(hidden).result for hidden in (True, False, None)] == ["warning", "ok", "unknown"]
