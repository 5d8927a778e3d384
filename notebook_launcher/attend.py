"""Seeing one session through: wait until JupyterLab answers, hold it, end it; and clean up on every way out.

Everything that happens arrives in one inbox: what the job writes, what the scheduler says, what becomes of the way to
the node, what the user types, signals. The loop takes one thing after the other, so nothing interrupts anything.
"""

from __future__ import annotations

import contextlib
import json
import queue
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from notebook_launcher import events, explain
from notebook_launcher.errors import (
    CancelFailed,
    ConnectionLost,
    HostCommandFailed,
    Interrupted,
    JobCancelled,
    JobFailed,
    JobLost,
    JobNeverStarts,
    JobSilent,
    JobTimedOut,
    LauncherError,
    SubmitUncertain,
)
from notebook_launcher.hosts.base import Host, Prompts
from notebook_launcher.interrupts import HungUp, Interrupt, Interrupts
from notebook_launcher.plan import Place
from notebook_launcher.schedulers.base import JobRef, JobStatus, Scheduler, State
from notebook_launcher.session import Session, Site
from notebook_launcher.tunnel import Endpoint, Node, Tunnel, check_jupyter, open_tunnel
from notebook_launcher.watch import SILENCE, FileAppeared, NoAnswer, StatusChanged, Watch, WatchBroke, ask

GONE_WITHIN = 120.0  # seconds that a cancelled job may take to be gone: its grace time and an epilog
CANCEL_AGAIN = 10.0  # seconds after which a cancel that did nothing is repeated
KEYS_HELD = "ENTER alone ends the session and its job; d and ENTER leaves it running."
KEYS_WAITING = "JupyterLab is not ready yet. Ctrl-C ends the job; d and ENTER leaves it, for you to come back to."
KEYS_COMING_BACK = "JupyterLab is not ready yet. Ctrl-C, or d and ENTER, leaves the session as it is."
FIRST_WORD_WITHIN = 180.0  # seconds that a running job's script may take to its first line: a prolog, a slow mount
FINAL_WORD_WITHIN = 15.0  # seconds after the job's last word in which the scheduler says what became of it


class View(Protocol):
    """Shows what happens, and tells what the user typed."""

    def show(self, event: events.Event) -> None:
        """Show one event."""

    def listen(self, inbox: queue.SimpleQueue[object]) -> None:
        """From now on put a ``Typed`` into ``inbox`` for each line that the user types."""


@dataclass(frozen=True)
class Typed:
    """A line from the keyboard, without its end."""

    line: str


@dataclass
class Stage:
    """What a story plays on: a host, its scheduler, and what one look at the host told."""

    place: Place
    host: Host
    site: Site
    scheduler: Scheduler
    root: str
    view: View
    prompts: Prompts
    interrupts: Interrupts


def attend(stage: Stage, session: Session, token: str, *, ours: bool, first: events.Event) -> None:
    """Show the ``first`` event, and hold a session until something ends that.

    ``ours``: we have just queued it, so that what goes wrong before it is of use ends its job. A session that somebody
    comes back to (``ours`` false) is ended only by a word of the user's while it is held. Raises a ``LauncherError``
    where it did not end well; ``HungUp`` where the terminal was closed, which leaves it running.
    """
    attendance = _Attendance(stage, session, token, ours=ours)
    try:
        stage.view.show(first)
        attendance.follow()
    except _End:
        if ours or attendance.held:
            end_job(stage, session)
        if not attendance.held:
            _not_ready_yet(stage, session, ours=ours)
    except _Leave:
        say_left(stage, session)
    except _Over:
        end_job(stage, session, "JupyterLab was shut down, and its job is gone.")
    except ConnectionLost as error:
        raise _still_there(stage, session, error) from None
    except (JobCancelled, JobFailed, JobLost, JobTimedOut):
        raise
    except Exception as error:  # an error of ours, too: a job that is of no use to anybody is not left behind
        if ours:
            _end_after(stage, session, error)
        raise
    finally:
        attendance.close()


class _End(Exception):
    """The user wants the session to end."""


class _Leave(Exception):
    """The user leaves the session running."""


class _Over(Exception):
    """The session has ended by itself, in a way that is no failure: shut down from the browser."""


@dataclass(frozen=True)
class _Opened:
    way: _Way


@dataclass(frozen=True)
class _Reached:
    way: _Way
    local_port: int


@dataclass(frozen=True)
class _Failed:
    way: _Way
    error: Exception


class _Tick:
    """Nothing has happened for a second."""


