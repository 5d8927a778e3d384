"""Supervises one session, whatever its program: handles events of the job, the scheduler and the user until it exits.

Everything that happens arrives in one inbox: the job's files, the scheduler's answers, the user's input, signals. The
loop handles one item after the other, so nothing interrupts anything. What differs between programs is in subclasses
(in ``jupyter``, ``batch``, ``script``, and ``until_started`` for the start alone).
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping
from typing import NoReturn

from notebook_launcher.core import events
from notebook_launcher.core.errors import (
    ConnectionLost,
    JobCancelled,
    JobFailed,
    JobLost,
    JobSilent,
    JobTimedOut,
    LauncherError,
    NotebookFailed,
    SchedulerSilent,
    ScriptFailed,
)
from notebook_launcher.core.interrupts import HungUp, Interrupt
from notebook_launcher.core.request import Request
from notebook_launcher.core.text import printable, without_cursor_keys
from notebook_launcher.core.view import Typed
from notebook_launcher.diagnosis import explain
from notebook_launcher.jobs.cancel import cancelled_on_failure, report_detached, still_running
from notebook_launcher.jobs.messages import (
    DirectoryRemoved,
    FileAppeared,
    IdleReported,
    NoticeReported,
    SchedulerUnresponsive,
    StagingReported,
    StatusChanged,
    UnsavedReported,
    UsageSampled,
)
from notebook_launcher.jobs.outcome import exit_error, exit_record, final_status, notice_text, why_requeued
from notebook_launcher.jobs.pending import show_pending, show_suspended
from notebook_launcher.jobs.polling import Polling
from notebook_launcher.jobs.watcher import JobWatcher, WatcherStopped
from notebook_launcher.schedulers.base import JobStatus, State
from notebook_launcher.session.context import Context, job_of
from notebook_launcher.session.record import Session
from notebook_launcher.supervision.attached_status import AttachedStatus
from notebook_launcher.supervision.login_connection import LoginConnection
from notebook_launcher.supervision.staging import not_staged_note, read_staging
from notebook_launcher.tunnel.reconnect import ReconnectFailed, ReconnectSucceeded
from notebook_launcher.tunnel.routes import JobNode


class StopRequested(Exception):
    """The user cancels the session."""


class DetachRequested(Exception):
    """The user detaches."""


class ConnectionGivenUp(Exception):
    """Reconnecting failed, or did not help."""

    def __init__(self, error: LauncherError) -> None:
        self.error = error


class Finished(Exception):
    """The session ended successfully."""


class Moved(Exception):
    """The session continues in another job."""


class Tick:
    """Nothing has arrived for a while (``Timing.tick``)."""


#: errors after which the job is gone already
_JOB_ENDED = (JobCancelled, JobFailed, JobLost, JobTimedOut, NotebookFailed, ScriptFailed)
_ASK_FOR_KEYS: tuple[list[str], ...] = ([], ["help"], ["h"], ["?"])
_EXPECTED = (StopRequested, DetachRequested, ConnectionGivenUp, Finished, Moved, SchedulerSilent, *_JOB_ENDED)


class Supervisor:
    """The loop that handles events, with the state of the session so far.

    ``ours``: this launch submitted the job, so it is cancelled if something fails before it is usable. ``attached``:
    whether the session is usable already.
    """

    #: what the launcher waits for after the job's start, for ``events.Running``
    program = "jupyterlab"
    #: what the keys do while the job waits: if this command has submitted it, and if not; "": the keyboard is not read
    keys_waiting = ("", "")

    def __init__(self, context: Context, session: Session, *, ours: bool) -> None:
        self._context, self._session, self._ours, self._timing = context, session, ours, context.timing
        self._inbox = context.interrupts.inbox
        self._job = job_of(session)
        self._login = LoginConnection(context, self._job.id, self._new_watcher, self._reconnect_deadline)
        self._run: Mapping[str, object] = {}  # the job's ``started.json``; a requeued job writes another one
        self._attached_status = AttachedStatus(context, session)
        self._silent_since: float | None = None  # since when the job runs although its script has written nothing
        self._shown_node = ""
        self._is_queued = self._is_suspended = self._is_unanswered = self._keys_shown = False
        self.attached = False

    def supervise(self, first: events.Event) -> None:
        """Show the ``first`` event, follow the session until it ends or the user detaches, and close everything here.

        Every way to exit is handled here. Raises what the handlers of a subclass raise, ``HungUp``, or the error that
        ended the session.
        """
        context, session = self._context, self._session
        guard = cancelled_on_failure(
            context, session, ours=self._ours, is_attached=lambda: self.attached, expected=_EXPECTED
        )
        try:
            with guard:
                context.view.show(first)
                self._follow()
        except StopRequested:
            self._login.stop()
            self._stop()
        except DetachRequested:
            self._detach()
        except Finished as finished:
            self._finish(finished)
        except ConnectionGivenUp as given_up:
            raise self._connection_error(given_up.error) from None
        except SchedulerSilent as error:
            raise self._silent_scheduler_error(error) from None
        except _JOB_ENDED as error:
            self._report_exit(error)
            raise
        except HungUp:
            self._hung_up()
            raise
        finally:
            self.close()

    def close(self) -> None:
        """Close everything here."""
        self._login.close()

    # --- ways to exit

    def _stop(self) -> None:
        """Cancel the job, at the user's request."""
        raise NotImplementedError

    def _detach(self) -> None:
        """Leave the session running, at the user's request."""
        report_detached(self._context, self._session, is_queued=self._is_queued)

    def _finish(self, finished: Finished) -> None:
        """Report a successful end."""
        raise NotImplementedError

    def _report_exit(self, error: LauncherError) -> None:
        """Show more than the error if the job ended by itself."""

    def _connection_error(self, error: LauncherError) -> LauncherError:
        """Return the error for a connection that could not be restored."""
        why = f"{error.what} {error.why}".strip()
        lost = ConnectionLost("The connection to the cluster is lost.", why=why)
        return still_running(self._context, self._session, lost)

    def _silent_scheduler_error(self, error: SchedulerSilent) -> LauncherError:
        """Return the error for a session whose outcome is unknown."""
        return still_running(self._context, self._session, error)

    def _hung_up(self) -> None:
        """Handle that the terminal was closed."""

    # --- other differences between programs

    def _job_started(self, data: Mapping[str, object]) -> None:
        """Handle the start of the job, which has written ``data`` (``started.json``)."""

    def _file_written(self, item: FileAppeared) -> None:
        """Handle a file of the job other than ``started`` and ``exit``."""

    def _handle_other(self, item: object) -> None:
        """Handle an item that only this program knows."""

    def _handle_line(self, words: list[str]) -> None:
        """Handle a typed line other than ``d``; ``words``: in lower case."""

    def _interrupted(self, *, at_once: bool) -> None:
        """Handle Ctrl-C or SIGTERM: end what this command started, or detach.

        ``at_once``: without asking first.
        """
        raise StopRequested if self._ours else DetachRequested

    def _check_connections(self) -> None:
        """Check connections; called at each tick while the login node is reachable as far as known."""

    def _login_lost(self) -> None:
        """Handle that the connection to the login node will not recover by itself; called at each tick."""

    def _login_restored(self) -> None:
        """Handle that the login node is reachable again."""
        self._login.show_restored()

    def _raise_if_finished(self, record: Mapping[str, object]) -> None:
        """Raise ``Finished`` if the job's exit record alone shows that it ended successfully."""

    def _raise_exit(self, record: Mapping[str, object], status: JobStatus | None) -> NoReturn:
        """Raise the exception for how the job ended."""
        raise self._exit_error(record, status)

    # --- the loop

    def _follow(self) -> NoReturn:
        """Handle one item after the other, until an exception ends the loop."""
        self._context.view.listen(self._inbox)
        self._reconnecting_on_loss(self._login.start)
        while True:
            item = self._next()
            self._reconnecting_on_loss(lambda item=item: self._handle(item))  # type: ignore[misc]
            self._attached_status.refresh()

    def _reconnecting_on_loss(self, act: Callable[[], None]) -> None:
        """Call ``act``; if the connection breaks meanwhile, start to reconnect."""
        try:
            act()
        except ConnectionLost as error:
            self._login.reconnect(error.what)

    def _next(self) -> object:
        try:
            return self._inbox.get(timeout=self._timing.tick)
        except queue.Empty:
            return Tick()

    def _handle(self, item: object) -> None:
        if isinstance(item, Interrupt):
            if item.kind == "leave":
                raise HungUp
            self._interrupted(at_once=item.at_once)
        elif isinstance(item, Typed):
            self._typed(item.line)
        elif isinstance(item, FileAppeared):
            self._file_appeared(item)
        elif isinstance(item, StatusChanged):
            self._status_changed(item)
        elif isinstance(item, SchedulerUnresponsive):
            self._scheduler_unresponsive(item.reason)
        elif isinstance(item, WatcherStopped):
            self._login.watcher_stopped(item)
        elif isinstance(item, UsageSampled):
            self._attached_status.usage_sampled(item.sample)
        elif isinstance(item, IdleReported):
            self._attached_status.idle_reported(item.data)
        elif isinstance(item, NoticeReported):
            self._note(notice_text(item.data, self._context.clock()))
        elif isinstance(item, StagingReported):
            self._staging_reported(item)
        elif isinstance(item, UnsavedReported):
            self._attached_status.unsaved_reported(item.data)
        elif isinstance(item, DirectoryRemoved):
            self._note(f"The session's directory {self._session.directory} was removed; its job goes on.")
        elif isinstance(item, ReconnectSucceeded):
            self._reconnected()
        elif isinstance(item, ReconnectFailed):
            if self._login.is_present(item.by):
                raise ConnectionGivenUp(item.error)
        elif isinstance(item, Tick):
            self._tick()
        else:
            self._handle_other(item)

    def _staging_reported(self, item: StagingReported) -> None:
        event = read_staging(self._job, item.data)
        if event is None or self.attached:
            return  # it matters only during the start
        self._context.view.show(event)
        if event.state == "failed":
            self._note(not_staged_note(event))

    def _typed(self, line: str) -> None:
        words = without_cursor_keys(line).lower().split()
        if words == ["d"]:
            raise DetachRequested
        if line and not words and not line.isspace():
            words = ["?"]  # after an arrow key alone, ENTER must not end the session: in a shell, it repeats a command
        self._handle_line(words)

    def _note_keys(self, words: list[str], keys: str) -> None:
        """Show what the keys do, after a line that means nothing. ``words``: those of the line."""
        unknown = f"“{printable(' '.join(words)[:40])}” is not known here. " if words not in _ASK_FOR_KEYS else ""
        self._note(unknown + keys)

    def _note(self, text: str) -> None:
        self._context.view.show(events.Note(text))

    def _tick(self) -> None:
        was_reconnecting = self._login.is_reconnecting
        self._login.check_silence()
        if not was_reconnecting:
            if not self._login.is_reconnecting:
                self._check_connections()
        elif self._login.has_recovered:
            self._login_recovered()
        elif self._login.is_lost():
            self._login_lost()
        self._check_script()

    def _check_script(self) -> None:
        """Raise ``JobSilent`` if the job's script has written nothing for too long."""
        limit = self._timing.script_starts_within
        if self._login.is_reconnecting or self._silent_since is None or time.monotonic() - self._silent_since <= limit:
            return
        raise JobSilent(
            f"Job {self._job} runs, but its script has written nothing for {limit:.0f} s.",
            why=f"It would write into {self._session.directory}.",
            hint="check that the compute nodes see that folder; session_root in the profile names another one",
        )

    # --- the connection to the login node

    def _new_watcher(self, polling: Polling | None) -> JobWatcher:
        context = self._context
        return JobWatcher(
            context.host,
            context.scheduler,
            self._job,
            self._session.directory,
            self._inbox,
            request=Request(self._session.record.flags),
            user=context.site.user,
            submitted_ago=0.0 if self._ours else None,
            polling=polling,
            timing=self._timing,
        )

    def _reconnect_deadline(self) -> float:
        """Return until when reconnecting makes sense (monotonic): as long as the job can run."""
        left = self._attached_status.seconds_left()
        return time.monotonic() + (self._timing.reconnect_pending_for if left is None else left)

    def _reconnected(self) -> None:
        """Restart everything that ran over the old connection, because there is a new one.

        This is also called after a reconnection that was stopped, if the old connection had recovered but was replaced
        all the same.
        """
        self._settle_login()
        if self._login.restart():
            self._login_restored()

    def _login_recovered(self) -> None:
        """Handle that the connection works again, and was only silent, because the network has recovered."""
        self._settle_login()
        self._login_restored()

    def _settle_login(self) -> None:
        self._login.settle()
        if self._silent_since is not None:
            self._silent_since = time.monotonic()  # what the script wrote meanwhile is still to be read

    # --- files of the job

    def _file_appeared(self, item: FileAppeared) -> None:
        if item.name == "started":
            self._read_started(item.data)
        elif item.name == "exit":
            self._job_ended(item.data, None)
        else:
            self._file_written(item)

    def _read_started(self, data: Mapping[str, object]) -> None:
        if data == self._run:
            return  # a new watcher reports everything again
        if self._run:
            self._forget_run(f"Job {self._job} was put back into the queue, and has started again.")
        self._silent_since, self._is_queued = None, False
        self._run = data
        self._attached_status.job_started(data)
        self._node = JobNode.from_started(data)
        self._show_running(str(self._node))
        self._job_started(data)

    def _forget_run(self, sentence: str) -> None:
        """Reset the state of the run, because the job runs, or will run, a second time."""
        self._silent_since = None
        self._attached_status.job_requeued()
        self._run = {}
        self.attached = False
        self._shown_node = ""
        if not self._login.is_reconnecting:
            self._login.show_restored()  # only the connection to the previous node was broken
        self._note(sentence)

    # --- answers of the scheduler

    def _status_changed(self, item: StatusChanged) -> None:
        status = item.status
        self._is_queued = status is not None and status.state.waits
        if self._is_unanswered:
            self._scheduler_responsive(status)
        if status is None or status.state.ended:
            self._job_ended(None, status)
        elif status.state.waits:
            if self._run:
                self._forget_run(why_requeued(self._context, self._session))
            self._silent_since, self._shown_node = None, ""
            self._show_keys(self.keys_waiting)
            show_pending(self._context, self._session, status, item.evidence, item.read_at)
        else:
            self._attached_status.status_changed(status)
            self._job_on_node(status)

    def _show_keys(self, keys: tuple[str, str]) -> None:
        """Show once what the keys do, if there is a keyboard. ``keys``: as ``keys_waiting``."""
        text = keys[0] if self._ours else keys[1]
        if text and self._has_keys and not self._keys_shown:
            self._keys_shown = True
            self._note(text)

    @property
    def _has_keys(self) -> bool:
        """Whether somebody may press keys; nobody does while a command such as ``doctor`` follows its own job."""
        return self._context.prompts.asks and not (self._ours and self._session.record.purpose)

    def _job_on_node(self, status: JobStatus) -> None:
        if status.state is State.SUSPENDED:
            self._is_suspended, self._shown_node = True, ""
            show_suspended(self._context, status)
        elif status.state is State.RUNNING and self._is_suspended:
            self._is_suspended = False
            self._note(f"Job {self._job} runs again.")
        elif status.state is State.RUNNING and not self._run and self._silent_since is None:
            self._silent_since = time.monotonic()
            self._show_running(status.node or "its node")

    def _scheduler_unresponsive(self, reason: str) -> None:
        """Show that the scheduler does not answer; the job's own files, and the route to it, do not depend on that."""
        if self._login.is_reconnecting or self._login.is_silent:
            return  # the network is down, which is shown already, and the query did not reach the scheduler
        self._is_unanswered = True
        self._context.view.show(events.SchedulerNotResponding(self._job.id, reason))

    def _scheduler_responsive(self, status: JobStatus | None) -> None:
        self._is_unanswered = False
        self._shown_node = ""
        self._note("The scheduler answers again.")
        if status is not None and status.state is State.RUNNING and not self.attached:
            self._show_running(str(self._node) if self._run else status.node or "its node")

    def _show_running(self, node: str) -> None:
        """Show once that the job runs, as both the scheduler and the job report it."""
        if node != self._shown_node:
            self._shown_node = node
            self._context.view.show(events.Running(self._job.id, node, self.program))

    # --- its end

    def _job_ended(self, record: Mapping[str, object] | None, status: JobStatus | None) -> None:
        """Raise the exception for how the job ended; continue only if it is requeued."""
        record = record or exit_record(self._context, self._session)
        self._raise_if_finished(record)
        if status is None and record.get("cause") in explain.SCHEDULER_KNOWS_BETTER:
            status = final_status(self._context, self._session, record)
        if status is not None and status.state.waits:
            self._status_changed(StatusChanged(status))
            return
        self._raise_exit(record, status)

    def _exit_error(self, record: Mapping[str, object], status: JobStatus | None) -> LauncherError:
        node = str(self._node) if self._run else status.node if status else None
        return exit_error(self._context, self._session, record, status, node)
