"""Runs a command on the login node with a time limit: it is ended there at the limit, or when this process ends."""

from __future__ import annotations

import collections
import contextlib
import threading

from notebook_launcher.core.bash_options import PLAIN_BASH
from notebook_launcher.core.errors import ConnectionLost, HostCommandFailed
from notebook_launcher.core.text import whole_number
from notebook_launcher.hosts.base import Host
from notebook_launcher.hosts.commands import bound_to_stdin
from notebook_launcher.hosts.login_setup import login_shell_command
from notebook_launcher.hosts.login_shell import unexplained

_MARK = "--launch-notebook--"  # everything before it comes from a start-up file
_MARKED = PLAIN_BASH + f'echo; echo {_MARK}; "$@" 2>&1; printf "\\n{_MARK} %d\\n" "$?"'
_MOST = 2000  # the most lines that are kept: the last ones


class CommandTimeout(HostCommandFailed):
    """The command did not finish in time, and was killed."""


def run_bounded(host: Host, argv: list[str], within: float) -> tuple[int, list[str]]:
    """Run a command in a login shell; return its exit code, and the lines of its output, stderr included.

    ``within``: seconds. Raises ``CommandTimeout``, ``ConnectionLost`` or ``LoginShellSilent``. In any case, even after
    Ctrl-C, the command and its child processes are ended.
    """
    lines: collections.deque[str] = collections.deque(maxlen=_MOST)
    over = threading.Event()
    command = bound_to_stdin(login_shell_command(["bash", "-c", _MARKED, "bash", *argv], host.login_setup))
    with contextlib.closing(host.stream(command, lines.append, lambda _reason: over.set())):
        if not over.wait(within):
            raise CommandTimeout(f"{argv[0]} was not done within {within:.0f} s on {host.label}.")
    if not host.alive:
        raise ConnectionLost(f"The connection to {host.label} is lost.")
    output = [line.rstrip("\r\n") for line in lines]
    code = output[-1].removeprefix(f"{_MARK} ") if output else ""
    begin = output.index(_MARK) + 1 if _MARK in output else 0
    number = whole_number(code)
    if number is None and _MARK not in output and len(output) < _MOST:
        host.run(["true"], login_shell=True)  # raises if the login shell's start-up is at fault
        raise unexplained(host.label)
    return (number, output[begin:-1]) if number is not None else (255, output[begin:])
