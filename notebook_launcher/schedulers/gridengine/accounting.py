"""The output of ``qacct -j`` for a finished job: how it ended, and what it used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone

from notebook_launcher.core.text import whole_number
from notebook_launcher.schedulers.base import AccountingRecord, JobAccounts, JobRef, JobStatus, State
from notebook_launcher.schedulers.gridengine.translation import SiteResources
from notebook_launcher.schedulers.translation import signal_of

_RULE = re.compile(r"^={20,}$", re.M)
_LINE = re.compile(r"^([a-z_]+) +(.*?) *$", re.M | re.A)
_MOMENT = "%a %b %d %H:%M:%S %Y"
_LIMIT = 37  # “qmaster enforced h_rt, h_cpu, or h_vmem limit”
_AFTER_JOB = 100  # “assumedly after job”: it was killed by a signal, as by qdel
_RESCHEDULED = 25
_NOTIFIED = 140  # the job script's exit code after SIGUSR2, which -notify requests
_MIB = {"": 2**-20, "K": 2**-10, "M": 1.0, "G": 2.0**10, "T": 2.0**20}


def read_end(job: JobRef, text: str, site: SiteResources) -> JobStatus | None:
    """Return how the job's last run ended, ``None`` if it is not reported. A requeued job has several records."""
    record = _last_record(job, text)
    failed, code = (_number(record.get(name)) for name in ("failed", "exit_status"))
    if failed is None or code is None or failed == _RESCHEDULED:
        return None
    return JobStatus(
        job,
        _state(record, failed, code, site),
        node=_known(record.get("hostname")),
        start=_iso(record.get("start_time")),
        ends=_iso(record.get("end_time")),
        exit_code=code,
        signal=signal_of(code),
        partition=_known(record.get("qname")),
        account=_known(record.get("project")),
    )


def _state(record: Mapping[str, str], failed: int, code: int, site: SiteResources) -> State:
    wall, limit = _wall(record), _requested(record, "h_rt")
    used_up = wall is not None and limit is not None and wall >= int(limit)
    memory, peak = _memory_limit(record, "h_vmem", site), _mib(record.get("maxvmem"))
    over_memory = memory is not None and peak is not None and peak >= memory
    if failed in (_LIMIT, _AFTER_JOB) and over_memory and not used_up:
        return State.OUT_OF_MEMORY
    if failed == _LIMIT or (used_up and code != 0):
        return State.TIMEOUT
    if failed == _AFTER_JOB and code in (137, _NOTIFIED, 143):
        return State.CANCELLED
    if failed == 0 and code == _NOTIFIED:
        return State.TIMEOUT if used_up else State.CANCELLED
    return State.COMPLETED if failed == code == 0 else State.FAILED


def read_use(job: JobRef, text: str, site: SiteResources) -> AccountingRecord | None:
    """Return what the job used, without its memory: qacct reports only how much was mapped."""
    record, status = _last_record(job, text), read_end(job, text, site)
    if status is None:
        return None
    wall, slots = _wall(record), _slots(record)
    gpus, memory = _requested(record, site.gpu) or 0, _memory_limit(record, site.memory, site)
    return AccountingRecord(
        job,
        status.state,
        wall=wall,
        walltime=_requested(record, "h_rt"),
        cores=slots,
        nodes=1,
        gpus=gpus,
        partition=status.partition,
        cpu_used=_seconds(record.get("cpu")),
        cpu_reserved=None if wall is None or slots is None else wall * slots,
        memory_limit=memory,
        memory_requested=memory,
        gpus_requested=gpus,
    )


#: what the values mean, by qacct's names
MEANINGS = {
    "failed": "why Grid Engine ended it or could not start it; 0: neither happened",
    "exit_status": "the script's exit code; over 128: the signal that ended it, plus 128",
    "qname": "the queue that it ran in",
    "project": "the project that it is charged to",
    "qsub_time": "when it was submitted, in UTC",
    "start_time": "when it began, in UTC",
    "ru_wallclock": "how long it ran, in seconds",
    "hostname": "where it ran",
    "slots": "the cores that it was allocated",
    "cpu": "the CPU time that its processes used, in seconds",
    "maxvmem": "the most memory that it had mapped, which is more than it used",
    "category": "what it asked for",
}


def read_accounts(job: JobRef, text: str, site: SiteResources) -> JobAccounts | None:
    """Return all that is reported about the job, ``None`` if it has not ended, or is not known."""
    use, record = read_use(job, text, site), _last_record(job, text)
    if use is None:
        return None
    columns = {name: _known(record.get(name)) or "" for name in MEANINGS}
    return JobAccounts(
        use, {**columns, "JobName": record.get("jobname", ""), "State": use.state.name}, meanings=MEANINGS
    )


def _last_record(job: JobRef, text: str) -> dict[str, str]:
    """Return the fields of this job's last record that is complete: ``maxvmem`` comes near its end."""
    found: dict[str, str] = {}
    for block in _RULE.split(text)[1:]:
        fields = dict(_LINE.findall(block))
        if fields.get("jobnumber") == job.id and "maxvmem" in fields:
            found = fields
    return found


def _number(text: str | None) -> int | None:
    """Return the leading number of ``100 : assumedly after job`` or ``137  (Killed)``."""
    match = re.match(r"(\d{1,5})(?: |$)", text or "", re.A)
    return int(match[1]) if match else None


def _slots(record: Mapping[str, str]) -> int | None:
    return whole_number(record.get("slots"))


def _wall(record: Mapping[str, str]) -> int | None:
    """Return the seconds of ``6s`` or ``6``."""
    seconds = _seconds(record.get("ru_wallclock"))
    return None if seconds is None else int(seconds)


def _seconds(text: str | None) -> float | None:
    match = re.fullmatch(r"(\d{1,12}(?:\.\d+)?)s?", text or "", re.A)
    return float(match[1]) if match else None


def _requested(record: Mapping[str, str], resource: str) -> int | None:
    """Return the requested amount of a resource, from the job's category: ``-l gpu=1,h_rt=60,h_vmem=2G -pe smp 3``."""
    match = re.search(rf"(?:^|[ ,]){re.escape(resource)}=(\d{{1,12}})(?=[ ,]|$)", record.get("category", ""), re.A)
    return int(match[1]) if match else None


def _memory_limit(record: Mapping[str, str], resource: str, site: SiteResources) -> float | None:
    """Return the memory requested for the whole job, in MiB."""
    match = re.search(
        rf"(?:^|[ ,]){re.escape(resource)}=([\d.]+[KMGTkmgt]?)(?=[ ,]|$)", record.get("category", ""), re.A
    )
    memory = _mib(match[1]) if match else None
    return memory if memory is None or site.memory_per == "job" else memory * (_slots(record) or 1)


def _mib(text: str | None) -> float | None:
    match = re.fullmatch(r"(\d{1,15}(?:\.\d+)?)([KMGT]?)B?", (text or "").upper(), re.A)
    return float(match[1]) * _MIB[match[2]] if match else None


def _iso(text: str | None) -> str | None:
    """Return ``Fri Nov 27 17:53:35 2026`` (in UTC, as requested) in ISO format; ``None`` for ``-/-``: not started."""
    try:
        return datetime.strptime(text or "", _MOMENT).replace(tzinfo=timezone.utc).isoformat()
    except ValueError:
        return None


def _known(text: str | None) -> str | None:
    return None if text in (None, "", "NONE", "none", "UNKNOWN") else text
