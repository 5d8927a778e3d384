"""Launches at difficult sites, in a terminal, as a user would do them.

Each user stands for a kind of site: see tests/practice_cluster/layout.py. test_practice_sites.py tests that these sites
behave as described there.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from notebook_launcher.core.errors import HostCommandFailed
from tests.cluster_tests import in_box
from tests.cluster_tests.situation import STAND_IN, assert_no_noise
from tests.conftest import Session, assert_nothing_left, fetch
from tests.doubles import wait_until
from tests.practice_cluster import BOXES, USERS, PracticeCluster, one_time_code

LAUNCH = in_box.launch

Start = Callable[..., Session]

MEMORY = "~/.local/state/notebook-launcher"
QUERY_RPCS = r"(?i)(?:password|code): "
SSH_CONFIG = "~/sites_ssh_config"
# For tests of nothing but the route to JupyterLab: a stand-in for it, which starts at once.
VENV = ("--venv", "~/light")
LIGHT = (*VENV, "--", "plain")
MAKE_VENV = """\
mkdir -p light/bin; cd light/bin; ln -sf /usr/bin/python3 python; echo 'PATH=~/light/bin:$PATH' >activate
(echo '#!/bin/bash'; cat) >jupyter-lab; chmod 755 jupyter-lab
"""


@pytest.fixture(scope="module", autouse=True)
def _light(cluster: PracticeCluster) -> Iterator[None]:
    users = {"alice", "heidi", *(site.user for site in SITES.values())}
    for user in users:
        cluster.run("login", user, ["sh", "-c", MAKE_VENV], input=STAND_IN, check=True)
    yield
    for user in users:
        cluster.run("login", user, ["rm", "-r", "light"], check=True)


@pytest.fixture(autouse=True)
def _every_site_is_new(cluster: PracticeCluster) -> None:
    """Remove what the launcher has saved about the cluster in other tests."""
    files = (MEMORY, SSH_CONFIG)
    cluster.root("laptop", ["sh", "-c", f"rm -rf {' '.join(files).replace('~', '/home/*')}"], check=True)
    for user in USERS:
        cluster.forget_codes(user)


class Site(NamedTuple):
    """A launch by a user. ``questions``: how many they are asked in all, each before the address is printed."""

    user: str
    arguments: tuple[str, ...]
    route: str
    questions: int = 0
    engine: str = "paramiko"
    ssh_config: str = ""


OTHER_PORT = f"Include ~/.ssh/config\nHost login-8822\n  HostName {BOXES['login'].outside}\n  Port 8822\n" \
             "  HostKeyAlias login\n"  # fmt: skip

SITES = {
    "password and code, openssh": Site("dave", LIGHT, "step", 2, "openssh"),
    "no forwarding and no ssh to nodes, paramiko": Site("erin", LIGHT, "step"),
    "no ssh to nodes, a server in the job": Site("grace", ("--route", "job-sshd", *LIGHT), "job-sshd"),
    "csh and noise, the job connects, openssh": Site(
        "frank", ("--route", "reverse", *LIGHT), "reverse", engine="openssh"
    ),
    "csh and noise, over a step, openssh": Site("frank", ("--route", "step", *LIGHT), "step", engine="openssh"),
    "two jumps, paramiko": Site("alice", ("--host", "deep", *VENV), "node-ssh"),
    "another port of the ssh configuration": Site(
        "alice", ("--host", "login-8822", *VENV), "node-ssh", engine="openssh", ssh_config=OTHER_PORT
    ),
}  # fmt: skip


def put_config(cluster: PracticeCluster, user: str, text: str) -> None:
    cluster.run("laptop", user, ["sh", "-c", f"cat >{SSH_CONFIG}"], input=text, check=True)


def answer_questions(session: Session, user: str) -> list[str]:
    """Answer all questions until the address is printed; return them in lower case, without their colons."""
    asked = []
    while True:
        question = session.expect(rf"{QUERY_RPCS}|http://127\.0\.0\.1:\d+/lab\?token=[\w-]+|launch-notebook: ").group(0)
        if question.startswith("http"):
            session.url = question
            session.expect("ENTER or Ctrl-C ends")
            return asked
        if question.startswith("launch-notebook"):
            session.end()
            pytest.fail(session.printed)
        asked.append(question.lower().rstrip(": "))
        session.send(f"{USERS[user].password if 'password' in question.lower() else one_time_code(user)}\n")


def leave(session: Session) -> None:
    session.send("\n")
    assert session.end() == 0, session.printed


@pytest.mark.parametrize("site", SITES.values(), ids=list(SITES))
def test_every_site_is_reached(cluster: PracticeCluster, start: Start, site: Site) -> None:
    flags: list[str] = ["-n", "1", "--verbose", "--engine", site.engine]
    if site.ssh_config:
        put_config(cluster, site.user, site.ssh_config)
        flags += ["--ssh-config", SSH_CONFIG.replace("~", f"/home/{site.user}")]
    session = start(*flags, *site.arguments, user=site.user, columns=200)
    asked = answer_questions(session, site.user)
    password = ["password"] if USERS[site.user].password else []
    assert asked == [*password, "code"][: site.questions]
    assert f" by {site.engine}: asked for" in session.printed
    assert re.search(rf"Connected to \w+ \({site.route}\)", session.printed), session.printed
    assert fetch(cluster, "laptop", session.api, session.token, user=site.user)[0] == 200
    assert fetch(cluster, "laptop", session.api, user=site.user)[0] == 403
    leave(session)
    assert len(re.findall(QUERY_RPCS, session.printed)) == site.questions
    assert_no_noise(session)
    assert_nothing_left(cluster)


@pytest.mark.parametrize("engine", ["paramiko", "openssh"])
def test_after_a_short_cut_the_keys_are_for_the_session_again_and_after_a_drop_a_new_code_is_asked_for(
    cluster: PracticeCluster, start: Start, engine: str
) -> None:
    """A new connection needs a code, and the question for it may come just when the old connection works again."""
    session = start("-n", "1", "--verbose", "--engine", engine, *LIGHT, user="heidi", columns=200)
    assert answer_questions(session, "heidi") == ["code"]
    assert re.search(r"Connected to \w+ \(node-ssh\)", session.printed), session.printed
    session.read_along()
    with cluster.unplugged("laptop"):
        session.saw("(?i)network down, trying again")
        time.sleep(2)  # 7 to 8 s in all: the launcher waits longer for the old connection
    session.saw("Connected again")
    assert fetch(cluster, "laptop", session.api, session.token, user="heidi")[0] == 200
    time.sleep(3)  # a question that was about to come has come
    session.send("x\n")
    session.saw("ENTER alone, or Ctrl-C, ends the session")  # no question has read the line

    cluster.kill_connections("login", "heidi")
    session.saw(QUERY_RPCS)
    session.send(f"{one_time_code('heidi', time.time() + 30)}\n")  # the next one: the server accepts no code twice
    session.saw("Connected again")
    assert fetch(cluster, "laptop", session.api, session.token, user="heidi")[0] == 200
    leave(session)
    assert len(re.findall(QUERY_RPCS, session.printed.partition("ENTER alone, or")[2])) == 1, session.printed
    assert_nothing_left(cluster)


def test_a_refusal_by_the_job_at_a_noisy_site_is_readable(cluster: PracticeCluster, start: Start) -> None:
    session = start("-n", "1", "--engine", "paramiko", "--", "no-jupyter", user="frank", columns=200)
    assert session.end() == 95, session.printed
    assert "no JupyterLab in the container" in session.printed
    assert_no_noise(session)
    assert_nothing_left(cluster)


WITH_A_GPU = """\
base = "practice"

