"""The next job of an attached session: queues it, waits for it, and hands over to it once its JupyterLab answers.

Whatever takes time runs on threads, which report to the inbox; nothing here ends the attached session.
"""

from __future__ import annotations

import contextlib
import dataclasses
import posixpath
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from notebook_launcher.core import events
from notebook_launcher.core.errors import LauncherError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.interrupts import Interrupt, Interrupts
from notebook_launcher.core.request import Request
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.core.view import Typed
from notebook_launcher.jobs.cancel import cancel_job, launcher_command
from notebook_launcher.jobs.messages import NextJobReported, RenewalRequested
from notebook_launcher.jobs.next_job import NextJob, hand_over, queue_next_job, withdraw_next_job
from notebook_launcher.session.context import Context, job_of
from notebook_launcher.session.credentials import Access
from notebook_launcher.session.record import Session, record_in
from notebook_launcher.supervision.jupyter_port import JupyterPort
from notebook_launcher.supervision.next_job_watch import (
    Answers,
    Lost,
    NextJobWatch,
    Shown,
    access_to,
    cancel_apart,
)
from notebook_launcher.supervision.supervisor import Moved
from notebook_launcher.tunnel.forwarding import Tunnel

REQUEST_FILE = "renew.json"  # from the page, in the session's directory
RECENT = timedelta(minutes=2)  # an older request from the page was made while no launcher was attached
QUEUED_WITHIN = 90.0  # seconds that the end of a session waits for a submission that is under way
READ_AGAIN = 5.0  # seconds until the next attempt to read the next session's record
PUT_OFF = timedelta(minutes=2)  # if a session's end moves by more than this, its next job would begin too early


class HandedOver(Moved):
    """The session continues in another one, which takes over the local ports.

    ``previous``: the session before, if its job still runs. ``ports``: the node's ports that were forwarded, with the
    local ones. ``renewals``: how many more jobs are to be queued automatically.
    """

    def __init__(
        self,
        next_session: Session,
        access: Access,
        tunnel: Tunnel,
        port: JupyterPort,
        ports: Sequence[tuple[int, int]],
        previous: Session | None,
        renewals: int,
    ) -> None:
        self.next_session, self.access, self.tunnel, self.port = next_session, access, tunnel, port
        self.ports, self.previous, self.renewals = tuple(ports), previous, renewals
        self.local_port = tunnel.jupyter_port  # 0: none led to JupyterLab yet


def keep_input(inbox: queue.SimpleQueue[object]) -> None:
    """Drop the items of the session before from the inbox, and keep the user's input."""
    kept = []
    while not inbox.empty():
        item = inbox.get_nowait()
        if isinstance(item, Interrupt | Typed):
            kept.append(item)
    for item in kept:
        inbox.put(item)


class _Queued(Frozen):
    by: Renewal
    session: Session
    next_job: NextJob


class _Found(Frozen):
    by: Renewal
    session: Session
    next_job: NextJob


class _NotQueued(Frozen):
    by: Renewal
    error: LauncherError


class _Taken(Frozen):
    by: Renewal


