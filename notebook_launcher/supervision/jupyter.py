"""Seeing a session with JupyterLab through: wait until it answers, hold it, end it; clean up on every way out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NoReturn

from notebook_launcher.core import local_state as state
from notebook_launcher.core.errors import (
    ConnectionLost,
    HostKeyChanged,
    HostKeyUnknown,
    JobCancelled,
    JobFailed,
    JobLost,
    JobTimedOut,
    JupyterSilent,
    LauncherError,
    NodeUnreachable,
    SchedulerSilent,
)
from notebook_launcher.core.events import launch as events
from notebook_launcher.jobs.cancel import (
    ANSWER_WITHIN,
    end_after,
    end_job,
    ended_from,
    not_ready_yet,
    say_left,
    still_there,
)
from notebook_launcher.jobs.outcome import ended_idle
from notebook_launcher.jobs.watcher import FileAppeared, NoAnswer, StatusChanged, ask
from notebook_launcher.schedulers.base import JobStatus, State
from notebook_launcher.session.context import Access, Stage, job_of
from notebook_launcher.session.record import Session
from notebook_launcher.supervision.supervisor import Attendance, End, GaveUp, Leave, Over
from notebook_launcher.tunnel.forwarding import Endpoint, SameMachine, Tunnel, read_port, why_not
from notebook_launcher.tunnel.node_connection import Failed, Opened, Reached, Way
from notebook_launcher.tunnel.routes import Crossing, find_way
from notebook_launcher.usage.bill_command import show_bill

KEYS_HELD = (
    "ENTER alone ends the session and its job, d leaves it running, f PORT forwards a port (f 6006, f 6006:16006)."
)
KEYS_WAITING = "JupyterLab is not ready yet. Ctrl-C ends the job; d and ENTER leaves it, for you to come back to."
KEYS_COMING_BACK = "JupyterLab is not ready yet. Ctrl-C, or d and ENTER, leaves the session as it is."
KEYS_PORTS = "ENTER, or Ctrl-C, closes the ports here; the session goes on. f PORT opens another one."


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
        attendance = _Holding(stage, session, access, ours=ours, ports=ports)
    except Exception as error:
        if ours:
            end_after(stage, session, error)
        raise
    try:
        stage.view.show(first)
        attendance.follow()
    except End:
        attendance.stop_mending()
        if ours or attendance.held:
            end_job(stage, session)
        if not attendance.held:
            not_ready_yet(stage, session, ours=ours)
        else:
            show_bill(stage, session)
    except Leave:
        say_left(stage, session)
    except Over as over:
        end_job(stage, session, str(over))
        show_bill(stage, session)
    except GaveUp as gave_up:
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


class _Holding(Attendance):
    """Waits until JupyterLab answers through the tunnel, and holds it; or holds ports of the node alone."""

    def __init__(
        self, stage: Stage, session: Session, access: Access, *, ours: bool, ports: Sequence[tuple[int, int]] = ()
    ) -> None:
        super().__init__(stage, session, ours=ours)
        self._access = access
        here = stage.scheduler.same_machine and not stage.host.remote
        self._tunnel = SameMachine() if here else Tunnel()
        self._way: Way | None = None
        self._endpoint: Endpoint | None = None
        self._asked = False  # whether the way is being used already
        self._reached = False
        self._only_ports = bool(ports)
        self._forwards = [*ports, *((port, 0) for port in stage.forwards)]
        self._forwarded: set[tuple[int, int]] = set()  # of this run: ports of its node, and the numbers wanted here

    def close(self) -> None:
        """Leave nothing open here."""
        super().close()
        state.forget_held(self._session.id)
        if self._way is not None:
            self._way.close()
        self._tunnel.close()

    # --- what the user wants

    def _interrupted(self) -> NoReturn:
        raise Leave if self._only_ports else End

    def _typed_words(self, words: list[str]) -> None:
        if not words and self._only_ports:
            raise Leave
        if not words and self.held:
            raise End
        if len(words) == 2 and words[0] in ("f", "forward"):
            self._forward_typed(words[1])
            return
        # an impatient ENTER must not cost a place in the queue
        not_held = KEYS_WAITING if self._ours else KEYS_COMING_BACK
        self._note(KEYS_PORTS if self._only_ports else KEYS_HELD if self.held else not_held)

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

    # --- the connection

    def _each_second(self) -> None:
        if self._reached and not self._tunnel.alive:
            self._way_broke("the connection to the compute node broke")

    def _while_lost(self) -> None:
        if self._way is not None:
            # JupyterLab keeps what is typed while it knows that it is not connected, and loses it while it does not
            self._way.close()

    def _came_back(self) -> None:
        if self.held and self._tunnel.alive:
            self._no_more_mending()
            self._reached = True
            self._whole_again()
        else:
            super()._came_back()

    def _go_on(self) -> None:
        """Make the way to the compute node anew, where there is one already."""
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
        super()._broken(reason)

    # --- what the job says

    def _begins(self, data: Mapping[str, object]) -> None:
        self._make_way(0.0)

    def _other_file(self, item: FileAppeared) -> None:
        endpoint = Endpoint.from_file(item.data)
        if endpoint != self._endpoint:
            self._endpoint, self._asked = endpoint, False
            self._use_way()

    def _forget_run(self, sentence: str) -> None:
        """It runs on another node then, with another port. Our own ports stay."""
        if self._way is not None:
            self._way.close()
        self._tunnel.interrupt()
        self._way = self._endpoint = None
        self._asked = self._reached = False
        self._forwarded.clear()
        super()._forget_run(sentence)

    # --- what becomes of the way to the node

    def _make_way(self, pause: float) -> None:
        if self._way is not None:
            self._way.close()
        stage, place = self._stage, self._stage.place
        crossing = Crossing(stage.host, stage.scheduler, self._session, self._job, self._node, self._access.keys)
        stream = "direct" if self._session.record.stream == "direct" else place.profile.stream
        self._asked = self._reached = False
        self._way = Way(self._inbox, lambda: find_way(crossing, stream, place.name), pause)

    def _other(self, item: object) -> None:
        if not isinstance(item, Opened | Reached | Failed) or item.way is not self._way:
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
                if self._is_silent and not isinstance(error, HostKeyChanged | HostKeyUnknown):
                    self._lost(f"nothing was heard for {self._watch.silent_for:.0f} s", only_silent=True)
                else:
                    raise error
        elif time.monotonic() > self._tried_until():
            raise GaveUp(error if isinstance(error, LauncherError) else LauncherError(repr(error)))
        else:
            what = error.what if isinstance(error, LauncherError) else repr(error)
            self._way_broke(what)

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

    # --- the end

    def _ended_well(self, record: Mapping[str, object]) -> None:
        if record.get("cause") == "finished" and self.held:
            raise Over("JupyterLab was shut down, and its job is gone.")
        if sentence := ended_idle(record):
            raise Over(sentence)

    def _conclude(self, record: Mapping[str, object], status: JobStatus | None) -> NoReturn:
        is_cancelled = status is None or status.state is State.CANCELLED
        ended = str(record.get("ended") or "")
        if self.held and is_cancelled and (machine := ended_from(self._stage, self._session, ended)):
            raise Over(f"The session was ended by another launch-notebook, on {machine}; job {self._job} is gone.")
        error = self._how_it_ended(record, status)
        if self.held and isinstance(error, JobCancelled) and error.by_user:
            raise Over(f"Job {self._job} was ended by you, from elsewhere.")
        raise error
