"""The estimated cost before a launch, with the account's balance if the site has a command that reports it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

import pytest

from tests.cluster_tests import in_box
from tests.conftest import PROFILE, Session, people_processes, write_profile
from tests.doubles import wait_until
from tests.practice_cluster import PracticeCluster

Start = Callable[..., Session]
LAUNCH = in_box.launch


PRICE = """\
[price]
unit = "SBU"
core_hour = 64

[budget]
command = ["accinfo", "{account}"]
pattern = '^{account}\\s.*\\s(?P<left>[\\d ,.]+)$'
"""


def write_accinfo(cluster: PracticeCluster, script: str) -> None:
    """Give alice a command that reports the balance, in a folder that only a login shell puts into PATH."""
    install = (
        "mkdir -p ~/site-bin && cat >~/site-bin/accinfo && chmod 700 ~/site-bin/accinfo; "
        "grep -qs site-bin ~/.bash_profile || echo 'PATH=$HOME/site-bin:$PATH' >>~/.bash_profile"
    )
    cluster.run("login", "alice", ["sh", "-c", install], input=script, check=True)


@pytest.fixture
def _priced(cluster: PracticeCluster) -> Iterator[None]:
    write_profile(cluster, "laptop", "alice", f"{PROFILE}\n{PRICE}")
    yield
    write_profile(cluster, "laptop", "alice")
    cluster.run("login", "alice", ["sh", "-c", "sed -i /site-bin/d ~/.bash_profile; rm -rf ~/site-bin"])


def launched(session: Session) -> str:
    """Wait until the job is queued, cancel it, and return what was printed until then."""
    session.expect(r"Job \d+ is queued")
    printed = session.printed
    session.send("\x03")
    assert session.end() == 130
    return printed


@pytest.mark.usefixtures("_priced")
def test_the_price_is_told_before_the_job_is_queued(cluster: PracticeCluster, start: Start) -> None:
    write_accinfo(cluster, "#!/bin/sh\necho 'account used left'\nprintf '\\033[1m%s\\033[0m 8160 1,840\\n' \"$1\"\n")
    printed = launched(start("-t", "2:00:00", "-n", "2", "-A", "proj1", columns=200))
    assert "Estimated cost: at most 2 h × 2 cores = 256 SBU (account proj1: 1 840 left)" in printed
    assert "more than is left" not in printed


@pytest.mark.usefixtures("_priced")
def test_a_command_that_hangs_delays_the_launch_by_its_limit(cluster: PracticeCluster, start: Start) -> None:
    write_accinfo(cluster, "#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 1; done\n")
    began = time.monotonic()
    printed = launched(start("-t", "2:00:00", "-A", "proj1", columns=200))
    assert 4 < time.monotonic() - began < 40  # the launch and the cancelling take time, too
    assert "Estimated cost: at most 2 h × 1 core = 128 SBU" in printed
    assert "The account's balance was not reported within 5 s." in printed
    assert re.search(r"uerying the account's balance", printed)
    wait_until(lambda: "accinfo" not in " ".join(people_processes(cluster, ("login",))), 30, "the command is ended")


@pytest.mark.usefixtures("_priced")
def test_a_failure_is_told_only_to_who_asks(cluster: PracticeCluster) -> None:
    write_accinfo(cluster, "#!/bin/sh\nexec yes no such account >&2\n")  # it prints this without end
    done = in_box.launcher(cluster, "laptop", "alice", "when", "-t", "2:00:00", "-A", "proj1")
    assert "= 128 SBU" in done.stdout + done.stderr
    assert "accinfo" not in done.stdout + done.stderr
    assert done.returncode == 0
