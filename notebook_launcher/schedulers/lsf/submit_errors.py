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
    SizeRefused,
    WalltimeRefused,
)
from notebook_launcher.schedulers.refusals import RefusalMessage, RefusalTable

_QUEUES = "choose another with -p; on the login node, list the queues with: bqueues"
_AGAIN = "try again in a minute"

_ROWS = (
    RefusalMessage(
        r"not responding|LIM is down|Cannot connect to LSF|non-LSF host", SchedulerAway, "LSF does not answer.", _AGAIN
    ),
    RefusalMessage(r"No such queue", PartitionRefused, "There is no such queue.", _QUEUES),
    RefusalMessage(r"queue\b.*\b(closed|inactive)", PartitionRefused, "The queue takes no jobs now.", _QUEUES),
    RefusalMessage(
        r"cannot use the queue|not permitted.*queue", PartitionRefused, "The queue is not for you.", _QUEUES
    ),
    RefusalMessage(
        r"RUNLIMIT: Cannot exceed",
        WalltimeRefused,
        "The walltime is longer than the queue allows.",
        "ask for less with -t; on the login node, see what a queue allows with: bqueues -l QUEUE",
    ),
    RefusalMessage(
        r"Bad RUNLIMIT|Bad time specification",
        WalltimeRefused,
        "LSF does not understand the time.",
        "for example: -t 2:00:00, -b 15:00",
    ),
    RefusalMessage(
        r"Too many processors",
        SizeRefused,
        "No job there can have that many cores.",
        "ask for fewer, or another queue: -p; on the login node, see what a queue allows with: bqueues -l QUEUE",
    ),
    RefusalMessage(
        r"illegal option -- gpu|Bad GPU|GPU requirement",
        GresRefused,
        "GPUs cannot be asked for like this there.",
        "on the login node, list the GPUs with: bhosts -gpu",
    ),
    RefusalMessage(
        r"resource requirement|Error (in|near)|section",
        ConstraintRefused,
        "LSF does not know these resources.",
        "a --constraint stands in select[…]; on the login node, list the resources with: lsinfo",
    ),
    RefusalMessage(
        r"Bad host name|host group",
        ConstraintRefused,
        "There is no such host.",
        "on the login node, list the hosts with: bhosts",
    ),
    RefusalMessage(
        r"reservation",
        ReservationRefused,
        "The reservation may not be used.",
        "on the login node, list reservations with: brsvs",
    ),
    RefusalMessage(r"No matching job found", DependencyRefused, "The job to wait for is not known.", "see: bjobs -a"),
    RefusalMessage(r"project|user ?group", AccountRefused, "The account may not be used.", "name another with -A"),
    RefusalMessage(
        r"threshold|limit",
        LimitRefused,
        "A limit does not allow one more job like this.",
        "end other jobs of yours: bjobs",
    ),
)
_TABLE = RefusalTable(
    title="LSF",
    command="bsub",
    rows=_ROWS,
    flags="see the flags of bsub: bsub -h",
    missing=r"Unable to open file lsf\.conf",
    missing_what="bsub is not found there, or LSF is not set up.",
    answer_lost=r"daemon not responding|Cannot connect to LSF",
    jobs="bjobs",
)
# Names in LSF's messages could match a pattern by accident, so they are removed: those in angle brackets, and that of
# a queue or an argument before the sentence.
_NAMES = re.compile(r"^(?![A-Z]+LIMIT:)\S+: |<.*?>(?=[\s.,;:]|$)")


def explain(answer: CommandResult) -> LauncherError:
    """Return the error for bsub's message, with the message and what it means: see ``RefusalTable``."""
    message = " ".join((answer.stderr.strip() or answer.stdout.strip()).split("Usage:")[0].split())
    return _TABLE.explain(answer, message, searched=_NAMES.sub("", message))
