"""Finding out how a job ended: its own last word, the scheduler's, its log; as an error that tells it in a sentence."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping

from notebook_launcher.core.errors import ConnectionLost, HostCommandFailed, LauncherError, SchedulerSilent
from notebook_launcher.core.events import launch as events
from notebook_launcher.core.request import Request
from notebook_launcher.diagnosis import exit_causes as causes
from notebook_launcher.diagnosis import explain
from notebook_launcher.jobs.cancel import ANSWER_WITHIN, TOLD_AFTER
from notebook_launcher.jobs.watcher import NoAnswer, ask
from notebook_launcher.schedulers.base import JobRef, JobStatus, State
from notebook_launcher.session.context import Stage, job_of
from notebook_launcher.session.record import Session, json_object

FINAL_WORD_WITHIN = 15.0  # seconds after the job's last word in which the scheduler says what became of it

_REQUEUED = {
    State.PREEMPTED: ", to make room for a job that goes first",
    State.NODE_FAIL: ", because its node failed",
    State.BOOT_FAIL: ", because its node could not be made ready",
}
_HISTORY_WITHIN = 3.0  # seconds by which the scheduler's history may be behind
_QUICK = 10.0  # seconds for an answer that would only be nice to have
# lines of our own in the log that tell nothing of why a job ended
_ROUTINE = re.compile(r"\d\d:\d\d:\d\d notebook-launcher: (usage\.csv has |an SSH server into this session listens )")


def exit_record(stage: Stage, session: Session) -> Mapping[str, object]:
    """Return what the job wrote when it ended; nothing where it did not come to that, or it cannot be read."""
    try:
        return json_object(stage.host.read_file(f"{session.directory}/exit.json") or b"")
    except HostCommandFailed:
        return {}


def ended_idle(record: Mapping[str, object]) -> str:
    """Return the job's sentence where it has ended itself because nobody used it, as was asked; nothing elsewhere."""
    if record.get("cause") != causes.IDLE:
        return ""
    return str(record.get("message") or "Nobody used the session, so it was ended.")


def final_status(stage: Stage, session: Session, record: Mapping[str, object]) -> JobStatus | None:
    """Ask until the scheduler says that the job has ended, or waits again: it does a moment after the job does.

    ``None``: it knows no more than the job's own word. Raises ``SchedulerSilent`` where nobody says how it ended: it
    may have been put back into the queue, and must not be called gone.
    """
    began, pause, answered, silence, told = time.monotonic(), 0.2, False, "", False
    wishes = stage.interrupts.wishes_to_end
    while time.monotonic() < began + FINAL_WORD_WITHIN and stage.interrupts.wishes_to_end == wishes:
        if not told and time.monotonic() > began + TOLD_AFTER:
            told = True
            stage.view.show(events.Noted("Waiting for the scheduler's word on what became of the job."))
        try:
            status = ask(stage.host, stage.scheduler, job_of(session), ANSWER_WITHIN)
            if status is None or status.state.ended or status.state.waits:
                return status
            answered = True
        except NoAnswer as error:
            silence = error.reason
        time.sleep(pause)
        pause = min(2 * pause, 2.0)
    if not answered and record.get("cause") in (None, "stopped"):
        why = f"{record.get('message') or ''} It says: {silence}.".strip()
        raise SchedulerSilent("The scheduler does not say what became of the job.", why=why)
    return None


def why_requeued(stage: Stage, session: Session) -> str:
    """Return in a sentence that the job is back in the queue and, where the scheduler tells, why."""
    job = job_of(session)
    earlier = None
    with contextlib.suppress(ConnectionLost, HostCommandFailed):
        if command := stage.scheduler.runs(job):
            answer = stage.host.run(command, login_shell=True, timeout=_QUICK)
            earlier = stage.scheduler.read_earlier_run(job, answer)
    why = _REQUEUED.get(earlier.state, "") if earlier else ""
    return f"Job {job} was put back into the queue{why}."


def how_it_ended(
    stage: Stage, session: Session, record: Mapping[str, object], status: JobStatus | None, node: str | None
) -> LauncherError:
    """Return the error that tells how a session's job ended. ``node``: where it ran, if it came to that."""
    job = job_of(session)
    if status is not None and status.state in (State.CANCELLED, State.FAILED):
        status = _with_details(stage, job, status)
    return explain.ended(
        job,
        record,
        status,
        _log_tail(stage, session, job, node),
        user=stage.site.user,
        who=_name_of(stage, status),
        walltime=Request(session.record.flags).walltime,
        output=session.record.log,
        program=session.record.program,
    )


def _with_details(stage: Stage, job: JobRef, status: JobStatus) -> JobStatus:
    """Return the status with what only the history tells: by whom it was cancelled, with which code it failed.

    The history may be a moment behind; where there is none, nothing is waited for.
    """
    command, deadline = stage.scheduler.history(job), time.monotonic() + _HISTORY_WITHIN
    with contextlib.suppress(LauncherError):
        while command and status.by is None and status.exit_code is None and time.monotonic() < deadline:
            answer = stage.host.run(command, login_shell=True, timeout=_QUICK)
            past = stage.scheduler.read_history(job, answer)
            if answer.exit_code != 0:
                break
            if past is not None and past.state is status.state:
                return past
            time.sleep(0.3)
    return status


def _name_of(stage: Stage, status: JobStatus | None) -> str | None:
    """Return the name of who cancelled the job: Slurm tells a number."""
    if status is None or status.by is None or not status.by.isdecimal():
        return status.by if status else None
    with contextlib.suppress(LauncherError):
        answer = stage.host.run(["id", "-un", status.by])
        if answer.exit_code == 0 and answer.stdout.strip():
            return answer.stdout.split()[-1]
    return f"user {status.by}"


def _log_tail(stage: Stage, session: Session, job: JobRef, node: str | None) -> list[str]:
    """Return the end of what the job printed: of its errors' file where it has one, else of its output's."""
    record = session.record
    flags = {**record.flags, "output": record.log, "job-name": record.flags.get("job-name") or session.id}
    for path in stage.scheduler.log_files(flags, job, user=stage.site.user, node=node):
        with contextlib.suppress(LauncherError):  # how it ended matters more
            lines = stage.host.tail(stage.site.expand(path))
            if telling := [line for line in lines if not _ROUTINE.match(line)]:
                return telling
    return []
