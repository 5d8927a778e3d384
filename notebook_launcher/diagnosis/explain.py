"""Why a job is pending and why it ended, in sentences. Pure: evidence in, sentences out; nothing is guessed."""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Literal

from notebook_launcher.core.errors import JobCancelled, JobFailed, JobLost, JobTimedOut, LauncherError, NotebookFailed
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.quantities import memory_as_typed
from notebook_launcher.core.request import Request
from notebook_launcher.core.walltime import Walltime
from notebook_launcher.diagnosis import exit_causes, partition_fit
from notebook_launcher.diagnosis.exit_causes import Cause
from notebook_launcher.diagnosis.requirements import amount_requested, amount_text, is_beyond, parse_amount
from notebook_launcher.schedulers.base import JobRef, JobStatus, Meaning, State
from notebook_launcher.schedulers.cluster_info import Evidence, Limit, Partition
from notebook_launcher.schedulers.slurm import limit_reasons, pending_reasons
from notebook_launcher.schedulers.slurm.limit_reasons import RESOURCES, LimitReason
from notebook_launcher.schedulers.slurm.pending_reasons import ReasonMeaning, Topic

#: kinds of evidence beyond the job itself, which have to be queried
Worth = Literal["partitions", "limits", "ahead"]


class Explanation(Frozen):
    """Why a job is pending: a summary, what helps (may be empty), and whether it can never start."""

    summary: str
    action: str = ""
    never: bool = False


# --- pending jobs --------------------------------------------------------------------------------------------------

_NOTHING_KNOWN = Evidence()
_WORTH: dict[Topic, frozenset[Worth]] = {
    "queue": frozenset({"ahead"}),
    "nodes": frozenset({"ahead", "partitions"}),
    "partition": frozenset({"partitions"}),
    "limit": frozenset({"limits"}),
    # an obstacle that the scheduler reports only once the present reason no longer applies
    "later": frozenset({"partitions", "limits"}),
    "": frozenset(),
}
_LIMITED_BY = {"account": "account", "qos": "QOS"}
# Slurm's default QOS (sacctmgr's manual), which hardly ever has limits of its own.
_ORDINARY_QOS = "normal"
# What to check for each reason that is about a partition's limits.
_CHECKS: dict[str, tuple[Callable[[Request, Partition], partition_fit.Obstacle | None], ...]] = {
    "partitiontimelimit": (partition_fit.too_long,),
    "partitionnodelimit": (partition_fit.wrong_size,),
    "accountnotallowed": (partition_fit.closed_to,),
    "qosnotallowed": (partition_fit.closed_to,),
    "partitionconfig": (partition_fit.closed_to, partition_fit.too_long, partition_fit.wrong_size),
}


def evidence_needed(reason: str | None) -> frozenset[Worth]:
    """Return which evidence has to be read to explain a reason."""
    meaning = _meaning(reason)
    return _WORTH[meaning.topic] if meaning else frozenset()


def pending(
    reason: str | None, evidence: Evidence | None = None, *, job: str = "JOB", meaning: Meaning | None = None
) -> Explanation:
    """Return why a job is pending, from the scheduler's reason; an unknown reason is quoted.

    ``evidence``: what else was read; missing parts are mentioned if they matter. ``job``: its id, for the suggested
    commands; ``meaning``: the reason's meaning, for schedulers other than Slurm. If several partitions were requested,
    a reason is about one of them.
    """
    if meaning is not None:
        return Explanation(meaning.summary, meaning.action.replace("JOB", job), meaning.never)
    return _by_reason(reason, evidence, job)


def _by_reason(reason: str | None, evidence: Evidence | None, job: str) -> Explanation:
    meaning = _meaning(reason)
    if meaning is None:
        return Explanation(f"the scheduler says “{reason}”")
    known = evidence or _NOTHING_KNOWN
    if meaning.limit is not None:
        explanation = _limit(meaning, meaning.limit, known)
    elif meaning.topic == "partition":
        explanation = _partition(meaning, known)
    elif meaning.topic == "queue":
        explanation = Explanation(_queue(meaning, known, asked_for_more=evidence is not None), meaning.action)
    elif meaning.topic == "nodes":
        explanation = Explanation(_queue(meaning, known, asked_for_more=False), _with_others(meaning.action, known))
    else:
        explanation = Explanation(meaning.summary, meaning.action, meaning.never)
    return Explanation(explanation.summary, explanation.action.replace("JOB", job), explanation.never)