class _Way:
    """The way to one node, made on a thread while Jupyter still starts; what becomes of it arrives in the inbox."""

    def __init__(self, stage: Stage, node: Node) -> None:
        self._stage, self._node = stage, node
        self._inbox = stage.interrupts.inbox
        self._closed = False
        self.tunnel: Tunnel | None = None
        threading.Thread(target=self._open, daemon=True).start()

    def _open(self) -> None:
        stage = self._stage
        try:
            self.tunnel = open_tunnel(stage.host, self._node, same_machine=stage.scheduler.same_machine,
                                      stream=stage.place.profile.stream, prompts=stage.prompts)  # fmt: skip
        except Exception as error:
            self._inbox.put(_Failed(self, error))
            return
        self._inbox.put(_Opened(self))
        if self._closed:
            self.tunnel.close()

    def use(self, tunnel: Tunnel, endpoint: Endpoint, token: str) -> None:
        """Open a local port, and ask Jupyter through it until it answers."""

        def reach() -> None:
            try:
                local_port = tunnel.forward(endpoint.port)
                check_jupyter(local_port, endpoint, token)
            except Exception as error:
                self._inbox.put(_Failed(self, error))
            else:
                self._inbox.put(_Reached(self, local_port))

        threading.Thread(target=reach, daemon=True).start()

    def close(self) -> None:
        self._closed = True
        if self.tunnel is not None:
            self.tunnel.close()


