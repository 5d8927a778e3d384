"""What breaks, and who waits while there is no route."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from notebook_launcher.hosts.base import ByteStream
from notebook_launcher.tunnel import forwarding as tunnel
from notebook_launcher.tunnel.forwarding import Endpoint, Tunnel
from tests.doubles import wait_until
from tests.ports import free_port
from tests.unit.tunnel.far_end import (
    MIB,
    PATIENCE,
    MakeLink,
    SocketRoute,
    SocketStream,
    StartFar,
    asks,
    checksum,
    connects,
    echoes,
    is_reset,
    received,
    resets,
)

pytestmark = [pytest.mark.timeout(120), pytest.mark.real_time]


def talks_without_end(connection: socket.socket) -> None:
    while True:
        connection.sendall(bytes(65536))


def test_a_link_that_breaks_in_a_download_resets_it(ours: Tunnel, make_route: MakeLink, far: StartFar) -> None:
    """A file that was cut in the middle must not look complete."""
    link = make_route()
    ours.run_over(link)
    with connects(ours.jupyter(Endpoint(far(talks_without_end).port))) as client:
        assert client.recv(MIB)
        link.breaks()
        assert is_reset(client)


def test_a_link_that_breaks_in_an_upload_resets_it(ours: Tunnel, make_route: MakeLink, far: StartFar) -> None:
    there = threading.Event()

    def act(connection: socket.socket) -> None:
        for _ in received(connection):
            there.set()

    link = make_route()
    ours.run_over(link)
    with connects(ours.jupyter(Endpoint(far(act).port))) as client:
        client.sendall(bytes(MIB))
        assert there.wait(PATIENCE)
        link.breaks()
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            while True:
                client.sendall(bytes(65536))


def test_a_link_that_breaks_resets_who_only_waits(ours: Tunnel, make_route: MakeLink, far: StartFar) -> None:
    """As a kernel's WebSocket does when nothing happens."""
    link = make_route()
    ours.run_over(link)
    with connects(ours.jupyter(Endpoint(far(echoes).port))) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        link.breaks()
        assert is_reset(client)


def test_a_link_that_breaks_after_the_question_s_end(ours: Tunnel, make_route: MakeLink, far: StartFar) -> None:
    link = make_route()
    ours.run_over(link)
    with connects(ours.jupyter(Endpoint(far(talks_without_end).port))) as client:
        client.shutdown(socket.SHUT_WR)
        assert client.recv(MIB)
        link.breaks()
        assert is_reset(client)


def test_a_new_link_resets_what_ran_over_the_old_one(ours: Tunnel, make_route: MakeLink, far: StartFar) -> None:
    """The browser connects anew at once, where it would else wait for an answer that cannot come."""
    ours.run_over(make_route())
    port = ours.jupyter(Endpoint(far(echoes).port))
    with connects(port) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        ours.run_over(make_route())
        assert is_reset(client)
    assert asks(port) == b"hello"


class StoppedRoute(SocketRoute):
    """One that does not say whether it is alive, as a stopped ``ssh``."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked, self.goes_on = threading.Event(), threading.Event()

    @property
    def alive(self) -> bool:
        self.is_asked.set()
        self.goes_on.wait(PATIENCE)
        return False


def test_a_link_that_does_not_answer_holds_up_no_other(ours: Tunnel, far: StartFar) -> None:
    stopped, other = StoppedRoute(), threading.Thread(target=lambda: ours.run_over(SocketRoute()))
    ours.run_over(stopped)
    port = ours.jupyter(Endpoint(far(echoes).port))
    with connects(port):
        assert stopped.is_asked.wait(PATIENCE)
        other.start()
        other.join(PATIENCE / 2)
        assert not other.is_alive(), "it waits for the stopped one"
        assert asks(port) == b"hello"
        stopped.goes_on.set()


@pytest.mark.parametrize("act", [echoes, talks_without_end, lambda connection: time.sleep(60)],
                         ids=["listens", "talks", "does neither"])  # fmt: skip
def test_a_client_that_resets_ends_the_far_side(
    ours: Tunnel, make_route: MakeLink, far: StartFar, act: Callable[[socket.socket], None]
) -> None:
    gone = threading.Event()
    there = threading.Event()

    def watched(connection: socket.socket) -> None:
        there.set()
        try:
            act(connection) if act in (echoes, talks_without_end) else checksum(received(connection))
        finally:
            gone.set()

    ours.run_over(make_route())
    client = connects(ours.jupyter(Endpoint(far(watched).port)))
    client.sendall(b"x")
    assert there.wait(PATIENCE)
    resets(client)
    assert gone.wait(PATIENCE)


class ReadOut(SocketStream):
    """All that has arrived is read just after it was shut down, as the other direction's thread may do."""

    def shutdown(self, how: int) -> None:
        super().shutdown(how)
        while super().recv_into(bytearray(MIB)):
            pass


