"""Apptainer, Charliecloud and Podman: each runs the same JupyterLab, and leaves nothing behind.

Also the two module systems, Lmod and Environment Modules.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.cluster_tests import in_box
from tests.cluster_tests.kernel_api import run_cell
from tests.conftest import PROFILE, Session, assert_nothing_left, people_processes, write_profile
from tests.doubles import wait_until
from tests.practice_cluster import PracticeCluster

LAUNCH = in_box.launch

pytestmark = pytest.mark.cluster
Start = Callable[..., Session]
NODES = ("node1", "node2", "gpu1")

INSPECT = """
import json, os, sys
umask = os.umask(0)
print(json.dumps({"python": sys.executable, "home": os.environ["HOME"], "folder": os.getcwd(), "user": os.getuid(),
                  "umask": umask, "mine": os.environ.get("MINE"), "data": os.path.exists("/data/readme"),
                  "home's files": os.path.exists(os.environ["HOME"] + "/.bashrc")}))
"""

RUNTIMES = {
    "apptainer": "/sw/images/jupyterlab.sif",
    "charliecloud": "/sw/images/jupyterlab.ch",
    "podman": "localhost/jupyterlab:4",
}
ENVIRONMENTS = "".join(
    f"""
[environments.{name}]
container = {json.dumps(image)}
container_command = "{name}"
bind = ["~/my data:/data"]
env = {{ MINE = "it's $(mine)" }}
"""
    for name, image in RUNTIMES.items()
)


@pytest.fixture
def alice(cluster: PracticeCluster) -> Iterator[PracticeCluster]:
    """The cluster, on which alice has an environment for each of the three runtimes, and a folder to bind."""
    cluster.run("login", "alice", ["sh", "-c", "mkdir -p 'my data'; touch 'my data/readme'"], check=True)
    write_profile(cluster, "laptop", "alice", PROFILE + ENVIRONMENTS)
    yield cluster
    write_profile(cluster, "laptop", "alice")
    cluster.run("login", "alice", ["rm", "-rf", "my data"], check=True)


def containers(cluster: PracticeCluster, node: str) -> str:
    """Return the containers that Podman has recorded on a node, and end the process that this query leaves behind."""
    look = "podman ps --all --filter name=notebook-launcher --format '{{.Names}} {{.Status}}'; "
    look += "pkill -KILL -u $(id -u) -f '^(/usr/bin/)?podman' || true"
    return cluster.run(node, "alice", ["sh", "-c", look]).stdout.strip()


def forget_containers(cluster: PracticeCluster) -> None:
    forget = "podman system migrate; podman rm --all --force --time 0"
    cluster.run("node1", "alice", ["sh", "-c", forget], check=True)


def end(cluster: PracticeCluster, session: Session) -> None:
    session.send("\n")
    assert session.end() == 0
    assert_nothing_left(cluster)


def assert_it_is_like_the_node(cluster: PracticeCluster, session: Session) -> None:
    """Check that a cell has the user's home and id, the environment's variables and binds, and the image's Python."""
    found = json.loads(run_cell(cluster, session, INSPECT))
    assert found == {
        "python": "/opt/jupyterlab/bin/python3",
        "home": "/home/alice",
        "folder": "/home/alice",
        "user": 2001,
        "umask": 0o002,
        "mine": "it's $(mine)",
        "data": True,
        "home's files": True,
    }


@pytest.mark.parametrize("runtime", ["apptainer", "charliecloud"])
def test_a_cell_runs_in_it_and_nothing_is_left(alice: PracticeCluster, start: Start, runtime: str) -> None:
    session = start("-n", "1", "-w", "node1", "--", runtime)
    session.ready()
    assert_it_is_like_the_node(alice, session)
    end(alice, session)


ZOMBIES = """
import glob, os, time
os.system("sh -c 'sleep 0.2 &'")
time.sleep(0.7)
print([line for file in glob.glob("/proc/[0-9]*/stat") if ") Z " in (line := open(file).read())])
"""
# matches `podman run`, but not conmon, which keeps the container and whose arguments name podman, too
PODMANS_COMMAND = "^/usr/bin/podman .* run "


@pytest.mark.parametrize("still_activating", [False, True])
def test_podman_with_its_jobs_script_killed(alice: PracticeCluster, start: Start, still_activating: bool) -> None:
    """Kill it while JupyterLab runs, or earlier, while nothing in the container handles signals yet."""
    slow = '\n[environments.podman]\nactivate = "exec sleep 300"\n' if still_activating else ""
    profile = PROFILE + ENVIRONMENTS.replace("\n[environments.podman]\n", slow) if slow else PROFILE + ENVIRONMENTS
    write_profile(alice, "laptop", "alice", profile)
    session = start("-n", "1", "-w", "node1", "--", "podman")
    if still_activating:
        wait_until(lambda: any("sleep 300" in p for p in people_processes(alice, ("node1",))), 60, "the activation")
    else:
        session.ready()
        assert run_cell(alice, session, ZOMBIES).strip() == "[]", "what loses its parent is looked after"
    alice.root("node1", ["pkill", "-KILL", "-u", "alice", "-f", f"slurm_script|{PODMANS_COMMAND}"])
    wait_until(lambda: not [p for p in people_processes(alice, ("node1",)) if "conmon" in p or "jupyter" in p], 60,
               "the container to end by itself")  # fmt: skip
    session.send("\x03")
    session.end()
    # Podman's records may still name a container that no longer runs, and its pause process and the one that mounted
    # the image are left: the job script, which would have removed them, was killed.
    forget_containers(alice)
    assert containers(alice, "node1") == ""
    assert_nothing_left(alice)


