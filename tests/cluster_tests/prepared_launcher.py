"""``launch-notebook`` in a box, forked from a process that has imported it already: see ``forking_launcher.py``.

Most of what a short command costs the processor are Python's imports, and the tests type hundreds of commands. Here a
command has the same user, environment and terminal, but no name of its own in a list of processes, and no environment
that others see there. Tests of how the program starts, or of what is seen of it there, start the program itself.
"""

from __future__ import annotations

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
from collections.abc import Mapping
from pathlib import Path

from pexpect.fdpexpect import fdspawn

from tests.conftest import Session, words_of_launch
from tests.practice_cluster import PracticeCluster
from tests.practice_cluster.layout import USERS

PYTHON = "/opt/launcher/bin/python3"
PROGRAM = (Path(__file__).parent / "forking_launcher.py").read_text()


def launch(cluster: PracticeCluster, box: str, *arguments: str, user: str = "alice", columns: int = 80) -> Session:
    """Start ``launch-notebook`` as a user in a terminal of a box, as ``tests.conftest.launch`` does."""
    here, there = os.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = _launcher(cluster, box).begin(words_of_launch(arguments), user, {"TERM": "xterm-256color"}, [there] * 3)
    os.close(there)
    return Session(_InTerminal(here, command))


def run(cluster: PracticeCluster, box: str, user: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run ``launch-notebook`` without a terminal, as ``cluster.run`` does."""
    with Path(os.devnull).open() as nothing, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        streams = [nothing.fileno(), output.fileno(), errors.fileno()]
        code = _launcher(cluster, box).begin(words, user, env, streams).end(120)
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode(errors="surrogateescape"))
    return subprocess.CompletedProcess(["launch-notebook", *words], code, *texts)


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


class _Launcher:
    """The process in a box that forks for each command."""

    def __init__(self, cluster: PracticeCluster, box: str) -> None:
        self._environment = functools.cache(functools.partial(_environment, cluster, box))
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv = cluster.argv(box, "root", [PYTHON, "-c", PROGRAM], login=False)
            self.process = subprocess.Popen(argv, stdin=theirs, start_new_session=True)
        assert self._requests.recv(16) == b"ready"

    def begin(self, words: tuple[str, ...], user: str, env: Mapping[str, str], streams: list[int]) -> _Command:
        report, theirs = socket.socketpair()
        with theirs:
            request = {"words": words, "uid": USERS[user].uid, "environment": {**self._environment(user), **env}}
            socket.send_fds(self._requests, [json.dumps(request).encode()], [*streams, theirs.fileno()])
        return _Command(report)


def _environment(cluster: PracticeCluster, box: str, user: str) -> dict[str, str]:
    """What a user's login shell gives a program."""
    printed = cluster.run(box, user, ["env", "-0"], check=True).stdout.rstrip("\0")
    return dict(line.split("=", 1) for line in printed.split("\0"))


_launchers: dict[tuple[PracticeCluster, str], _Launcher] = {}
_lock = threading.Lock()


def _launcher(cluster: PracticeCluster, box: str) -> _Launcher:
    """Return that of a box; the first time, or where the box is another one by now, it is started."""
    with _lock:
        found = _launchers.get((cluster, box))
        if found is None or found.process.poll() is not None:
            found = _launchers[cluster, box] = _Launcher(cluster, box)
        return found
