"""Nobody else can read the token anywhere, or use the session's port and files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.conftest import Session, assert_nothing_left, fetch, launch
from tests.practice_cluster import PracticeCluster

BOXES = ("laptop", "login", "ctl", "node1", "node2", "gpu1")

# Lists files that contain the token (the input) and on which the group or others have any permission, in all folders to
# which users and the scheduler write.
_SEARCH = """
find /home /tmp /var/tmp /var/log /var/lib/slurm /var/spool /run /dev/shm /etc -xdev -type f -perm /077 \
  -exec grep -lF -e "$(cat)" -- {} + 2>/dev/null
true
"""


@pytest.fixture(scope="module")
def live(cluster: PracticeCluster) -> Iterator[Session]:
    """One running session for all tests of this file."""
    session = launch(cluster, "laptop", "--gpus", "1", "-n", "2")
    session.ready()
    # a kernel is where a token could leak through the environment
    start_kernel(cluster, session)
    yield session
    session.send("\n")
    assert session.end() == 0
    assert_nothing_left(cluster)


def start_kernel(cluster: PracticeCluster, session: Session) -> None:
    program = (
        "import sys, urllib.request\n"
        "url, token = sys.stdin.read().split()\n"
        "urllib.request.urlopen(urllib.request.Request(url, b'{}', {'Authorization': 'token ' + token}), timeout=60)\n"
    )
    url = re.sub(r"lab\?.*", "api/kernels", session.url)
    cluster.run("laptop", "alice", ["python3", "-c", program], input=f"{url} {session.token}", check=True)


def with_input(cluster: PracticeCluster, box: str, user: str, script: str, text: str) -> str:
    return cluster.run(box, user, ["sh", "-c", script], login=False, input=text).stdout


def test_no_process_shows_it(cluster: PracticeCluster, live: Session) -> None:
    for box in BOXES:
        assert [args for _, _, args in cluster.processes(box) if live.token in args] == [], box


def test_no_file_that_others_can_read_holds_it(cluster: PracticeCluster, live: Session) -> None:
    for box in BOXES:
        assert with_input(cluster, box, "root", _SEARCH, live.token) == "", box


def test_the_search_would_find_it(cluster: PracticeCluster, live: Session) -> None:
    with_input(cluster, "login", "alice", "umask 022; cat >/tmp/leak", live.token)
    try:
        assert with_input(cluster, "login", "root", _SEARCH, live.token) == "/tmp/leak\n"
    finally:
        cluster.root("login", ["rm", "-f", "/tmp/leak"])


def test_neither_the_scheduler_nor_the_jobs_log_knows_it(cluster: PracticeCluster, live: Session) -> None:
    log = f"cat ~/.notebook-launcher/sessions/{live.session_id}/job.log"
    script = f"scontrol show job -dd {live.job_id}; scontrol write batch_script {live.job_id} -; {log}"
    shown = cluster.run("login", "alice", ["sh", "-c", script]).stdout
    assert "JobState=RUNNING" in shown and "#SBATCH" in shown and "JupyterLab listens" in shown
    assert live.token not in shown


def test_no_environment_holds_it(cluster: PracticeCluster, live: Session) -> None:
    script = 'cat /proc/[0-9]*/environ 2>/dev/null | tr "\\0" "\\n" | grep -cF -e "$(cat)"; true'
    for box in BOXES:
        assert with_input(cluster, box, "root", script, live.token).strip() == "0", box


def test_another_user_cannot_read_the_session(cluster: PracticeCluster, live: Session) -> None:
    directory = f"/home/alice/.notebook-launcher/sessions/{live.session_id}"
    tries = f"ls {directory} || cat {directory}/token || cat {directory}/endpoint.json"
    for box in ("login", "gpu1"):
        assert cluster.run(box, "bob", ["sh", "-c", tries]).returncode != 0
    modes = cluster.run("login", "alice", ["find", directory, "-perm", "/077"]).stdout
    assert modes == ""


def test_another_user_on_the_node_gets_no_answer(cluster: PracticeCluster, live: Session) -> None:
    endpoint = cluster.run(
        "login", "alice", ["sh", "-c", f"cat ~/.notebook-launcher/sessions/{live.session_id}/endpoint.json"]
    )
    port = json.loads(endpoint.stdout)["port"]
    for token in ("", live.token):
        assert fetch(cluster, "gpu1", f"http://127.0.0.1:{port}/api/status", token, user="bob")[0] == 0
        assert fetch(cluster, "gpu1", f"http://127.0.0.1:{port}/api/contents", token, user="bob")[0] == 0
    assert fetch(cluster, "gpu1", f"http://127.0.0.1:{port}/api/status")[0] == 403, "alice herself needs the token"
    assert fetch(cluster, "gpu1", f"http://127.0.0.1:{port}/api/status", live.token)[0] == 200
    # from another machine, nothing listens at the node's address
    assert fetch(cluster, "login", f"http://gpu1:{port}/api/status", user="bob")[0] == 0


def test_the_url_on_the_laptop_is_the_users_alone(cluster: PracticeCluster, live: Session) -> None:
    listening = cluster.root("laptop", ["ss", "-Htnl"]).stdout
    port = re.search(r":(\d+)/", live.url)
    assert port
    assert [line.split()[3] for line in listening.splitlines() if line.split()[3].endswith(f":{port[1]}")] == [
        f"127.0.0.1:{port[1]}"
    ]
