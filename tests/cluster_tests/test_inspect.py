"""``status``, ``usage`` and ``logs`` of a session, while it runs and after its end."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from tests.cluster_tests import in_box
from tests.cluster_tests.in_box import launch
from tests.conftest import Session, clear, people_processes
from tests.doubles import wait_until
from tests.practice_cluster import PracticeCluster

Start = Callable[..., Session]
LAUNCH = in_box.launch


@pytest.fixture(scope="module")
def held(cluster: PracticeCluster) -> Iterator[Session]:
    """A session that is attached in a terminal, and has at least two samples of its use."""
    session = launch(cluster, "laptop", "-t", "1:00:00", "-n", "2", "--mem", "2G", "--gpus", "1")
    session.ready()
    wait_until(lambda: len(on_login(cluster, session, "cat usage.csv").splitlines()) > 2, 60, "samples are there")
    yield session
    session.child.close(force=True)
    clear(cluster)


@pytest.fixture
def look(cluster: PracticeCluster) -> Iterator[Start]:
    """Start commands that only inspect the session; unlike with ``start``, the session continues after the test."""
    started: list[Session] = []

    def look(*words: str, columns: int = 80) -> Session:
        started.append(launch(cluster, "laptop", *words, columns=columns))
        return started[-1]

    yield look
    for session in started:
        session.child.close(force=True)


def on_login(cluster: PracticeCluster, session: Session, script: str) -> str:
    """Run a shell command in the session directory, and return its output."""
    folder = f".notebook-launcher/sessions/{session.session_id}"
    return cluster.run("login", "alice", ["sh", "-c", f"cd {folder} && {script}"]).stdout


def type_(cluster: PracticeCluster, *words: str, box: str = "laptop") -> str:
    """Run a command that must succeed, and return its output."""
    done = in_box.launcher(cluster, box, "alice", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def assert_nobody_reads(cluster: PracticeCluster) -> None:
    def readers() -> list[str]:
        return [line for line in people_processes(cluster, ("login",)) if "read-lines" in line or "tail" in line]

    wait_until(lambda: not readers(), 30, "nothing is left on the login node")


def test_status_of_a_running_session(cluster: PracticeCluster, held: Session) -> None:
    text = type_(cluster, "status", held.session_id)
    assert re.match(rf"Session {held.session_id} runs on gpu1; 5\d min left \(until ", text), text
    assert f"  job {held.job_id}, tf-gpu, JupyterLab, launched from laptop at " in text
    assert "  asked for --gpus=1 --mem=2G --ntasks=2 --time=1:00:00\n" in text
    assert re.search(r"^  CPU .* 2\.00 cores$", text, re.M)
    memory = re.search(r"^  memory .* ([\d.]+) +[\d.]+ +([\d.]+) +2\.00 GiB$", text, re.M)
    assert memory, text
    assert 0.02 < float(memory[1]) < 2  # plausible for a JupyterLab
    assert held.token not in text


def test_status_watches_until_ctrl_c(cluster: PracticeCluster, held: Session, look: Start) -> None:
    watching = look("status", "--watch", held.session_id)
    watching.expect(r"runs on gpu1; \d+ min left")
    seen = on_login(cluster, held, "wc -l <usage.csv")
    wait_until(lambda: on_login(cluster, held, "wc -l <usage.csv") != seen, 60, "another sample comes")
    # The practice cluster has no real GPU to sample, so the test appends samples of one. It repeats them, because the
    # job's own next sample, without a GPU, may come before the graph is drawn.
    row = "echo $(tail -n 1 usage.csv | cut -d , -f 1-4),0,Tesla T4,73,9,16,42.0 >>usage.csv"
    on_login(cluster, held, f"for i in 1 2 3 4 5 6 7 8; do {row}; sleep 1; done")
    watching.expect(r"GPU 0 power .* 42 +42 +42 +W")
    watching.send("\x03")
    assert watching.end() == 0
    assert "Traceback" not in watching.printed
    assert_nobody_reads(cluster)


def test_the_log_and_the_samples_of_a_running_session(cluster: PracticeCluster, held: Session) -> None:
    text = type_(cluster, "logs", held.session_id)
    assert "JupyterLab listens on 127.0.0.1:" in text
    assert "token=..." in text
    assert held.token not in text
    assert "Skipped non-installed server" not in text
    assert "Forbidden" not in text and "403 GET" not in text
    assert "by hand: ssh " in text.splitlines()[-1]
    assert "Skipped non-installed server" in on_login(cluster, held, "cat job.log")

    text = type_(cluster, "usage", held.session_id, "--csv", "/tmp/looking.csv", "--force")
    assert re.fullmatch(r"\d+ samples are in /tmp/looking\.csv\n", text)
    copied = cluster.run("laptop", "alice", ["cat", "/tmp/looking.csv"]).stdout
    assert copied.startswith("time,seconds,cpu_cores")
    assert on_login(cluster, held, "cat usage.csv").startswith(copied)


def test_a_log_is_followed_across_a_broken_network_to_the_end(
    cluster: PracticeCluster, held: Session, look: Start
) -> None:
    follows = look("logs", "-f", "-n", "5", held.session_id, columns=200)
    follows.expect("by hand: ssh")
    on_login(cluster, held, "echo first >>job.log")
    follows.expect("first")
    cluster.restart_sshd("login")
    on_login(cluster, held, "echo second >>job.log")
    follows.expect("Connected again, after")
    follows.expect("second")
    held.expect("Connected again")
    held.send("\n")
    follows.expect("received signal 15")
    follows.expect("The session has ended: job")
    assert follows.end() == 0
    assert held.end() == 0
    assert follows.printed.count("first\n") == follows.printed.count("second\n") == 1
    assert_nobody_reads(cluster)
    text = type_(cluster, "status", held.session_id)
    assert f"Session {held.session_id} has ended: " in text
    assert " mean  peak    of\n" in text


def test_the_log_of_a_job_that_has_not_begun_is_followed(cluster: PracticeCluster, start: Start) -> None:
    waits = start("-t", "10:00", "-n", "1", "--gpus", "0", "--hold")
    waits.expect("is held")
    follows = start("logs", "-f", waits.session_id, columns=200)
    follows.expect("has not begun .*: its log is shown as it comes")
    cluster.run("login", "alice", ["scontrol", "release", waits.job_id], check=True)
    follows.expect("notebook-launcher: entering")
    follows.send("\x03")
    assert follows.end() == 0
    waits.send("\x03")
    waits.end()
