"""Logins by password and by questions: what is asked, what is kept, and to whom it is given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from notebook_launcher.core.errors import AuthenticationFailed
from notebook_launcher.hosts.base import NextHop
from notebook_launcher.hosts.paramiko.connection import open_transport
from notebook_launcher.hosts.paramiko.host import ParamikoHost
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.hosts.ssh_config import Destination, SshSettings
from tests.unit.hosts.login_servers import CODE, HOST_KEY, KBD, Open, Round, User, a_door, enter

__all__ = ["a_door"]

pytestmark = [pytest.mark.timeout(30), pytest.mark.real_time]


@pytest.mark.parametrize("method", ["password", KBD])
def test_a_password_is_asked_for_once_however_many_connections(a_door: Open, method: str) -> None:
    door, user = a_door(method), User("sesame")
    credentials = Credentials(user)
    for _ in range(4):
        enter(door, credentials)
    assert len(user.asked) == 1
    assert door.got == ["sesame"] * 4


@pytest.mark.parametrize(("first", "then"), [("password", KBD), (KBD, "password")])
def test_a_password_serves_both_methods(a_door: Open, first: str, then: str) -> None:
    door, user = a_door(first), User("sesame")
    credentials = Credentials(user)
    enter(door, credentials)
    door.stages = (then,)
    enter(door, credentials)
    assert len(user.asked) == 1


@pytest.mark.parametrize("other", [{"port": 1}, {"user": "bob"}, {"proxy_jump": ("jump",)}, {"hostname": "other"}])
def test_another_account_is_another_account(other: dict[str, Any]) -> None:
    login = SshSettings("login", "login", "alice")
    assert replace(login, **other).account != login.account
    assert replace(login, hostname="LOGIN", host_key_alias="x", destination="y").account == login.account
    assert replace(login, **other, shares_secrets_with=login.account).account == login.account


@pytest.mark.parametrize("method", ["password", KBD])
def test_a_password_typed_for_one_machine_is_never_sent_to_another(a_door: Open, method: str) -> None:
    one, other = a_door(method), a_door(method, password="else", rounds=[Round(right=("else",))])
    user = User("sesame", "else")
    credentials = Credentials(user)
    enter(one, credentials)
    enter(other, credentials)
    enter(one, credentials)
    assert one.got == ["sesame", "sesame"]
    assert other.got == ["else"]
    assert len(user.asked) == 2


def test_a_compute_node_gets_the_login_nodes_password_and_nothing_is_asked_again(a_door: Open) -> None:
    login, node, user = a_door("password"), a_door(KBD), User("sesame")
    settings, credentials = login.settings(), Credentials(user)
    with ParamikoHost(open_transport(settings, credentials), Destination("login"), settings, credentials) as host:
        key = f"{HOST_KEY.get_name()} {HOST_KEY.get_base64()}"
        for asking in (False, True):
            link = host.open_route(NextHop("node1", ("127.0.0.1", node.port), (), (key,), None, asking))
            assert link.alive
            link.close()
    assert len(user.asked) == 1
    assert node.got == ["sesame"] * 2
    assert node.users == ["alice"] * 2


def test_a_node_that_may_not_ask_does_not(a_door: Open) -> None:
    login, node, user = a_door("password"), a_door(KBD, rounds=[CODE]), User("sesame", "123456")
    settings, credentials = login.settings(), Credentials(user)
    with ParamikoHost(open_transport(settings, credentials), Destination("login"), settings, credentials) as host:
        key = f"{HOST_KEY.get_name()} {HOST_KEY.get_base64()}"
        with pytest.raises(AuthenticationFailed):
            host.open_route(NextHop("node1", ("127.0.0.1", node.port), (), (key,), None, asking=False))
        assert len(user.asked) == 1
        host.open_route(NextHop("node1", ("127.0.0.1", node.port), (), (key,))).close()
    assert len(user.asked) == 2


@pytest.mark.parametrize("method", ["password", KBD])
def test_a_password_that_is_good_no_more_is_given_once_and_then_asked_for(a_door: Open, method: str) -> None:
    door, user = a_door(method), User("sesame", "new")
    credentials = Credentials(user)
    enter(door, credentials)
    door.password, door.rounds = "new", [Round(right=("new",))]
    enter(door, credentials)
    assert door.got == ["sesame", "sesame", "new"]
    assert len(user.asked) == 2


@pytest.mark.parametrize("method", ["password", KBD])
def test_the_same_question_again_says_that_the_answer_was_refused(a_door: Open, method: str) -> None:
    door, user = a_door(method), User("wrong", "sesame")
    enter(door, Credentials(user))
    assert "refused" not in user.asked[0] and "refused this password; try again.\n" in user.asked[1]


@pytest.mark.parametrize("methods", ["password", KBD, f"{KBD},password"])
def test_a_known_password_that_is_refused_is_sent_only_once(a_door: Open, methods: str) -> None:
    door, user = a_door(methods), User("sesame")
    credentials = Credentials(user)
    enter(door, credentials)
    door.password, door.rounds = "new", [Round(right=("new",))]
    user.answers, door.got = [], []
    with pytest.raises(AuthenticationFailed):
        enter(door, credentials)
    assert door.got == ["sesame"]


def test_what_is_called_a_password_and_is_good_only_once_is_not_given_again(a_door: Open) -> None:
    door, user = a_door(KBD), User("one", "two", "three")
    credentials = Credentials(user)
    for word in ("one", "two", "three"):
        door.rounds = [Round(right=(word,))]
        enter(door, credentials)
    assert door.got == ["one", "one", "two", "three"]
    assert len(user.asked) == 3


def test_a_code_is_asked_for_each_time_and_the_password_once(a_door: Open) -> None:
    door, user = a_door(KBD, rounds=[Round(), CODE]), User("sesame", "123456")
    credentials = Credentials(user)
    enter(door, credentials)
    enter(door, credentials)
    assert [text.partition(") ")[2] for text in user.asked] == ["Password: ", *["Verification code: "] * 2]
    assert door.got == ["sesame", "123456"] * 2


def test_two_passwords_in_one_login_are_two(a_door: Open) -> None:
    """As where the second one is a token's: the first is known the next time, and not given in its place."""
    door, user = a_door(KBD, rounds=[Round(), Round(right=("token",))]), User("sesame", "token")
    credentials = Credentials(user)
    enter(door, credentials)
    enter(door, credentials)
    assert door.got == ["sesame", "token"] * 2
    assert len(user.asked) == 3


