"""An attached session: the last minute, other ports, the browser, several launchers, and a staged environment."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.cluster_tests import in_box
from tests.cluster_tests.situation import STAND_IN, profile_of, venv
from tests.cluster_tests.situations import LIGHT
from tests.conftest import Session, assert_nothing_left, fetch
from tests.doubles import wait_until
from tests.practice_cluster import PracticeCluster

Start = Callable[..., Session]
LAUNCH = in_box.launch

BROWSER = """\
mkdir -p ~/bin && printf '#!/bin/sh\\nsleep 1; cat "${1#file://}" >~/browser-saw\\n' >~/bin/stand-in-browser
chmod +x ~/bin/stand-in-browser; rm -f ~/browser-saw
"""


@pytest.fixture(scope="module", autouse=True)
def _light(cluster: PracticeCluster) -> Iterator[None]:
    with venv("light", STAND_IN)(cluster):
        yield


def test_ports_by_themselves_and_the_last_minute(cluster: PracticeCluster, start: Start) -> None:
    session = start("-t", "2", *LIGHT, columns=80)
    session.ready()
    session.read_along()
    session.saw(r"1 min left · CPU \d")
    node = re.findall(r"JupyterLab runs on (\w+)", session.printed)[0]
    ports = start("forward", "6006:16006", "8787", session.session_id[-4:], columns=80)
    ports.read_along()
    ports.saw(f"Port 6006 of {node}: http://port-16006.localhost:16006 or http://localhost:16006")
    ports.saw(f"Port 8787 of {node}: http://port-8787.localhost:8787 or http://localhost:8787")
    assert fetch(cluster, "laptop", "http://localhost:16006")[0] == 0, "nothing listens there yet"
    server = subprocess.Popen(
        cluster.argv(node, "alice", ["python3", "-m", "http.server", "--bind", "127.0.0.1", "-d", "/usr", "6006"]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for host in ("127.0.0.1", "[::1]"):
        address = f"http://{host}:16006"
        wait_until(lambda url=address: fetch(cluster, "laptop", url)[0] == 200, 30, "the server is reached")  # type: ignore[misc]
    server.terminate()

    for terminal in (session, ports):
        terminal.saw(r"1 min left: job \d+ ends at \d\d:\d\d\.", timeout=70)
        terminal.saw("start the same again:  launch-notebook -t 2")
        terminal.saw(r"5\d s left")
        assert "5 min left" not in terminal.printed
    ports.send("\n")
    assert ports.end() == 0
    assert "keeps running without this terminal" in ports.printed
    assert fetch(cluster, "laptop", session.api, session.token)[0] == 200
    session.send("\n")
    assert session.end() == 0
    server.wait(60)
    assert_nothing_left(cluster)


def test_open_reconnect_and_two_launchers_on_one_session(cluster: PracticeCluster, start: Start) -> None:
    cluster.run("laptop", "alice", ["sh", "-c", BROWSER])
    first = start("-t", "10", *LIGHT)
    url = first.ready()
    first.read_along()
    browser = "/home/alice/bin/stand-in-browser"
    opened = in_box.launcher(cluster, "laptop", "alice", "open", first.session_id, BROWSER=browser)
    assert opened.returncode == 0, opened.stderr
    assert "another launch-notebook here is attached to it" in f"{opened.stdout}{opened.stderr}"
    saw = cluster.run("laptop", "alice", ["sh", "-c", "cat ~/browser-saw; ls ~/.cache/notebook-launcher"]).stdout
    assert url in saw and "launch-notebook-" not in saw, "it has seen the address, and the page is gone"

    first.send("d\n")
    assert first.end() == 0
    assert cluster.squeue() == [first.job_id]
    told = re.search(r"launch-notebook (connect .*)", first.printed)
    assert told, first.printed
    second = start(*told[1].split())
    assert second.ready(started_here=False) == url, "an open tab goes on"
    assert fetch(cluster, "laptop", second.api, second.token)[0] == 200
    second.read_along()
    third = start("connect", first.session_id)
    assert third.ready(started_here=False) != url
    third.read_along()
    second.send("\n")
    assert second.end() == 0
    third.saw("was ended by another launch-notebook, on laptop")
    assert third.end() == 0
    assert_nothing_left(cluster)


def staging(cluster: PracticeCluster, session: Session) -> str:
    file = f".notebook-launcher/sessions/{session.session_id}/staging.json"
    return cluster.run("login", "alice", ["cat", file], check=True).stdout


def test_the_next_session_finds_its_environment_on_the_nodes_own_disk(cluster: PracticeCluster, start: Start) -> None:
    """The copy is mounted over the environment's folder, read-only, for the job and for a shell in it."""
    copies, archive = "/tmp/notebook-launcher-stage-2001", "/home/alice/.light.stage-*"
    words = ("--cluster", "staging", "-t", "10", "-w", "node1", *LIGHT)
    try:
        with profile_of("alice", "staging", 'base = "practice"\nstage = true\n')(cluster):
            first = start(*words, columns=80)
            first.ready()
            assert '"state":"later"' in staging(cluster, first)
            made = ["sh", "-c", f"test -e {copies}/[0-9a-f]*/size"]
            wait_until(lambda: cluster.root("node1", made).returncode == 0, 30, "the copy is made")
            assert ".sqfs" in cluster.run("login", "alice", ["sh", "-c", f"ls {archive}"]).stdout
            first.send("\n")
            assert first.end() == 0
            second = start(*words, columns=80)
            second.ready()
            assert '"state":"kept"' in staging(cluster, second)
            look = "grep -o '/home/alice/light ro' /proc/self/mountinfo; touch ~/light/x"
            words = ("shell", second.session_id, "--cluster", "staging", "--command", look)
            shell = in_box.launcher(cluster, "laptop", "alice", *words)
            assert "/home/alice/light ro" in shell.stdout
            assert "Read-only file system" in shell.stdout + shell.stderr
            second.send("\n")
            assert second.end() == 0
        assert_nothing_left(cluster)
    finally:
        cluster.root("node1", ["sh", "-c", f"rm -rf {copies} {archive}"], check=True)
