"""Why ``sbatch`` refused a job, as an error: its message, the meaning in plain words, and what to type."""

from __future__ import annotations

import re

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    ClusterRefused,
    LauncherError,
    LimitRefused,
    NoRoom,
    SchedulerAway,
    SchedulerMissing,
    SubmitRefused,
)
from notebook_launcher.core.text import joined
from notebook_launcher.schedulers.slurm import limit_reasons
from notebook_launcher.schedulers.slurm.refusal_messages import REFUSAL_MESSAGES

# After these the job may have been queued: the scheduler was reached, but its answer was lost.
_UNHEARD = re.compile(
    r"timed out|receive failure|\(shutdown failure\)|Zero Bytes were transmitted|Insane message|Header lengths", re.I
)
_MEMORY = "for example: {0} 16G, or {0} 500M"
_EXAMPLES = {  # by the flag that sbatch says is invalid
    **{flag: _MEMORY.format(flag) for flag in ("--mem", "--mem-per-cpu", "--mem-per-gpu", "--tmp")},
    **{
        flag: f"{flag} takes a number or TYPE:NUMBER: {flag} 1, or {flag} a100:1"
        for flag in ("--gpus", "--gpus-per-node")
    },
}
_NOT_REFUSED = (SchedulerAway, NoRoom, ClusterRefused)  # the request was not examined


def explain(answer: CommandResult) -> LauncherError:
    """Return the error for sbatch's message, with the message and what it means.

    ``SubmitRefused`` itself for an unknown message, ``SchedulerMissing`` if sbatch is not installed.
    """
    if answer.exit_code == 127 or re.search(r"\bsbatch: command not found", answer.stderr):
        return SchedulerMissing(
            "sbatch is not found there.",
            why=answer.stderr.strip(),
            hint="is this the cluster's login node? name it with --host or in a profile",
        )
    message = _without_prefix(answer.stderr) or answer.stdout.strip() or f"exit code {answer.exit_code}, no message"
    why = f"sbatch: {message}"
    row = next((row for row in REFUSAL_MESSAGES if re.search(row.pattern, answer.stderr, re.I)), None)
    if row is None:
        return SubmitRefused("Slurm refused the job.", why=why, hint="the flags of sbatch: sbatch --help")
    meaning, hint = (_limit(answer.stderr) if row.kind is LimitRefused else None) or (row.meaning, row.hint)
    if row.kind is SubmitRefused and (flag := re.search(r"Invalid (--[a-z][a-z-]*) specification", answer.stderr)):
        meaning, hint = f"{flag[1]} has a value that it cannot have.", _EXAMPLES.get(flag[1], hint)
    if row.kind is SchedulerAway and _UNHEARD.search(answer.stderr):
        return _no_answer(meaning, why)
    opening = "The job was not queued." if row.kind in _NOT_REFUSED else "Slurm refused the job."
    return row.kind(f"{opening} {meaning}", why=why, hint=hint)


def _no_answer(meaning: str, why: str) -> SchedulerAway:
    error = SchedulerAway(meaning, why=why, hint="look with: squeue --me   and try again if the job is not there soon")
    error.may_have_heard = True
    return error


def _limit(stderr: str) -> tuple[str, str] | None:
    """Return the meaning of the limit that sbatch names in an earlier line (``AssocMaxSubmitJobLimit``), if any."""
    for word in re.findall(r"^sbatch: error: (\w+)\s*$", stderr, re.M):
        limit = limit_reasons.parse_limit_reason(word)
        if limit is not None:
            meaning = limit_reasons.summary(limit)
            shown = f"on the login node, see the limit with: {limit_reasons.command(limit)}"
            return f"{meaning[0].upper()}{meaning[1:]}.", f"{_what_helps(limit)}; {shown}"
    return None


def _what_helps(limit: limit_reasons.LimitReason) -> str:
    if limit.resource in ("jobs", "submit"):
        return "end other jobs of yours: squeue --me" if limit.per == "user" else "wait until other jobs have ended"
    if limit_reasons.is_for_one_job(limit) or limit.per == "node":
        return limit_reasons.action(limit)
    return "ask for less, or another QOS: -q"  # if the limit were only in use up, the job would be queued and pending


def _without_prefix(stderr: str) -> str:
    return joined(*(re.sub(r"^sbatch: (error: |fatal: )?", "", line) for line in stderr.splitlines()), stop=";")