def test_a_wrong_code_does_not_send_the_password_again_and_again(a_door: Open) -> None:
    door, user = a_door(KBD, rounds=[Round(), CODE]), User("sesame", "123456")
    credentials = Credentials(user)
    enter(door, credentials)
    user.answers, door.got = ["wrong", "sesame", "123456"], []
    enter(door, credentials)
    assert door.got == ["sesame", "wrong", "sesame", "123456"]
    user.answers, door.got = ["123456"], []
    enter(door, credentials)
    assert door.got == ["sesame", "123456"]


def test_a_password_that_has_to_be_changed_is_not_kept(a_door: Open) -> None:
    change = Round(("New password: ", "Retype new password: "), ("new", "new"))
    door, user = a_door(KBD, rounds=[Round(), change]), User("sesame", "new")
    credentials = Credentials(user)
    enter(door, credentials)
    door.rounds = [Round(right=("new",))]
    enter(door, credentials)
    assert door.got == ["sesame", "new", "new", "new"]


@pytest.mark.parametrize(
    ("question", "kept"),
    [
        ("Password: ", True), ("alice's password: ", True), ("Mot de passe : ", True), ("Contraseña: ", True),
        ("Passwort: ", True), ("LDAP Password:", True), ("One-time password (OATH) for `alice': ", False),
        ("Passcode or option (1-3): ", False), ("Verification code: ", False), ("Password + OTP: ", False),
        ("Token: ", False), ("Duo passcode: ", False), ("Second factor password: ", False), ("PIN: ", False),
        ("What is your name? ", False), ("Password and verification code: ", False),
    ],
)  # fmt: skip
def test_which_answers_are_kept(a_door: Open, question: str, kept: bool) -> None:
    door, user = a_door(KBD, rounds=[Round((question,))]), User("sesame")
    credentials = Credentials(user)
    enter(door, credentials)
    enter(door, credentials)
    assert len(user.asked) == (1 if kept else 2)


