"""Routes through a host, and to a server behind it."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from notebook_launcher.core.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    HostKeyChanged,
)
from notebook_launcher.hosts.base import Host
from tests.ssh_server import Server, make_key, there_and_back

pytestmark = [pytest.mark.timeout(30), pytest.mark.real_time]


@pytest.mark.parametrize("way", ["here", "address", "command"])
def test_a_link_carries_many_connections(host: Host, server: Server, echo: int, way: str) -> None:
    link = host.open_route(None if way == "here" else server.onward(way))
    assert link.alive
    streams = [link.open(("127.0.0.1", echo), timeout=30) for _ in range(16)]
    data = [os.urandom(100_000) for _ in streams]
    received: dict[int, bytes] = {}
    threads = [
        threading.Thread(target=lambda n=n, s=stream: received.update({n: there_and_back(s, data[n])}))
        for n, stream in enumerate(streams)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [received[n] == data[n] for n in range(16)] == [True] * 16
    for stream in streams:
        stream.close()
    link.close()
    link.close()
    assert host.alive
    assert host.run(["echo", "still there"]).stdout == "still there\n"


@pytest.mark.parametrize("way", ["here", "address"])
def test_a_link_says_when_nobody_listens(host: Host, server: Server, way: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    link = host.open_route(None if way == "here" else server.onward(way))
    with pytest.raises(OSError):
        link.open(("127.0.0.1", port), timeout=5)
    link.close()


@pytest.mark.parametrize("way", ["address", "command"])
def test_a_server_behind_that_is_another_is_refused(host: Host, server: Server, tmp_path: Path, way: str) -> None:
    with pytest.raises(HostKeyChanged) as caught:
        host.open_route(server.onward(way, host_keys=(make_key(tmp_path / "key"),)))
    assert "node" in caught.value.what


@pytest.mark.parametrize("host", ["paramiko", "openssh"], indirect=True)
@pytest.mark.parametrize("name", ["node", "*"])
def test_a_revoked_key_is_refused_although_the_job_reports_it(host: Host, server: Server, name: str) -> None:
    known_hosts = server.folder / "known_hosts"
    before = known_hosts.read_text()
    known_hosts.write_text(f"{before}@revoked {name} {server.host_key}\n")
    try:
        with pytest.raises(HostKeyChanged, match="revoked"):
            host.open_route(server.onward("address"))
    finally:
        known_hosts.write_text(before)


@pytest.mark.parametrize("way", ["address", "command"])
def test_a_key_that_the_server_behind_does_not_know(host: Host, server: Server, way: str) -> None:
    with pytest.raises(AuthenticationFailed):
        host.open_route(server.onward(way, key=(server.folder / "other_key").read_text()))


def test_no_server_behind(host: Host, server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    for onward in (
        server.onward("address", address=("127.0.0.1", port)),
        server.onward("command", command=("false",)),
        server.onward("command", command=("no-such-command-here",)),
    ):
        with pytest.raises(ConnectionFailed):
            host.open_route(onward)
    assert host.run(["echo", "still there"]).stdout == "still there\n"
