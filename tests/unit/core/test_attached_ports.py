"""What this machine keeps while it is attached to a session."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from notebook_launcher.core import local_state

SESSION = "20261121-120000-k3f9"


def test_who_holds_a_session_here_is_found(tmp_path: Path) -> None:
    assert local_state.attached_ports(SESSION) == [] and local_state.last_port(SESSION) == 0
    local_state.record_attached(SESSION, 50001)
    assert local_state.attached_ports(SESSION) == [50001] and local_state.last_port(SESSION) == 50001
    assert local_state.attached_ports("20261121-120000-abcd") == []
    kept = list(local_state.state_folder().glob("attached-*"))
    assert [path.stat().st_mode & 0o777 for path in kept] == [0o600]
    assert "token" not in kept[0].read_text()
    local_state.forget_attached(SESSION)
    assert local_state.attached_ports(SESSION) == [] and local_state.last_port(SESSION) == 50001
    local_state.forget_attached(SESSION)


def test_programs_beside_jupyterlab_are_found_where_they_are_open() -> None:
    local_state.record_apps(SESSION, {"board": 50002})
    assert local_state.app_ports(SESSION) == {}, "nobody is attached"
    local_state.record_attached(SESSION, 50001)
    local_state.record_apps(SESSION, {"board": 50002, "code": 50003})
    local_state.record_attached(SESSION, 50001)  # again, after a broken connection
    assert local_state.app_ports(SESSION) == {"board": 50002, "code": 50003}
    local_state.record_apps(SESSION, {"board": 50004})  # another run of the job
    assert local_state.app_ports(SESSION) == {"board": 50004} and local_state.attached_ports(SESSION) == [50001]
    local_state.forget_attached(SESSION)
    assert local_state.app_ports(SESSION) == {}


def test_what_a_dead_launcher_left_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    monkeypatch.setattr(os, "getpid", lambda: dead.pid)
    local_state.record_attached(SESSION, 50001)
    assert local_state.attached_ports(SESSION) == []
    assert list(local_state.state_folder().glob("attached-*")) == []


@pytest.mark.skipif(not Path("/proc/net/tcp").exists() or os.getuid() != 0, reason="another user's port needs root")
@pytest.mark.parametrize("address", ["127.0.0.1", "::"])
def test_a_port_that_is_another_user_s_by_now_is_not_ours(address: str) -> None:
    """The launcher was killed, its number is another process's, and so is its port: it would get the token."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind((address, 0))
        port = listener.getsockname()[1]
        local_state.record_attached(SESSION, port)
        os.fchown(listener.fileno(), 65534, 65534)
        listener.listen()
        assert local_state.attached_ports(SESSION) == []
        local_state.record_attached(SESSION, port)
        os.fchown(listener.fileno(), os.getuid(), os.getgid())
        assert local_state.attached_ports(SESSION) == [port]


def test_another_login_node_s_launcher_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """They share a home folder, and so may share this one."""
    monkeypatch.setattr("socket.gethostname", lambda: "login2")
    local_state.record_attached(SESSION, 50001)
    monkeypatch.setattr("socket.gethostname", lambda: "login1")
    assert local_state.attached_ports(SESSION) == []
    local_state.forget_port(SESSION, 50001)
    assert len(list(local_state.state_folder().glob("attached-*"))) == 1


def test_ports_of_old_sessions_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_state, "_PORTS", 3)
    names = [f"2026112{day}-120000-abcd" for day in range(5)]
    for number, name in enumerate(names):
        local_state.record_attached(name, 50000 + number)
    assert [local_state.last_port(name) for name in names] == [0, 0, 50002, 50003, 50004]
