"""Watches the next job of an attached session, on a thread of its own, until its JupyterLab answers or it has ended."""

from __future__ import annotations

import contextlib
import functools
import shlex
import threading
import time
from datetime import datetime

from notebook_launcher.core import events
from notebook_launcher.core.errors import ConnectionLost, HostCommandFailed, HostKeyChanged, LauncherError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.jobs.status import NoAnswer, query_status
from notebook_launcher.session.context import Context, job_of
from notebook_launcher.session.credentials import Access, join_keys
from notebook_launcher.session.record import Session, json_object
from notebook_launcher.tunnel.forwarding import Endpoint, Tunnel, check_jupyter
from notebook_launcher.tunnel.routes import JobNode, NodeTarget, find_route, wanted_route

CHECK_EVERY, LONGEST_PAUSE = 3.0, 15.0  # seconds between two checks whether JupyterLab answers, once the job may run
QUERY_EVERY = 30.0  # seconds between two queries of the scheduler
QUERY_BEFORE_EVERY = 600.0  # the same before the job may begin: somebody may have cancelled it
NOTE_AFTER = 120.0  # seconds for which it may be unreachable before a note says so
CANCEL_TIMES, CANCEL_EVERY = 5, 10.0  # attempts to cancel another job, and the seconds between them


class Shown(Frozen):
    """An event that a thread sends to the view."""

    event: events.Event


class Answers(Frozen):
    """The next job's JupyterLab answers."""

    by: NextJobWatch


class Lost(Frozen):
    """The next job is of no use any more. ``runs``: it has not ended, and must be cancelled."""

    by: NextJobWatch
    why: str
    runs: bool = False


def access_to(context: Context, session: Session, token: str) -> Access:
    """Return the credentials of another session with the same token; a key is added to it when first needed."""
    return Access(token, functools.cache(lambda: join_keys(context.host, session.directory)))


class NextJobWatch:
    """Watches the next job until its JupyterLab answers over a route of its own.

    Before the job may begin, only the scheduler is queried, now and then. Only the scheduler decides that the job has
    ended; anything else that fails is tried again. It puts ``Answers`` or ``Lost`` into the inbox, once, and never asks
    the user for a secret.
    """

    def __init__(self, context: Context, session: Session, access: Access, begins: datetime | None) -> None:
        self._context, self._session, self._access = context, session, access
        self._begins, self._over = begins, threading.Event()
        self._queried_at = time.monotonic()
        self._failing_since: float | None = None
        self._is_noted = False
        threading.Thread(target=self._watch, name="next job", daemon=True).start()

    def close(self) -> None:
        """Stop watching."""
        self._over.set()

    def _watch(self) -> None:
        pause = CHECK_EVERY
        found: Answers | Lost | None = self._await_begin()
        while found is None and not self._over.wait(pause):
            found = self._check()
            pause = min(1.1 * pause, LONGEST_PAUSE)
        if found is not None and not self._over.is_set():
            self._context.interrupts.inbox.put(found)

    def _await_begin(self) -> Lost | None:
        """Wait until the job may begin; return ``Lost`` if it ended before that."""
        while self._begins is not None and (left := (self._begins - self._context.clock()).total_seconds()) > 0:
            if self._over.wait(min(left, 60.0)):  # a laptop may sleep meanwhile
                return None
            if found := self._lost_if_ended(QUERY_BEFORE_EVERY):
                return found
        self._queried_at = time.monotonic() - QUERY_EVERY
        return None

    def _check(self) -> Answers | Lost | None:
        """Check once whether JupyterLab answers; ``None``: check again later."""
        try:
            if self._answers():
                return Answers(self)
            self._failing_since = None
        except HostKeyChanged as error:  # not the job's node; another attempt would not help
            return Lost(self, error.what, runs=True)
        except (ConnectionLost, HostCommandFailed):
            pass  # the launcher reconnects meanwhile
        except Exception as error:  # a thread must not die silently
            self._note_unreachable(error.what if isinstance(error, LauncherError) else repr(error))
        return self._lost_if_ended(QUERY_EVERY)

    def _note_unreachable(self, what: str) -> None:
        """Show once that the job is unreachable, after it has been so for a while."""
        now = time.monotonic()
        self._failing_since = since = self._failing_since or now
        if not self._is_noted and now - since >= NOTE_AFTER:
            self._is_noted = True
            job = job_of(self._session)
            note = events.Note(f"The next job, {job}, cannot be reached yet: {what} It is tried again.")
            self._context.interrupts.inbox.put(Shown(note))

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
        wanted = wanted_route(session, context.target.profile.route)
        _, route = find_route(target, wanted, context.target.name, asks=False)
        tunnel = Tunnel()
        try:
            tunnel.run_over(route)
            check_jupyter(tunnel.jupyter(endpoint), endpoint, self._access.token)
        finally:
            tunnel.close()
        return True

    def _lost_if_ended(self, every: float) -> Lost | None:
        """Query the scheduler, unless it was queried less than ``every`` seconds ago."""
        if time.monotonic() - self._queried_at < every:
            return None
        self._queried_at = time.monotonic()
        context = self._context
        within = context.host_timing.answer_within
        try:
            status = query_status(context.host, context.scheduler, job_of(self._session), within)
        except (LauncherError, NoAnswer, OSError):
            return None  # queried again the next time
        if status is None:
            return Lost(self, "the scheduler does not know it any more.")
        return Lost(self, f"{status.state.name.lower().replace('_', ' ')}.") if status.state.ended else None


def cancel_apart(context: Context, session: Session) -> None:
    """Cancel the job of a session other than the attached one, on a thread; a note reports if that fails."""
    job, inbox = job_of(session), context.interrupts.inbox
    command, typed = context.scheduler.cancel(job), shlex.join(context.scheduler.cancel_typed(job))

    def cancel() -> None:
        for _ in range(CANCEL_TIMES):
            with contextlib.suppress(LauncherError, OSError):
                if context.host.run(command, login_shell=True).exit_code == 0:
                    return
            time.sleep(CANCEL_EVERY)
        inbox.put(Shown(events.Note(f"Job {job} could not be cancelled. To end it:\n  {typed}")))

    threading.Thread(target=cancel, name="cancel", daemon=True).start()
