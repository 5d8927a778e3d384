"""The built-in scheduler for a machine without one: ``jobscripts/login/local.sh`` on this machine.

It runs the same job script in the background, with the same session directory and states. Of the request it honours the
walltime, the begin time, the job's name and its output file; there are no other users to share GPUs or cores with.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.errors import LauncherError, SubmitRefused, UsageError
from notebook_launcher.core.request import Request, parse_begin
from notebook_launcher.core.text import whole_number
from notebook_launcher.schedulers.base import JobRef, JobStatus, Scheduler, State, Submission

HONOURED = frozenset({"time", "begin", "job-name", "output"})


class Local(Scheduler):
    """Jobs as background processes; a job's id is that of its session."""

    name = "local"
    title = "the local scheduler"
    directive = ""
    same_machine = True

    def __init__(self, sessions_root: str) -> None:
        self.root = sessions_root

    def _script(self, session_id: str) -> str:
        return f"{self.root}/{session_id}/local.sh"

    def submit(self, request: Request, submission: Submission) -> list[str]:
        """Return the command that starts the job script in the background; a walltime of 0 means no limit."""
        seconds = 0 if request.walltime.is_unlimited else int(request.walltime.total_seconds())
        words = [
            "bash",
            self._script(submission.session_id),
            "submit",
            "--root",
            self.root,
            "--id",
            submission.session_id,
            "--time",
            str(seconds),
            "--name",
            request.job_name or submission.session_id,
            "--output",
            request.flags.get("output") or submission.log,
        ]
        if request.begin:
            words += ["--begin", str(_epoch(request.begin))]
        return [*words, "--", submission.script, submission.directory]

    def submit_by_hand(self, script: str) -> str:
        """Return what runs the script on this machine."""
        return f"bash {script}"

    def read_submit(self, answer: CommandResult) -> JobRef:
        """Parse the id that ``local.sh submit`` prints."""
        lines = answer.stdout.split()
        if answer.exit_code != 0 or not lines:
            raise self.explain_refusal(answer)
        return JobRef(lines[-1])

    def explain_refusal(self, answer: CommandResult) -> LauncherError:
        """Return ``SubmitRefused`` with the shell's message."""
        return SubmitRefused(
            "The job could not be started on this machine.",
            why=answer.stderr.strip() or f"exit code {answer.exit_code}",
        )

    def query(self, jobs: Sequence[JobRef]) -> list[str]:
        """Return the command that reads the state files of these jobs."""
        return ["bash", self._script(jobs[0].id), "queue", "--root", self.root, *(job.id for job in jobs)]

    def read_query(self, jobs: Sequence[JobRef], answer: CommandResult) -> dict[str, JobStatus] | None:
        """Parse rows of ``ID|STATE|REASON|NODE|START|END|EXIT``; exit code 1 means that one of the jobs is unknown."""
        if answer.exit_code not in (0, 1):
            return None
        found = {}
        for line in answer.stdout.splitlines():
            fields = [field.strip() or None for field in line.split("|")]
            if len(fields) == 7 and fields[0] and fields[1]:
                found[fields[0]] = JobStatus(
                    JobRef(fields[0]),
                    State.read(fields[1]),
                    reason=None if fields[2] == "None" else fields[2],
                    node=fields[3],
                    start=_clock(fields[4]),
                    exit_code=whole_number(fields[6]),
                )
        return found

    def history(self, job: JobRef) -> list[str] | None:
        """Return ``None``: there is nothing besides the state files."""
        return None

    def read_history(self, job: JobRef, answer: CommandResult) -> JobStatus | None:
        """Return ``None``: there is nothing besides the state files."""
        return None

    def cancel(self, job: JobRef) -> list[str]:
        """Return the command that ends the job and all its processes."""
        return ["bash", self._script(job.id), "cancel", "--root", self.root, job.id]

    def terminal_step(self, job: JobRef, command: Sequence[str]) -> list[str]:
        """Return the command itself: the job runs on this machine."""
        return list(command)

    def find(self, session_id: str, request: Request) -> list[str]:
        """Return the query for the session's own job: its id is the session's."""
        return self.query([JobRef(session_id)])

    def read_find(self, session_id: str, answer: CommandResult) -> list[JobRef] | None:
        """Return the job unless it has ended already or was never started."""
        found = self.read_query([JobRef(session_id)], answer)
        if found is None:
            return None
        status = found.get(session_id)
        return [status.job] if status is not None and not status.state.ended else []


def _epoch(begin: str) -> int:
    at = parse_begin(begin, datetime.now().astimezone()).at
    if at is None:
        raise UsageError(
            f"“{begin}” is not understood as a begin time without a scheduler.",
            hint="for example: -b 15:00, -b now+2hours or -b 2026-11-22T09:00",
        )
    return int(at.timestamp())


def _clock(seconds: str | None) -> str | None:
    """Return seconds since 1970 in the form of ``JobStatus.start``: ISO, on the clock of this machine."""
    try:
        return datetime.fromtimestamp(int(seconds)).isoformat() if seconds else None
    except (ValueError, OverflowError, OSError):
        return None
