"""The stories of a terminal on a compute node: in a session that runs, or in an allocation queued for it alone."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterator
from dataclasses import dataclass

from notebook_launcher.core.errors import ConnectionLost, Interrupted, LauncherError, SessionNotFound, UsageError
from notebook_launcher.core.events import launch as events
from notebook_launcher.core.interrupts import HungUp, Interrupt, Interrupts, Kind
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.jobs.cancel import end_after, end_job, typed
from notebook_launcher.jobs.lookup import find_session
from notebook_launcher.launch import queue_session, submitted
from notebook_launcher.planning.plan import Place, Plan, useless_flags_note
from notebook_launcher.session.connect import open_stage
from notebook_launcher.session.context import Stage, View, job_of
from notebook_launcher.session.record import Session
from notebook_launcher.supervision.until_started import await_start


@dataclass(frozen=True)
class Wish:
    """What is wanted there: a terminal, or without one the output of a ``command``; in or out of the environment."""

    inside: bool = True
    command: str | None = None


def shell_in_session(
    place: Place, prefix: str, wish: Wish, view: View, prompts: Prompts, interrupts: Interrupts
) -> int:
    """Open a terminal in the running job of a session, and return the exit code of its shell, or of the command.

    Raises a ``LauncherError``; the session goes on in every case.
    """
    with open_stage(place, view, prompts, interrupts) as stage:
        session, entry = find_session(stage, prefix)
        if not entry.seen.node:
            raise SessionNotFound(
                f"Session {session.id} has no compute node yet.",
                why="Its job waits.",
                mend=f"see why with: {typed(stage, session, 'connect')}",
            )
        if stage.host.read_file(f"{session.directory}/shell.sh") is None:
            raise UsageError(
                f"Session {session.id} was launched by an older version, without what a terminal needs.",
                why=f"It was version {session.record.launcher}.",
                mend="end it and launch another one",
            )
        interrupts.defer()
        interrupted = _Interrupted(interrupts)
        try:
            code = _shell(stage, session, entry.seen.node, wish, interrupted, ends_job=False)
        except ConnectionLost as error:
            error.why = f"{error.why} The session goes on: job {job_of(session)}.".strip()
            error.mend = f"open another one with: {typed(stage, session, 'shell')}"
            raise
        if interrupted.kind == "leave":
            raise HungUp
        if interrupted.kind:
            raise Interrupted("Interrupted.", why=f"The session goes on: job {job_of(session)}.")
        return code


def trial(plan: Plan, wish: Wish, view: View, prompts: Prompts, interrupts: Interrupts) -> int:
    """Queue a job for a terminal alone, open it, end the job, and return the exit code of the shell or the command.

    Raises a ``LauncherError``, after ending the job. A closed terminal (``HungUp``) ends it as well: nobody could come
    back to it.
    """
    with open_stage(plan.place, view, prompts, interrupts) as stage:
        useless = useless_flags_note(plan.asked) if stage.scheduler.same_machine else None
        for note in (*plan.notes, *([useless] if useless else ())):
            view.show(events.Noted(note))
        session, _ = queue_session(plan, stage, program="shell")
        node = await_start(stage, session, submitted(plan, stage, session))
        interrupted = _Interrupted(interrupts)
        try:
            with _heard_of(stage, session):
                code = _shell(stage, session, node, wish, interrupted, ends_job=True)
        except Exception as error:
            end_after(stage, session, error)
            raise
        end_job(stage, session)
        if interrupted.kind == "leave":
            raise HungUp
        if interrupted.kind:
            raise Interrupted("Interrupted.")
        return code


@contextlib.contextmanager
def _heard_of(stage: Stage, session: Session) -> Iterator[None]:
    """Let something travel all the time, so that a login node notices that we have gone for good, and ends our shell.

    A terminal in which nobody types sends nothing; a connection over which nothing is sent is never found to be broken,
    and the allocation would last until its walltime. What is sent in vain ends it within a quarter of an hour (TCP's
    own patience).
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(LauncherError):
            watch = ["bash", f"{session.directory}/watch.sh", session.directory]
            stack.callback(stage.host.stream(watch, lambda _line: None, lambda _reason: None).close)
        yield


class _Interrupted:
    """Whether the user has interrupted us since; of what else lies in the inbox nothing is of interest any more."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._inbox = interrupts.inbox
        self.kind: Kind | None = None

    def __call__(self) -> bool:
        with contextlib.suppress(queue.Empty):
            while self.kind is None:
                item = self._inbox.get_nowait()
                if isinstance(item, Interrupt):
                    self.kind = item.kind
        return self.kind is not None


def _shell(stage: Stage, session: Session, node: str, wish: Wish, interrupted: _Interrupted, *, ends_job: bool) -> int:
    """Run the shell, or the command, in the session's job."""
    job, scheduler = job_of(session), stage.scheduler
    directory, where = session.directory, "inside" if wish.inside else "outside"
    words = ["bash", f"{directory}/shell.sh", directory, where, *([wish.command] if wish.command is not None else [])]
    if wish.command is not None:
        step = list(words) if scheduler.same_machine else scheduler.step(job, words)
    else:
        step = scheduler.terminal_step(job, words)
    if step is None:
        raise LauncherError(
            f"No terminal can be opened in a job of {scheduler.name}.", why="It has no job steps that share a job."
        )
    environment = session.record.environment
    stage.view.show(
        events.ShellOpening(session.id, job.id, node, wish.inside, environment, ends_job, command=wish.command)
    )
    run = stage.host.terminal if wish.command is None else stage.host.pass_through
    return run(step, login_shell=True, until=interrupted)
