"""Seeing one session through: wait until JupyterLab answers, hold it, end it; and clean up on every way out.

Everything that happens arrives in one inbox: what the job writes, what the scheduler says, what becomes of the way to
the node, what the user types, signals. The loop takes one thing after the other, so nothing interrupts anything.
"""

from __future__ import annotations

import dataclasses
import queue
import time
from collections.abc import Callable, Mapping, Sequence

from notebook_launcher import events, explain, state
from notebook_launcher.billing import show_bill
from notebook_launcher.ending import (
    ANSWER_WITHIN,
    end_after,
    end_job,
    ended_from,
    not_ready_yet,
    say_left,
    still_there,
)
from notebook_launcher.errors import (
    ConnectionLost,
    HostCommandFailed,
    HostKeyChanged,
    HostKeyUnknown,
    Interrupted,
    JobCancelled,
    JobFailed,
    JobLost,
    JobSilent,
    JobTimedOut,
    JupyterSilent,
    LauncherError,
    NodeUnreachable,
    SchedulerSilent,
)
from notebook_launcher.holding import Holding
from notebook_launcher.interrupts import HungUp, Interrupt
from notebook_launcher.mending import LONGEST_PAUSE, GivenUp, Mended, Mending
from notebook_launcher.pace import Pace
from notebook_launcher.passage import Failed, Opened, Reached, Way
from notebook_launcher.request import Request
from notebook_launcher.schedulers.base import JobStatus, State
from notebook_launcher.session import Session
from notebook_launcher.stage import Access, Stage, Typed, View, job_of
from notebook_launcher.tunnel import Endpoint, SameMachine, Tunnel, read_port, why_not
from notebook_launcher.verdict import ended_idle, exit_record, final_status, how_it_ended, why_requeued
from notebook_launcher.waiting import show_suspended, show_waiting
from notebook_launcher.watch import (
    LAST_CHANCE,
    SILENCE,
    DirectoryGone,
    FileAppeared,
    IdleTold,
    NoAnswer,
    Sampled,
    SchedulerMute,
    StatusChanged,
    Watch,
    WatchBroke,
    ask,
)
from notebook_launcher.ways import Crossing, Node, find_way

STABLE_AFTER = 15.0  # seconds after which a mended connection counts as a good one
PATIENCE_WAITING = 24 * 3600.0  # seconds for which a lost connection is tried again while the job has no end yet
KEYS_HELD = (
    "ENTER alone ends the session and its job, d leaves it running, f PORT forwards a port (f 6006, f 6006:16006)."
)
KEYS_WAITING = "JupyterLab is not ready yet. Ctrl-C ends the job; d and ENTER leaves it, for you to come back to."
KEYS_COMING_BACK = "JupyterLab is not ready yet. Ctrl-C, or d and ENTER, leaves the session as it is."
KEYS_PORTS = "ENTER, or Ctrl-C, closes the ports here; the session goes on. f PORT opens another one."
FIRST_WORD_WITHIN = 180.0  # seconds that a running job's script may take to its first line: a prolog, a slow mount


