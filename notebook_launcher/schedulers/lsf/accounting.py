"""The output of ``bacct -l`` for a finished job: what it was allocated, and what it used."""

from __future__ import annotations

import re
from collections.abc import Mapping

from notebook_launcher.schedulers.base import AccountingRecord, JobAccounts, JobRef, State
from notebook_launcher.schedulers.lsf.long_format import unfolded
from notebook_launcher.schedulers.lsf.termination_reasons import ended

_HEAD = re.compile(
    r"^Job <(?P<job>\d{1,12})>(?:, Job Name <(?P<name>.*?)>)?, User <[^<>]*>, Project <(?P<project>[^<>]*)>"
    r"(?:, [A-Z][\w ]*<[^<>]*>)*?, Status <(?P<status>[A-Z]+)>, Queue <(?P<queue>[^<>]*)>",
    re.M | re.A,
)
_EVENT = re.compile(r"^[A-Z][a-z]{2} (?P<at>[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d(?: \d{4})?): (?P<what>.*)$", re.M)
_FIGURES = re.compile(
    r"^ +CPU_T +WAIT +TURNAROUND +STATUS +HOG_FACTOR +MEM +SWAP *\n"
    r" +(?P<cpu>\d{1,12}(?:\.\d+)?) +(?P<wait>\d{1,10}) +(?P<turnaround>\d{1,10}) +(?P<status>done|exit) +\S+ +"
    r"(?P<memory>\S+) +\S+ *$",
    re.M | re.A,
)
_LIMIT = re.compile(r"^ RUNLIMIT\s*\n\s*(\d{1,9})(?:\.\d+)? min\b", re.M | re.A)
_SLOTS = re.compile(r"[Aa]llocated (\d{1,6}) Slot\(s\)|^Dispatched (\d{1,6}) Task\(s\)", re.A)
_GPU = re.compile(r"^ *(?:[\w.-]+ +)?\d+ +\d+ +\S.*$", re.A)
_MIB = {"K": 2.0**-10, "M": 1.0, "G": 2.0**10, "T": 2.0**20}

#: what the values mean, by bacct's names
MEANINGS = {
    "STATUS": "done: it ended by itself, with exit code 0; exit: otherwise",
    "Queue": "the queue that it waited and ran in",
    "Project": "the project that it is charged to",
    "Submitted": "when it was submitted",
    "Dispatched": "when, and where, it began",
    "WAIT": "how many seconds it waited in the queue",
    "TURNAROUND": "how many seconds it waited and ran",
    "RUNLIMIT": "the longest that it was allowed to run, in minutes (-W)",
    "CPU_T": "the CPU time that its processes used, in seconds",
    "MEM": "the most memory that it had",
}


def read_accounts(job: JobRef, text: str) -> JobAccounts | None:
    """Return what the job was allocated and used, ``None`` if that is not reported, or the output is incomplete."""
    text = text.partition("\nSUMMARY:")[0]
    whole = unfolded(text)
    head = next((match for match in _HEAD.finditer(whole) if match["job"] == job.id), None)
    if head is None:
        return None
    block = whole[head.end() :]
    following = _HEAD.search(block)
    block = block[: following.start()] if following else block
    figures = _FIGURES.search(block)
    if figures is None:
        return None
    events = [(event["at"], event["what"]) for event in _EVENT.finditer(block)]
    began = next((event for event in reversed(events) if event[1].startswith("Dispatched")), None)
    limit = _LIMIT.search(block)
    columns = {
        "JobName": head["name"] or "",
        "State": figures["status"],
        "STATUS": figures["status"],
        "Queue": head["queue"],
        "Project": head["project"],
        "Submitted": next((at for at, what in events if what.startswith("Submitted")), ""),
        "Dispatched": f"{began[0]}, {', '.join(_hosts(began[1]))}" if began else "",
        "WAIT": figures["wait"],
        "TURNAROUND": figures["turnaround"],
        "RUNLIMIT": limit[1] if limit else "",
        "CPU_T": figures["cpu"],
        "MEM": figures["memory"],
    }
    end = next((what for _, what in reversed(events) if what.startswith("Completed")), "")
    record = _record(job, columns, began[1] if began else "", end, _gpus(text, block))
    return JobAccounts(record, columns, meanings=MEANINGS)


def _record(job: JobRef, of: Mapping[str, str], began: str, end: str, gpus: int | None) -> AccountingRecord:
    wall = max(0, int(of["TURNAROUND"]) - int(of["WAIT"])) if began else None
    slots = _SLOTS.search(began)
    hosts = _hosts(began)
    cores = int(slots[1] or slots[2]) if slots else len(re.findall(r"<[^<>]+>", began.partition(",")[0])) or None
    return AccountingRecord(
        job,
        State.COMPLETED if of["STATUS"] == "done" else ended(end, None, ran=bool(began)),
        wall=wall,
        walltime=int(of["RUNLIMIT"]) * 60 if of["RUNLIMIT"] else None,
        cores=cores,
        nodes=len(hosts) or None,
        gpus=gpus,
        partition=of["Queue"] or None,
        cpu_used=float(of["CPU_T"]),
        cpu_reserved=None if wall is None or cores is None else wall * cores,
        memory_peak=_mib(of["MEM"]) or None,
    )


def _hosts(began: str) -> list[str]:
    """Return the hosts of ``Dispatched 4 Task(s) on Host(s) <4*a> <b>, Allocated …``, each once."""
    names = re.findall(r"<(?:\d+\*)?([\w.-]+)>", began.partition(",")[0], re.A)
    return list(dict.fromkeys(names))


def _gpus(text: str, block: str) -> int | None:
    """Count the rows of the GPU allocation in the unjoined lines; 0 if no GPUs were requested, else ``None``."""
    _, found, rest = text.partition("\nGPU_ALLOCATION:\n")
    if found:
        return sum(1 for line in rest.partition("\n\n")[0].splitlines() if _GPU.match(line))
    return None if "Requested GPU" in block else 0


def _mib(text: str) -> float | None:
    match = re.fullmatch(r"(\d{1,12}(?:\.\d+)?)([KMGT])", text, re.A)
    return float(match[1]) * _MIB[match[2]] if match else None
