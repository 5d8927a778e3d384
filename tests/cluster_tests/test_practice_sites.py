"""The practice cluster's difficult sites and faults are what they claim to be, as the system's ssh sees them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pexpect
import pytest

from tests.doubles import wait_until
from tests.practice_cluster import BOXES, USERS, ClusterError, PracticeCluster, one_time_code

SSH = ("ssh", "-oBatchMode=yes", "-oConnectTimeout=5")
NEW_PEOPLE = ("dave", "erin", "frank", "grace", "heidi")


def ssh(
    cluster: PracticeCluster, *arguments: str, user: str = "alice", box: str = "laptop"
) -> subprocess.CompletedProcess[str]:
    """What the system's ssh does when there is nobody to be asked."""
    return cluster.run(box, user, [*SSH, *arguments], timeout=30)


def where(cluster: PracticeCluster, *arguments: str, user: str = "alice", box: str = "laptop") -> str:
    """The machine that ssh leads to."""
    done = ssh(cluster, *arguments, "hostname", user=user, box=box)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def answer(
    cluster: PracticeCluster, user: str, answers: dict[str, str], target: str = "login", box: str = "laptop"
) -> str:
    """Log in once, answering the questions in this order; the machine that it leads to, "" where it is refused."""
    argv = cluster.argv(box, user, ["ssh", "-oNumberOfPasswordPrompts=1", target, "hostname"])
    child = pexpect.spawn(argv[0], argv[1:], encoding="utf-8", timeout=15)
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
    """An ssh that prints all the time, to see when it falls silent, comes back, or ends."""

    def __init__(self, cluster: PracticeCluster, user: str, target: str, box: str) -> None:
        tick = "for i in $(seq 300); do echo tick; sleep 0.1; done"
        argv = cluster.argv(box, user, [*SSH, target, tick])
        self.child = pexpect.spawn(argv[0], argv[1:], encoding="utf-8")
        self.child.expect("tick", timeout=10)

    def is_silent(self) -> bool:
        return not self._ticks_within(1)

    def goes_on(self) -> bool:
        return self._ticks_within(15)

    def _ticks_within(self, seconds: float) -> bool:
        time.sleep(0.3)
        self._hears(0)  # what was on its way does not count
        return self._hears(seconds)

    def _hears(self, seconds: float) -> bool:
        try:
            return "tick" in self.child.read_nonblocking(1 << 16, timeout=seconds)
        except pexpect.TIMEOUT:
            return False

    def ends(self) -> int:
        self.child.expect(pexpect.EOF, timeout=10)
        self.child.close()
        return int(self.child.exitstatus)


@contextmanager
def ticking(
    cluster: PracticeCluster, user: str = "alice", target: str = "login", box: str = "laptop"
) -> Iterator[Ticks]:
    ticks = Ticks(cluster, user, target, box)
    try:
        yield ticks
    finally:
        ticks.child.close(force=True)


@contextmanager
def job_on(cluster: PracticeCluster, user: str, node: str) -> Iterator[str]:
    submit = ["sbatch", "--parsable", "-w", node, "-o", "/dev/null", "--wrap", "sleep 120"]
    job = cluster.run("login", user, submit, check=True).stdout.strip()
    try:
        wait_until(lambda: state_of(cluster, job) == "RUNNING", 30, "the job runs")
        yield job
    finally:
        cluster.run("login", user, ["scancel", job])
        wait_until(lambda: not state_of(cluster, job), 30, "the job is gone")


def state_of(cluster: PracticeCluster, job: str) -> str:
    return cluster.run("login", "alice", ["squeue", "-h", "-j", job, "-o", "%T"]).stdout.strip()


# ---- people --------------------------------------------------------------------------------------------------


def test_dave_needs_his_password_and_a_code_that_is_good_once(cluster: PracticeCluster) -> None:
    cluster.forget_codes("dave")
    now, password = time.time(), {"Password: ": str(USERS["dave"].password)}
    code, next_code = one_time_code("dave", now), one_time_code("dave", now + 30)
    assert answer(cluster, "dave", password | {"code: ": code}) == "login"
    wrong = [
        password | {"code: ": code},
        password | {"code: ": one_time_code("dave", now + 3600)},
        {"Password: ": "wrong"},
    ]
    with ThreadPoolExecutor() as pool:  # each is answered after a pause
        assert list(pool.map(lambda answers: answer(cluster, "dave", answers), wrong)) == ["", "", ""]
    assert answer(cluster, "dave", password | {"code: ": next_code}) == "login"
    assert answer(cluster, "dave", password | {"code: ": code}, target="node1", box="login") == "node1"


def test_heidi_needs_her_key_and_a_code_and_on_the_nodes_the_key_alone(cluster: PracticeCluster) -> None:
    cluster.forget_codes("heidi")
    assert "(keyboard-interactive)" in ssh(cluster, "login", user="heidi").stderr
    without_key = ssh(cluster, "-oPubkeyAuthentication=no", "login", user="heidi")
    assert "(publickey)" in without_key.stderr
    assert answer(cluster, "heidi", {"code: ": "000000"}) == ""
    assert answer(cluster, "heidi", {"code: ": one_time_code("heidi")}) == "login"
    assert where(cluster, "node1", user="heidi", box="login") == "node1"


