"""The next job of an attached session: queued, waited for, and handed over to as soon as its JupyterLab answers.

What takes its time runs on threads, which report to the inbox; nothing here ends the session that is attached.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import posixpath
import queue
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from notebook_launcher.core import events
from notebook_launcher.core.errors import ConnectionLost, HostCommandFailed, LauncherError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.interrupts import Interrupt, Interrupts
from notebook_launcher.core.request import Request
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.core.view import Typed
from notebook_launcher.jobs.cancel import cancel_job, launcher_command
from notebook_launcher.jobs.messages import RenewalRequested, SuccessorReported
from notebook_launcher.jobs.status import NoAnswer, query_status
from notebook_launcher.jobs.successor import SUCCESSOR_FILE, Successor, queue_successor
from notebook_launcher.session.context import Context, job_of
from notebook_launcher.session.credentials import Access, join_keys
from notebook_launcher.session.record import Session, json_object, record_in
from notebook_launcher.supervision.jupyter_port import JupyterPort
from notebook_launcher.supervision.supervisor import Moved
from notebook_launcher.tunnel.forwarding import Endpoint, Tunnel, check_jupyter
from notebook_launcher.tunnel.routes import JobNode, NodeTarget, find_route

REQUEST_FILE = "renew.json"  # of the page, in the session's directory
RECENT = timedelta(minutes=2)  # an older request of the page was made while nobody was attached
QUEUED_WITHIN = 90.0  # seconds that the end of a session waits for a submission that is under way
LOOK_EVERY, LONGEST_LOOK = 3.0, 15.0  # seconds between two looks at the next job, from its beginning on
QUERY_EVERY = 30.0  # seconds between two queries of the scheduler about it
CANCEL_TIMES, CANCEL_EVERY = 5, 10.0  # how often another job is cancelled where that fails, and the seconds between


class HandedOver(Moved):
    """The session goes on in another one, which takes over the local ports.

    ``previous``: the session before, if its job still runs. ``ports``: those that were forwarded, with the local ones.
    ``renewals``: how many more jobs are to be queued by themselves.
    """

    def __init__(
        self,
        successor: Session,
        access: Access,
        tunnel: Tunnel,
        port: JupyterPort,
        ports: Sequence[tuple[int, int]],
        previous: Session | None,
        renewals: int,
    ) -> None:
        self.successor, self.access, self.tunnel, self.port = successor, access, tunnel, port
        self.ports, self.previous, self.renewals = tuple(ports), previous, renewals
        self.local_port = tunnel.jupyter_port  # 0 if none led to JupyterLab yet


def keep_input(inbox: queue.SimpleQueue[object]) -> None:
    """Drop what has arrived of the session before, and keep what the user wants."""
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
    successor: Successor


class _Shown(Frozen):
    event: events.Event


class _NotQueued(Frozen):
    by: Renewal
    error: LauncherError


class _Taken(Frozen):
    by: Renewal


class _Answers(Frozen):
    by: SuccessorWatch


class _Lost(Frozen):
    by: SuccessorWatch
    why: str


class Renewal:
    """What an attached launcher does about the next job of its session. ``left``: how many it queues by itself."""

    def __init__(self, context: Context, session: Session, access: Access) -> None:
        self._context, self._session, self._access, self.left = context, session, access, 0
        self._inbox = context.interrupts.inbox
        self._end: datetime | None = None
        self._asked_at = ""  # of the page's request that was handled last
        self._queueing: threading.Thread | None = None
        self._gone = set[str]()  # the names of those that have ended before they answered
        self._queued: Session | None = None  # by the thread, perhaps before its report was read
        self._watch: SuccessorWatch | None = None
        self.successor: Session | None = None

    @property
    def access(self) -> Access:
        """The credentials of the next session: the same token, and keys of its own."""
        return _access_to(self._context, self.successor or self._session, self._access.token)

    def tick(self, end: datetime | None) -> None:
        """A moment has passed; ``end``: when the attached session ends at the latest, if it is attached."""
        self._end = end
        if self.left > 0 and end is not None and self.successor is None and self._queueing is None:
            self.left -= 1
            self._queue(end, by_page=False)

    def handle(self, item: object) -> bool:
        """Handle an item of the inbox; return whether the next job answers, so that it can take over now."""
        if isinstance(item, RenewalRequested):
            self._requested(item.data)
        elif isinstance(item, SuccessorReported):
            self._reported(item.data)
        elif isinstance(item, _Queued) and item.by is self:
            if self.successor is None or self.successor.id != item.session.id:  # its file may have come before
                self._follow(item.session, item.successor)
        elif isinstance(item, _Taken) and item.by is self:
            self._queueing = None
        elif isinstance(item, _Shown):
            self._context.view.show(item.event)
        elif isinstance(item, _NotQueued) and item.by is self:
            self._queueing, self.left = None, 0
            self._not_queued(item.error)
        elif isinstance(item, _Lost) and item.by is self._watch:
            self._lost(item.why)
        return isinstance(item, _Answers) and item.by is self._watch

    # --- queueing it

    def _requested(self, data: Mapping[str, object]) -> None:
        """Somebody has pressed the button in the page; not for a request of an hour ago, which was answered there."""
        at, now = str(data.get("at") or ""), self._context.clock()
        asked = parse_iso(at, now)
        if at == self._asked_at or asked is None or abs(now - asked) > RECENT:
            return
        self._asked_at = at
        if self.successor is not None or self._queueing is not None:
            return
        if self._end is None:
            self._note("Nothing was queued: the page requested the next job, but it is not known when this one ends.")
            return
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
            session, successor = queue_successor(apart, self._session, end, self._access.token)
        except Exception as error:  # a thread must not die silently
            failed = error if isinstance(error, LauncherError) else LauncherError("It failed.", why=repr(error))
            self._inbox.put(_NotQueued(self, failed))
        else:
            self._queued = session
            self._inbox.put(_Queued(self, session, successor))

    def _is_first(self) -> bool:
        """Take the page's request; return whether no other attached launcher was quicker."""
        return self._context.host.run(["rm", "--", f"{self._session.directory}/{REQUEST_FILE}"]).exit_code == 0

    def _not_queued(self, error: LauncherError) -> None:
        hint = launcher_command(self._context, self._session, "renew")
        self._note(f"The next job was not queued: {error.what} {error.why}".rstrip() + f"\n  {hint}")

    def put(self, event: events.Event) -> None:
        """Have an event shown, from another thread."""
        self._inbox.put(_Shown(event))

    # --- waiting for it

    def _reported(self, data: Mapping[str, object]) -> None:
        """The session's directory says that there is a next job, which somebody has queued."""
        successor = Successor.from_file(data, self._context.clock())
        known = self.successor or self._queued
        if successor is None or successor.session in self._gone or (known and known.id == successor.session):
            return
        directory = posixpath.join(posixpath.dirname(self._session.directory), successor.session)
        try:
            record = record_in(self._context.host.read_file(f"{directory}/session.json") or b"")
        except (ValueError, TypeError):
            return
        if record.id == successor.session and record.continues == self._session.id:
            self._follow(Session(record, directory, successor.job), successor)

    def _follow(self, session: Session, successor: Successor) -> None:
        self._queueing = None
        if self._watch is not None:
            self._watch.close()
        self.successor = session
        begins = successor.begins.isoformat(timespec="seconds") if successor.begins else None
        ends = self._end.isoformat(timespec="seconds") if self._end else ""
        walltime = Request(session.record.flags).walltime.as_text()
        job = job_of(session).id
        self._context.view.show(events.Renewed(session.id, job, self._session.id, begins, ends, walltime))
        access = _access_to(self._context, session, self._access.token)
        self._watch = SuccessorWatch(self._context, session, access, successor.begins)

    def _lost(self, why: str) -> None:
        job, again = job_of(self.successor or self._session), launcher_command(self._context, self._session, "renew")
        self._note(f"The next job, {job}, is gone: {why} This job runs on until its end. To queue another:\n  {again}")
        self._withdraw()
        self._watch, self.left = None, 0

    def _withdraw(self) -> None:
        """There is no next job any more: neither the page nor who attaches later shall be told of it."""
        if gone := self.successor or self._queued:
            self._gone.add(gone.id)
        self.successor = self._queued = None
        host, path = self._context.host, f"{self._session.directory}/{SUCCESSOR_FILE}"

        def remove() -> None:
            with contextlib.suppress(LauncherError, OSError):
                host.run(["rm", "-f", "--", path])

        threading.Thread(target=remove, name="next job gone", daemon=True).start()

    # --- the end of the session

    def has_begun(self) -> bool:
        """Whether the next job's JupyterLab listens: then the session goes on there, whoever ended this job."""
        if self.successor is None:
            return False
        with contextlib.suppress(LauncherError):
            return bool(self._context.host.read_file(f"{self.successor.directory}/endpoint.json"))
        return False

    def give_up(self) -> None:
        """Cancel the next job: the session is over."""
        if self._queueing is not None and self._queueing.is_alive():
            self._note("The next job is still being queued; it will be cancelled as soon as that is done.")
            self._queueing.join(QUEUED_WITHIN)
        successor = self.successor or self._queued
        self.close()
        if successor is None:
            return
        self._note(f"The next job, {job_of(successor)}, is cancelled as well.")
        try:
            cancel_job(self._context, successor)
        except LauncherError as error:
            self._note(f"{error.what} {error.why}".rstrip() + f" To end it: {error.hint}")

    def drop(self) -> None:
        """Cancel the next job, as this one has begun again and ends later; the session goes on."""
        successor = self.successor
        self.close()
        if successor is not None:
            self._withdraw()
            again = launcher_command(self._context, self._session, "renew")
            self._note(f"The next job, {job_of(successor)}, is cancelled: it would begin too early.\n  {again}")
            cancel_apart(self._context, successor)

    def left_queued(self) -> None:
        """Say what becomes of the next job when the user detaches."""
        if self.successor is not None:
            connect = launcher_command(self._context, self.successor, "connect")
            stop = launcher_command(self._context, self.successor, "stop")
            job = job_of(self.successor)
            self._note(f"The next job, {job}, stays queued. Attach to it, or end it, with:\n  {connect}\n  {stop}")

    def close(self) -> None:
        """Stop watching the next job."""
        if self._watch is not None:
            self._watch.close()
        self._watch = None

    def _note(self, text: str) -> None:
        self._context.view.show(events.Note(text))