def attend(
    stage: Stage,
    session: Session,
    access: Access,
    *,
    ours: bool,
    first: events.Event,
    ports: Sequence[tuple[int, int]] = (),
) -> None:
    """Show the ``first`` event, and hold a session until something ends that.

    ``ports``: hold only these ports of its node (and the numbers that they should have here, 0: the same), whether
    JupyterLab runs there or not; whatever the user does then leaves the session running. ``ours``: we have just queued
    it, so that what goes wrong before it is of use ends its job. A session that somebody comes back to (``ours`` false)
    is ended only by a word of the user's while it is held. Raises a ``LauncherError`` where it did not end well;
    ``HungUp`` where the terminal was closed, which leaves it running.
    """
    try:
        attendance = _Attendance(stage, session, access, ours=ours, ports=ports)
    except Exception as error:
        if ours:
            end_after(stage, session, error)
        raise
    try:
        stage.view.show(first)
        attendance.follow()
    except _End:
        attendance.stop_mending()
        if ours or attendance.held:
            end_job(stage, session)
        if not attendance.held:
            not_ready_yet(stage, session, ours=ours)
        else:
            show_bill(stage, session)
    except _Leave:
        say_left(stage, session)
    except _Over as over:
        end_job(stage, session, str(over))
        show_bill(stage, session)
    except _GaveUp as gave_up:
        if isinstance(gave_up.error, HostKeyChanged | HostKeyUnknown):  # coming back would end the same way
            gave_up.error.why += f" The session goes on: job {job_of(session)}."
            say_left(stage, session)
            raise gave_up.error from None
        why = f"{gave_up.error.what} {gave_up.error.why}".strip()
        raise still_there(stage, session, ConnectionLost("The connection to the cluster is lost.", why=why)) from None
    except SchedulerSilent as error:
        raise still_there(stage, session, error) from None
    except (JobCancelled, JobFailed, JobLost, JobTimedOut):
        if attendance.held:
            show_bill(stage, session)
        raise
    except Exception as error:  # an error of ours, too: a job that is of no use to anybody is not left behind
        if attendance.held:
            say_left(stage, session)
        elif ours:
            end_after(stage, session, error)
        raise
    finally:
        attendance.close()


class _End(Exception):
    """The user wants the session to end."""


class _Leave(Exception):
    """The user leaves the session running."""


class _GaveUp(Exception):
    """A broken connection could not be mended, or only in vain."""

    def __init__(self, error: LauncherError) -> None:
        self.error = error


class _Over(Exception):
    """The session has ended in a way that is no failure: shut down from the browser, ended from elsewhere."""


class _Tick:
    """Nothing has happened for a second."""


