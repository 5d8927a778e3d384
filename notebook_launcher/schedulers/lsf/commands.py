"""IBM Spectrum LSF: ``bsub``, ``bjobs``, ``bhist`` and ``bkill`` as text.

Written from recorded output of LSF's and openlava's commands, and tested with a mock of them; never tested on a cluster
that runs LSF.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from notebook_launcher.core.bash_options import PLAIN_BASH
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import LauncherError, SubmitUncertain
from notebook_launcher.core.request import Request
from notebook_launcher.core.text import whole_number
from notebook_launcher.schedulers.base import (
    AccountingRecord,
    JobAccounts,
    JobRef,
    JobStatus,
    Scheduler,
    State,
    Submission,
)
from notebook_launcher.schedulers.lsf import submit_errors
from notebook_launcher.schedulers.lsf.accounting import read_accounts
from notebook_launcher.schedulers.lsf.cluster_info import LsfInfo
from notebook_launcher.schedulers.lsf.long_format import find_long, read_long, unfolded
from notebook_launcher.schedulers.lsf.termination_reasons import ended
from notebook_launcher.schedulers.lsf.translation import TRANSLATED, Translation
from notebook_launcher.schedulers.translation import UNSUBMITTED, signal_of, with_job

# the reason comes last: it is free text, and may continue on further lines
_FIELDS = (
    *("jobid", "stat", "queue", "exec_host", "start_time", "estimated_start_time", "finish_time", "proj_name"),
    *("runtimelimit", "exit_code", "exit_reason", "pend_reason"),
)
_APART = "^"
_FORMAT = f'{" ".join(_FIELDS)} delimiter="{_APART}"'
_TO_FIND = f'jobid job_name command delimiter="{_APART}"'

# ``bjobs -o``, or ``bjobs -l`` in older versions without that flag. If the field of the estimated start is not known
# either, start_time takes its place, which has no value while a job is pending.
_QUERY = (
    f'{PLAIN_BASH}ask() {{ {{ errors=$(bjobs -noheader -o "$@" 2>&1 >&3); code=$?; }} 3>&1; }}; ask "$0" "$@"; '
    "[[ $errors != *'option -- '*o* ]] || exec bjobs -l \"$@\"; "
    "[[ $code == 0 || $errors != *estimated_start* && $errors != *[Ff]ield* ]] || "
    'ask "${0/estimated_start_time/start_time}" "$@"; '
    "[[ -z $errors ]] || printf '%s\\n' \"$errors\" >&2; exit $code"
)
_SUBMITTED = re.compile(r"Job <(\d{1,12})> is submitted", re.A)
_NO_JOBS = re.compile(r"No (?:unfinished )?job found", re.I)
_GONE = re.compile(r"Job <\d+> is not found", re.I)
_WAITS = re.compile(r"Please wait \.\.\.|still trying", re.I)

# from the manual of bjobs, JOB STATUS. UNKWN: the node is not reachable, but may come back. ZOMBI: it will not.
_STATES = {
    "PEND": State.PENDING,
    "PSUSP": State.PENDING,
    "PROV": State.PENDING,
    "WAIT": State.PENDING,
    "RUN": State.RUNNING,
    "USUSP": State.SUSPENDED,
    "SSUSP": State.SUSPENDED,
    "DONE": State.COMPLETED,
    "EXIT": State.FAILED,
    "ZOMBI": State.NODE_FAIL,
    "UNKWN": State.UNKNOWN,
}
# the end of a job in bhist's output
_ENDED = re.compile(
    r"Done successfully|Exited(?: with exit code (?P<code>\d{1,3})| by signal (?P<signal>\d{1,3}))?", re.A
)

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# "Dec 28 19:56", "Jan  7 09:59 L" (L: due to its run limit), with LSB_DISPLAY_YEAR "Mar 15 18:22:37 2026"
_MOMENT = re.compile(r"([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d)(?::(\d\d))?(?: (\d{4}))?(?: [A-Z])?", re.A)


class Lsf(Scheduler):
    """LSF's commands, and parsers of their output. It cannot run steps inside a job."""

    name = "lsf"
    title = "LSF"
    several_nodes = False
    directive = "#BSUB"
    programs = ("bsub", "bjobs", "bkill")
    version_command = ("bsub", "-V")
    translated_flags = tuple(sorted(TRANSLATED))
    lists_flags = "for LSF in docs/lsf.md"
    lists_partitions = "bqueues -l"
    lists_past_jobs = "bhist -a"

    def __init__(self) -> None:
        self.cluster_info = LsfInfo(lambda request: Translation(request, UNSUBMITTED).arguments())

    def submit(self, request: Request, submission: Submission) -> list[str]:
        """Return the ``bsub`` command. Raises ``UsageError`` for a flag that cannot be translated.

        The job script and its argument are one word, which LSF passes to a shell on the node. A login shell runs them,
        so that modules work as on the login node.
        """
        words = Translation(request, submission).arguments()
        return ["bsub", *words, shlex.join(["bash", "-l", submission.script, submission.directory])]

    def submit_by_hand(self, script: str) -> str:
        """Return ``bsub`` with the script as its input, which reads the ``#BSUB`` lines."""
        return f"bsub < {script}"

    def read_submit(self, answer: CommandResult) -> JobRef:
        """Parse ``Job <7> is submitted to queue <normal>.``; LSF may print other messages around it.

        Also raises ``SubmitUncertain``: success without a job id.
        """
        if answer.exit_code != 0:
            raise self.explain_refusal(answer)
        if match := _SUBMITTED.search(answer.stdout) or _SUBMITTED.search(answer.stderr):
            return JobRef(match[1])
        raise SubmitUncertain(
            "bsub took the job, but its number could not be read.",
            why=f"It printed: {answer.stdout.strip() or 'nothing'}",
            hint="look with: bjobs   and end it with: bkill JOB",
        )

    def explain_refusal(self, answer: CommandResult) -> LauncherError:
        """Return the error for bsub's message, with the message and what it means."""
        return submit_errors.explain(answer)

    def query(self, jobs: Sequence[JobRef]) -> list[str]:
        """Return ``bjobs`` for these jobs; it includes those that ended within the last hour (CLEAN_PERIOD)."""
        return ["bash", "-c", _QUERY, _FORMAT, *(job.id for job in jobs)]

    def query_own(self, cluster: str | None) -> list[str]:
        """Return ``bjobs`` for all of the user's jobs, including those that ended within the last hour."""
        return ["bash", "-c", _QUERY, _FORMAT, "-a"]

    def read_query(self, jobs: Sequence[JobRef], answer: CommandResult) -> dict[str, JobStatus] | None:
        """Parse the output of bjobs.

        bjobs fails if one of the jobs is unknown, but still lists the others. When LSF is busy, it may leave out some
        or all running jobs and still succeed.
        """
        wanted = {job.id for job in jobs}
        rows = (*_rows(answer.stdout), *read_long(answer.stdout))
        found = {row["jobid"]: _status(row) for row in rows if row["jobid"] in wanted}
        message = f"{answer.stderr}\n{answer.stdout}"
        if found or answer.exit_code == 0 or _GONE.search(message) or _NO_JOBS.search(message):
            return found
        return None

    def has_forgotten(self, job: JobRef, answer: CommandResult) -> bool:
        """Return whether bjobs says that there is no such job; its absence from a list does not mean that."""
        return f"Job <{job.id}> is not found" in answer.stderr

    def history(self, job: JobRef) -> list[str]:
        """Return ``bhist`` for one job, which reads LSF's newest event log."""
        return ["bhist", "-l", job.id]

    def history_answers(self, answer: CommandResult) -> bool:
        """Return whether bhist could read the event log, even if the job is not in it."""
        return answer.exit_code == 0 or "No matching job found" in f"{answer.stderr}\n{answer.stdout}"

    def history_typed(self, job: JobRef) -> str:
        """Return ``bhist``."""
        return f"bhist -l {job.id}"

    def read_history(self, job: JobRef, answer: CommandResult) -> JobStatus | None:
        """Parse from its last event how the job ended; ``None`` if it has not ended, or is not known."""
        return _past(job, unfolded(answer.stdout)) if answer.exit_code == 0 else None

    def accounting(self, job: JobRef) -> list[str]:
        """Return ``bacct`` for one job, which reads LSF's newest accounting file."""
        return ["env", "LC_ALL=C", "bacct", "-l", job.id]

    def read_accounting(self, job: JobRef, answer: CommandResult) -> AccountingRecord | None:
        """Parse what the job used; ``None`` while it runs."""
        accounts = self.read_report(job, answer)
        return accounts.record if accounts else None

    def report(self, job: JobRef) -> list[str]:
        """Return the same command as ``accounting``."""
        return self.accounting(job)

    def read_report(self, job: JobRef, answer: CommandResult) -> JobAccounts | None:
        """Parse all that bacct reports; ``None`` while the job runs."""
        return read_accounts(job, answer.stdout) if answer.exit_code == 0 else None

    def log_files(self, flags: Mapping[str, str | None], job: JobRef, *, user: str, node: str | None) -> list[str]:
        """Return the files of ``--error`` and ``--output``."""
        names = (with_job(flags.get(name) or "", job.id) for name in ("error", "output"))
        return [name for name in names if name and "%" not in name]

    def cancel(self, job: JobRef) -> list[str]:
        """Return ``bkill``."""
        return ["bkill", job.id]

    def find(self, session_id: str, request: Request) -> list[str]:
        """Return ``bjobs`` for the user's jobs, with their commands, since the user may have chosen the job's name."""
        return ["bash", "-c", _QUERY, _TO_FIND]

    def read_find(self, session_id: str, answer: CommandResult) -> list[JobRef] | None:
        """Return the jobs whose name is the session's id, or whose script is in its directory."""
        if answer.exit_code != 0:
            return [] if _NO_JOBS.search(f"{answer.stderr}\n{answer.stdout}") else None
        found = [JobRef(job_id) for job_id in find_long(answer.stdout, session_id)]
        for line in answer.stdout.splitlines():
            job_id, _, rest = line.strip().partition(_APART)
            name, _, command = rest.partition(_APART)
            if job_id.isdecimal() and (name == session_id or f"/{session_id}/" in command):
                found.append(JobRef(job_id))
        return found


