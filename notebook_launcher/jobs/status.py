"""Queries the status of one job."""

from __future__ import annotations

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import HostCommandFailed
from notebook_launcher.hosts.base import RUN_TIMEOUT, Host
from notebook_launcher.schedulers.base import JobRef, JobStatus, Scheduler


class NoAnswer(Exception):
    """The scheduler did not answer; the status is unknown, which is not the same as "no such job"."""

    def __init__(self, reason: str = "it printed nothing") -> None:
        super().__init__(reason)
        self.reason = reason


def query_status(host: Host, scheduler: Scheduler, job: JobRef, timeout: float = RUN_TIMEOUT) -> JobStatus | None:
    """Query a job once, in the queue and then in the history; return ``None`` if both have forgotten it.

    Raises ``NoAnswer``, also if the queue neither lists the job nor reports that there is no such job. ``timeout``:
    seconds for each of the two.
    """
    try:
        answer = _run(host, scheduler.query([job]), timeout)
        answers = scheduler.read_query([job], answer)
        if answers is None:
            raise NoAnswer(last_line(answer))
        if job.id in answers:
            return answers[job.id]
        history = scheduler.history(job)
        status = scheduler.read_history(job, _run(host, history, timeout)) if history else None
        if status is None and not scheduler.has_forgotten(job, answer):
            raise NoAnswer(f"it does not show job {job}, and does not say that there is none")
        return status
    except HostCommandFailed as error:  # it took too long
        raise NoAnswer(error.what) from None


def _run(host: Host, argv: list[str], timeout: float) -> CommandResult:
    return host.run(argv, login_shell=True, timeout=timeout)


def last_line(answer: CommandResult) -> str:
    """Return the last line of a failed command; start-up files may print before it."""
    lines = [line.strip() for line in (answer.stderr or answer.stdout).splitlines() if line.strip()]
    return lines[-1] if lines else f"exit code {answer.exit_code}"
