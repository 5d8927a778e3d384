"""Asks a cluster's own submit command about flags that the launcher does not know, before anything is submitted.

They are those of a newer version, or of a site's plugins. A flag is passed on only if the submit command accepts it, as
it was typed.
"""

from __future__ import annotations

from collections.abc import Mapping

from notebook_launcher.core.errors import LauncherError, SchedulerSilent, UsageError
from notebook_launcher.core.sbatch_options import no_such_flag, unlisted
from notebook_launcher.core.text import joined, printable
from notebook_launcher.jobs.evidence import run_queries
from notebook_launcher.session.context import Context

_TIMEOUT = 60.0  # seconds for all of them
_SILENT = 124  # the exit code of `timeout`


def check_unlisted_flags(context: Context, flags: Mapping[str, str | None]) -> None:
    """Check the flags that are not listed, each once a connection; without any, nothing is asked.

    Raises ``UsageError`` for one that does not exist there, or that needs a value or takes none, ``SchedulerSilent`` if
    there was no answer, and what the scheduler's refusals mean if it refuses the value.
    """
    scheduler = context.scheduler
    asked = {name: value for name, value in unlisted(flags).items() if (name, value) not in context.accepted_flags}
    trials = {name: trial for name, value in asked.items() if (trial := scheduler.try_flag(name, value))}
    if missing := next((name for name in asked if name not in trials), None):
        raise no_such_flag(missing, scheduler=scheduler.name)
    if not asked:
        return
    lists = scheduler.list_flags()
    answers = run_queries(context.host, [*trials.values(), *lists], timeout=_TIMEOUT)
    known = scheduler.read_flag_names(answers[len(trials) :])
    command = f"{scheduler.programs[0]} on {context.host.label}"
    for (name, value), answer in zip(asked.items(), answers, strict=False):
        if answer.exit_code == _SILENT:
            raise SchedulerSilent(f"{command} did not answer when asked about --{name}.", hint="try again in a minute")
        said = scheduler.read_flag(name, answer)
        if said == "unknown":
            raise no_such_flag(name, f"Neither the launcher nor {command} knows it.", known or None)
        if value is None and said != "accepted":  # of some flags the value is checked at once, and it had none
            raise UsageError(f"{command} does not accept --{name} without a value.", hint=f"write --{name}=VALUE")
        if said == "takes no value":
            raise UsageError(f"{command} does not accept --{name} with a value.", hint=f"write --{name}")
        if said != "accepted":
            raise _named(name, scheduler.explain_refusal(answer))
        context.accepted_flags.add((name, value))


def _named(name: str, error: LauncherError) -> LauncherError:
    """Return a refusal with the flag that it is about; there was no job yet that could be refused."""
    error.what = error.what.replace("Slurm refused the job.", f"Slurm refused --{name}.")
    asked = f"Nothing was submitted. sbatch was only asked whether it accepts --{name}."
    error.why = printable(joined(asked, error.why))
    return error
