"""Seeing one session through, up to what its program is: what the job and the scheduler say, a connection that breaks.

Everything that happens arrives in one inbox: what the job writes, what the scheduler says, what the user types,
signals. The loop takes one thing after the other, so nothing interrupts anything. What a session is held for
(JupyterLab: ``attend``; a notebook that runs: ``attend_run``; its start alone: ``starting``) is a class of its own on
top of this one.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping
from typing import NoReturn

from notebook_launcher.core.errors import ConnectionLost, HostCommandFailed, JobSilent, LauncherError
from notebook_launcher.core.events import launch as events
from notebook_launcher.core.interrupts import HungUp, Interrupt
from notebook_launcher.core.request import Request
from notebook_launcher.diagnosis import explain
from notebook_launcher.jobs.outcome import exit_record, final_status, how_it_ended, why_requeued
from notebook_launcher.jobs.pending import show_suspended, show_waiting
from notebook_launcher.jobs.polling import Pace
from notebook_launcher.jobs.watcher import (
    LAST_CHANCE,
    SILENCE,
    DirectoryGone,
    FileAppeared,
    IdleTold,
    Sampled,
    SchedulerMute,
    StatusChanged,
    Watch,
    WatchBroke,
)
from notebook_launcher.schedulers.base import JobStatus, State
from notebook_launcher.session.context import Stage, Typed, job_of
from notebook_launcher.session.record import Session
from notebook_launcher.supervision.attached_status import Holding
from notebook_launcher.tunnel.reconnect import LONGEST_PAUSE, GivenUp, Mended, Mending
from notebook_launcher.tunnel.routes import Node

STABLE_AFTER = 15.0  # seconds after which a mended connection counts as a good one
PATIENCE_WAITING = 24 * 3600.0  # seconds for which a lost connection is tried again while the job has no end yet
FIRST_WORD_WITHIN = 180.0  # seconds that a running job's script may take to its first line: a prolog, a slow mount


class End(Exception):
    """The user wants the session to end."""


class Leave(Exception):
    """The user leaves the session running."""


class GaveUp(Exception):
    """A broken connection could not be mended, or only in vain."""

    def __init__(self, error: LauncherError) -> None:
        self.error = error


class Over(Exception):
    """The session has ended in a way that is no failure: shut down from the browser, ended from elsewhere."""


class Tick:
    """Nothing has happened for a second."""


class Attendance:
    """The loop, and what is known so far. ``held``: whether the session is of use to the user already."""

    #: what is waited for after the job's start, for ``events.Running``
    program = "jupyterlab"

    def __init__(self, stage: Stage, session: Session, *, ours: bool) -> None:
        self._stage, self._session, self._ours = stage, session, ours
        self._inbox = stage.interrupts.inbox
        self._job = job_of(session)
        self._watch = self._new_watch()
        self._run: Mapping[str, object] = {}  # what the job wrote when it started: of a requeued one this differs
        self._holding = Holding(stage, session)
        self._mending: Mending | None = None
        self._broken_since: float | None = None
        self._pause = 0.0  # before the next attempt to mend something that did not last
        self._last_mending = self._watched_since = -STABLE_AFTER
        self._was_silent = False
        self._only_silent = False  # whether what is being mended may come back by itself
        self._silent_since: float | None = None  # since when the job runs without a word from its script
        self._shown_node = ""
        self._suspended = self._unanswered = False
        self.held = False

    def follow(self) -> NoReturn:
        """Act on one thing after the other; every way out is an exception."""
        self._stage.view.listen(self._inbox)
        self._lost_or(self._watch.start)
        while True:
            item = self._next()
            self._lost_or(lambda item=item: self._act_on(item))  # type: ignore[misc]
            self._holding.look()

    def close(self) -> None:
        """Leave nothing open here."""
        self.stop_mending()
        self._watch.close()

    # --- what differs from program to program

    def _begins(self, data: Mapping[str, object]) -> None:
        """The job has started, and has written ``data`` down (``started.json``)."""

    def _other_file(self, item: FileAppeared) -> None:
        """The job has written another file than ``started`` and ``exit``."""

    def _other(self, item: object) -> None:
        """Something has come that only this program knows of."""

    def _typed_words(self, words: list[str]) -> None:
        """The user has typed a line other than ``d``, in lower case."""

    def _interrupted(self) -> NoReturn:
        """The user has pressed Ctrl-C, or the like."""
        raise End

    def _each_second(self) -> None:
        """A second has passed, and the login node is reached as far as is known."""

    def _while_lost(self) -> None:
        """A second has passed, and the connection will not come back by itself."""

    def _go_on(self) -> None:
        """The login node is reached again."""
        self._whole_again()

    def _ended_well(self, record: Mapping[str, object]) -> None:
        """Raise ``Over`` where the job's last word alone tells that it ended as it was meant to."""

    def _conclude(self, record: Mapping[str, object], status: JobStatus | None) -> NoReturn:
        """Tell how the job ended, by an exception."""
        raise self._how_it_ended(record, status)

    # --- the loop

    def stop_mending(self) -> None:
        """Leave a broken connection as it is."""
        if self._mending is not None:
            self._mending.stop()

    def _new_watch(self, pace: Pace | None = None) -> Watch:
        stage = self._stage
        return Watch(
            stage.host,
            stage.scheduler,
            self._job,
            self._session.directory,
            self._inbox,
            request=Request(self._session.record.flags),
            user=stage.site.user,
            submitted_ago=0.0 if self._ours else None,
            pace=pace,
        )

    def _lost_or(self, act: Callable[[], None]) -> None:
        """Act; a connection that breaks meanwhile is mended, and what was to be done comes up again afterwards."""
        try:
            act()
        except ConnectionLost as error:
            self._lost(error.what)

    def _next(self) -> object:
        try:
            return self._inbox.get(timeout=1.0)
        except queue.Empty:
            return Tick()

    def _act_on(self, item: object) -> None:
        if isinstance(item, Interrupt):
            if item.kind == "leave":
                raise HungUp
            self._interrupted()
        if isinstance(item, Typed):
            self._typed(item.line)
        elif isinstance(item, FileAppeared):
            {"started": self._started, "exit": self._ended}.get(item.name, lambda _: self._other_file(item))(item.data)
        elif isinstance(item, StatusChanged):
            self._status(item)
        elif isinstance(item, SchedulerMute):
            self._mute(item.reason)
        elif isinstance(item, WatchBroke):
            if item.watch is self._watch:
                self._lost(item.reason) if item.connection else self._watch_broke(item.reason)
        elif isinstance(item, Sampled):
            self._holding.sampled(item.sample)
        elif isinstance(item, IdleTold):
            self._holding.idle(item.data)
        elif isinstance(item, DirectoryGone):
            self._note(f"The session's directory {self._session.directory} was removed; its job goes on.")
        elif isinstance(item, Mended):
            self._mended()
        elif isinstance(item, GivenUp):
            self._given_up(item)
        elif isinstance(item, Tick):
            self._look_around()
        else:
            self._other(item)

    def _typed(self, line: str) -> None:
        words = line.lower().split()
        if words == ["d"]:
            raise Leave
        self._typed_words(words)

    def _note(self, text: str) -> None:
        self._stage.view.show(events.Noted(text))

    def _look_around(self) -> None:
        # twice: after Ctrl-Z and fg the cluster's words are on their way
        was_silent, self._was_silent = self._was_silent, self._is_silent
        if self._mending is None:
            if was_silent and self._was_silent:
                self._lost(f"nothing was heard for {self._watch.silent_for:.0f} s", only_silent=True)
            else:
                self._each_second()
        elif self._only_silent and self._stage.host.alive and self._watch.silent_for < SILENCE / 2:
            self._came_back()
        elif self._is_lost():
            self._while_lost()
        if (
            self._mending is None
            and self._silent_since is not None
            and time.monotonic() - self._silent_since > FIRST_WORD_WITHIN
        ):
            raise JobSilent(
                f"Job {self._job} runs, but its script has not said a word for {FIRST_WORD_WITHIN:.0f} s.",
                why=f"It would write into {self._session.directory}.",
                mend="do the compute nodes see that folder? another one is named by session_root in the profile",
            )

    # --- what breaks, and is mended

    def _lost(self, reason: str, *, only_silent: bool = False) -> None:
        """The login node is not reached any more: begin to mend that. Of the job this says nothing."""
        self._only_silent = only_silent
        if self._mending is None:
            self._broken(reason)
            self._mending = Mending(
                self._stage.host,
                self._stage.prompts,
                self._inbox,
                deadline=self._tried_until(),
                pause=self._next_pause(),
                is_lost=self._is_lost,
            )

    def _watch_broke(self, reason: str) -> None:
        """Begin it anew where the connection stands: some login nodes end commands that run for long."""
        lasted, self._watched_since = time.monotonic() - self._watched_since, time.monotonic()
        if self._mending is not None or lasted < STABLE_AFTER or not self._stage.host.alive:
            self._lost(reason)
            return
        self._watch.close()
        self._watch = self._new_watch(self._watch.pace)
        try:
            self._watch.start()
        except HostCommandFailed as error:
            self._lost(error.what)

    @property
    def _is_silent(self) -> bool:
        return self._watch.silent_for > SILENCE

    def _is_lost(self) -> bool:
        """Whether the present connection will not come back by itself."""
        return not (self._only_silent and self._stage.host.alive) or self._watch.silent_for > LAST_CHANCE

    def _mended(self) -> None:
        """The login node is reached anew: whatever ran over the old connection is started again.

        So it is after a mending that was stopped as well: the old connection had come back meanwhile, and this has
        replaced it all the same.
        """
        self._no_more_mending()
        self._watch.close()
        self._watch = self._new_watch(self._watch.pace)
        try:
            self._watch.start()
        except HostCommandFailed as error:  # a login node that is just starting up may not run commands yet
            self._lost(error.what)
        if self._mending is None:
            self._go_on()

    def _given_up(self, item: GivenUp) -> None:
        if item.by is self._mending:
            raise GaveUp(item.error)

    def _came_back(self) -> None:
        """The connection was only silent, as a cut network that is whole again."""
        self._no_more_mending()
        self._go_on()

    def _no_more_mending(self) -> None:
        self.stop_mending()
        self._mending = None
        if self._silent_since is not None:
            self._silent_since = time.monotonic()  # what the script said meanwhile is still to be read

    def _broken(self, reason: str) -> None:
        if self._broken_since is None:
            self._broken_since = time.monotonic()
            self._stage.view.show(events.Disconnected(self._job.id, reason))

    def _whole_again(self) -> None:
        if self._broken_since is not None:
            seconds, self._broken_since = time.monotonic() - self._broken_since, None
            self._stage.view.show(events.Reconnected(self._job.id, round(seconds, 1)))

    def _next_pause(self) -> float:
        """Seconds to wait before mending: none, but for what breaks again and again."""
        now = time.monotonic()
        lasted = now - self._last_mending
        self._last_mending = now
        self._pause = 0.0 if lasted > STABLE_AFTER else min(max(0.5, 2 * self._pause), LONGEST_PAUSE)
        return self._pause

    def _tried_until(self) -> float:
        """Until when mending makes sense: while the job can still be there."""
        patience = self._holding.patience()
        return time.monotonic() + (PATIENCE_WAITING if patience is None else patience)

    # --- what the job says

    def _started(self, data: Mapping[str, object]) -> None:
        if data == self._run:
            return  # a new watch tells everything again
        if self._run:
            self._forget_run(f"Job {self._job} was put back into the queue, and has started again.")
        self._silent_since = None
        self._run = data
        self._holding.runs(data)
        self._node = Node.from_started(data)
        self._show_running(str(self._node))
        self._begins(data)

    def _ended(self, data: Mapping[str, object]) -> None:
        self._over(data, None)

    # --- what the scheduler says

    def _status(self, item: StatusChanged) -> None:
        status = item.status
        if self._unanswered:
            self._answered(status)
        if status is None or status.state.ended:
            self._over(None, status)
        elif status.state.waits:
            if self._run:
                self._forget_run(why_requeued(self._stage, self._session))
            self._silent_since, self._shown_node = None, ""
            show_waiting(self._stage, self._session, status, item.evidence, item.read_at)
        else:
            self._holding.status(status)
            self._runs(status)

    def _runs(self, status: JobStatus) -> None:
        if status.state is State.SUSPENDED:
            self._suspended, self._shown_node = True, ""
            show_suspended(self._stage, status)
        elif status.state is State.RUNNING and self._suspended:
            self._suspended = False
            self._stage.view.show(events.Noted(f"Job {self._job} runs again."))
        elif status.state is State.RUNNING and not self._run and self._silent_since is None:
            self._silent_since = time.monotonic()
            self._show_running(status.node or "its node")

    def _mute(self, reason: str) -> None:
        """The scheduler says nothing; the job's own files, and the way to it, do not depend on that."""
        if self._mending is not None or self._is_silent:
            return  # it was not even asked: the network is away, and that is told
        self._unanswered = True
        self._stage.view.show(events.Unanswered(self._job.id, reason))

    def _answered(self, status: JobStatus | None) -> None:
        self._unanswered = False
        self._shown_node = ""
        self._stage.view.show(events.Noted("The scheduler answers again."))
        if status is not None and status.state is State.RUNNING and not self.held:
            self._show_running(str(self._node) if self._run else status.node or "its node")

    def _show_running(self, node: str) -> None:
        """Say so once: the scheduler and the job tell it one after the other."""
        if node != self._shown_node:
            self._shown_node = node
            self._stage.view.show(events.Running(self._job.id, node, self.program))

    def _forget_run(self, sentence: str) -> None:
        """The job runs, or will run, a second time."""
        self._silent_since = None
        self._holding.waits_again()
        self._run = {}
        self.held = False
        self._shown_node = ""
        if self._mending is None:
            self._whole_again()  # only what belongs to the former node was broken
        self._note(sentence)

    # --- the end

    def _over(self, record: Mapping[str, object] | None, status: JobStatus | None) -> None:
        """Tell how the job ended; only where the scheduler will run it again, go on."""
        record = record or exit_record(self._stage, self._session)
        self._ended_well(record)
        if status is None and record.get("cause") in explain.ASK_THE_SCHEDULER:
            status = final_status(self._stage, self._session, record)
        if status is not None and status.state.waits:
            self._status(StatusChanged(status))
            return
        self._conclude(record, status)

    def _how_it_ended(self, record: Mapping[str, object], status: JobStatus | None) -> LauncherError:
        node = str(self._node) if self._run else status.node if status else None
        return how_it_ended(self._stage, self._session, record, status, node)
