"""``--idle-stop``: a session on the practice cluster that nobody uses ends with exit code 0."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.cluster_tests import in_box
from tests.conftest import Session, assert_nothing_left
from tests.practice_cluster import PracticeCluster

LAUNCH = in_box.launch


def test_a_held_session_ends_well_when_nobody_uses_it(cluster: PracticeCluster, start: Callable[..., Session]) -> None:
    """``--idle-stop`` takes one minute or more, so the test shortens it in session.env before the job starts."""
    session = start("--idle-stop", "60s", "--hold")
    session.expect(r"scontrol release \d+")
    folder = f"~/.notebook-launcher/sessions/{session.session_id}"
    asked = cluster.run("login", "alice", ["sh", "-c", f"cat {folder}/session.env"]).stdout
    assert "\nidle_stop=60\n" in asked
    sooner = f"sed -i s/^idle_stop=60$/idle_stop=20/ {folder}/session.env; scontrol release {session.job_id}"
    cluster.run("login", "alice", ["sh", "-c", sooner], check=True)
    session.ready()
    assert session.end(60) == 0
    printed = " ".join(session.printed.split())
    assert "Nobody has used JupyterLab for 10 seconds: the session ends in 10 seconds unless somebody does." in printed
    assert "Nobody used JupyterLab for 20 seconds, so the session was ended, as --idle-stop asked." in printed
    assert_nothing_left(cluster)
    report = cluster.run("login", "alice", ["sh", "-c", f"cat {folder}/exit.json"])
    assert json.loads(report.stdout)["cause"] == "idle"
