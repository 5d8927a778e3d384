"""Launches by ordinary users on the practice cluster: with real Slurm, sshd and Apptainer, in a real terminal."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from notebook_launcher.core.sbatch_options import FLAGS
from tests.cluster_tests import in_box
from tests.cluster_tests.situation import STAND_IN, together, venv, wait_in
from tests.cluster_tests.situations import LIGHT
from tests.conftest import Session, assert_nothing_left, fetch, launch
from tests.doubles import wait_until
from tests.practice_cluster import PracticeCluster

Start = Callable[..., Session]
LAUNCH = in_box.launch
# run again on other releases of Slurm by `make test`
each_slurm, newest_slurm = pytest.mark.each_slurm, pytest.mark.newest_slurm
each_scheduler = pytest.mark.each_scheduler


@pytest.fixture(scope="module", autouse=True)
def _light(cluster: PracticeCluster) -> Iterator[None]:
    """Provide a stand-in for JupyterLab, for tests of everything else."""
    with together(*(venv("light", STAND_IN, user) for user in ("alice", "carol")))(cluster):
        yield


def job(cluster: PracticeCluster, job_id: str, *clusters: str) -> str:
    return cluster.run("login", "alice", ["scontrol", *clusters, "show", "job", job_id]).stdout


def status_of(cluster: PracticeCluster, session: Session, box: str = "laptop") -> int:
    return fetch(cluster, box, session.api, session.token)[0]


def end(session: Session, how: str = "ENTER") -> None:
    """End an attached session in a way that has exit code 0."""
    if how == "SIGTERM":
        session.child.kill(signal.SIGTERM)
    else:
        session.send({"ENTER": "\n", "Ctrl-C": "\x03"}[how])
    assert session.end() == 0
    assert re.search(rf"Job {session.job_id}( on \w+)? has ended\.", session.printed), session.printed


# the box, the arguments, what Slurm's record must contain, what is printed, the environment, and how the session ends
LAUNCHES = [
    pytest.param("laptop", [], ["TimeLimit=00:59:00", "Partition=core"], "59 minutes", "tf-gpu", "lost",
                 id="no words at all"),
    pytest.param("laptop", ["-n", "16", "-p", "devcore", "--gres=gpu:t4:0", "--", "tf-pip", "jupyterlab.sif"],
                 ["NumCPUs=16 ", "Partition=devcore", "TimeLimit=00:59:00"], "59 minutes", "tf-pip", "Ctrl-C",
                 id="a line of the course's lab"),
    pytest.param("login", ["-t", "2:00:00", "--gpus", "1"], ["TimeLimit=02:00:00"], "JupyterLab runs on gpu1", "tf-gpu",
                 "lost", id="a GPU, from the login node", marks=[each_slurm, newest_slurm]),
]  # fmt: skip


@pytest.mark.parametrize(("box", "words", "understood", "told", "environment", "how"), LAUNCHES)
def test_from_command_to_jupyterlab_and_back(
    cluster: PracticeCluster,
    start: Start,
    box: str,
    words: list[str],
    understood: list[str],
    told: str,
    environment: str,
    how: str,
) -> None:
    session = start(*words, box=box, by=launch if how == "lost" else LAUNCH)
    session.ready()
    assert told in session.printed
    assert "paramiko" not in session.printed, "the engine is told with --verbose alone"
    assert status_of(cluster, session, box) == 200
    assert fetch(cluster, box, session.api)[0] == 403
    text = job(cluster, session.job_id)
    assert [part for part in understood if part not in text] == []
    assert ("gpu" in text.partition("TRES=")[2].partition("\n")[0]) == ("--gpus" in words)
    node = cluster.root("login", ["sh", "-c", "squeue -h -o %N"]).stdout.strip()
    found = cluster.root(node, ["sh", "-c", "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep ^COURSE_ENV | sort -u"])
    assert found.stdout.strip() == f"COURSE_ENVIRONMENT={environment}"
    if how == "lost":
        lose_launchers(cluster, start, session, box)
    else:
        end(session, how)
    assert_nothing_left(cluster)


@each_slurm
def test_a_begin_time_that_has_passed_means_tomorrow_and_a_closed_terminal_leaves_the_job_waiting(
    cluster: PracticeCluster, start: Start
) -> None:
    begin = cluster.run("login", "alice", ["date", "+%H:%M"]).stdout.strip()
    session = start("-t", "3:00:00", "-b", begin, by=launch)
    session.expect("tomorrow")
    session.expect("waits for its begin time")
    text = job(cluster, session.job_id)
    assert "Reason=BeginTime" in text
    assert "TimeLimit=03:00:00" in text
    close_terminal(cluster, session, "laptop")
    stop(cluster, session.session_id)
    assert_nothing_left(cluster)


@each_slurm
def test_every_flag_at_once_on_another_cluster(cluster: PracticeCluster, start: Start) -> None:
    session = start("-M", "snowy", "-A", "proj1", "--reservation=lab1", "--qos=short", "--exclusive",
                    "--constraint=skylake", "--mem=55G", *LIGHT)  # fmt: skip
    session.ready()
    text = job(cluster, session.job_id, "--clusters=snowy")
    for part in ("Account=proj1", "QOS=short", "Reservation=lab1", "Features=skylake", "OverSubscribe=NO"):
        assert part in text
    assert re.search(r"MinMemoryNode=55G", text)
    assert "on snowy" in session.printed
    end(session)
    assert_nothing_left(cluster)


@contextlib.contextmanager
def forwarded_as_told(cluster: PracticeCluster, session: Session) -> Iterator[None]:
    """Run on the laptop, unchanged, the command that a launch on the login node, typed over ssh, prints for it."""
    session.expect("To open the address on your own computer, type there:")
    told = session.expect(r"ssh -N -L [^\r\n]+").group(0)
    session.expect(rf"launch-notebook connect --host \S+ {session.session_id[-4:]}\s")
    # The laptop knows the login node's key only by the node's name, but the command has its address.
    command = ["sh", "-c", f"exec {told.replace('ssh', 'ssh -o StrictHostKeyChecking=accept-new', 1)}"]
    child = subprocess.Popen(cluster.argv("laptop", "alice", command), stdin=subprocess.DEVNULL)
    try:
        port = session.url.split(":")[2].split("/")[0]
        listens = f"ss -Hltn sport = :{port}"
        wait_until(lambda: cluster.root("laptop", ["sh", "-c", listens]).stdout, 60, "the port is open on the laptop")
        yield
    finally:
        child.terminate()
        child.wait()


@each_scheduler
def test_two_sessions_at_once_each_ended_by_sigterm(cluster: PracticeCluster, start: Start) -> None:
    by_ssh = start("--new", "-n", "1", *LIGHT, box="login", by=launch, logged_in_from="laptop", columns=120)
    write = 'echo \'{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}\' >\'my lab.ipynb\''
    cluster.run("laptop", "alice", ["sh", "-c", write], check=True)
    with_notebook = start("my lab.ipynb", "--new", "-n", "1")
    for session in (with_notebook, by_ssh):
        session.ready()
    assert with_notebook.session_id != by_ssh.session_id
    assert with_notebook.token != by_ssh.token
    assert "/lab/tree/my%20lab.ipynb?token=" in with_notebook.url
    contents = with_notebook.api.replace("api/status", "api/contents/my%20lab.ipynb?type=notebook")
    assert fetch(cluster, "laptop", contents, with_notebook.token)[0] == 200, "it was sent, and JupyterLab shows it"
    for box in ("laptop", "login"):
        cluster.run(box, "alice", ["rm", "-rf", "my lab.ipynb", ".notebook-launcher/opened"], check=True)
    end(with_notebook, "SIGTERM")
    with forwarded_as_told(cluster, by_ssh):
        assert status_of(cluster, by_ssh) == 200  # on the laptop, by the address that was printed
    cluster.root("login", ["kill", "-TERM", str(launcher_pid(cluster, "login"))])
    assert by_ssh.end() == 0
    assert f"Job {by_ssh.job_id} has ended." in by_ssh.printed, by_ssh.printed
    assert_nothing_left(cluster)


# --- interrupted, closed and killed launchers ----------------------------------------------------------------------


@pytest.mark.parametrize(("after", "keys"), [(0.5, "\x03"), (0.7, "\x03\x03"), (1.2, "\x03"), (2.0, "\x03")])
def test_ctrl_c_at_any_moment_leaves_no_job(cluster: PracticeCluster, start: Start, after: float, keys: str) -> None:
    session = start("-n", "1", by=launch)
    subprocess.run(["sleep", str(after)], check=True)
    session.send(keys)
    ended = session.end()
    assert ended in (130, -2, 0) or len(keys) > 1, session.printed
    assert "Traceback" not in session.printed
    assert_nothing_left(cluster)


def lose_launchers(cluster: PracticeCluster, start: Start, session: Session, box: str) -> None:
    """Close the terminal, connect again and kill the launcher: each leaves the session running. ``stop`` ends it."""
    close_terminal(cluster, session, box)
    again = start("connect", session.session_id, box=box)
    again.ready(started_here=False)
    assert again.token == session.token
    assert status_of(cluster, again, box) == 200
    again.child.kill(signal.SIGKILL)
    again.end()
    wait_until(lambda: not users_on(cluster, "login"), 30, "nothing is left on the login node")
    assert cluster.squeue() == [session.job_id]
    stop(cluster, "--host", "alice@login", session.session_id[:17])  # it needs no profile


def close_terminal(cluster: PracticeCluster, session: Session, box: str) -> None:
    """Close the terminal, so that the launcher gets SIGHUP and ends, while the job continues."""
    job_id = session.job_id
    session.child.close(force=False)
    wait_until(lambda: not launchers(cluster, box), 30, "the launcher ends")
    wait_until(lambda: not users_on(cluster, "login"), 30, "nothing is left on the login node")
    assert cluster.squeue() == [job_id]


def stop(cluster: PracticeCluster, *words: str) -> None:
    stopped = in_box.launcher(cluster, "laptop", "alice", "stop", *words)
    assert stopped.returncode == 0, stopped.stderr


def launchers(cluster: PracticeCluster, box: str) -> list[str]:
    return [args for _, user, args in cluster.processes(box) if user == "alice" and "launch-notebook" in args]


def launcher_pid(cluster: PracticeCluster, box: str) -> int:
    """Return the id that the launcher's process has in its box."""
    (pid,) = (pid for pid, user, args in cluster.processes(box) if user == "alice" and "/launch-notebook" in args)
    return pid


