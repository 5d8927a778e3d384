"""The result of a command: what hosts return and schedulers parse."""

from __future__ import annotations

from notebook_launcher.core.frozen import Frozen


class CommandResult(Frozen):
    """The exit code of a command and its two outputs as text."""

    exit_code: int
    stdout: str = ""
    stderr: str = ""