def _meaning(reason: str | None) -> ReasonMeaning | None:
    return pending_reasons.parse_reason(reason if reason and reason.strip() else "None")


def never_starts(request: Request, evidence: Evidence) -> Explanation | None:
    """Return why a request can apparently never start, from the evidence alone; ``None`` if nothing shows that.

    Partition limits are not assessed with a special QOS, which may override them (sacctmgr's manual: PartitionTimeLimit
    and others), nor other limits with several partitions, each of which may have its own.
    """
    is_ordinary = request.flags.get("qos") in (None, _ORDINARY_QOS)
    known = Evidence(request, evidence.partition, evidence.partitions, evidence.limits, evidence.ahead)
    if is_ordinary and (obstacles := _obstacles(known, (partition_fit.too_long, partition_fit.wrong_size))):
        return _blocked(obstacles, known)
    if len(partition_fit.partition_names(known)) > 1:
        return None
    too_much = next((limit for limit in known.limits or () if is_beyond(request, limit)), None)
    return _too_much(request, too_much) if too_much else None


# --- the queue


def _queue(meaning: ReasonMeaning, known: Evidence, *, asked_for_more: bool) -> str:
    """Return the summary of a reason, with the number of jobs ahead if known."""
    named = partition_fit.partition_names(known) if known.partition else ()
    where = f" in partition{'s' if len(named) > 1 else ''} {' and '.join(named)}" if named else ""
    ahead = known.ahead
    if ahead is None:
        unknown = asked_for_more and meaning.word == "priority"
        return f"{meaning.summary} (how many is not known)" if unknown else meaning.summary
    if ahead == 0:
        return f"first in line{where}, {meaning.summary}" if meaning.word == "resources" else meaning.summary
    jobs = f"{ahead} job{' is' if ahead == 1 else 's are'} ahead{where}"
    return jobs if meaning.word == "priority" else f"{meaning.summary}, {jobs}"


# --- partitions


def _partition(meaning: ReasonMeaning, known: Evidence) -> Explanation:
    """Explain a reason that is about a partition, with its name and its limit if they were read."""
    if obstacles := _obstacles(known, _CHECKS.get(meaning.word, ())):
        return _blocked(obstacles, known)
    several = len(partition_fit.partition_names(known)) > 1
    summary, action = meaning.summary, _with_others(meaning.action, known)
    too_long = meaning.word == "partitiontimelimit"
    if too_long and known.partitions is None:
        summary += " (how long that is was not read)"
        action += "; it is listed by: sinfo -o '%P %l'"
    # the walltime does not exceed the limit that was read, so one of the two must have just been changed
    is_contradicted = too_long and known.request is not None and partition_fit.known_partitions(known) is not None
    # a partition without nodes may get some when they are needed
    is_empty = meaning.word == "partitionconfig" and any(
        place.nodes == 0 for place in partition_fit.known_partitions(known) or ()
    )
    if several:
        summary = f"one of its partitions does not take it: {summary}"
    elif named := partition_fit.partition_names(known):
        for words in ("the partition", "this partition"):
            summary = summary.replace(words, f"partition {named[0]}")
    return Explanation(summary, action, meaning.never and not several and not is_contradicted and not is_empty)


def _obstacles(
    known: Evidence, checks: Sequence[Callable[[Request, Partition], partition_fit.Obstacle | None]]
) -> list[partition_fit.Obstacle]:
    """Return what excludes the request from each of its partitions; an empty list if one of them may accept it."""
    partitions = partition_fit.known_partitions(known)
    if known.request is None or not partitions:
        return []
    # the partition with the longest limit comes first: it makes the best suggestion
    found = []
    for partition in sorted(partitions, key=lambda one: one.walltime or timedelta(0), reverse=True):
        obstacle = next(filter(None, (check(known.request, partition) for check in checks)), None)
        if obstacle is None:
            return []
        found.append(obstacle)
    return found


def _blocked(obstacles: Sequence[partition_fit.Obstacle], known: Evidence) -> Explanation:
    allowed: dict[str, list[str]] = {}
    for obstacle in obstacles:
        allowed.setdefault(obstacle.asks, []).append(obstacle.allows)
    summary = "; ".join(f"{asks} {' and '.join(allows)}" for asks, allows in allowed.items())
    instead = obstacles[0].instead
    return Explanation(
        summary, _with_others(f"try {instead}" if instead.startswith("-") else instead, known), never=True
    )


