"""``doctor`` on the practice cluster: it finds and names each fault that was planted, and reports no others."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pytest

from tests.cluster_tests import in_box
from tests.conftest import Session, assert_nothing_left, people_processes, write_profile
from tests.doubles import wait_until
from tests.practice_cluster import PracticeCluster
from tests.practice_cluster.layout import COMPUTE_NODES

each_slurm, each_scheduler = pytest.mark.each_slurm, pytest.mark.each_scheduler
NODE = ("--node", "-n", "1")
Arranged = Callable[[PracticeCluster], AbstractContextManager[object]]
Start = Callable[..., Session]
LAUNCH = in_box.launch


@dataclass
class Checkup:
    """The output of one run of ``doctor --json``: its checks by name, its exit code, and the text of its errors."""

    checks: dict[str, dict[str, str]]
    exit_code: int
    error: str

    @property
    def faults(self) -> list[str]:
        return [name for name, check in self.checks.items() if check["result"] == "fault"]

    def results(self, *names: str) -> list[str]:
        return [self.checks[name]["result"] for name in names]


def doctor(cluster: PracticeCluster, *words: str, user: str = "alice", box: str = "laptop") -> Checkup:
    done = in_box.launcher(cluster, box, user, "doctor", "--json", *words)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    checks = {event["check"]: event for event in told if event["event"] == "check"}
    errors = [event["what"] for event in told if event["event"] == "error"]
    assert checks, done.stdout + done.stderr
    return Checkup(checks, done.returncode, " ".join(errors))


@contextlib.contextmanager
def written(cluster: PracticeCluster, box: str, user: str, path: str, text: str) -> Iterator[None]:
    """Create a file below a user's home during the block."""
    put = ["sh", "-c", f'mkdir -p "$(dirname ~/{path})"; umask 077; cat >~/{path}']
    cluster.run(box, user, put, input=text, check=True)
    try:
        yield
    finally:
        cluster.run(box, user, ["sh", "-c", f"rm -f ~/{path}"])


def profile(text: str) -> Arranged:
    """Give alice a cluster profile “faulty” on the laptop, with these lines on top of a good profile."""
    return lambda cluster: written(
        cluster, "laptop", "alice", ".config/notebook-launcher/clusters/faulty.toml",
        f'base = "practice"\n{text}\n',
    )  # fmt: skip


@contextlib.contextmanager
def changed_host_key(cluster: PracticeCluster) -> Iterator[None]:
    """Give alice ssh files in which the login node has the host key of another machine."""
    key = cluster.root("node1", ["cat", "/etc/ssh/ssh_host_ed25519_key.pub"]).stdout.strip()
    name = cluster.run("laptop", "alice", ["ssh", "-G", "login"]).stdout.partition("hostname ")[2].split()[0]
    config = f"Host login\n  HostName {name}\n  UserKnownHostsFile ~/.ssh/other_hosts\n"
    with (
        written(cluster, "laptop", "alice", ".ssh/other_hosts", f"{name},login {key}\n"),
        written(cluster, "laptop", "alice", ".ssh/other_config", config),
    ):
        yield


@contextlib.contextmanager
def closed_folder(cluster: PracticeCluster) -> Iterator[None]:
    """Let bob have an image in a folder that he alone may enter."""
    cluster.run("login", "bob", ["sh", "-c", "mkdir -m 700 -p ~/own; echo x >~/own/image.sif"], check=True)
    try:
        yield
    finally:
        cluster.run("login", "bob", ["rm", "-rf", "own"])


@contextlib.contextmanager
def nobody_would_take_it(cluster: PracticeCluster) -> Iterator[None]:
    with closed_folder(cluster), cluster.partition_state("gpu", "DOWN"):
        yield


@contextlib.contextmanager
def neither_folder_nor_scheduler(cluster: PracticeCluster) -> Iterator[None]:
    with profile('session_root = "/sw/sessions"')(cluster), cluster.without("sbatch"):
        yield


def undisturbed(_cluster: PracticeCluster) -> AbstractContextManager[None]:
    return contextlib.nullcontext()


