"""The main job on the practice cluster: real Slurm, real sshd, real Apptainer, a real terminal; an ordinary user."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable

import pytest

from notebook_launcher.core.sbatch_options import FLAGS
from tests.conftest import Session, assert_nothing_left, fetch
from tests.doubles import wait_until
from tests.practice_cluster import PracticeCluster

Start = Callable[..., Session]
# run again on the other generation of Slurm by `make test`
each_slurm = pytest.mark.each_slurm


def job(cluster: PracticeCluster, job_id: str, *clusters: str) -> str:
    return cluster.run("login", "alice", ["scontrol", *clusters, "show", "job", job_id]).stdout


def status_of(cluster: PracticeCluster, session: Session, box: str = "laptop") -> int:
    return fetch(cluster, box, session.api, session.token)[0]


@each_slurm
@pytest.mark.parametrize("box", ["laptop", "login"])
def test_from_command_to_jupyterlab_and_back(cluster: PracticeCluster, start: Start, box: str) -> None:
    session = start("-t", "2:00:00", "--gpus", "1", box=box)
    session.ready()
    assert "2 hours" in session.printed
    assert "JupyterLab runs on gpu1" in session.printed
    assert status_of(cluster, session, box) == 200
    assert fetch(cluster, box, session.api)[0] == 403
    text = job(cluster, session.job_id)
    assert "TimeLimit=02:00:00" in text
    assert "gpu" in text.partition("TRES=")[2]
    session.send("\n")
    assert session.end() == 0
    assert f"Job {session.job_id} is gone." in session.printed
    assert_nothing_left(cluster)


# the lines of the course's lab: what is typed, and what Slurm must have understood
LAB_LINES = [
    pytest.param([], ["TimeLimit=00:59:00", "Partition=core"], "tf-gpu", id="no words at all"),
    pytest.param(["-n", "4", "-p", "devcore", "--gres=gpu:t4:0", "--", "tf-mkl"],
                 ["NumCPUs=4 ", "Partition=devcore", "TimeLimit=00:59:00"], "tf-mkl", id="cores and no GPU"),
    pytest.param(["-n", "16", "-p", "devcore", "--gres=gpu:t4:0", "--", "tf-pip", "jupyterlab.sif"],
                 ["NumCPUs=16 ", "Partition=devcore"], "tf-pip", id="environment and container"),
]  # fmt: skip


@each_slurm
@pytest.mark.parametrize(("words", "understood", "environment"), LAB_LINES)
def test_the_lines_of_the_lab(
    cluster: PracticeCluster, start: Start, words: list[str], understood: list[str], environment: str
) -> None:
    session = start(*words)
    session.ready()
    text = job(cluster, session.job_id)
    assert [part for part in understood if part not in text] == []
    assert "gpu" not in text.partition("TRES=")[2].partition("\n")[0]
    assert status_of(cluster, session) == 200
    environ = cluster.root("login", ["sh", "-c", "squeue -h -o %N"]).stdout.strip()
    found = cluster.root(
        environ, ["sh", "-c", "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep ^COURSE_ENV | sort -u"]
    )
    assert found.stdout.strip() == f"COURSE_ENVIRONMENT={environment}"
    session.send("\n")
    assert session.end() == 0
    assert_nothing_left(cluster)


@each_slurm
def test_a_begin_time_that_has_passed_means_tomorrow(cluster: PracticeCluster, start: Start) -> None:
    begin = cluster.run("login", "alice", ["date", "+%H:%M"]).stdout.strip()
    session = start("-t", "3:00:00", "-b", begin)
    session.expect("tomorrow")
    session.expect("waits for its begin time")
    text = job(cluster, session.job_id)
    assert "Reason=BeginTime" in text
    assert "TimeLimit=03:00:00" in text
    session.send("\x03")
    assert session.end() == 130
    assert_nothing_left(cluster)


@each_slurm
def test_every_flag_at_once_on_another_cluster(cluster: PracticeCluster, start: Start) -> None:
    session = start("-M", "snowy", "-A", "proj1", "--reservation=lab1", "--qos=short", "--exclusive",
                    "--constraint=skylake", "--mem=55G")  # fmt: skip
    session.ready()
    text = job(cluster, session.job_id, "--clusters=snowy")
    for part in ("Account=proj1", "QOS=short", "Reservation=lab1", "Features=skylake", "OverSubscribe=NO"):
        assert part in text
    assert re.search(r"MinMemoryNode=55G", text)
    assert "on snowy" in session.printed
    session.send("\n")
    assert session.end() == 0
    assert_nothing_left(cluster)


def test_three_sessions_at_once(cluster: PracticeCluster, start: Start) -> None:
    sessions = [start("--new", "-n", "1"), start("--new", "-n", "2"), start("--new", "-n", "1", box="login")]
    for session in sessions:
        session.ready()
    assert len({session.session_id for session in sessions}) == 3
    assert len({session.token for session in sessions}) == 3
    first, *others = sessions
    first.send("\n")
    assert first.end() == 0
    assert [status_of(cluster, other, box) for other, box in zip(others, ("laptop", "login"), strict=True)] == [
        200,
        200,
    ]
    for other in others:
        other.send("\n")
        assert other.end() == 0
    assert_nothing_left(cluster)


# --- ways out ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("box", ["laptop", "login"])
def test_ctrl_c_while_held_ends_the_job(cluster: PracticeCluster, start: Start, box: str) -> None:
    session = start("-n", "1", box=box)
    session.ready()
    session.send("\x03")
    assert session.end() == 0
    assert f"Job {session.job_id} is gone." in session.printed
    assert_nothing_left(cluster)


def test_ctrl_c_twice_and_thrice_leaves_no_job(cluster: PracticeCluster, start: Start) -> None:
    for after in (0.45, 0.6, 0.8):
        session = start("-n", "1")
        subprocess.run(["sleep", str(after)], check=True)
        session.send("\x03\x03")
        session.end()
        assert "Traceback" not in session.printed
    assert_nothing_left(cluster)


@pytest.mark.parametrize("box", ["laptop", "login"])
def test_sigterm_ends_the_job(cluster: PracticeCluster, start: Start, box: str) -> None:
    session = start("-n", "1", box=box)
    session.ready()
    cluster.root(box, ["kill", "-TERM", str(launcher_pid(cluster, box))])
    assert session.end() == 0
    assert_nothing_left(cluster)


def test_a_closed_terminal_while_it_waits_leaves_it_waiting(cluster: PracticeCluster, start: Start) -> None:
    session = start("-n", "1", "-b", "now+1hour")
    session.expect("waits for its begin time")
    job_id = session.job_id
    session.child.close(force=False)
    wait_until(lambda: not launchers(cluster, "laptop"), 15, "the launcher ends")
    assert cluster.squeue() == [job_id]
    stopped = cluster.run("laptop", "alice", ["launch-notebook", "stop"])
    assert stopped.returncode == 0, stopped.stderr
    assert_nothing_left(cluster)


@pytest.mark.parametrize("after", [0.15, 0.3, 0.5, 0.7, 0.9, 1.2, 2.0])
def test_ctrl_c_at_any_moment_leaves_no_job(cluster: PracticeCluster, start: Start, after: float) -> None:
    session = start("-n", "1")
    subprocess.run(["sleep", str(after)], check=True)
    session.send("\x03")
    assert session.end() in (130, -2, 0), session.printed
    assert "Traceback" not in session.printed
    assert_nothing_left(cluster)


def test_d_leaves_it_running_and_connect_comes_back(cluster: PracticeCluster, start: Start) -> None:
    session = start("-n", "1")
    session.ready()
    session.send("d\n")
    assert session.end() == 0
    assert cluster.squeue() == [session.job_id]
    command = re.search(r"launch-notebook (connect .*)", session.printed)
    assert command, session.printed
    again = start(*command.group(1).split())
    again.ready()
    assert again.token == session.token
    assert status_of(cluster, again) == 200
    again.send("\n")
    assert again.end() == 0
    assert_nothing_left(cluster)


@pytest.mark.parametrize("box", ["laptop", "login"])
def test_a_closed_terminal_leaves_it_running(cluster: PracticeCluster, start: Start, box: str) -> None:
    session = start("-n", "1", box=box)
    session.ready()
    session_id, job_id = session.session_id, session.job_id
    session.child.close(force=False)  # closes the terminal, so that the kernel sends SIGHUP
    wait_until(lambda: not launchers(cluster, box), 15, "the launcher ends")
    assert cluster.squeue() == [job_id]
    if box == "laptop":
        wait_until(lambda: not users_on(cluster, "login"), 15, "nothing is left on the login node")
    stopped = cluster.run("laptop", "alice", ["launch-notebook", "stop", session_id])
    assert stopped.returncode == 0, stopped.stderr
    assert_nothing_left(cluster)


@pytest.mark.parametrize("box", ["laptop", "login"])
def test_a_killed_launcher_leaves_a_session_that_can_be_stopped(
    cluster: PracticeCluster, start: Start, box: str
) -> None:
    session = start("-n", "1", box=box)
    session.ready()
    cluster.root(box, ["kill", "-KILL", str(launcher_pid(cluster, box))])
    session.end()
    wait_until(lambda: not users_on(cluster, "login"), 15, "nothing is left on the login node")
    assert cluster.squeue() == [session.job_id]
    stopped = cluster.run("laptop", "alice", ["launch-notebook", "stop"])
    assert stopped.returncode == 0, stopped.stderr
    assert_nothing_left(cluster)


def launchers(cluster: PracticeCluster, box: str) -> list[str]:
    return [args for _, user, args in cluster.processes(box) if user == "alice" and "launch-notebook" in args]


def launcher_pid(cluster: PracticeCluster, box: str) -> int:
    """The launcher's process, as its box counts."""
    (pid,) = (pid for pid, user, args in cluster.processes(box) if user == "alice" and "/launch-notebook" in args)
    return pid


