"""Supervises a submitted job script: shows what it prints, how it ended, and how much of its request it used."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from notebook_launcher.core import events
from notebook_launcher.core.errors import Interrupted, LauncherError
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.jobs.cancel import cancel_job, cancelled_on_failure, copy_command, launcher_command
from notebook_launcher.jobs.messages import StatusChanged
from notebook_launcher.jobs.outcome import exit_record, final_status
from notebook_launcher.schedulers.base import JobStatus
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session
from notebook_launcher.supervision.batch_supervisor import BatchSupervisor
from notebook_launcher.supervision.job_output import JobOutput
from notebook_launcher.supervision.steps import StepUseWatch
from notebook_launcher.supervision.supervisor import Finished
from notebook_launcher.usage.report_command import show_report

_KEYS_OURS = "Ctrl-C cancels the job; d and ENTER detaches, for you to come back later"
_KEYS_CONNECTED = "Ctrl-C, or d and ENTER, detaches; the job goes on"
_TRUNCATES = ("truncate", "t")  # values of --open-mode with which a requeued job begins its log anew
#: lines of the launcher's own job script, in a log that is shared with the user's
OUR_LINES = re.compile(r"\d\d:\d\d:\d\d notebook-launcher: ")


def supervise_script(context: Context, session: Session, *, ours: bool, first: events.Event) -> None:
    """Show the ``first`` event, follow a submitted script to its end, and show what it used.

    ``ours``: this launch submitted it, so Ctrl-C cancels its job, as do failures before it runs; otherwise the job is
    left alone. Raises a ``LauncherError`` if it failed (``ScriptFailed``: its exit code is not 0); ``Interrupted``
    after Ctrl-C by the user; ``HungUp`` if the terminal was closed, which leaves it running.
    """
    with cancelled_on_failure(context, session, ours=ours):
        supervisor = _ScriptSupervisor(context, session, ours=ours)
    supervisor.supervise(first)


def working_folder(session: Session) -> str:
    """Return the folder on the cluster in which the script runs, as far as it is known."""
    return posixpath.join(session.directory, session.record.flags.get("chdir") or "work")


def show_where_results_are(context: Context, session: Session) -> None:
    """Show where a script that did not finish ran, and the commands that fetch its results and its log."""
    folder = working_folder(session)
    where = f"What it made is in {folder} on {context.host.label}; to get it, and its log:"
    commands = filter(None, (copy_command(context, folder), launcher_command(context, session, "logs")))
    context.view.show(events.Note("\n".join([where, *(f"  {command}" for command in commands)])))


class _ScriptSupervisor(BatchSupervisor):
    """Shows what the script prints. ``attached``: whether the job has started, so that a failure does not cancel it."""

    program = "script"

    def __init__(self, context: Context, session: Session, *, ours: bool) -> None:
        super().__init__(context, session, ours=ours)
        self._paths: list[str] = []  # of the files in ``_printed``
        self._steps = StepUseWatch(context, session, self._inbox)
        use = "; u and ENTER shows what its steps use." if self._steps.is_available else "."
        self.keys_waiting = (f"{_KEYS_OURS}{use}", f"{_KEYS_CONNECTED}{use}")
        self._seconds = 0.0

    # --- ways to exit

    def _stop(self) -> None:
        cancel_job(self._context, self._session)
        self._show_rest()
        if self.attached:
            show_report(self._context, self._session)
            show_where_results_are(self._context, self._session)
        raise Interrupted("Interrupted: the script did not finish.") from None

    def _finish(self, finished: Finished) -> None:
        self._show_rest()
        record = self._session.record
        self._context.view.show(
            events.ScriptFinished(
                self._session.id,
                self._job.id,
                record.script or "",
                self._seconds,
                working_folder(self._session),
                copy_command=copy_command(self._context, working_folder(self._session)),
            )
        )
        show_report(self._context, self._session)

    def _report_exit(self, error: LauncherError) -> None:
        self._show_rest()
        if self._printed:
            error.log = ()  # its lines have just been shown
        show_report(self._context, self._session)
        if self.attached:
            show_where_results_are(self._context, self._session)

    # --- input from the user

    def _handle_line(self, words: list[str]) -> None:
        if words != ["u"]:
            super()._handle_line(words)
        elif why_not := self._steps.ask():
            self._note(why_not)

    # --- what it prints, and what its steps use

    def _job_started(self, data: Mapping[str, object]) -> None:
        self.attached = True
        paths = self._log_paths()
        if paths != self._paths:
            for printed in self._printed:
                printed.close()
            self._paths = paths
            self._printed = [JobOutput(self._context, path, noise=OUR_LINES) for path in paths]
        self._show_keys(self.keys_waiting)
        self._attached_status.attach()
        is_new = data.get("new_log") is True or self._session.record.flags.get("open-mode") in _TRUNCATES
        for printed in self._printed:
            printed.job_started(goes_on=not is_new)
        self._steps.job_started()

    def _log_paths(self) -> list[str]:
        """Return the files to which the job prints: two if its standard error has a file of its own."""
        record, context = self._session.record, self._context
        flags = {**record.flags, "output": record.log, "job-name": record.flags.get("job-name") or self._session.id}
        paths = context.scheduler.log_files(flags, self._job, user=context.site.user, node=str(self._node))
        return [posixpath.join(context.site.home, context.site.expand(path)) for path in reversed(paths)]

    def _check_connections(self) -> None:
        super()._check_connections()
        self._steps.check()

    def _handle_other(self, item: object) -> None:
        super()._handle_other(item)
        self._steps.handle(item)

    def _forget_run(self, sentence: str) -> None:
        self._steps.job_requeued()
        super()._forget_run(sentence)

    # --- its end

    def _job_ended(self, record: Mapping[str, object] | None, status: JobStatus | None) -> None:
        """Handle the job's end, unless it was requeued: a script that requeues its own job also exits with code 0."""
        record = record or exit_record(self._context, self._session)
        if status is None and record.get("cause") == "finished":
            status = final_status(self._context, self._session, record)
            if status is not None and status.state.waits:
                self._status_changed(StatusChanged(status))
                return
        super()._job_ended(record, status)

    def _raise_if_finished(self, record: Mapping[str, object]) -> None:
        if record.get("cause") == "finished":
            ended, started = parse_iso(str(record.get("ended") or "")), parse_iso(str(self._run.get("started") or ""))
            known = ended is not None and started is not None and ended.tzinfo and started.tzinfo
            self._seconds = max(0.0, (ended - started).total_seconds()) if known else 0.0  # type: ignore[operator]
            raise Finished