# --- parsing -------------------------------------------------------------------------------------------------------


def _rows(text: str) -> Iterator[dict[str, str]]:
    """Yield the rows of ``bjobs -o``; messages such as ``Please wait ...`` are skipped."""
    row: dict[str, str] | None = None
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(_APART, len(_FIELDS) - 1)]
        if len(fields) == len(_FIELDS) and fields[0].isdecimal():
            if row:
                yield row
            row = dict(zip(_FIELDS, fields, strict=True))
        elif row and _APART not in line and not _WAITS.search(line):
            row["pend_reason"] = f"{row['pend_reason']} {line.strip()}".strip()
    if row:
        yield row


def _status(row: Mapping[str, str]) -> JobStatus:
    values = {name: None if value in ("", "-") else value for name, value in row.items()}
    state, code = _STATES.get(row["stat"], State.UNKNOWN), whole_number(values["exit_code"])
    node = _first_host(values["exec_host"])
    if row["stat"] == "EXIT":
        state = ended(values["exit_reason"] or "", code, ran=node is not None)
    start, finish = (_iso(values[name]) for name in ("start_time", "finish_time"))
    return JobStatus(
        JobRef(row["jobid"]),
        state,
        reason=_reason(values["pend_reason"]) if state.waits else None,
        node=node,
        start=_iso(values["estimated_start_time"]) if state.waits else start,
        # before a job has ended, its exit code is meaningless
        exit_code=(0 if state is State.COMPLETED else code) if state.ended else None,
        signal=signal_of(code) if state.ended else None,
        partition=values["queue"],
        account=values["proj_name"],
        walltime=_limit(values["runtimelimit"]),
        ends=None if state.waits else finish,
    )


