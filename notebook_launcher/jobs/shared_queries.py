"""Queries that all launchers of a user share on one login node: what calls ``jobscripts/login/shared_query.sh``."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.hosts.base import RUN_TIMEOUT, Host

_FIRST_LINE = re.compile(r"(\d{1,9}(?:\.\d\d)?) (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}) (alone|together)", re.A)


@dataclass(frozen=True)
class SharedAnswer:
    """An answer that may have been given to another launcher.

    ``age``: how many seconds before our call it was asked for, at most; 0: it was asked for us. ``clock``: the time
    there. ``alone``: whether only we were there, so that the smaller question was asked.
    """

    answer: CommandResult
    age: float
    clock: datetime
    alone: bool


class SharedQueries:
    """Runs queries together with the other launchers, by the ``shared_query.sh`` of a session's directory."""

    def __init__(self, host: Host, directory: str) -> None:
        self._host, self._directory = host, directory

    def ask(
        self, command: Sequence[str], max_age: float, *, alone: Sequence[str] = (), timeout: float = RUN_TIMEOUT
    ) -> SharedAnswer | None:
        """Run a command, or take what another launcher got from it in the last ``max_age`` seconds.

        ``alone``: what is run instead while there is no other. ``None``: there is no ``shared_query.sh``, and nothing
        was asked. Raises what the host raises.
        """
        root, _, _ = self._directory.rpartition("/")
        place = f"{root}/.asked/{_name(command)}"
        commands = [*alone, "--together", *command] if alone else command
        script = f"{self._directory}/shared_query.sh"
        return _parse(
            self._host.run(
                ["bash", script, place, f"{max_age:.2f}", *commands],
                login_shell=True,
                timeout=timeout,
            )
        )


class SharingHost:
    """Runs commands, as a host does, each shared with the other launchers. ``queries_run``: so many were run for us."""

    def __init__(self, host: Host, together: SharedQueries, max_age: float) -> None:
        self._host, self._together, self._max_age = host, together, max_age
        self.queries_run = 0

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", login_shell: bool = False, timeout: float = RUN_TIMEOUT
    ) -> CommandResult:
        """Run a command or return what it printed a while ago; nothing can be fed to it."""
        shared = None if stdin else self._together.ask(argv, self._max_age, timeout=timeout)
        self.queries_run += shared is None or shared.age == 0
        return shared.answer if shared else self._host.run(argv, stdin=stdin, login_shell=login_shell, timeout=timeout)


def _name(command: Sequence[str]) -> str:
    """Return a file name that is the same only for the same command: other versions may ask for something else."""
    return f"{command[0].rpartition('/')[2]}-{hashlib.sha256(chr(0).join(command).encode()).hexdigest()[:12]}"


def _parse(answer: CommandResult) -> SharedAnswer | None:
    """Find the first line, before which a shell's start-up files may have printed others."""
    lines = answer.stdout.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if match := _FIRST_LINE.fullmatch(line.rstrip()):
            with contextlib.suppress(ValueError):
                clock = datetime.strptime(match[2], "%Y-%m-%dT%H:%M:%S%z")
                rest = CommandResult(answer.exit_code, "".join(lines[number + 1 :]), answer.stderr)
                return SharedAnswer(rest, float(match[1]), clock, match[3] == "alone")
    return None
