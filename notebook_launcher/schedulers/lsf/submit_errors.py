"""Why ``bsub`` refused a job: patterns of its messages, what they mean, and what to type. The first match counts."""

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
    SizeRefused,
    SubmitRefused,
    WalltimeRefused,
)

_QUEUES = "choose another with -p; on the login node, list the queues with: bqueues"
_AGAIN = "try again in a minute"

_REFUSALS: tuple[tuple[str, type[SubmitRefused], str, str], ...] = (
    (r"not responding|LIM is down|Cannot connect to LSF|non-LSF host", SchedulerAway, "LSF does not answer.", _AGAIN),
    (r"No such queue", PartitionRefused, "There is no such queue.", _QUEUES),
    (r"queue\b.*\b(closed|inactive)", PartitionRefused, "The queue takes no jobs now.", _QUEUES),
    (r"cannot use the queue|not permitted.*queue", PartitionRefused, "The queue is not for you.", _QUEUES),
    (
        r"RUNLIMIT: Cannot exceed",
        WalltimeRefused,
        "The walltime is longer than the queue allows.",
        "a shorter one with -t; on the login node, see what a queue allows with: bqueues -l QUEUE",
    ),
    (
        r"Bad RUNLIMIT|Bad time specification",
        WalltimeRefused,
        "The time is not one that LSF understands.",
        "for example: -t 2:00:00, -b 15:00",
    ),
    (
        r"Too many processors",
        SizeRefused,
        "There are never as many cores for one job.",
        "ask for fewer, or another queue: -p; on the login node, see what a queue allows with: bqueues -l QUEUE",
    ),
    (
        r"illegal option -- gpu|Bad GPU|GPU requirement",
        GresRefused,
        "GPUs cannot be asked for like this there.",
        "on the login node, list the GPUs with: bhosts -gpu",
    ),
    (
        r"resource requirement|Error (in|near)|section",
        ConstraintRefused,
        "The resources are not ones that LSF knows.",
        "a --constraint stands in select[…]; on the login node, list the resources with: lsinfo",
    ),
    (
        r"Bad host name|host group",
        ConstraintRefused,
        "There is no such host.",
        "on the login node, list the hosts with: bhosts",
    ),
    (
        r"reservation",
        ReservationRefused,
        "The reservation may not be used.",
        "on the login node, list reservations with: brsvs",
    ),
    (r"No matching job found", DependencyRefused, "The job that is to be waited for is not known.", "see: bjobs -a"),
    (r"project|user ?group", AccountRefused, "The account may not be used.", "name another with -A"),
    (
        r"threshold|limit",
        LimitRefused,
        "A limit does not allow one more job like this.",
        "end other jobs of yours: bjobs",
    ),
)
# Names are not part of LSF's messages: those in angle brackets, and that of a queue or an argument before the sentence.
_NAMES = re.compile(r"^(?![A-Z]+LIMIT:)\S+: |<.*?>(?=[\s.,;:]|$)")
# the daemon was reached, or may have been: the job may have been queued
_UNHEARD = re.compile(r"daemon not responding|Cannot connect to LSF", re.I)


def explain(answer: CommandResult) -> LauncherError:
    """Return the error for bsub's message, with the message and what it means.

    ``SubmitRefused`` itself for an unknown message, ``SchedulerMissing`` if LSF is not installed.
    """
    message = " ".join((answer.stderr.strip() or answer.stdout.strip()).split("Usage:")[0].split())
    if answer.exit_code == 127 or re.search(r"bsub: command not found|Unable to open file lsf\.conf", message):
        return SchedulerMissing(
            "bsub is not found there, or LSF is not set up.",
            why=message,
            hint="is this the cluster's login node? name it with --host or in a profile",
        )
    why = f"bsub: {message or f'exit code {answer.exit_code}, no message'}"
    sentence = _NAMES.sub("", message)
    for pattern, kind, meaning, hint in _REFUSALS:
        if re.search(pattern, sentence, re.I):
            error = kind(
                f"{'The job was not queued' if kind is SchedulerAway else 'LSF refused the job'}. {meaning}",
                why=why,
                hint=hint,
            )
            if isinstance(error, SchedulerAway):
                error.may_have_heard = _UNHEARD.search(message) is not None
            return error
    return SubmitRefused("LSF refused the job.", why=why, hint="the flags of bsub: bsub -h")