def _past(job: JobRef, text: str) -> JobStatus | None:
    """Return how a job ended according to bhist; only its last run counts, since a job may be requeued."""
    known, _, events = text.partition(": Submitted from")  # the user may have chosen any text before that
    ends = list(_ENDED.finditer(events))
    if f"Job <{job.id}>" not in known or not ends:
        return None
    hosts = re.findall(r"(?:Dispatched|Started)\b[^<;]*<([^>]+)>", events)
    node = _first_host(hosts[-1]) if hosts else None
    last = ends[-1]
    if last[0] == "Done successfully":
        return JobStatus(job, State.COMPLETED, node=node, exit_code=0)
    code = int(last["code"]) if last["code"] else 128 + int(last["signal"]) if last["signal"] else None
    return JobStatus(
        job,
        ended(events[last.start() :], code, ran=node is not None),
        node=node,
        exit_code=code,
        signal=signal_of(code),
    )


def _reason(text: str | None) -> str | None:
    """Return why it is pending, in LSF's words; a begin time is reported as ``BeginTime``, as with all schedulers."""
    if text is None:
        return None
    text = " ".join(text.split()).rstrip(";").strip()
    return "BeginTime" if text.startswith("The job has a specified start time") else text or None


def _first_host(text: str | None) -> str | None:
    """Return the first host of ``node1:node1`` or ``4*node1:node2``."""
    match = re.match(r"\s*(?:\d+\*)?([^\s:]+)", text or "")
    return match[1] if match else None


def _limit(text: str | None) -> str | None:
    """Return a run limit, which LSF gives in minutes (``1440.0``), as ``24:00:00``."""
    match = re.match(r"(\d{1,9})(?:\.\d+)?(?![\d:])", text or "", re.A)
    return f"{int(match[1]) // 60}:{int(match[1]) % 60:02d}:00" if match else None


def _iso(text: str | None, now: datetime | None = None) -> str | None:
    """Return LSF's time in ISO format, without a zone, on the cluster's clock; a missing year is the nearest one."""
    match = _MOMENT.fullmatch((text or "").strip())
    if match is None or match[1] not in _MONTHS:
        return None
    now = now or datetime.now()
    near = []
    month, (day, hour, minute, second) = _MONTHS.index(match[1]) + 1, (int(match[at] or 0) for at in (2, 3, 4, 5))
    for year in [int(match[6])] if match[6] else [now.year - 1, now.year, now.year + 1]:
        try:
            near.append(datetime(year, month, day, hour, minute, second))
        except ValueError:  # the 29th of February
            continue
    return min(near, key=lambda at: abs(at - now)).isoformat() if near else None
