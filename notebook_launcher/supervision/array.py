"""Supervises a submitted job array: its tasks, what they print, how each ended, and what all of them used."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NoReturn

from notebook_launcher.core import events
from notebook_launcher.core.errors import Interrupted, JobCancelled, JobTimedOut, LauncherError, ScriptFailed
from notebook_launcher.core.job_arrays import task_numbers
from notebook_launcher.core.quantities import counted
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.jobs.cancel import cancel_job, cancelled_on_failure, copy_command, launcher_command
from notebook_launcher.jobs.messages import FileAppeared, StatusChanged
from notebook_launcher.jobs.outcome import final_status
from notebook_launcher.schedulers.base import JobStatus, State
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session
from notebook_launcher.supervision.array_tasks import ArrayTasks, named
from notebook_launcher.supervision.script import show_where_results_are, working_folder
from notebook_launcher.supervision.supervisor import Finished, Supervisor
from notebook_launcher.usage.array_report import TaskOutcome
from notebook_launcher.usage.report_command import show_array_report

_KEYS_OURS = "Ctrl-C cancels all tasks; d and ENTER detaches, for you to come back later."
_KEYS_CONNECTED = "Ctrl-C, or d and ENTER, detaches; the tasks go on."


def supervise_array(context: Context, session: Session, *, ours: bool, first: events.Event) -> None:
    """Show the ``first`` event, follow a job array to the end of its last task, and show what it used.

    ``ours``: as for ``supervise_script``. Raises a ``LauncherError`` if a task failed, was cancelled or reached its
    walltime (``ScriptFailed``, unless all of these were for the same other reason); ``Interrupted`` after Ctrl-C by the
    user; ``HungUp`` if the terminal was closed, which leaves it running.
    """
    with cancelled_on_failure(context, session, ours=ours):
        supervisor = _ArraySupervisor(context, session, ours=ours)
    supervisor.supervise(first)


class _ArraySupervisor(Supervisor):
    """Follows all tasks. ``attached``: whether one has started, so that a failure here leaves the array be."""

    program = "script"
    keys_waiting = (_KEYS_OURS, _KEYS_CONNECTED)

    def __init__(self, context: Context, session: Session, *, ours: bool) -> None:
        super().__init__(context, session, ours=ours)
        self._numbers = task_numbers(session.record.flags.get("array"))
        self._tasks = ArrayTasks(context, session, len(self._numbers))
        self._outcomes: Mapping[int, TaskOutcome] = {}

    def close(self) -> None:
        """Close everything here."""
        self._tasks.close()
        super().close()

    # --- ways to exit

    def _stop(self) -> None:
        cancel_job(self._context, self._session)
        if self.attached:
            self._tasks.show_rest()
            show_array_report(self._context, self._session)
            show_where_results_are(self._context, self._session)
        done = len(self._tasks.exits) - len(self._tasks.unsuccessful)
        raise Interrupted(f"Interrupted: {done} of {self._tasks.total} tasks had finished.") from None

    def _finish(self, finished: Finished) -> None:
        self._context.view.show(
            events.ScriptFinished(
                self._session.id,
                self._job.id,
                self._session.record.script or "",
                self._seconds(),
                working_folder(self._session),
                self._tasks.total,
                copy_command(self._context, working_folder(self._session)),
            )
        )

    def _report_exit(self, error: LauncherError) -> None:
        if self._tasks.started:
            show_where_results_are(self._context, self._session)

    def _seconds(self) -> float:
        """Return how long it took from the first task's start to the last one's end, as far as they reported it."""
        began = parse_iso(str(self._run.get("started") or ""))
        ends = [end for record in self._tasks.exits.values() if (end := parse_iso(str(record.get("ended") or "")))]
        known = [end for end in ends if end.tzinfo]
        return max(0.0, (max(known) - began).total_seconds()) if known and began and began.tzinfo else 0.0

    # --- what its tasks do

    def _file_appeared(self, item: FileAppeared) -> None:
        if item.name == "exit":
            self._job_ended(item.data, None)
        elif item.name == "started" and not self._run:
            self._run, self._silent_since, self._is_queued = item.data, None, False
            self.attached = True
            self._show_keys(self.keys_waiting)
            self._tasks.begin()

    def _check_connections(self) -> None:
        self._tasks.check()

    def _handle_other(self, item: object) -> None:
        self._tasks.handle(item)

    def _handle_line(self, words: list[str]) -> None:
        self._note_keys(words, self.keys_waiting[0] if self._ours else self.keys_waiting[1])

    def _show_running(self, node: str) -> None:
        """Nothing: each task says where it runs."""

    def _reconnect_deadline(self) -> float:
        """Until when reconnecting makes sense: tasks may wait for each other, so the walltime does not tell."""
        return time.monotonic() + self._timing.reconnect_pending_for

    def _status_changed(self, item: StatusChanged) -> None:
        status = item.status
        if self._run and status is not None and status.state.waits:
            if self._is_unanswered:
                self._scheduler_responsive(status)
            return  # some tasks have run, and the others wait
        super()._status_changed(item)

    # --- its end

    def _job_ended(self, record: Mapping[str, object] | None, status: JobStatus | None) -> None:
        """Handle the end of all tasks, unless one was put back into the queue just now."""
        if status is None and record:
            status = final_status(self._context, self._session, record)
        if status is not None and not status.state.ended:
            return
        self._tasks.show_rest()
        self._outcomes = show_array_report(self._context, self._session, self._tasks.exits)
        self._raise_exit(record or {}, status)

    def _raise_exit(self, record: Mapping[str, object], status: JobStatus | None) -> NoReturn:
        if not self._outcomes and not self._tasks.started:
            raise self._exit_error(record, status)  # it was cancelled while it waited, say
        wrong = {number: one for number in self._numbers if not (one := self._outcome_of(number)).is_success}
        if not wrong:
            raise Finished
        raise self._task_error(wrong)

    def _outcome_of(self, number: int) -> TaskOutcome:
        known = self._outcomes.get(number)
        if known is not None:
            return known
        return TaskOutcome(State.UNKNOWN, "no end recorded") if number in self._tasks.started else _NEVER_RAN

    def _task_error(self, wrong: Mapping[int, TaskOutcome]) -> LauncherError:
        by_reason: dict[str, list[int]] = {}
        for number, outcome in wrong.items():
            by_reason.setdefault(outcome.reason, []).append(number)
        told = ", ".join(f"{named(numbers)} ({reason})" for reason, numbers in by_reason.items())
        states = {outcome.state for outcome in wrong.values()}
        kind = _KINDS.get(next(iter(states)), ScriptFailed) if len(states) == 1 else ScriptFailed
        count, script = counted(self._tasks.total, "task"), self._session.record.script or "the script"
        return kind(
            f"{len(wrong)} of {count} of {script} did not finish: {told}.",
            hint=self._hint(wrong),
        )

    def _hint(self, wrong: Mapping[int, TaskOutcome]) -> str:
        """Return how to see more of one task: of one that failed its log, else of one that ran what it used."""
        ran = [number for number, outcome in wrong.items() if outcome is not _NEVER_RAN]
        for number in ran:
            if wrong[number].state is State.FAILED:
                log = launcher_command(self._context, self._session, "logs", f"{self._job.id}_{number}")
                return f"the log of task {number}: {log}"
        for number in sorted(ran, key=lambda number: wrong[number].state is State.CANCELLED):
            report = launcher_command(self._context, self._session, "report", f"{self._job.id}_{number}")
            return f"what task {number} used: {report}"
        return ""


_NEVER_RAN = TaskOutcome(State.CANCELLED, "never ran")  # Slurm keeps no record of a task that was cancelled before
_KINDS: dict[State | None, type[LauncherError]] = {State.CANCELLED: JobCancelled, State.TIMEOUT: JobTimedOut}
