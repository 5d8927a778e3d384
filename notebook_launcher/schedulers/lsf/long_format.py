"""Parses ``bjobs -l`` into the fields of ``bjobs -o``, a flag that older versions and openlava do not have."""

from __future__ import annotations

import re
from collections.abc import Iterator

_JOB = re.compile(
    r"^Job <(?P<jobid>\d{1,12})>(?:, Job Name <.*?>)?, User <[^<>]*>, Project <(?P<proj_name>[^<>]*)>"
    r"(?:, [A-Z][\w ]*<[^<>]*>)*?, Status <(?P<stat>[A-Z]+)>, Queue <(?P<queue>[^<>]*)>",
    re.M | re.A,
)
_EVENT = re.compile(
    r"^[A-Z][a-z]{2} (?P<at>[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d)(?: \d{4})?: (?P<what>.*)$", re.M | re.A
)
_STARTED = re.compile(r"(?:\[\d+\] )?[Ss]tarted (?:\d+ Task\(s\) )?on (?:Host\(s\) )?<(?P<host>[^<>]+)>", re.A)
_ENDED = re.compile(r"Exited(?: with exit code (?P<code>\d{1,3})| by signal (?P<signal>\d{1,3}))?", re.A)
_LIMIT = re.compile(r"^ RUNLIMIT\s*\n\s*(?P<minutes>\d{1,9}(?:\.\d+)?) min of ", re.M | re.A)
_REASONS = re.compile(r"^ ?PENDING REASONS:\s*\n(?P<text>(?:.*\S.*\n)+)", re.M)
_EVENTS = ("exec_host", "start_time", "estimated_start_time", "finish_time")
_TERMINATED = re.compile(r"TERM_[A-Z_]+")


def unfolded(text: str) -> str:
    """Join the lines that LSF wraps at 80 columns: a continuation line is indented by 21 or 26 spaces.

    Lines are wrapped anywhere, so a continuation may begin with a space of its own.
    """
    return re.sub(r"\n(?: {26}| {21}| {18,20}(?! ))", "", text)


def read_long(text: str) -> Iterator[dict[str, str]]:
    """Yield each complete job: pending, running or finished."""
    text = unfolded(text)
    found = list(_JOB.finditer(text))
    for match, following in zip(found, [*found[1:], None], strict=False):
        block = text[match.end() : following.start() if following else len(text)]
        if " SCHEDULING PARAMETERS:" in block:  # the last section of a job
            yield _row(match.groupdict(), block)


def find_long(text: str, session_id: str) -> list[str]:
    """Return the ids of the jobs whose name is the session's, or whose command is in its directory."""
    heads = re.findall(r"^Job <(\d{1,12})>, (.*)$", unfolded(text), re.M | re.A)
    marks = f"Job Name <{session_id}>,", f"/{session_id}/"
    return [job_id for job_id, head in heads if any(mark in head for mark in marks)]


def _row(head: dict[str, str], block: str) -> dict[str, str]:
    row = {**head, **dict.fromkeys((*_EVENTS, "exit_code"), "-")}
    for event in _EVENT.finditer(block):
        if started := _STARTED.match(event["what"]):
            row |= {"exec_host": started["host"], "start_time": event["at"]}
        elif event["what"].startswith("Will be started"):  # LSF's estimate for a pending job
            row["estimated_start_time"] = event["at"]
        elif event["what"].startswith("Done successfully"):
            row |= {"exit_code": "0", "finish_time": event["at"]}
        elif ended := _ENDED.match(event["what"]):
            signal = str(128 + int(ended["signal"])) if ended["signal"] else "-"
            row |= {"exit_code": ended["code"] or signal, "finish_time": event["at"]}
    limit, why, reasons = _LIMIT.search(block), _TERMINATED.search(block), _REASONS.search(block)
    row["runtimelimit"] = limit["minutes"] if limit else "-"
    row["exit_reason"] = why[0] if why else "-"
    row["pend_reason"] = " ".join(reasons["text"].split()) if reasons else "-"
    return row
