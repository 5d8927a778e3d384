"""Follows the jobs of a bench until they have ended, and fetches their results."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from notebook_launcher.bench.journal import BenchFolder
from notebook_launcher.bench.messages import CONTINUE, stop_command
from notebook_launcher.bench.request import BenchTiming
from notebook_launcher.core import events
from notebook_launcher.core.errors import (
    ConnectionLost,
    CopyFailed,
    HostCommandFailed,
    Interrupted,
    LauncherError,
    SchedulerSilent,
)
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.interrupts import Interrupts
from notebook_launcher.core.text import joined, listed
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.diagnosis import explain
from notebook_launcher.hosts.base import LineStream
from notebook_launcher.jobs.lookup import read_session_index
from notebook_launcher.jobs.outcome import exit_error, exit_record, final_status
from notebook_launcher.jobs.polling import QUERY_RPCS, Polling
from notebook_launcher.jobs.session_index import IndexedSession, SessionIndex
from notebook_launcher.run import fetch_results
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session, json_object

STREAMS = 6  # sessions that are followed by streams of their own: sshd allows ten per connection (MaxSessions)


class JobFileWritten(Frozen):
    """A session has written one of its files, as its stream reports: ``started`` or ``exit``."""

    session: str
    name: str
    data: Mapping[str, object]


@dataclass
class ActiveJob:
    """A combination whose job is believed to be queued or running.

    ``missed``: consecutive lookups that did not find it. ``waits``: the last pending reason shown.
    """

    name: str
    session: Session
    stream: LineStream | None = None
    missed: int = 0
    waits: str = ""


class Follower:
    """Follows the jobs of a bench, by streams and by lookups of all of them, and records their states in its folder.

    ``active``: jobs that have not ended, by session. ``lookup_at``: when the next lookup is due (monotonic clock).
    ``unfetched``: combinations whose results could not be fetched. ``on_end``: called when a job has ended.
    """

    def __init__(self, context: Context, folder: BenchFolder, timing: BenchTiming) -> None:
        self._context, self._folder, self._timing = context, folder, timing
        self._polling = Polling(time.monotonic, random.SystemRandom())
        self._unresponsive_shown = False
        self.active: dict[str, ActiveJob] = {}
        self.lookup_at = 0.0
        self.unfetched: set[str] = set()
        self.on_end: Callable[[], None] = lambda: None

    def follow(self, name: str, session: Session) -> None:
        """Start to follow the job of a combination."""
        self.active[session.id] = job = ActiveJob(name, session)
        self._open_stream(job)
        self._polling.note_change()
        self.lookup_at = time.monotonic() + self._polling.pause_after_answer()

    def show(self, text: str) -> None:
        """Show the state of the bench, with the latest event."""
        self._context.view.show(self._folder.progress(text))

    def note(self, text: str) -> None:
        """Show a note."""
        self._context.view.show(events.Note(text))

    # --- streams

    def _open_stream(self, job: ActiveJob) -> None:
        """Follow a session's files if a stream is free; otherwise lookups report the same with a delay."""
        if job.stream is not None or sum(other.stream is not None for other in self.active.values()) >= STREAMS:
            return
        command = ["bash", f"{job.session.directory}/watch.sh", job.session.directory]
        with contextlib.suppress(HostCommandFailed):
            job.stream = self._context.host.stream(command, self._listener(job.session.id), lambda _why: None)

    def _listener(self, session: str) -> Callable[[str], None]:
        def on_line(line: str) -> None:
            name, _, text = line.partition(" ")
            if name in ("started", "exit"):
                self._context.interrupts.inbox.put(JobFileWritten(session, name, json_object(text)))

        return on_line

    def close_streams(self) -> None:
        """Close all streams; the next lookup opens them again."""
        for job in self.active.values():
            self._close_stream(job)

    def _close_stream(self, job: ActiveJob) -> None:
        stream, job.stream = job.stream, None
        if stream is not None:
            with contextlib.suppress(LauncherError, OSError):
                stream.close()

    # --- lookups

    def look_up_all(self) -> SessionIndex:
        """Look up all sessions with one command, and query the scheduler once. Raises ``ConnectionLost``."""
        try:
            return read_session_index(self._context, sure=False, timeout=self._timing.lookup_within)
        except HostCommandFailed as error:  # it took too long, usually because the connection is dead
            if not self._context.host.remote:
                error.hint = CONTINUE
                raise
            raise ConnectionLost(error.what, why=error.why) from None

    def update(self, index: SessionIndex) -> None:
        """Apply the result of a lookup."""
        found = {entry.session.id: entry for entry in index.entries}
        exit_requests = self._context.interrupts.exit_requests
        for job in list(self.active.values()):
            if job.session.id in self.active:
                self._update_one(job, found.get(job.session.id))
            if self._context.interrupts.exit_requests != exit_requests:
                return  # because of an interrupt, which is in the inbox
        self._show_pending_reasons(found)
        states = [found[session].summary.state for session in self.active if session in found]
        is_silent = bool(states) and all(state == "unknown" for state in states)
        if is_silent and not self._unresponsive_shown:
            self.note("The scheduler does not answer; it is asked again, and the jobs go on.")
        self._unresponsive_shown = is_silent
        if states and not is_silent:
            self._polling.spend(QUERY_RPCS)
        self.lookup_at = time.monotonic() + (
            self._polling.pause_without_answer() if is_silent else self._polling.pause_after_answer()
        )
        for job in self.active.values():
            self._open_stream(job)

    def _update_one(self, job: ActiveJob, entry: IndexedSession | None) -> None:
        if entry is None:
            job.missed += 1
            if job.missed > 1:  # a file server may lag behind once
                self._end(job, "failed", "Its session directory is gone, and its results with it.", "JobLost")
            return
        if entry.record.started:
            self.has_started(job, entry.record.started)
        if entry.record.exited:
            self.has_exited(job, entry.record.exited)
        elif not entry.live:
            job.missed += 1
            if job.missed > 1:  # its exit file may not be visible yet
                self._has_failed(job, {})
        else:
            job.missed = 0

    def _show_pending_reasons(self, found: Mapping[str, IndexedSession]) -> None:
        """Show why jobs are pending, those with the same reason together, and again when the reason changes."""
        new: dict[str, list[str]] = {}
        for job in self.active.values():
            entry = found.get(job.session.id)
            if entry is None or entry.summary.state != "pending" or entry.reason in (None, "", "None"):
                continue
            reason = explain.pending(entry.reason, job=str(entry.summary.job))
            if reason.summary == job.waits:
                continue
            job.waits = reason.summary
            if reason.never or "is held" in reason.summary:  # this does not change by itself
                how = "can never start" if reason.never else "does not start by itself"
                cancel = f"to cancel it: {stop_command([job.session.id], self._context.target)}"
                actions = "; ".join(filter(None, (reason.action, cancel)))
                self.note(f"{job.name} {how}: {reason.summary}. What helps: {actions}")
            else:
                new.setdefault(reason.summary, []).append(job.name)
        for summary, names in new.items():
            self.show(f"{listed(names)} {'waits' if len(names) == 1 else 'wait'}: {summary}.")

    # --- one job

    def has_started(self, job: ActiveJob, data: Mapping[str, object]) -> None:
        """Record that a job has started, and how long it was in the queue."""
        started = str(data.get("started") or "")
        at, now = parse_iso(started), self._context.clock()
        if at is None or self._folder[job.name].started == started:
            return
        at = at if at.tzinfo else at.replace(tzinfo=now.tzinfo)
        queued = parse_iso(self._folder[job.name].queued, now) or at
        waited = max(0.0, round((at - queued).total_seconds(), 1))
        self._folder.change(job.name, started=started, in_queue=waited)
        self._polling.note_change()
        self.show(f"{job.name} runs on {data.get('node') or 'its node'}, after {waited:.0f} s in the queue.")

    def has_exited(self, job: ActiveJob, record: Mapping[str, object]) -> None:
        """Fetch the results of a job that has written its exit record. Raises ``ConnectionLost`` or ``CopyFailed``."""
        if record.get("cause") != "finished":
            self._has_failed(job, record)
            return
        try:
            self._fetch(job)
        except Interrupted:
            return  # the job is found again later; whoever reads the inbox handles the interrupt
        except CopyFailed as error:
            self._not_fetched(job, error)
        else:
            self._end(job, "done")

    def _has_failed(self, job: ActiveJob, record: Mapping[str, object]) -> None:
        """Find out how a job failed; it may also have been requeued."""
        record = record or exit_record(self._context, job.session)
        try:  # if the job itself reports what failed, the scheduler has nothing to add
            settled = record.get("cause") not in (None, "stopped")
            status = None if settled else final_status(self.separate_context(), job.session, record)
        except SchedulerSilent:
            return  # the next lookup finds it
        if status is not None and (status.state.waits or not status.state.ended):
            self._folder.change(job.name, started=None, in_queue=None)
            job.missed = 0
            return
        error = exit_error(self.separate_context(), job.session, record, status, None)
        try:
            self._fetch(job)
        except CopyFailed:
            pass
        except Interrupted:
            return
        self._end(job, "failed", error.what, error.kind)

    def separate_context(self) -> Context:
        """Return the context with a separate inbox, for code that must not consume messages from ours."""
        separate = Interrupts()
        separate.defer()
        site = dataclasses.replace(self._context.site, now=self._context.clock(), read_at=time.time())
        return dataclasses.replace(self._context, interrupts=separate, site=site)

    def _fetch(self, job: ActiveJob) -> None:
        """Fetch the results of a run, and record its image.

        Raises ``ConnectionLost``, ``CopyFailed``, or ``Interrupted``; the interrupt stays in the inbox.
        """
        fetch_results(self._context, job.session, self._folder.runs_folder(job.name))
        image = json_object(self._context.host.read_file(f"{job.session.directory}/image.json") or b"")
        self._folder.change(job.name, image=str(image.get("digest") or ""))

    def _not_fetched(self, job: ActiveJob, error: CopyFailed) -> None:
        """Leave a job's results on the cluster for the next call. Raises the error if that would fail as well."""
        cause = error.__context__
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
            error.hint = joined(error.hint, CONTINUE)
            raise error
        self.unfetched.add(job.name)
        self.drop(job)
        self._folder.change(job.name, why=joined("Its results could not be fetched.", error.what, error.why))
        self.note(f"The results of {job.name} could not be fetched: {error.what} Run the same command to try again.")

    def drop(self, job: ActiveJob) -> None:
        """Stop following a job."""
        self.active.pop(job.session.id, None)
        self._close_stream(job)
        self.on_end()

    def _end(self, job: ActiveJob, state: str, why: str = "", kind: str = "") -> None:
        self.drop(job)
        self._folder.change(job.name, state=state, why=why, kind=kind)
        self._polling.note_change()
        self.show(f"{job.name} is done." if state == "done" else f"{job.name} failed: {why}")