def users_on(cluster: PracticeCluster, box: str) -> list[str]:
    return [args for _, user, args in cluster.processes(box) if user == "alice"]


# --- other ways to JupyterLab, and what goes wrong (more of that in test_situations.py) -----------------------------


def test_a_module_instead_of_a_container(cluster: PracticeCluster, start: Start) -> None:
    session = start("-n", "1", "--", "module")
    session.ready()
    assert status_of(cluster, session) == 200
    session.send("\n")
    assert session.end() == 0
    assert_nothing_left(cluster)


def test_a_host_without_a_profile(cluster: PracticeCluster, start: Start) -> None:
    session = start("--host", "alice@login", "-n", "1", "--", "/sw/images/jupyterlab.sif")
    session.ready()
    assert status_of(cluster, session) == 200
    session.send("d\n")
    assert session.end() == 0
    stopped = cluster.run(
        "laptop", "alice", ["launch-notebook", "stop", "--host", "alice@login", session.session_id[:17]]
    )
    assert stopped.returncode == 0, stopped.stderr
    assert_nothing_left(cluster)


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
        quiet = cluster.run("laptop", "alice", ["sh", "-c", "launch-notebook -n 1 </dev/null"])
        assert quiet.returncode == 12, quiet.stdout
    finally:
        put_known_hosts(cluster, known_hosts)
        cluster.run("laptop", "alice", ["rm", "-f", "/tmp/other", "/tmp/other.pub"])
    assert_nothing_left(cluster)


