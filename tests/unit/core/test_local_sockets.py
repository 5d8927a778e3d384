"""Whose the sockets of this machine are: as the launcher looks it up, and as JupyterLab on the node does."""

from __future__ import annotations

import importlib.util
import os
import resource
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from notebook_launcher.core import local_sockets
from notebook_launcher.core.local_sockets import others_listen
from notebook_launcher.core.package_data import job_script

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root can be another user, on Linux"
)
STRANGER = 65534
LISTENERS = {"127.0.0.1": (socket.AF_INET, "127.0.0.1"), "::1": (socket.AF_INET6, "::1")}
#: an IPv6 socket that talks to an IPv4 one
MAPPED = (socket.AF_INET6, "::ffff:127.0.0.1")


@pytest.fixture(autouse=True, params=["one found by the kernel", "all listed"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways in which a socket is looked for; a sandbox may forbid the first."""
    if request.param == "all listed":
        monkeypatch.setattr(socket, "AF_NETLINK", 9999)


def _on_node() -> ModuleType:
    spec = importlib.util.spec_from_file_location("own_connections", job_script("own_connections.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["here", "on the node"])
def looking(request: pytest.FixtureRequest) -> ModuleType:
    """Both modules that look."""
    return local_sockets if request.param == "here" else _on_node()


IsStrange = Callable[[socket.socket], bool | None]


@pytest.fixture
def is_from_another_user(looking: ModuleType) -> IsStrange:
    """What either finds, in the launcher's words."""

    def is_strange(connection: socket.socket) -> bool | None:
        try:
            found = looking.stranger_behind(connection)
        except OSError:
            return None
        return None if found == looking.NOBODY else found is not None

    return local_sockets.is_from_another_user if looking is local_sockets else is_strange


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let whoever looks be this user."""

    def become(uid: int) -> None:
        monkeypatch.setattr(os, "getuid", lambda: uid)
        monkeypatch.setattr(os, "geteuid", lambda: uid)

    return become


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


@pytest.mark.parametrize(("owner", "is_strange"), [(0, False), (STRANGER, True)])
def test_who_has_connected(
    listener: socket.socket, owner: int, is_strange: bool, is_from_another_user: IsStrange
) -> None:
    client, ours = connection_of(owner, listener, listener.family, listener.getsockname()[0])
    with client, ours:
        assert is_from_another_user(ours) is is_strange
        client.shutdown(socket.SHUT_WR)
        assert is_from_another_user(ours) is is_strange, "it has said all, and waits for the answer"


def test_an_ipv6_socket_that_talks_to_an_ipv4_one(is_from_another_user: IsStrange) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client, ours = connection_of(STRANGER, listener, *MAPPED)
        with client, ours:
            assert is_from_another_user(ours)


@pytest.mark.parametrize("way", ["one found by the kernel"], indirect=True)
@pytest.mark.parametrize("mapped", [False, True])
def test_the_kernel_is_asked_for_one_connection(listener: socket.socket, mapped: bool, looking: ModuleType) -> None:
    family, host = listener.family, listener.getsockname()[0]
    if mapped:
        family, host = MAPPED if host == "127.0.0.1" else (family, host)
    client, ours = connection_of(STRANGER, listener, family, host)
    with client, ours:
        ends = ours.getpeername()[:2], ours.getsockname()[:2]
        assert looking.owner_of(*ends) == STRANGER
        assert looking.owner_of(*reversed(ends)) == 0
        free = (ends[0][0], 1)
        assert looking.owner_of(ends[1], free) is None, "the listener is none of its connections"
        assert looking.owner_of(free, ends[1]) is None


@pytest.mark.parametrize("way", ["one found by the kernel"], indirect=True)
def test_what_the_kernel_is_asked_for_in_vain_stands_in_the_tables(
    listener: socket.socket, looking: ModuleType, is_from_another_user: IsStrange
) -> None:
    with socket.socket(listener.family) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
        os.fchown(client.fileno(), STRANGER, STRANGER)
        client.connect(listener.getsockname())
        with listener.accept()[0] as ours:
            assert looking.owner_of(ours.getpeername()[:2], ours.getsockname()[:2]) is None
            assert is_from_another_user(ours)


def test_root_s_programs_may_relay_for_an_ordinary_user(
    become: Callable[[int], None], is_from_another_user: IsStrange
) -> None:
    become(1000)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for owner, is_strange in ((0, False), (1000, False), (1001, True)):
            client, ours = connection_of(owner, listener, socket.AF_INET, "127.0.0.1")
            with client, ours:
                assert is_from_another_user(ours) is is_strange


@pytest.mark.parametrize(("owner", "us"), [(0, 0), (0, 1000), (STRANGER, 1000)])
@pytest.mark.parametrize("how", ["closed", "reset"])
def test_who_has_hung_up_is_not_let_in(
    listener: socket.socket,
    how: str,
    owner: int,
    us: int,
    become: Callable[[int], None],
    is_from_another_user: IsStrange,
) -> None:
    """What it has sent could still be read, so it must not pass for one that is not on this machine, or for root.

    Some kernels remember whose a closed socket was, until it is gone. Others call it root's.
    """
    become(us)
    client, ours = connection_of(owner, listener, listener.family, listener.getsockname()[0])
    client.sendall(b"POST /")
    if how == "reset":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    with ours:
        assert is_from_another_user(ours) is not False


def test_who_is_not_found_for_want_of_files_is_not_let_in(is_from_another_user: IsStrange) -> None:
    """It would pass for one on another machine; another user's program can make a thousand connections."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client, ours = connection_of(STRANGER, listener, socket.AF_INET, "127.0.0.1")
        with client, ours:
            limits = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))  # no file more
            try:
                found = is_from_another_user(ours)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            assert found is None