class _Attendance:
    """The loop, and what is known so far."""

    def __init__(
        self, stage: Stage, session: Session, access: Access, *, ours: bool, ports: Sequence[tuple[int, int]] = ()
    ) -> None:
        self._stage, self._session, self._access, self._ours = stage, session, access, ours
        self._inbox = stage.interrupts.inbox
        self._job = job_of(session)
        self._watch = self._new_watch()
        here = stage.scheduler.same_machine and not stage.host.remote
        self._tunnel = SameMachine() if here else Tunnel()
        self._way: Way | None = None
        self._run: Mapping[str, object] = {}  # what the job wrote when it started: of a requeued one this differs
        self._holding = Holding(stage, session)
        self._endpoint: Endpoint | None = None
        self._asked = False  # whether the way is being used already
        self._reached = False
        self._only_ports = bool(ports)
        self._forwards = [*ports, *((port, 0) for port in stage.forwards)]
        self._forwarded: set[tuple[int, int]] = set()  # of this run: ports of its node, and the numbers wanted here
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

    def follow(self) -> None:
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
        state.forget_held(self._session.id)
        if self._way is not None:
            self._way.close()
        self._tunnel.close()

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
            return _Tick()

    def _act_on(self, item: object) -> None:
        if isinstance(item, Interrupt):
            raise HungUp if item.kind == "leave" else _Leave if self._only_ports else _End
        if isinstance(item, Typed):
            self._typed(item.line)
        elif isinstance(item, FileAppeared):
            {"started": self._started, "endpoint": self._listens, "exit": self._ended}[item.name](item.data)
        elif isinstance(item, StatusChanged):
            self._status(item)
        elif isinstance(item, SchedulerMute):
            self._mute(item.reason)
        elif isinstance(item, Opened | Reached | Failed):
            self._way_news(item)
        elif isinstance(item, WatchBroke):
            if item.watch is self._watch:
                self._lost(item.reason) if item.connection else self._watch_broke(item.reason)
        elif isinstance(item, Sampled):
            self._holding.sampled(item.sample)
        elif isinstance(item, IdleTold):
            self._holding.idle(item.data)
        elif isinstance(item, DirectoryGone):
            directory = self._session.directory
            self._stage.view.show(events.Noted(f"The session's directory {directory} was removed; its job goes on."))
        elif isinstance(item, Mended):
            self._mended()
        elif isinstance(item, GivenUp):
            self._given_up(item)
        elif isinstance(item, _Tick):
            self._look_around()

    def _typed(self, line: str) -> None:
        words = line.lower().split()
        if words == ["d"] or (not words and self._only_ports):
            raise _Leave
        if not words and self.held:
            raise _End
        if len(words) == 2 and words[0] in ("f", "forward"):
            self._forward_typed(words[1])
            return
        # an impatient ENTER must not cost a place in the queue
        not_held = KEYS_WAITING if self._ours else KEYS_COMING_BACK
        keys = KEYS_PORTS if self._only_ports else KEYS_HELD if self.held else not_held
        self._stage.view.show(events.Noted(keys))

    def _forward_typed(self, word: str) -> None:
        ports = read_port(word)
        if ports is None:
            self._note(f"“{word}” is not a port (1 to 65535); for example: f 6006")
        elif self.held:
            self._forward(*ports)
        else:
            self._forwards.append(ports)
            self._note(f"Port {word} will be forwarded as soon as JupyterLab is ready.")

    def _forward(self, port: int, wish: int) -> None:
        wish = wish or port
        local_port = self._tunnel.forward(port, wish)
        if (port, wish) in self._forwarded:
            self._note(f"Port {port} of {self._node} is open already: http://127.0.0.1:{local_port}")
            return
        self._forwarded.add((port, wish))
        if wish != local_port:
            self._note(why_not(wish))
        self._stage.view.show(events.Forwarded(str(self._node), port, local_port))

    def _note(self, text: str) -> None:
        self._stage.view.show(events.Noted(text))

    def _look_around(self) -> None:
        # twice: after Ctrl-Z and fg the cluster's words are on their way
        was_silent, self._was_silent = self._was_silent, self._watch.silent_for > SILENCE
        if self._mending is None:
            if was_silent and self._was_silent:
                self._lost(f"nothing was heard for {self._watch.silent_for:.0f} s", only_silent=True)
            elif self._reached and not self._tunnel.alive:
                self._way_broke("the connection to the compute node broke")
        elif self._only_silent and self._stage.host.alive and self._watch.silent_for < SILENCE / 2:
            self._came_back()
        elif self._is_lost() and self._way is not None:
            # JupyterLab keeps what is typed while it knows that it is not connected, and loses it while it does not
            self._way.close()
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
            raise _GaveUp(item.error)

    def _came_back(self) -> None:
        """The connection was only silent, as a cut network that is whole again."""
        self._no_more_mending()
        if self.held and self._tunnel.alive:
            self._reached = True
            self._whole_again()
        else:
            self._go_on()

    def _no_more_mending(self) -> None:
        self.stop_mending()
        self._mending = None
        if self._silent_since is not None:
            self._silent_since = time.monotonic()  # what the script said meanwhile is still to be read

    def _go_on(self) -> None:
        """The login node is reached again: make the way to the compute node anew, where there is one already."""
        if self._run:
            self._make_way(0.0)
        else:
            self._whole_again()

    def _way_broke(self, reason: str) -> None:
        """The login node is reached, the compute node is not: begin to mend that."""
        self._broken(reason)
        self._make_way(self._next_pause())

    def _broken(self, reason: str) -> None:
        self._reached = False
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
        self._make_way(0.0)

    def _listens(self, data: Mapping[str, object]) -> None:
        endpoint = Endpoint.from_file(data)
        if endpoint != self._endpoint:
            self._endpoint, self._asked = endpoint, False
            self._use_way()

    def _ended(self, data: Mapping[str, object]) -> None:
        self._over(data, None)

    # --- what becomes of the way to the node

    def _make_way(self, pause: float) -> None:
        if self._way is not None:
            self._way.close()
        stage, place = self._stage, self._stage.place
        crossing = Crossing(stage.host, stage.scheduler, self._session, self._job, self._node, self._access.keys)
        stream = "direct" if self._session.record.stream == "direct" else place.profile.stream
        self._asked = self._reached = False
        self._way = Way(self._inbox, lambda: find_way(crossing, stream, place.name), pause)

    def _way_news(self, item: Opened | Reached | Failed) -> None:
        if item.way is not self._way:
            return  # of an earlier run of the job, or an earlier connection
        if isinstance(item, Failed):
            self._way_failed(item.error)
        elif isinstance(item, Opened):
            if item.way.link is not None:
                self._tunnel.lead_over(item.way.link)
            self._stage.view.show(events.Tunnelled(str(self._node), item.way.stream))
            if self._endpoint is None and self._mending is None:  # Jupyter still starts, and that may take a while
                self._whole_again()
            self._use_way()
        else:
            self._answers(item.local_port)

    def _use_way(self) -> None:
        if not self._way or not self._way.link or self._asked:
            return
        if self._only_ports and self._session.record.stream != "direct":  # where the endpoint tells the address
            self._asked = True
            self._answers(0)
        elif self._endpoint:
            if self._way.stream == "direct" and not self._stage.scheduler.same_machine and self._endpoint.is_private:
                # that address of the login node is somebody else's, and would be sent the token
                raise NodeUnreachable(
                    f"JupyterLab of session {self._session.id} does not listen on an address of {self._node}.",
                    why="It was not launched with --stream direct, or found no such address there.",
                    mend="take another stream, or none",
                )
            self._asked = True
            if self._only_ports:
                self._tunnel.address = self._endpoint.address
                self._answers(0)
                return
            local_port = self._tunnel.jupyter(self._endpoint, state.last_port(self._session.id))
            self._way.use(local_port, self._endpoint, self._access.token)

    def _answers(self, local_port: int) -> None:
        """Jupyter answers through the tunnel, or the ports lead to the node: for the first time, or again."""
        self._reached = True
        self._whole_again()
        if local_port:
            state.note_held(self._session.id, local_port)
        if self.held:
            return
        self.held = True
        if local_port and self._endpoint is not None:
            url = self._endpoint.url(local_port, self._access.token)
            self._stage.view.show(events.Ready(self._session.id, self._job.id, str(self._node), url, local_port))
        for port, wish in self._forwards:
            self._forward(port, wish)
        if self._only_ports:
            self._stage.view.show(events.Noted(KEYS_PORTS))
        self._holding.begins()

    def _way_failed(self, error: Exception) -> None:
        """A first way that fails is an error; one that has been there is tried again, as long as the job may run."""
        if self._mending is not None:
            return  # another one is made afterwards
        if isinstance(error, ConnectionLost) or not self._stage.host.alive:
            self._lost("the connection to the cluster broke")
        elif not self.held and isinstance(error, JupyterSilent) and not self._tunnel.alive:
            self._way_broke("the connection to the compute node broke")
        elif not self.held or isinstance(error, HostKeyChanged):
            if self._still_runs():
                if self._watch.silent_for > SILENCE and not isinstance(error, HostKeyChanged | HostKeyUnknown):
                    self._lost(f"nothing was heard for {self._watch.silent_for:.0f} s", only_silent=True)
                else:
                    raise error
        elif time.monotonic() > self._tried_until():
            raise _GaveUp(error if isinstance(error, LauncherError) else LauncherError(repr(error)))
        else:
            what = error.what if isinstance(error, LauncherError) else repr(error)
            self._way_broke(what)

    # --- what the scheduler says

    def _still_runs(self) -> bool:
        """Ask: a way that fails says nothing about the way where the job has ended meanwhile, or waits again."""
        try:
            status = ask(self._stage.host, self._stage.scheduler, self._job, ANSWER_WITHIN)
        except NoAnswer:
            return True
        if status is None or status.state.ended or status.state.waits:
            self._status(StatusChanged(status))
            return False
        return status.state is not State.COMPLETING  # how it ends is told soon

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
        if self._mending is not None or self._watch.silent_for > SILENCE:
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
            self._stage.view.show(events.Running(self._job.id, node))

    def _forget_run(self, sentence: str) -> None:
        """The job runs, or will run, a second time: on another node, with another port. Our own ports stay."""
        if self._way is not None:
            self._way.close()
        self._tunnel.interrupt()
        self._way = self._endpoint = self._silent_since = None
        self._holding.waits_again()
        self._run = {}
        self._asked = self._reached = self.held = False
        self._shown_node = ""
        self._forwarded.clear()
        if self._mending is None:
            self._whole_again()  # only the way to the former node was broken
        self._stage.view.show(events.Noted(sentence))

    # --- the end

    def _over(self, record: Mapping[str, object] | None, status: JobStatus | None) -> None:
        """Tell how the job ended; only where the scheduler will run it again, go on."""
        record = record or exit_record(self._stage, self._session)
        if record.get("cause") == "finished" and self.held:
            raise _Over("JupyterLab was shut down, and its job is gone.")
        if sentence := ended_idle(record):
            raise _Over(sentence)
        if status is None and record.get("cause") in explain.ASK_THE_SCHEDULER:
            status = final_status(self._stage, self._session, record)
        if status is not None and status.state.waits:
            self._status(StatusChanged(status))
            return
        is_cancelled = status is None or status.state is State.CANCELLED
        ended = str(record.get("ended") or "")
        if self.held and is_cancelled and (machine := ended_from(self._stage, self._session, ended)):
            raise _Over(f"The session was ended by another launch-notebook, on {machine}; job {self._job} is gone.")
        node = str(self._node) if self._run else status.node if status else None
        error = how_it_ended(self._stage, self._session, record, status, node)
        if self.held and isinstance(error, JobCancelled) and error.by_user:
            raise _Over(f"Job {self._job} was ended by you, from elsewhere.")
        raise error


