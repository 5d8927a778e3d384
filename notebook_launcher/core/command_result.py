"""The result of a command: what hosts return and schedulers parse."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CommandResult:
    """The exit code of a command and its two outputs as text."""

    exit_code: int
    stdout: str = ""
    stderr: str = ""
