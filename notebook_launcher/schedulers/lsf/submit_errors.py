"""Why ``bsub`` did not take a job: its words, what they mean, and what to type. The first match counts."""

from __future__ import annotations

import re

from notebook_launcher.core.command_result import Answer
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

_QUEUES = "choose another with -p; the queues are listed by: bqueues"
_AGAIN = "try again in a minute"

_REFUSALS: tuple[tuple[str, type[SubmitRefused], str, str], ...] = (
    (r"not responding|LIM is down|Cannot connect to LSF|non-LSF host", SchedulerAway, "LSF does not answer.", _AGAIN),
    (r"No such queue", PartitionRefused, "There is no such queue.", _QUEUES),
    (r"queue\b.*\b(closed|inactive)", PartitionRefused, "The queue takes no jobs now.", _QUEUES),
    (r"cannot use the queue|not permitted.*queue", PartitionRefused, "The queue is not for you.", _QUEUES),
    (r"RUNLIMIT: Cannot exceed", WalltimeRefused, "The walltime is longer than the queue allows.",
     "a shorter one with -t; what a queue allows is shown by: bqueues -l QUEUE"),
    (r"Bad RUNLIMIT|Bad time specification", WalltimeRefused, "The time is not one that LSF understands.",
     "for example: -t 2:00:00, -b 15:00"),
    (r"Too many processors", SizeRefused, "There are never as many cores for one job.",
     "ask for fewer, or another queue: -p; what a queue allows is shown by: bqueues -l QUEUE"),
    (r"illegal option -- gpu|Bad GPU|GPU requirement", GresRefused, "GPUs cannot be asked for like this there.",
     "the GPUs are listed by: bhosts -gpu"),
    (r"resource requirement|Error (in|near)|section", ConstraintRefused, "The resources are not ones that LSF knows.",
     "a --constraint stands in select[…]; the resources are listed by: lsinfo"),
    (r"Bad host name|host group", ConstraintRefused, "There is no such host.", "the hosts are listed by: bhosts"),
    (r"reservation", ReservationRefused, "The reservation may not be used.", "reservations are listed by: brsvs"),
    (r"No matching job found", DependencyRefused, "The job that is to be waited for is not known.", "see: bjobs -a"),
    (r"project|user ?group", AccountRefused, "The account may not be used.", "name another with -A"),
    (r"threshold|limit", LimitRefused, "A limit does not allow one more job like this.",
     "end other jobs of yours: bjobs"),
)  # fmt: skip
# Names are no words of LSF's: those in angles, and that of a queue or an argument in front of the sentence.
_NAMES = re.compile(r"^(?![A-Z]+LIMIT:)\S+: |<.*?>(?=[\s.,;:]|$)")
# the daemon was reached, or may have been: it may have taken the job
_UNHEARD = re.compile(r"daemon not responding|Cannot connect to LSF", re.I)


def explain(answer: Answer) -> LauncherError:
    """Return the error for what bsub answered, with its words and what they mean.

    ``SubmitRefused`` itself for what is not known, ``SchedulerMissing`` where there is no LSF.
    """
    said = " ".join((answer.stderr.strip() or answer.stdout.strip()).split("Usage:")[0].split())
    if answer.exit_code == 127 or re.search(r"bsub: command not found|Unable to open file lsf\.conf", said):
        return SchedulerMissing(
            "bsub is not found there, or LSF is not set up.",
            why=said,
            mend="is this the cluster's login node? name it with --host or in a profile",
        )
    why = f"bsub: {said or f'exit code {answer.exit_code}, no message'}"
    sentence = _NAMES.sub("", said)
    for pattern, kind, meaning, mend in _REFUSALS:
        if re.search(pattern, sentence, re.I):
            error = kind(f"{'The job was not queued' if kind is SchedulerAway else 'LSF refused the job'}. {meaning}",
                         why=why, mend=mend)  # fmt: skip
            if isinstance(error, SchedulerAway):
                error.may_have_heard = _UNHEARD.search(said) is not None
            return error
    return SubmitRefused("LSF refused the job.", why=why, mend="the flags of bsub: bsub -h")
