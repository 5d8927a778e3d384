"""Parses what ``qstat`` prints: the list of jobs as XML, and the details of some of them.

It does not use an XML parser: the input is untrusted, and qstat 8.1.9 writes ``%lt;`` for ``<``.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.text import whole_number
from notebook_launcher.schedulers.base import JobRef, JobStatus, State
from notebook_launcher.schedulers.gridengine.pending_reasons import read_reason

#: separates the list from the details in the output of a query for both
DETAILS = "--- details of jobs ---"

_ENTRY = re.compile(r'<job_list state="[a-z]+">((?:(?!<job_list).)*?)</job_list>', re.S)
_FIELD = re.compile(r'<([A-Za-z_]+)(?: name="([^"<>]*)")?[^<>]*>([^<>]*)</\1>')
_END = re.compile(r"</job_info>\s*$")
_STATES = re.compile(r"[dEhrRsStTwq]{1,6}")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?", re.A)
_RULE = re.compile(r"^={20,}$", re.M)
_KEY = re.compile(r"^(job_number|job_args|script_file|scheduling info|error reason)[ \d]*:\s*(.*)$")


class ListedJob(Frozen):
    """One job of the list. ``state``: in qstat's letters; ``start``: ISO in UTC; ``walltime``: in seconds."""

    id: str
    state: str
    queue: str | None = None
    node: str | None = None
    start: str | None = None
    walltime: int | None = None
    name: str = ""


class Details(Frozen):
    """The useful part of ``qstat -j`` for one job; ``info``: the scheduler's lines on why it is pending."""

    id: str
    command: str = ""
    info: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


class Listing(Frozen):
    """The list. ``jobs``, ``details``: by job id; ``unknown``: the ids of jobs that qstat says do not exist."""

    jobs: Mapping[str, ListedJob]
    details: Mapping[str, Details]
    unknown: frozenset[str] = frozenset()


def read_listing(text: str) -> Listing | None:
    """Parse the list and the details; ``None`` if the list is incomplete, since a job missing from it may exist."""
    head, _, rest = text.partition(f"{DETAILS}\n")
    if "<job_info" not in head or not _END.search(head):
        return None
    jobs = {job.id: job for job in map(_listed, read_entries(head))}
    details = {one.id: one for one in _details(rest)}
    return Listing(jobs, details, _unknown(rest))


def read_entries(text: str) -> Iterator[dict[str, str]]:
    """Yield the fields of each job in a list by their names; a requested resource is called ``hard_request h_rt``."""
    for entry in _ENTRY.finditer(text):
        fields: dict[str, str] = {}
        for name, key, value in _FIELD.findall(entry[1]):
            fields.setdefault(f"{name} {key}".strip() if name == "hard_request" else name, html.unescape(value).strip())
        if re.fullmatch(r"\d{1,12}", fields.get("JB_job_number", ""), re.A):
            yield fields


def _listed(fields: Mapping[str, str]) -> ListedJob:
    job_id, state = fields["JB_job_number"], fields.get("state", "")
    queue, _, host = fields.get("queue_name", "").partition("@")
    start = _MOMENT.fullmatch(fields.get("JAT_start_time", ""))
    return ListedJob(
        job_id,
        state if _STATES.fullmatch(state) else "",
        queue or None,
        host or None,
        f"{start[1]}+00:00" if start else None,
        whole_number(fields.get("hard_request h_rt")),
        fields.get("JB_name", ""),
    )


def _details(text: str) -> Iterator[Details]:
    for block in _RULE.split(text)[1:]:
        values: dict[str, list[str]] = {}
        key = ""
        for line in block.splitlines():
            if match := _KEY.match(line):
                key = match[1]
                values.setdefault(key, []).append(match[2].strip())
            elif key == "scheduling info" and line.startswith(" " * 20):
                values[key].append(line.strip())
            else:
                key = ""
        first = {name: found[0] for name, found in values.items()}
        if re.fullmatch(r"\d{1,12}", first.get("job_number", ""), re.A):
            yield Details(
                first["job_number"],
                f"{first.get('script_file', '')},{first.get('job_args', '')}",
                tuple(values.get("scheduling info", ())),
                tuple(values.get("error reason", ())),
            )


def _unknown(text: str) -> frozenset[str]:
    """Return the ids under ``Following jobs do not exist``, each on a line of its own."""
    found: set[str] = set()
    for block in re.findall(r"^Following jobs do not exist[^\n]*\n((?:\s*\d+\s*(?:\n|$))+)", text, re.M | re.A):
        found |= set(block.split())
    return frozenset(found)


def status_of(job: ListedJob, details: Details | None) -> JobStatus:
    """Return a listed job's status; an unexpected state is ``UNKNOWN``."""
    state = state_of(job.state)
    reason, meaning = read_reason(job.state, details.info if details else (), details.errors if details else ())
    return JobStatus(
        JobRef(job.id),
        state,
        reason=reason if state.waits else None,
        meaning=meaning if state.waits else None,
        node=job.node,
        start=None if state.waits else job.start,
        partition=job.queue,
        walltime=_walltime(job.walltime),
        ends=_ends(job) if state in (State.RUNNING, State.SUSPENDED) else None,
    )


def state_of(letters: str) -> State:
    """Return the state for qstat's letters (its manual, *state*); a job in an error state (``E``) counts as pending."""
    if not letters:
        return State.UNKNOWN
    if "d" in letters:
        return State.COMPLETING  # being deleted: it has not ended yet
    if set(letters) & set("wqE"):  # also Rq: requeued
        return State.PENDING
    if set(letters) & set("sST"):
        return State.SUSPENDED
    return State.RUNNING if set(letters) & set("rt") else State.UNKNOWN


def _walltime(seconds: int | None) -> str | None:
    if seconds is None or seconds > 10**8:
        return None
    return f"{seconds // 3600}:{seconds % 3600 // 60:02d}:{seconds % 60:02d}"


def _ends(job: ListedJob) -> str | None:
    if job.start is None or job.walltime is None or job.walltime > 10**8:
        return None
    try:
        return (datetime.fromisoformat(job.start) + timedelta(seconds=job.walltime)).isoformat()
    except (ValueError, OverflowError):
        return None
