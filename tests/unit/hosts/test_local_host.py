"""What only this machine does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from notebook_launcher.core.errors import (
    HostCommandFailed,
)
from notebook_launcher.hosts.local import LocalHost
from tests.doubles import wait_until
from tests.ssh_server import Follower, running

pytestmark = [pytest.mark.timeout(30), pytest.mark.real_time]


def test_a_local_command_is_out_of_the_terminals_reach() -> None:
    """Ctrl-C goes to the launcher's own session, and not to what it has started."""
    ours = str(os.getsid(0))
    script = ["sh", "-c", "ps -o sid= -p $$"]
    assert LocalHost().run(script).stdout.strip() not in ("", ours)
    follower = Follower()
    LocalHost().stream(script, follower.lines.put, follower.ends.put)
    assert follower.next().strip() not in ("", ours)


def test_a_local_command_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    mark = f"mark-{tmp_path.name}"
    script = f'bash -c "sleep 20; true" {mark} & wait'
    with pytest.raises(HostCommandFailed):
        LocalHost().run(["bash", "-c", script, mark], timeout=0.5)
    assert wait_until(lambda: not running(mark), 30)


def test_closed_twice() -> None:
    host = LocalHost()
    host.close()
    host.close()