class _Attendance:
    """The loop, and what is known so far."""

    def __init__(self, stage: Stage, session: Session, token: str, *, ours: bool) -> None:
        self._stage, self._session, self._token, self._ours = stage, session, token, ours
        self._inbox = stage.interrupts.inbox
        self._job = job_of(session)
        self._way: _Way | None = None
        self._node = Node(())
        self._endpoint: Endpoint | None = None
        self._asked = False  # whether the way is being used already
        self._silent_since: float | None = None  # since when the job runs without a word from its script
        self._shown_node = ""
        self._suspended = False
        self.held = False

    def follow(self) -> None:
        """Act on one thing after the other; every way out is an exception."""
        stage = self._stage
        stage.view.listen(self._inbox)
        with Watch(stage.host, stage.scheduler, self._job, self._session.directory, self._inbox) as watch:
            while True:
                self._act_on(self._next(watch))

    def close(self) -> None:
        if self._way is not None:
            self._way.close()

    def _next(self, watch: Watch) -> object:
        silent = False
        while True:
            try:
                return self._inbox.get(timeout=1.0)
            except queue.Empty:
                # twice: after Ctrl-Z and fg the cluster's words are on their way
                if silent and watch.silent_for > SILENCE:
                    raise ConnectionLost(
                        "The cluster is silent.", why=f"Nothing was heard for {watch.silent_for:.0f} s."
                    ) from None
                if not watch.silent_for > SILENCE:
                    return _Tick()
                silent = True

    def _act_on(self, item: object) -> None:
        if isinstance(item, Interrupt):
            raise HungUp if item.kind == "leave" else _End
        if isinstance(item, Typed):
            self._typed(item.line)
        elif isinstance(item, FileAppeared):
            {"started": self._started, "endpoint": self._listens, "exit": self._ended}[item.name](item.data)
        elif isinstance(item, StatusChanged):
            self._status(item.status)
        elif isinstance(item, _Opened | _Reached | _Failed):
            self._way_news(item)
        elif isinstance(item, WatchBroke):
            raise ConnectionLost("The connection to the cluster is lost.", why=item.reason)
        elif isinstance(item, _Tick):
            self._look_around()

    def _typed(self, line: str) -> None:
        word = line.strip().lower()
        if word == "d":
            raise _Leave
        if not word and self.held:
            raise _End
        # an impatient ENTER must not cost a place in the queue
        not_held = KEYS_WAITING if self._ours else KEYS_COMING_BACK
        self._stage.view.show(events.Noted(KEYS_HELD if self.held else not_held))

    def _look_around(self) -> None:
        if self.held and self._way and self._way.tunnel and not self._way.tunnel.alive:
            raise ConnectionLost("The tunnel to the compute node broke.")
        if self._silent_since is not None and time.monotonic() - self._silent_since > FIRST_WORD_WITHIN:
            raise JobSilent(
                f"Job {self._job} runs, but its script has not said a word for {FIRST_WORD_WITHIN:.0f} s.",
                why=f"It would write into {self._session.directory}.",
                mend="do the compute nodes see that folder? another one is named by session_root in the profile",
            )

    # --- what the job says

    def _started(self, data: Mapping[str, object]) -> None:
        if self._way is not None:
            self._forget_run("Job {} was put back into the queue, and has started again.")
        self._silent_since = None
        self._node = Node.from_started(data)
        self._show_running(str(self._node))
        self._way = _Way(self._stage, self._node)

    def _listens(self, data: Mapping[str, object]) -> None:
        self._endpoint = Endpoint.from_file(data)
        self._use_way()

    def _ended(self, data: Mapping[str, object]) -> None:
        self._over(data, None)

    # --- what becomes of the way to the node

    def _way_news(self, item: _Opened | _Reached | _Failed) -> None:
        if item.way is not self._way:
            return  # of an earlier run of the job
        if isinstance(item, _Failed):
            raise item.error
        if isinstance(item, _Opened):
            self._use_way()
        elif self._endpoint is not None:
            self.held = True
            url = self._endpoint.url(item.local_port, self._token)
            self._stage.view.show(events.Ready(self._session.id, self._job.id, str(self._node), url, item.local_port))

    def _use_way(self) -> None:
        if self._way and self._way.tunnel and self._endpoint and not self._asked:
            self._asked = True
            self._way.use(self._way.tunnel, self._endpoint, self._token)

    # --- what the scheduler says

    def _status(self, status: JobStatus | None) -> None:
        if status is None or status.state.ended:
            self._over(None, status)
        elif status.state.waits:
            if self._way is not None:
                self._forget_run("Job {} was put back into the queue.")
            self._waits(status)
        elif status.state is State.SUSPENDED:
            self._suspended = True
            self._show_waiting(status, "is suspended: the scheduler has stopped it for a while")
        elif status.state is State.RUNNING and self._suspended:
            self._suspended = False
            self._stage.view.show(events.Noted(f"Job {self._job} runs again."))
        elif status.state is State.RUNNING and self._way is None and self._silent_since is None:
            self._silent_since = time.monotonic()
            self._show_running(status.node or "its node")

    def _waits(self, status: JobStatus) -> None:
        self._silent_since = None
        explanation = explain.pending(status.reason)
        if explanation.never:
            raise JobNeverStarts(
                f"Job {status.job} can never start: {explanation.summary}.",
                why=f"The scheduler gives the reason {status.reason}.",
                mend=explanation.action,
            )
        self._show_waiting(status, explanation.summary)

    def _show_waiting(self, status: JobStatus, explanation: str) -> None:
        self._shown_node = ""
        self._stage.view.show(events.Waiting(self._job.id, status.state.name, status.reason, explanation, status.start))

    def _show_running(self, node: str) -> None:
        """Say so once: the scheduler and the job tell it one after the other."""
        if node != self._shown_node:
            self._shown_node = node
            self._stage.view.show(events.Running(self._job.id, node))

    def _forget_run(self, sentence: str) -> None:
        """The job runs, or will run, a second time: on another node, with another port."""
        self.close()
        self._way = self._endpoint = self._silent_since = None
        self._asked = self.held = False
        self._shown_node = ""
        self._stage.view.show(events.Noted(sentence.format(self._job)))

    # --- the end

    def _over(self, record: Mapping[str, object] | None, status: JobStatus | None) -> None:
        """Tell how the job ended; only where the scheduler will run it again, go on."""
        record = record or self._exit_record()
        if record.get("cause") == "finished" and self.held:
            raise _Over
        if status is None and record.get("cause") in explain.ASK_THE_SCHEDULER:
            status = self._final_status(record)
        if status is not None and status.state.waits:
            self._status(status)
            return
        raise explain.ended(self._job, record, status, self._log_tail())

    def _exit_record(self) -> Mapping[str, object]:
        try:
            data = json.loads(self._stage.host.read_file(f"{self._session.directory}/exit.json") or b"{}")
        except (ValueError, HostCommandFailed):
            return {}
        return data if isinstance(data, dict) else {}

    def _final_status(self, record: Mapping[str, object]) -> JobStatus | None:
        """Ask until the scheduler says that the job has ended, or waits again: it does a moment after the job does.

        ``None``: it knows no more than the job's own word. Raises ``ConnectionLost`` where nobody says how it ended: it
        may have been put back into the queue, and must not be called gone.
        """
        deadline, pause, answered = time.monotonic() + FINAL_WORD_WITHIN, 0.2, False
        while time.monotonic() < deadline:
            with contextlib.suppress(NoAnswer):
                status = ask(self._stage.host, self._stage.scheduler, self._job)
                if status is None or status.state.ended or status.state.waits:
                    return status
                answered = True
            time.sleep(pause)
            pause = min(2 * pause, 2.0)
        if not answered and record.get("cause") in (None, "stopped"):
            message = str(record.get("message") or "")
            raise ConnectionLost("The scheduler does not say what became of the job.", why=message)
        return None

    def _log_tail(self) -> list[str]:
        """Return the end of the job's log; of a file name with patterns, only the job's number can be filled in."""
        log = self._session.record.log.replace("%j", self._job.id).replace("%A", self._job.id)
        with contextlib.suppress(LauncherError):  # how it ended matters more
            return [] if "%" in log else self._stage.host.tail(log)
        return []


