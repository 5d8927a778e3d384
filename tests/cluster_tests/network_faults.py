"""Faults of networks, login nodes and compute nodes while somebody works in JupyterLab."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.cluster_tests.jupyterlab_page import Tab
from tests.conftest import Session
from tests.practice_cluster import PracticeCluster

LOGIN_SSHD = "sshd of the login node killed, started again after 3 s"
MOVED = "login node's address changed"
OTHER_LOGIN = "another login node behind the same name"


@dataclass(frozen=True)
class Fault:
    """A fault that a test can cause.

    ``name``: in words; ``strikes``: makes the fault happen; its block begins when the fault is over, or, for a login
    node that has moved, while it lasts; ``noticed``: whether the launcher tells the user about it.
    """

    name: str
    strikes: Callable[[PracticeCluster, Session], contextlib.AbstractContextManager[None]]
    noticed: bool = True


def link_down(seconds: float, *, carrier: bool = True) -> Fault:
    """The laptop's packets are dropped for some seconds; without ``carrier`` it sees that its link is down."""

    @contextlib.contextmanager
    def strike(cluster: PracticeCluster, _session: Session) -> Iterator[None]:
        with cluster.unplugged("laptop", carrier=carrier):
            time.sleep(seconds)
        yield

    how = "" if carrier else " (cable pulled)"
    # a short interruption is over before the launcher tells the user
    return Fault(f"link down for {seconds:.0f} s{how}", strike, noticed=seconds > 10)


def sshd_restarted() -> Fault:
    """The login node's sshd is killed with all its sessions, and started again after three seconds."""

    @contextlib.contextmanager
    def strike(cluster: PracticeCluster, _session: Session) -> Iterator[None]:
        cluster.stop_sshd("login")
        time.sleep(3)
        cluster.start_sshd("login")
        yield

    return Fault(LOGIN_SSHD, strike)


def sessions_killed(words: str, *boxes: str) -> Fault:
    """Only the user's SSH sessions on these boxes are killed, as by an administrator or a time-out."""

    @contextlib.contextmanager
    def strike(cluster: PracticeCluster, _session: Session) -> Iterator[None]:
        for box in boxes:
            cluster.kill_connections(box, "alice")
        yield

    return Fault(words, strike)


def node_sshd_restarted() -> Fault:
    """The sshd of every compute node is restarted, which ends all its sessions."""

    @contextlib.contextmanager
    def strike(cluster: PracticeCluster, _session: Session) -> Iterator[None]:
        for node in ("node1", "node2", "gpu1"):
            cluster.restart_sshd(node)
        yield

    return Fault("sshd of the compute node restarted", strike)


def login_moves(where: str, words: str) -> Fault:
    """The login node's name resolves to another address during the block, and old connections die."""

    @contextlib.contextmanager
    def strike(cluster: PracticeCluster, _session: Session) -> Iterator[None]:
        with cluster.login_moves_to(where):
            if where == "login2":  # the first login node is down
                cluster.stop_sshd("login")
            try:
                yield
            finally:
                cluster.start_sshd("login")

    return Fault(words, strike)


def launcher_stopped(seconds: float) -> Fault:
    """The launcher is stopped (SIGSTOP) for some seconds, as on a laptop that sleeps, and then continues."""

    @contextlib.contextmanager
    def strike(_cluster: PracticeCluster, session: Session) -> Iterator[None]:
        group = os.getpgid(_launcher(session))
        os.killpg(group, signal.SIGSTOP)
        time.sleep(seconds)
        os.killpg(group, signal.SIGCONT)
        yield

    return Fault(f"launcher stopped (SIGSTOP) for {seconds:.0f} s", strike, noticed=False)


def _launcher(session: Session) -> int:
    import psutil  # type: ignore[import-untyped]

    children = [child for child in psutil.Process(session.child.pid).children(recursive=True)
                if any("launch-notebook" in word for word in child.cmdline()) and "python" in child.name()]  # fmt: skip
    return int((children or [psutil.Process(session.child.pid)])[-1].pid)


STUCK_AFTER = 60.0  # seconds after which a person looks into the Kernel menu
LINK_DOWN = "link down for 25 s"
QUICK = (
    link_down(5),
    link_down(25),
    link_down(16, carrier=False),
    sshd_restarted(),
    sessions_killed("the user's SSH sessions on the login node killed", "login"),
    node_sshd_restarted(),
    login_moves("new-address", MOVED),
    login_moves("login2", OTHER_LOGIN),
    launcher_stopped(20),
)
CONNECTION_LOST = sessions_killed("the user's SSH sessions on every login node killed", "login", "login2")
LONG = (link_down(60), link_down(600), launcher_stopped(60))


def usable_again(cluster: PracticeCluster, session: Session, tab: Tab, fault: Fault, patience: float = 150.0) -> float:
    """Let a fault happen, and return the seconds from its end until a cell has used the kernel's variable.

    ``patience``: in seconds; JupyterLab waits more than a minute between two attempts once some have failed.
    """
    with fault.strikes(cluster, session):
        began = time.monotonic()
        if fault.noticed:
            # a very short interruption may never have been shown
            session.saw("Connected again", patience)
        while True:
            tab.asks()
            try:
                tab.is_answered(15.0)
                return time.monotonic() - began
            except AssertionError:
                # A message that the page sends while Jupyter replaces the old connection may be lost; a person would
                # then run the cell again.
                if time.monotonic() - began > patience:
                    raise
                if time.monotonic() - began > STUCK_AFTER and tab.is_stuck():
                    print(f"{fault.name}: JupyterLab was stuck, and was reconnected to its kernel by hand")
                    tab.reconnects()
