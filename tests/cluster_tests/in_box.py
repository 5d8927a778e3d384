"""Runs ``launch-notebook`` in a box, forked from a process that has imported it already: see ``in_box_server.py``.

A short ``launch-notebook`` spends most of its processor time on Python's imports. Here it has the same user,
environment and terminal as with ``tests.conftest.launch``, but /proc shows the arguments and the environment of the
process that it was forked from. Tests of how the program starts, or of what others can see of it, therefore start the
program itself.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import termios
from collections.abc import Sequence

from pexpect.fdpexpect import fdspawn

from tests.cluster_tests.forking_cluster import Command, server_in
from tests.conftest import Session, words_of_launch
from tests.practice_cluster import PracticeCluster


def launch(cluster: PracticeCluster, box: str, *arguments: str, user: str = "alice", columns: int = 80) -> Session:
    """Start ``launch-notebook`` as a user in a terminal of a box, as ``tests.conftest.launch`` does."""
    here, there = os.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    server = server_in(cluster, box, for_launcher=True)
    environment = {**server.login_environment(user), "TERM": "xterm-256color"}
    command = server.begin(words_of_launch(arguments), user, environment, [there] * 3)
    os.close(there)
    return Session(_InTerminal(here, command))


def launcher(
    cluster: PracticeCluster, box: str, user: str, *words: str, timeout: float = 240, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run ``launch-notebook`` without a terminal."""
    server = server_in(cluster, box, for_launcher=True)
    return server.run(words, user, {**server.login_environment(user), **env}, timeout=timeout)


def run(
    cluster: PracticeCluster, box: str, user: str, argv: Sequence[str], *, input: str = "", timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run a program as ``PracticeCluster.run`` does without a login shell."""
    return cluster.run(box, user, argv, login=False, input=input, timeout=timeout)


class _InTerminal(fdspawn):  # type: ignore[misc]
    """A command in a new terminal, with the methods of ``pexpect.spawn`` that ``Session`` uses."""

    def __init__(self, terminal: int, command: Command) -> None:
        super().__init__(terminal, encoding="utf-8", timeout=90)
        self._command = command
        self.kill = command.kill

    def close(self, force: bool = True) -> None:
        """Close the terminal, kill the command if it continues, and save its exit status."""
        if not self.closed:
            super().close()
            self._command.ends_within(5 if self.flag_eof else 0.5)
            code = self._command.end()
            self.exitstatus, self.signalstatus = (code, None) if code >= 0 else (None, -code)
