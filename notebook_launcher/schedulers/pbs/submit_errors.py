"""Why ``qsub`` refused a job: patterns of its messages, what they mean, and what to type. The first match counts."""

from __future__ import annotations

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
    SubmitRefused,
    WalltimeRefused,
)
from notebook_launcher.schedulers.refusals import RefusalMessage, RefusalTable

_QUEUES = "choose another with -p; on the login node, list the queues with: qstat -Q"

_ROWS = (
    RefusalMessage(
        r"cannot connect to server|Connection (?:refused|timed out)|Unknown Host|Server is shutting down|"
        r"End of File|Premature end of message|Protocol (?:\(ASN\.1\) )?(?:error|failure)",
        SchedulerAway,
        "PBS does not answer.",
        "try again in a minute",
    ),
    RefusalMessage(r"Unknown queue", PartitionRefused, "There is no such queue.", _QUEUES),
    RefusalMessage(r"Queue is not enabled", PartitionRefused, "The queue takes no jobs now.", _QUEUES),
    RefusalMessage(
        r"Unauthorized Request|Access (?:to|from) .*denied|not (?:permitted|allowed) .*queue",
        PartitionRefused,
        "The queue is not for you.",
        _QUEUES,
    ),
    RefusalMessage(
        r"Unknown resource:?\s+(?:Resource_List\.)?(?:n?gpus?)\b",
        GresRefused,
        "GPUs have another name there.",
        'name the resource in the profile:  [scheduler_options]  gpu = "NAME"',
    ),
    RefusalMessage(
        r"Unknown resource|Illegal attribute or resource value (?:select|Resource_List\.(?!walltime))",
        ConstraintRefused,
        "PBS does not know these resources.",
        "on the login node, list those of the nodes with: pbsnodes -a",
    ),
    RefusalMessage(
        r"Resource_List\.walltime|illegal -a value",
        WalltimeRefused,
        "PBS does not understand the time.",
        "for example: -t 2:00:00, -b 15:00",
    ),
    RefusalMessage(
        r"violates queue and/or server resource limits",
        WalltimeRefused,
        "The job is outside the queue's limits, such as its longest walltime.",
        "ask for less with -t, or for fewer cores, or another queue: -p; see what it allows with: qstat -Qf QUEUE",
    ),
    RefusalMessage(r"reservation", ReservationRefused, "The reservation may not be used.", "list them with: pbs_rstat"),
    RefusalMessage(
        r"depend|Unknown Job Id",
        DependencyRefused,
        "PBS does not know the job to wait for.",
        "see: qstat -x -u $USER",
    ),
    RefusalMessage(r"account|project", AccountRefused, "The account may not be used.", "name another with -A"),
    RefusalMessage(
        r"cannot send environment with the job",
        SubmitRefused,
        "qsub cannot pass on a quote in the name of the folder or in a variable.",
        "submit from a folder without quotes in its name",
    ),
    RefusalMessage(
        r"would exceed|limit|maximum number of jobs",
        LimitRefused,
        "A limit does not allow one more job like this.",
        "end other jobs of yours: qstat -u $USER",
    ),
)
_TABLE = RefusalTable(
    title="PBS",
    command="qsub",
    rows=_ROWS,
    flags="see the flags of qsub: man qsub",
    answer_lost=r"timed out|End of File|Premature end of message|Protocol",
    jobs="qstat -u $USER",
)


def explain(answer: CommandResult) -> LauncherError:
    """Return the error for qsub's message, with the message and what it means: see ``RefusalTable``."""
    text = (answer.stderr.strip() or answer.stdout.strip()).partition("\nusage: ")[0]
    return _TABLE.explain(answer, " ".join(text.split()).removeprefix("qsub: "))
