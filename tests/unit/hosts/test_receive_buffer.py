"""What arrives in a channel of paramiko: straight to the local connection, or through a buffer, and always in order."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from notebook_launcher.hosts.paramiko.channels import ChannelBytes, send
from notebook_launcher.hosts.paramiko.library import paramiko
from notebook_launcher.hosts.paramiko.receive_buffer import ReceiveBuffer
from notebook_launcher.hosts.paramiko.receive_window import FIRST, GRANTS, ReceiveWindow

PIECE = 32 * 1024


@pytest.fixture
def receive_buffer() -> ReceiveBuffer:
    """The buffer of a channel that is open."""
    made = ReceiveBuffer.of(paramiko.Channel(0), ReceiveWindow(0.001, time.monotonic()))
    assert made is not None
    return made


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A local connection, which takes little at once, and the program at its other end."""
    near, program = socket.socketpair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with near, program:
        program.settimeout(10)
        yield near, program


class Reader(threading.Thread):
    """Sends what is read to the local connection, to the end, as the tunnel does."""

    def __init__(self, receive_buffer: ReceiveBuffer, near: socket.socket) -> None:
        super().__init__(daemon=True)
        self._receive_buffer, self._near = receive_buffer, near
        self.read = self.allowed = 0
        self.start()
        while receive_buffer._in_hand:  # until it waits
            time.sleep(0.001)

    def run(self) -> None:
        """Read and send."""
        while True:
            data = self._receive_buffer.read(8 * PIECE)
            due = self._receive_buffer.take_due()
            self.allowed += due
            if not data and not due:
                break
            self._near.sendall(data)
            self.read += len(data)
        self._near.shutdown(socket.SHUT_WR)


def received(program: socket.socket) -> bytes:
    """Return all that a program gets."""
    return b"".join(iter(lambda: program.recv(65536), b""))


def test_what_the_local_connection_takes_at_once_wakes_nobody(
    receive_buffer: ReceiveBuffer, ends: tuple[socket.socket, socket.socket]
) -> None:
    near, program = ends
    receive_buffer.pass_on(near)
    reader = Reader(receive_buffer, near)
    for word in (b"to be", b" or not"):
        receive_buffer.feed(word)
        assert program.recv(100) == word
    receive_buffer.close()
    reader.join(30)
    assert reader.read == 0


def test_a_program_that_takes_its_time_gets_all_in_order_and_all_is_allowed_again(
    receive_buffer: ReceiveBuffer, ends: tuple[socket.socket, socket.socket]
) -> None:
    near, program = ends
    sent, got = random.Random(7).randbytes(4 * FIRST), bytearray()
    receive_buffer.pass_on(near)
    reader = Reader(receive_buffer, near)

    def take() -> None:
        while data := program.recv(random.choice((100, 5000, 70_000))):
            got.extend(data)

    taker = threading.Thread(target=take)
    taker.start()
    at, dice = 0, random.Random(8)
    while at < len(sent):
        piece = sent[at : at + min(dice.choice((1, 900, PIECE)), FIRST + reader.allowed - at)]
        receive_buffer.feed(piece)
        at += len(piece)
        if not piece:
            time.sleep(0.001)  # the far end waits for the window
    receive_buffer.close()
    reader.join(20)
    taker.join(20)
    assert got == sent
    assert reader.read > 0, "nothing went through the buffer"
    assert len(sent) - reader.allowed < FIRST // GRANTS


def test_what_came_before_and_the_rest_behind_it_go_through_the_buffer(
    receive_buffer: ReceiveBuffer, ends: tuple[socket.socket, socket.socket]
) -> None:
    near, program = ends
    receive_buffer.feed(b"SSH-2.0-")
    receive_buffer.pass_on(near)
    receive_buffer.feed(b"OpenSSH")  # nobody has read what came before
    receive_buffer.close()
    Reader(receive_buffer, near)
    assert received(program) == b"SSH-2.0-OpenSSH"


def test_a_program_that_has_gone_is_noticed_by_the_reader(
    receive_buffer: ReceiveBuffer, ends: tuple[socket.socket, socket.socket]
) -> None:
    near, program = ends
    receive_buffer.pass_on(near)
    with pytest.raises(paramiko.buffered_pipe.PipeTimeout):
        receive_buffer.read(100, 0.01)
    program.close()
    receive_buffer.feed(b"never seen")
    assert receive_buffer.read(100, 0.01) == b"never seen"


def test_what_arrives_after_the_end_goes_to_no_connection(
    receive_buffer: ReceiveBuffer, ends: tuple[socket.socket, socket.socket]
) -> None:
    near, program = ends
    receive_buffer.pass_on(near)
    with pytest.raises(paramiko.buffered_pipe.PipeTimeout):
        receive_buffer.read(100, 0.01)
    receive_buffer.close()
    receive_buffer.feed(b"too late")
    program.settimeout(0.0)
    with pytest.raises(BlockingIOError):
        program.recv(100)


def test_another_paramiko_keeps_its_own_buffer_and_window() -> None:
    channel = paramiko.Channel(0)
    channel._set_window(FIRST, PIECE)
    threshold = channel.in_window_threshold
    del channel.in_buffer._cv
    with socket.socket() as near:
        ChannelBytes(channel, ReceiveWindow(0.001, time.monotonic())).pass_on(near)
    assert type(channel.in_buffer) is paramiko.buffered_pipe.BufferedPipe
    assert channel.in_window_threshold == threshold


def test_without_a_local_connection_it_is_read_as_always(receive_buffer: ReceiveBuffer) -> None:
    with pytest.raises(paramiko.buffered_pipe.PipeTimeout):
        receive_buffer.read(100, 0.0)
    receive_buffer.feed(b"x" * FIRST)
    assert receive_buffer.read(100, 1.0) == b"x" * 100
    assert len(receive_buffer.read(FIRST, 1.0)) == FIRST - 100
    assert receive_buffer.take_due() >= FIRST
    receive_buffer.close()
    assert receive_buffer.read(100) == b""


@pytest.mark.parametrize("error", [OSError(), EOFError(), paramiko.SSHException()])
def test_input_for_a_command_whose_connection_breaks_is_dropped(error: Exception) -> None:
    class Broken(paramiko.Channel):
        def shutdown_write(self) -> None:
            raise error

        def sendall(self, s: bytes) -> None:
            """Take all of it."""

    send(Broken(0), b"hello")
