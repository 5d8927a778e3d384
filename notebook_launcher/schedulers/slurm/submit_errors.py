"""Why ``sbatch`` refused a job, as an error: its message, what it means, and what to type."""

from __future__ import annotations

import re

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    LauncherError,
    LimitRefused,
    SubmitRefused,
)
from notebook_launcher.core.text import joined
from notebook_launcher.schedulers.refusals import RefusalMessage, RefusalTable
from notebook_launcher.schedulers.slurm import limit_reasons
from notebook_launcher.schedulers.slurm.refusal_messages import REFUSAL_MESSAGES

_MEMORY = "for example: {0} 16G, or {0} 500M"
_EXAMPLES = {  # by the flag that sbatch says is invalid
    **{flag: _MEMORY.format(flag) for flag in ("--mem", "--mem-per-cpu", "--mem-per-gpu", "--tmp")},
    **{
        flag: f"{flag} takes a number or TYPE:NUMBER: {flag} 1, or {flag} a100:1"
        for flag in ("--gpus", "--gpus-per-node")
    },
}
_TABLE = RefusalTable(
    title="Slurm",
    command="sbatch",
    rows=REFUSAL_MESSAGES,
    flags="see the flags of sbatch: sbatch --help",
    answer_lost=r"timed out|receive failure|\(shutdown failure\)|Zero Bytes were transmitted|"
    r"Insane message|Header lengths",
    jobs="squeue --me",
)


def explain(answer: CommandResult) -> LauncherError:
    """Return the error for sbatch's message, with the message and what it means: see ``RefusalTable``."""

    def reword(row: RefusalMessage) -> tuple[str, str]:
        meaning, hint = (_limit(answer.stderr) if row.kind is LimitRefused else None) or (row.meaning, row.hint)
        flag = re.search(r"Invalid (--[a-z][a-z-]*) specification", answer.stderr)
        if row.kind is SubmitRefused and flag:
            return f"{flag[1]} has a value that it cannot have.", _EXAMPLES.get(flag[1], hint)
        return meaning, hint

    message = _without_prefix(answer.stderr) or answer.stdout.strip()
    return _TABLE.explain(answer, message, searched=answer.stderr, reword=reword)


def _limit(stderr: str) -> tuple[str, str] | None:
    """Return the meaning and the hint for a limit that sbatch names in an earlier line (``AssocMaxSubmitJobLimit``)."""
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
    # the job alone exceeds the limit: otherwise it would be queued
    return "ask for less, or try another QOS with -q"


def _without_prefix(stderr: str) -> str:
    return joined(*(re.sub(r"^sbatch: (error: |fatal: )?", "", line) for line in stderr.splitlines()), stop=";")
