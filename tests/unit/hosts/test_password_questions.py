"""Passwords and questions, over both engines."""

from __future__ import annotations

import pytest

from notebook_launcher.core.errors import (
    AuthenticationFailed,
)
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.hosts.ssh_config import Destination
from tests.ssh_server import Open, User

pytestmark = [pytest.mark.timeout(30), pytest.mark.real_time]


@pytest.mark.parametrize("asking", ["password", "publickey,password"], indirect=True)
def test_a_password_is_asked_for_once_for_two_connections(open_host: Open, asking: Destination) -> None:
    user = User("opén")
    credentials = Credentials(user)
    with open_host(asking, credentials) as host:
        host.reconnect()
    assert user.asked == ["alice@127.0.0.1's password: "]


@pytest.mark.parametrize("asking", ["keyboard-interactive", "keyboard-interactive,password"], indirect=True)
def test_a_servers_question_is_passed_on(open_host: Open, asking: Destination) -> None:
    user = User("opén")
    open_host(asking, Credentials(user)).close()
    assert len(user.asked) == 1
    assert user.asked[0].endswith(") Code: ")  # before it, in brackets: where


@pytest.mark.parametrize("asking", ["password", "keyboard-interactive"], indirect=True)
@pytest.mark.parametrize(("answer", "times"), [("wrong", 3), (None, 1)])
def test_whoever_does_not_know_it_stays_outside(
    open_host: Open, asking: Destination, answer: str | None, times: int
) -> None:
    user = User(answer)
    with pytest.raises(AuthenticationFailed, match=r"127\.0\.0\.1 does not let alice in") as caught:
        open_host(asking, Credentials(user))
    assert len(user.asked) == times
    assert "wrong" not in f"{caught.value.what}{caught.value.why}{caught.value.hint}"
