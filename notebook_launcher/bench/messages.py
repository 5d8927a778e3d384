"""Messages of several parts of a bench: how to continue, and how to cancel its jobs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from notebook_launcher.core.errors import Interrupted
from notebook_launcher.core.text import joined
from notebook_launcher.planning.target import LaunchTarget

CONTINUE = "to continue, run the same command again: nothing is run twice"
_NAMED = 6  # sessions in a suggested command


def cancel_hint(sessions: Sequence[str], target: LaunchTarget) -> str:
    """Return the command that cancels the jobs of these sessions."""
    few = len(sessions) <= _NAMED
    of_all = "" if few else " (that cancels all of your sessions there)"
    return f"to cancel the jobs: {stop_command(sessions if few else ['--all'], target)}{of_all}"


def stop_command(sessions: Sequence[str], target: LaunchTarget) -> str:
    """Return the command that ends these sessions, as the user types it."""
    return shlex.join(["launch-notebook", "stop", *target.arguments(), *sessions])


def detached(sessions: Sequence[str], target: LaunchTarget, why: str = "") -> Interrupted:
    """Return the error for an interrupted bench whose jobs stay queued or running."""
    count = len(sessions)
    jobs = "One job goes on." if count == 1 else f"{count} jobs go on."
    hint = f"{CONTINUE}; {cancel_hint(sessions, target)}" if count else CONTINUE
    return Interrupted("Interrupted.", why=joined(why, jobs), hint=hint)
