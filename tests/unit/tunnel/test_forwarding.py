"""What passes through a tunnel."""

from __future__ import annotations

import contextlib
import gc
import random
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from notebook_launcher.tunnel.forwarding import Endpoint, Tunnel
from tests.doubles import wait_until
from tests.unit.tunnel.far_end import (
    MIB,
    PATIENCE,
    MakeLink,
    OpenSshRoute,
    SocketRoute,
    StartFar,
    asks,
    blocks,
    checksum,
    connects,
    echoes,
    gets_all_after_a_half_close,
    gives_when_all_is_said,
    open_files,
    received,
    resets,
    settled,
)

pytestmark = [pytest.mark.timeout(120), pytest.mark.real_time]


def test_both_directions_at_once_and_nothing_is_lost(ours: Tunnel, make_route: MakeLink, far: StartFar) -> None:
    """16 MiB each way, more than all buffers hold; whoever waits for the other to finish would never end."""
    arrived: list[str] = []

    def act(connection: socket.socket) -> None:
        sender = threading.Thread(target=lambda: [connection.sendall(piece) for piece in blocks(16, 2)])
        sender.start()
        arrived.append(checksum(received(connection)))
        sender.join()

    ours.run_over(make_route())
    with connects(ours.jupyter(Endpoint(far(act).port))) as client:

        def send() -> None:
            for piece in blocks(16, 1):
                client.sendall(piece)
            client.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        assert checksum(received(client)) == checksum(blocks(16, 2))
        sender.join()
    assert arrived == [checksum(blocks(16, 1))]


def test_a_half_close_loses_nothing(ours: Tunnel, make_route: MakeLink, far: StartFar) -> None:
    ours.run_over(make_route())
    port = ours.jupyter(Endpoint(far(gives_when_all_is_said).port))
    for _ in range(3):
        gets_all_after_a_half_close(port)


OF_OPENSSH = "as with -W, ssh ends both directions once the far end has ended its own (channel_connect_stdio_fwd)"


def test_a_half_close_of_the_far_end_loses_nothing(ours: Tunnel, make_route: MakeLink, far: StartFar) -> None:
    arrived: list[str] = []

    def act(connection: socket.socket) -> None:
        connection.sendall(b"now you")
        connection.shutdown(socket.SHUT_WR)
        arrived.append(checksum(received(connection)))

    link = make_route()
    ours.run_over(link)
    with connects(ours.jupyter(Endpoint(far(act).port))) as client:
        assert b"".join(received(client)) == b"now you"
        if isinstance(link, OpenSshRoute):
            with pytest.raises(ConnectionError):
                for piece in blocks(8):
                    client.sendall(piece)
                pytest.fail(f"not so any more: {OF_OPENSSH}")
            return
        for piece in blocks(8):
            client.sendall(piece)
        client.shutdown(socket.SHUT_WR)
        assert wait_until(lambda: arrived, PATIENCE)
    assert arrived == [checksum(blocks(8))]


@pytest.mark.parametrize("seed", range(2))
def test_a_talk_of_odd_pieces_arrives_as_it_was_said(
    ours: Tunnel, make_route: MakeLink, far: StartFar, seed: int
) -> None:
    """Pieces of 1 byte to 1 MiB on both sides, with pauses, ended by whoever has finished first; see ``OF_OPENSSH``."""
    arrived: list[bytes] = []
    was_heard: list[bool] = []
    link, heard = make_route(), threading.Event()

    def speech(salt: int) -> list[bytes]:
        dice = random.Random(100 * seed + salt)
        return [dice.randbytes(dice.choice((1, 7, 1000, 65536, 65537, MIB))) for _ in range(dice.randint(1, 12))]

    def says(connection: socket.socket, salt: int) -> None:
        dice = random.Random(salt)
        for piece in speech(salt):
            connection.sendall(piece)
            time.sleep(dice.choice((0, 0, 0.002)))
        if salt == 2 and isinstance(link, OpenSshRoute):
            was_heard.append(heard.wait(PATIENCE))
        connection.shutdown(socket.SHUT_WR)

    def act(connection: socket.socket) -> None:
        sender = threading.Thread(target=says, args=(connection, 2))
        sender.start()
        arrived.append(b"".join(received(connection)))
        heard.set()
        sender.join()

    ours.run_over(link)
    with connects(ours.jupyter(Endpoint(far(act).port))) as client:
        sender = threading.Thread(target=says, args=(client, 1))
        sender.start()
        assert b"".join(received(client)) == b"".join(speech(2))
        sender.join()
        assert wait_until(lambda: arrived, PATIENCE)
    assert arrived == [b"".join(speech(1))]
    assert all(was_heard), "all was said, and only then did the far end finish"


def test_a_slow_reader_does_not_fill_the_memory(ours: Tunnel, make_route: MakeLink, far: StartFar) -> None:
    sent = 0

    def act(connection: socket.socket) -> None:
        nonlocal sent
        for piece in blocks(48):
            connection.sendall(piece)
            sent += 1

    ours.run_over(make_route())
    with connects(ours.jupyter(Endpoint(far(act).port))) as client:
        before = -1
        while sent != before:
            before = sent
            time.sleep(0.3)
        assert sent < 32, "what nobody reads is not taken"
        assert checksum(received(client)) == checksum(blocks(48))


def test_a_hundred_at_once(ours: Tunnel, make_route: MakeLink, far: StartFar) -> None:
    """A page of JupyterLab opens many; all are there at the same time."""
    all_there = threading.Barrier(100)

    def act(connection: socket.socket) -> None:
        all_there.wait(PATIENCE)
        echoes(connection)

    ours.run_over(make_route())
    port = ours.jupyter(Endpoint(far(act).port))
    with ThreadPoolExecutor(100) as pool:
        questions = [f"{number} ".encode() * 1000 for number in range(100)]
        assert list(pool.map(lambda question: asks(port, question), questions)) == questions


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells how many files are open")
def test_fifty_one_after_the_other_leave_nothing(ours: Tunnel, make_route: MakeLink, far: StartFar) -> None:
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
        return threading.active_count(), open_files(), 0 if isinstance(link, SocketRoute) else link.channels

    link = make_route()
    ours.run_over(link)
    port = ours.jupyter(Endpoint(far(act).port))
    for number in range(20):
        talk(number)
    if isinstance(link, SocketRoute):
        link.streams.clear()
    quiet = settled(counts)
    for number in range(50):
        talk(number)
    if isinstance(link, SocketRoute):
        link.streams.clear()
    wait_until(lambda: all(now <= before for now, before in zip(counts(), quiet, strict=True)), PATIENCE)
    assert all(now <= before for now, before in zip(counts(), quiet, strict=True)), (quiet, counts())
