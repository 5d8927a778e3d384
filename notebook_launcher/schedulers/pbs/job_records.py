"""Parses what ``qstat -x -f`` prints about jobs.

It is requested as text, not as JSON: OpenPBS's JSON leaves out all jobs but the first, and that of 23.06 may be
invalid.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from notebook_launcher.core.text import whole_number
from notebook_launcher.schedulers.base import AccountingRecord, JobAccounts, JobRef, JobStatus, Meaning, State

_JOB = re.compile(r"^Job Id: (\d{1,12}(?:\[\d*\])?(?:\.[\w.-]+)?)[ \t]*$", re.M | re.A)
_ATTRIBUTE = re.compile(r"^    ([A-Za-z_][\w.]*) = (.*)$", re.M | re.A)
_MOMENT = "%a %b %d %H:%M:%S %Y"

# from the manual of qstat, job states. B: a job array has begun; X: a job of an array has finished
_STATES = {
    **dict.fromkeys(("Q", "H", "W", "T", "M"), State.PENDING),
    **dict.fromkeys(("R", "B"), State.RUNNING),
    **dict.fromkeys(("S", "U"), State.SUSPENDED),
    "E": State.COMPLETING,
}
_OVER = ("F", "X")
# with a negative exit code PBS itself ended the job, or could not start it (job.h of OpenPBS, JOB_EXEC_KILL_…)
_MEMORY, _WALLTIME = (-27, -26), -29
_SIGNALLED = 256  # added to the signal that ended the job script
_TERMINATED, _FINISHED = "91", "92"  # substates: the job was deleted; its script ended with exit code 0
_MIB = {"": 2**-20, "K": 2**-10, "M": 1.0, "G": 2.0**10, "T": 2.0**20}


def read_records(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the id and the attributes of each job whose record is complete; a truncated one lacks its end.

    A long value continues on lines that begin with a tab. If an attribute occurs twice, the first one counts: the
    second is part of the user's own variables.
    """
    parts = _JOB.split(text.replace("\n\t", ""))
    for job_id, block in zip(parts[1::2], parts[2::2], strict=True):
        attributes: dict[str, str] = {}
        for name, value in _ATTRIBUTE.findall(block):
            attributes.setdefault(name, value.strip())
        if "job_state" in attributes and ("Submit_Host" in attributes or block.endswith("\n\n")):
            yield job_id, attributes


def read_status(job: JobRef, found: Mapping[str, str]) -> JobStatus:
    """Return a job's status; an unexpected state is ``UNKNOWN``."""
    letter = found["job_state"]
    over = letter in _OVER
    state = _end(found) if over else _STATES.get(letter, State.UNKNOWN)
    code = _exit_status(found) if over else None
    reason, meaning = _reason(letter, found) if state.waits else (None, None)
    started = _iso(found.get("stime"))
    return JobStatus(
        job,
        state,
        reason=reason,
        meaning=meaning,
        node=_first_host(found.get("exec_host")),
        start=_iso(found.get("estimated.start_time")) if state.waits else started,
        exit_code=code if code is not None and 0 <= code < _SIGNALLED else None,
        signal=code - _SIGNALLED if code is not None and _SIGNALLED < code < _SIGNALLED + 65 else None,
        by=_deleted_by(found) if state is State.CANCELLED else None,
        partition=found.get("queue"),
        account=found.get("Account_Name") or found.get("project"),
        walltime=found.get("Resource_List.walltime"),
        ends=_iso(found.get("obittime")) if over else None,
    )


def _end(found: Mapping[str, str]) -> State:
    """Return how a job ended.

    A job without an exit code was deleted before it started, or PBS lost track of it: then its substate decides.
    """
    code = _exit_status(found)
    deleted = found.get("substate") == _TERMINATED or " terminated" in found.get("comment", "")
    if code is None:
        return State.CANCELLED if deleted else State.COMPLETED if found.get("substate") == _FINISHED else State.FAILED
    if code == 0:
        return State.COMPLETED
    if code == _WALLTIME:
        return State.TIMEOUT
    if code in _MEMORY:
        return State.OUT_OF_MEMORY
    if code > _SIGNALLED and not deleted and _used_its_time(found):
        return State.TIMEOUT
    if deleted or code in (_SIGNALLED + 9, _SIGNALLED + 15):
        return State.CANCELLED
    return State.FAILED


def _used_its_time(found: Mapping[str, str]) -> bool:
    used, limit = (_seconds(found.get(f"{name}.walltime")) for name in ("resources_used", "Resource_List"))
    return used is not None and limit is not None and used >= limit


def _exit_status(found: Mapping[str, str]) -> int | None:
    text = found.get("Exit_status", "")
    return int(text) if re.fullmatch(r"-?\d{1,5}", text, re.A) else None


def _deleted_by(found: Mapping[str, str]) -> str | None:
    match = re.search(r" terminated by ([\w.-]+)@", found.get("comment", ""), re.A)
    return match[1] if match else None


