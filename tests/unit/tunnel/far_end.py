"""The tunnel with real sockets: over links of plain sockets, and over paramiko against a real sshd.

What sshtunnel's own forwarder does wrong, and ours mends, is asked of both; the plain one has to fail.
"""

from __future__ import annotations

import contextlib
import gc
import getpass
import hashlib
import http.server
import random
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import sshtunnel  # type: ignore[import-untyped]
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from notebook_launcher.core.errors import JupyterSilent
from notebook_launcher.hosts.base import ByteStream, Link
from notebook_launcher.hosts.paramiko.connection import ParamikoHost
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.tunnel import forwarding as tunnel
from notebook_launcher.tunnel.forwarding import Endpoint, SameMachine, Tunnel, check_jupyter
from tests.unit.hosts.test_remote_host import Server, User, server, wait_until

__all__ = ["server"]

pytestmark = pytest.mark.timeout(120)

PATIENCE = 30.0  # seconds in which anything that should happen has happened; only a failing test waits so long
MIB = 1 << 20


# --- the far end, and what leads there -----------------------------------------------------------------------


class Far:
    """A server on the node: what it does with a connection is the test's."""

    def __init__(self, act: Callable[[socket.socket], None]) -> None:
        self._act = act
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.address = self._listener.getsockname()
        self.port: int = self.address[1]
        self.connections = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._play, args=(connection,), daemon=True).start()

    def _play(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            self._act(connection)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # wakes who accepts
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def far() -> Iterator[Callable[[Callable[[socket.socket], None]], Far]]:
    started: list[Far] = []

    def start(act: Callable[[socket.socket], None]) -> Far:
        started.append(Far(act))
        return started[-1]

    yield start
    for one in started:
        one.close()


StartFar = Callable[[Callable[[socket.socket], None]], Far]


def echoes(connection: socket.socket) -> None:
    while data := connection.recv(65536):
        connection.sendall(data)


def blocks(mebibytes: int, seed: int = 1) -> Iterator[bytes]:
    base = random.Random(seed).randbytes(MIB - 8)
    for number in range(mebibytes):
        yield number.to_bytes(8, "big") + base


def checksum(pieces: Iterator[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def received(connection: socket.socket) -> Iterator[bytes]:
    while data := connection.recv(MIB):
        yield data


def resets(connection: socket.socket) -> None:
    """Close a connection as a program that has crashed."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


class SocketStream:
    """One connection over a ``SocketLink``; when that is broken it does not end, it breaks."""

    def __init__(self, link: SocketLink, connection: socket.socket) -> None:
        self._link, self.connection = link, connection
        self.send, self.sendall = connection.send, connection.sendall
        self.settimeout, self.shutdown, self.close = connection.settimeout, connection.shutdown, connection.close

    def recv(self, count: int) -> bytes:
        data = self.connection.recv(count)
        if not data and self._link.broken:
            raise ConnectionResetError("the link broke")
        return data


class SocketLink(Link):
    """A way on which each connection is a socket."""

    def __init__(self) -> None:
        self.broken = self.closed = False
        self.streams: list[SocketStream] = []

    def open(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        connection = socket.create_connection(address, timeout)
        connection.settimeout(None)
        self.streams.append(SocketStream(self, connection))
        return self.streams[-1]

    @property
    def alive(self) -> bool:
        return not self.broken and not self.closed

    def breaks(self) -> None:
        self.broken = True
        for stream in self.streams:
            with contextlib.suppress(OSError):
                stream.connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.closed = True
        self.breaks()


class SshLink(Link):
    """A connection of its own to the sshd, as a way."""

    def __init__(self, server: Server) -> None:
        self.host = ParamikoHost.open(server.destination(), Credentials(User()))
        self._link = self.host.link()

    def open(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
        return self._link.open(address, timeout)

    @property
    def alive(self) -> bool:
        return self._link.alive

    def breaks(self) -> None:
        """Cut it where it is a socket, as a network does."""
        self.host.transport.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.host.close()


MakeLink = Callable[[], "SocketLink | SshLink"]


@pytest.fixture(params=["sockets", "paramiko"])
def make_link(request: pytest.FixtureRequest) -> Iterator[MakeLink]:
    """Each kind of link in turn."""
    made: list[Link] = []

    def make() -> SocketLink | SshLink:
        link = SocketLink() if request.param == "sockets" else SshLink(request.getfixturevalue("server"))
        made.append(link)
        return link

    yield make
    for link in made:
        link.close()


@pytest.fixture
def ours() -> Iterator[Tunnel]:
    tunnel = Tunnel()
    yield tunnel
    tunnel.close()


def connects(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), PATIENCE)


def asks(port: int, question: bytes = b"hello") -> bytes:
    """Send something to a far end that echoes, and return the answer."""
    with connects(port) as client:
        client.sendall(question)
        client.shutdown(socket.SHUT_WR)
        return b"".join(received(client))


# --- what passes through -------------------------------------------------------------------------------------


def test_both_directions_at_once_and_nothing_is_lost(ours: Tunnel, make_link: MakeLink, far: StartFar) -> None:
    """64 MiB each way; whoever waits for the other to finish would never end."""
    arrived: list[str] = []

    def act(connection: socket.socket) -> None:
        sender = threading.Thread(target=lambda: [connection.sendall(piece) for piece in blocks(64, 2)])
        sender.start()
        arrived.append(checksum(received(connection)))
        sender.join()

    ours.lead_over(make_link())
    with connects(ours.jupyter(Endpoint(far(act).port))) as client:

        def send() -> None:
            for piece in blocks(64, 1):
                client.sendall(piece)
            client.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        assert checksum(received(client)) == checksum(blocks(64, 2))
        sender.join()
    assert arrived == [checksum(blocks(64, 1))]


def gives_when_all_is_said(connection: socket.socket) -> None:
    """Answer only after the question's end, as HTTP/1.0 and many small protocols do."""
    question = b"".join(received(connection))
    for piece in blocks(8, len(question)):
        connection.sendall(piece)


def gets_all_after_a_half_close(port: int) -> None:
    with connects(port) as client:
        client.sendall(b"a question")
        client.shutdown(socket.SHUT_WR)
        assert checksum(received(client)) == checksum(blocks(8, len(b"a question")))


def test_a_half_close_loses_nothing(ours: Tunnel, make_link: MakeLink, far: StartFar) -> None:
    ours.lead_over(make_link())
    port = ours.jupyter(Endpoint(far(gives_when_all_is_said).port))
    for _ in range(3):
        gets_all_after_a_half_close(port)


def test_a_half_close_of_the_far_end_loses_nothing(ours: Tunnel, make_link: MakeLink, far: StartFar) -> None:
    arrived: list[str] = []

    def act(connection: socket.socket) -> None:
        connection.sendall(b"now you")
        connection.shutdown(socket.SHUT_WR)
        arrived.append(checksum(received(connection)))

    ours.lead_over(make_link())
    with connects(ours.jupyter(Endpoint(far(act).port))) as client:
        assert b"".join(received(client)) == b"now you"
        for piece in blocks(8):
            client.sendall(piece)
        client.shutdown(socket.SHUT_WR)
        assert wait_until(lambda: arrived, PATIENCE)
    assert arrived == [checksum(blocks(8))]


@pytest.mark.parametrize("seed", range(4))
def test_a_talk_of_odd_pieces_arrives_as_it_was_said(
    ours: Tunnel, make_link: MakeLink, far: StartFar, seed: int
) -> None:
    """Pieces of 1 byte to 1 MiB on both sides, with pauses, ended by whoever has finished first."""
    arrived: list[bytes] = []

    def speech(salt: int) -> list[bytes]:
        dice = random.Random(100 * seed + salt)
        return [dice.randbytes(dice.choice((1, 7, 1000, 65536, 65537, MIB))) for _ in range(dice.randint(1, 12))]

    def says(connection: socket.socket, salt: int) -> None:
        dice = random.Random(salt)
        for piece in speech(salt):
            connection.sendall(piece)
            time.sleep(dice.choice((0, 0, 0.002)))
        connection.shutdown(socket.SHUT_WR)

    def act(connection: socket.socket) -> None:
        sender = threading.Thread(target=says, args=(connection, 2))
        sender.start()
        arrived.append(b"".join(received(connection)))
        sender.join()

    ours.lead_over(make_link())
    with connects(ours.jupyter(Endpoint(far(act).port))) as client:
        sender = threading.Thread(target=says, args=(client, 1))
        sender.start()
        assert b"".join(received(client)) == b"".join(speech(2))
        sender.join()
        assert wait_until(lambda: arrived, PATIENCE)
    assert arrived == [b"".join(speech(1))]


def test_a_slow_reader_does_not_fill_the_memory(ours: Tunnel, make_link: MakeLink, far: StartFar) -> None:
    sent = 0

    def act(connection: socket.socket) -> None:
        nonlocal sent
        for piece in blocks(96):
            connection.sendall(piece)
            sent += 1

    ours.lead_over(make_link())
    with connects(ours.jupyter(Endpoint(far(act).port))) as client:
        before = -1
        while sent != before:
            before = sent
            time.sleep(0.5)
        assert sent < 64, "what nobody reads is not taken"
        assert checksum(received(client)) == checksum(blocks(96))


def test_a_hundred_at_once(ours: Tunnel, make_link: MakeLink, far: StartFar) -> None:
    """A page of JupyterLab opens many; all are there at the same time."""
    all_there = threading.Barrier(100)

    def act(connection: socket.socket) -> None:
        all_there.wait(PATIENCE)
        echoes(connection)

    ours.lead_over(make_link())
    port = ours.jupyter(Endpoint(far(act).port))
    with ThreadPoolExecutor(100) as pool:
        questions = [f"{number} ".encode() * 1000 for number in range(100)]
        assert list(pool.map(lambda question: asks(port, question), questions)) == questions


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells how many files are open")
def test_a_thousand_one_after_the_other_leave_nothing(ours: Tunnel, make_link: MakeLink, far: StartFar) -> None:
    """Ended by the client, by the far end, and by a reset of either."""

    def act(connection: socket.socket) -> None:
        how = connection.recv(1)
        if how == b"f":
            return
        if how == b"r":
            resets(connection)
        else:
            echoes(connection)

    def talk(number: int) -> None:
        with connects(port) as client, contextlib.suppress(ConnectionResetError):
            how = number % 5
            client.sendall((b"c", b"f", b"r", b"c", b"c")[how])
            if how in (1, 2):
                client.recv(1)
            elif how == 3:
                resets(client)
            else:
                client.shutdown(socket.SHUT_WR)
                assert b"".join(received(client)) == b""

    def counts() -> tuple[int, int, int]:
        gc.collect()
        channels = len(link.host.transport._channels) if isinstance(link, SshLink) else 0  # type: ignore[attr-defined]
        return threading.active_count(), open_files(), channels

    link = make_link()
    ours.lead_over(link)
    port = ours.jupyter(Endpoint(far(act).port))
    for number in range(20):
        talk(number)
    if isinstance(link, SocketLink):
        link.streams.clear()
    quiet = settled(counts)
    for number in range(1000):
        talk(number)
        if isinstance(link, SocketLink) and number % 50 == 0:
            link.streams = link.streams[-5:]
    if isinstance(link, SocketLink):
        link.streams.clear()
    wait_until(lambda: all(now <= before for now, before in zip(counts(), quiet, strict=True)), PATIENCE)
    assert all(now <= before for now, before in zip(counts(), quiet, strict=True)), (quiet, counts())


def settled(counts: Callable[[], tuple[int, ...]]) -> tuple[int, ...]:
    """Return what is counted once it does not change any more."""
    before: tuple[int, ...] = ()
    while (now := counts()) != before:
        before = now
        time.sleep(1)
    return now


# --- what breaks ---------------------------------------------------------------------------------------------


def talks_without_end(connection: socket.socket) -> None:
    while True:
        connection.sendall(bytes(65536))


def is_reset(client: socket.socket) -> bool:
    """Read to the end, and tell whether it was no clean one."""
    try:
        for _ in received(client):
            pass
    except ConnectionResetError:
        return True
    return False


def test_a_link_that_breaks_in_a_download_resets_it(ours: Tunnel, make_link: MakeLink, far: StartFar) -> None:
    """A file that was cut in the middle must not look complete."""
    link = make_link()
    ours.lead_over(link)
    with connects(ours.jupyter(Endpoint(far(talks_without_end).port))) as client:
        assert client.recv(MIB)
        link.breaks()
        assert is_reset(client)


def test_a_link_that_breaks_in_an_upload_resets_it(ours: Tunnel, make_link: MakeLink, far: StartFar) -> None:
    there = threading.Event()

    def act(connection: socket.socket) -> None:
        for _ in received(connection):
            there.set()

    link = make_link()
    ours.lead_over(link)
    with connects(ours.jupyter(Endpoint(far(act).port))) as client:
        client.sendall(bytes(MIB))
        assert there.wait(PATIENCE)
        link.breaks()
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            while True:
                client.sendall(bytes(65536))


def test_a_link_that_breaks_resets_who_only_waits(ours: Tunnel, make_link: MakeLink, far: StartFar) -> None:
    """As a kernel's WebSocket does when nothing happens."""
    link = make_link()
    ours.lead_over(link)
    with connects(ours.jupyter(Endpoint(far(echoes).port))) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        link.breaks()
        assert is_reset(client)


def test_a_link_that_breaks_after_the_question_s_end(ours: Tunnel, make_link: MakeLink, far: StartFar) -> None:
    link = make_link()
    ours.lead_over(link)
    with connects(ours.jupyter(Endpoint(far(talks_without_end).port))) as client:
        client.shutdown(socket.SHUT_WR)
        assert client.recv(MIB)
        link.breaks()
        assert is_reset(client)


def test_a_new_link_resets_what_ran_over_the_old_one(ours: Tunnel, make_link: MakeLink, far: StartFar) -> None:
    """The browser connects anew at once, where it would else wait for an answer that cannot come."""
    ours.lead_over(make_link())
    port = ours.jupyter(Endpoint(far(echoes).port))
    with connects(port) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        ours.lead_over(make_link())
        assert is_reset(client)
    assert asks(port) == b"hello"


@pytest.mark.parametrize("act", [echoes, talks_without_end, lambda connection: time.sleep(60)],
                         ids=["listens", "talks", "does neither"])  # fmt: skip
def test_a_client_that_resets_ends_the_far_side(
    ours: Tunnel, make_link: MakeLink, far: StartFar, act: Callable[[socket.socket], None]
) -> None:
    gone = threading.Event()
    there = threading.Event()

    def watched(connection: socket.socket) -> None:
        there.set()
        try:
            act(connection) if act in (echoes, talks_without_end) else checksum(received(connection))
        finally:
            gone.set()

    ours.lead_over(make_link())
    client = connects(ours.jupyter(Endpoint(far(watched).port)))
    client.sendall(b"x")
    assert there.wait(PATIENCE)
    resets(client)
    assert gone.wait(PATIENCE)


def test_a_far_side_that_resets(ours: Tunnel, far: StartFar) -> None:
    """OpenSSH's server tells it as an end; where it is known, the client is told."""

    def act(connection: socket.socket) -> None:
        connection.sendall(bytes(1000))
        connection.recv(1)
        resets(connection)

    ours.lead_over(SocketLink())
    with connects(ours.jupyter(Endpoint(far(act).port))) as client:
        assert client.recv(1000)
        client.sendall(b"x")
        assert is_reset(client)


def test_where_nobody_listens_is_told_at_once(ours: Tunnel, make_link: MakeLink) -> None:
    """And not after ``HOLD``, which is for a way that is away."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    ours.lead_over(make_link())
    port = ours.jupyter(Endpoint(free))
    with pytest.raises(ConnectionResetError):  # it may come before connect() has returned, or after
        connects(port).recv(1)


# --- while there is no way -----------------------------------------------------------------------------------


@pytest.mark.parametrize("before", ["never", "broken"])
def test_who_connects_while_there_is_no_way_waits_for_it(
    ours: Tunnel, make_link: MakeLink, far: StartFar, before: str
) -> None:
    if before == "broken":
        old = make_link()
        ours.lead_over(old)
        old.breaks()
        assert wait_until(lambda: not ours.alive, PATIENCE)
    server = far(echoes)
    port = ours.jupyter(Endpoint(server.port))
    with ThreadPoolExecutor(10) as pool:
        answers = [pool.submit(asks, port, f"early {number}".encode()) for number in range(10)]
        time.sleep(0.3)
        assert server.connections == 0 and not any(answer.done() for answer in answers)
        ours.lead_over(make_link())
        assert [answer.result(PATIENCE) for answer in answers] == [f"early {number}".encode() for number in range(10)]


def test_nobody_waits_for_ever(ours: Tunnel, far: StartFar, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel, "HOLD", 0.3)
    with connects(ours.jupyter(Endpoint(far(echoes).port))) as client:
        client.sendall(b"hello")
        assert is_reset(client), "told as broken, and not as an empty answer"


def test_a_way_that_breaks_just_when_it_is_used(ours: Tunnel, far: StartFar) -> None:
    class Breaking(SocketLink):
        def open(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
            used.set()
            raise ConnectionResetError("the SSH connection broke")

    used = threading.Event()
    ours.lead_over(Breaking())
    port = ours.jupyter(Endpoint(far(echoes).port))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(asks, port)
        assert used.wait(PATIENCE)
        ours.lead_over(SocketLink())
        assert answer.result(PATIENCE) == b"hello"


# --- the ports -----------------------------------------------------------------------------------------------


def test_the_port_stays_whatever_becomes_of_way_and_jupyter(ours: Tunnel, make_link: MakeLink, far: StartFar) -> None:
    """Another way, a Jupyter on another port, no way at all: an open tab finds everything again."""
    ours.lead_over(make_link())
    port = ours.jupyter(Endpoint(far(echoes).port))
    assert asks(port) == b"hello"
    for _ in range(3):
        ours.lead_over(make_link())
        assert asks(port) == b"hello"
    other = far(lambda connection: connection.sendall(b"another node"))
    ours.lead_over(make_link())
    assert ours.jupyter(Endpoint(other.port)) == port
    with connects(port) as client:
        assert b"".join(received(client)) == b"another node"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def test_a_forwarded_port_has_the_same_number_here(ours: Tunnel) -> None:
    port = free_port()
    assert ours.forward(port) == port
    assert ours.forward(port) == port, "asked for once more, it is the same one"


def test_a_number_that_is_taken_here(ours: Tunnel, far: StartFar) -> None:
    """By the far end itself: with one machine in place of two."""
    server = far(echoes)
    ours.lead_over(SocketLink())
    port = ours.forward(server.port)
    assert port != server.port
    assert ours.forward(server.port) == port
    assert asks(port) == b"hello"


def test_each_port_leads_to_its_own(ours: Tunnel, far: StartFar) -> None:
    servers = [far(lambda connection, n=n: connection.sendall(f"{n}".encode())) for n in range(3)]  # type: ignore[misc]
    ours.lead_over(SocketLink())
    ports = [ours.jupyter(Endpoint(servers[0].port)), *(ours.forward(server.port) for server in servers[1:])]
    assert len(set(ports)) == 3
    for number, port in enumerate(ports):
        with connects(port) as client:
            assert b"".join(received(client)) == f"{number}".encode()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere 127.0.0.2 is nobody's address")
def test_only_this_machine_can_connect(ours: Tunnel) -> None:
    """Who listens on every address would be reached under 127.0.0.2 as well."""
    for port in (ours.jupyter(Endpoint(4242)), ours.forward(free_port())):
        connects(port).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), PATIENCE)
        with pytest.raises(OSError):
            socket.create_connection(("::1", port), PATIENCE)


def test_nobody_else_can_take_the_port(ours: Tunnel) -> None:
    port = ours.jupyter(Endpoint(4242))
    for address in ("127.0.0.1", ""):
        with pytest.raises(OSError):
            socket.create_server((address, port)).close()


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
    tunnel, link = Tunnel(), SocketLink()
    tunnel.lead_over(link)
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
    link = SocketLink()
    ours.lead_over(link)
    assert link.closed


def test_on_the_same_machine_the_ports_are_the_node_s() -> None:
    tunnel = SameMachine()
    assert tunnel.jupyter(Endpoint(4242)) == 4242
    assert tunnel.forward(6006) == 6006
    tunnel.close()


# --- mended defects of sshtunnel -----------------------------------------------------------------------------


PLAIN_HALF_CLOSE = "sshtunnel ends both directions as soon as one has ended (_ForwardHandler._redirect)"
UNMENDED = (AssertionError, ConnectionResetError)
PLAIN_NAGLE = "sshtunnel leaves Nagle's algorithm on: up to 40 ms more for every small request"


class Forwarding:
    """A port that leads to the far end, by us or by sshtunnel alone, and the transport that it runs over."""

    def __init__(self, kind: str, server: Server, target: tuple[str, int]) -> None:
        if kind == "ours":
            self._link, self._tunnel = SshLink(server), Tunnel()
            self._tunnel.lead_over(self._link)
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
    ["ours", pytest.param("sshtunnel", marks=pytest.mark.xfail(raises=UNMENDED, strict=True, reason=PLAIN_HALF_CLOSE))],
)
def test_a_half_close_loses_nothing_where_sshtunnel_does(forwarding: StartForwarding, far: StartFar, kind: str) -> None:
    gets_all_after_a_half_close(forwarding(kind, far(gives_when_all_is_said)).port)


@pytest.mark.parametrize(
    "kind",
    ["ours", pytest.param("sshtunnel", marks=pytest.mark.xfail(raises=UNMENDED, strict=True, reason=PLAIN_NAGLE))],
)
def test_small_requests_do_not_wait_for_nagle_where_sshtunnel_s_do(
    forwarding: StartForwarding, far: StartFar, kind: str
) -> None:
    connection = forwarding(kind, far(echoes)).transport.sock
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


# --- Jupyter behind it ---------------------------------------------------------------------------------------


class Jupyter:
    """A server that answers with these statuses, the last one again and again, and keeps what it was asked."""

    def __init__(self, *statuses: int, certificate: Path | None = None) -> None:
        asked = self.asked = []  # type: ignore[var-annotated]
        left = list(statuses)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append((self.path, self.headers["Authorization"]))
                self.send_response(left.pop(0) if len(left) > 1 else left[0])
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port: int = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> Jupyter:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_jupyter_answers(ours: Tunnel) -> None:
    ours.lead_over(SocketLink())
    with Jupyter(200) as jupyter:
        endpoint = Endpoint(jupyter.port, "/user/alice/")
        check_jupyter(ours.jupyter(endpoint), endpoint, "secret")
        assert jupyter.asked == [("/user/alice/api/status", "token secret")]


def test_jupyter_answers_after_a_while(ours: Tunnel) -> None:
    """Its port file is there a moment before it listens, and it listens before it is ready."""
    ours.lead_over(SocketLink())
    with Jupyter(503, 404, 200) as jupyter:
        endpoint = Endpoint(jupyter.port)
        check_jupyter(ours.jupyter(endpoint), endpoint, "secret")
        assert len(jupyter.asked) == 3


@pytest.mark.parametrize("status", [401, 403])
def test_another_s_jupyter_is_recognised_at_once(ours: Tunnel, status: int) -> None:
    ours.lead_over(SocketLink())
    with Jupyter(status) as jupyter:
        endpoint = Endpoint(jupyter.port)
        with pytest.raises(JupyterSilent) as caught:
            check_jupyter(ours.jupyter(endpoint), endpoint, "secret")
        assert str(status) in caught.value.what and "secret" not in str(vars(caught.value))
        assert len(jupyter.asked) == 1


def test_another_program_on_the_port(ours: Tunnel) -> None:
    ours.lead_over(SocketLink())
    with Jupyter(404) as jupyter:
        endpoint = Endpoint(jupyter.port)
        with pytest.raises(JupyterSilent, match="404"):
            check_jupyter(ours.jupyter(endpoint), endpoint, "secret", patience=0.2)


@pytest.mark.parametrize("act", [lambda connection: None, lambda connection: connection.sendall(b"SSH-2.0-x\r\n")],
                         ids=["hangs up", "no HTTP"])  # fmt: skip
def test_no_web_server_on_the_port(ours: Tunnel, far: StartFar, act: Callable[[socket.socket], None]) -> None:
    ours.lead_over(SocketLink())
    endpoint = Endpoint(far(act).port)
    with pytest.raises(JupyterSilent, match="does not answer"):
        check_jupyter(ours.jupyter(endpoint), endpoint, "secret", patience=0.2)


def test_a_jupyter_with_a_certificate_of_its_own(ours: Tunnel, tmp_path: Path) -> None:
    pem = tmp_path / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=node1",
               "-keyout", pem, "-out", tmp_path / "cert.pem"]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    pem.write_text(pem.read_text() + (tmp_path / "cert.pem").read_text())
    ours.lead_over(SocketLink())
    with Jupyter(200, certificate=pem) as jupyter:
        endpoint = Endpoint(jupyter.port, secure=True)
        check_jupyter(ours.jupyter(endpoint), endpoint, "secret")
        assert len(jupyter.asked) == 1


def test_the_address_for_the_browser() -> None:
    assert Endpoint(4242).url(50001, "a b&c/d") == "http://127.0.0.1:50001/lab?token=a%20b%26c%2Fd"
    assert Endpoint(4242, "/user/a/", secure=True).url(1, "x") == "https://127.0.0.1:1/user/a/lab?token=x"


ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.just([{}])
TEXTS = st.sampled_from(["/", "/user/a/", "@evil.org/", ":1@evil.org/", "x", "\\", "//evil.org/"]) | ANYTHING
FILES = st.fixed_dictionaries(
    {}, optional={"port": ANYTHING, "base_url": TEXTS, "secure": ANYTHING, "address": ANYTHING, "x": ANYTHING}
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(FILES)
def test_a_damaged_port_file_gives_a_port_or_our_error(data: dict[str, object]) -> None:
    port = data.get("port")
    try:
        endpoint = Endpoint.from_file(data)
    except JupyterSilent:
        assert type(port) is not int or not 0 < port < 65536
    else:
        assert type(endpoint.port) is int and 0 < endpoint.port < 65536
        assert isinstance(endpoint.address, str) and endpoint.address


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TEXTS)
def test_the_token_is_sent_nowhere_else(base_url: object) -> None:
    url = urlsplit(Endpoint.from_file({"port": 4242, "base_url": base_url}).url(50001, "secret"))
    assert (url.hostname, url.port, url.username) == ("127.0.0.1", 50001, None)


# --- which port it is -------------------------------------------------------------------------------------------


def test_why_a_port_cannot_be_had_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "is taken" in tunnel.why_not(taken.getsockname()[1])

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(socket.socket, "bind", refuse, raising=False)
    assert "kept for the system" in tunnel.why_not(40)
