"""Queries shared by all launchers of a user on one login node, with ``jobscripts/login/shared_query.sh``."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Sequence
from datetime import datetime

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.hosts.base import RUN_TIMEOUT, Host

_FIRST_LINE = re.compile(r"(\d{1,9}(?:\.\d\d)?) (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}) (alone|together)", re.A)


class SharedAnswer(Frozen):
    """An answer that may come from another launcher's query.

    ``age``: at most so many seconds before our call it was queried; 0: it was queried for us. ``clock``: the time on
    the login node. ``alone``: whether there was no other launcher, so that the smaller query was run.
    """

    answer: CommandResult
    age: float
    clock: datetime
    alone: bool


class SharedQueries:
    """Runs queries shared with the other launchers, with the ``shared_query.sh`` in a session's directory."""

    def __init__(self, host: Host, directory: str) -> None:
        self._host, self._directory = host, directory

    def query(
        self, command: Sequence[str], max_age: float, *, alone: Sequence[str] = (), timeout: float = RUN_TIMEOUT
    ) -> SharedAnswer | None:
        """Run a command, or return another launcher's result from the last ``max_age`` seconds.

        ``alone``: the command to run instead while there is no other launcher. Returns ``None`` if there is no
        ``shared_query.sh``, and nothing was run. Raises what the host raises.
        """
        root, _, _ = self._directory.rpartition("/")
        cache = f"{root}/.asked/{_name(command)}"
        commands = [*alone, "--together", *command] if alone else command
        script = f"{self._directory}/shared_query.sh"
        return _parse(
            self._host.run(
                ["bash", script, cache, f"{max_age:.2f}", *commands],
                login_shell=True,
                timeout=timeout,
            )
        )


class SharingHost:
    """Runs commands as a host does, sharing them with other launchers. ``queries_run``: how many were run for us."""

    def __init__(self, host: Host, together: SharedQueries, max_age: float) -> None:
        self._host, self._shared, self._max_age = host, together, max_age
        self.queries_run = 0

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", login_shell: bool = False, timeout: float = RUN_TIMEOUT
    ) -> CommandResult:
        """Run a command or return its earlier result; a command with input is not shared."""
        shared = None if stdin else self._shared.query(argv, self._max_age, timeout=timeout)
        self.queries_run += shared is None or shared.age == 0
        return shared.answer if shared else self._host.run(argv, stdin=stdin, login_shell=login_shell, timeout=timeout)


def _name(command: Sequence[str]) -> str:
    """Return a file name that is unique to the command, as other versions of the launcher may run another command."""
    return f"{command[0].rpartition('/')[2]}-{hashlib.sha256(chr(0).join(command).encode()).hexdigest()[:12]}"


def _parse(answer: CommandResult) -> SharedAnswer | None:
    """Parse the output from its first line on, before which a shell's start-up files may have printed others."""
    lines = answer.stdout.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if match := _FIRST_LINE.fullmatch(line.rstrip()):
            with contextlib.suppress(ValueError):
                clock = datetime.strptime(match[2], "%Y-%m-%dT%H:%M:%S%z")
                rest = CommandResult(answer.exit_code, "".join(lines[number + 1 :]), answer.stderr)
                return SharedAnswer(rest, float(match[1]), clock, match[3] == "alone")
    return None
