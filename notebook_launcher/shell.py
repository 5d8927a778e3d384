"""Opens a shell on a compute node: in a running session, or in a job submitted for it."""

from __future__ import annotations

import contextlib
import functools
import queue
from collections.abc import Iterator

from notebook_launcher.core import events
from notebook_launcher.core.errors import ConnectionLost, Interrupted, LauncherError, SessionNotFound, UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.interrupts import HungUp, Interrupt, Interrupts, Kind
from notebook_launcher.core.view import View
from notebook_launcher.hosts.base import Prompts
from notebook_launcher.jobs.cancel import cancel_after_failure, cancel_job, launcher_command
from notebook_launcher.jobs.lookup import find_session
from notebook_launcher.jobs.unlisted_flags import check_request
from notebook_launcher.launch import OfferImage, no_offer, queue_session, software_warning, submitted
from notebook_launcher.planning.plan import Plan, useless_flags_note
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.session.context import Context, job_of
from notebook_launcher.session.open_context import open_context
from notebook_launcher.session.preflight import check_software
from notebook_launcher.session.record import Session
from notebook_launcher.supervision.until_started import await_start


class ShellRequest(Frozen):
    """The request: a terminal, or without one the output of a ``command``; inside the environment or outside."""

    inside: bool = True
    command: str | None = None


def shell_in_session(
    target: LaunchTarget, prefix: str, request: ShellRequest, view: View, prompts: Prompts, interrupts: Interrupts
) -> int:
    """Open a terminal in the running job of a session, and return the exit code of its shell, or of the command.

    Raises a ``LauncherError``; in every case the session keeps running.
    """
    with open_context(target, view, prompts, interrupts) as context:
        session, entry = find_session(context, prefix, "shell")
        if not entry.summary.node:
            raise SessionNotFound(
                f"Session {session.id} has no compute node yet.",
                why="Its job is still pending.",
                hint=f"see why with: {launcher_command(context, session, 'connect')}",
            )
        if context.host.read_file(f"{session.directory}/shell.sh") is None:
            raise UsageError(
                f"Session {session.id} was launched by an older version, without what a terminal needs.",
                why=f"It was version {session.record.launcher}.",
                hint="end it and launch another one",
            )
        interrupts.defer()
        interrupted = _Interrupted(interrupts)
        try:
            code = _shell(context, session, entry.summary.node, request, interrupted, ends_job=False)
        except ConnectionLost as error:
            error.why = f"{error.why} The session goes on: job {job_of(session)}.".strip()
            error.hint = f"open another one with: {launcher_command(context, session, 'shell')}"
            raise
        if interrupted.kind == "leave":
            raise HungUp
        if interrupted.kind:
            raise Interrupted("Interrupted.", why=f"The session goes on: job {job_of(session)}.")
        return code


def shell_in_new_job(
    plan: Plan,
    request: ShellRequest,
    view: View,
    prompts: Prompts,
    interrupts: Interrupts,
    offer_image: OfferImage = no_offer,
) -> int:
    """Submit a job for a terminal, open it, cancel the job, and return the exit code of the shell or the command.

    Raises a ``LauncherError``, after cancelling the job. A closed terminal (``HungUp``) cancels it as well: nobody
    could reconnect to it.
    """
    with open_context(plan.target, view, prompts, interrupts, submits=True) as context:
        check_request(context, plan.request.flags)
        useless = useless_flags_note(plan.user_flags) if context.scheduler.same_machine else None
        warning = _software_warning(plan, context, offer_image) if request.inside else None
        for note in filter(None, (*plan.notes, useless, warning)):
            view.show(events.Note(note))
        session, _ = queue_session(plan, context, program="shell")
        node = await_start(context, session, submitted(plan, context, session))
        interrupted = _Interrupted(interrupts)
        try:
            with _keepalive(context, session):
                code = _shell(context, session, node, request, interrupted, ends_job=True)
        except Exception as error:
            cancel_after_failure(context, session, error)
            raise
        cancel_job(context, session)
        if interrupted.kind == "leave":
            raise HungUp
        if interrupted.kind:
            raise Interrupted("Interrupted.")
        return code


def _software_warning(plan: Plan, context: Context, offer_image: OfferImage) -> str | None:
    """Return a warning about the environment of the shell; a missing image that can be made is offered first.

    Raises if an image is missing, before anything is queued.
    """
    same_machine = context.scheduler.same_machine
    check = functools.partial(
        check_software, context.host, context.site, plan, same_machine=same_machine, jupyterlab=False
    )
    return software_warning(plan, context, check, offer_image)


@contextlib.contextmanager
def _keepalive(context: Context, session: Session) -> Iterator[None]:
    """Send keepalives, so that the login node notices a lost connection, and ends the shell.

    An idle terminal sends nothing, and a connection on which nothing is sent is never found to be broken, so that the
    allocation would last until its walltime ends. Unacknowledged data closes the connection within a quarter of an
    hour (TCP's own timeout).
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(LauncherError):
            watch = ["bash", f"{session.directory}/watch.sh", session.directory]
            stack.callback(context.host.stream(watch, lambda _line: None, lambda _reason: None).close)
        yield


class _Interrupted:
    """Tells whether the user has interrupted since it was created; other events in the inbox are ignored."""

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


def _shell(
    context: Context, session: Session, node: str, request: ShellRequest, interrupted: _Interrupted, *, ends_job: bool
) -> int:
    """Run the shell or the command in the session's job."""
    job, scheduler = job_of(session), context.scheduler
    directory, where = session.directory, "inside" if request.inside else "outside"
    argv = [
        "bash",
        f"{directory}/shell.sh",
        directory,
        where,
        *([request.command] if request.command is not None else []),
    ]
    if request.command is not None:
        step = list(argv) if scheduler.same_machine else scheduler.command_step(job, argv)
    else:
        step = scheduler.terminal_step(job, argv)
    if step is None:
        raise LauncherError(
            f"No terminal can be opened in a job of {scheduler.name}.", why="It has no job steps that share a job."
        )
    environment = session.record.environment
    context.view.show(
        events.ShellOpening(session.id, job.id, node, request.inside, environment, ends_job, command=request.command)
    )
    run = context.host.terminal if request.command is None else context.host.pass_through
    return run(step, login_shell=True, until=interrupted)
