"""Which local port a session's page gets: the browser keeps what it has loaded for an address with its port."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from notebook_launcher.core import local_state as state
from notebook_launcher.core import personal_machine
from notebook_launcher.tunnel import page_port
from notebook_launcher.tunnel.page_port import PAGE_PORTS, PagePort
from tests.ports import free_port

PLACE = "uni\tlogin\t/home/alice\t"


@pytest.fixture(autouse=True)
def personal(monkeypatch: pytest.MonkeyPatch) -> None:
    is_personal(monkeypatch, True)


def is_personal(monkeypatch: pytest.MonkeyPatch, value: bool) -> None:
    monkeypatch.setattr(personal_machine, "is_personal_machine", lambda: value)


def ended(place: str, port: int) -> None:
    """A session was attached here by this port, and is not any more."""
    one = PagePort(place)
    one.used(port)
    one.left()


def test_the_next_session_in_the_same_place_gets_the_same_port() -> None:
    assert PagePort(PLACE).preferred() == 0, "the first one gets any"
    port = free_port()
    ended(PLACE, port)
    assert PagePort(PLACE).preferred() == port
    for elsewhere in ("uni\tlogin\t/home/alice\t/scratch", "snowy\tlogin\t/home/alice\t", "uni\tlogin\t/home/bob\t"):
        assert PagePort(elsewhere).preferred() == 0, "what one page has left is nothing for another's address"
    assert PagePort("").preferred() == 0


def test_two_sessions_at_once_have_a_port_each_and_so_have_the_next_two() -> None:
    ports = [free_port(), free_port()]
    sessions = [PagePort(PLACE), PagePort(PLACE)]
    for session, port in zip(sessions, ports, strict=True):
        assert session.preferred() == 0, "no session has ended yet"
        session.used(port)
    for session in sessions:
        session.left()
    found = PagePort(PLACE)
    assert found.preferred() == found.preferred() == ports[1]
    assert [PagePort(PLACE).preferred() for _ in range(2)] == [ports[0], 0], "nobody else gets that of a session"


def test_a_port_that_is_taken_is_left_out() -> None:
    ended(PLACE, free_port())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended(PLACE, taken.getsockname()[1])
        assert PagePort(PLACE).preferred() not in (0, taken.getsockname()[1])


@pytest.mark.parametrize("when", ["at the start", "at the first answer", "at the next answer", "at the end"])
def test_a_port_that_others_could_know_is_never_given_out_again(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They could take it meanwhile, and leave a script in the browser that runs in the next session's page."""
    ended(PLACE, port := free_port())
    session = PagePort(PLACE)
    is_personal(monkeypatch, when != "at the start")
    assert session.preferred() == (0 if when == "at the start" else port)
    for answer in ("at the first answer", "at the next answer"):
        is_personal(monkeypatch, when != answer)
        session.used(port)
    is_personal(monkeypatch, when != "at the end")
    session.left()
    is_personal(monkeypatch, True)
    if when == "at the start":
        assert PagePort(PLACE).preferred() == port, "that session had another one"
    else:
        assert PagePort(PLACE).preferred() == 0


def test_a_killed_launcher_leaves_no_port() -> None:
    """It could not look who was there at its end."""
    ended(PLACE, port := free_port())
    killed = PagePort(PLACE)
    assert killed.preferred() == port
    killed.used(port)
    assert PagePort(PLACE).preferred() == 0
    again = PagePort(PLACE)
    assert again.preferred(before=port) == port, "its own session has it again"
    again.used(port)
    again.left()
    assert PagePort(PLACE).preferred() == 0


def test_a_session_that_is_attached_again_leaves_its_port_again() -> None:
    ended(PLACE, port := free_port())
    again = PagePort(PLACE)
    assert again.preferred(before=port) == port
    assert PagePort(PLACE).preferred() == 0
    again.used(port)
    again.left()
    assert PagePort(PLACE).preferred() == port


def test_the_ports_that_are_kept_are_those_of_the_places_used_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those whose names come last in the alphabet."""
    monkeypatch.setattr(page_port, "MOST_PLACES", 2)
    ports = {place: free_port() for place in ("zeta", "alpha", "beta")}
    for place in ("zeta", "alpha", "zeta", "beta"):
        ended(place, ports[place])
    found = {place: PagePort(place).preferred() for place in ports}
    assert found == ports | {"alpha": 0}


def test_sessions_that_end_at_once_lose_no_port() -> None:
    ports = {f"place{number}": 20000 + number for number in range(20)}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ended, ports, ports.values()))
    for place, port in ports.items():
        assert state.remembered(PAGE_PORTS, place) == str(port)


@pytest.mark.parametrize("damaged", ["", "x", "0", "80", "65536", "99999999999999999999", "-1", "²", "1e4"])
def test_a_damaged_record_is_no_port(damaged: str) -> None:
    state.remember(PAGE_PORTS, PLACE, damaged)
    assert PagePort(PLACE).preferred() == 0
    port = free_port()
    ended(PLACE, port)
    assert PagePort(PLACE).preferred() == port