def put_known_hosts(cluster: PracticeCluster, text: str) -> None:
    subprocess.run(cluster.argv("laptop", "alice", ["sh", "-c", "cat >~/.ssh/known_hosts"]), input=text, text=True,
                   check=True)  # fmt: skip


def test_a_password_is_asked_for_and_a_wrong_one_is_refused(cluster: PracticeCluster, start: Start) -> None:
    session = start("-n", "1", user="carol")
    for _ in range(3):
        session.expect("password: ")
        session.send("wrong\n")
    assert session.end() == 11
    assert "password" in session.printed
    assert "wrong" not in session.printed
    right = start("-n", "1", user="carol")
    right.expect("password: ")
    right.send("practice-carol\n")
    right.ready()
    assert "practice-carol" not in right.printed
    right.send("\n")
    assert right.end() == 0
    assert_nothing_left(cluster)


def test_nothing_typed_is_run(cluster: PracticeCluster, start: Start) -> None:
    evil = "$(touch /tmp/pwned)`touch /tmp/pwned`;touch /tmp/pwned"
    typed = (["-J", evil], ["--comment", evil], ["--mail-user", f"a'{evil}"], ["--conda", evil], ["--module", evil],
             ["--", f"/sw/{evil}.sif"])  # fmt: skip
    sessions = [start("-n", "1", *words) for words in typed]
    for session in sessions:
        session.read_along()
    for session in sessions:
        # to the node and back: either it comes up all the same, or its failure tells of the odd name
        session.saw("ENTER ends|launch-notebook:")
        if "ENTER ends" in session.printed:
            session.send("\n")
    for session in sessions:
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
        "echo container=/sw/images/jupyterlab.sif >by-hand/session.env && "
        "sbatch --output=by-hand.log jobscripts/jupyterlab.sh ~/by-hand"
    )
    cluster.run("login", "alice", ["sh", "-c", prepare])
    read = cluster.argv("login", "alice", ["cat", "by-hand/endpoint.json"])
    wait_until(lambda: subprocess.run(read, capture_output=True, check=False).returncode == 0, 60, "a port file")
    endpoint = json.loads(subprocess.run(read, capture_output=True, check=True).stdout)
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


@pytest.mark.parametrize("engine", ["auto", "openssh"])
def test_the_doctor_tells_the_engine_and_why(cluster: PracticeCluster, engine: str) -> None:
    told = cluster.run("laptop", "alice", ["launch-notebook", "doctor", "--engine", engine, "--no-node"])
    assert told.returncode == 0, told.stdout + told.stderr
    if engine == "auto":
        assert "paramiko: the ssh configuration asks for nothing that only OpenSSH has" in told.stdout
    else:
        assert "openssh: asked for" in told.stdout
    assert_nothing_left(cluster)