def _with_others(action: str, known: Evidence) -> str:
    """Return the action with other partitions that would accept the request."""
    others = " or ".join(f"-p {name}" for name in partition_fit.other_partitions(known))
    if not others:
        return action
    return f"{action}, {'for example' if '-p' in action else 'or'} {others}"


# --- limits


def _limit(meaning: ReasonMeaning, reason: LimitReason, known: Evidence) -> Explanation:
    """Explain a reason that names a limit, with its size and how much of it is in use if they were read."""
    several = len(partition_fit.partition_names(known)) > 1
    never = meaning.never and not several
    account = known.request.flags.get("account") if known.request else None
    meant = [limit for limit in known.limits or () if _may_be_named(limit, reason)]
    if not meant:
        unread = "was not read" if known.limits is None else "is not known"
        if known.limits is None and (unknown := _whose_is_unknown(known.request)):
            unread += f": which {unknown} the job has was not reported"
        depends = reason.per not in ("job", "node") and meaning.action.startswith("it starts")
        unless = ", unless it is over that limit by itself" if depends else ""
        shown = f"on the login node, see the limit with: {limit_reasons.command(reason, account)}"
        summary = f"{meaning.summary} (how large the limit is {unread})"
        return Explanation(summary, f"{meaning.action}{unless}; {shown}", never)
    request = known.request
    if request is not None:
        if (too_much := next((limit for limit in meant if is_beyond(request, limit)), None)) and not several:
            return _too_much(request, too_much)
        meant = [limit for limit in meant if _is_reached(request, limit)] or meant
    return Explanation("; ".join(map(_limit_text, meant[:2])), meaning.action, False)


def _whose_is_unknown(request: Request | None) -> str:
    """Return which of the job's account and QOS (which determine its limits) are not known."""
    return " and ".join(
        word for flag, word in _LIMITED_BY.items() if request is not None and not request.flags.get(flag)
    )


def _may_be_named(limit: Limit, reason: LimitReason) -> bool:
    """Return whether a limit may be the one that the reason names; a reason does not say which GRES it means."""
    if (limit.of.lower().startswith("account")) != (reason.by == "account") or limit.per != reason.per:
        return False
    running, minutes = limit.on.startswith("running "), limit.on.endswith(" minutes")
    measure = "running minutes" if running else "minutes" if minutes else "amount"
    name, begins = limit.on.removeprefix("running ").removesuffix(" minutes"), RESOURCES[reason.resource].tres
    is_named = name.startswith(begins) if begins.endswith("/") else name == begins
    return measure == reason.measure and is_named and not reason.least


def _is_reached(request: Request, limit: Limit) -> bool:
    wanted, allowed = amount_requested(request, limit.on), parse_amount(limit.on, limit.value)
    used = parse_amount(limit.on, limit.used) if limit.used is not None else None
    return None not in (wanted, allowed, used) and (used or 0) + (wanted or 0) > (allowed or 0)


def _limit_text(limit: Limit) -> str:
    whose = {"group": "for all together"}.get(limit.per, f"per {limit.per}")
    allowed = f"{limit.of} allows at most {amount_text(limit.on, limit.value)} {whose}"
    if limit.per in ("job", "node"):
        return allowed
    verb = "used" if limit.on.endswith(" minutes") and not limit.on.startswith("running ") else "in use"
    return (
        f"{allowed}, {limit.used} {verb}" if limit.used is not None else f"{allowed}, how much is {verb} is not known"
    )


def _too_much(request: Request, limit: Limit) -> Explanation:
    """Explain that the request alone exceeds a limit, so that it does not help if other jobs end."""
    other = "try another account with -A" if limit.of.lower().startswith("account") else "try another QOS with -q"
    if limit.on == "walltime":
        why = f"its walltime of {request.walltime.as_text()} is longer than {limit.of} allows ({limit.value})"
        return Explanation(why, f"try -t {limit.value}", never=True)
    if limit.on == "jobs":
        return Explanation(f"{limit.of} lets no job start at all", other, never=True)
    wanted = amount_requested(request, limit.on) or 0
    much = memory_as_typed(wanted) if limit.on == "mem" else f"{wanted:.0f}"
    together = limit.per == "group" and limit.of.lower().startswith("account")
    may = f"may use {limit.value} at a time" if together else f"allows {limit.value} {_share(limit)}"
    return Explanation(
        f"it asks for {amount_text(limit.on, much)}, and {limit.of} {may}", _less(limit) or other, never=True
    )


def _share(limit: Limit) -> str:
    return "at a time for all together" if limit.per == "group" else f"per {limit.per}"


