"""Why ``qsub`` refused a job: patterns of its messages, what they mean, and what to type. The first match counts."""

from __future__ import annotations

import re

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
    SchedulerMissing,
    SizeRefused,
    SubmitRefused,
    WalltimeRefused,
)

_QUEUES = "choose another with -p; on the login node, list the queues with: qstat -g c"
_RESOURCES = "on the login node, list the resources with: qconf -sc"

_REFUSALS: tuple[tuple[str, type[SubmitRefused], str, str], ...] = (
    (
        r"commlib error|unable to (?:send message to|contact) qmaster|qmaster is (?:not running|down)|"
        r"Error reading answer list from qmaster|got (?:select|send) error|failed (?:sending|receiving) gdi request",
        SchedulerAway,
        "Grid Engine does not answer.",
        "try again in a minute",
    ),
    (r"requests unknown queue", PartitionRefused, "There is no such queue.", _QUEUES),
    (
        r"(?:requested|the) parallel environment .* does not exist",
        SizeRefused,
        "The parallel environment for several cores is called otherwise there.",
        'name it in the profile:  [scheduler_options]  parallel_environment = "NAME"; list them with: qconf -spl',
    ),
    (r"requested project .* does not exist", AccountRefused, "There is no such project.", "list them: qconf -sprjl"),
    (
        r"(?:project|user) .*(?:not allowed|has no access|no permission|not permitted)|no access to project|"
        r"jobs? .*(?:must|have to) .*project",
        AccountRefused,
        "The project may not be used.",
        "name another with -A",
    ),
    (
        r"unknown resource \"(?:gpu|ngpus?|gpus)\"",
        GresRefused,
        "GPUs are called otherwise there.",
        f'name the resource in the profile:  [scheduler_options]  gpu = "NAME"; {_RESOURCES}',
    ),
    (
        r"unknown resource|is not a (?:memory|boolean|double|integer|host) value|denied: .*complex",
        ConstraintRefused,
        "The resources are not ones that Grid Engine knows.",
        _RESOURCES,
    ),
    (
        r"is not a time value|Wrong date/time format|Invalid month|Invalid (?:day|hour|minute)",
        WalltimeRefused,
        "The time is not one that Grid Engine understands.",
        "for example: -t 2:00:00, -b 15:00",
    ),
    (r"advance reservation", ReservationRefused, "The reservation may not be used.", "list them with: qrstat -u '*'"),
    (
        r"no suitable queues",
        SizeRefused,
        "No queue can ever run a job like this.",
        "ask for less time, fewer cores or less memory, or another queue: -p; a queue's limits: qconf -sq QUEUE",
    ),
    (
        r"exceed(?:s|ed)?|too many|limit|quota",
        LimitRefused,
        "A limit does not allow one more job like this.",
        "end other jobs of yours: qstat; see the limits with: qquota",
    ),
)
# the master was reached, and the answer was lost: the job may have been queued
_UNHEARD = re.compile(
    r"Error reading answer list|failed receiving gdi|got (?:read|receive|syncron) error|timeout", re.I
)


def explain(answer: CommandResult) -> LauncherError:
    """Return the error for qsub's message, with the message and what it means.

    ``SubmitRefused`` itself for an unknown message, ``SchedulerMissing`` if Grid Engine is not installed.
    """
    text = answer.stderr.strip() or answer.stdout.strip()
    message = " ".join(line.strip() for line in text.splitlines() if line.strip() not in ("", "Exiting."))
    if answer.exit_code == 127 or re.search(r"qsub: command not found|SGE_ROOT", message):
        return SchedulerMissing(
            "qsub is not found there, or Grid Engine is not set up.",
            why=message,
            hint="is this the cluster's login node? name it with --host or in a profile; Grid Engine's settings.sh may "
            "have to be read first: login_setup",
        )
    why = f"qsub: {message or f'exit code {answer.exit_code}, no message'}"
    for pattern, kind, meaning, hint in _REFUSALS:
        if re.search(pattern, message, re.I):
            opening = "The job was not queued" if kind is SchedulerAway else "Grid Engine refused the job"
            error = kind(f"{opening}. {meaning}", why=why, hint=hint)
            if isinstance(error, SchedulerAway):
                error.may_have_heard = _UNHEARD.search(message) is not None
            return error
    return SubmitRefused("Grid Engine refused the job.", why=why, hint="the flags of qsub: qsub -help")
