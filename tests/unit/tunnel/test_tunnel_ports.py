"""The local ports of a tunnel."""

from __future__ import annotations

import os
import socket
import sys
import time

import pytest

from notebook_launcher.tunnel import forwarding as tunnel
from notebook_launcher.tunnel import local_ports
from notebook_launcher.tunnel.forwarding import Endpoint, SameMachine, Tunnel
from tests.ports import free_port
from tests.unit.out_of_files import SECONDS, use_without_room
from tests.unit.tunnel.far_end import (
    PATIENCE,
    MakeLink,
    SocketRoute,
    StartFar,
    asks,
    connects,
    echoes,
    is_reset,
    received,
)

pytestmark = [pytest.mark.timeout(120), pytest.mark.real_time]


def test_the_port_stays_whatever_becomes_of_way_and_jupyter(ours: Tunnel, make_route: MakeLink, far: StartFar) -> None:
    """Another way, a Jupyter on another port, no way at all: an open tab finds everything again."""
    ours.run_over(make_route())
    port = ours.jupyter(Endpoint(far(echoes).port))
    assert asks(port) == b"hello"
    for _ in range(3):
        ours.run_over(make_route())
        assert asks(port) == b"hello"
    other = far(lambda connection: connection.sendall(b"another node"))
    ours.run_over(make_route())
    assert ours.jupyter(Endpoint(other.port)) == port
    with connects(port) as client:
        assert b"".join(received(client)) == b"another node"


def test_a_forwarded_port_has_the_same_number_here(ours: Tunnel) -> None:
    port = free_port()
    assert ours.forward(port) == port
    assert ours.forward(port) == port, "asked for once more, it is the same one"


def test_a_number_that_is_taken_here(ours: Tunnel, far: StartFar) -> None:
    """By the far end itself: with one machine in place of two."""
    server = far(echoes)
    ours.run_over(SocketRoute())
    port = ours.forward(server.port)
    assert port != server.port
    assert ours.forward(server.port) == port
    assert asks(port) == b"hello"


def test_each_port_leads_to_its_own(ours: Tunnel, far: StartFar) -> None:
    servers = [far(lambda connection, n=n: connection.sendall(f"{n}".encode())) for n in range(3)]  # type: ignore[misc]
    ours.run_over(SocketRoute())
    ports = [ours.jupyter(Endpoint(servers[0].port)), *(ours.forward(server.port) for server in servers[1:])]
    assert len(set(ports)) == 3
    for number, port in enumerate(ports):
        with connects(port) as client:
            assert b"".join(received(client)) == f"{number}".encode()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere 127.0.0.2 is nobody's address")
def test_only_this_machine_can_connect(ours: Tunnel) -> None:
    """Who listens on every address would be reached under 127.0.0.2 as well."""
    jupyter, forwarded = ours.jupyter(Endpoint(4242)), ours.forward(free_port())
    for port in (jupyter, forwarded):
        connects(port).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), PATIENCE)
    with pytest.raises(OSError):
        socket.create_connection(("::1", jupyter), PATIENCE)


def test_nobody_else_can_take_the_port(ours: Tunnel) -> None:
    jupyter, forwarded = ours.jupyter(Endpoint(4242)), ours.forward(free_port())
    for port in (jupyter, forwarded):
        for address in ("127.0.0.1", ""):
            with pytest.raises(OSError):
                socket.create_server((address, port)).close()
    for address in ("::1", "::"):
        with pytest.raises(OSError):
            socket.create_server((address, forwarded), family=socket.AF_INET6).close()


def test_a_forwarded_port_is_reached_under_every_address_of_localhost(ours: Tunnel, far: StartFar) -> None:
    """A browser may try ::1 first, where another user of this machine could wait for it."""
    server = far(echoes)
    ours.run_over(SocketRoute())
    port = ours.forward(server.port, free_port())
    for address in ("127.0.0.1", "::1"):
        with socket.create_connection((address, port), PATIENCE) as client:
            client.sendall(b"hello")
            assert client.recv(5) == b"hello", address


def test_a_number_that_is_taken_on_one_address_of_localhost(ours: Tunnel) -> None:
    """Nobody else gets the other address meanwhile: it is bound, and a server may be bound there as well (on Linux)."""
    port = free_port()
    with socket.socket() as kept, socket.create_server(("::1", port), family=socket.AF_INET6):
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", port))
        found = ours.forward(6006, port)
        assert found != port
        socket.create_connection(("::1", found), PATIENCE).close()
        with pytest.raises(ConnectionRefusedError):  # nor is the other address held
            socket.create_connection(("127.0.0.1", port), PATIENCE)


