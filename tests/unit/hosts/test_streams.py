"""Commands followed line by line, and streams of bytes, on every host."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from notebook_launcher.core.errors import ConnectionLost
from notebook_launcher.hosts.base import Host
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.hosts.output import MOST_LINE
from notebook_launcher.hosts.paramiko.host import ParamikoHost
from notebook_launcher.hosts.paramiko.login import Credentials
from tests.doubles import wait_until
from tests.ssh_server import NASTY, Follower, Server, User, read_all, running, there_and_back

pytestmark = [pytest.mark.timeout(30), pytest.mark.real_time]


def test_lines_come_one_by_one_and_then_the_end_once(host: Host) -> None:
    follower = Follower()
    stream = host.stream(
        ["sh", "-c", "echo one; printf 'twö\\n\\nlast'; exit 3"], follower.lines.put, follower.ends.put
    )
    assert [follower.next() for _ in range(4)] == ["one", "twö", "", "last"]
    assert follower.ends.get(timeout=30)
    stream.close()
    assert follower.ends.empty()
    assert follower.lines.empty()


def test_a_line_comes_when_it_is_written(host: Host) -> None:
    follower = Follower()
    began = time.monotonic()
    stream = host.stream(["sh", "-c", "echo at once; sleep 20"], follower.lines.put, follower.ends.put)
    assert follower.next() == "at once"
    assert time.monotonic() - began < 15
    stream.close()


def test_a_line_that_is_too_long_comes_in_pieces(host: Host) -> None:
    follower = Follower()
    script = f"head -c {MOST_LINE * 2 + 5} /dev/zero | tr '\\0' x; echo; echo next; sleep 20"
    stream = host.stream(["sh", "-c", script], follower.lines.put, follower.ends.put)
    assert [len(follower.next()) for _ in range(3)] == [MOST_LINE, MOST_LINE, 5]
    assert follower.next() == "next"
    stream.close()


def test_a_stream_may_be_closed_twice(host: Host) -> None:
    follower = Follower()
    stream = host.stream(["sh", "-c", "echo up; cat"], follower.lines.put, follower.ends.put)
    assert follower.next() == "up"
    stream.close()
    stream.close()


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("cat", id="ends with its input"),
        pytest.param("read -r x", id="reads once"),
        pytest.param("while read -r -t 0.2 x || [ $? -gt 128 ]; do :; done", id="as the watch does"),
    ],
)
def test_a_closed_stream_leaves_no_process_and_says_no_more(host: Host, tmp_path: Path, script: str) -> None:
    mark = f"mark-{tmp_path.name}"
    follower = Follower()
    stream = host.stream(["bash", "-c", f"echo up; {script}; true", mark], follower.lines.put, follower.ends.put)
    assert follower.next() == "up"
    assert running(mark)
    stream.close()
    assert wait_until(lambda: not running(mark)), running(mark)
    assert follower.ends.empty()


def test_nasty_arguments_of_a_stream_arrive_as_they_are(host: Host) -> None:
    follower = Follower()
    words = [word for word in NASTY if "\n" not in word]
    host.stream(["sh", "-c", 'for x; do echo "$x"; done'.replace("echo", "printf '%s\\n'"), "sh", *words],
                follower.lines.put, follower.ends.put)  # fmt: skip
    assert [follower.next() for _ in words] == words


def test_bytes_there_and_back(host: Host, echo: int) -> None:
    stream = host.open_stream(("127.0.0.1", echo))
    stream.settimeout(10)
    data = os.urandom(200_000)
    received = b""
    sent = 0
    while len(received) < len(data):
        if sent < len(data):
            sent += stream.send(data[sent : sent + 16384])
        received += stream.recv(16384)
    stream.close()
    assert received == data


def test_a_connection_may_be_silent_for_longer_than_connecting_may_take() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stream = LocalHost().open_stream(listener.getsockname(), timeout=0.5)
        far, _ = listener.accept()
        with far, contextlib.closing(stream):
            later = threading.Timer(0.8, far.sendall, (b"late",))
            later.start()
            assert stream.recv(4) == b"late"
            later.join()


def test_a_port_where_nobody_listens(host: Host) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(OSError):
        host.open_stream(("127.0.0.1", port), timeout=5)


def test_a_name_that_nobody_knows(host: Host) -> None:
    with pytest.raises(OSError):
        host.open_stream(("no-such-name.invalid", 22), timeout=5)


@pytest.mark.parametrize("login_shell", [False, True])
def test_a_commands_bytes_pass_unchanged(host: Host, login_shell: bool) -> None:
    data = bytes(range(256)) * 4096 + os.urandom(1000)
    stream = host.open_process(["cat"], login_shell=login_shell)
    assert there_and_back(stream, data) == data
    stream.close()


def test_a_command_may_speak_first(host: Host) -> None:
    stream = host.open_process(["sh", "-c", "printf 'hello\\n'; cat"])
    stream.settimeout(10)
    assert stream.recv(100) == b"hello\n"
    stream.sendall(b"\0")
    assert stream.recv(100) == b"\0"
    stream.close()


def test_a_closed_stream_ends_its_command(host: Host, tmp_path: Path) -> None:
    mark = f"mark-{tmp_path.name}"
    stream = host.open_process(["bash", "-c", "echo up; cat; true", mark])
    stream.settimeout(10)
    assert stream.recv(100) == b"up\n"
    assert running(mark)
    stream.close()
    stream.close()
    assert wait_until(lambda: not running(mark)), running(mark)


def test_nasty_arguments_of_a_byte_stream_arrive_as_they_are(host: Host) -> None:
    stream = host.open_process(["sh", "-c", 'for word; do printf "%s\\0" "$word"; done', "sh", *NASTY])
    stream.settimeout(10)
    assert read_all(stream).decode().split("\0") == [*NASTY, ""]
    stream.close()


def test_a_packet_that_was_changed_on_its_way_is_a_lost_connection(server: Server) -> None:
    with ParamikoHost.open(server.destination(), Credentials(User())) as host:
        near: Any = host.transport.sock
        receive = near._recv

        def changed(count: int) -> bytes:
            data: bytes = receive(count)
            return data[:-1] + bytes([data[-1] ^ 1]) if data else data

        near._recv = changed
        with pytest.raises(ConnectionLost):
            host.run(["true"])
