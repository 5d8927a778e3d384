"""Why ``qsub`` refused a job: patterns of its messages, what they mean, and what to type. The first match counts."""

from __future__ import annotations

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import (
    AccountRefused,
    ConstraintRefused,
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

_QUEUES = "choose another with -p; on the login node, list the queues with: qstat -g c"
_RESOURCES = "on the login node, list the resources with: qconf -sc"

_ROWS = (
    RefusalMessage(
        r"commlib error|unable to (?:send message to|contact) qmaster|qmaster is (?:not running|down)|"
        r"Error reading answer list from qmaster|got (?:select|send) error|failed (?:sending|receiving) gdi request",
        SchedulerAway,
        "Grid Engine does not answer.",
        "try again in a minute",
    ),
    RefusalMessage(r"requests unknown queue", PartitionRefused, "There is no such queue.", _QUEUES),
    RefusalMessage(
        r"(?:requested|the) parallel environment .* does not exist",
        SizeRefused,
        "The parallel environment for several cores has another name there.",
        'name it in the profile:  [scheduler_options]  parallel_environment = "NAME"; list them with: qconf -spl',
    ),
    RefusalMessage(
        r"requested project .* does not exist", AccountRefused, "There is no such project.", "list them: qconf -sprjl"
    ),
    RefusalMessage(
        r"(?:project|user) .*(?:not allowed|has no access|no permission|not permitted)|no access to project|"
        r"jobs? .*(?:must|have to) .*project",
        AccountRefused,
        "The project may not be used.",
        "name another with -A",
    ),
    RefusalMessage(
        r"unknown resource \"(?:gpu|ngpus?|gpus)\"",
        GresRefused,
        "GPUs have another name there.",
        f'name the resource in the profile:  [scheduler_options]  gpu = "NAME"; {_RESOURCES}',
    ),
    RefusalMessage(
        r"unknown resource|is not a (?:memory|boolean|double|integer|host) value|denied: .*complex",
        ConstraintRefused,
        "Grid Engine does not know these resources.",
        _RESOURCES,
    ),
    RefusalMessage(
        r"is not a time value|Wrong date/time format|Invalid month|Invalid (?:day|hour|minute)",
        WalltimeRefused,
        "Grid Engine does not understand the time.",
        "for example: -t 2:00:00, -b 15:00",
    ),
    RefusalMessage(
        r"advance reservation", ReservationRefused, "The reservation may not be used.", "list them with: qrstat -u '*'"
    ),
    RefusalMessage(
        r"no suitable queues",
        SizeRefused,
        "No queue can ever run a job like this.",
        "ask for less time, fewer cores or less memory, or another queue: -p; a queue's limits: qconf -sq QUEUE",
    ),
    RefusalMessage(
        r"exceed(?:s|ed)?|too many|limit|quota",
        LimitRefused,
        "A limit does not allow one more job like this.",
        "end other jobs of yours: qstat; see the limits with: qquota",
    ),
)
_TABLE = RefusalTable(
    title="Grid Engine",
    command="qsub",
    rows=_ROWS,
    flags="see the flags of qsub: qsub -help",
    missing="SGE_ROOT",
    missing_what="qsub is not found there, or Grid Engine is not set up.",
    missing_hint="check that this is the cluster's login node; name another one with --host or in a profile; "
    "Grid Engine's settings.sh may have to be read first: login_setup",
    answer_lost=r"Error reading answer list|failed receiving gdi|got (?:read|receive|syncron) error|timeout",
    jobs="qstat",
)


def explain(answer: CommandResult) -> LauncherError:
    """Return the error for qsub's message, with the message and what it means: see ``RefusalTable``."""
    text = answer.stderr.strip() or answer.stdout.strip()
    message = " ".join(line.strip() for line in text.splitlines() if line.strip() not in ("", "Exiting."))
    return _TABLE.explain(answer, message)
