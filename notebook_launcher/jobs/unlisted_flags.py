"""Tries flags that the launcher does not know with a cluster's own submit command, before anything is submitted.

They may belong to a newer version, or to a site's plugins. A flag is passed on only if the submit command accepts it as
it was typed.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    LauncherError,
    SchedulerAway,
    SchedulerMissing,
    SchedulerSilent,
    SubmitRefused,
    UsageError,
)
from notebook_launcher.core.sbatch_options import unlisted
from notebook_launcher.core.text import printable
from notebook_launcher.jobs.evidence import run_queries
from notebook_launcher.planning.new_default import save_new_default
from notebook_launcher.schedulers.base import Scheduler
from notebook_launcher.session.context import Context

_TIMEOUT = 15.0  # seconds for each
_SILENT = 124  # the exit code of `timeout`
_LATER = "try again in a minute; no job was submitted"


def check_request(context: Context, flags: Mapping[str, str | None]) -> None:
    """Check the flags that are not listed; then save a newly chosen cluster or course as the default.

    Raises as ``check_unlisted_flags``.
    """
    check_unlisted_flags(context, flags)
    context.target = save_new_default(context.target, context.view)


def check_unlisted_flags(context: Context, flags: Mapping[str, str | None]) -> None:
    """Check the flags that are not listed, each once per connection; without any, no command is run.

    Raises ``UsageError`` for a flag that does not exist there, or that needs a value or takes none, ``SubmitRefused``
    if the value is refused, and ``SchedulerMissing``, ``SchedulerAway`` or ``SchedulerSilent`` if there was no answer.
    """
    scheduler = context.scheduler
    new = {name: value for name, value in unlisted(flags).items() if (name, value) not in context.accepted_flags}
    trials = {name: trial for name, value in new.items() if (trial := scheduler.try_flag(name, value))}
    if missing := next((name for name in new if name not in trials), None):
        raise scheduler.no_such_flag(missing)
    if not new:
        return
    command = f"{scheduler.programs[0]} on {context.host.label}"
    for (name, value), answer in zip(new.items(), _run(context, list(trials.values())), strict=True):
        reported = scheduler.read_flag(name, answer)
        if answer.exit_code == _SILENT:
            raise SchedulerSilent(f"{command} did not answer when asked about --{name}.", hint=_LATER)
        if reported == "unknown":
            known = scheduler.read_flag_names(_run(context, scheduler.list_flags()))
            raise scheduler.no_such_flag(name, f"Neither the launcher nor {command} knows it.", known)
        if reported == "needs a value":
            raise UsageError(f"{command} does not accept --{name} without a value.", hint=f"write --{name}=VALUE")
        if reported == "takes no value":
            raise UsageError(f"{command} does not accept --{name} with a value.", hint=f"write --{name}")
        if reported != "accepted":
            raise _refusal(scheduler, command, name, value, answer)
        context.accepted_flags.add((name, value))


def _run(context: Context, commands: Sequence[Sequence[str]]) -> list[CommandResult]:
    return run_queries(context.host, commands, timeout=_TIMEOUT * (len(commands) + 1))


def _refusal(scheduler: Scheduler, command: str, name: str, value: str | None, answer: CommandResult) -> LauncherError:
    """Return the error for a submit command that failed at a flag, or before it read any."""
    explained = scheduler.explain_refusal(answer)
    if isinstance(explained, SchedulerMissing):
        return explained
    why = printable(explained.why)
    if isinstance(explained, SchedulerAway) or not (answer.stdout or answer.stderr):
        return SchedulerAway(f"{command} did not answer when asked about --{name}.", why=why, hint=_LATER)
    if value is None and f"--{name}" in answer.stderr:  # some flags' values are checked at once, and there was none
        return UsageError(f"{command} does not accept --{name} without a value.", why=why, hint=f"write --{name}=VALUE")
    typed = f"--{name}" if value is None else shlex.quote(f"--{name}={value}")
    hint = "list its flags on the login node: sbatch --help"
    return SubmitRefused(f"{command} does not accept {typed}.", why=why, hint=hint)