def test_where_there_is_no_ipv6(ours: Tunnel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel, "LOOPBACK6", "2001:db8::1")  # nobody's address
    port = free_port()
    assert ours.forward(port) == port
    connects(port).close()


def test_each_port_has_a_host_name_of_its_own() -> None:
    """Browsers send the cookies of a host name to all of its ports; JupyterLab's are those of 127.0.0.1."""
    ours = Tunnel()
    found = [ours.addresses(port) for port in (6006, 8787)]
    assert found == [
        ("http://port-6006.localhost:6006", "http://localhost:6006"),
        ("http://port-8787.localhost:8787", "http://localhost:8787"),
    ]


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can be another user, on Linux")
def test_another_user_of_this_machine_is_turned_away(ours: Tunnel, far: StartFar) -> None:
    server = far(echoes)
    ours.run_over(SocketRoute())
    for port in (ours.jupyter(Endpoint(server.port)), ours.forward(server.port, free_port())):
        assert asks(port) == b"hello"
        with socket.socket() as stranger:
            os.fchown(stranger.fileno(), 65534, 65534)
            stranger.connect(("127.0.0.1", port))
            assert is_reset(stranger)
    assert server.connections == 2, "nothing of it has reached the node"


def test_what_leads_to_a_secret_is_for_nobody_unknown(
    ours: Tunnel, far: StartFar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has connected, sent a stolen cookie and closed the socket may have been another user."""
    server = far(echoes)
    ours.run_over(SocketRoute())
    monkeypatch.setattr(local_ports.local_sockets, "is_from_another_user", lambda _connection: None)
    for port in (ours.jupyter(Endpoint(server.port)), ours.app("board", server.port)):
        with socket.create_connection(("127.0.0.1", port)) as unknown:
            assert is_reset(unknown)
    assert asks(ours.forward(server.port, free_port())) == b"hello"


def test_two_tunnels_do_not_clash(ours: Tunnel) -> None:
    other = Tunnel()
    try:
        port = free_port()
        assert (
            len({ours.jupyter(Endpoint(1)), other.jupyter(Endpoint(1)), ours.forward(port), other.forward(port)}) == 4
        )
    finally:
        other.close()


def test_closed_twice(far: StartFar) -> None:
    tunnel, link = Tunnel(), SocketRoute()
    tunnel.run_over(link)
    port = tunnel.jupyter(Endpoint(far(echoes).port))
    with connects(port) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        tunnel.close()
        assert is_reset(client)
    tunnel.close()
    assert link.closed and not tunnel.alive
    with pytest.raises(ConnectionRefusedError):
        connects(port)


def test_closed_without_having_been_used() -> None:
    Tunnel().close()


def test_closed_while_somebody_waits_for_a_way(ours: Tunnel) -> None:
    with connects(ours.jupyter(Endpoint(4242))) as client:
        time.sleep(0.2)
        ours.close()
        assert is_reset(client)


def test_a_link_that_comes_too_late_is_closed(ours: Tunnel) -> None:
    ours.close()
    link = SocketRoute()
    ours.run_over(link)
    assert link.closed


def test_on_the_same_machine_the_ports_are_the_node_s() -> None:
    tunnel = SameMachine()
    assert tunnel.jupyter(Endpoint(4242)) == 4242
    assert tunnel.forward(6006) == 6006
    assert tunnel.addresses(6006) == ("http://127.0.0.1:6006", ""), "[::1] may be somebody else's"
    other = tunnel.forward(6006, free_port())
    assert tunnel.addresses(other) == (f"http://port-{other}.localhost:{other}", f"http://localhost:{other}")
    tunnel.close()


def test_why_a_port_cannot_be_had_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "is taken" in tunnel.port_error(taken.getsockname()[1])

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(socket.socket, "bind", refuse, raising=False)
    assert "kept for the system" in tunnel.port_error(40)


OPENS_A_PORT = """
import threading
from notebook_launcher.tunnel.local_ports import open_port

here, there = socket.socketpair()
there.sendall(b"there")

def connect(*_):
    return here

[server] = open_port(connect, ["127.0.0.1"], 0)
port = server.local_port
threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
"""


@pytest.mark.skipif(os.name == "nt", reason="there is no such limit")
def test_too_many_open_files_cost_no_processor_time_and_pass() -> None:
    used, answer = use_without_room(OPENS_A_PORT)
    assert used < SECONDS / 4 and answer == "there"
