"""The practice cluster for tests: a process in each box forks for every command that is run there.

To enter a box takes more processor time than most programs, and the tests run thousands of them.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.practice_cluster import PracticeCluster
from tests.practice_cluster.enter_box import PATH_OF_ROOT, PATH_OF_USERS
from tests.practice_cluster.layout import USERS

LAUNCHERS_PYTHON = "/opt/launcher/bin/python3"
SERVER = (Path(__file__).parent / "in_box_server.py").read_text()


class ForkingCluster(PracticeCluster):
    """A practice cluster whose ``run`` forks in the box; a command of ``argv`` enters the box as usual."""

    def run(
        self,
        box: str,
        user: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        login: bool = True,
        input: str | None = None,
        timeout: float | None = None,
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Do what ``PracticeCluster.run`` does. The command has no terminal."""
        home, shell = ("/root", "/bin/bash") if user == "root" else (str(USERS[user].home), USERS[user].shell)
        path = PATH_OF_ROOT if user == "root" else PATH_OF_USERS
        own = {"HOME": home, "USER": user, "LOGNAME": user, "SHELL": shell, "PATH": path, "LANG": "C.UTF-8"}
        words = ["/bin/bash", "-l", "-c", 'exec "$@"', "bash", *argv] if login else argv
        done = server_in(self, box).run(words, user, own | dict(env or {}), input=input or "", timeout=timeout)
        if check:
            done.check_returncode()
        return done


class Command:
    """One running command."""

    def __init__(self, report: socket.socket) -> None:
        self._report = report

    def kill(self, number: int) -> None:
        self._report.send(bytes([number]))

    def ends_within(self, seconds: float | None) -> bool:
        return bool(select.select([self._report], [], [], seconds)[0])

    def end(self) -> int:
        """Return the exit code, or the negative number of the signal that ended it; kill it if it is still running."""
        with self._report:
            if not self.ends_within(0):
                self._report.shutdown(socket.SHUT_WR)
            return os.waitstatus_to_exitcode(int(self._report.recv(64)))


class Server:
    """A process in a box that forks for each command: see ``in_box_server.py``.

    A box has one for ``launch-notebook``, with all its imports, and one for other programs, whose forks need not copy
    these imports.
    """

    def __init__(self, cluster: PracticeCluster, box: str, for_launcher: bool) -> None:
        self._for_launcher = for_launcher
        self.login_environment = functools.cache(functools.partial(_login_environment, cluster, box))
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            python = [LAUNCHERS_PYTHON] if for_launcher else ["python3", "-I", "-S"]
            argv = cluster.argv(box, "root", [*python, "-c", SERVER], login=False)
            self.process = subprocess.Popen(argv, stdin=theirs, start_new_session=True)

    def begin(self, words: Sequence[str], user: str, env: Mapping[str, str], streams: list[int]) -> Command:
        report, theirs = socket.socketpair()
        with theirs:
            uid = 0 if user == "root" else USERS[user].uid
            request = {"words": words, "launcher": self._for_launcher, "uid": uid, "environment": dict(env)}
            socket.send_fds(self._requests, [json.dumps(request).encode()], [*streams, theirs.fileno()])
        return Command(report)

    def run(
        self,
        words: Sequence[str],
        user: str,
        env: Mapping[str, str],
        *,
        input: str = "",
        timeout: float | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command without a terminal."""
        with contextlib.ExitStack() as stack:
            text = functools.partial(tempfile.TemporaryFile, "w+", encoding="utf-8", errors="surrogateescape")
            files = [stack.enter_context(text()) for _ in range(3)]
            files[0].write(input)
            files[0].seek(0)
            command = self.begin(words, user, env, [file.fileno() for file in files])
            in_time = command.ends_within(timeout)
            code = command.end()
            for file in files:
                file.seek(0)
            if timeout is not None and not in_time:
                raise subprocess.TimeoutExpired(list(words), timeout, files[1].read(), files[2].read())
            return subprocess.CompletedProcess(list(words), code, files[1].read(), files[2].read())


def _login_environment(cluster: PracticeCluster, box: str, user: str) -> dict[str, str]:
    """Return the environment of a user's login shell."""
    printed = cluster.run(box, user, ["env", "-0"], check=True).stdout.rstrip("\0")
    return dict(line.split("=", 1) for line in printed.split("\0"))


_servers: dict[tuple[PracticeCluster, str, bool], Server] = {}
_lock = threading.Lock()


def server_in(cluster: PracticeCluster, box: str, *, for_launcher: bool = False) -> Server:
    """Return the server of a box; start it if there is none yet, or if it has ended with its box."""
    which = cluster, box, for_launcher
    with _lock:
        found = _servers.get(which)
        if found is None or found.process.poll() is not None:
            found = _servers[which] = Server(*which)
        return found