# --- only until it starts ----------------------------------------------------------------------------------------


def await_start(stage: Stage, session: Session, access: Access, first: events.Event) -> str:
    """Show the ``first`` event, wait until the job that we have just queued has started, and return its node's name.

    The keyboard is left alone. Where it does not come to that the job is ended. Raises a ``LauncherError``, also
    ``Interrupted``, or ``HungUp``.
    """
    waiting: _UntilStarted | None = None
    node = ""
    try:
        deaf = dataclasses.replace(stage, view=_NoKeyboard(stage.view))
        waiting = _UntilStarted(deaf, session, access, ours=True, ports=())
        stage.view.show(first)
        waiting.follow()
    except _Started as started:
        node = started.node
    except _End:
        end_job(stage, session)
        raise Interrupted("Interrupted before the job had started.") from None
    except _GaveUp as gave_up:
        end_after(stage, session, gave_up.error)
        raise gave_up.error from None
    except (JobCancelled, JobFailed, JobLost, JobTimedOut):
        raise
    except HungUp:  # nobody will come back to it
        end_job(stage, session)
        raise
    except Exception as error:
        end_after(stage, session, error)
        raise
    finally:
        if waiting is not None:
            waiting.close()
    return node


class _Started(Exception):
    """The job has started."""

    def __init__(self, node: str) -> None:
        self.node = node


class _UntilStarted(_Attendance):
    """The same, up to the job's first word."""

    def _started(self, data: Mapping[str, object]) -> None:
        self._no_more_mending()
        raise _Started(str(Node.from_started(data)))

    def _show_running(self, node: str) -> None:
        self._stage.view.show(events.Asking(f"job {self._job} runs on {node}; its script is starting"))


class _NoKeyboard:
    """A view that leaves the keyboard to somebody else."""

    def __init__(self, view: View) -> None:
        self.show = view.show

    def listen(self, inbox: queue.SimpleQueue[object]) -> None:
        """Do nothing."""