class _Reported:
    """A view for a thread: what it shows goes to the inbox."""

    def __init__(self, renewal: Renewal) -> None:
        self.show: Callable[[events.Event], None] = renewal.put

    def listen(self, inbox: queue.SimpleQueue[object]) -> None:
        """Nothing: the keyboard is not the thread's."""


def _access_to(context: Context, session: Session, token: str) -> Access:
    return Access(token, functools.cache(lambda: join_keys(context.host, session.directory)))


class SuccessorWatch:
    """Looks at the next job from its beginning on, until JupyterLab there answers over a route of its own.

    Until then nothing is asked. Puts ``_Answers`` or ``_Lost`` into the inbox, once.
    """

    def __init__(self, context: Context, session: Session, access: Access, begins: datetime | None) -> None:
        self._context, self._session, self._access = context, session, access
        self._begins, self._over = begins, threading.Event()
        threading.Thread(target=self._look_on, name="next job", daemon=True).start()

    def close(self) -> None:
        """Look no more."""
        self._over.set()

    def _look_on(self) -> None:
        while self._begins is not None and (left := (self._begins - self._context.clock()).total_seconds()) > 0:
            if self._over.wait(min(left, 60.0)):  # a laptop may sleep meanwhile
                return
        pause, queried_at, problem = LOOK_EVERY, -QUERY_EVERY, ""
        while not self._over.wait(pause):
            try:
                if self._answers():
                    self._context.interrupts.inbox.put(_Answers(self))
                    return
                if time.monotonic() - queried_at >= QUERY_EVERY:
                    queried_at = time.monotonic()
                    problem = self._end_of_job()
            except (ConnectionLost, HostCommandFailed, NoAnswer):
                pass  # the next time: the launcher reconnects meanwhile
            except Exception as error:  # a thread must not die silently
                problem = error.what if isinstance(error, LauncherError) else repr(error)
            if problem:
                self._context.interrupts.inbox.put(_Lost(self, problem))
                return
            pause = min(1.1 * pause, LONGEST_LOOK)

    def _answers(self) -> bool:
        """Whether JupyterLab there answers with our token. Raises ``LauncherError``."""
        context, session = self._context, self._session
        directory = session.directory
        written = json_object(context.host.read_file(f"{directory}/endpoint.json") or b"")
        if not written:
            return False
        endpoint = Endpoint.from_file(written)
        node = JobNode.from_started(json_object(context.host.read_file(f"{directory}/started.json") or b""))
        target = NodeTarget(context.host, context.scheduler, session, job_of(session), node, self._access.keys)
        wanted = "direct" if session.record.route == "direct" else context.target.profile.route
        _, route = find_route(target, wanted, context.target.name)
        tunnel = Tunnel()
        try:
            tunnel.run_over(route)
            check_jupyter(tunnel.jupyter(endpoint), endpoint, self._access.token)
        finally:
            tunnel.close()
        return True

    def _end_of_job(self) -> str:
        """Return how the job has ended, "" if it has not. Raises ``LauncherError`` or ``NoAnswer``."""
        context = self._context
        within = context.host_timing.answer_within
        status = query_status(context.host, context.scheduler, job_of(self._session), within)
        if status is None:
            return "the scheduler does not know it any more."
        return f"{status.state.name.lower().replace('_', ' ')}." if status.state.ended else ""


def cancel_apart(context: Context, session: Session) -> None:
    """Cancel the job of another session than the attached one, on a thread; a note says so if that fails."""
    job, inbox = job_of(session), context.interrupts.inbox
    command, typed = context.scheduler.cancel(job), shlex.join(context.scheduler.cancel_typed(job))

    def cancel() -> None:
        for _ in range(CANCEL_TIMES):
            with contextlib.suppress(LauncherError, OSError):
                if context.host.run(command, login_shell=True).exit_code == 0:
                    return
            time.sleep(CANCEL_EVERY)
        inbox.put(_Shown(events.Note(f"Job {job} could not be cancelled. To end it:\n  {typed}")))

    threading.Thread(target=cancel, name="cancel", daemon=True).start()
