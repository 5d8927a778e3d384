"""Continues a bench after a failure: finds the jobs of an earlier call again, and reconnects a lost connection."""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import time
from collections.abc import Callable, Collection

from notebook_launcher.bench.follow import Follower
from notebook_launcher.bench.journal import BenchFolder, JournalEntry
from notebook_launcher.bench.messages import CONTINUE, detached
from notebook_launcher.bench.request import BenchTiming
from notebook_launcher.core.errors import ConnectionLost, HostCommandFailed, LauncherError, SchedulerSilent
from notebook_launcher.core.interrupts import HungUp, Interrupt
from notebook_launcher.core.request import Request
from notebook_launcher.core.text import joined
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.jobs.lookup import read_session_index
from notebook_launcher.jobs.session_index import SessionIndex
from notebook_launcher.schedulers.base import JobRef
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session, discard_session, read_job
from notebook_launcher.tunnel.reconnect import ReconnectSucceeded, reconnect_until

MOST_RECONNECTS = 5  # while no lookup succeeds in between


class Recovery:
    """Finds jobs again and reconnects. ``take_interrupts``: handles what the user has typed meanwhile.

    ``request``: the request of one of the combinations; it tells where to look for their jobs.
    """

    def __init__(
        self,
        context: Context,
        folder: BenchFolder,
        request: Request,
        follower: Follower,
        take_interrupts: Callable[[], None],
        timing: BenchTiming,
    ) -> None:
        self._context, self._folder, self._request, self._timing = context, folder, request, timing
        self._follower, self._take_interrupts = follower, take_interrupts
        self._reconnects = 0  # since the last lookup

    # --- jobs of an earlier call

    def find_again(self) -> None:
        """Find the sessions that are recorded as queued; a combination that never got a job is planned again."""
        follower = self._follower
        names = [
            name
            for name in self._folder.names("queued")
            if self._folder[name].session not in follower.active and name not in follower.unfetched
        ]
        if not names:
            return
        index = self._find(names)
        entries = {entry.session.id: entry for entry in index.entries}
        for name in names:
            noted = self._folder[name]
            entry = entries.get(noted.session or "")
            session = self._with_job(entry.session, noted) if entry else None
            if entry is None:
                self._check_that_no_job_is_queued(noted.session or "")
            if session is None:
                self._folder.put_back(name)
                follower.show(f"{name} was not queued; it is queued again.")
            else:
                self._folder.change(name, job=str(session.job))
                follower.follow(name, session)
        if follower.active:
            count = len(follower.active)
            follower.show(f"Found {'one job that was' if count == 1 else f'{count} jobs that were'} queued before.")
        follower.update(index)

    def _find(self, names: Collection[str]) -> SessionIndex:
        """Look up the sessions, repeatedly for a while if those of some of these combinations are not listed."""
        wanted = {self._folder[name].session for name in names}
        deadline, pause, is_again = time.monotonic() + self._longest_invisible(names), 0.1, False
        while True:
            index = read_session_index(self._context, sure=False, timeout=self._timing.lookup_within)
            listed = {entry.session.id for entry in index.entries}
            left = deadline - time.monotonic()
            if listed.issuperset(wanted) or (is_again and left <= 0):
                return index
            if not is_again:
                self._follower.note("Not all sessions of this bench are listed yet; looking again.")
            is_again = True
            self._take_interrupts()
            time.sleep(max(0.1, min(pause, left)))
            pause = min(3 * pause, 5.0)

    def _longest_invisible(self, names: Collection[str]) -> float:
        """Return for how many more seconds one of these sessions may exist without being listed."""
        times = [parse_iso(self._folder[name].queued, self._context.clock()) for name in names]
        ages = [(self._context.clock() - at).total_seconds() if at else 0.0 for at in times]
        visible_within = self._timing.visible_within
        return min(visible_within, max(visible_within - age for age in ages))

    def _check_that_no_job_is_queued(self, session: str) -> None:
        """Check that a session whose directory is not listed has no job. Raises ``SchedulerSilent`` if it may have one.

        A job without its directory cannot be followed, and must not be queued twice.
        """
        jobs = self._in_queue(session, self._request)
        if jobs != []:
            why = (
                f"Its directory is not there, but its job is: {jobs[0]}." if jobs else "The scheduler does not answer."
            )
            raise SchedulerSilent(f"It is not known whether session {session} was queued.", why=why, hint=CONTINUE)

    def _with_job(self, session: Session, noted: JournalEntry) -> Session | None:
        """Return a session with its job; ``None`` if it certainly has none, after removing its directory.

        The launcher that queued it may have been killed while ``sbatch`` was running, which continues without it and
        may still queue the job. Raises ``SchedulerSilent`` if the scheduler does not answer.
        """
        deadline, pause = time.monotonic() + self._timing.appears_within, 0.5
        while True:
            if session.job or (job := read_job(self._context.host, session.directory)):
                return session if session.job else dataclasses.replace(session, job=job)
            queued = self._in_queue(session.id, Request(session.record.flags))
            if queued:
                return dataclasses.replace(session, job=queued[0])
            if time.monotonic() + pause > deadline or (queued == [] and self._is_settled(session, noted)):
                break
            self._take_interrupts()
            time.sleep(pause)
            pause = min(2 * pause, 3.0)
        if queued is None:
            what = f"It is not known whether session {session.id} was queued: the scheduler does not answer."
            raise SchedulerSilent(what, hint=CONTINUE)
        discard_session(self._context.host, session)  # without its directory, submit.sh cannot queue a job any more
        return None

    def _in_queue(self, session: str, request: Request) -> list[JobRef] | None:
        """Return a session's jobs in the scheduler's queue; ``None`` if the scheduler does not answer."""
        scheduler = self._context.scheduler
        with contextlib.suppress(HostCommandFailed):
            command = scheduler.find(session, request)
            answer = self._context.host.run(command, login_shell=True, timeout=self._context.host_timing.answer_within)
            return scheduler.read_find(session, answer)
        return None

    def _is_settled(self, session: Session, noted: JournalEntry) -> bool:
        """Whether nobody can still be queueing a session: enough time has passed, and ``sbatch`` is not running."""
        at = parse_iso(noted.queued)
        if at is None or (self._context.clock() - at).total_seconds() < self._timing.appears_within:
            return False
        return self._context.host.run(["test", "-e", f"{session.directory}/submit.out"]).exit_code != 0

    # --- a lost connection

    def unless_lost(self, act: Callable[[], None]) -> None:
        """Call ``act``; if the connection breaks meanwhile, reconnect, and leave the action to the next round."""
        try:
            act()
        except ConnectionLost as error:
            self._reconnects += 1
            if not self._context.host.remote or self._reconnects > MOST_RECONNECTS:
                error.hint = CONTINUE
                raise
            self._reconnect(error)

    def look_up_all(self) -> None:
        """Look up all sessions; if that works, reset the count of reconnections."""
        index = self._follower.look_up_all()
        self._reconnects = 0
        self._follower.update(index)

    def _reconnect(self, error: LauncherError) -> None:
        """Reconnect. Raises ``ConnectionLost`` if that fails permanently."""
        self._follower.close_streams()
        self._follower.note(f"{error.what} Reconnecting; the jobs go on.")
        began = time.monotonic()
        deadline = began + self._timing.reconnect_within
        outcome = reconnect_until(
            self._context.host,
            self._context.prompts,
            deadline,
            patience=self._timing.lookup_within,
            poll=self._check_interrupts,
        )
        if not isinstance(outcome, ReconnectSucceeded):
            why = joined(error.what, outcome.error.what) if outcome else error.what
            count = len(self._follower.active)
            jobs = f"{count} jobs go on." if count else ""
            raise ConnectionLost("Reconnecting failed.", why=joined(why, jobs), hint=CONTINUE)
        self._follower.note(f"Connected again, after {time.monotonic() - began:.0f} s.")
        self._follower.lookup_at = time.monotonic()
        self.unless_lost(self.find_again)

    def _check_interrupts(self) -> None:
        """Detach if the user has interrupted. Raises ``HungUp`` if the terminal is gone."""
        with contextlib.suppress(queue.Empty):
            item = self._context.interrupts.inbox.get_nowait()
            if isinstance(item, Interrupt):
                if item.kind == "leave":
                    raise HungUp
                why = "The connection is lost, so nothing could be cancelled."
                raise detached(list(self._follower.active), self._context.target, why)
