"""Commands in a box, forked from a process that stays there: see ``in_box_server.py``.

Most of what a short ``launch-notebook`` costs the processor are Python's imports, and to enter a box costs more than
most programs do; the tests run thousands. Here a command has the same user, environment and terminal as by
``PracticeCluster.run``; but ``launch-notebook`` has no name of its own in a list of processes, nor shows its
environment there. Tests of how that program starts, or of what others see of it, start the program itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import select
import socket
import struct
import subprocess
import tempfile
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from pexpect.fdpexpect import fdspawn

from tests.conftest import Session, words_of_launch
from tests.practice_cluster import PracticeCluster
from tests.practice_cluster.assembly import has_launcher
from tests.practice_cluster.enter_box import PATH_OF_ROOT, PATH_OF_USERS
from tests.practice_cluster.layout import BOXES, USERS

LAUNCHERS_PYTHON = "/opt/launcher/bin/python3"
SERVER = (Path(__file__).parent / "in_box_server.py").read_text()


def launch(cluster: PracticeCluster, box: str, *arguments: str, user: str = "alice", columns: int = 80) -> Session:
    """Start ``launch-notebook`` as a user in a terminal of a box, as ``tests.conftest.launch`` does."""
    here, there = os.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    server = _server(cluster, box)
    environment = {**server.login_environment(user), "TERM": "xterm-256color"}
    command = server.begin(words_of_launch(arguments), user, environment, [there] * 3, launcher=True)
    os.close(there)
    return Session(_InTerminal(here, command))


def launcher(
    cluster: PracticeCluster, box: str, user: str, *words: str, timeout: float = 120, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run ``launch-notebook`` without a terminal."""
    server = _server(cluster, box)
    return server.run(words, user, {**server.login_environment(user), **env}, timeout=timeout, launcher=True)


def run(
    cluster: PracticeCluster, box: str, user: str, argv: Sequence[str], *, input: str = "", timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run a program as ``PracticeCluster.run`` does without a login shell."""
    home, shell = ("/root", "/bin/bash") if user == "root" else (str(USERS[user].home), USERS[user].shell)
    path = PATH_OF_ROOT if user == "root" else PATH_OF_USERS
    environment = {"HOME": home, "USER": user, "LOGNAME": user, "SHELL": shell, "PATH": path, "LANG": "C.UTF-8"}
    return _server(cluster, box).run(argv, user, environment, input=input, timeout=timeout)


class _Command:
    """One command that runs."""

    def __init__(self, report: socket.socket) -> None:
        self._report = report

    def kill(self, number: int) -> None:
        self._report.send(bytes([number]))

    def end(self, timeout: float) -> int:
        """Return the exit code, or what signal ended it, negative; it is killed if it goes on for so many seconds."""
        with self._report:
            if not select.select([self._report], [], [], timeout)[0]:
                self._report.shutdown(socket.SHUT_WR)
            return os.waitstatus_to_exitcode(int(self._report.recv(64)))


class _InTerminal(fdspawn):  # type: ignore[misc]
    """A command in a terminal of its own, with what ``Session`` knows of a ``pexpect.spawn``."""

    def __init__(self, terminal: int, command: _Command) -> None:
        super().__init__(terminal, encoding="utf-8", timeout=90)
        self._command = command
        self.kill = command.kill

    def close(self, force: bool = True) -> None:
        """Hang up, kill it if it goes on in spite of that, and learn how it ended."""
        if not self.closed:
            super().close()
            code = self._command.end(5 if self.flag_eof else 0.5)
            self.exitstatus, self.signalstatus = (code, None) if code >= 0 else (None, -code)


class _Server:
    """The process in a box that forks for each command."""

    def __init__(self, cluster: PracticeCluster, box: str) -> None:
        self.login_environment = functools.cache(functools.partial(_login_environment, cluster, box))
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            python = LAUNCHERS_PYTHON if has_launcher(BOXES[box]) else "python3"
            argv = cluster.argv(box, "root", [python, "-c", SERVER], login=False)
            self.process = subprocess.Popen(argv, stdin=theirs, start_new_session=True)

    def begin(
        self, words: Sequence[str], user: str, env: Mapping[str, str], streams: list[int], *, launcher: bool = False
    ) -> _Command:
        report, theirs = socket.socketpair()
        with theirs:
            uid = 0 if user == "root" else USERS[user].uid
            request = {"words": words, "launcher": launcher, "uid": uid, "environment": dict(env)}
            socket.send_fds(self._requests, [json.dumps(request).encode()], [*streams, theirs.fileno()])
        return _Command(report)

    def run(
        self,
        words: Sequence[str],
        user: str,
        env: Mapping[str, str],
        *,
        input: str = "",
        timeout: float = 120,
        launcher: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command without a terminal."""
        with contextlib.ExitStack() as stack:
            text = functools.partial(tempfile.TemporaryFile, "w+", encoding="utf-8", errors="surrogateescape")
            files = [stack.enter_context(text()) for _ in range(3)]
            files[0].write(input)
            files[0].seek(0)
            code = self.begin(words, user, env, [file.fileno() for file in files], launcher=launcher).end(timeout)
            for file in files:
                file.seek(0)
            return subprocess.CompletedProcess(list(words), code, files[1].read(), files[2].read())


def _login_environment(cluster: PracticeCluster, box: str, user: str) -> dict[str, str]:
    """What a user's login shell gives a program."""
    printed = cluster.run(box, user, ["env", "-0"], check=True).stdout.rstrip("\0")
    return dict(line.split("=", 1) for line in printed.split("\0"))


_servers: dict[tuple[PracticeCluster, str], _Server] = {}
_lock = threading.Lock()


def _server(cluster: PracticeCluster, box: str) -> _Server:
    """Return that of a box; the first time, or where the box is another one by now, it is started."""
    with _lock:
        found = _servers.get((cluster, box))
        if found is None or found.process.poll() is not None:
            found = _servers[cluster, box] = _Server(cluster, box)
        return found
