"""Runs the combinations of a bench as jobs, several at a time, until all have ended."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Mapping

from notebook_launcher.bench.combinations import ReadyCombination
from notebook_launcher.bench.follow import Follower, JobFileWritten
from notebook_launcher.bench.journal import BenchFolder
from notebook_launcher.bench.messages import CONTINUE, detached
from notebook_launcher.bench.recovery import Recovery
from notebook_launcher.bench.request import BenchTiming
from notebook_launcher.bench.submit import Submitter
from notebook_launcher.core.errors import Interrupted, LauncherError
from notebook_launcher.core.interrupts import HungUp, Interrupt
from notebook_launcher.jobs.cancel_many import cancel_jobs
from notebook_launcher.jobs.outcome import exit_record
from notebook_launcher.session.context import Context


class Runner:
    """Queues the missing combinations, several at a time, and follows their jobs until they end.

    ``ready``: the combinations of the matrix, by name; the folder may contain others, which are left alone.
    """

    def __init__(
        self,
        context: Context,
        folder: BenchFolder,
        ready: Mapping[str, ReadyCombination],
        at_once: int,
        timing: BenchTiming,
    ) -> None:
        self._context, self._folder, self._timing = context, folder, timing
        self._follower = Follower(context, folder, timing)
        request = next(iter(ready.values())).plan.request
        self._recovery = Recovery(context, folder, request, self._follower, self._take_interrupts, timing)
        find_again = self._recovery.find_again
        self._submitter = Submitter(context, folder, ready, at_once, self._follower, find_again, timing)

    def run(self) -> None:
        """Run all missing combinations. Raises ``Interrupted``, ``HungUp``, and any error that stops the bench."""
        self._context.interrupts.defer()
        if self._context.prompts.asks:
            self._context.view.listen(self._context.interrupts.inbox)  # so that Ctrl-C can cancel a question
        submitter, recovery = self._submitter, self._recovery
        try:
            recovery.unless_lost(recovery.find_again)
            submitter.show_price()
            while submitter.planned() or self._follower.active or submitter.fail_too_large():
                if submitter.may_submit:
                    recovery.unless_lost(submitter.submit_next)
                else:
                    self._wait()
                self._take_interrupts()
                if self._follower.active and time.monotonic() >= self._follower.lookup_at:
                    recovery.unless_lost(recovery.look_up_all)
        finally:
            self._follower.close_streams()

    # --- what happens meanwhile

    def _wait(self) -> None:
        """Wait until something happens, or the next lookup or attempt is due."""
        due = [self._follower.lookup_at] if self._follower.active else []
        due += [at] if (at := self._submitter.retry_at) is not None else []
        pause = min(due, default=time.monotonic()) - time.monotonic()
        with contextlib.suppress(queue.Empty):
            pause = max(0.0, min(pause, self._timing.lookup_within))
            self._act_on(self._context.interrupts.inbox.get(timeout=pause))

    def _take_interrupts(self) -> None:
        """Act on all messages in the inbox."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._act_on(self._context.interrupts.inbox.get_nowait())

    def _act_on(self, item: object) -> None:
        follower = self._follower
        if isinstance(item, Interrupt):
            if item.kind == "leave":
                raise HungUp
            self._interrupted()
        elif isinstance(item, JobFileWritten) and (job := follower.active.get(item.session)):
            if item.name == "started":
                follower.has_started(job, item.data)
            elif item.data:
                self._recovery.unless_lost(lambda: follower.has_exited(job, item.data))

    # --- interrupted

    def _interrupted(self) -> None:
        """Detach from the jobs, or cancel them if the user says so. Raises ``Interrupted``."""
        sessions = list(self._follower.active)
        if not sessions:
            raise Interrupted("Interrupted.", why="No job of this bench is in the queue.", hint=CONTINUE)
        asks = self._context.prompts.asks
        jobs = "One job of this bench is" if len(sessions) == 1 else f"{len(sessions)} jobs of this bench are"
        if asks and self._context.prompts.confirm(f"{jobs} in the queue or running. Let them go on?") is False:
            self._cancel_all()
            raise Interrupted("Interrupted.", why="The jobs were cancelled; what was done is kept.", hint=CONTINUE)
        raise detached(list(self._follower.active), self._context.target)

    def _cancel_all(self) -> None:
        """Cancel the jobs, but keep the results of those that finished while the user was being asked."""
        with contextlib.suppress(LauncherError):
            self._recovery.look_up_all()
        running = list(self._follower.active.values())
        if running:
            cancel_jobs(self._context, [job.session for job in running])
        for job in running:
            record: Mapping[str, object] = {}
            with contextlib.suppress(LauncherError):
                record = exit_record(self._context, job.session)
            if record.get("cause") == "finished":  # just before the cancellation
                self._follower.has_exited(job, record)
            else:
                self._follower.drop(job)
                self._folder.put_back(job.name)