# The circumstances, the arguments, and the checks that must fail, each with a text that it must report; in each case as
# many faults as doctor can report in one run.
FAULTS = [
    pytest.param(changed_host_key, ["--host", "login", "--ssh-config", "/home/alice/.ssh/other_config"],
                 {"host key": "another"}, id="changed host key"),
    pytest.param(lambda c: c.start_up_file("alice", ".bash_profile", "site=1\nexec >/dev/null\n"), [],
                 {"login shell": "runs no commands. Line 2 of ~/.bash_profile redirects its output: exec"},
                 id="start-up file that redirects all output"),
    pytest.param(neither_folder_nor_scheduler, ["faulty"],
                 {"session folder": "/sw/sessions", "scheduler": "no sbatch"},
                 id="no sbatch, session root not writable"),
    pytest.param(lambda c: c.no_slurmctld(), ["--", "no-image"],
                 {"scheduler answers": "does not answer", "image": "no image /sw/images/not-there.sif"},
                 id="slurmctld down, image missing"),
    pytest.param(nobody_would_take_it,
                 ["-A", "proj9", "-p", "gpu", "-t", "60-00", "--gpus", "v100:1", "--", "/home/bob/own/image.sif"],
                 {"account": "proj9 is not yours. Yours are: proj1, proj2", "partition": "closed",
                  "walltime": "partition gpu allows", "GPUs": "no GPU v100 in partition gpu",
                  "image": "may not enter /home/bob/own"},
                 id="account of others, closed partition, walltime beyond its limit, no such GPU, closed folder",
                 marks=each_slurm),
    pytest.param(undisturbed, ["-p", "cores", "--reservation", "lab2", "--", "no-jupyter"],
                 {"partition": "no partition cores", "reservation": "no reservation lab2",
                  "JupyterLab": "no JupyterLab in the image"},
                 id="no such partition, no reservation, no JupyterLab in the image"),
    pytest.param(lambda c: c.reservation("others", "now", users="bob"), ["--reservation", "others", "--", "broken"],
                 {"reservation": "may not use", "environment": "broken/1"},
                 id="reservation of others, module does not load", marks=each_slurm),
]  # fmt: skip


@pytest.mark.parametrize(("arranged", "words", "faults"), FAULTS)
def test_each_planted_fault_is_found_and_named(
    cluster: PracticeCluster, arranged: Arranged, words: list[str], faults: dict[str, str]
) -> None:
    with arranged(cluster):
        told = doctor(cluster, *words)
    assert sorted(told.faults) == sorted(faults), told.checks
    for name, said in faults.items():
        assert said in told.checks[name]["found"]
        assert told.checks[name]["hint"]
        assert name in told.error
    assert told.exit_code == 8
    if "host key" in faults:  # checks that need a login are skipped
        assert told.results("login", "home", "scheduler", "image", "environment") == ["skipped"] * 5


def test_a_full_home_and_a_clock_that_is_wrong(cluster: PracticeCluster) -> None:
    with cluster.full_home("ivan"), cluster.skewed_clock(3600):
        told = doctor(cluster, user="ivan")
    assert told.faults == ["home"]
    assert "full" in told.checks["home"]["found"] and "No space left" in told.checks["home"]["found"]
    assert told.results("session folder", "environment", "account") == ["skipped", "skipped", "ok"]
    assert told.checks["clock"]["result"] == "warning" and "1 hour ahead" in told.checks["clock"]["found"]


def test_the_faults_of_a_compute_node_are_found_and_named(cluster: PracticeCluster) -> None:
    with cluster.no_container_command(*COMPUTE_NODES):
        uncontained = doctor(cluster, *NODE)
    with cluster.no_sshd():
        unreachable = doctor(cluster, *NODE, "--route", "auto", "--", "module", user="erin")
    wait_until(lambda: not cluster.squeue(), 30, "no job is left")
    for told, check, said in (
        (uncontained, "container command there", "no apptainer or singularity on node"),
        (unreachable, "route", "No route to node"),
    ):
        assert told.faults == [check], told.checks
        assert said in told.checks[check]["found"] and told.checks[check]["hint"]
        assert told.exit_code == 8


@each_slurm
def test_where_all_nodes_are_drained_a_job_waits_and_is_not_refused(cluster: PracticeCluster) -> None:
    """``sbatch --test-only`` refuses such a job, but sbatch accepts it (see the situation “all nodes drained”)."""
    with cluster.drained("node1", "node2"):
        for command in ("when", "doctor"):
            done = in_box.launcher(cluster, "laptop", "alice", command, "-p", "devcore", "-t", "5")
            said = " ".join(f"{done.stdout}{done.stderr}".split())
            assert done.returncode == 0, said
            assert "the job waits until a node is back" in said and "never" not in said, said


