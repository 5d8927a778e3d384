"""The practice cluster's difficult sites and faults are what they claim to be, as the system's ssh sees them.

Properties without which test_sites.py and test_reconnection.py would fail are not tested again here.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pexpect
import pytest

from tests.doubles import wait_until
from tests.practice_cluster import BOXES, USERS, ClusterError, PracticeCluster, one_time_code

SSH = ("ssh", "-oBatchMode=yes")


def ssh(
    cluster: PracticeCluster, *arguments: str, user: str = "alice", box: str = "laptop"
) -> subprocess.CompletedProcess[str]:
    """Run the system's ssh, which may not ask anything. Of two options with the same name, ssh uses the first."""
    return cluster.run(box, user, [*SSH, *arguments[:-1], "-oConnectTimeout=20", arguments[-1]], timeout=60)


def where(cluster: PracticeCluster, *arguments: str, user: str = "alice", box: str = "laptop") -> str:
    """Return the name of the machine to which ssh connects."""
    done = ssh(cluster, *arguments, "hostname", user=user, box=box)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def answer(cluster: PracticeCluster, user: str, answers: dict[str, str]) -> str:
    """Log in once, answering the questions in this order; return the machine's name, or "" if the login is refused."""
    argv = cluster.argv("laptop", user, ["ssh", "-oNumberOfPasswordPrompts=1", "login", "hostname"])
    child = pexpect.spawn(argv[0], argv[1:], encoding="utf-8", timeout=30)
    try:
        for question, text in answers.items():
            child.expect(question)
            child.sendline(text)
        child.expect(pexpect.EOF)
        child.close()
    finally:
        child.close(force=True)
    return str(child.before).strip() if child.exitstatus == 0 else ""


class Ticks:
    """An ssh whose command prints ten times a second, which shows whether the connection still works."""

    def __init__(self, cluster: PracticeCluster, user: str) -> None:
        tick = "for i in $(seq 300); do echo tick; sleep 0.1; done"
        argv = cluster.argv("laptop", user, [*SSH, "login", tick])
        self.child = pexpect.spawn(argv[0], argv[1:], encoding="utf-8")
        self.child.expect("tick", timeout=30)

    def goes_on(self) -> bool:
        while self.child.expect(["tick", pexpect.TIMEOUT], timeout=0) == 0:
            pass  # output from before this call does not count
        return bool(self.child.expect(["tick", pexpect.TIMEOUT], timeout=30) == 0)

    def ends(self) -> int:
        self.child.expect(pexpect.EOF, timeout=30)
        self.child.close()
        return int(self.child.exitstatus)


@contextmanager
def ticking(cluster: PracticeCluster, user: str) -> Iterator[Ticks]:
    ticks = Ticks(cluster, user)
    try:
        yield ticks
    finally:
        ticks.child.close(force=True)


@contextmanager
def job_on(cluster: PracticeCluster, user: str, node: str) -> Iterator[str]:
    submit = ["sbatch", "--parsable", "-w", node, "-o", "/dev/null", "--wrap", "sleep 120"]
    job = cluster.run("login", user, submit, check=True).stdout.strip()
    try:
        wait_until(lambda: state_of(cluster, job) == "RUNNING", 60, "the job runs")
        yield job
    finally:
        cluster.run("login", user, ["scancel", job])
        wait_until(lambda: not state_of(cluster, job), 60, "the job is gone")


def state_of(cluster: PracticeCluster, job: str) -> str:
    return cluster.run("login", "alice", ["squeue", "-h", "-j", job, "-o", "%T"]).stdout.strip()


# ---- people --------------------------------------------------------------------------------------------------


def test_a_code_is_good_once(cluster: PracticeCluster) -> None:
    cluster.forget_codes("dave")
    answers = {"Password: ": str(USERS["dave"].password), "code: ": one_time_code("dave", time.time())}
    assert [answer(cluster, "dave", answers) for _ in range(2)] == ["login", ""]


def test_who_is_kept_from_what(cluster: PracticeCluster) -> None:
    assert "(publickey)" in ssh(cluster, "-oPubkeyAuthentication=no", "login", user="heidi").stderr
    assert "(keyboard-interactive)" in ssh(cluster, "login", user="heidi").stderr
    assert "administratively prohibited" in ssh(cluster, "-W", "node1:22", "login", user="erin").stderr
    for user in ("erin", "grace"):
        assert "Permission denied" in ssh(cluster, "node1", "hostname", user=user, box="login").stderr


