"""Finds out how a job ended, from its own record, the scheduler and its log, as an error."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping
from datetime import datetime

from notebook_launcher.core import events
from notebook_launcher.core.errors import ConnectionLost, HostCommandFailed, LauncherError, SchedulerSilent
from notebook_launcher.core.request import Request
from notebook_launcher.core.text import one_line
from notebook_launcher.core.timestamps import parse_on_clock_of
from notebook_launcher.diagnosis import exit_causes, explain
from notebook_launcher.jobs.status import NoAnswer, query_status
from notebook_launcher.schedulers.base import JobRef, JobStatus, State
from notebook_launcher.session.context import Context, job_of
from notebook_launcher.session.record import Session, json_object

_REQUEUED = {
    State.PREEMPTED: ", because a job with a higher priority preempted it",
    State.NODE_FAIL: ", because its node failed",
    State.BOOT_FAIL: ", because its node could not be made ready",
}
_LONGEST_NOTICE = 500  # characters
_QUICK = 10.0  # seconds for a query that is not essential
# lines of our own in the log that do not explain why a job ended
_ROUTINE = re.compile(r"\d\d:\d\d:\d\d notebook-launcher: (usage\.csv has |an SSH server into this session listens )")
#: messages of JupyterLab in every session, for ``grep -E`` and Python: about language servers that nobody uses, and the
#: job script's own test without a token; the line after an error has the full message
NOISE = r"Skipped non-installed server\(s\): |wrote error: 'Forbidden'|403 GET [^ ]*/api/status\?as-a-stranger "
_NOISE = re.compile(NOISE)


def exit_record(context: Context, session: Session) -> Mapping[str, object]:
    """Return what the job recorded when it ended; empty if it did not, or it cannot be read."""
    try:
        return json_object(context.host.read_file(f"{session.directory}/exit.json") or b"")
    except HostCommandFailed:
        return {}


def idle_message(record: Mapping[str, object]) -> str:
    """Return why the job ended itself, if nobody used it, as configured, or the class is over; otherwise nothing."""
    if record.get("cause") == exit_causes.CLASS_ENDED:
        return "The teacher has ended the class, and with it the session."
    if record.get("cause") != exit_causes.IDLE:
        return ""
    return str(record.get("message") or "Nobody used the session, so it was ended.")


def notice_text(notice: Mapping[str, object], now: datetime) -> str:
    """Return what the teacher of a course says to the session, on one line. ``now``: on the cluster's clock."""
    text = one_line(str(notice.get("message") or ""), _LONGEST_NOTICE)
    ends = parse_on_clock_of(str(notice.get("ends") or ""), now)
    end = f" The session ends at {ends:%H:%M}: save what you need." if ends else ""
    return f"The teacher ends the class{f': {text}' if text else '.'}{end}"


def final_status(context: Context, session: Session, record: Mapping[str, object]) -> JobStatus | None:
    """Query until the scheduler reports that the job has ended or was requeued, shortly after the job's own end.

    ``None``: it knows no more than the job's record, also once its history has had the time that it needs. Raises
    ``SchedulerSilent`` if there is no report: the job may have been requeued, so it must not be called ended.
    """
    timing, began, answered, silence, noted = context.host_timing, time.monotonic(), False, "", False
    pause = timing.final_status_pause
    interrupts_before = context.interrupts.exit_requests
    is_needed = record.get("cause") in (None, "stopped")
    unknown_until = began + (context.scheduler.history_delay if is_needed else 0.0)
    until = max(unknown_until, began + timing.final_status_within)
    while time.monotonic() < until and context.interrupts.exit_requests == interrupts_before:
        if not noted and time.monotonic() > began + timing.unresponsive_note_after:
            noted = True
            context.view.show(events.Note("Waiting for the scheduler to report how the job ended."))
        try:
            status = query_status(context.host, context.scheduler, job_of(session), timing.answer_within)
            is_late = status is None and time.monotonic() < unknown_until
            if not is_late and (status is None or status.state.ended or status.state.waits):
                return status
            answered = True
        except NoAnswer as error:
            silence = error.reason
        time.sleep(pause)
        pause = min(2 * pause, timing.longest_final_status_pause)
    if not answered and is_needed:
        why = f"{record.get('message') or ''} It says: {silence}.".strip()
        raise SchedulerSilent("The scheduler does not report how the job ended.", why=why)
    return None


def why_requeued(context: Context, session: Session) -> str:
    """Return a sentence that the job was requeued and, if the scheduler reports it, why."""
    job = job_of(session)
    earlier = None
    with contextlib.suppress(ConnectionLost, HostCommandFailed):
        if command := context.scheduler.runs(job):
            answer = context.host.run(command, login_shell=True, timeout=_QUICK)
            earlier = context.scheduler.read_earlier_run(job, answer)
    why = _REQUEUED.get(earlier.state, "") if earlier else ""
    return f"Job {job} was put back into the queue{why}."


def exit_error(
    context: Context, session: Session, record: Mapping[str, object], status: JobStatus | None, node: str | None
) -> LauncherError:
    """Return the error that says how a session's job ended. ``node``: where it ran, if it came to that."""
    job = job_of(session)
    if status is None and node is None and not record and context.scheduler.forgets_cancelled:
        status = JobStatus(job, State.CANCELLED)
    if status is not None and status.state in (State.CANCELLED, State.FAILED):
        status = _with_details(context, job, status)
    return explain.ended(
        job,
        record,
        status,
        _log_tail(context, session, job, node),
        user=context.site.user,
        who=_name_of(context, status),
        walltime=Request(session.record.flags).walltime,
        output=session.record.log,
        program=session.record.program,
        see=context.scheduler.history_typed(job),
    )


def _with_details(context: Context, job: JobRef, status: JobStatus) -> JobStatus:
    """Return the status with details from the history: who cancelled it, its exit code.

    The history may lag behind; if there is none, this does not wait.
    """
    command, deadline = context.scheduler.history(job), time.monotonic() + context.timing.history_within
    with contextlib.suppress(LauncherError):
        while command and status.by is None and status.exit_code is None and time.monotonic() < deadline:
            answer = context.host.run(command, login_shell=True, timeout=_QUICK)
            past = context.scheduler.read_history(job, answer)
            if answer.exit_code != 0:
                break
            if past is not None and past.state is status.state:
                return past
            time.sleep(context.timing.history_pause)
    return status


def _name_of(context: Context, status: JobStatus | None) -> str | None:
    """Return the name of the user who cancelled the job: Slurm reports a user id."""
    if status is None or status.by is None or not status.by.isdecimal():
        return status.by if status else None
    with contextlib.suppress(LauncherError):
        answer = context.host.run(["id", "-un", status.by])
        if answer.exit_code == 0 and answer.stdout.strip():
            return answer.stdout.split()[-1]
    return f"user {status.by}"


def _log_tail(context: Context, session: Session, job: JobRef, node: str | None) -> list[str]:
    """Return the last lines that the job printed: of its error file if it has one, else of its output file."""
    record = session.record
    flags = {**record.flags, "output": record.log, "job-name": record.flags.get("job-name") or session.id}
    for path in context.scheduler.log_files(flags, job, user=context.site.user, node=node):
        with contextlib.suppress(LauncherError):  # how it ended matters more
            lines = context.host.tail(context.site.expand(path))
            if telling := [line for line in lines if not (_ROUTINE.match(line) or _NOISE.search(line))]:
                return telling
    return []
