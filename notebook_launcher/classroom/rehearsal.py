"""A rehearsal: launches the requested number of real sessions as the teacher, all at once, and ends all of them."""

from __future__ import annotations

import dataclasses
import queue
import shlex
import statistics
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta

from notebook_launcher.classroom.class_folder import read_reports
from notebook_launcher.core import events
from notebook_launcher.core.check_runner import CheckRunner
from notebook_launcher.core.errors import CancelFailed, Interrupted, LauncherError
from notebook_launcher.core.finding import Finding, fault, of_error, ok, warning
from notebook_launcher.core.interrupts import Interrupt
from notebook_launcher.core.quantities import counted, duration_text, measured_wait
from notebook_launcher.core.request import Request
from notebook_launcher.jobs.cancel_many import cancel_jobs
from notebook_launcher.launch import queue_session
from notebook_launcher.planning.plan import Plan
from notebook_launcher.session.context import Context, job_of
from notebook_launcher.session.record import Session, discard_session

NAME = "rehearsal"
PURPOSE = "classroom check"  # shown for the sessions by `list`
MINUTES = 15  # of walltime; less if the course asks for less
WITHIN = 600.0  # seconds in which all sessions must be ready
REPORTS_WITHIN = 10.0  # further seconds in which a report must be in the class folder
CHECK_EVERY = 2.0
# flags that delay a job's start, or that do not matter in a rehearsal, which takes place now
_NOT_NOW = ("begin", "hold", "dependency", "deadline", "signal", "requeue", "time-min", "mail-type", "mail-user")
_READ_PROGRESS = (
    "for folder do for file in endpoint exit; do "
    'test ! -e "$folder/$file.json" || printf "%s %s\\n" "$file" "$folder"; done; done'
)


def rehearse(checks: CheckRunner, context: Context, plan: Plan, count: int, *, reserved: bool) -> None:
    """Launch ``count`` sessions, wait until JupyterLab works in each, and end them, whatever happens.

    ``reserved``: whether the plan's reservation, if any, has begun; otherwise the sessions do not use it. Raises
    ``Interrupted``, after ending them.
    """
    if checks.skip_unless_passed(NAME, ["start", "image", "environment"]):
        return
    running = _Rehearsal(context, _short(plan, reserved=reserved), count)
    interrupted: Interrupted | None = None
    finding, left = ok(""), None
    try:
        finding = running.run()
    except Interrupted as error:
        interrupted = error
    except LauncherError as error:
        finding = of_error(error)
    finally:  # also if the terminal was closed
        left = running.end()
    if interrupted is None:
        checks.report(NAME, finding)
    if left:
        checks.report("rehearsal's end", left)
    if interrupted:
        raise interrupted


def _short(plan: Plan, *, reserved: bool) -> Plan:
    left_out = _NOT_NOW if reserved else (*_NOT_NOW, "reservation")
    flags = {name: value for name, value in plan.request.flags.items() if name not in left_out}
    if plan.request.walltime > timedelta(minutes=MINUTES):
        flags["time"] = f"0:{MINUTES:02d}:00"
    return dataclasses.replace(plan, request=Request(flags), forwards=(), idle_stop=0)


