"""Why ``qsub`` refused a job: patterns of its messages, what they mean, and what to type. The first match counts."""

from __future__ import annotations

import re

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    AccountRefused,
    ConstraintRefused,
    DependencyRefused,
    GresRefused,
    LauncherError,
    LimitRefused,
    PartitionRefused,
    ReservationRefused,
    SchedulerAway,
    SchedulerMissing,
    SubmitRefused,
    WalltimeRefused,
)

_QUEUES = "choose another with -p; on the login node, list the queues with: qstat -Q"

_REFUSALS: tuple[tuple[str, type[SubmitRefused], str, str], ...] = (
    (
        r"cannot connect to server|Connection (?:refused|timed out)|Unknown Host|Server is shutting down|"
        r"End of File|Premature end of message|Protocol (?:\(ASN\.1\) )?(?:error|failure)",
        SchedulerAway,
        "PBS does not answer.",
        "try again in a minute",
    ),
    (r"Unknown queue", PartitionRefused, "There is no such queue.", _QUEUES),
    (r"Queue is not enabled", PartitionRefused, "The queue takes no jobs now.", _QUEUES),
    (
        r"Unauthorized Request|Access (?:to|from) .*denied|not (?:permitted|allowed) .*queue",
        PartitionRefused,
        "The queue is not for you.",
        _QUEUES,
    ),
    (
        r"Unknown resource:?\s+(?:Resource_List\.)?(?:n?gpus?)\b",
        GresRefused,
        "GPUs are called otherwise there.",
        'name the resource in the profile:  [scheduler_options]  gpu = "NAME"',
    ),
    (
        r"Unknown resource|Illegal attribute or resource value (?:select|Resource_List\.(?!walltime))",
        ConstraintRefused,
        "The resources are not ones that PBS knows.",
        "on the login node, list those of the nodes with: pbsnodes -a",
    ),
    (
        r"Resource_List\.walltime|illegal -a value",
        WalltimeRefused,
        "The time is not one that PBS understands.",
        "for example: -t 2:00:00, -b 15:00",
    ),
    (
        r"violates queue and/or server resource limits",
        WalltimeRefused,
        "The walltime, or another amount, is not what the queue allows.",
        "ask for less with -t, or for fewer cores, or another queue: -p; see what it allows with: qstat -Qf QUEUE",
    ),
    (r"reservation", ReservationRefused, "The reservation may not be used.", "list them with: pbs_rstat"),
    (
        r"depend|Unknown Job Id",
        DependencyRefused,
        "PBS does not know the job to wait for.",
        "see: qstat -x -u $USER",
    ),
    (r"account|project", AccountRefused, "The account may not be used.", "name another with -A"),
    (
        r"cannot send environment with the job",
        SubmitRefused,
        "qsub cannot pass on a quote in the name of the folder or in a variable.",
        "submit from a folder without quotes in its name",
    ),
    (
        r"would exceed|limit|maximum number of jobs",
        LimitRefused,
        "A limit does not allow one more job like this.",
        "end other jobs of yours: qstat -u $USER",
    ),
)
# the server was reached, and the answer was lost: the job may have been queued
_UNHEARD = re.compile(r"timed out|End of File|Premature end of message|Protocol", re.I)


def explain(answer: CommandResult) -> LauncherError:
    """Return the error for qsub's message, with the message and what it means.

    ``SubmitRefused`` itself for an unknown message, ``SchedulerMissing`` if PBS is not installed.
    """
    text = (answer.stderr.strip() or answer.stdout.strip()).partition("\nusage: ")[0]
    message = " ".join(text.split())
    if answer.exit_code == 127 or re.search(r"qsub: command not found", message):
        return SchedulerMissing(
            "qsub is not found there.",
            why=message,
            hint="is this the cluster's login node? name it with --host or in a profile",
        )
    why = f"qsub: {message.removeprefix('qsub: ') or f'exit code {answer.exit_code}, no message'}"
    for pattern, kind, meaning, hint in _REFUSALS:
        if re.search(pattern, message, re.I):
            opening = "The job was not queued" if kind is SchedulerAway else "PBS refused the job"
            error = kind(f"{opening}. {meaning}", why=why, hint=hint)
            if isinstance(error, SchedulerAway):
                error.may_have_heard = _UNHEARD.search(message) is not None
            return error
    return SubmitRefused("PBS refused the job.", why=why, hint="the flags of qsub: man qsub")