def test_a_client_that_resets_ends_a_far_side_that_waits_for_room(ours: Tunnel, far: StartFar) -> None:
    """One that has filled all buffers, all of which is read when its connection is shut down, and not before."""
    sent, gone = 0, threading.Event()

    def act(connection: socket.socket) -> None:
        nonlocal sent
        try:
            while True:
                sent += connection.send(bytes(65536))
        finally:
            gone.set()

    ours.run_over(SocketRoute(ReadOut))
    client = connects(ours.jupyter(Endpoint(far(act).port)))
    before = -1
    while sent != before:
        before = sent
        time.sleep(0.3)
    resets(client)
    assert gone.wait(PATIENCE)


def test_an_upload_that_is_cut_does_not_look_complete(ours: Tunnel, far: StartFar) -> None:
    there, was_reset, gone = threading.Event(), [], threading.Event()

    def act(connection: socket.socket) -> None:
        connection.recv(1)
        there.set()
        was_reset.append(is_reset(connection))
        gone.set()

    ours.run_over(SocketRoute())
    client = connects(ours.jupyter(Endpoint(far(act).port)))
    client.sendall(b"half of it")
    assert there.wait(PATIENCE)
    resets(client)
    assert gone.wait(PATIENCE) and was_reset == [True]


def test_a_far_side_that_resets(ours: Tunnel, far: StartFar) -> None:
    """OpenSSH's server tells it as an end; where it is known, the client is told."""

    def act(connection: socket.socket) -> None:
        connection.sendall(bytes(1000))
        connection.recv(1)
        resets(connection)

    ours.run_over(SocketRoute())
    with connects(ours.jupyter(Endpoint(far(act).port))) as client:
        assert client.recv(1000)
        client.sendall(b"x")
        assert is_reset(client)


def test_where_nobody_listens_is_told_at_once(ours: Tunnel, make_route: MakeLink) -> None:
    """And not after ``HOLD``, which is for a way that is away."""
    ours.run_over(make_route())
    port = ours.jupyter(Endpoint(free_port()))
    with pytest.raises(ConnectionResetError):  # it may come before connect() has returned, or after
        connects(port).recv(1)


@pytest.mark.parametrize("before", ["never", "broken"])
def test_who_connects_while_there_is_no_way_waits_for_it(
    ours: Tunnel, make_route: MakeLink, far: StartFar, before: str
) -> None:
    if before == "broken":
        old = make_route()
        ours.run_over(old)
        old.breaks()
        assert wait_until(lambda: not ours.alive, PATIENCE)
    server = far(echoes)
    port = ours.jupyter(Endpoint(server.port))
    with ThreadPoolExecutor(10) as pool:
        answers = [pool.submit(asks, port, f"early {number}".encode()) for number in range(10)]
        time.sleep(0.3)
        assert server.connections == 0 and not any(answer.done() for answer in answers)
        ours.run_over(make_route())
        assert [answer.result(PATIENCE) for answer in answers] == [f"early {number}".encode() for number in range(10)]


def test_nobody_waits_for_ever(ours: Tunnel, far: StartFar, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel, "ROUTE_TIMEOUT", 0.3)
    with connects(ours.jupyter(Endpoint(far(echoes).port))) as client:
        client.sendall(b"hello")
        assert is_reset(client), "told as broken, and not as an empty answer"


def test_a_way_that_breaks_just_when_it_is_used(ours: Tunnel, far: StartFar) -> None:
    class Breaking(SocketRoute):
        def open(self, address: tuple[str, int], timeout: float = 20.0) -> ByteStream:
            used.set()
            raise ConnectionResetError("the SSH connection broke")

    used = threading.Event()
    ours.run_over(Breaking())
    port = ours.jupyter(Endpoint(far(echoes).port))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(asks, port)
        assert used.wait(PATIENCE)
        ours.run_over(SocketRoute())
        assert answer.result(PATIENCE) == b"hello"
