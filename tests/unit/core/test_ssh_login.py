"""A terminal that is an SSH login: what is typed on the user's own computer, and where nothing need be typed."""

from __future__ import annotations

import socket

import pytest

from notebook_launcher.core.ssh_login import SshLogin, ssh_login

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
    login = ssh_login({"SSH_CONNECTION": connection}, "alice", addresses)
    assert login is not None and login.forward_command(8890) == command


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"SSH_CONNECTION": ""},
        {"SSH_CONNECTION": "192.0.2.7 50022 198.51.100.1"},
        {"SSH_CONNECTION": "192.0.2.7 50022 -oProxyCommand=x 22"},
        {"SSH_CONNECTION": "192.0.2.7 50022 198.51.100.1 ssh"},
        {**CONNECTION, "DISPLAY": ":1"},
        {**CONNECTION, "WAYLAND_DISPLAY": "wayland-0"},
        {**CONNECTION, "TERM_PROGRAM": "vscode"},
    ],
)
def test_nothing_is_typed_where_a_browser_is_within_reach_or_nothing_is_known(environ: dict[str, str]) -> None:
    assert ssh_login(environ, "alice", addresses) is None


def test_windows_that_ssh_forwards_are_no_display() -> None:
    login = ssh_login({**CONNECTION, "DISPLAY": "localhost:10.0"}, "alice", addresses)
    assert login == SshLogin("alice", HERE)
