"""One command on the login node or in a short job of its own, its output followed line by line to its end."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from notebook_launcher.core.errors import ConnectionLost, Interrupted, LauncherError
from notebook_launcher.core.interrupts import HungUp, Interrupt
from notebook_launcher.hosts.base import bound_to_stdin
from notebook_launcher.jobs.cancel import cancel_after_failure, cancel_job
from notebook_launcher.launch import queue_session, submitted
from notebook_launcher.planning.plan import Plan
from notebook_launcher.session.context import Context, job_of
from notebook_launcher.session.record import Session
from notebook_launcher.supervision.until_started import await_start

LONGEST = 4 * 3600.0  # seconds that a command may take where no walltime ends it
IN_GOOD_ORDER = 8.0  # seconds for a command to tidy up after itself

#: gets a line and the name of the machine it comes from; returns whether that was the last one of interest
OnLine = Callable[[str, str], bool]


def run_directly(context: Context, argv: Sequence[str], on_line: OnLine, stop: str = "") -> str:
    """Run a command on the login node (or this machine); return why its output ended, "" where enough had come.

    ``stop``: a file there that the command looks for, and ends in good order once it is there. Raises ``Interrupted``,
    ``HungUp`` or ``ConnectionLost``; the command is ended then.
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
) -> str:
    """Queue a job, run a command in it, end the job, and return as ``run_directly`` does.

    ``argv``: the command, which may want to know the session's directory. ``purpose``: what it is for, as it stands in
    lists. Raises what ``run_directly`` and what queueing
    and waiting raise; the job is gone then.
    """
    session, _ = queue_session(plan, context, program="shell", purpose=purpose)
    node = await_start(context, session, submitted(plan, context, session))
    try:
        step = context.scheduler.step(job_of(session), list(argv(session)))
        if step is None:
            raise LauncherError(f"Nothing can be run in a job of {context.scheduler.name} besides what it runs.")
        reason = _follow(context, step, node, on_line, stop)
    except (Interrupted, HungUp):
        cancel_job(context, session)
        raise
    except Exception as error:
        cancel_after_failure(context, session, error)
        raise
    cancel_job(context, session)
    return reason


@dataclass(frozen=True)
class _Line:
    line: str


@dataclass(frozen=True)
class _Finished:
    reason: str


def _follow(context: Context, argv: Sequence[str], where: str, on_line: OnLine, stop: str) -> str:
    inbox = context.interrupts.inbox
    command = bound_to_stdin(["bash", "-lc", 'exec "$@" 2>&1', "bash", *argv])
    stream = context.host.stream(command, lambda line: inbox.put(_Line(line)), lambda why: inbox.put(_Finished(why)))
    deadline = time.monotonic() + LONGEST
    with contextlib.closing(stream):
        while True:
            try:
                item = inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return f"It was not done within {LONGEST / 3600:.0f} hours."
            if isinstance(item, Interrupt):
                _stop(context, stop)
                if item.kind == "leave":
                    raise HungUp
                raise Interrupted("Interrupted.", why="Nothing was left behind.")
            if isinstance(item, _Finished):
                if not context.host.alive:
                    raise ConnectionLost("The connection was lost meanwhile.", why=item.reason)
                return item.reason or "It ended."
            if isinstance(item, _Line) and on_line(item.line.rpartition("\r")[2].rstrip(), where):
                return ""


def _stop(context: Context, stop: str) -> None:
    """Let the command end in good order, for some seconds: a scheduler kills a job's step without a word."""
    if not stop:
        return
    deadline = time.monotonic() + IN_GOOD_ORDER
    with contextlib.suppress(LauncherError, queue.Empty):
        context.host.run(["touch", stop], timeout=IN_GOOD_ORDER)
        while time.monotonic() < deadline:
            item = context.interrupts.inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            if isinstance(item, _Finished | Interrupt):
                return