def test_who_is_on_no_list_is_on_another_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(socket, "AF_NETLINK", 9999)
    (tmp_path / "tcp").write_text("  sl  local_address rem_address ...\n")
    monkeypatch.setattr(local_sockets, "TABLES", (str(tmp_path / "tcp"), str(tmp_path / "tcp6")))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client, ours = connection_of(STRANGER, listener, socket.AF_INET, "127.0.0.1")
        with client, ours:
            assert local_sockets.is_from_another_user(ours) is False


@pytest.mark.parametrize("way", ["one found by the kernel"], indirect=True)
@pytest.mark.parametrize("owner", [0, STRANGER])
def test_one_that_the_kernel_finds_needs_no_list(
    listener: socket.socket,
    owner: int,
    looking: ModuleType,
    is_from_another_user: IsStrange,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A list takes a thousand times as long, and a page's connections come at once: they would wait for each other."""
    lists = "local_sockets" if looking is local_sockets else "tcp_sockets"
    monkeypatch.setattr(looking, lists, lambda _having: pytest.fail("all were listed"))
    client, ours = connection_of(owner, listener, listener.family, listener.getsockname()[0])
    with ours:
        with client:
            assert is_from_another_user(ours) is (owner != 0)
            client.shutdown(socket.SHUT_WR)
            assert is_from_another_user(ours) is (owner != 0), "it has said all, and waits for the answer"
        assert is_from_another_user(ours) is not False, "it has hung up"


class Forgetful:
    """The kernel, asked for a socket that is closed meanwhile: it was connected; its owner and inode are forgotten."""

    def __init__(self, *_: object) -> None:
        self.asked = b""

    def __enter__(self) -> Forgetful:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def settimeout(self, _seconds: float) -> None:
        pass

    def sendto(self, asked: bytes, _to: tuple[int, int]) -> None:
        self.asked = asked

    def recvfrom(self, _count: int) -> tuple[bytes, tuple[int, int]]:
        head = struct.pack("=IHHII", 88, 20, 0, 0, 0) + bytes([socket.AF_INET, 1, 0, 0])  # 1: connected
        return (head + self.asked[24:28]).ljust(88, b"\0"), (0, 0)


def test_one_that_is_closed_while_it_is_looked_for_is_not_root_s(
    request: pytest.FixtureRequest,
    looking: ModuleType,
    is_from_another_user: IsStrange,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client, ours = connection_of(STRANGER, listener, socket.AF_INET, "127.0.0.1")
    with client, ours:
        if "all listed" in request.node.name:
            name = "local_sockets" if looking is local_sockets else "tcp_sockets"
            rows = list(getattr(looking, name)())
            forgetful = [_forgotten(row) for row in rows]
            monkeypatch.setattr(looking, name, lambda _having: forgetful)
        else:
            monkeypatch.setattr(socket, "socket", Forgetful)
        assert is_from_another_user(ours) is None


def _forgotten(row: Any) -> Any:
    """Return a row of the tables as one without an owner."""
    if isinstance(row, tuple):
        return (*row[:3], 0, 0)
    return local_sockets.LocalSocket(row.local, row.remote, row.state, 0, 0)


def test_others_listen_only_where_they_do(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    assert not others_listen(port)
    os.fchown(listener.fileno(), STRANGER, STRANGER)
    assert others_listen(port)
