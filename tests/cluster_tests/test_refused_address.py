"""A real sshd that refuses an address for a while after failed logins (OpenSSH's PerSourcePenalties)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from notebook_launcher.core.errors import AddressRefused
from tests.cluster_tests import in_box
from tests.conftest import Session
from tests.practice_cluster import PracticeCluster

LAUNCH = in_box.launch

# With a key that nobody knows; an ssh that asks for nothing has failed. After 40 s in all, three or four times, the
# server refuses the address.
FAIL_TO_LOG_IN = """\
cd "$(mktemp -d)" && ssh-keygen -q -t ed25519 -N '' -f key
for i in 1 2 3 4 5; do ssh -F none -o BatchMode=yes -o IdentitiesOnly=yes -i key login true; done
"""


@pytest.fixture
def refused(cluster: PracticeCluster) -> Iterator[None]:
    """The login node refuses the laptop's address, for 45 seconds or a little more."""
    with cluster.penalties("login"):
        failed = cluster.run("laptop", "alice", ["sh", "-c", FAIL_TO_LOG_IN])
        assert "Permission denied" in failed.stderr
        assert failed.stderr.count("Permission denied") < 5, "the server refuses the address"
        yield


@pytest.mark.newest_slurm
def test_a_refused_address_is_told_and_waited_for(
    cluster: PracticeCluster, refused: None, start: Callable[..., Session]
) -> None:
    for engine in ("paramiko", "openssh"):
        done = in_box.launcher(cluster, "laptop", "alice", "list", "--engine", engine)
        assert done.returncode == AddressRefused.exit_code, f"{engine}: {done.stderr}"
        assert "login refuses this machine's address for a while." in done.stderr
    session = start("list", columns=200)
    session.expect(r"refuses this machine's address for a while.*trying again every 15 s for 10 min at most")
    assert session.end(timeout=90) == 0
