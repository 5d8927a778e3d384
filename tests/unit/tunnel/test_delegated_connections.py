"""Connections that ``ssh`` itself carries: what it has had in its hands, and what it gives back."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from notebook_launcher.hosts.base import ByteStream
from notebook_launcher.hosts.delegated_connection import DelegatedConnection, DelegationFailed
from notebook_launcher.hosts.openssh import mux
from notebook_launcher.hosts.openssh.host import OpenSshHost
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.tunnel.forwarding import Endpoint, Tunnel
from tests.ssh_server import Server, User
from tests.unit.tunnel.far_end import (
    MIB,
    OpenSshRoute,
    SocketRoute,
    StartFar,
    blocks,
    checksum,
    connects,
    received,
)

pytestmark = [pytest.mark.timeout(60), pytest.mark.real_time]


@pytest.fixture
def closed(server: Server, tmp_path: Path) -> Iterator[OpenSshHost]:
    """A login node that forbids forwarding."""
    (tmp_path / "known").write_text(f"[127.0.0.1]:{server.closed_port} {server.host_key}")
    destination = server.client_with(tmp_path, Port=str(server.closed_port), UserKnownHostsFile=str(tmp_path / "known"))
    with contextlib.closing(OpenSshHost.open(destination, Credentials(User()))) as host:
        yield host


def test_where_forwarding_is_forbidden_a_command_carries_it(
    ours: Tunnel, closed: OpenSshHost, far: StartFar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ssh has made the socket non-blocking by then, and the browser's request comes later than the answer to that."""
    tried = []
    real = mux.Master.delegate

    def counted(*args: object) -> DelegatedConnection:
        tried.append(args)
        return real(*args)  # type: ignore[arg-type]

    def act(connection: socket.socket) -> None:
        data = connection.recv(100)
        time.sleep(0.3)
        connection.sendall(data)
        for piece in blocks(4):
            connection.sendall(piece)

    monkeypatch.setattr(mux.Master, "delegate", counted)
    ours.run_over(closed.open_route())
    port = ours.jupyter(Endpoint(far(act).port))
    for _ in range(2):
        with connects(port) as client, client.makefile("rb") as answer:
            time.sleep(0.5)
            client.sendall(b"GET")
            assert answer.read(3) == b"GET"
            time.sleep(0.3)
            # not to the end: the command ends with its input
            assert checksum(iter([answer.read(4 * MIB)])) == checksum(blocks(4))
    assert len(tried) == 1, "it is known by then"


def test_an_answer_arrives_whole_though_the_far_end_has_finished_first(
    ours: Tunnel, server: Server, far: StartFar
) -> None:
    """ssh ends both directions then, but not before all of the answer is here, however slowly it is read."""

    def act(connection: socket.socket) -> None:
        for piece in blocks(16):
            connection.sendall(piece)
        connection.shutdown(socket.SHUT_WR)
        for _ in received(connection):
            pass

    with contextlib.closing(OpenSshRoute(server)) as link:
        ours.run_over(link)
        with connects(ours.jupyter(Endpoint(far(act).port))) as client:
            client.sendall(b"GET")
            time.sleep(0.5)
            assert checksum(received(client)) == checksum(blocks(16))


class Silent(SocketRoute):
    """One whose master has got the connection, and does not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.tries = 0

    def delegate(
        self, local: socket.socket, address: tuple[str, int], timeout: float = 20.0
    ) -> DelegatedConnection | None:
        self.tries += 1
        raise DelegationFailed("the ssh master does not finish its reply")

    def open(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        raise AssertionError("two would read the same connection")


def test_a_connection_that_ssh_may_have_is_given_to_nobody_else(ours: Tunnel) -> None:
    link = Silent()
    ours.run_over(link)
    # it may be reset before the client has seen that it was made
    with pytest.raises(ConnectionResetError), connects(ours.jupyter(Endpoint(1))) as client:
        client.recv(1)
    assert link.tries == 1