def _less(limit: Limit) -> str:
    """Return the suggestion to request only what the limit allows; empty if it allows nothing."""
    if not (parse_amount(limit.on, limit.value) or 0):
        return ""
    kind = limit.on.partition("gres/gpu")[2].removeprefix(":")
    if limit.on.startswith("gres/gpu"):
        return f"try --gpus {f'{kind}:' if kind else ''}{limit.value}"
    flags = {"cpu": f"try fewer cores: {limit.value} in all (-n times -c)", "mem": f"try --mem {limit.value}"}
    return flags.get(limit.on, f"try -N {limit.value}" if limit.on == "node" else "")


# --- ended jobs ----------------------------------------------------------------------------------------------------

#: see ``exit_causes.SCHEDULER_KNOWS_BETTER``
SCHEDULER_KNOWS_BETTER = exit_causes.SCHEDULER_KNOWS_BETTER


def ended(
    job: JobRef,
    exit_record: Mapping[str, object] | None,
    status: JobStatus | None,
    log: Sequence[str],
    *,
    user: str = "",
    who: str | None = None,
    walltime: Walltime | None = None,
    output: str = "",
    program: str = "jupyterlab",
    see: str = "",
) -> LauncherError:
    """Return the error for how a job ended, from its own record, the scheduler's status and its log.

    A specific state of the scheduler's has precedence, then the job's own record; the record ``stopped`` (it received a
    signal) only counts last. If none of them names a cause, the log may. ``user``: the present user. ``who``: who
    cancelled it, ``None`` if not known. ``walltime``: the job's limit. ``output``: the path of its output file.
    ``program``: as in the session's record. ``see``: the command that shows what the scheduler knows.
    """
    end = _ExitEvidence(job, exit_record or {}, status, log, user, who, walltime, output, program)
    for explained in (end.by_state, end.by_own_record, end.cancelled, end.by_log, end.failed, end.by_signal):
        if (error := explained()) is not None:
            return error
    return JobLost(
        f"Job {job} is gone, and no record says why.",
        why="Neither the scheduler nor the session's directory knows how it ended.",
        hint=f"see: {see}" if see else exit_causes.LOG,
        log=log,
    )


_WITH_CODE = ("jupyter-failed", "script-failed")  # causes whose exit code may have a meaning
_BEFORE = {"notebook": "the notebook was run", "script": "the script was run"}