def test_podman_after_everything_was_killed(alice: PracticeCluster, start: Start) -> None:
    """A scheduler that kills a whole job at once leaves records with which every later call of Podman fails.

    The next session repairs them: a cell and a shell work in it, and nothing is left.
    """
    hold = "podman run --rm --pull=never --network=host --cgroups=disabled localhost/jupyterlab:4 sleep 99"
    names = "podman|podman pause|conmon|sleep|fuse-overlayfs"
    runs = "pgrep -u $(id -u) -fx 'sleep 99' && podman ps | grep 'sleep 99'"
    kill = f"pkill -KILL -u $(id -u) -x '{names}'"
    until = "for i in $(seq 200); do {} >/dev/null && break; sleep 0.1; done"
    script = f"{hold} & {until.format(runs)}; {until.format(f'! {kill}')}; ! podman image exists localhost/jupyterlab:4"
    alice.run("node1", "alice", ["bash", "-c", script], check=True)
    session = start("-n", "1", "-w", "node1", "--", "podman")
    session.ready()
    log = alice.run("login", "alice", ["sh", "-c", f"cat .notebook-launcher/sessions/{session.session_id}/job.log"])
    assert "putting them right" in log.stdout and "goroutine" not in log.stdout
    assert_it_is_like_the_node(alice, session)
    command = "pwd; type -P jupyter-lab; echo $MINE"
    beside = in_box.launcher(alice, "laptop", "alice", "shell", "--command", command, session.session_id)
    assert beside.stdout.splitlines() == ["/home/alice", "/opt/jupyterlab/bin/jupyter-lab", "it's $(mine)"]
    end(alice, session)
    assert containers(alice, "node1") == ""
    forget_containers(alice)
    assert containers(alice, "node1") == ""


def test_an_image_that_podman_does_not_have(alice: PracticeCluster, start: Start) -> None:
    more = '\n[environments.none]\ncontainer = "localhost/none:1"\ncontainer_command = "podman"\n'
    write_profile(alice, "laptop", "alice", PROFILE + ENVIRONMENTS + more)
    session = start("-n", "1", "-w", "node1", "--", "none")
    assert session.end() != 0
    printed = " ".join(session.printed.split())
    assert "There is no container image localhost/none:1 that podman knows on node1" in printed
    assert_nothing_left(alice)


# ------------------------------------------------------------------------------------------------------- modules

YEAR = ("--module", "2025", "--module", "JupyterLab/4-year")


def command_in_a_job(cluster: PracticeCluster, command: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a job of its own. ``words``: further arguments, such as those that name the environment."""
    flags = ("-t", "5", "-n", "1", "-w", "node1")
    return in_box.launcher(cluster, "laptop", "alice", "shell", *flags, "-c", command, *words)


def test_the_year_first_with_lmod_and_environment_modules(cluster: PracticeCluster, start: Start) -> None:
    def has_jupyterlab() -> None:
        found = command_in_a_job(cluster, "type -P jupyter-lab", *YEAR)
        assert found.returncode == 0 and found.stdout.endswith("/jupyter-lab\n"), found.stderr

    has_jupyterlab()
    with cluster.environment_modules():
        has_jupyterlab()
        session = start("-n", "1", "--module", "broken/1")
        assert session.end() != 0
        assert "Module broken/1 could not be loaded" in session.printed


def test_a_module_brings_the_container_command(alice: PracticeCluster) -> None:
    module = "#%Module1.0\nprepend-path PATH /home/alice/tools\n"
    command = '#!/bin/sh\nexport BROUGHT_BY=module\nexec /usr/bin/ch-run "$@"\n'
    make = f"mkdir -p mods tools; printf %s {shlex.quote(module)} >mods/runtime; printf %s {shlex.quote(command)} "
    alice.run("login", "alice", ["sh", "-c", f"{make} >tools/ch-run; chmod +x tools/ch-run"], check=True)
    more = """
[environments.moduled]
container = "/sw/images/jupyterlab.ch"
container_command = "charliecloud"
module_use = ["~/mods"]
modules = ["runtime"]
"""
    write_profile(alice, "laptop", "alice", PROFILE + more)
    found = command_in_a_job(alice, "type -P jupyter-lab; echo $BROUGHT_BY", "--", "moduled")
    assert found.stdout == "/opt/jupyterlab/bin/jupyter-lab\nmodule\n", found.stderr
    alice.run("login", "alice", ["rm", "-r", "mods", "tools"], check=True)
    assert_nothing_left(alice)
