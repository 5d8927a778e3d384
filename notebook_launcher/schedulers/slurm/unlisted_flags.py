"""Tests whether sbatch has a flag that the launcher does not know: one of a newer version, or of a plugin.

``sbatch --help`` leaves flags out, and does not always say whether a flag takes a value. So sbatch's own parser is
used, which reads its arguments in order and stops at the first one that it does not know. ``sbatch --FLAG
--no-flag-of-this-name --usage`` stops at the first if there is no such flag, and at the second if there is. If it stops
at neither, ``--FLAG`` took the second as its value, and the usage is printed. Nothing is ever submitted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.sbatch_options import FULFILLED, REFUSED
from notebook_launcher.schedulers.base import FlagAnswer

NO_FLAG = "no-flag-of-this-name"
_SBATCH = ("env", "LC_ALL=C", "timeout", "15", "sbatch")  # seconds
_LISTED = re.compile(r"(?:^|[\s\[])--([a-z][a-z0-9-]{1,59})(?![a-z0-9_-])", re.A)
_MOST_NAMES = 500


def command(name: str, value: str | None) -> list[str]:
    """Return the command that shows how sbatch reacts to a flag, with its value if there is one."""
    word = f"--{name}" if value is None else f"--{name}={value}"
    return [*_SBATCH, word, f"--{NO_FLAG}", "--usage"]


def listing(option: str) -> list[str]:
    """Return the command that lists the flags; ``option``: ``--help`` or ``--usage``, each of which leaves out some."""
    return [*_SBATCH, option]


def read(name: str, answer: CommandResult) -> FlagAnswer:
    """Return how sbatch reacted to the flag. An ambiguous abbreviation counts as unknown."""
    if _says(answer, "unrecognized option", name) or _says(answer, "option", name, " is ambiguous"):
        return "unknown"
    if _says(answer, "option", name, " doesn't allow an argument"):
        return "takes no value"
    if _says(answer, "unrecognized option", NO_FLAG):
        return "accepted"
    if answer.exit_code == 0 and "Usage: sbatch" in answer.stdout:
        return "needs a value"
    return "refused"


def _says(answer: CommandResult, before: str, name: str, after: str = "") -> bool:
    """Return whether a line says this about that flag: ``sbatch: unrecognized option '--name=value'``."""
    return re.search(rf"\b{before}\W+{re.escape(name)}(?![\w-]).*{after}", answer.stderr, re.A) is not None


def names(answers: Sequence[CommandResult]) -> list[str]:
    """Return the flags in the output of ``sbatch --help`` and ``--usage``, without those that no launch accepts."""
    found = (name for answer in answers for name in _LISTED.findall(answer.stdout))
    return [name for name in dict.fromkeys(found) if name not in REFUSED and name not in FULFILLED][:_MOST_NAMES]