def test_franks_site_is_noisy_everywhere(cluster: PracticeCluster) -> None:
    noise = b"\033]0;the terminal's new title\007\033[31m"
    done = subprocess.run(cluster.argv("laptop", "frank", [*SSH, "login", "echo $shell"]), capture_output=True)
    assert done.stdout.startswith(noise) and done.stdout.endswith(b"\377\376\303(\n/bin/tcsh\n")
    assert noise in done.stderr
    assert rb"\033]0;the terminal's new title\007" in done.stderr  # the client escapes the banner's control characters
    argv = cluster.argv("laptop", "frank", [*SSH, "-qtt", "login"])
    interactive = subprocess.run(argv, input=b"exit\n", capture_output=True).stdout
    before_the_shell, _, _ = interactive.partition(b"This is a practice cluster")
    assert noise in before_the_shell


# ---- the network ---------------------------------------------------------------------------------------------


def test_only_two_jumps_lead_past_the_gates(cluster: PracticeCluster) -> None:
    done = ssh(cluster, "deep", "hostname; echo $SSH_CONNECTION")
    assert done.stdout.startswith(f"login\n{BOXES['gate2'].inside} "), done.stderr
    for way in (
        ["-oConnectTimeout=5", "-J", "gate1", str(BOXES["login"].inside)],
        ["-oConnectTimeout=1", str(BOXES["gate2"].middle)],
    ):
        assert ssh(cluster, "-oStrictHostKeyChecking=no", *way, "true").returncode == 255


def test_a_box_sees_whether_its_cable_is_pulled(cluster: PracticeCluster) -> None:
    look = ["ip", "-o", "link", "show", "eth0"]
    for carrier, seen in ((True, "LOWER_UP"), (False, "NO-CARRIER")):
        with cluster.unplugged(carrier=carrier):
            assert seen in cluster.root("laptop", look).stdout
    assert "NO-CARRIER" not in cluster.root("laptop", look).stdout


def test_a_node_can_be_unplugged(cluster: PracticeCluster) -> None:
    with cluster.unplugged("gpu1"):
        assert ssh(cluster, "-oConnectTimeout=1", "gpu1", "true", box="login").returncode == 255
    assert where(cluster, "gpu1", box="login") == "gpu1"


def test_arrangements_are_undone_after_an_exception(cluster: PracticeCluster) -> None:
    for arrangement in (cluster.unplugged(), cluster.login_moves_to("new-address"), cluster.no_sshd("node1")):
        with pytest.raises(ZeroDivisionError), arrangement:
            _ = 1 / 0
    assert where(cluster, "login") == "login"
    assert where(cluster, "node1", box="login") == "node1"
    with pytest.raises(ClusterError), cluster.login_moves_to("the moon"):
        pass


def test_the_cluster_is_far_away(cluster: PracticeCluster) -> None:
    def milliseconds() -> float:
        """Return the shortest time of five attempts from connecting to sshd's greeting."""
        program = (
            "import socket, time\ndef seconds():\n"
            "    before = time.monotonic(); found = socket.create_connection(('login', 22)); found.recv(9)\n"
            "    return time.monotonic() - before\n"
            "print(min(seconds() for _ in range(5)))"
        )
        return float(cluster.run("laptop", "alice", ["python3", "-c", program], check=True).stdout) * 1000

    with cluster.delayed(100):
        # a busy machine may take longer once
        wait_until(lambda: 200 <= milliseconds() < 500, what="two round trips: to connect, and for the greeting")
    wait_until(lambda: milliseconds() < 200)


# ---- sshd ----------------------------------------------------------------------------------------------------


def test_one_persons_connections_die(cluster: PracticeCluster) -> None:
    with ticking(cluster, "alice") as alice, ticking(cluster, "bob") as bob:
        cluster.kill_connections("login", "alice")
        assert alice.ends() == 255
        assert bob.goes_on()
    assert where(cluster, "login") == "login"


def test_a_node_that_only_jobs_lead_to(cluster: PracticeCluster) -> None:
    with cluster.pam_slurm("node1"):
        assert "no active jobs on this node" in ssh(cluster, "node1", "true", user="bob", box="login").stderr
        assert where(cluster, "node2", user="bob", box="login") == "node2"
        with job_on(cluster, "bob", "node1"):
            assert where(cluster, "node1", user="bob", box="login") == "node1"
