"""A real sshd that refuses the laptop's address for a while after failed logins (OpenSSH's PerSourcePenalties)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from notebook_launcher.core.errors import AddressRefused
from tests.cluster_tests import in_box
from tests.cluster_tests.situation import refused_address
from tests.conftest import Session
from tests.practice_cluster import PracticeCluster

LAUNCH = in_box.launch


@pytest.fixture
def refused(cluster: PracticeCluster) -> Iterator[None]:
    """The login node refuses the laptop's address."""
    with refused_address(cluster):
        yield


@pytest.mark.newest_slurm
def test_a_refused_address_is_told_and_waited_for(
    cluster: PracticeCluster, refused: None, start: Callable[..., Session]
) -> None:
    session = start("list", columns=200)
    session.expect(r"refuses this machine's address for a while.*trying again, later every 15 s, for 10 min at most")
    session.read_along()
    with ThreadPoolExecutor() as pool:  # each tries for 20 s
        engines = ("paramiko", "openssh")
        lists = pool.map(
            lambda engine: in_box.launcher(cluster, "laptop", "alice", "list", "--engine", engine), engines
        )
    for engine, done in zip(engines, lists, strict=True):
        assert done.returncode == AddressRefused.exit_code, f"{engine}: {done.stderr}"
        assert "login refuses this machine's address for a while." in done.stderr
    assert session.end(timeout=90) == 0
