"""Shows what the tasks of a running script's steps use, by step and by node: now and then, and when the user asks."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import field

from notebook_launcher.core import events
from notebook_launcher.core.errors import LauncherError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.schedulers.base import StepSample
from notebook_launcher.session.context import Context, job_of
from notebook_launcher.session.record import Session

#: seconds from the job's start to the first query, and then from each to the next; the first two are close, because the
#: use is the difference between two
PAUSES = (30.0, 30.0, 600.0)
_WITHIN = 20.0  # seconds for an answer
_SHORTEST = 3.0  # seconds, at least, between two queries from which a mean is computed
_BEHIND = 0.5  # share of the mean CPU time; a task with less is named


class StepsReported(Frozen):
    """The steps of the job at the time ``at`` (of ``time.monotonic``)."""

    by: StepUseWatch
    samples: tuple[StepSample, ...]
    at: float = field(default_factory=time.monotonic)


class StepUseWatch:
    """Shows what the steps use; unless requested, only if one has several tasks, as the status line shows the rest.

    Queries run on threads, and their answers go through the inbox to ``handle``, so that a slow scheduler delays
    nothing.
    """

    def __init__(self, context: Context, session: Session, inbox: queue.SimpleQueue[object]) -> None:
        self._context, self._session, self._inbox = context, session, inbox
        self._command = context.scheduler.running_steps(job_of(session))
        self._before: StepsReported | None = None
        self._queries = 0
        self._due: float | None = None  # None: the job does not run
        self._is_waiting = False
        self._is_requested = False  # by the user, who sees the answer in any case

    @property
    def is_available(self) -> bool:
        """Whether the scheduler reports what steps use."""
        return self._command is not None

    def job_started(self) -> None:
        """Start to query."""
        self._before, self._queries = None, 0
        self._due = time.monotonic() + PAUSES[0]

    def job_requeued(self) -> None:
        """Stop querying until the job runs again."""
        self._due = None

    def check(self) -> None:
        """Query if it is time."""
        if self._due is not None and time.monotonic() >= self._due:
            self._start_query()

    def ask(self) -> str:
        """Query now, for the user; return why that is impossible, else ""."""
        if self._command is None:
            return "This scheduler does not report what the steps of a running job use."
        if self._due is None:
            return "The job has not started yet."
        self._is_requested = True
        self._start_query()  # does nothing if an answer is awaited already, which is then shown
        return ""

    def _start_query(self) -> None:
        if self._command is None or self._is_waiting:
            return
        self._queries, self._is_waiting = self._queries + 1, True
        self._due = time.monotonic() + PAUSES[min(self._queries, len(PAUSES) - 1)]
        threading.Thread(target=self._query, args=(self._command,), name="ask for steps", daemon=True).start()

    def _query(self, command: list[str]) -> None:
        samples: tuple[StepSample, ...] = ()
        try:
            answer = self._context.host.run(command, login_shell=True, timeout=_WITHIN)
            samples = self._context.scheduler.read_running_steps(job_of(self._session), answer)
        except (LauncherError, OSError):
            pass  # queried again the next time; the job does not depend on it
        finally:
            self._inbox.put(StepsReported(self, samples))

    def handle(self, item: object) -> None:
        """Handle an answer, and show what steps use."""
        if not isinstance(item, StepsReported) or item.by is not self:
            return
        requested, self._is_requested, self._is_waiting = self._is_requested, False, False
        if self._due is None:
            return  # the job was requeued meanwhile
        before, self._before = self._before, item
        since = {sample.name: sample for sample in before.samples} if before else {}
        seconds = item.at - before.at if before else 0.0
        steps = tuple(_uses(item.samples, since, seconds, with_batch=requested))
        has_many = any(step.cores is not None and (step.tasks or 1) > 1 for step in steps)
        if steps and (requested or has_many):
            self._context.view.show(events.StepsUsed(self._session.id, job_of(self._session).id, steps))
        elif requested:
            self._context.view.show(events.Note("The scheduler has not reported on the job's steps yet."))


def _uses(
    samples: tuple[StepSample, ...], before: Mapping[str, StepSample], seconds: float, *, with_batch: bool
) -> Iterator[events.StepUsed]:
    """Yield what each step uses; ``with_batch``: even the script itself, which the status line shows."""
    for sample in samples:
        if sample.name == "batch" and not with_batch:
            continue
        earlier = before.get(sample.name)
        cores = None
        if earlier and seconds >= _SHORTEST and earlier.cpu_mean is not None and sample.cpu_mean is not None:
            cores = round(max(0.0, sample.cpu_mean - earlier.cpu_mean) / seconds, 2)
        least, mean = sample.cpu_least, sample.cpu_mean
        is_behind = bool(mean and least is not None and least < _BEHIND * mean and (sample.tasks or 1) > 1)
        yield events.StepUsed(
            step=sample.name,
            tasks=sample.tasks,
            nodes=sample.nodes,
            cores=cores,
            cpu_seconds=mean,
            slowest_task=sample.least_task if is_behind else "",
            slowest_node=sample.least_node if is_behind else "",
            slowest_share=round(100 * (least or 0.0) / mean, 1) if is_behind and mean else None,
            memory_mib=sample.memory_peak,
            memory_task=sample.memory_task,
            memory_node=sample.memory_node,
            gpu_percent=sample.gpu_percent,
        )
