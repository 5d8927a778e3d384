"""Environments and images on the practice cluster, with real Apptainer, TensorFlow and pip: checked, made and used."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.cluster_tests import in_box
from tests.cluster_tests.kernel_api import run_cell
from tests.conftest import Session, assert_nothing_left
from tests.doubles import wait_until
from tests.practice_cluster import PracticeCluster
from tests.practice_cluster.bundled_images import provide_image

LAUNCH = in_box.launch

Start = Callable[..., Session]

PROFILE = """\
host = "login"
image_dir = "~/images"
environment = "tf-gpu"

[environments.tf-gpu]
container = "/sw/images/tensorflow-cpu.sif"
venv = "/opt/envs/tf-gpu"

[environments.tf-mkl]
container = "/sw/images/tensorflow-cpu.sif"
venv = "/opt/envs/tf-mkl"

[environments.tf-pip]
container = "/sw/images/tensorflow-cpu.sif"
venv = "/opt/envs/tf-pip"

[environments.broken]
modules = ["broken/1"]

[environments.no-jupyter]
container = "/sw/images/no-jupyter.sif"

[environments.another]
container = "/sw/images/no-jupyter.sif"
digest = "sha256:{wrong}"
"""

PULLED = """
[environments.pulled]
container = "~/images/pulled.sif"
source = "http://login:8123/jupyterlab.sif"
"""
SERVE = "cd /sw/images; timeout 300 python3 -m http.server 8123 >/dev/null 2>&1 & echo $!"

# an image of nothing but one file: building it takes a second
SMALL = "Bootstrap: scratch\n\n%files\n    /etc/hostname /hello\n"
ENDLESS = "Bootstrap: scratch\n\n%setup\n    sleep 300\n"
BROKEN = "Bootstrap: scratch\n\n%setup\n    echo this goes wrong\n    false\n"


@pytest.fixture
def alice(cluster: PracticeCluster) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Runs `launch-notebook` as alice on her laptop, which has the profile; her images are removed at the end."""
    write(cluster, ".config/notebook-launcher/clusters/tensors.toml", PROFILE.replace("{wrong}", "0" * 64))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return in_box.launcher(cluster, "laptop", "alice", *words)

    yield run
    cluster.run("login", "alice", ["sh", "-c", "rm -rf ~/images"])


def write(cluster: PracticeCluster, path: str, text: str) -> None:
    script = 'mkdir -p "$(dirname "$1")"; cat >"$1"'
    cluster.run("laptop", "alice", ["sh", "-c", script, "write", path], input=text, check=True)


def shell(cluster: PracticeCluster, script: str, box: str = "login") -> str:
    return cluster.run(box, "alice", ["sh", "-c", script]).stdout.strip()


# --- three environments in one image -------------------------------------------------------------------------------

# Prints the settings of its own environment and, from a child process, those of another environment of the image, which
# come from the file that activates it.
CELL = """
import os, subprocess, sys
print(sys.prefix, os.environ.get("TF_ENABLE_ONEDNN_OPTS"), flush=True)
look = ". /opt/envs/tf-pip/bin/activate; python3 -c 'import sys; print(sys.prefix)'; echo $TF_ENABLE_ONEDNN_OPTS"
print(subprocess.run(["bash", "-c", look], capture_output=True, text=True).stdout.split())
"""


@pytest.mark.usefixtures("alice")
def test_a_cell_runs_in_the_environment_that_was_named(cluster: PracticeCluster, start: Start) -> None:
    provide_image(cluster, "tensorflow-cpu")
    session = start("--cluster", "tensors", "-n", "2", "--", "tf-mkl")
    session.ready()
    said = run_cell(cluster, session, CELL).splitlines()
    assert said[0] == "/opt/envs/tf-mkl 1"
    assert said[1] == "['/opt/envs/tf-pip', '0']"
    session.send("\n")
    assert session.end() == 0
    assert_nothing_left(cluster)


@pytest.mark.usefixtures("alice")
def test_another_image_than_the_demanded_one_is_not_run(cluster: PracticeCluster, start: Start) -> None:
    session = start("--cluster", "tensors", "--", "another")
    session.expect("is not the one")
    session.expect("should be sha256:000000000000")
    assert session.end() == 91
    assert_nothing_left(cluster)


