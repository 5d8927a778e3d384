"""A job's own description of its node, and steps in it."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.schedulers.base import JobRef
from notebook_launcher.schedulers.local import Local
from notebook_launcher.schedulers.slurm.commands import Slurm
from notebook_launcher.tunnel.routes import JobNode

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)

STARTED = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("node_names", "host_keys", "ssh_port", "hostname"), ANYTHING)
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STARTED)
def test_damaged_parts_count_as_absent(started: dict[str, object]) -> None:
    node = JobNode.from_started(started)
    assert all(type(name) is str and name for name in node.names)
    assert all(type(key) is str for key in node.host_keys)
    assert node.ssh_port is None or (type(node.ssh_port) is int and 0 < node.ssh_port < 65536)
    assert str(node)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.text(max_size=12) | st.sampled_from(["n1", "n1.cluster", "-oProxyCommand=x", "a b", "x;y", "n\n1"])))
def test_what_is_no_host_name_is_passed_over(names: list[str]) -> None:
    """A name is handed to programs, as a word of a command."""
    node = JobNode.from_started({"node_names": names})
    assert [name for name in names if name in ("n1", "n1.cluster")] == [
        name for name in node.names if name in ("n1", "n1.cluster")
    ]
    for name in node.names:
        assert not name.startswith("-") and not re.search(r"[\s;|&$`'\"<>(){}\\/@:%*?\[\]#~!=,]", name)


def test_a_good_description() -> None:
    started = {"node_names": ["n1.cluster", "n1"], "host_keys": ["ssh-ed25519 A", "ssh-rsa B"], "ssh_port": 40022}
    assert JobNode.from_started(started) == JobNode(("n1.cluster", "n1"), ("ssh-ed25519 A", "ssh-rsa B"), 40022)
    assert str(JobNode.from_started(started)) == "n1.cluster"
    assert JobNode.from_started({}) == JobNode(())


@pytest.mark.parametrize(
    ("job", "words"),
    [
        pytest.param(
            JobRef("7"),
            ["srun", "--jobid=7", "--overlap", "--unbuffered", "--quiet", "--mpi=none", "--nodes=1", "--ntasks=1",
             "--relative=0", "--cpu-bind=none", "--", "bash", "/s p/sshd.sh", "step", "/s p"],
            id="a job",
        ),
        pytest.param(
            JobRef("7", "snowy"),
            ["srun", "--clusters=snowy", "--jobid=7", "--overlap", "--unbuffered", "--quiet", "--mpi=none",
             "--nodes=1", "--ntasks=1", "--relative=0", "--cpu-bind=none", "--", "bash", "/s p/sshd.sh", "step",
             "/s p"],
            id="a job on another cluster",
        ),
    ],
)  # fmt: skip
def test_step(job: JobRef, words: list[str]) -> None:
    command = Slurm().step(job, ["bash", "/s p/sshd.sh", "step", "/s p"])
    assert command[command.index("srun") :] == words


def test_the_local_scheduler_has_no_steps() -> None:
    assert Local("/root").step(JobRef("7"), ["true"]) is None


def test_a_link_of_this_very_machine_is_lent() -> None:
    """Closed with a tunnel, it can be had again."""
    with LocalHost() as host:
        link = host.open_route()
        link.close()
        assert link.alive and host.open_route().alive
