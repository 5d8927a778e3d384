"""A server that does not wait for the user to answer."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from paramiko.common import AUTH_FAILED

from notebook_launcher.core.errors import AuthenticationFailed
from notebook_launcher.hosts.paramiko import login as login_module
from notebook_launcher.hosts.paramiko.login import Credentials
from tests.unit.hosts import login_servers
from tests.unit.hosts.login_servers import CODE, KBD, Door, Keeper, Open, Round, User, a_door, enter, server

__all__ = ["a_door", "server"]

pytestmark = [pytest.mark.timeout(30), pytest.mark.real_time]


def hanging_up_once(door: Door) -> Callable[[], object]:
    """While the first question is answered, as a server does whose LoginGraceTime is over."""
    left = [door.hang_up]
    return lambda: left and left.pop()()


@pytest.mark.parametrize("stages", [("password",), (KBD,), ("password", KBD)])
def test_an_answer_for_which_the_server_did_not_wait_is_not_asked_for_again(
    a_door: Open, stages: tuple[str, ...]
) -> None:
    door = a_door(*stages)
    user = User("sesame", meanwhile=hanging_up_once(door))
    enter(door, user)
    assert len(user.asked) == 1
    assert len(door.transports) == 2


def test_a_code_that_was_not_sent_is_used_and_the_password_before_it_too(a_door: Open) -> None:
    door = a_door(KBD, rounds=[Round(), CODE])
    user = User("sesame", "123456")
    user.meanwhile = lambda: len(user.asked) == 2 and door.hang_up()
    enter(door, user)
    assert len(user.asked) == 2
    assert door.got == ["sesame", "sesame", "123456"]


def test_a_code_that_was_sent_is_never_sent_again(a_door: Open) -> None:
    pin = Round(("PIN: ",), ("0000",))
    door = a_door(KBD, rounds=[CODE, pin])
    user = User("123456", "0000", "123456")
    user.meanwhile = lambda: len(user.asked) == 2 and door.hang_up()
    enter(door, user)
    assert [text.partition(") ")[2] for text in user.asked] == [*CODE.questions, *pin.questions, *CODE.questions]
    enter(door, Credentials(User("123456", "0000")))


def test_an_unused_code_is_given_to_no_other_account_and_not_after_a_minute(
    a_door: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials = Credentials(User("x"))
    credentials.keep_unused(("alice", "a", "22"), "Code: ", "123456", time.monotonic())
    assert credentials.take_unused(("alice", "b", "22"), "Code: ") is None
    assert credentials.take_unused(("alice", "a", "22"), "PIN: ") is None
    assert credentials.take_unused(("alice", "a", "22"), "Code: ") == "123456"
    assert credentials.take_unused(("alice", "a", "22"), "Code: ") is None
    credentials.keep_unused(("alice", "a", "22"), "Code: ", "123456", time.monotonic() - login_module.UNUSED_FOR - 1)
    assert credentials.take_unused(("alice", "a", "22"), "Code: ") is None


def test_a_server_that_hangs_up_again_and_again_is_given_up(a_door: Open) -> None:
    door = a_door("password")
    user = User("sesame")

    def serve_nobody() -> None:
        door.hang_up()
        door.stages = (KBD,)
        door.rounds = [Round(("Code: ",))]

    user.meanwhile = lambda: serve_nobody() if len(user.asked) < 4 else None
    enter(door, user)
    assert len(user.asked) <= 4


def test_a_server_that_hangs_up_for_another_reason_is_not_asked_again(a_door: Open) -> None:
    class Rude(Keeper):
        def check_auth_password(self, username: str, password: str) -> int:
            self.door.hang_up()
            return AUTH_FAILED

    door, user = a_door("password"), User("sesame")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(login_servers, "Keeper", Rude)
        with pytest.raises(AuthenticationFailed, match="does not let alice in"):
            enter(door, user)
    assert len(user.asked) == 1
    assert len(door.transports) == 1
