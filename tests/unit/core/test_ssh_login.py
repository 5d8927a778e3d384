"""A terminal that is an SSH login: what is typed on the user's own computer, and where nothing need be typed."""

from __future__ import annotations

import socket
import threading

import pytest

from notebook_launcher.core import ssh_login as ssh_logins
from notebook_launcher.core.ssh_login import SshLogin, ssh_login
from notebook_launcher.hosts.ssh_config import Destination

HERE = "login1.uni.example"
CONNECTION = {"SSH_CONNECTION": "192.0.2.7 50022 198.51.100.1 22"}


@pytest.fixture(autouse=True)
def _name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getfqdn", lambda: HERE)


def addresses(name: str) -> set[str]:
    return {"198.51.100.1", "2001:db8::1"} if name == HERE else set()


@pytest.mark.parametrize(
    ("connection", "command"),
    [
        (CONNECTION["SSH_CONNECTION"], f"ssh -N -L 8890:127.0.0.1:8890 alice@{HERE}"),
        ("192.0.2.7 50022 198.51.100.1 2222", f"ssh -N -L 8890:127.0.0.1:8890 -p 2222 alice@{HERE}"),
        # another address than the name has: a network within, or an address translated on the way
        ("192.0.2.7 50022 203.0.113.5 22", "ssh -N -L 8890:127.0.0.1:8890 alice@203.0.113.5"),
        ("2001:db8::7 50022 2001:db8:0::1 22", f"ssh -N -L 8890:127.0.0.1:8890 alice@{HERE}"),
        ("2001:db8::7 50022 2001:db8::5 22", "ssh -N -L 8890:127.0.0.1:8890 alice@2001:db8::5"),
    ],
)
def test_the_port_is_forwarded_from_the_very_machine_that_has_it(connection: str, command: str) -> None:
    login = ssh_login({"SSH_CONNECTION": connection}, lambda: "alice", addresses)
    assert login is not None and login.forward_command(8890) == command


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"SSH_CONNECTION": ""},
        {"SSH_CONNECTION": "192.0.2.7 50022 198.51.100.1"},
        {"SSH_CONNECTION": "192.0.2.7 50022 -oProxyCommand=x 22"},
        {"SSH_CONNECTION": "192.0.2.7 50022 198.51.100.1 ssh"},
        {"SSH_CONNECTION": "192.0.2.7 50022 198.51.100.1 70000"},
        {"SSH_CONNECTION": "fe80::7%eth0 50022 fe80::1%$(id) 22"},
        {**CONNECTION, "DISPLAY": ":1"},
        {**CONNECTION, "WAYLAND_DISPLAY": "wayland-0"},
        {**CONNECTION, "TERM_PROGRAM": "vscode"},
    ],
)
def test_nothing_is_typed_where_a_browser_is_within_reach_or_nothing_is_known(environ: dict[str, str]) -> None:
    assert ssh_login(environ, lambda: "alice", addresses) is None


def test_windows_that_ssh_forwards_are_no_display() -> None:
    login = ssh_login({**CONNECTION, "DISPLAY": "localhost:10.0"}, lambda: "alice", addresses)
    assert login == SshLogin("alice", HERE)


@pytest.mark.parametrize(
    ("address", "port", "command"),
    [
        ("198.51.100.1", 22, f"launch-notebook connect --host alice@{HERE} k3f9"),
        ("198.51.100.1", 2222, f"launch-notebook connect --host alice@{HERE}:2222 k3f9"),
        ("2001:db8::5", 22, "launch-notebook connect --host alice@2001:db8::5 k3f9"),
        ("2001:db8::5", 2222, "launch-notebook connect --host 'alice@[2001:db8::5]:2222' k3f9"),
    ],
)
def test_the_session_is_reached_from_a_computer_with_the_launcher(address: str, port: int, command: str) -> None:
    login = ssh_login({"SSH_CONNECTION": f"192.0.2.7 50022 {address} {port}"}, lambda: "alice", addresses)
    assert login is not None and login.connect_command("20261121-014455-k3f9") == command
    target = command.split("--host ")[1].split()[0].strip("'")
    assert Destination.parse(target).port in (None, port)


def test_a_session_whose_end_looks_like_a_job_is_named_whole() -> None:
    command = SshLogin("alice", HERE).connect_command("20261121-014455-2345")
    assert command.endswith(" 20261121-014455-2345")


def test_without_a_name_of_the_user_nothing_is_said() -> None:
    assert ssh_login(CONNECTION, lambda: None, addresses) is None


@pytest.mark.real_time
def test_a_name_server_that_is_silent_delays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_logins, "NAME_WITHIN", 0.05)
    silent = threading.Event()
    try:
        login = ssh_login(CONNECTION, lambda: "alice", lambda _: {"198.51.100.1"} if silent.wait(60) else set())
        assert login == SshLogin("alice", "198.51.100.1")
    finally:
        silent.set()