def users_on(cluster: PracticeCluster, box: str) -> list[str]:
    return [args for _, user, args in cluster.processes(box) if user == "alice"]


# --- host keys, hostile arguments, flags, the job script by hand (errors: test_situations.py) -----------------------


def test_a_wrong_host_key_is_refused(cluster: PracticeCluster, start: Start) -> None:
    known_hosts = cluster.run("laptop", "alice", ["sh", "-c", "cat ~/.ssh/known_hosts"]).stdout
    other = cluster.run(
        "laptop", "alice", ["sh", "-c", "ssh-keygen -q -t ed25519 -N '' -f /tmp/other; cat /tmp/other.pub"]
    )
    try:
        put_known_hosts(cluster, "login.practice.test,login " + " ".join(other.stdout.split()[:2]) + "\n")
        session = start("-n", "1", columns=200)
        assert session.end() == 13
        assert "known_hosts, line 1" in session.printed
        put_known_hosts(cluster, "")
        asked = start("-n", "1", columns=200)
        asked.expect(r"SHA256:[\s\S]*yes/no")
        asked.send("no\n")
        assert asked.end() == 12
    finally:
        put_known_hosts(cluster, known_hosts)
        cluster.run("laptop", "alice", ["rm", "-f", "/tmp/other", "/tmp/other.pub"])
    assert_nothing_left(cluster)


