"""Ctrl-C in the middle of a call on a host, before a job may exist: it must end, and cleaning up, too.

paramiko and Popen take locks outside of the ``try`` that releases them; an exception in between would leave those
locked.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator

import pytest

from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.hosts.openssh.host import OpenSshHost
from notebook_launcher.hosts.paramiko.host import ParamikoHost
from notebook_launcher.hosts.paramiko.login import Credentials
from tests.ssh_server import Open, Server, User
from tests.unit.hosts.test_silent_server import stopped

pytestmark = [pytest.mark.timeout(60), pytest.mark.real_time]

PROMPTLY = 40.0  # seconds, for what takes two at most; only what never ends reaches it
STALLED_AFTER = 0.5  # seconds


class Stuck(BaseException):
    """Something waits that nothing ends."""


@pytest.fixture(autouse=True)
def _raising() -> Iterator[None]:
    """Ctrl-C as ``cli.signals`` handles it; each wait that is longer than a user's is ended, with ``Stuck``."""
    interrupts, over = Interrupts(), threading.Event()

    def stuck(_number: int, _frame: object) -> None:
        raise Stuck

    def watch() -> None:
        while not over.wait(PROMPTLY):
            os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGINT, lambda *_: interrupts.arrive("end")), signal.signal(signal.SIGUSR1, stuck)
    watching = threading.Thread(target=watch)
    watching.start()
    yield
    over.set()
    watching.join()
    signal.signal(signal.SIGINT, before[0])
    signal.signal(signal.SIGUSR1, before[1])


class CtrlCBelowTheLock:
    """What paramiko asks whether it may send, right after it has taken the lock for that: Ctrl-C comes there."""

    def __init__(self, usual: threading.Event) -> None:
        self._usual, self._is_pressed = usual, False

    def __getattr__(self, name: str) -> object:
        return getattr(self._usual, name)

    def is_set(self) -> bool:
        if not self._is_pressed and threading.current_thread() is threading.main_thread():
            self._is_pressed = True
            signal.raise_signal(signal.SIGINT)
        return self._usual.is_set()


@pytest.mark.parametrize("call", ["send", "shutdown", "run", "open_stream"])
def test_no_lock_of_paramiko_is_left_locked(server: Server, call: str) -> None:
    host = ParamikoHost.open(server.destination(), Credentials(User()))
    with host:
        stream = host.open_process(["cat"])
        calls: dict[str, Callable[[], object]] = {
            "send": lambda: stream.send(b"x"),
            "shutdown": lambda: stream.shutdown(socket.SHUT_WR),
            "run": lambda: host.run(["true"]),
            "open_stream": lambda: host.open_stream(("127.0.0.1", server.port)),
        }
        host.transport.clear_to_send = CtrlCBelowTheLock(host.transport.clear_to_send)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            calls[call]()
        stream.close()
        assert host.run(["echo", "on"]).stdout == "on\n"


@pytest.mark.parametrize("call", ["send", "receive", "run"])
def test_ctrl_c_ends_a_wait_for_a_network_that_is_dead(open_host: Open, server: Server, call: str) -> None:
    with contextlib.ExitStack() as until, open_host(server.destination(), Credentials(User())) as host:
        stream = host.open_process(["cat"])
        until.enter_context(stopped(server.connections()))
        pressed = threading.Timer(STALLED_AFTER, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            pressed.start()
            while call == "send":
                stream.send(bytes(65536))
            stream.recv(1) if call == "receive" else host.run(["true"])
        stream.close()


def test_what_cleans_up_after_ctrl_c_does_not_wait_for_a_network_that_is_dead(server: Server) -> None:
    """Ctrl-C may come between two calls, when all is sent that the network takes; closing sends something, too."""
    host = ParamikoHost.open(server.destination(), Credentials(User()))
    with contextlib.ExitStack() as until, host:
        host.transport.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # type: ignore[union-attr]
        streams = [host.open_process(["cat"]) for _ in range(4)]  # more than the buffers between hold
        until.enter_context(stopped(server.connections()))
        filled = threading.Event()

        def fill() -> None:
            with contextlib.suppress(OSError):
                for stream in streams:
                    stream.settimeout(STALLED_AFTER)
                    with contextlib.suppress(TimeoutError):
                        while True:
                            stream.send(bytes(65536))
            filled.set()

        thread = threading.Thread(target=fill, daemon=True)
        thread.start()
        filled.wait(3 * STALLED_AFTER)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        streams[-1].close()


class CtrlCWithTheLock:
    """The lock that Popen takes to look whether its process has ended: Ctrl-C comes once it is taken."""

    def __init__(self) -> None:
        self._usual, self._is_pressed = threading.Lock(), False
        self.release = self._usual.release

    def acquire(self, blocking: bool = True) -> bool:
        taken = self._usual.acquire(blocking)
        if not self._is_pressed and threading.current_thread() is threading.main_thread():
            self._is_pressed = True
            signal.raise_signal(signal.SIGINT)
        return taken

    def __enter__(self) -> None:
        self._usual.acquire()

    def __exit__(self, *_: object) -> None:
        self._usual.release()


@pytest.mark.parametrize("where", ["here", "openssh"])
def test_no_lock_of_popen_is_left_locked(where: str, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for the process to end would wait for ever: of a command here, or of the ssh that logs in."""
    usual, begun = subprocess.Popen.__init__, []

    def begin(self: subprocess.Popen[bytes], *words: object, **options: object) -> None:
        usual(self, *words, **options)  # type: ignore[call-overload]
        if options.get("start_new_session"):  # a command of ours, or ssh
            self._waitpid_lock = CtrlCWithTheLock()  # type: ignore[attr-defined]
            begun.append(self)

    monkeypatch.setattr(subprocess.Popen, "__init__", begin)
    with pytest.raises(KeyboardInterrupt):
        if where == "here":
            LocalHost(User()).run(["true"])
        else:
            OpenSshHost.open(server.destination(), Credentials(User()))
    assert [process.returncode for process in begun if process.returncode is None] == []
    assert begun
