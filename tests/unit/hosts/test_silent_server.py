"""A server that falls silent and closes nothing, as a machine does that has lost its power or its network."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import paramiko
import psutil  # type: ignore[import-untyped]
import pytest

from notebook_launcher.hosts.base import ByteStream, Host
from notebook_launcher.hosts.openssh import master
from notebook_launcher.hosts.paramiko import keepalive
from notebook_launcher.hosts.paramiko.connection import open_transport
from notebook_launcher.hosts.paramiko.login import Credentials
from tests.doubles import wait_until
from tests.ssh_server import Open, Server, User
from tests.unit.hosts.login_servers import Open as OpenDoor
from tests.unit.hosts.login_servers import a_door

__all__ = ["a_door"]

pytestmark = [pytest.mark.timeout(60), pytest.mark.real_time]

PATIENCE = 20.0  # seconds, for what takes at most five

USUAL = {module: (module.ALIVE_EVERY, module.ALIVE_TRIES) for module in (keepalive, master)}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keepalive, "ALIVE_EVERY", 0.4)
    monkeypatch.setattr(master, "ALIVE_EVERY", 1)  # ssh takes whole seconds


@pytest.fixture
def host(open_host: Open, server: Server) -> Iterator[Host]:
    with open_host(server.destination(), Credentials(User())) as host:
        yield host


@contextlib.contextmanager
def stopped(processes: set[psutil.Process]) -> Iterator[None]:
    """Their machine still takes what they are sent, until its memory for that is full."""
    assert processes
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # that of a connection which is over by now
            process.suspend()
    try:
        yield
    finally:
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.resume()


def begun_since(server: Server, before: set[psutil.Process]) -> set[psutil.Process]:
    """The sshd processes that serve a connection now and did not before."""
    found = set()
    for one in server.connections() - before:
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended since it was listed
            if one.name().startswith("sshd"):
                found.add(one)
    return found


def test_a_login_node_that_falls_silent_is_noticed(host: Host, server: Server, echo: int) -> None:
    waiting = host.open_stream(("127.0.0.1", echo))
    waiting.settimeout(PATIENCE)
    with stopped(server.connections()):
        with pytest.raises(ConnectionResetError):  # and not the end of what it had to say
            waiting.recv(1)
        assert not host.alive


@pytest.mark.parametrize("way", ["address", "command"])
@pytest.mark.parametrize("sending", [False, True], ids=["idle", "sending"])
def test_a_node_that_falls_silent_is_noticed_and_its_login_node_is_not_taken_for_it(
    host: Host, server: Server, echo: int, way: str, sending: bool
) -> None:
    """Also while a browser sends a file: then nothing more can be sent, not even a question."""
    before = server.connections()
    with contextlib.closing(host.open_route(server.onward(way))) as route:
        stream = route.open(("127.0.0.1", echo))
        stream.sendall(b"x")
        assert stream.recv(1) == b"x"
        ended = threading.Event()

        def send() -> None:
            with contextlib.suppress(OSError):
                while sending:
                    stream.sendall(bytes(65536))
            ended.set()

        with stopped(begun_since(server, before)):
            threading.Thread(target=send, daemon=True).start()
            assert wait_until(lambda: not route.alive, PATIENCE)
            assert host.run(["echo", "still there"]).stdout == "still there\n"
            assert ended.wait(PATIENCE)


def test_both_fall_silent_one_after_the_other_during_uploads(
    host: Host, server: Server, echo: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the way to the node is closed cannot be sent to the login node, until that is given up, too."""
    problems: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", problems.append)
    before = server.connections()
    with contextlib.closing(host.open_route(server.onward("address"))) as route, contextlib.ExitStack() as until:
        node = begun_since(server, before)
        uploads = [host.open_stream(("127.0.0.1", echo)) for _ in range(8)]  # more than the buffers between hold

        def send(stream: ByteStream) -> None:
            with contextlib.suppress(OSError):
                while True:
                    stream.sendall(bytes(65536))

        until.enter_context(stopped(node))
        time.sleep(0.8)
        until.enter_context(stopped(server.connections()))
        for stream in uploads:
            threading.Thread(target=send, args=(stream,), daemon=True).start()
        assert wait_until(lambda: not route.alive and not host.alive, PATIENCE)
    assert wait_until(lambda: not any(one.name == "ssh-alive" for one in threading.enumerate()), PATIENCE)
    assert [f"{one.thread}: {one.exc_value!r}" for one in problems] == []


def test_a_server_that_is_only_idle_or_silent_for_a_moment_is_kept(
    host: Host, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(host.open_route(server.onward("address"))) as route:
        with stopped(server.connections()):
            time.sleep(0.8)
        time.sleep(2.5)  # more than six times a pause
        assert host.alive
        assert route.alive
        assert host.run(["echo", "still there"]).stdout == "still there\n"


def test_a_server_that_never_answers_such_requests_is_kept(a_door: OpenDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some ignore what they do not know, against RFC 4254: their silence means nothing."""
    monkeypatch.setattr(paramiko.Transport, "_parse_global_request", lambda _transport, _message: None)
    door = a_door()
    with contextlib.closing(open_transport(door.settings(), Credentials(User(door.password)))) as transport:
        time.sleep(2.5)  # more than six times a pause
        assert transport.is_active()


def test_silence_is_noticed_within_a_minute() -> None:
    assert (USUAL[keepalive][1] + 2) * USUAL[keepalive][0] <= 60
    assert (USUAL[master][1] + 1) * USUAL[master][0] <= 60
