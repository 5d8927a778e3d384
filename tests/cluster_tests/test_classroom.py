"""The ``classroom`` commands with a small class: ``check``, ``watch``, ``end`` and ``collect``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster_tests import in_box
from tests.cluster_tests.class_of_students import FOLDER, TEACHER, class_on
from tests.conftest import Session, assert_nothing_left, clear, write_profile
from tests.doubles import wait_until
from tests.practice_cluster import PracticeCluster
from tests.unit.bench.recorded import record

LAUNCH = in_box.launch


@pytest.fixture(scope="module")
def lesson(cluster: PracticeCluster) -> Iterator[PracticeCluster]:
    """The class. ``disable_send_gids`` lets jobs read their user's groups on the node.

    Without it they come from slurmctld, which may have cached them before the class's group existed.
    """
    with class_on(cluster), cluster.configured(LaunchParameters="disable_send_gids"):
        yield cluster
        clear(cluster)
    for user in ("alice", "ivan", TEACHER):
        write_profile(cluster, "laptop", user)


def teacher(cluster: PracticeCluster, *words: str) -> tuple[int, str]:
    done = in_box.launcher(cluster, "laptop", TEACHER, "classroom", *words)
    return done.returncode, f"{done.stdout}{done.stderr}"


def students(cluster: PracticeCluster) -> dict[str, dict[str, Any]]:
    """Return what ``classroom watch`` reports, by student."""
    _, printed = teacher(cluster, "watch", "students.csv", "--once", "--json")
    [event] = [json.loads(line) for line in printed.splitlines() if '"event": "class"' in line]
    return {one["user"]: one for one in event["students"]}


def settled(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]] | None:
    """Return the students once two sessions have a job and have reported that JupyterLab runs, else ``None``."""
    live = [one for one in found.values() if one["job"]]
    return (
        found if len(live) == 2 and all(one["state"] == "running" and one["seen"] is not None for one in live) else None
    )


def test_a_class_from_its_first_student_to_its_end(lesson: PracticeCluster) -> None:
    cluster = lesson
    assert teacher(cluster, "watch", "--course", "course.toml", "students.csv", "--once")[0] == 0
    sessions = {user: started(cluster, user) for user in ("alice", "ivan")}
    results = f"{record('fit', 1.0)}\n{record('<b>evil</b>', 2.0)}\n"
    in_box.run(cluster, "login", "alice", ["sh", "-c", "cat >~/lab/results.jsonl"], input=results).check_returncode()

    # the scheduler reports that the jobs run, the heartbeats report the state of JupyterLab
    seen = wait_until(lambda: settled(students(cluster)), 60)
    assert {user: one["state"] for user, one in seen.items()} == {
        "alice": "running", "ivan": "running", "judy": "not_started"
    }  # fmt: skip
    assert seen["alice"]["job"] == sessions["alice"].job_id and seen["alice"]["node"] and seen["alice"]["seconds_left"]
    beat = in_box.run(cluster, "login", "root", ["cat", f"{FOLDER}/alice/heartbeat.json"]).stdout
    assert set(json.loads(beat)) == {"version", "job", "state", "since", "written", "interval"}
    modes = in_box.run(
        cluster, "login", "root", ["stat", "-c", "%A %U %G", f"{FOLDER}/alice", f"{FOLDER}/alice/heartbeat.json"]
    )
    assert modes.stdout.splitlines() == ["drwxr-s--- alice lab", "-rw-r----- alice lab"]

    # The scheduler would not let the teacher cancel the jobs, so the sessions end themselves when they read the notice.
    code, printed = teacher(cluster, "end", "students.csv", "--in", "0", "--yes", "--message", "Submit <it>.")
    assert (code, "2 sessions ended: alice, ivan." in printed) == (0, True), printed
    for session in sessions.values():
        assert session.end(60) == 0
        printed = " ".join(session.printed.split())
        assert "The teacher ends the class: Submit <it>. The session ends at" in printed
        assert "The teacher has ended the class, and with it the session." in printed
    assert {user: one["detail"] for user, one in students(cluster).items()}["alice"] == "ended by the teacher"
    assert in_box.run(cluster, "login", "root", ["test", "!", "-e", f"{FOLDER}/end"]).returncode == 0

    # alice's last heartbeat came with the results that she had recorded
    code, printed = teacher(cluster, "collect", "students.csv", "--anonymous")
    assert code == 0 and "Without results: Student 2, Student 3." in printed, printed
    page = in_box.run(cluster, "laptop", TEACHER, ["sh", "-c", "cat ~/lab-results.html"]).stdout
    assert "&lt;b&gt;evil&lt;/b&gt;" in page and "<b>evil" not in page and "Alice" not in page
    assert_nothing_left(cluster)


def started(cluster: PracticeCluster, user: str) -> Session:
    session = in_box.launch(cluster, "laptop", "--course", "course.toml", user=user, columns=200)
    session.ready()
    session.read_along()
    return session


def test_a_check_with_a_rehearsal(lesson: PracticeCluster) -> None:
    words = ("check", "students.csv", "--course", "course.toml", "--for", "5m", "--rehearse", "2")
    code, printed = teacher(lesson, *words)
    found = {name.strip(): result for result, name in re.findall(r"^(\S+) (.{18})  ", printed, re.M)}
    assert code == 0, printed
    for name in ("students", "accounts", "walltime fits", "head count", "watching", "class folder", "rehearsal"):
        assert found[name] in ("✓", "ok"), printed
    assert "JupyterLab worked in all of 2 sessions; from submission to JupyterLab" in printed
    assert_nothing_left(lesson)
