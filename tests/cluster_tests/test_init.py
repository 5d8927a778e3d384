"""``init`` on the practice cluster: it writes a profile with which a launch works."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from tests.cluster_tests import in_box
from tests.conftest import Session, assert_nothing_left, fetch
from tests.practice_cluster import USERS, PracticeCluster, one_time_code

Start = Callable[..., Session]
LAUNCH = in_box.launch
each_slurm = pytest.mark.each_slurm

CLUSTERS = ".config/notebook-launcher/clusters"


@pytest.fixture(autouse=True)
def _only_the_courses_profile_stays(cluster: PracticeCluster) -> Iterator[None]:
    yield
    for user in ("alice", "dave"):
        cluster.run("laptop", user, ["sh", "-c", f"cd ~/{CLUSTERS} && find . -type f ! -name practice.toml -delete"])


def init(cluster: PracticeCluster, *words: str, user: str = "alice") -> subprocess.CompletedProcess[str]:
    return in_box.launcher(cluster, "laptop", user, "init", f"{user}@login", *words)


def written(cluster: PracticeCluster, name: str, user: str = "alice") -> str:
    return cluster.run("laptop", user, ["cat", f"{CLUSTERS}/{name}.toml"], check=True).stdout


def checks(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    events = [json.loads(line) for line in done.stdout.splitlines()]
    return {event["check"]: event["result"] for event in events if event["event"] == "check"}


@each_slurm
@pytest.mark.newest_slurm
def test_a_cluster_is_read_looked_at_with_a_job_and_launched_on(cluster: PracticeCluster, start: Start) -> None:
    with cluster.pam_slurm():  # users may log in to a node only while they have a job there
        done = init(cluster, "--name", "found", "--probe", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told = checks(done)
    assert {told[name] for name in ("scheduler", "partitions", "partition", "GPUs", "account", "modules")} == {"ok"}
    assert (told["a job without GPUs"], told["a job with a GPU"], told["route to the node"]) == ("ok", "ok", "ok")
    assert_nothing_left(cluster)
    text = written(cluster, "found")
    assert 'route = "node-ssh" # open to node' in text
    assert 'command = "apptainer" # command -v on node' in text

    dry = in_box.launcher(cluster, "laptop", "alice", "--cluster", "found", "--gpus", "t4:1", "--dry-run")
    assert cluster.squeue() == []
    assert "--account=proj1" in dry.stdout
    assert "--gpus-per-node=t4:1" in dry.stdout
    assert "--partition=gpu" in dry.stdout

    with cluster.pam_slurm():
        session = start("--cluster", "found", "--gpus", "t4:1", "--verbose", "--", "/sw/images/jupyterlab.sif")
        session.ready()
        assert "JupyterLab runs on gpu1" in session.printed
        assert "(node-ssh)" in session.printed
        assert fetch(cluster, "laptop", session.api, session.token)[0] == 200
        session.send("\n")
        assert session.end() == 0
    assert_nothing_left(cluster)


def test_a_profile_that_is_there_is_replaced_only_on_a_word_and_kept(cluster: PracticeCluster, start: Start) -> None:
    own = f"echo 'description = \"mine\"' >~/{CLUSTERS}/login.toml"
    cluster.run("laptop", "alice", ["sh", "-c", own], check=True)

    again = init(cluster)
    assert again.returncode == 3
    assert "--force" in again.stderr
    assert written(cluster, "login") == 'description = "mine"\n'

    asked = start("init", "alice@login")
    asked.expect(r"Replace it.*\[yes/no\] ")
    asked.send("yes\n")
    asked.expect(r"Submit a job.*\[yes/no\] ")
    asked.send("no\n")
    assert asked.end() == 0
    assert written(cluster, "login").startswith("# Read on ")
    modes = cluster.run("laptop", "alice", ["sh", "-c", f"cd {CLUSTERS}; stat -c %a login.toml; cat login.toml.old-*"])
    assert modes.stdout == '600\ndescription = "mine"\n'
    assert cluster.squeue() == []


def test_it_logs_in_once_where_a_code_is_asked_for(cluster: PracticeCluster, start: Start) -> None:
    cluster.forget_codes("dave")
    session = start("init", "dave@login", "--name", "coded", "--probe", user="dave")
    session.expect("assword")
    session.send(f"{USERS['dave'].password}\n")
    session.expect("code")
    session.send(f"{one_time_code('dave', time.time())}\n")
    assert session.end() == 0, session.printed
    assert session.printed.lower().count("assword") == 1
    text = written(cluster, "coded", "dave")
    assert 'route = "step"' in text, "the nodes ask for a code as well"
    assert "not open: node-ssh" in text
    assert_nothing_left(cluster)


def test_what_a_site_does_not_have_is_said(cluster: PracticeCluster) -> None:
    with cluster.no_accounting(), cluster.no_container_command("login"), cluster.environment_modules():
        done = init(cluster, "--name", "poor", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told = checks(done)
    assert {told[name] for name in ("account", "accounting", "container command")} == {"unknown"}
    text = written(cluster, "poor")
    assert "# account: not read: sacctmgr show assoc said: You are not running a supported" in text
    assert "No command for images was found on the login node" in text
    assert "Modules Release" in text


@each_slurm
def test_another_cluster_of_the_same_slurm_has_a_profile_of_its_own(cluster: PracticeCluster) -> None:
    done = init(cluster, "--name", "other", "-M", "snowy", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (checks(done)["a job without GPUs"], checks(done)["a job with a GPU"]) == ("ok", "ok")
    dry = in_box.launcher(cluster, "laptop", "alice", "--cluster", "other", "--gpus", "1", "--dry-run")
    assert "--clusters=snowy" in dry.stdout
    assert "--gpus-per-node=1" in dry.stdout