def test_the_words_around_a_question_may_say_that_it_is_a_code(a_door: Open) -> None:
    door, user = a_door(KBD, rounds=[Round(instructions="Enter your one-time password.")]), User("sesame")
    credentials = Credentials(user)
    enter(door, credentials)
    enter(door, credentials)
    assert len(user.asked) == 2


def test_what_is_typed_openly_is_no_password_and_is_shown(a_door: Open) -> None:
    door, user = a_door(KBD, rounds=[Round(("Password or name: ",), shown=True), CODE]), User("sesame", "123456")
    credentials = Credentials(user)
    enter(door, credentials)
    user.answers = ["sesame", "123456"]
    enter(door, credentials)
    assert user.echoed == [True, False] * 2


def test_titles_and_instructions_are_shown_with_the_question_and_a_round_without_questions_is_answered(
    a_door: Open,
) -> None:
    rounds = [
        Round((), (), "Welcome", "Have your telephone ready."),
        Round(("Option: \x1b[31m", "Code: "), ("1", "2"), "Duo", "1. Push\n2. Call\x1b]0;pwned\x07"),
    ]
    door, user = a_door(KBD, rounds=rounds), User("1", "2")
    enter(door, user)
    assert user.asked == [
        "Welcome\nHave your telephone ready.\nDuo\n1. Push\n2. Call\n(login) Option: ",
        "(login) Code: ",
    ]
    assert door.got == ["1", "2"]


def test_rounds_without_end_are_given_up(a_door: Open) -> None:
    door, user = a_door(KBD, rounds=[Round((), ())] * 10_000), User("x")
    with pytest.raises(AuthenticationFailed):
        enter(door, user)
    assert user.asked == []


@pytest.mark.parametrize("wrong", ["password", KBD])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_as_many_prompts_as_the_user_wants(a_door: Open, wrong: str, times: int) -> None:
    door, user = a_door(wrong), User("wrong")
    with pytest.raises(AuthenticationFailed):
        enter(door, user, password_prompts=times)
    assert len(user.asked) == times


@pytest.mark.parametrize("answer", [None, ""])
def test_nobody_is_asked_for_more_than_one_thing_when_nobody_answers(a_door: Open, answer: str | None) -> None:
    door, user = a_door(f"{KBD},password"), User(answer)
    with pytest.raises(AuthenticationFailed):
        enter(door, user, password_prompts=1)
    assert len(user.asked) == (1 if answer is None else 2)


def test_batch_mode_asks_nothing(a_door: Open) -> None:
    door, user = a_door(f"{KBD},password"), User("sesame")
    with pytest.raises(AuthenticationFailed, match="does not let alice in") as caught:
        enter(door, user, batch=True)
    assert user.asked == []
    assert "BatchMode" in caught.value.hint


@pytest.mark.parametrize(
    ("methods", "tried"),
    [
        (("password", KBD), ["password", KBD]),
        ((KBD, "password"), [KBD, "password"]),
        ((KBD,), [KBD]),
        (("publickey",), []),
    ],
)
def test_methods_in_the_users_order(a_door: Open, methods: tuple[str, ...], tried: list[str]) -> None:
    door = a_door(f"{KBD},password,publickey", password="no", rounds=[Round(right=("no",))])
    user = User("wrong")
    with pytest.raises(AuthenticationFailed):
        enter(door, user, methods=methods, password_prompts=1)
    assert [KBD if ") Pass" in text else "password" for text in user.asked] == tried


def test_one_method_after_the_other_and_the_same_one_twice(a_door: Open) -> None:
    door = a_door("password", KBD, "password", rounds=[CODE])
    user = User("sesame", "123456", "sesame")
    credentials = Credentials(user)
    enter(door, credentials)
    assert door.got == ["sesame", "123456", "sesame"]