def test_the_nodes_host_key_is_checked_too(cluster: PracticeCluster, start: Start) -> None:
    impostor = "pkill -x sshd; ssh-keygen -q -t ed25519 -N '' -f /tmp/impostor; /usr/sbin/sshd -h /tmp/impostor"
    cluster.root("node2", ["sh", "-c", impostor])
    try:
        session = start("-n", "1", "-w", "node2", "--route", "node-ssh", columns=200)
        assert session.end() == 13
        assert "The host key of node2" in session.printed
        assert_nothing_left(cluster)
    finally:
        cluster.root("node2", ["sh", "-c", "pkill -x sshd; rm -f /tmp/impostor*; /usr/sbin/sshd"])


def test_another_clusters_node_of_the_same_name_does_not_matter(cluster: PracticeCluster, start: Start) -> None:
    known_hosts = cluster.run("laptop", "alice", ["sh", "-c", "cat ~/.ssh/known_hosts"]).stdout
    another = cluster.run("login", "alice", ["sh", "-c", "cat /etc/ssh/ssh_host_ed25519_key.pub"]).stdout.split()[:2]
    try:
        put_known_hosts(cluster, known_hosts + "\nnode1,node2 " + " ".join(another) + "\n")
        session = start("-n", "1", "--route", "node-ssh")
        session.ready()
        session.send("\n")
        assert session.end() == 0
    finally:
        put_known_hosts(cluster, known_hosts)
    assert_nothing_left(cluster)


def test_a_node_that_lets_nobody_in(cluster: PracticeCluster, start: Start) -> None:
    cluster.root("node2", ["pkill", "-x", "sshd"])
    try:
        session = start("-n", "1", "-w", "node2", "--route", "node-ssh", columns=200)
        assert session.end() == 14
        assert "No route to node2 was found" in session.printed
        assert_nothing_left(cluster)
    finally:
        cluster.root("node2", ["/usr/sbin/sshd"])


def test_a_requeued_job_is_followed_to_its_second_run(cluster: PracticeCluster, start: Start) -> None:
    session = start("-n", "1", "--requeue")
    first = session.ready()
    cluster.root("ctl", ["scontrol", "requeue", session.job_id])
    session.expect("put back into the queue")
    # Slurm holds a requeued job back for a while by a begin time
    wait_until(lambda: "BeginTime" in job(cluster, session.job_id), 30, "the job waits again")
    cluster.root("ctl", ["scontrol", "update", f"JobId={session.job_id}", "StartTime=now"])
    second = session.ready()
    assert status_of(cluster, session) == 200
    assert first == second  # an open tab finds its new server at the same address
    session.send("\n")
    assert session.end() == 0
    assert_nothing_left(cluster)


def test_a_password_that_the_node_asks_for(cluster: PracticeCluster, start: Start) -> None:
    session = start("-n", "1", "--route", "node-ssh", box="login", user="carol")
    session.expect("carol@node.'s password: ")
    session.send("practice-carol\n")
    session.ready()
    assert "practice-carol" not in session.printed
    session.send("\n")
    assert session.end() == 0
    assert_nothing_left(cluster)


# --- for programs --------------------------------------------------------------------------------------------------


def test_dry_run_does_nothing(cluster: PracticeCluster) -> None:
    before = cluster.run("login", "alice", ["sh", "-c", "ls ~/.notebook-launcher/sessions 2>/dev/null | wc -l"]).stdout
    done = cluster.run("laptop", "alice", ["launch-notebook", "--dry-run", "-n", "2", "--gpus", "1", "--", "tf-mkl"])
    assert done.returncode == 0
    assert "sbatch --parsable --gpus=1" in done.stdout
    assert "container=/sw/images/jupyterlab.sif" in done.stdout
    after = cluster.run("login", "alice", ["sh", "-c", "ls ~/.notebook-launcher/sessions 2>/dev/null | wc -l"]).stdout
    assert (before, cluster.squeue()) == (after, [])


def test_json_prints_events_and_nothing_else(cluster: PracticeCluster) -> None:
    argv = cluster.argv("laptop", "alice", ["launch-notebook", "--json", "-n", "1"])
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        events = []
        for line in process.stdout:
            events.append(json.loads(line))
            if events[-1]["event"] == "ready":
                process.stdin.write("\n")
                process.stdin.flush()
        assert process.wait(30) == 0
    names = [event["event"] for event in events]
    assert names[0] == "connecting"
    assert [name for name in names if name in ("submitted", "running", "ready", "stopping", "ended")] == [
        "submitted", "running", "ready", "stopping", "ended"]  # fmt: skip
    assert_nothing_left(cluster)


def test_json_tells_an_error_as_an_event(cluster: PracticeCluster) -> None:
    done = cluster.run("laptop", "alice", ["launch-notebook", "--json", "-p", "nowhere"])
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 51
    assert events[-1]["event"] == "error"
    assert events[-1]["kind"] == "PartitionRefused"