class _ProgressOnlyView:
    """A view that shows the progress of the rehearsal, but no events of single sessions."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def show(self, event: events.Event) -> None:
        if isinstance(event, events.Note | events.Reconnected | events.Disconnected):
            self._context.view.show(event)

    def listen(self, inbox: queue.SimpleQueue[object]) -> None:
        """Ignore the inbox: no keys but Ctrl-C have an effect."""


class _Rehearsal:
    """The sessions of a rehearsal. ``sessions``: those that may exist."""

    def __init__(self, context: Context, plan: Plan, count: int) -> None:
        self._outer, self._plan, self._count = context, plan, count
        self._context = dataclasses.replace(context, view=_ProgressOnlyView(context))
        self.sessions: list[Session] = []
        self._keeps_logs = False
        self._submitted: dict[str, float] = {}
        self._took: dict[str, float] = {}

    def run(self) -> Finding:
        """Launch the sessions and wait. Raises what a launch raises, or ``Interrupted``."""
        for number in range(1, self._count + 1):
            self._say(f"rehearsal: session {number} of {self._count} is submitted")
            session, _ = queue_session(self._plan, self._context, purpose=PURPOSE)
            self.sessions.append(session)
            self._submitted[session.directory] = time.monotonic()
            self._stop_if_interrupted(0.0)
        failed: dict[str, None] = {}
        deadline = time.monotonic() + WITHIN
        while len(self._took) + len(failed) < self._count and time.monotonic() < deadline:
            for what, folder in self._read_progress():
                if what == "endpoint":
                    self._took.setdefault(folder, time.monotonic() - self._submitted[folder])
                elif folder not in self._took:
                    failed[folder] = None
            self._say(f"rehearsal: JupyterLab works in {len(self._took)} of {self._count} sessions")
            self._stop_if_interrupted(CHECK_EVERY)
        return self._assess(list(failed))

    def _read_progress(self) -> Iterator[tuple[str, str]]:
        folders = [session.directory for session in self.sessions]
        answer = self._context.host.run(["sh", "-c", _READ_PROGRESS, "read-progress", *folders])
        for line in answer.stdout.splitlines():
            what, _, folder = line.partition(" ")
            if what in ("endpoint", "exit") and folder in self._submitted:
                yield what, folder

    def _assess(self, failed: Sequence[str]) -> Finding:
        took = sorted(self._took.values())
        sessions, times = counted(self._count, "session"), ""
        if took:
            middle, worst = map(measured_wait, (statistics.median(took), took[-1]))
            times = f"; from submission to JupyterLab {middle}, at worst {worst}"
        if failed:
            log = self._context.host.tail(f"{failed[0]}/job.log", 3)
            last = f" The log's last line: {log[-1].strip()}" if log else ""
            return fault(f"{len(failed)} of {sessions} failed{times}.{last}", f"read {failed[0]}/job.log")
        if len(took) < self._count:
            within = duration_text(WITHIN)
            return warning(
                f"JupyterLab worked in {len(took)} of {sessions} within {within}{times}. The others waited.",
                "rehearse in the reservation, or with fewer",
            )
        folder = self._plan.target.course.class_folder if self._plan.target.course else None
        if folder and not self._reports_arrive(folder):
            self._keeps_logs = True
            return warning(
                f"JupyterLab worked in all of {sessions}{times}. But none of them has reported in {folder}.",
                "check that the compute nodes see the class folder; the sessions' logs say why not: "
                f"{self.sessions[0].directory}/job.log",
            )
        return ok(f"JupyterLab worked in all of {sessions}{times}")

    def _reports_arrive(self, folder: str) -> bool:
        """Whether a report of these sessions is in the class folder. All of them write the same file, the teacher's."""
        context, jobs = self._context, {job_of(session).id for session in self.sessions}
        deadline = time.monotonic() + REPORTS_WITHIN
        while True:
            reports, _ = read_reports(context.host, folder, context.clock())
            if (own := reports.get(context.site.user)) and own.job in jobs:
                return True
            if time.monotonic() > deadline:
                return False
            self._stop_if_interrupted(CHECK_EVERY)

    def end(self) -> Finding | None:
        """End all sessions; return a finding if some may still be running."""
        if not self.sessions:
            return None
        self._say(f"rehearsal: {counted(len(self.sessions), 'session')} are ended")
        try:
            cancel_jobs(self._context, self.sessions)
        except CancelFailed as error:
            return fault(f"{error.what} {error.why}".strip(), error.hint)
        except LauncherError as error:
            jobs = [job_of(session) for session in self.sessions]
            typed = shlex.join(self._context.scheduler.cancel_all(jobs))
            return fault(f"{error.what} {error.why}".strip(), f"end them with: {typed}")
        for session in self.sessions:
            if session.directory in self._took and not self._keeps_logs:  # the log of a session that failed is kept
                discard_session(self._context.host, session)
        return None

    def _say(self, text: str) -> None:
        self._outer.view.show(events.Querying(text))

    def _stop_if_interrupted(self, seconds: float) -> None:
        """Wait for ``seconds``; raise ``Interrupted`` if the user interrupts meanwhile."""
        until = time.monotonic() + seconds
        while True:
            try:
                item = self._context.interrupts.inbox.get(timeout=max(0.001, until - time.monotonic()))
            except queue.Empty:
                return
            if isinstance(item, Interrupt):
                raise Interrupted("Interrupted.", why="The rehearsal is over.")