@each_slurm
def test_nothing_is_found_where_nothing_is_wrong(cluster: PracticeCluster) -> None:
    with cluster.pam_slurm():  # users may log in to a node only while they have a job there
        told = doctor(cluster, "practice", "--node", "--gpus", "1", "-t", "2:00:00")
    assert {check["result"] for check in told.checks.values()} == {"ok"}, told.checks
    assert told.exit_code == 0
    assert "gpu1" in told.checks["compute node"]["found"]
    assert {"image", "JupyterLab", "route", "JupyterLab there", "GPUs there"} <= told.checks.keys()
    assert_nothing_left(cluster)
    look = "ls -A ~ ~/.notebook-launcher/sessions | grep check | grep -v ipynb_checkpoints"  # made by JupyterLab itself
    left = cluster.run("login", "alice", ["sh", "-c", look]).stdout
    assert left == ""


def test_at_a_noisy_site_and_without_a_profile(cluster: PracticeCluster) -> None:
    told = doctor(cluster, "--host", "login", "--", "/sw/images/jupyterlab.sif", user="frank")
    assert (told.faults, told.exit_code) == ([], 0)
    assert "does no harm" in told.checks["login shell"]["found"]
    assert told.results("scheduler", "account", "start", "image", "JupyterLab") == ["ok"] * 5


COURSE = """\
name = "gpu-lab"
cluster = "practice"
account = "proj1"
image = "/home/alice/lab/image.sif"
environment = "lab"
notebooks = ["intro.ipynb"]

[[reservations]]
name = "lab1"
first = 2026-01-01
last = 2031-12-31

[environments.lab]
"""


def test_the_week_before_a_course(cluster: PracticeCluster) -> None:
    make = (
        "mkdir -p ~/lab && cp /sw/images/jupyterlab.sif ~/lab/image.sif && chmod 755 ~/lab && chmod 600 ~/lab/image.sif"
    )
    cluster.run("login", "alice", ["sh", "-c", make], check=True)
    try:
        with (
            written(cluster, "laptop", "alice", "course/gpu-lab.toml", COURSE),
            written(cluster, "laptop", "alice", "course/intro.ipynb", "{}"),
        ):
            told = doctor(cluster, "--course", "/home/alice/course/gpu-lab.toml")
    finally:
        cluster.run("login", "alice", ["rm", "-rf", "lab"])
        cluster.run("laptop", "alice", ["rm", "-rf", "/home/alice/.config/notebook-launcher/courses"])
        write_profile(cluster, "laptop", "alice")  # in place of the saved course, which is the default
    assert told.faults == ["image for all"], told.checks
    assert told.checks["image for all"]["hint"] == "chmod a+r /home/alice/lab/image.sif"
    assert told.results("course", "notebooks", "room") == ["ok"] * 3
    assert "does not last" in told.checks["reservation lab1"]["found"]
    assert told.checks.get("as understood", {}).get("result") == "ok"


@each_scheduler
def test_on_the_login_node_a_node_is_asked_about_and_ctrl_c_while_it_looks_at_one_leaves_nothing(
    cluster: PracticeCluster, start: Start
) -> None:
    session = start("doctor", box="login")
    for check in ("scheduler", "account", "start", "image", "environment", "JupyterLab"):
        session.expect(rf"✓ {check} ")
    session.expect("Start a job of five minutes.*yes/no")
    session.send("yes\n")
    session.expect(r"job \d+ (is queued|waits|runs)")
    session.send("\x03")
    assert session.end() == 130
    assert_nothing_left(cluster)


def test_an_environment_that_hangs_goes_on_nowhere(cluster: PracticeCluster, start: Start) -> None:
    def hanging() -> int:
        return " ".join(people_processes(cluster, ("login",))).count("sleep 987")

    with profile('[environments.slow]\nactivate = "sleep 987; sleep 987"')(cluster):
        interrupted, killed = (start("doctor", "faulty", "--no-node", "--", "slow") for _ in range(2))
        wait_until(lambda: hanging() >= 2, 60, "both environments hang")
        interrupted.send("\x03")
        assert interrupted.end() == 130
        killed.child.kill(signal.SIGKILL)
        wait_until(lambda: not people_processes(cluster, ("login",)), 30, "nothing runs on the login node")
    left = cluster.run("login", "alice", ["sh", "-c", "ls -A ~/.notebook-launcher/sessions | grep checkup"]).stdout
    assert left == "", "a folder of a checkup that was killed goes with it"
