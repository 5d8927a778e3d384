"""Defects of sshtunnel that are corrected, beside sshtunnel as it is."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Iterator

import pytest
import sshtunnel  # type: ignore[import-untyped]

from notebook_launcher.tunnel.forwarding import Endpoint, Tunnel
from tests.ssh_server import Server
from tests.unit.tunnel.far_end import (
    Far,
    SshRoute,
    StartFar,
    connects,
    echoes,
    gets_all_after_a_half_close,
    gives_when_all_is_said,
)

pytestmark = [pytest.mark.timeout(120), pytest.mark.real_time]


PLAIN_HALF_CLOSE = "sshtunnel ends both directions as soon as one has ended (_ForwardHandler._redirect)"

PLAIN_FAILURES = (AssertionError, ConnectionResetError)

PLAIN_NAGLE = "sshtunnel leaves Nagle's algorithm on: up to 40 ms more for every small request"


class Forwarding:
    """A port that leads to the far end, by us or by sshtunnel alone, and the transport that it runs over."""

    def __init__(self, kind: str, server: Server, target: tuple[str, int]) -> None:
        if kind == "ours":
            self._link, self._tunnel = SshRoute(server), Tunnel()
            self._tunnel.run_over(self._link)
            self.port, self.transport = self._tunnel.jupyter(Endpoint(target[1])), self._link.host.transport
            self.close = self._tunnel.close
        else:
            plain = sshtunnel.SSHTunnelForwarder(
                ("127.0.0.1", server.port),
                ssh_username=getpass.getuser(),
                ssh_pkey=str(server.folder / "user_key"),
                ssh_config_file=None,
                host_pkey_directories=[],
                allow_agent=False,
                remote_bind_address=target,
                local_bind_address=("127.0.0.1", 0),
            )
            plain.daemon_forward_servers = True
            plain.start()
            self.port, self.transport = plain.local_bind_port, plain._transport
            self.close = plain.stop


@pytest.fixture
def forwarding(server: Server) -> Iterator[Callable[[str, Far], Forwarding]]:
    made: list[Forwarding] = []

    def make(kind: str, far: Far) -> Forwarding:
        made.append(Forwarding(kind, server, far.address))
        return made[-1]

    yield make
    for one in made:
        one.close()


StartForwarding = Callable[[str, Far], Forwarding]


@pytest.mark.parametrize("kind", ["ours", "sshtunnel"])
def test_the_plain_forwarder_works_here(forwarding: StartForwarding, far: StartFar, kind: str) -> None:
    """So that what it fails at below is what it is said to fail at."""
    with connects(forwarding(kind, far(echoes)).port) as client:
        client.sendall(b"hello")
        assert client.recv(5) == b"hello"


@pytest.mark.parametrize(
    "kind",
    [
        "ours",
        pytest.param("sshtunnel", marks=pytest.mark.xfail(raises=PLAIN_FAILURES, strict=True, reason=PLAIN_HALF_CLOSE)),
    ],
)
def test_a_half_close_loses_nothing_where_sshtunnel_does(forwarding: StartForwarding, far: StartFar, kind: str) -> None:
    gets_all_after_a_half_close(forwarding(kind, far(gives_when_all_is_said)).port)


@pytest.mark.parametrize(
    "kind",
    [
        "ours",
        pytest.param("sshtunnel", marks=pytest.mark.xfail(raises=PLAIN_FAILURES, strict=True, reason=PLAIN_NAGLE)),
    ],
)
def test_small_requests_do_not_wait_for_nagle_where_sshtunnel_s_do(
    forwarding: StartForwarding, far: StartFar, kind: str
) -> None:
    connection = forwarding(kind, far(echoes)).transport.sock
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
