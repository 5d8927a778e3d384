"""New keys are agreed on while the connection is used."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from notebook_launcher.hosts.paramiko.library import paramiko
from notebook_launcher.hosts.paramiko.packets import Packets
from notebook_launcher.hosts.paramiko.transport import Transport
from tests.doubles import wait_until

#: closed: the server reads nothing that arrives from now on
GATE = threading.Event()


class SlowReader(paramiko.packet.Packetizer):
    """The server's, which hands on what has arrived when the test says so."""

    def read_message(self) -> tuple[int, paramiko.Message]:
        message = super().read_message()
        GATE.wait(20)
        return message


class OpenDoor(paramiko.ServerInterface):
    def check_auth_none(self, username: str) -> int:
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED


@pytest.fixture
def ends() -> Iterator[tuple[Transport, paramiko.Transport]]:
    """A client's transport, logged in, and the server's."""
    GATE.set()
    here, there = socket.socketpair()
    client, server = Transport(here, packetizer_class=Packets), paramiko.Transport(there, packetizer_class=SlowReader)
    with contextlib.closing(client), contextlib.closing(server):
        server.add_server_key(paramiko.ECDSAKey.generate())
        server.start_server(server=OpenDoor(), event=threading.Event())
        client.start_client(timeout=20)
        client.auth_none("alice")
        yield client, server
        GATE.set()


def test_the_server_closes_a_channel_during_a_key_exchange(ends: tuple[Transport, paramiko.Transport]) -> None:
    client, server = ends
    channel = client.open_session(timeout=20)
    accepted = server.accept(20)
    assert accepted is not None
    client.clear_to_send_timeout = 0.5  # of paramiko; its 30 s are too long for a test
    GATE.clear()
    exchange = threading.Thread(target=client.renegotiate_keys)
    exchange.start()
    wait_until(lambda: not client.clear_to_send.is_set(), 20, "the client asks for new keys")
    accepted.close()
    wait_until(lambda: channel.closed, 20, "the client knows that the channel is closed")
    GATE.set()
    exchange.join(20)
    assert client.is_active() and not exchange.is_alive()
    client.open_session(timeout=20).close()
    wait_until(lambda: not server._channels.values(), 20, "the server has the client's reply")  # type: ignore[attr-defined]