[gpu]
default = 1
default_type = "t4"
flags = { partition = "gpu", gres = "gpu:{type}:{count}" }

[gpu.types.t4]
description = "16 GB"

[cpu.flags]
partition = "core"
"""


def test_the_gpu_of_a_profile_is_cancelled_by_gpus_0(cluster: PracticeCluster, start: Start) -> None:
    path = "/home/alice/.config/notebook-launcher/clusters/one-gpu.toml"
    cluster.run("laptop", "alice", ["sh", "-c", 'cat >"$1"', "write", path], input=WITH_A_GPU, check=True)
    try:
        for words, partition, gpus in (((), "gpu", 1), (("--gpus", "0"), "core", 0)):
            session = start("--cluster", "one-gpu", "-n", "1", *words, *VENV, columns=200)
            session.ready()
            job = cluster.root("login", ["scontrol", "show", "job", "-o", session.job_id]).stdout
            assert f" Partition={partition} " in job, job
            assert re.findall(r"AllocTRES=\S*gres/gpu=(\d)", job) == (["1"] if gpus else []), job
            leave(session)
    finally:
        cluster.run("laptop", "alice", ["rm", path], check=True)
    assert_nothing_left(cluster)


# --- who listens where ---------------------------------------------------------------------------------------------


KNOCK = """\
import http.client, sys
host, port, token = sys.stdin.read().split("\\n")
connection = http.client.HTTPConnection(host, int(port), timeout=10)
try:
    # whoever wants to get in does not tell that they come from elsewhere
    connection.request("GET", "/api/status", headers={"Host": "localhost", "Authorization": f"token {token}"})
    print(connection.getresponse().status)