def put_known_hosts(cluster: PracticeCluster, text: str) -> None:
    cluster.run("laptop", "alice", ["sh", "-c", "cat >~/.ssh/known_hosts"], input=text, check=True)


def test_nothing_typed_is_run(cluster: PracticeCluster, start: Start) -> None:
    evil = "$(touch /tmp/pwned)`touch /tmp/pwned`;touch /tmp/pwned"
    typed = (["-J", evil, "--comment", evil, "--mail-user", f"a'{evil}", *LIGHT], ["--conda", evil], ["--module", evil],
             ["--", f"/sw/{evil}.sif"])  # fmt: skip
    sessions = [start("-n", "1", *words) for words in typed]
    for session in sessions:
        session.read_along()
    for session in sessions:
        # either it starts in spite of the odd names, or it fails with an error about one
        session.saw("ENTER or Ctrl-C ends|launch-notebook:")
    sessions[0].send("\n")
    assert sessions[0].end() == 0
    for session in sessions[1:]:
        session.end()
    for box in ("laptop", "login", "node1", "node2", "gpu1"):
        assert cluster.root(box, ["sh", "-c", "ls /tmp/pwned 2>/dev/null"]).stdout == ""
    assert_nothing_left(cluster)


@each_slurm
def test_every_flag_of_this_sbatch_is_known(cluster: PracticeCluster) -> None:
    shown = cluster.run("login", "alice", ["sbatch", "--help"]).stdout
    pairs = {(name, letter) for letter, name in re.findall(r"^ +(?:-(\w), +)?--([a-z][a-z0-9-]+)", shown, re.MULTILINE)}
    assert len(pairs) > 80, shown
    known = {(flag.name, flag.letter) for flag in FLAGS}
    assert {
        (name, letter) for name, letter in pairs if name not in ("help", "usage", "version", "verbose")
    } - known == set()