def test_erin_can_neither_forward_nor_go_on(cluster: PracticeCluster) -> None:
    assert where(cluster, "login", user="erin") == "login"
    assert "administratively prohibited" in ssh(cluster, "-W", "node1:22", "login", user="erin").stderr
    assert "Permission denied" in ssh(cluster, "node1", "hostname", user="erin", box="login").stderr


def test_grace_can_forward_and_not_go_on(cluster: PracticeCluster) -> None:
    assert ssh(cluster, "-W", "node1:22", "login", user="grace").stdout.startswith("SSH-2.0")
    assert "Permission denied" in ssh(cluster, "node1", "hostname", user="grace", box="login").stderr


def test_franks_site_is_noisy_everywhere(cluster: PracticeCluster) -> None:
    noise = b"\033]0;the terminal's new title\007\033[31m"
    quiet = subprocess.run(cluster.argv("laptop", "frank", [*SSH, "-q", "login", "echo $shell"]), capture_output=True)
    assert quiet.stdout.startswith(noise) and quiet.stdout.endswith(b"\377\376\303(\n/bin/tcsh\n")
    assert noise in quiet.stderr
    bash = subprocess.run(cluster.argv("laptop", "frank", [*SSH, "-q", "login", "bash -l"]), capture_output=True)
    assert bash.stdout.count(noise) == bash.stderr.count(noise) == 2
    # The client shows the banner with its control characters spelt out.
    banner = r"\033]0;the terminal's new title\007"
    assert banner in ssh(cluster, "login", "true", user="frank").stderr
    assert banner not in ssh(cluster, "login", "true").stderr
    argv = cluster.argv("laptop", "frank", [*SSH, "-qtt", "login"])
    interactive = subprocess.run(argv, input=b"exit\n", capture_output=True).stdout
    before_the_shell, _, _ = interactive.partition(b"This is a practice cluster")
    assert noise in before_the_shell


def test_the_new_people_get_jobs(cluster: PracticeCluster) -> None:
    def submit(user: str) -> str:
        return cluster.run("login", user, ["srun", "-t", "1", "hostname"], timeout=60).stdout.splitlines()[-1]

    with ThreadPoolExecutor() as pool:
        assert {BOXES[box].role for box in pool.map(submit, NEW_PEOPLE)} == {"node"}


# ---- boxes ---------------------------------------------------------------------------------------------------


def test_the_login_node_listens_on_another_port_too(cluster: PracticeCluster) -> None:
    assert where(cluster, "-p", "8822", "-oStrictHostKeyChecking=yes", "login") == "login"


def test_two_jumps_lead_to_the_login_node(cluster: PracticeCluster) -> None:
    from_gate2 = f"{BOXES['gate2'].inside} "
    for how in (["deep"], ["-J", "gate1,gate2", "login-inside"]):
        done = ssh(cluster, *how, "hostname; echo $SSH_CONNECTION")
        assert done.stdout.startswith(f"login\n{from_gate2}"), done.stderr
    assert where(cluster, "gate1") == "gate1"
    for gate, beyond in (("gate1", BOXES["login"].inside), ("gate1", BOXES["gate2"].inside), ("gate2", "10.50.0.1")):
        jump = "gate1" if gate == "gate1" else "gate1,gate2"
        assert ssh(cluster, "-J", jump, "-oStrictHostKeyChecking=no", str(beyond), "true").returncode == 255
    assert "resolve" in ssh(cluster, "gate2", "true").stderr
    assert ssh(cluster, str(BOXES["gate2"].middle), "true").returncode == 255


def test_the_second_login_node(cluster: PracticeCluster) -> None:
    cluster.run("login", "alice", ["sh", "-c", "echo shared >~/where-am-i"])
    done = ssh(cluster, "login2", "hostname; cat where-am-i; rm where-am-i; squeue >/dev/null && echo Slurm")
    assert done.stdout == "login2\nshared\nSlurm\n", done.stderr
    keys = {cluster.root(box, ["cat", "/etc/ssh/ssh_host_ed25519_key.pub"]).stdout.split()[1] for box in
            ("login", "login2")}  # fmt: skip
    known = cluster.run("laptop", "alice", ["ssh-keygen", "-F", "login"]).stdout
    assert {line.split()[2] for line in known.splitlines() if not line.startswith("#")} == keys
    assert len(keys) == 2


# ---- the network ---------------------------------------------------------------------------------------------


def test_unplugged_packets_vanish_and_come_back(cluster: PracticeCluster) -> None:
    for box in ("laptop", "login"):
        with ticking(cluster) as ticks:
            with cluster.unplugged(box):
                assert ticks.is_silent()
                assert "LOWER_UP" in cluster.root(box, ["ip", "-o", "link", "show", "up"]).stdout.splitlines()[-1]
            assert ticks.goes_on()


