"""A tunnel by paramiko over a slow network: one connection takes all of it, and another has a key now and then."""

from __future__ import annotations

import contextlib
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.slow_network import Line, carry
from notebook_launcher.hosts.paramiko.host import ParamikoHost
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.tunnel.forwarding import Endpoint, Tunnel
from tests.ssh_server import Server, User
from tests.unit.tunnel.far_end import PATIENCE, StartFar, connects

pytestmark = [pytest.mark.timeout(120), pytest.mark.real_time]

RATE = 1_000_000  # bytes a second


@pytest.fixture
def slow(server: Server, tmp_path: Path) -> Iterator[ParamikoHost]:
    """A connection to the sshd over a network with this rate."""
    listener = socket.create_server(("127.0.0.1", 0))
    down, up = Line(RATE, 0.0), Line(RATE, 0.0)
    ends: list[socket.socket] = []

    def serve() -> None:
        near, _ = listener.accept()
        far = socket.create_connection(("127.0.0.1", server.port))
        ends.extend((near, far))
        for end in ends:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        threading.Thread(target=carry, args=(near, far, up), daemon=True).start()
        carry(far, near, down)

    threading.Thread(target=serve, daemon=True).start()
    alias = f"[127.0.0.1]:{server.port}"
    destination = server.client_with(tmp_path, Port=str(listener.getsockname()[1]), HostKeyAlias=alias)
    with ParamikoHost.open(destination, Credentials(User())) as host:
        yield host
    for end in (listener, *ends):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


def test_a_key_does_not_wait_behind_a_window_full_of_data(slow: ParamikoHost, ours: Tunnel, far: StartFar) -> None:
    """With the window of 2 MB that OpenSSH and paramiko give each channel, it waits for two seconds."""

    def act(connection: socket.socket) -> None:
        if connection.recv(1) == b"D":
            while True:
                connection.sendall(bytes(64 * 1024))
        while data := connection.recv(1):
            connection.sendall(data)

    ours.run_over(slow.open_route())
    port = ours.jupyter(Endpoint(far(act).port))
    with connects(port) as keys, connects(port) as download:
        keys.sendall(b"Ek")
        assert keys.recv(1) == b"k"
        download.sendall(b"D")
        arrived = threading.Event()

        def read() -> None:
            count = 0
            with contextlib.suppress(OSError):
                while data := download.recv(64 * 1024):
                    count += len(data)
                    if count > RATE:
                        arrived.set()

        threading.Thread(target=read, daemon=True).start()
        assert arrived.wait(PATIENCE), "the download takes all that the network carries"
        waits = []
        for _ in range(9):
            began = time.monotonic()
            keys.sendall(b"k")
            assert keys.recv(1) == b"k"
            waits.append(time.monotonic() - began)
        download.shutdown(socket.SHUT_RDWR)
    assert statistics.median(waits) < 0.8
