"""A master that is broken, or no master at all: whatever comes from its socket is an answer or an ``OSError``, soon."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from notebook_launcher.hosts.delegated_connection import DelegationFailed
from notebook_launcher.hosts.openssh import mux
from notebook_launcher.hosts.output import TooMuchOutput

SOON = 10.0  # seconds
HELLO = struct.pack(">III", 8, 1, 4)
NUMBERS = st.sampled_from(
    [0, 1, 4, 8, 0x80000002, 0x80000003, 0x80000004, 0x80000005, 0x80000006, 256 * 1024, 256 * 1024 + 1, 2**32 - 1]
)
PACKETS = st.lists(NUMBERS.map(lambda number: struct.pack(">I", number)) | st.binary(max_size=5), max_size=6).map(
    b"".join
)
FRAMED = PACKETS.map(lambda packet: struct.pack(">I", len(packet)) + packet)
ANSWERS = st.lists(FRAMED | FRAMED | PACKETS, max_size=4).map(b"".join)
KINDS = (mux._NEW_SESSION, mux._ALIVE_CHECK, mux._CONNECT)


@contextlib.contextmanager
def master(act: Callable[[socket.socket], None]) -> Iterator[str]:
    """Listen on a control socket, and do something with each connection; yields its path."""
    with TemporaryDirectory(prefix="nl-", dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as listener:
        path = str(Path(folder, "m"))
        listener.bind(path)
        listener.listen()

        def serve_one(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                act(connection)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=serve_one, args=listener.accept()[:1], daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield path
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(SOON)


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """A master that does not answer is waited for no longer than this."""
    monkeypatch.setattr(mux, "LOCAL_TIMEOUT", 0.2)


def answering(answer: bytes) -> Callable[[socket.socket], None]:
    def act(connection: socket.socket) -> None:
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass

    return act


@given(ANSWERS | ANSWERS.map(lambda answer: HELLO + answer), st.sampled_from(KINDS), st.binary(max_size=9))
@example(HELLO, mux._ALIVE_CHECK, b"")
@example(HELLO + struct.pack(">IIII", 12, 0x80000003, 0, 2**32 - 1), mux._CONNECT, b"")
@example(struct.pack(">I", 256 * 1024) + b"x", mux._CONNECT, b"")
def test_any_answer_is_understood_or_refused(answer: bytes, kind: int, body: bytes) -> None:
    began = time.monotonic()
    with master(answering(answer)) as path, contextlib.suppress(OSError):
        control = mux._Control(path, 1.0)
        with contextlib.closing(control):
            control.request(kind, body)
            code = control.exit_code(1.0)
            assert code is None or 0 <= code < 2**32
    assert time.monotonic() - began < SOON


@given(ANSWERS | ANSWERS.map(lambda answer: HELLO + answer))
def test_no_answer_makes_a_master_that_works(answer: bytes) -> None:
    began = time.monotonic()
    with master(answering(answer)) as path, contextlib.suppress(OSError), contextlib.closing(mux.Master(path)) as ours:
        for open_it in (lambda: ours.connect(("127.0.0.1", 1), 1.0), lambda: ours.session("true", 1.0)):
            with contextlib.suppress(OSError), contextlib.closing(open_it()) as channel:
                channel.settimeout(0.2)
                channel.recv(1)
                channel.exit_code(0.2)
    assert time.monotonic() - began < SOON


def drip(*pieces: bytes) -> Callable[[socket.socket], None]:
    """Answer for ever, a piece every few milliseconds."""

    def act(connection: socket.socket) -> None:
        connection.sendall(pieces[0])
        until = time.monotonic() + SOON
        while time.monotonic() < until:
            connection.sendall(pieces[1])
            time.sleep(0.02)

    return act


@pytest.mark.parametrize("never_ends", [b"x", struct.pack(">III", 8, 0x80000009, 0)], ids=["one message", "messages"])
def test_a_master_that_never_finishes_is_not_waited_for(never_ends: bytes) -> None:
    """It sends something all the time, so that no single read takes long."""
    began = time.monotonic()
    first = HELLO + (struct.pack(">I", 256 * 1024) if never_ends == b"x" else b"")
    with master(drip(first, never_ends)) as path:
        control = mux._Control(path, 0.3)
        with contextlib.closing(control):
            with contextlib.suppress(OSError):
                control.request(mux._ALIVE_CHECK)
            with contextlib.suppress(TimeoutError):
                assert control.exit_code(0.3) is None
        assert time.monotonic() - began < SOON


def test_a_master_that_says_nothing_is_given_up(far: None) -> None:
    began = time.monotonic()
    with master(lambda connection: time.sleep(0.5)) as path, pytest.raises(OSError):
        mux.Master(path)
    assert time.monotonic() - began < 3 * SOON


def takes_all(connection: socket.socket) -> None:
    """Take a request and its files, and do not answer."""
    connection.sendall(HELLO)
    time.sleep(0.6)


def ends(connection: socket.socket) -> None:
    """End instead of answering."""
    connection.sendall(HELLO)
    connection.recv(65536)


@pytest.mark.parametrize(("act", "may_have_it"), [(takes_all, True), (ends, False)])
def test_a_connection_that_the_master_may_have_is_lost(act: Callable[[socket.socket], None], may_have_it: bool) -> None:
    """A master that lives may carry it any time; nothing carries on what one had that is gone."""
    alive = answering(HELLO + struct.pack(">IIII", 12, 0x80000005, 0, 1))
    ours, browser = socket.socketpair()
    with master(alive) as path, ours, browser, contextlib.closing(mux.Master(path)) as known, master(act) as other:
        known.path = other
        os.set_blocking(ours.fileno(), False)  # as ssh does
        with pytest.raises(OSError) as caught:
            known.delegate(ours, ("127.0.0.1", 1), 0.3)
        assert os.get_blocking(ours.fileno()) is not may_have_it, "it is used as before, or left alone"
    assert isinstance(caught.value, DelegationFailed) is may_have_it


@given(ANSWERS, st.binary(max_size=9), st.binary(max_size=9))
def test_whatever_a_command_prints_it_has_an_end(answer: bytes, output: bytes, errors: bytes) -> None:
    """The command's own output, and what the master says of its end."""
    opened = struct.pack(">IIII", 12, 0x80000006, 0, 1)

    def act(connection: socket.socket) -> None:
        connection.sendall(HELLO + opened + answer)
        with contextlib.suppress(OSError):
            ends = [end for _ in range(3) for end in _received(connection)]
            for end, data in zip(ends[1:], (output, errors), strict=False):
                end.sendall(data)
            for end in ends:
                end.close()

    ours, theirs = socket.socketpair()
    began = time.monotonic()
    with master(act) as path, ours, theirs, contextlib.suppress(OSError, TooMuchOutput):
        broken = _Unanswering(path)
        channel = mux.Channel(broken, mux._NEW_SESSION, b"", 1.0, (theirs.fileno(),))  # type: ignore[arg-type]
        theirs.close()
        with contextlib.closing(channel):
            stdout, stderr, code = channel.communicate(b"input", ours, time.monotonic() + 1.0)
            assert (stdout, stderr) == (output.decode(errors="replace"), errors.decode(errors="replace"))
            assert code is None or 0 <= code < 2**32
    assert time.monotonic() - began < SOON


class _Unanswering:
    """Stands for a master of whose socket only the path matters."""

    def __init__(self, path: str) -> None:
        self.path = path

    def answers(self) -> bool:
        return False


def _received(connection: socket.socket) -> list[socket.socket]:
    """Return the next open file that was passed to the master."""
    connection.settimeout(0.5)
    while True:
        data, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
        if descriptors:
            return [socket.socket(fileno=descriptor) for descriptor in descriptors]
        if not data:
            return []