def test_unplugged_without_carrier_is_seen(cluster: PracticeCluster) -> None:
    with ticking(cluster) as ticks:
        with cluster.unplugged(carrier=False):
            assert ticks.is_silent()
            assert "NO-CARRIER" in cluster.root("laptop", ["ip", "link", "show", "eth0"]).stdout
        assert "NO-CARRIER" not in cluster.root("laptop", ["ip", "link", "show", "eth0"]).stdout
        assert ticks.goes_on()


def test_a_node_can_be_unplugged(cluster: PracticeCluster) -> None:
    with cluster.unplugged("gpu1"):
        assert ssh(cluster, "-oConnectTimeout=1", "gpu1", "true", box="login").returncode == 255
    assert where(cluster, "gpu1", box="login") == "gpu1"


def test_an_arrangement_is_undone_after_an_exception(cluster: PracticeCluster) -> None:
    for arrangement in (cluster.unplugged(), cluster.login_moves_to("new-address"), cluster.no_sshd("node1")):
        with pytest.raises(ZeroDivisionError), arrangement:
            _ = 1 / 0
        assert where(cluster, "login") == "login"
    assert where(cluster, "node1", box="login") == "node1"


def test_the_login_node_becomes_another_machine(cluster: PracticeCluster) -> None:
    with ticking(cluster) as ticks:
        with cluster.login_moves_to("login2"):
            assert where(cluster, "-oStrictHostKeyChecking=yes", "login") == "login2"
            host = subprocess.run(cluster.laptop_argv(["getent", "hosts", "login.practice.test"]), capture_output=True)
            assert host.stdout.split()[0].decode() == BOXES["login2"].outside
        assert ticks.goes_on()
    assert where(cluster, "login") == "login"


def test_the_login_node_gets_a_new_address(cluster: PracticeCluster) -> None:
    old = f"-oHostName={BOXES['login'].outside}"
    with ticking(cluster) as ticks:
        with cluster.login_moves_to("new-address"):
            assert ssh(cluster, "login", "echo $SSH_CONNECTION").stdout.split()[2:] == ["10.50.0.77", "22"]
            assert ticks.is_silent()
            assert ssh(cluster, "-oConnectTimeout=1", old, "login", "true").returncode == 255
        assert where(cluster, old, "login") == "login"
        assert ticks.goes_on()
    with pytest.raises(ClusterError), cluster.login_moves_to("the moon"):
        pass


def test_the_cluster_is_far_away(cluster: PracticeCluster) -> None:
    def milliseconds() -> float:
        """How long it takes until the login node says something to whoever connects."""
        program = (
            "import socket, time; before = time.monotonic(); found = socket.create_connection(('login', 22)); "
            "found.recv(9); print(time.monotonic() - before)"
        )
        return float(cluster.run("laptop", "alice", ["python3", "-c", program], check=True).stdout) * 1000

    with cluster.delayed(100):
        milliseconds()  # addresses are looked up
        assert 200 <= milliseconds() < 500  # two round trips: to connect, and for the greeting
        with ticking(cluster) as ticks:
            with cluster.unplugged():
                assert ticks.is_silent()
            assert ticks.goes_on()
        assert ssh(cluster, "login", "yes | head -c 1000000").stdout == "y\n" * 500000
    assert milliseconds() < 200


# ---- sshd ----------------------------------------------------------------------------------------------------


def test_sshd_dies_with_its_sessions_and_jobs_live_on(cluster: PracticeCluster) -> None:
    with job_on(cluster, "alice", "node1") as job, ticking(cluster, target="node1", box="login") as ticks:
        cluster.stop_sshd("node1")
        assert ticks.ends() == 255
        assert "refused" in ssh(cluster, "node1", "true", box="login").stderr
        cluster.start_sshd("node1")
        assert where(cluster, "node1", box="login") == "node1"
        assert state_of(cluster, job) == "RUNNING"
    with ticking(cluster) as ticks:
        cluster.restart_sshd("login")
        assert ticks.ends() == 255
    assert where(cluster, "login") == "login"


def test_one_persons_connections_die(cluster: PracticeCluster) -> None:
    with ticking(cluster, "alice") as alice, ticking(cluster, "bob") as bob:
        cluster.kill_connections("login", "alice")
        assert alice.ends() == 255
        assert bob.goes_on()
    assert where(cluster, "login") == "login"


def test_a_node_without_sshd(cluster: PracticeCluster) -> None:
    with cluster.no_sshd("node1"):
        assert "refused" in ssh(cluster, "node1", "true", box="login").stderr
        assert cluster.root("node1", ["sh", "-c", "command -v sshd"]).stdout == ""
        assert where(cluster, "node2", box="login") == "node2"
    assert where(cluster, "node1", box="login") == "node1"


def test_a_node_that_only_jobs_lead_to(cluster: PracticeCluster) -> None:
    with cluster.pam_slurm("node1"):
        assert "no active jobs on this node" in ssh(cluster, "node1", "true", user="bob", box="login").stderr
        assert where(cluster, "node2", user="bob", box="login") == "node2"
        with job_on(cluster, "bob", "node1"):
            assert where(cluster, "node1", user="bob", box="login") == "node1"
    assert where(cluster, "node1", user="bob", box="login") == "node1"
