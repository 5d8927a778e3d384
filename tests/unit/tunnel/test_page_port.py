"""Which local port a session's page gets: the browser keeps what it has loaded for an address with its port."""

from __future__ import annotations

import socket

import pytest

from notebook_launcher.core import local_state as state
from notebook_launcher.core import local_users
from notebook_launcher.tunnel.page_port import PAGE_PORTS, PagePort
from tests.unit.tunnel.far_end import free_port

PLACE = "uni\tlogin\t/home/alice\t"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_users, "works_alone_here", lambda: True)


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
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        ports = [listener.getsockname()[1] for listener in (first, second)]
        sessions = [PagePort(PLACE), PagePort(PLACE)]
        for session, port in zip(sessions, ports, strict=True):
            assert session.preferred() == 0, "those before are taken"
            session.used(port)
    found = PagePort(PLACE).preferred()
    assert found == ports[1]
    with socket.create_server(("127.0.0.1", found)):
        assert PagePort(PLACE).preferred() == ports[0]


@pytest.mark.parametrize("when", ["at the start", "at the end", "at the next start"])
def test_where_somebody_else_is_a_port_is_used_once(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They could take it meanwhile, and leave a script in the browser that runs in the next session's page."""

    def is_alone(value: bool) -> None:
        monkeypatch.setattr(local_users, "works_alone_here", lambda: value)

    is_alone(when != "at the start")
    session, port = PagePort(PLACE), free_port()
    session.used(port)
    is_alone(when != "at the end")
    session.left()
    is_alone(when != "at the next start")
    assert PagePort(PLACE).preferred() == 0
    is_alone(True)
    assert PagePort(PLACE).preferred() == (port if when == "at the next start" else 0)


@pytest.mark.parametrize("damaged", ["", "x", "0", "80", "65536", "99999999999999999999", "-1", "²", "1e4"])
def test_a_damaged_record_is_no_port(damaged: str) -> None:
    state.remember(PAGE_PORTS, PLACE, damaged)
    assert PagePort(PLACE).preferred() == 0
    port = free_port()
    ended(PLACE, port)
    assert PagePort(PLACE).preferred() == port
