"""Sessions for these tests: a host that records, a Slurm that answers, and the commands that tell of them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from notebook_launcher import sessions
from notebook_launcher import stop as stopping
from notebook_launcher.core import events
from notebook_launcher.core.command_result import CommandResult
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.hosts.local import LocalHost
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles import ClusterProfile
from notebook_launcher.schedulers.kinds import SchedulerName
from notebook_launcher.session.record import Session
from tests.doubles import FakePrompts, RecordingHost, RecordingView

HOST = LocalHost()
NOW = datetime.now().astimezone()


class ShownSessions(RecordingView):
    """A view that tells of the sessions that it was shown."""

    @property
    def seen(self) -> dict[str, str]:
        """The states of the sessions that were listed."""
        return {event.session: event.state for event in self.all(events.SessionEntry)}

    @property
    def ended(self) -> set[str]:
        return {event.session for event in self.all(events.Ended)}


class SlurmHost(RecordingHost):
    """The same with a Slurm that answers so; what is not told fails as for a job that it does not know."""

    def __init__(self) -> None:
        super().__init__(self.answer_as_slurm)
        self.own = self.by_id = self.names = ""  # what squeue tells with --me, with --jobs, and of names
        self.history = ""  # what sacct tells of one job
        self.asked_history = 0
        self.silent = ""  # a cluster of which squeue learns nothing
        self.refuses: list[str] = []  # what scancel says, one word after the other
        self.cancelled: list[str] = []

    def answer_as_slurm(self, argv: list[str]) -> CommandResult | None:
        command = " ".join(argv)
        if "scancel" in command:
            self.cancelled.append(command)
            said = self.refuses.pop(0) if self.refuses else ""
            return CommandResult(1 if said else 0, stderr=said)
        if "squeue" in command:
            if self.silent and self.silent in command:
                return CommandResult(1, stderr="slurm_load_jobs error: Unable to contact slurm controller")
            if "%j" in command:
                return CommandResult(0, self.names)
            if "--me" in command:
                return CommandResult(0, self.own)
            if not self.by_id:
                return CommandResult(1, stderr="slurm_load_jobs error: Invalid job id specified")
            return CommandResult(0, self.by_id)
        if "sacct" in command and self.history:
            self.asked_history += 1
            return CommandResult(0, f"{self.history}\n--answered-- 0\n")
        return CommandResult(1) if "sacct" in command else None


def squeue_row(job: str, state: str) -> str:
    return f"{job}|{state}|core|n1|2026-11-21T12:00:00|2026-11-21T14:00:00|course|normal|2:00:00|None\n"


def target(root: Path, scheduler: SchedulerName = "local") -> LaunchTarget:
    return LaunchTarget(ClusterProfile(session_root=str(root)), None, None, scheduler)


def listed(root: Path, scheduler: SchedulerName = "local", *, every: bool = False) -> ShownSessions:
    view = ShownSessions()
    sessions.list_sessions(target(root, scheduler), view, FakePrompts(), Interrupts(), every=every)
    return view


def stop(
    root: Path, *names: str, prompts: Prompts | None = None, every: bool = False, sure: bool = False
) -> ShownSessions:
    view = ShownSessions()
    stopping.stop(target(root), names, view, prompts or FakePrompts(), Interrupts(), every=every, sure=sure)
    return view


def end_of(session: Session) -> str:
    """The end of its name, where that may stand for it: four digits may not."""
    return session.id if session.id[-4:].isdecimal() else session.id[-4:]
