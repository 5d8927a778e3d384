"""Why a job waits and why it died, in words. Pure: evidence in, sentences out; what was not read is not guessed."""

from __future__ import annotations

import signal as signals
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from notebook_launcher.errors import JobCancelled, JobFailed, JobLost, JobTimedOut, LauncherError
from notebook_launcher.request import Request
from notebook_launcher.schedulers.base import JobRef, JobStatus, State
from notebook_launcher.schedulers.outlook import Evidence


@dataclass(frozen=True)
class Explanation:
    """Why a job waits: a summary, what can be done (may be empty), and whether waiting can ever end."""

    summary: str
    action: str = ""
    never: bool = False


# Slurm's pending reasons (squeue's manual, JOB REASON CODES), the part before a colon or comma.
_PENDING: dict[str, Explanation] = {
    "Priority": Explanation("other jobs are ahead in the queue"),
    "Resources": Explanation("first in line, waits until enough is free"),
    "BeginTime": Explanation("waits for its begin time"),
    "Dependency": Explanation("waits for another job"),
    "DependencyNeverSatisfied": Explanation(
        "the job it depends on did not end as asked for", "leave out --dependency", never=True
    ),
    "JobHeldUser": Explanation("is held", "release it with: scontrol release JOB"),
    "JobHeldAdmin": Explanation("is held by an operator", "ask the cluster's support"),
    "Reservation": Explanation("waits for its reservation to begin"),
    "ReservationDeleted": Explanation("its reservation was removed", "ask without --reservation", never=True),
    "PartitionTimeLimit": Explanation(
        "its walltime is longer than the partition allows",
        "ask for less with -t, or another partition with -p",
        never=True,
    ),
    "PartitionNodeLimit": Explanation(
        "it asks for more nodes than the partition allows", "ask for fewer nodes", never=True
    ),
    "PartitionDown": Explanation("the partition is closed at the moment", "another partition: -p"),
    "PartitionInactive": Explanation("the partition is inactive", "another partition: -p"),
    "ReqNodeNotAvail": Explanation("a node that it needs is down, drained or reserved"),
    "BadConstraints": Explanation("no node can fulfil its constraints", "change --constraint", never=True),
    "AccountNotAllowed": Explanation(
        "the account may not use this partition", "another account (-A) or partition (-p)", never=True
    ),
    "InvalidAccount": Explanation("the account is not valid", "another account: -A", never=True),
    "InvalidQOS": Explanation("the QOS is not valid", "another QOS: -q", never=True),
    "QOSNotAllowed": Explanation("the QOS may not be used here", "another QOS: -q", never=True),
    "MaxMemPerLimit": Explanation(
        "it asks for more memory than is allowed per core or node", "ask for less with --mem"
    ),
    "Licenses": Explanation("waits for a licence"),
    "NodeDown": Explanation("a node that it needs is down"),
    "Cleaning": Explanation("is being tidied up after an earlier run"),
    "Prolog": Explanation("its node is being prepared"),
    "SchedDefer": Explanation("the scheduler will look at it shortly"),
    "None": Explanation("the scheduler has not looked at it yet"),
}
_LIMITS = (  # families of limits: who set it, by the prefix of the reason
    ("Assoc", "a limit of your account is reached"),
    ("QOS", "a limit of the QOS is reached"),
)


def pending(reason: str | None, evidence: Evidence | None = None) -> Explanation:
    """Return why a job waits, from the scheduler's reason; one that is not known is given in its own word.

    ``evidence``: what else was read; what is missing there is said to be unknown where it matters.
    """
    if not reason:
        return _PENDING["None"]
    word = reason.strip("()").split(",")[0].split(":")[0].strip()
    if word in _PENDING:
        return _PENDING[word]
    for prefix, summary in _LIMITS:
        if word.startswith(prefix) and ("PerJob" in word or word.startswith("QOSMin")):
            # a limit on what one job may ask for: no other job's end will help
            return Explanation(f"{summary} ({word})", "ask for what the limit allows", never=True)
        if word.startswith(prefix):
            return Explanation(f"{summary} ({word})", "it starts when other jobs of yours or your group have ended")
    return Explanation(f"the scheduler says “{reason}”")


def beyond(request: Request, evidence: Evidence) -> Explanation | None:
    """Return why a request can never start, judged from the evidence alone; ``None`` where that is not certain."""
    return None


