"""An errand: one command on the login node or in a short job of its own, followed line by line to its end."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from notebook_launcher.core.errors import ConnectionLost, Interrupted, LauncherError
from notebook_launcher.core.interrupts import HungUp, Interrupt
from notebook_launcher.hosts.base import on_a_lifeline
from notebook_launcher.jobs.cancel import end_after, end_job
from notebook_launcher.launch import queue_session, submitted
from notebook_launcher.planning.plan import Plan
from notebook_launcher.session.context import Stage, job_of
from notebook_launcher.session.record import Session
from notebook_launcher.supervision.until_started import await_start

LONGEST = 4 * 3600.0  # seconds that an errand may take where no walltime ends it
IN_GOOD_ORDER = 8.0  # seconds for a command to tidy up after itself

#: gets a line and the name of the machine it comes from; returns whether that was the last one of interest
OnLine = Callable[[str, str], bool]


def directly(stage: Stage, words: Sequence[str], on_line: OnLine, stop: str = "") -> str:
    """Run a command where commands run, and return why no more lines came, "" where enough had come.

    ``stop``: a file there that the command looks for, and ends in good order once it is there. Raises ``Interrupted``,
    ``HungUp`` or ``ConnectionLost``; the command is ended then.
    """
    stage.interrupts.defer()
    return _follow(stage, words, stage.site.hostname, on_line, stop)


def in_a_job(
    plan: Plan, stage: Stage, words: Callable[[Session], Sequence[str]], on_line: OnLine, stop: str = "",
    *, purpose: str,
) -> str:  # fmt: skip
    """Queue a job, run a command in it, end the job, and return as ``directly`` does.

    ``words``: the command, which may want to know the session's directory. ``purpose``: what it is for, as it stands in
    lists. Raises what ``directly`` and what queueing
    and waiting raise; the job is gone then.
    """
    session, _ = queue_session(plan, stage, program="shell", purpose=purpose)
    node = await_start(stage, session, submitted(plan, stage, session))
    try:
        step = stage.scheduler.step(job_of(session), list(words(session)))
        if step is None:
            raise LauncherError(f"Nothing can be run in a job of {stage.scheduler.name} besides what it runs.")
        reason = _follow(stage, step, node, on_line, stop)
    except (Interrupted, HungUp):
        end_job(stage, session)
        raise
    except Exception as error:
        end_after(stage, session, error)
        raise
    end_job(stage, session)
    return reason


@dataclass(frozen=True)
class _Said:
    line: str


@dataclass(frozen=True)
class _Over:
    reason: str


def _follow(stage: Stage, words: Sequence[str], where: str, on_line: OnLine, stop: str) -> str:
    inbox = stage.interrupts.inbox
    command = on_a_lifeline(["bash", "-lc", 'exec "$@" 2>&1', "bash", *words])
    stream = stage.host.stream(command, lambda line: inbox.put(_Said(line)), lambda why: inbox.put(_Over(why)))
    deadline = time.monotonic() + LONGEST
    with contextlib.closing(stream):
        while True:
            try:
                item = inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return f"It was not done within {LONGEST / 3600:.0f} hours."
            if isinstance(item, Interrupt):
                _stop(stage, stop)
                if item.kind == "leave":
                    raise HungUp
                raise Interrupted("Interrupted.", why="Nothing was left behind.")
            if isinstance(item, _Over):
                if not stage.host.alive:
                    raise ConnectionLost("The connection was lost meanwhile.", why=item.reason)
                return item.reason or "It ended."
            if isinstance(item, _Said) and on_line(item.line.rpartition("\r")[2].rstrip(), where):
                return ""


def _stop(stage: Stage, stop: str) -> None:
    """Let the command end in good order, for some seconds: a scheduler kills a job's step without a word."""
    if not stop:
        return
    deadline = time.monotonic() + IN_GOOD_ORDER
    with contextlib.suppress(LauncherError, queue.Empty):
        stage.host.run(["touch", stop], timeout=IN_GOOD_ORDER)
        while time.monotonic() < deadline:
            item = stage.interrupts.inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            if isinstance(item, _Over | Interrupt):
                return
