"""Whose the sockets of this machine are."""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from notebook_launcher.core import local_sockets
from notebook_launcher.core.local_sockets import CONNECTED, is_from_another_user, others_listen, state_and_owner

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root can be another user, on Linux"
)
NOBODY = 65534
LISTENERS = {"127.0.0.1": (socket.AF_INET, "127.0.0.1"), "::1": (socket.AF_INET6, "::1")}
#: an IPv6 socket that talks to an IPv4 one
MAPPED = (socket.AF_INET6, "::ffff:127.0.0.1")


@pytest.fixture(autouse=True, params=["one found by the kernel", "all listed"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways in which a socket is looked for; a sandbox may forbid the first."""
    if request.param == "all listed":
        monkeypatch.setattr(socket, "AF_NETLINK", 9999)


@pytest.fixture(params=[*LISTENERS])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family, address = LISTENERS[request.param]
    with socket.create_server((address, 0), family=family) as listener:
        yield listener


def connection_of(owner: int, listener: socket.socket, family: int, host: str) -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection: the owner's, and the listener's."""
    client = socket.socket(family)
    os.fchown(client.fileno(), owner, owner)
    client.connect((host, listener.getsockname()[1]))
    return client, listener.accept()[0]


@pytest.mark.parametrize(("owner", "is_strange"), [(0, False), (NOBODY, True)])
def test_who_has_connected(listener: socket.socket, owner: int, is_strange: bool) -> None:
    client, ours = connection_of(owner, listener, listener.family, listener.getsockname()[0])
    with client, ours:
        assert is_from_another_user(ours) is is_strange
        client.shutdown(socket.SHUT_WR)
        assert is_from_another_user(ours) is is_strange, "it has said all, and waits for the answer"


def test_an_ipv6_socket_that_talks_to_an_ipv4_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client, ours = connection_of(NOBODY, listener, *MAPPED)
        with client, ours:
            assert is_from_another_user(ours)


@pytest.mark.parametrize("way", ["one found by the kernel"], indirect=True)
@pytest.mark.parametrize("mapped", [False, True])
def test_the_kernel_is_asked_for_one_connection(listener: socket.socket, mapped: bool) -> None:
    family, host = listener.family, listener.getsockname()[0]
    if mapped:
        family, host = MAPPED if host == "127.0.0.1" else (family, host)
    client, ours = connection_of(NOBODY, listener, family, host)
    with client, ours:
        ends = ours.getpeername()[:2], ours.getsockname()[:2]
        assert state_and_owner(*ends) == (CONNECTED, NOBODY)
        assert state_and_owner(*reversed(ends)) == (CONNECTED, 0)
        free = (ends[0][0], 1)
        assert state_and_owner(ends[1], free) is None, "the listener is none of its connections"
        assert state_and_owner(free, ends[1]) is None


@pytest.mark.parametrize("way", ["one found by the kernel"], indirect=True)
def test_what_the_kernel_is_asked_for_in_vain_stands_in_the_tables(listener: socket.socket) -> None:
    with socket.socket(listener.family) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
        os.fchown(client.fileno(), NOBODY, NOBODY)
        client.connect(listener.getsockname())
        with listener.accept()[0] as ours:
            assert state_and_owner(ours.getpeername()[:2], ours.getsockname()[:2]) is None
            assert is_from_another_user(ours)


def test_root_s_programs_may_relay_for_an_ordinary_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for owner, is_strange in ((0, False), (1000, False), (1001, True)):
            client, ours = connection_of(owner, listener, socket.AF_INET, "127.0.0.1")
            with client, ours:
                assert is_from_another_user(ours) is is_strange


@pytest.mark.parametrize("how", ["closed", "reset"])
def test_who_has_hung_up_is_not_let_in(listener: socket.socket, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has sent could still be read, so it must not pass for one that is not on this machine, or for root.

    Some kernels remember whose a closed socket was, until it is gone.
    """
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    client, ours = connection_of(NOBODY, listener, listener.family, listener.getsockname()[0])
    client.sendall(b"POST /")
    if how == "reset":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    with ours:
        assert is_from_another_user(ours) is not False


def test_who_is_on_no_list_is_on_another_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(socket, "AF_NETLINK", 9999)
    (tmp_path / "tcp").write_text("  sl  local_address rem_address ...\n")
    monkeypatch.setattr(local_sockets, "TABLES", (str(tmp_path / "tcp"), str(tmp_path / "tcp6")))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client, ours = connection_of(NOBODY, listener, socket.AF_INET, "127.0.0.1")
        with client, ours:
            assert is_from_another_user(ours) is False


@pytest.mark.parametrize("way", ["one found by the kernel"], indirect=True)
def test_one_that_the_kernel_finds_needs_no_list(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_sockets, "local_sockets", lambda _having: pytest.fail("all were listed"))
    client, ours = connection_of(NOBODY, listener, listener.family, listener.getsockname()[0])
    with client, ours:
        assert is_from_another_user(ours)


def test_others_listen_only_where_they_do(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    assert not others_listen(port)
    os.fchown(listener.fileno(), NOBODY, NOBODY)
    assert others_listen(port)