class Renewal:
    """Manages the next job of an attached session. ``left``: how many more jobs are queued automatically."""

    def __init__(self, context: Context, session: Session, access: Access) -> None:
        self._context, self._session, self._access, self.left = context, session, access, 0
        self._inbox = context.interrupts.inbox
        self._end: datetime | None = None
        self._requested_at = ""  # the time of the page's request that was handled last
        self._queueing: threading.Thread | None = None
        self._gone = set[str]()  # the names of the next sessions that ended before they answered
        self._session_to_queue: Session | None = None  # the session that the thread is about to queue
        self._queued: Session | None = None  # the session that the thread has queued, even if not yet reported
        self._is_unwanted = False  # the job that is being queued: it is cancelled once it is queued
        self._page_waits = False  # whether the page has requested a job before the end was known
        self._begins: datetime | None = None
        self._reading = set[str]()  # the names of the sessions whose record is being read
        self._over = threading.Event()
        self._watch: NextJobWatch | None = None
        self.next_session: Session | None = None

    @property
    def access(self) -> Access:
        """The credentials of the next session, with the same token and keys of its own."""
        return access_to(self._context, self.next_session or self._session, self._access.token)

    def tick(self, end: datetime | None) -> None:
        """Do what is due now; ``end``: the end of the session's walltime, ``None`` if not known."""
        self._end = end
        if end is None:
            return
        if self._is_too_early(end):
            self.drop()
        if self.next_session is not None or self._queueing is not None:
            return
        if self._page_waits:
            self._page_waits = False
            self._queue(end, by_page=True)
        elif self.left > 0:
            self.left -= 1
            self._queue(end, by_page=False)

    def _is_too_early(self, end: datetime) -> bool:
        """Whether the next job, which has not begun, would begin too long before this one's end, which was put off."""
        if self.next_session is None or self._begins is None or self._context.clock() >= self._begins:
            return False
        both_run = hand_over(Request(self.next_session.record.flags).walltime)
        return end - self._begins > both_run + PUT_OFF

    def handle(self, item: object) -> bool:
        """Handle an item of the inbox; return whether the next job's JupyterLab answers, so that it can take over."""
        if isinstance(item, RenewalRequested):
            self._requested(item.data)
        elif isinstance(item, NextJobReported):
            self._reported(item.data)
        elif isinstance(item, _Queued) and item.by is self:
            self._was_queued(item.session, item.next_job)
        elif isinstance(item, _Found) and item.by is self:
            if not self._is_known(item.session.id):
                self._follow(item.session, item.next_job)
        elif isinstance(item, _Taken) and item.by is self:
            self._queueing, self._is_unwanted = None, False
        elif isinstance(item, Shown):
            self._context.view.show(item.event)
        elif isinstance(item, _NotQueued) and item.by is self:
            self._queueing, self._is_unwanted, self.left = None, False, 0
            self._not_queued(item.error)
        elif isinstance(item, Lost) and item.by is self._watch:
            self._lost(item)
        return isinstance(item, Answers) and item.by is self._watch

    # --- queuing the next job

    def _requested(self, data: Mapping[str, object]) -> None:
        """Handle a request from the page's button, unless it is an old one, which the page has already dealt with."""
        at, now = str(data.get("at") or ""), self._context.clock()
        requested = parse_iso(at, now)
        if at == self._requested_at or requested is None or abs(now - requested) > RECENT:
            return
        self._requested_at = at
        if self.next_session is not None or self._queueing is not None:
            return
        if Request(self._session.record.flags).walltime.is_unlimited:
            self._note("Nothing was queued: the page requested the next job, but this one has no time limit.")
        elif self._end is None:
            self._page_waits = True
        else:
            self._queue(self._end, by_page=True)

    def _queue(self, end: datetime, *, by_page: bool) -> None:
        self._queueing = threading.Thread(target=self._submit, args=(end, by_page), name="renew", daemon=True)
        self._queueing.start()

    def _submit(self, end: datetime, by_page: bool) -> None:
        apart = dataclasses.replace(self._context, interrupts=Interrupts(), view=_Reported(self))
        apart.interrupts.defer()
        try:
            if by_page and not self._is_first():
                self._inbox.put(_Taken(self))
                return
            self.put(events.Note("Queueing the next job of this session."))
            token = self._access.token
            session, next_job = queue_next_job(apart, self._session, end, token, named=self._record_session)
        except Exception as error:  # a thread must not die silently
            failed = error if isinstance(error, LauncherError) else LauncherError("It failed.", why=repr(error))
            self._inbox.put(_NotQueued(self, failed))
        else:
            self._queued = session
            self._inbox.put(_Queued(self, session, next_job))

    def _record_session(self, session: Session) -> None:
        self._session_to_queue = session

    def _is_first(self) -> bool:
        """Remove the page's request; return false if another attached launcher was faster."""
        return self._context.host.run(["rm", "--", f"{self._session.directory}/{REQUEST_FILE}"]).exit_code == 0

    def _not_queued(self, error: LauncherError) -> None:
        hint = launcher_command(self._context, self._session, "renew")
        self._note(f"The next job was not queued: {error.what} {error.why}".rstrip() + f"\n  {hint}")

    def _was_queued(self, session: Session, next_job: NextJob) -> None:
        """Follow the queued job, unless its file arrived first: then it is followed already, or gone again."""
        self._queueing = None
        if self._is_unwanted:
            self._is_unwanted = False
            self._cancel_unwanted(session)
        elif session.id not in self._gone and (self.next_session is None or self.next_session.id != session.id):
            self._follow(session, next_job)

    def put(self, event: events.Event) -> None:
        """Let the main thread show an event; for other threads."""
        self._inbox.put(Shown(event))

    # --- waiting for the next job

    def _reported(self, data: Mapping[str, object]) -> None:
        """Handle the file that reports a next job, whoever has queued it."""
        next_job = NextJob.from_file(data, self._context.clock())
        if next_job is None or self._is_known(next_job.session) or next_job.session in self._reading:
            return
        self._reading.add(next_job.session)
        threading.Thread(target=self._read, args=(next_job,), name="next job's record", daemon=True).start()

    def _is_known(self, name: str) -> bool:
        """Whether a session's record need not be read: it is, or was, the next one, or is not wanted."""
        known = self.next_session or self._queued
        return name in self._gone or self._is_unwanted or (known is not None and known.id == name)

    def _read(self, next_job: NextJob) -> None:
        """Read the record of the named session; runs on a thread, because a login node may hang."""
        directory = posixpath.join(posixpath.dirname(self._session.directory), next_job.session)
        try:
            while not self._over.is_set():
                try:
                    record = record_in(self._context.host.read_file(f"{directory}/session.json") or b"")
                except (LauncherError, OSError):
                    self._over.wait(READ_AGAIN)
                    continue
                if record.id == next_job.session and record.continues == self._session.id:
                    self._inbox.put(_Found(self, Session(record, directory, next_job.job), next_job))
                return
        except Exception:  # a damaged record counts as none
            return
        finally:
            self._reading.discard(next_job.session)

    def _follow(self, session: Session, next_job: NextJob) -> None:
        self._queueing, self._page_waits = None, False
        self._stop_watching()
        self.next_session, self._begins = session, next_job.begins
        begins = next_job.begins.isoformat(timespec="seconds") if next_job.begins else None
        ends = self._end.isoformat(timespec="seconds") if self._end else ""
        walltime = Request(session.record.flags).walltime.as_text()
        job = job_of(session).id
        self._context.view.show(events.Renewed(session.id, job, self._session.id, begins, ends, walltime))
        access = access_to(self._context, session, self._access.token)
        self._watch = NextJobWatch(self._context, session, access, next_job.begins)

    def _lost(self, item: Lost) -> None:
        next_session, again = self.next_session, launcher_command(self._context, self._session, "renew")
        if next_session is not None:
            what = f"The next job, {job_of(next_session)}, is {'being cancelled' if item.runs else 'gone'}"
            text = f"{what}: {item.why} This job runs on until its end. To queue another:\n  {again}"
            self._withdraw(next_session, text)
            if item.runs:
                cancel_apart(self._context, next_session)
        self._watch, self.left = None, 0

    def _withdraw(self, gone: Session, text: str) -> None:
        """Forget the next job, and remove its file, so that neither the page nor a later launcher reports it."""
        self._gone.add(gone.id)
        self._context.view.show(events.NextJobGone(gone.id, job_of(gone).id, self._session.id, text))
        self.next_session = self._queued = self._begins = None
        host, directory = self._context.host, self._session.directory

        def remove() -> None:
            with contextlib.suppress(LauncherError, OSError):
                withdraw_next_job(host, directory, gone.id)

        threading.Thread(target=remove, name="next job gone", daemon=True).start()

    # --- the end of the session

    def has_begun(self) -> bool:
        """Whether the next job's JupyterLab listens, so that the session continues there, however this job ended."""
        if self.next_session is None:
            return False
        with contextlib.suppress(LauncherError):
            return bool(self._context.host.read_file(f"{self.next_session.directory}/endpoint.json"))
        return False

    def give_up(self) -> None:
        """Cancel the next job, because the session is over."""
        self._await_queued("it will be cancelled as soon as that is done", QUEUED_WITHIN)
        next_session = self.next_session or self._queued
        self.close()
        if next_session is not None:
            self._note(f"The next job, {job_of(next_session)}, is cancelled as well.")
            self._cancel(next_session)

    def drop(self) -> None:
        """Cancel the next job, because this one was restarted or ends later than planned; the session goes on."""
        self._stop_watching()
        if self.next_session is not None:
            self._cancel_unwanted(self.next_session)
        elif self._queueing is not None:
            self._is_unwanted = True
            self._note("The next job, which is being queued, would begin too early: it will be cancelled.")

    def _cancel_unwanted(self, next_session: Session) -> None:
        again = launcher_command(self._context, self._session, "renew")
        text = f"The next job, {job_of(next_session)}, is being cancelled: it would begin too early.\n  {again}"
        self._withdraw(next_session, text)
        cancel_apart(self._context, next_session)

    def left_queued(self, within: float = QUEUED_WITHIN) -> None:
        """Show what happens to the next job when the user detaches, after waiting for one that is being queued."""
        self._await_queued("waiting for that", within)
        next_session = self.next_session or self._queued
        if self.left > 0:
            again = launcher_command(self._context, self._session, "renew")
            self._note(
                f"With nobody attached, --renew queues no further job. To queue one from any terminal:\n  {again}"
            )
        if next_session is None:
            return
        if self._is_unwanted:
            self._cancel(next_session)
            return
        connect, stop = (launcher_command(self._context, next_session, command) for command in ("connect", "stop"))
        job = job_of(next_session)
        self._note(f"The next job, {job}, stays queued. Attach to it, or end it, with:\n  {connect}\n  {stop}")

    def _await_queued(self, what: str, within: float) -> None:
        """Wait for a submission that is under way, for at most ``within`` seconds, or until another Ctrl-C."""
        thread, interrupts = self._queueing, self._context.interrupts
        if thread is None or not thread.is_alive():
            return
        self._note(f"The next job is still being queued; {what}.")
        before, until = interrupts.exit_requests, time.monotonic() + within
        while thread.is_alive() and time.monotonic() < until and interrupts.exit_requests == before:
            thread.join(0.1)
        if thread.is_alive():
            named, stop = self._session_to_queue, ""
            if named is not None:
                stop = f" If it was, end it with:\n  {launcher_command(self._context, named, 'stop')}"
            self._note(f"It is not known whether the next job was queued.{stop}")

    def _cancel(self, next_session: Session) -> None:
        try:
            cancel_job(self._context, next_session)
        except LauncherError as error:
            self._note(f"{error.what} {error.why}".rstrip() + f" To end it: {error.hint}")

    def close(self) -> None:
        """Stop everything that watches the next job."""
        self._over.set()
        self._stop_watching()

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._watch = None

    def _note(self, text: str) -> None:
        self._context.view.show(events.Note(text))


class _Reported:
    """A view for a thread, whose events go to the inbox."""

    def __init__(self, renewal: Renewal) -> None:
        self.show: Callable[[events.Event], None] = renewal.put

    def listen(self, inbox: queue.SimpleQueue[object]) -> None:
        """Do nothing, because the thread does not read the keyboard."""