# --- ending, leaving -----------------------------------------------------------------------------------------


def end_job(stage: Stage, session: Session, text: str = "") -> None:
    """End a session's job, wait until the scheduler says that it is gone, and say so.

    Raises ``CancelFailed``, which tells the job and the command, where it stays, cannot be asked for, or where the user
    does not want to wait (the second Ctrl-C; the first is answered with a word).
    """
    job = job_of(session)
    stage.view.show(events.Ending(str(job)))
    command = shlex.join(stage.scheduler.cancel(job))
    try:
        gone = _cancel_until_gone(stage, job)
    except (ConnectionLost, HostCommandFailed) as error:
        raise CancelFailed(f"Job {job} may still be there.", why=f"{error.what} {error.why}".strip(),
                           mend=f"end it on the login node with: {command}") from None  # fmt: skip
    if not gone:
        raise CancelFailed(f"Job {job} is still there.", why="It was cancelled, and is not gone yet.",
                           mend=f"see whether it is; end it with: {command}")  # fmt: skip
    stage.view.show(events.Ended(session.id, job.id, text or f"Job {job} is gone."))


def _cancel_until_gone(stage: Stage, job: JobRef) -> bool:
    began = time.monotonic()
    cancelled_at, pause, interrupts = -CANCEL_AGAIN, 0.1, 0
    while time.monotonic() - began < GONE_WITHIN:
        if time.monotonic() - cancelled_at >= CANCEL_AGAIN:
            cancelled_at = time.monotonic()
            stage.host.run(stage.scheduler.cancel(job), login_shell=True)
        with contextlib.suppress(NoAnswer):
            status = ask(stage.host, stage.scheduler, job)
            if status is None or status.state.ended:
                return True
        if _interrupted_within(stage.interrupts.inbox, pause):
            interrupts += 1
            if interrupts > 1:
                return False
            stage.view.show(events.Noted("The job is being ended; Ctrl-C once more leaves without waiting for that."))
        pause = min(pause * 1.6, 3.0)
    return False


def _interrupted_within(inbox: queue.SimpleQueue[object], seconds: float) -> bool:
    """Wait that long, or until the user presses Ctrl-C; what else happens is of no interest now."""
    deadline = time.monotonic() + seconds
    with contextlib.suppress(queue.Empty):
        while True:
            item = inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            if isinstance(item, Interrupt) and item.kind == "end":
                return True
    return False


def _end_after(stage: Stage, session: Session, error: Exception) -> None:
    """End the job of a launch that failed; where even that fails, the error tells both."""
    try:
        end_job(stage, session)
    except CancelFailed as failed:
        if not isinstance(error, LauncherError):  # one of ours, with no place for this
            stage.view.show(events.Noted(f"{failed.what} {failed.mend}"))
        else:
            error.why = f"{error.why} {failed.what} {failed.why}".strip()
            error.mend = f"{failed.mend}   {error.mend}".strip()


def _not_ready_yet(stage: Stage, session: Session, *, ours: bool) -> None:
    if ours:
        raise Interrupted("Interrupted before JupyterLab was ready.", why=f"Job {job_of(session)} is gone.")
    say_left(stage, session)


def say_left(stage: Stage, session: Session) -> None:
    """Say that the session goes on, how to come back to it, and how to end it."""
    come_back, stop = (f"{_program()} {command} {_named(stage, session)}" for command in ("connect", "stop"))
    stage.view.show(events.Left(session.id, job_of(session).id, come_back, stop))


def _still_there(stage: Stage, session: Session, error: ConnectionLost) -> ConnectionLost:
    return ConnectionLost(
        error.what,
        why=f"{error.why} The session goes on: job {job_of(session)}.".strip(),
        mend=f"come back with: {_program()} connect {_named(stage, session)}",
    )


def _program() -> str:
    """The command as this user can type it: from a virtual environment that is not active, with its path."""
    if shutil.which("launch-notebook"):
        return "launch-notebook"
    return "python -m notebook_launcher" if sys.argv[0].endswith("__main__.py") else shlex.quote(sys.argv[0])


def _named(stage: Stage, session: Session) -> str:
    return f"{shlex.join(stage.place.arguments())} {session.id}".strip()


def job_of(session: Session) -> JobRef:
    """Return a session's job. Raises ``SubmitUncertain`` where none was ever noted."""
    if session.job is None:
        raise SubmitUncertain(f"Session {session.id} has no job noted.", mend="look for it in the scheduler's queue")
    return session.job