except OSError:
    print(0)
"""


def knock(cluster: PracticeCluster, session: Session, box: str, token: str = "") -> int:
    """Let bob request alice's JupyterLab at its node's address from a box; return the HTTP status, 0: no connection."""
    find = f"cat ~/.notebook-launcher/sessions/{session.session_id}/endpoint.json"
    port = json.loads(cluster.run("login", "alice", ["sh", "-c", find], check=True).stdout)["port"]
    node = cluster.root("login", ["squeue", "-h", "-j", session.job_id, "-o", "%N"]).stdout.strip()
    knocks = cluster.run(box, "bob", ["python3", "-c", KNOCK], input=f"{node}\n{port}\n{token}", check=True)
    return int(knocks.stdout)


def test_a_node_without_sshd_is_reached_by_an_open_port_alone_which_the_token_guards(
    cluster: PracticeCluster, start: Start
) -> None:
    with cluster.no_sshd():
        refused = start("-n", "1", "-w", "node2", *LIGHT, columns=400)
        assert refused.end() == 14, refused.printed
        for word in ("No route to node2", "node-ssh:", "step:", "job-sshd:", "port 22 cannot be reached",
                     "--route direct"):  # fmt: skip
            assert word in refused.printed, refused.printed
        assert_nothing_left(cluster)
        session = start("-n", "1", "-w", "node2", "--route", "direct", "--verbose", columns=200)
        session.ready()
        assert "everybody on the cluster can reach its port" in session.printed
        assert "(direct)" in session.printed
        assert fetch(cluster, "laptop", session.api, session.token)[0] == 200
        assert [knock(cluster, session, box) for box in ("login", "node1", "node2")] == [403, 403, 0]
        assert knock(cluster, session, "login", "guessed") == 403
        assert knock(cluster, session, "login", session.token) == 200  # the token is all that keeps others out
        leave(session)
    assert_nothing_left(cluster)


# --- the job connects ----------------------------------------------------------------------------------------------

TAMPERING = ("ls FOLDER", "cat FOLDER/down", "echo SSH-2.0-bob >FOLDER/up", "mv FOLDER /tmp/taken", "rm -r FOLDER",
             "ln -sfT /tmp FOLDER", "ln -sf /dev/null FOLDER/up", "chmod 777 FOLDER", "ls -l DIR/runtime/reverse",
             "echo bob00000 >>DIR/runtime/reverse/calls", "bash DIR/reverse.sh join DIR TAG")  # fmt: skip


def test_a_job_connects_to_the_login_node_that_calls_it_again_after_a_cut_and_to_nobody_else(
    cluster: PracticeCluster, start: Start
) -> None:
    """Erin may not log in to nodes, and the login node forwards nothing for her."""
    session = start("-n", "1", "--verbose", "--host", "login2", "--route", "reverse", *VENV, user="erin", columns=200)
    session.ready()
    assert re.search(r"Connected to \w+ \(reverse\)", session.printed), session.printed
    node = cluster.root("login", ["squeue", "-h", "-j", session.job_id, "-o", "%N"]).stdout.strip()
    session.read_along()
    cluster.root(node, ["pkill", "-x", "-u", "erin", "ssh"], check=True)
    session.saw("Connected again")
    assert fetch(cluster, "laptop", session.api, session.token, user="erin")[0] == 200
    listening = cluster.root(node, ["ss", "-Hltn"], check=True).stdout
    assert "127.0.0.1:" in listening and not re.search(r"(?<!127\.0\.0\.1):(6[1-5]\d{3}) ", listening), listening

    directory = f"/home/erin/.notebook-launcher/sessions/{session.session_id}"
    called = cluster.run("login", "erin", ["bash", f"{directory}/reverse.sh", "call", directory], check=True)
    tag = called.stdout.split()[1]
    for what in TAMPERING:
        typed = what.replace("FOLDER", f"/tmp/nl-call-{tag}").replace("DIR", directory).replace("TAG", tag)
        tried = cluster.run("login", "bob", ["sh", "-c", typed])
        assert tried.returncode != 0 and not tried.stdout, (typed, tried)
    join = f"(sleep 1; echo bye) | bash {directory}/reverse.sh join {directory} {tag}"
    assert cluster.run("login", "erin", ["sh", "-c", join]).stdout.startswith("SSH-2.0-")
    leave(session)
    assert cluster.root("login", ["sh", "-c", "ls -d /tmp/nl-call-*"]).stdout == ""
    assert_nothing_left(cluster)


def test_why_a_job_cannot_connect_is_said(cluster: PracticeCluster, start: Start) -> None:
    keys = "mv .ssh/id_ed25519 .ssh/away"
    cluster.run("login", "grace", ["sh", "-c", keys], check=True)
    try:
        refused = start("-n", "1", "--route", "reverse", *LIGHT, user="grace", columns=400)
        assert refused.end() == 14, refused.printed
    finally:
        cluster.run("login", "grace", ["mv", ".ssh/away", ".ssh/id_ed25519"], check=True)
    assert re.search(r"login does not let node\d in without a password.*Permission denied", refused.printed)
    assert "add a key of yours to ~/.ssh/authorized_keys" in refused.printed
    assert_nothing_left(cluster)


# --- what the launcher saves ---------------------------------------------------------------------------------------


def test_the_second_launch_goes_straight_to_what_worked(cluster: PracticeCluster, start: Start) -> None:
    """A first launch would try ``node-ssh`` first, which would work as well."""
    for route in (("--route", "step"), ()):
        session = start("-n", "1", "--verbose", *route, *LIGHT, columns=200)
        session.ready()
        assert "by paramiko: the ssh configuration asks for nothing that only OpenSSH has" in session.printed
        assert re.search(r"Connected to \w+ \(step\)", session.printed), session.printed
        env = f"cat ~/.notebook-launcher/sessions/{session.session_id}/session.env"
        assert "sshd=yes" not in cluster.run("login", "alice", ["sh", "-c", env]).stdout
        leave(session)
    # only the user may read it, because it shows where they work
    open_to_others = f"find {MEMORY} -type d ! -perm 700 -o ! -type d ! -perm 600"
    assert cluster.run("laptop", "alice", ["sh", "-c", open_to_others], check=True).stdout == ""
    routes = cluster.run("laptop", "alice", ["sh", "-c", f"cat {MEMORY}/routes.json"]).stdout
    assert json.loads(routes) == {"practice": "step"}
    assert_nothing_left(cluster)


# --- engines -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def a_connection_of_the_users_own(cluster: PracticeCluster) -> Iterator[list[str]]:
    """Open a master connection of alice's own to the login node; yield the start of an ssh command that uses it."""
    put_config(cluster, "alice", "Host login\n  ControlPath ~/.ssh/cm-%C\nInclude ~/.ssh/config\n")
    ssh = ["ssh", "-F", "/home/alice/sites_ssh_config"]
    cluster.run("laptop", "alice", [*ssh, "-MNf", "login"], check=True)
    try:
        yield ssh
    finally:
        cluster.run("laptop", "alice", [*ssh, "-O", "exit", "login"])