def _reason(letter: str, found: Mapping[str, str]) -> tuple[str | None, Meaning | None]:
    """Return why a job is pending, in PBS's words, and what they mean."""
    if letter == "W":
        return "BeginTime", None
    holds = found.get("Hold_Types", "n")
    if letter == "H":
        if "depend" in found:
            return "Dependency", Meaning("waits for another job")
        if "u" in holds:
            return "hold", Meaning("is held", "release it with: qrls JOB")
        return "hold", Meaning("is held by an operator", "ask the cluster's support")
    comment = found.get("comment")
    if comment is None:
        return None, None
    never, _, why = comment.partition("Can Never Run: ")
    if why and not never:
        return comment, Meaning(_sentence(why), "ask for less, or for another queue with -p", never=True)
    return comment, Meaning(_sentence(comment.removeprefix("Not Running: ")))


def _sentence(text: str) -> str:
    found = re.match(
        r"Insufficient amount of resource: ([\w.-]+) \(R: (\S+) A: (\S+)(?: T: (\S+?)\)?)?\)?$", text, re.A
    )
    if found:
        of = f" of {found[4]}" if found[4] else ""
        return f"it asks for {found[1]}={found[2]}, and {found[3]}{of} is free"
    if text.startswith("Not enough free nodes available"):
        return "waits until enough of what it asks for is free"
    return f"the scheduler says “{text}”"


def read_use(job: JobRef, found: Mapping[str, str], gpu: str) -> AccountingRecord:
    """Return what a job was allocated and used; ``gpu``: the name of the resource for GPUs."""
    status = read_status(job, found)
    wall, cores = _seconds(found.get("resources_used.walltime")), whole_number(found.get("Resource_List.ncpus"))
    memory, gpus = _mib(found.get("Resource_List.mem")), whole_number(found.get(f"Resource_List.{gpu}")) or 0
    return AccountingRecord(
        job,
        status.state,
        wall=wall,
        walltime=_seconds(found.get("Resource_List.walltime")),
        cores=cores,
        nodes=whole_number(found.get("Resource_List.nodect")),
        gpus=gpus,
        partition=status.partition,
        cpu_used=_seconds(found.get("resources_used.cput")),
        cpu_reserved=None if wall is None or cores is None else wall * cores,
        memory_peak=_mib(found.get("resources_used.mem")) or None,
        memory_limit=memory,
        memory_requested=memory,
        cores_requested=cores,
        gpus_requested=gpus,
        complete=status.state.ended,
    )


#: what the attributes mean that are shown for a job, by qstat's names
MEANINGS = {
    "Exit_status": "the script's exit code; below 0: PBS ended it; over 256: the signal that ended it, plus 256",
    "comment": "what PBS says about it",
    "queue": "the queue that it waited and ran in",
    "Account_Name": "the account that it is charged to",
    "project": "the project that it is charged to",
    "qtime": "when it was queued",
    "stime": "when it began",
    "resources_used.walltime": "how long it ran",
    "Resource_List.walltime": "the longest that it was allowed to run",
    "exec_host": "where it ran",
    "Resource_List.ncpus": "the cores that it was allocated",
    "resources_used.cput": "the CPU time that its processes used",
    "Resource_List.mem": "the memory that it asked for",
    "resources_used.mem": "the most memory that it had",
    "Resource_List.select": "all that it asked for",
}


def read_accounts(job: JobRef, found: Mapping[str, str], gpu: str) -> JobAccounts:
    """Return all that is reported about a job; ``gpu``: the name of the resource for GPUs."""
    columns = {name: found.get(name, "") for name in MEANINGS}
    if columns["project"] == "_pbs_project_default":
        columns["project"] = ""
    record = read_use(job, found, gpu)
    names = {"JobName": found.get("Job_Name", ""), "State": record.state.name}
    return JobAccounts(record, {**columns, **names}, meanings=MEANINGS)


def _first_host(text: str | None) -> str | None:
    """Return the first host of ``node1/0*2+node2/0``."""
    match = re.match(r"([A-Za-z0-9][\w.-]*)/", text or "", re.A)
    return match[1] if match else None


def _seconds(text: str | None) -> int | None:
    """Return the seconds of ``00:05:00``."""
    match = re.fullmatch(r"(\d{1,6}):(\d\d):(\d\d)", text or "", re.A)
    return int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3]) if match else None


def _mib(text: str | None) -> float | None:
    match = re.fullmatch(r"(\d{1,15})([KMGT]?)B", (text or "").upper(), re.A)
    return int(match[1]) * _MIB[match[2]] if match else None


def _iso(text: str | None) -> str | None:
    """Return PBS's time in ISO format, without a zone, on the cluster's clock."""
    try:
        return datetime.strptime(text or "", _MOMENT).isoformat()
    except ValueError:
        return None
