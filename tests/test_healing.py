"""Faults while somebody works in JupyterLab: the tab is never reloaded, and the kernel still has its variable.

Everything is real: the practice cluster's network, sshd and Slurm, and Debian's Chromium on the laptop. The long ones
(a minute, ten minutes) are in ``benchmarks/faults.py``, which prints the table of the documentation.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browsing import Tab, chromium
from tests.cluster import PracticeCluster
from tests.conftest import Session, assert_nothing_left, clear, launch
from tests.faults import QUICK, Fault, usable_again

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module", params=["paramiko", "openssh"])
def held(
    cluster: PracticeCluster, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Session, Tab]]:
    """One session and one tab for all faults: what one has broken, the next one finds."""
    cluster.run("login", "alice", ["sh", "-c", "rm -rf ~/.jupyter/lab ~/Untitled*.ipynb"])
    session = launch(cluster, "laptop", "--engine", request.param, columns=160)
    session.ready()
    session.read_along()
    with chromium(cluster, tmp_path_factory.mktemp("browser")) as browser:
        yield session, Tab(browser, session.url)
    session.send("\n")
    assert session.end() == 0
    clear(cluster)
    assert_nothing_left(cluster)


@pytest.mark.parametrize("fault", QUICK, ids=lambda fault: fault.name)
def test_the_tab_works_on(cluster: PracticeCluster, held: tuple[Session, Tab], fault: Fault) -> None:
    session, tab = held
    seconds = usable_again(cluster, session, tab, fault)
    print(f"{fault.name}: usable again {seconds:.1f} s after its end")
    assert tab.complaints == []
    # the network was away, and not the job
    assert "ended" not in session.printed and "gone" not in session.printed


def test_what_is_typed_while_the_network_is_down_is_run_afterwards(
    cluster: PracticeCluster, held: tuple[Session, Tab]
) -> None:
    session, tab = held
    with cluster.unplugged("laptop"):
        session.saw("(?i)network down, trying again")
        tab.page.get_by_text("| Connecting").wait_for(timeout=30_000)  # JupyterLab knows
        tab.asks()
    session.saw("Connected again")
    tab.is_answered()