class _ExitEvidence(Frozen):
    """Everything known about a job's end; each public method returns the error if it can determine the cause."""

    job: JobRef
    record: Mapping[str, object]
    status: JobStatus | None
    log: Sequence[str]
    user: str
    who: str | None
    walltime: Walltime | None
    output: str
    program: str

    @property
    def _state(self) -> State:
        return self.status.state if self.status else State.UNKNOWN

    @property
    def _cause(self) -> str:
        return str(self.record.get("cause") or "")

    @property
    def _message(self) -> str:
        return str(self.record.get("message") or "")

    def _error(self, cause: Cause, *, why: str = "", lines: int = 0) -> LauncherError:
        """Return the error for a cause; ``lines``: how many of the log's last lines to show, 0: all that were read."""
        what = f"Job {self.job} {cause.what}{self._which(cause)}."
        return cause.kind(what, why=why, hint=cause.hint, log=self.log[-lines:])

    def _which(self, cause: Cause) -> str:
        """Return further details: the walltime that was reached, the file that could not be opened."""
        if cause.kind is JobTimedOut and self.walltime is not None and not self.walltime.is_unlimited:
            return f" of {self.walltime.as_text()}"
        return f" ({self.output})" if cause is exit_causes.NO_OUTPUT and self.output else ""

    def by_state(self) -> LauncherError | None:
        """Explain the end by a state that says more than the job itself can know."""
        cause = exit_causes.BY_STATE.get(self._state)
        return self._error(cause, lines=5) if cause else None

    def by_own_record(self) -> LauncherError | None:
        """Explain the end by the job script's record; the log may name the underlying cause."""
        if self._cause in ("", "stopped"):
            return None
        cause = exit_causes.BY_SCRIPT.get(self._cause, Cause(JobFailed, exit_causes.LOG))
        what = f"Job {self.job}: {self._message}" if self._message else f"Job {self.job} failed ({self._cause})."
        code = self.record.get("exit_code")
        why = exit_causes.exit_code_meaning(code) if isinstance(code, int) and self._cause in _WITH_CODE else ""
        why = f"Exit code {code}: {why}." if why else ""
        behind = exit_causes.cause_in_log(self.log) if self._cause in exit_causes.MAYBE_IN_THE_LOG else None
        if behind is not None:
            cause, why = behind[0], f"The log says “{behind[1]}”."
        hint = exit_causes.missing_module_hint(self._message) if cause.kind is NotebookFailed else ""
        return cause.kind(what, why=why, hint=hint or cause.hint, log=self.log)

    def cancelled(self) -> LauncherError | None:
        """Explain a cancellation, with who did it if known; an out-of-memory event may look the same."""
        if self._state is not State.CANCELLED:
            return None
        if shortage := exit_causes.memory_shortage(self.log):
            return self._error(shortage[0], why=f"The log says “{shortage[1]}”.")
        if self._was_only_killed():
            return self._error(exit_causes.KILLED)
        by, hint = self._by()
        error = JobCancelled(f"Job {self.job} was cancelled{by}.", hint=hint, log=self.log[-5:])
        error.by_user = bool(self.who) and self.who == self.user
        return error

    def _was_only_killed(self) -> bool:
        """Return whether only SIGKILL is known: a cancelled job first gets a signal, and would have recorded it."""
        status = self.status
        return status is not None and status.signal == signals.SIGKILL and not (self._cause or self.who or status.by)

    def _by(self) -> tuple[str, str]:
        """Return who cancelled it, and what to do about it."""
        uid_or_name = self.status.by if self.status else None
        name = self.who or ("root" if uid_or_name == "0" else f"user {uid_or_name}" if uid_or_name else None)
        again = "start again when you like"
        if name is None:
            reason = pending_reasons.parse_reason(self.status.reason) if self.status and self.status.reason else None
            if reason is not None and reason.never:
                return f" by the scheduler: {reason.summary}", reason.action
            return "; it is not known by whom", again
        if name == self.user:
            return f" by you ({name}), from elsewhere", again
        if name == "root":
            return " by root: an operator", "ask the cluster's support why, before you start again"
        return f" by {name}", again

    def by_log(self) -> LauncherError | None:
        """Explain the end by the last lines of the log, if the scheduler reports nothing more specific."""
        if self._state is State.COMPLETED:
            return None
        found = exit_causes.cause_in_log(self.log)
        if found is None and self._state is not State.FAILED:  # otherwise it may belong to an earlier run
            found = exit_causes.step_daemon_message(self.log)
        return self._error(found[0], why=f"The log says “{found[1]}”.") if found else None

    def failed(self) -> LauncherError | None:
        """Explain the end by the scheduler's exit code, signal and reason."""
        if self._state is State.COMPLETED:
            before = _BEFORE.get(self.program, "JupyterLab could be used")
            return self._error(Cause(JobFailed, exit_causes.LOG, f"ended by itself before {before}"))
        if self._state is not State.FAILED or self.status is None:
            return None
        sentence, code, number = exit_causes.script_message(self.log), self.status.exit_code, self._signal()
        if code == exit_causes.EXIT_UNUSABLE or sentence:
            why = sentence or "It ended with exit code 73, which its script keeps for that."
            return self._error(exit_causes.UNUSABLE, why=why)
        if number == exit_causes.NO_OUTPUT_SIGNAL:
            return self._error(exit_causes.NO_OUTPUT)
        if number:
            what, meaning = f"failed (signal {exit_causes.signal_name(number)})", exit_causes.signal_meaning(number)
        elif code:
            what, meaning = f"failed with exit code {code}", exit_causes.exit_code_meaning(code)
        elif cause := exit_causes.BY_REASON.get((self.status.reason or "").partition(":")[0]):
            return self._error(cause)
        else:
            what, meaning = "failed", ""
        why = f"{meaning[0].upper()}{meaning[1:]}." if meaning else ""
        return self._error(Cause(JobFailed, exit_causes.LOG, what), why=why)

    def _signal(self) -> int | None:
        """Return the signal that ended it, from the history or from squeue's reason ``RaisedSignal:9(Killed)``."""
        if self.status is None or self.status.signal:
            return self.status.signal if self.status else None
        match = re.match(r"RaisedSignal:(\d{1,3})", self.status.reason or "", re.A)
        return int(match[1]) if match else None

    def by_signal(self) -> LauncherError | None:
        """Explain the end by the job's own record that it received a signal, whose sender is unknown."""
        if self._cause != "stopped":
            return None
        return JobCancelled(f"Job {self.job} was stopped from outside.", why=self._message, log=self.log)
