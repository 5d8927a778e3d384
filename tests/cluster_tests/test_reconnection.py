"""Faults while somebody works in JupyterLab: the tab is never reloaded, and the kernel still has its variable.

Everything is real: the practice cluster's network, sshd and Slurm, and Debian's Chromium on the laptop. The long faults
(a minute, ten minutes) are in ``benchmarks/faults.py``, which prints the table of the documentation.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.cluster_tests.jupyterlab_page import Tab, chromium
from tests.cluster_tests.network_faults import (
    CONNECTION_LOST,
    LINK_DOWN,
    LOGIN_SSHD,
    MOVED,
    OTHER_LOGIN,
    QUICK,
    Fault,
    usable_again,
)
from tests.conftest import Session, assert_nothing_left, launch
from tests.doubles import wait_until
from tests.practice_cluster import PracticeCluster

MIB = 1024 * 1024
CAUSE = "after a cut, JupyterLab's page draws by lot how long it waits before each of seven tries, and then gives up"

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def tabs(cluster: PracticeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tabs]:
    """One session and one tab for each engine, used for all faults, so that damage by one shows in the next test."""
    with chromium(cluster, tmp_path_factory.mktemp("browser")) as browser:
        tabs = Tabs(cluster, browser)
        yield tabs
        tabs.end()
    # a connection that has gone silent would stay on the login node for hours
    cluster.restart_sshd("login")
    assert_nothing_left(cluster)


class Tabs:
    """A session and its tab for an engine, launched when they are first needed."""

    def __init__(self, cluster: PracticeCluster, browser: Browser) -> None:
        self._cluster, self._browser = cluster, browser
        self._held: dict[str, tuple[Session, Tab]] = {}

    def of(self, engine: str) -> tuple[Session, Tab]:
        """Return the session and its tab; there is one session at a time."""
        if engine not in self._held:
            self.end()
            # else JupyterLab would open what was open last time
            self._cluster.run("login", "alice", ["sh", "-c", "rm -rf ~/.jupyter/lab ~/Untitled*.ipynb"])
            session = launch(self._cluster, "laptop", "--engine", engine, columns=160)
            session.ready()
            session.read_along()
            self._held[engine] = session, Tab(self._browser, session.url)
        return self._held[engine]

    def give_up(self) -> None:
        """End the session, whatever its state, so that a second attempt of the test starts a new session and tab."""
        while self._held:
            session, tab = self._held.popitem()[1]
            tab.page.close()
            session.send("\n\n")  # the second one confirms it if a kernel is busy
            session.end()

    def end(self) -> None:
        """End the session, which must be intact."""
        while self._held:
            session, tab = self._held.popitem()[1]
            tab.page.close()
            session.send("\n")
            assert session.end() == 0
            assert "ended" not in session.printed.partition("ending job")[0]


def test_the_first_visit_to_a_compute_node(tabs: Tabs) -> None:
    """A notebook runs on the node that the launcher named."""
    session, tab = tabs.of("paramiko")
    assert f"JupyterLab runs on {tab.node}" in session.printed
    # JupyterLab's question about news is switched off
    expect(tab.page.get_by_text("Would you like to get notified about official Jupyter news?")).to_have_count(0)


# Both engines reconnect with the same code; they differ in how they notice a fault and in how they connect.
CASES = [
    *(("paramiko", fault) for fault in QUICK if "cable" not in fault.name),
    *(("openssh", fault) for fault in QUICK if fault.name in (LINK_DOWN, LOGIN_SSHD, OTHER_LOGIN)),
]


@pytest.mark.browser_time(cause=CAUSE)
@pytest.mark.parametrize(("engine", "fault"), CASES, ids=lambda value: getattr(value, "name", value))
def test_the_tab_works_on(cluster: PracticeCluster, tabs: Tabs, engine: str, fault: Fault) -> None:
    session, tab = tabs.of(engine)
    try:
        seconds = usable_again(cluster, session, tab, fault)
    except AssertionError:
        tabs.give_up()
        raise
    print(f"{fault.name}: usable again {seconds:.1f} s after its end")
    assert tab.complaints == []
    # the launcher must not have taken a network fault for the end of the job
    assert "ended" not in session.printed and "gone" not in session.printed
    if fault.name in (MOVED, OTHER_LOGIN):
        # The name resolves to the old address again: reconnect, so that the next fault begins with a connection there.
        usable_again(cluster, session, tab, CONNECTION_LOST)


@pytest.mark.browser_time(cause=CAUSE)
def test_what_is_typed_while_the_network_is_down_is_run_afterwards(cluster: PracticeCluster, tabs: Tabs) -> None:
    session, tab = tabs.of("openssh")
    try:
        with cluster.unplugged("laptop"):
            session.saw("(?i)network down, trying again")
            tab.page.get_by_text("| Connecting").wait_for(timeout=30_000)  # JupyterLab has noticed
            tab.asks()
        session.saw("Connected again")
        tab.is_answered()
    except Exception:
        tabs.give_up()  # the number of cells may be wrong now, and a dialog may cover the page
        raise


def test_reconnecting_by_hand_keeps_the_kernel(cluster: PracticeCluster, tabs: Tabs) -> None:
    """The menu item that the tests of faults use if JupyterLab is stuck (see ``Tab.is_stuck``)."""
    _, tab = tabs.of("openssh")
    assert not tab.is_stuck()
    tab.reconnects()
    tab.asks()
    tab.is_answered()


def test_an_upload_that_is_cut_spoils_nothing(cluster: PracticeCluster, tabs: Tabs, tmp_path: Path) -> None:
    """Upload 2 GiB, in which each MiB begins with its number: the upload continues, or JupyterLab shows an error.

    In both cases, the part that has arrived is correct.
    """
    session, tab = tabs.of("openssh")
    cluster.run("login", "alice", ["rm", "-f", "large.bin"])
    large = tmp_path / "large.bin"
    with large.open("wb") as file:
        for number in range(2048):
            file.seek(number * MIB)
            file.write(number.to_bytes(8, "big"))
        file.truncate(2048 * MIB)
    with tab.page.expect_file_chooser() as chooser:
        tab.page.locator('[data-jp-item-name="uploader"]').click()
    chooser.value.set_files(large)
    tab.page.get_by_role("button", name="Upload", exact=True).click()  # in the dialog for large files
    wait_until(lambda: arrived(cluster) > 5, 60, "the upload is on its way")
    with cluster.unplugged("laptop"):
        session.saw("(?i)network down, trying again")
        tab.page.wait_for_timeout(12_000)  # until the launcher gives the connection up
        before = arrived(cluster)
    session.saw("Connected again")
    failed = tab.page.get_by_text("Upload Error")

    def goes_on_or_tells() -> bool:
        tab.page.wait_for_timeout(100)
        return failed.is_visible() or arrived(cluster) > before + 5

    wait_until(goes_on_or_tells, 60, "the upload goes on, or JupyterLab says that it failed")
    tab.page.close()
    cluster.run("login", "alice", ["rm", "-f", "large.bin"])


def arrived(cluster: PracticeCluster) -> int:
    """Return how many MiB of the file have arrived, and check their order: none lost, none damaged, none twice.

    JupyterLab sends the file in parts of one MiB, which its server appends. If the response to a part is lost with the
    connection, the browser may send that part again by itself.
    """
    large, numbers = cluster.directory / "home" / "alice" / "large.bin", list[int]()
    if large.exists():
        with large.open("rb") as file:
            for place in range(large.stat().st_size // MIB):
                file.seek(place * MIB)
                numbers.append(int.from_bytes(file.read(8), "big"))
    assert numbers == list(range(len(numbers)))
    return len(numbers)