def test_a_connection_that_stands_already_is_used_and_left_alone(cluster: PracticeCluster, start: Start) -> None:
    with a_connection_of_the_users_own(cluster) as ssh:
        config = ("--ssh-config", "/home/alice/sites_ssh_config")
        session = start("-n", "1", "--verbose", *config, *LIGHT, columns=200)
        session.ready()
        assert re.search(r"Connected to login by openssh: a live master connection is there \(~/\.ssh/cm-\w+\)",
                         session.printed), session.printed  # fmt: skip
        assert fetch(cluster, "laptop", session.api, session.token)[0] == 200
        of_alice = [args for _, user, args in cluster.processes("login") if user == "alice" and args.startswith("sshd")]
        assert len(of_alice) == 1, of_alice  # the launcher has made no connection of its own
        leave(session)
        assert cluster.run("laptop", "alice", [*ssh, "-O", "check", "login"]).returncode == 0
        assert cluster.run("laptop", "alice", [*ssh, "login", "hostname"]).stdout == "login\n"
    assert_nothing_left(cluster)


# --- other ports ---------------------------------------------------------------------------------------------------

SERVER = """\
import http.server, sys
class Says(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(sys.argv[2].encode())
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Says).serve_forever()
"""


@contextlib.contextmanager
def a_server_that_says(cluster: PracticeCluster, box: str, port: int, word: str) -> Iterator[None]:
    argv = cluster.argv(box, "alice", ["python3", "-c", SERVER, str(port), word])
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            wait_until(lambda: fetch(cluster, box, f"http://127.0.0.1:{port}/")[0] == 200, 30, "it listens")
            yield
        finally:
            server.terminate()