def test_the_job_script_works_by_hand(cluster: PracticeCluster) -> None:
    prepare = (
        "cp -r /opt/notebook-launcher/jobscripts . && mkdir -m 700 by-hand && "
        "echo venv=$HOME/light >by-hand/session.env && "
        "sbatch --output=by-hand.log jobscripts/jupyterlab.sh ~/by-hand"
    )
    cluster.run("login", "alice", ["sh", "-c", prepare])
    wait_in(cluster, "login", "[ -e ~alice/by-hand/endpoint.json ]", 60)
    endpoint = json.loads(cluster.run("login", "alice", ["cat", "by-hand/endpoint.json"], check=True).stdout)
    token = cluster.run("login", "alice", ["cat", "by-hand/token"]).stdout
    url = f"http://127.0.0.1:{endpoint['port']}/api/status"
    assert fetch(cluster, endpoint["node"], url, token)[0] == 200
    assert fetch(cluster, endpoint["node"], url)[0] == 403
    cluster.run("login", "alice", ["scancel", "-u", "alice"])
    wait_until(lambda: not cluster.squeue(), 30, "the job is gone")
    ended = json.loads(cluster.run("login", "alice", ["cat", "by-hand/exit.json"]).stdout)
    assert ended["cause"] == "stopped"
    assert token not in cluster.run("login", "alice", ["cat", "by-hand.log"]).stdout
    cluster.run("login", "alice", ["sh", "-c", "rm -rf by-hand by-hand.log jobscripts"])
    assert_nothing_left(cluster)


def test_the_nodes_host_key_is_checked_too(cluster: PracticeCluster, start: Start) -> None:
    impostor = "pkill -x sshd; ssh-keygen -q -t ed25519 -N '' -f /tmp/impostor; /usr/sbin/sshd -h /tmp/impostor"
    cluster.root("node2", ["sh", "-c", impostor])
    try:
        session = start("-n", "1", "-w", "node2", "--route", "node-ssh", *LIGHT, columns=200)
        assert session.end() == 13
        assert "The host key of node2" in session.printed
        assert_nothing_left(cluster)
    finally:
        cluster.root("node2", ["sh", "-c", "pkill -x sshd; rm -f /tmp/impostor*; /usr/sbin/sshd"])


def test_a_password_that_the_node_asks_for_again_after_a_wrong_one(cluster: PracticeCluster, start: Start) -> None:
    session = start("-n", "1", "--route", "node-ssh", *LIGHT, box="login", user="carol")
    for password in ("wrong", "practice-carol"):
        session.expect("carol@node.'s password: ")
        session.send(f"{password}\n")
    session.ready()
    assert "wrong" not in session.printed
    assert "practice-carol" not in session.printed
    end(session)
    assert_nothing_left(cluster)
