"""The usage report at the end of a session (``bill``), from Slurm's accounting and the job's own samples."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.cluster_tests import in_box
from tests.cluster_tests.situation import STAND_IN, venv
from tests.cluster_tests.situations import LIGHT
from tests.conftest import PROFILE, Session, assert_nothing_left, write_profile
from tests.doubles import wait_until
from tests.practice_cluster import PracticeCluster

Start = Callable[..., Session]
LAUNCH = in_box.launch
each_slurm = pytest.mark.each_slurm

# a start-up file of IPython: every kernel computes for three seconds as soon as it starts
_BURN = (
    "import time\nuntil = time.process_time() + 3\nwhile time.process_time() < until:\n    pass\nopen('burnt', 'w')\n"
)
_STARTUP = ".ipython/profile_default/startup"


@pytest.fixture
def _priced(cluster: PracticeCluster) -> Iterator[None]:
    price = 'usage_seconds = 1\nprice = { unit = "SBU", core_hour = 360 }\n'
    write_profile(cluster, "laptop", "alice", price + PROFILE)
    yield
    write_profile(cluster, "laptop", "alice")


@pytest.fixture
def _busy_kernels(cluster: PracticeCluster) -> Iterator[None]:
    script = f"mkdir -p ~/{_STARTUP} && cat >~/{_STARTUP}/burn.py && rm -f ~/burnt"
    cluster.run("login", "alice", ["sh", "-c", script], input=_BURN, check=True)
    yield
    cluster.run("login", "alice", ["sh", "-c", f"rm -f ~/{_STARTUP}/burn.py ~/burnt"])


def burn(cluster: PracticeCluster, session: Session) -> None:
    """Start a kernel, and wait until it has computed."""
    url = session.api.replace("api/status", "api/kernels")
    program = (
        "import sys, urllib.request\n"
        "url, token = sys.stdin.read().split()\n"
        "urllib.request.urlopen(urllib.request.Request(url, b'{}', {'Authorization': 'token ' + token}), timeout=60)\n"
    )
    cluster.run("laptop", "alice", ["python3", "-c", program], input=f"{url}\n{session.token}", check=True)
    wait_until(
        lambda: cluster.run("login", "alice", ["sh", "-c", "test -e ~/burnt"]).returncode == 0, 90, "the kernel worked"
    )


def bill(cluster: PracticeCluster, box: str, *words: str) -> subprocess.CompletedProcess[str]:
    return in_box.launcher(cluster, box, "alice", "bill", *words)


@each_slurm
@pytest.mark.usefixtures("_priced", "_busy_kernels")
def test_a_session_that_worked_and_was_cancelled_shows_its_bill_before_the_error(
    cluster: PracticeCluster, start: Start
) -> None:
    session = start("-t", "2:00:00", "-n", "2")  # the site gives it the memory of two cores
    session.ready()
    burn(cluster, session)
    running = bill(cluster, "laptop", session.session_id)
    assert (running.returncode, "has not ended" in running.stderr) == (2, True)
    status = in_box.launcher(cluster, "laptop", "alice", "status", session.session_id).stdout
    assert re.search(r"^  CPU .* 2\.00 cores$", status, re.M) and re.search(r"^  memory .* 12\.5 GiB$", status, re.M)
    cluster.root("ctl", ["scancel", session.job_id], check=True)
    session.expect(rf"Session {session.session_id} on node\d: \d+ s of 2 hours")
    session.expect("was cancelled by root")
    assert session.end() != 0
    printed = session.printed
    busy = re.search(r"CPU .* of 2 cores busy: (\d+) s of CPU time", printed)
    assert busy, printed
    assert int(busy[1]) >= 3
    assert "CPUTime" not in printed
    assert re.search(r"memory +0\.\d+ of 12\.5 GiB at most", printed)
    assert re.search(r"cost +\d.* SBU", printed)
    assert re.search(r"by Slurm's accounting and \d+ samples? of the job", printed)
    assert "next time" not in printed  # a session of some seconds says nothing about the next one
    assert_nothing_left(cluster)

    again = json.loads(bill(cluster, "login", "--json", session.session_id[-4:]).stdout.splitlines()[-1])
    assert (again["event"], again["session"], again["job"]) == ("bill", session.session_id, session.job_id)
    assert again["cpu_used"] >= 3
    assert again["cpu_reserved"] == 2 * again["run_time"]
    assert again["memory_requested"] == 12800


@pytest.mark.usefixtures("_priced")
def test_without_accounting_the_samples_make_a_bill(cluster: PracticeCluster, start: Start) -> None:
    with cluster.no_accounting(), venv("light", STAND_IN)(cluster):
        session = start("-t", "30", "-n", "1", *LIGHT)
        session.ready()
        session.expect("CPU")  # the first sample has come
        session.send("\n")
        assert session.end() == 0
        printed = session.printed.partition("has ended.")[2]  # the report comes after this
        assert re.search(rf"Session {session.session_id} on node", printed)
        assert re.search(r"CPU +\d.* of 1 core busy: \d+ s of CPU time", printed)
        assert "CPUTime" not in printed
        assert re.search(r"memory +\d\.\d+ GiB at most", printed)
        folded = " ".join(printed.split())
        assert re.search(r"by \d+ samples? of the job; Slurm.s accounting has nothing about it", folded)
        assert "cost" not in printed  # without accounting, the number of cores is unknown
    assert_nothing_left(cluster)