def test_other_ports_of_the_node(cluster: PracticeCluster, start: Start) -> None:
    with (
        a_server_that_says(cluster, "node2", 6006, "six"),
        a_server_that_says(cluster, "node2", 6007, "seven"),
        a_server_that_says(cluster, "laptop", 6007, "this is the laptop"),
    ):
        session = start("-n", "1", "-w", "node2", "--engine", "openssh", "--forward", "6006", *LIGHT, columns=200)
        session.ready()
        session.expect(r"Port 6006 of node2: http://port-6006\.localhost:6006 or http://localhost:6006\s")
        assert fetch(cluster, "laptop", "http://127.0.0.1:6006/") == (200, "six")
        session.send("f 6007\n")
        # on the laptop, port 6007 is in use
        url = session.expect(r"Port 6007 of node2: http://port-\d+\.localhost:\d+ or (http://localhost:\d+)\s").group(1)
        assert fetch(cluster, "laptop", url) == (200, "seven")
        assert fetch(cluster, "login", "http://node2:6006/")[0] == 0
        session.send("f 6008\n")  # a port on which nothing listens
        url = session.expect(r"Port 6008 of node2: http://port-\d+\.localhost:\d+ or (http://localhost:\d+)\s").group(1)
        assert fetch(cluster, "laptop", url)[0] == 0
        session.send("f 70000\n")
        session.expect("is not a port")
        assert fetch(cluster, "laptop", session.api, session.token)[0] == 200
        leave(session)
        assert fetch(cluster, "laptop", "http://127.0.0.1:6006/")[0] == 0
    assert_nothing_left(cluster)


def test_a_home_that_cannot_be_written_on_the_login_node_is_told_before_anything_is_submitted(
    cluster: PracticeCluster,
) -> None:
    with cluster.read_only_home("alice", "login"):
        done = in_box.launcher(cluster, "laptop", "alice", "-t", "5", *VENV)
        said = " ".join(f"{done.stdout}{done.stderr}".split())
        assert done.returncode == HostCommandFailed.exit_code, said
        assert "is on a read-only file system" in said and "session_root" in said, said
        assert "there is room" not in said
    assert_nothing_left(cluster)