# What to do about the causes that the job script names; those without an entry speak for themselves.
_MENDS = {
    "jupyter-missing": "name a container (-- /path/image.sif), a module (--module NAME) "
    "or a conda environment (--conda NAME) that has JupyterLab",
    "image-missing": "check the name after --, or `container` and `image_dir` in the profile",
    "image-unreadable": "ask its owner to let you read it",
    "bind-missing": "check `bind` in the profile's environment",
    "container-command-missing": "is there a module for it? name it with --module",
    "module-failed": "the names are listed by `module avail` on the login node",
    "module-command-missing": "leave the modules out, or ask the cluster's support how batch jobs load them",
    "conda-missing": "the names are listed by: conda env list",
    "venv-missing": "check the path after --venv",
    "jupyter-silent": "its log tells how far it came; start_timeout in the profile gives a slow start more time",
    "session-unusable": "make room in your home folder on the cluster: quota -s",
}


# Causes after which the scheduler may know better: a signal came from it, a crash was a lack of memory.
ASK_THE_SCHEDULER = frozenset({None, "stopped", "jupyter-failed", "container-failed"})
_SCHEDULER_KNOWS_BETTER = frozenset({State.OUT_OF_MEMORY, State.TIMEOUT, State.NODE_FAIL, State.PREEMPTED})


def ended(
    job: JobRef,
    exit_record: Mapping[str, object] | None,
    status: JobStatus | None,
    log: Sequence[str],
    *,
    user: str = "",
    who: str | None = None,
    walltime: timedelta | None = None,
) -> LauncherError:
    """Return the error that tells how a job ended, from its own word, the scheduler's and its log.

    The job's own word counts more, except that ``stopped`` (it was sent a signal) is explained by the scheduler.
    ``user``: who asks. ``who``: the name of who cancelled it, ``None`` where that is not known. ``walltime``: how
    long it was allowed to run.
    """
    cause = str(exit_record.get("cause", "")) if exit_record else ""
    message = str(exit_record.get("message", "")) if exit_record else ""
    state = status.state if status else State.UNKNOWN
    if cause and cause != "stopped" and state not in _SCHEDULER_KNOWS_BETTER:
        what = f"Job {job}: {message}" if message else f"Job {job} failed ({cause})."
        return JobFailed(what, mend=_MENDS.get(cause, "the last lines of its log tell more"), log=log)
    by_state = _by_state(job, state, status, log)
    if by_state is not None:
        return by_state
    if cause == "stopped":
        return JobCancelled(f"Job {job} was stopped from outside.", why=message, log=log)
    return JobLost(
        f"Job {job} is gone, and left no word why.",
        why="Neither the scheduler nor the session's directory knows how it ended.",
        mend=f"see: sacct -j {job.id}",
        log=log,
    )


def _by_state(job: JobRef, state: State, status: JobStatus | None, log: Sequence[str]) -> LauncherError | None:
    if state is State.CANCELLED:
        by = f" (by user id {status.by})" if status and status.by else ""
        return JobCancelled(
            f"Job {job} was cancelled from elsewhere{by}.", mend="start again when you like", log=log[-5:]
        )
    if state is State.TIMEOUT:
        return JobTimedOut(f"Job {job} reached its walltime.", mend="ask for more with -t next time", log=log[-5:])
    sentences = {
        State.OUT_OF_MEMORY: ("needed more memory than it had asked for.", "ask for more with --mem"),
        State.NODE_FAIL: ("ended because its node failed.", "start again"),
        State.PREEMPTED: ("had to make room for a job that goes first.", "start again, or use another partition"),
        State.BOOT_FAIL: ("did not start because its node failed to boot.", "start again"),
        State.DEADLINE: ("could not be done before its deadline.", "leave out --deadline"),
        State.REVOKED: ("was moved to another cluster.", "see: squeue --me --clusters=all"),
        State.FAILED: (f"failed{_how(status)}.", "the last lines of its log tell more"),
        State.COMPLETED: ("ended by itself before JupyterLab could be used.", "the last lines of its log tell more"),
    }
    if state in sentences:
        what, mend = sentences[state]
        return JobFailed(f"Job {job} {what}", mend=mend, log=log)
    return None


def _how(status: JobStatus | None) -> str:
    if status and status.signal:
        return f" (signal {signal_name(status.signal)})"
    if status and status.exit_code:
        return f" with exit code {status.exit_code}"
    return ""


def signal_name(number: int) -> str:
    """Return a signal's name where this system has one, else its number."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return str(number)