def test_an_environment_is_looked_into(
    cluster: PracticeCluster, alice: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    provide_image(cluster, "tensorflow-cpu")
    done = alice("env", "check", "tf-gpu", "--node", "--cluster", "tensors")
    assert done.returncode == 0, done.stdout + done.stderr
    for part in ("/opt/envs/tf-gpu", "JupyterLab", "kernel", "2.21.0, oneDNN as the CPU suggests"):
        assert part in done.stdout
    assert_nothing_left(cluster)
    done = alice("env", "check", "broken", "--cluster", "tensors")
    assert done.returncode == 8
    assert "Module broken/1 could not be loaded" in done.stdout
    done = alice("env", "check", "no-jupyter", "--cluster", "tensors")
    assert done.returncode == 8
    assert "launch-notebook image build ./mine.def" in done.stdout
    assert shell(cluster, "ls ~/.notebook-launcher/sessions | grep look-") == ""


def test_an_environment_is_made_and_a_session_runs_in_it(
    cluster: PracticeCluster, start: Start, alice: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """The boxes have no internet: alice's pip installs from a folder, as at a site with a mirror of its own."""
    write(cluster, "requirements.txt", "ipykernel\n")
    settings = (
        "[global]\nno-index = true\nfind-links = /sw/wheels\n[install]\nno-compile = no\n"  # pip's spelling of false
    )
    tidy = "rm -rf ~/.config/pip ~/environments"
    cluster.run("login", "alice", ["sh", "-c", "mkdir -p ~/.config/pip; cat >~/.config/pip/pip.conf"], input=settings,
                check=True)  # fmt: skip
    try:
        create = ("env", "create", "requirements.txt", "--name", "mine", "--cluster", "tensors")
        done = alice(*create)
        assert done.returncode == 0, done.stdout + done.stderr
        session = start("--cluster", "tensors", "--", "mine")
        session.ready()
        session.send("\n")
        assert session.end() == 0
        assert alice(*create).returncode == 2
        done = alice(*create[:-3], "other", "--module", "broken/1", *create[-2:])
        assert done.returncode == 25
        assert "Module broken/1 could not be loaded" in done.stderr
        assert shell(cluster, "ls ~/environments; ls ~/.notebook-launcher/sessions | grep make-") == "mine"
    finally:
        shell(cluster, tidy)
    assert_nothing_left(cluster)


# --- images that are made -------------------------------------------------------------------------------------------


def test_an_image_is_built_in_a_job_and_replaced_only_when_told(
    cluster: PracticeCluster, alice: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    write(cluster, "small.def", SMALL)
    build = ("image", "build", "./small.def", "--cluster", "tensors", "--json")
    done = alice(*build, "-t", "5")
    assert done.returncode == 0, done.stdout + done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert "submitted" in [event["event"] for event in events]
    made = events[-1]
    assert (made["event"], made["path"]) == ("image_ready", "/home/alice/images/small.sif")
    assert made["digest"] == "sha256:" + shell(cluster, "sha256sum <~/images/small.sif").split()[0]
    note = json.loads(shell(cluster, "cat ~/images/small.sif.json"))
    assert note["digest"] == made["digest"]
    assert note["definition"] == "sha256:" + hashlib.sha256(SMALL.encode()).hexdigest()
    assert_nothing_left(cluster)

    inode = shell(cluster, "stat -c %i ~/images/small.sif; ln ~/images/small.sif ~/images/in-use.sif")
    done = alice(*build, "--login")
    assert done.returncode == 24
    assert shell(cluster, "stat -c %i ~/images/small.sif") == inode
    done = alice(*build, "--login", "--force")
    assert done.returncode == 0, done.stdout + done.stderr
    assert shell(cluster, "stat -c %i ~/images/small.sif") != inode
    assert shell(cluster, "stat -c %i ~/images/in-use.sif") == inode
    assert shell(cluster, "ls -A ~/images").split() == ["in-use.sif", "small.sif", "small.sif.json"]


def test_a_build_that_fails_leaves_its_reason_and_nothing_else(
    cluster: PracticeCluster, alice: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    write(cluster, "bad.def", BROKEN)
    done = alice("image", "build", "./bad.def", "--cluster", "tensors")
    assert done.returncode == 24
    assert "this goes wrong" in done.stderr
    assert shell(cluster, "ls -A ~/images") == ""
    assert_nothing_left(cluster)


@pytest.mark.usefixtures("alice")
def test_ctrl_c_while_an_image_is_built_leaves_nothing(cluster: PracticeCluster, start: Start) -> None:
    write(cluster, "endless.def", ENDLESS)
    session = start("image", "build", "./endless.def", "--cluster", "tensors")
    session.expect("sleep 300")
    nodes = ("node1", "node2", "gpu1")
    node = wait_until(lambda: next((node for node in nodes if "sleep 300" in shell(cluster, "ps ax", node)), None))
    session.send("\x03")
    assert session.end() == 130
    assert_nothing_left(cluster)
    assert shell(cluster, "ls -A ~/images") == ""
    assert shell(cluster, "ls -d /tmp/notebook-launcher-image-*", node) == ""
    assert shell(cluster, "ls ~/.notebook-launcher/sessions | grep 'image-2.*[^g]$'") == ""


def test_a_launch_whose_image_was_not_made_offers_it_and_goes_on(
    cluster: PracticeCluster, alice: Callable[..., subprocess.CompletedProcess[str]], start: Start
) -> None:
    """The launcher offers to pull it only in a terminal, asks once, and pulls it in a job of its own."""
    write(cluster, ".config/notebook-launcher/clusters/tensors.toml", PROFILE.replace("{wrong}", "0" * 64) + PULLED)
    launch = ("--cluster", "tensors", "-t", "10", "--", "pulled")
    alone = alice(*launch)
    assert alone.returncode == 28
    assert "launch-notebook image pull pulled --cluster tensors" in alone.stderr
    refused = start(*launch)
    refused.expect(r"Pull\s+it\s+now\s+from\s+http://login:8123/jupyterlab.sif,\s+in\s+a\s+job[\s\S]*\[yes/no\] ")
    refused.send("no\n")
    assert refused.end() == 28
    assert_nothing_left(cluster)
    server = shell(cluster, SERVE).strip()
    try:
        session = start(*launch)
        session.expect(r"\[yes/no\] ")
        session.send("yes\n")
        session.expect("The image is there")
        session.ready()
        assert run_cell(cluster, session, "print(6 * 7)") == "42\n"
        session.send("\n")  # ENTER is for the session again
        assert session.end() == 0
    finally:
        shell(cluster, f"kill {server}")
    assert_nothing_left(cluster)
    assert "pulled.sif" in shell(cluster, "ls ~/images").split()
