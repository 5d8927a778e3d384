"""What a command answered: the one thing that hosts give and schedulers read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CommandResult:
    """The exit code of a command and its two outputs as text."""

    exit_code: int
    stdout: str = ""
    stderr: str = ""
