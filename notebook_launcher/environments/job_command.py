"""Runs one command on the login node or in a short job, following its output line by line."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Sequence

from notebook_launcher.core.errors import ConnectionLost, Interrupted, LauncherError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.interrupts import HungUp, Interrupt
from notebook_launcher.hosts.commands import bound_to_stdin
from notebook_launcher.hosts.login_setup import login_shell_command
from notebook_launcher.jobs.cancel import cancel_after_failure, cancel_job
from notebook_launcher.launch import queue_session, submitted
from notebook_launcher.planning.plan import Plan
from notebook_launcher.session.context import Context, job_of
from notebook_launcher.session.record import Session
from notebook_launcher.supervision.until_started import await_start

TIMEOUT = 4 * 3600.0  # seconds for a command without a walltime
CLEANUP_WITHIN = 8.0  # seconds for a command to clean up

#: receives a line and the name of its machine; returns whether it is the last line needed
OnLine = Callable[[str, str], bool]


def run_directly(context: Context, argv: Sequence[str], on_line: OnLine, stop: str = "") -> str:
    """Run a command on the login node (or this machine); return why its output ended, "" if enough was received.

    ``stop``: the path of a file there; the command exits cleanly once it exists. Raises ``Interrupted``, ``HungUp`` or
    ``ConnectionLost``, after ending the command.
    """
    context.interrupts.defer()
    return _follow(context, argv, context.site.hostname, on_line, stop)


def run_in_job(
    plan: Plan,
    context: Context,
    argv: Callable[[Session], Sequence[str]],
    on_line: OnLine,
    stop: str = "",
    *,
    purpose: str,
    directly: str,
) -> str:
    """Submit a job, run a command in it, cancel the job, and return as ``run_directly`` does.

    ``argv``: returns the command for a session. ``purpose``: shown in lists of sessions. ``directly``: what the user
    can type to run it on the login node instead. Raises what ``run_directly`` raises, and what submitting and waiting
    raise, after cancelling the job. No job is submitted if this scheduler's jobs can run only their script.
    """
    if not context.scheduler.has_steps:
        raise _no_steps(context, directly)
    session, _ = queue_session(plan, context, program="shell", purpose=purpose)
    node = await_start(context, session, submitted(plan, context, session))
    try:
        step = context.scheduler.step(job_of(session), list(argv(session)))
        if step is None:
            raise _no_steps(context, directly)
        reason = _follow(context, step, node, on_line, stop)
    except (Interrupted, HungUp):
        cancel_job(context, session)
        raise
    except Exception as error:
        cancel_after_failure(context, session, error)
        raise
    cancel_job(context, session)
    return reason


def _no_steps(context: Context, directly: str) -> LauncherError:
    return LauncherError(
        f"Nothing can be run in a job of {context.scheduler.name} besides what it runs.",
        hint=f"on the login node: {directly}",
    )


class _OutputLine(Frozen):
    line: str


class _Finished(Frozen):
    reason: str


def _follow(context: Context, argv: Sequence[str], where: str, on_line: OnLine, stop: str) -> str:
    inbox = context.interrupts.inbox
    command = bound_to_stdin(
        login_shell_command(["bash", "-c", 'exec "$@" 2>&1', "bash", *argv], context.host.login_setup)
    )
    stream = context.host.stream(
        command, lambda line: inbox.put(_OutputLine(line)), lambda why: inbox.put(_Finished(why))
    )
    deadline = time.monotonic() + TIMEOUT
    with contextlib.closing(stream):
        while True:
            try:
                item = inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return f"It was not done within {TIMEOUT / 3600:.0f} hours."
            if isinstance(item, Interrupt):
                _stop(context, stop)
                if item.kind == "leave":
                    raise HungUp
                raise Interrupted("Interrupted.", why="Nothing was left behind.")
            if isinstance(item, _Finished):
                if not context.host.alive:
                    raise ConnectionLost("The connection was lost meanwhile.", why=item.reason)
                return item.reason or "It ended."
            if isinstance(item, _OutputLine) and on_line(item.line.rpartition("\r")[2].rstrip(), where):
                return ""


def _stop(context: Context, stop: str) -> None:
    """Give the command some seconds to exit cleanly, because a scheduler kills a job step without warning."""
    if not stop:
        return
    deadline = time.monotonic() + CLEANUP_WITHIN
    with contextlib.suppress(LauncherError, queue.Empty):
        context.host.run(["touch", stop], timeout=CLEANUP_WITHIN)
        while time.monotonic() < deadline:
            item = context.interrupts.inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            if isinstance(item, _Finished | Interrupt):
                return
