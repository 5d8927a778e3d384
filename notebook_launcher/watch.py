"""Waiting for a session: its files through one stream, its job through a gentle poll, both into one queue.

The files tell first (the job writes when it starts, when Jupyter listens and when it ends); the scheduler is asked
because a job that never started or was killed outright writes nothing.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone

from notebook_launcher.answer import Answer
from notebook_launcher.errors import ConnectionLost, HostCommandFailed, LauncherError
from notebook_launcher.hosts.base import RUN_TIMEOUT, Host, LineStream
from notebook_launcher.request import Request
from notebook_launcher.schedulers.base import JobRef, JobStatus, Scheduler
from notebook_launcher.schedulers.outlook import Evidence

#: seconds between two questions to the scheduler: soon at first, then ever more rarely
PACE_WAITING = (1.0, 2.0, 4.0, 8.0, 10.0)
PACE_RUNNING = 30.0
#: watch.sh gives a sign of life every 2 s; after this many seconds without one the user is told, and a new connection
#: is begun
SILENCE = 5.0
#: after this many the old one is given up. A network that was away for 5 s comes back by itself until then, with all
#: that was on its way: TCP sends again after 0.2, 0.4, ... 3.2 s, 8.2 s after the first loss at the latest
LAST_CHANCE = 11.0


@dataclass(frozen=True)
class FileAppeared:
    """``started``, ``endpoint`` or ``exit`` was written or changed by the job."""

    name: str
    data: Mapping[str, object]


@dataclass(frozen=True)
class StatusChanged:
    """The scheduler's word on the job; ``None``: it has forgotten the job.

    ``evidence``: what else was read to explain why it waits. ``read_at``: when the scheduler said so, in UTC.
    """

    status: JobStatus | None
    evidence: Evidence | None = None
    read_at: datetime = field(default_factory=lambda: datetime.now(timezone.utc))


@dataclass(frozen=True)
class SchedulerMute:
    """The scheduler has stopped answering, with what its command said. The next ``StatusChanged`` ends that."""

    reason: str


@dataclass(frozen=True)
class WatchBroke:
    """The stream of ``watch`` ended or its host went away; what is known of the cause."""

    watch: Watch
    reason: str
    connection: bool = False  # whether it is known to be the connection that broke


@dataclass(frozen=True)
class DirectoryGone:
    """The session's directory was removed: from now on only the scheduler tells."""


class Watch:
    """Follows one session into ``inbox``, from ``start`` until it is closed."""

    def __init__(
        self,
        host: Host,
        scheduler: Scheduler,
        job: JobRef,
        directory: str,
        inbox: queue.SimpleQueue[object],
        *,
        request: Request | None = None,
        user: str = "",
        submitted_ago: float | None = None,
    ) -> None:
        self._host, self._scheduler, self._job, self._directory = host, scheduler, job, directory
        self._inbox = inbox
        self._stream: LineStream | None = None
        self._over = threading.Event()
        self._closed = False
        self._running = False
        self._started_at = 0.0
        self._heard = time.monotonic()
        self._directory_gone = False

    def start(self) -> None:
        """Begin. Raises ``ConnectionLost``."""
        self._heard = time.monotonic()
        self._stream = self._host.stream(
            ["bash", f"{self._directory}/watch.sh", self._directory], self._read_line, self._ended
        )
        threading.Thread(target=self._poll, name="poll", daemon=True).start()

    def close(self) -> None:
        """Stop; may be called twice, and without having started."""
        self._closed = True
        self._over.set()
        if self._stream:
            self._stream.close()

    @property
    def silent_for(self) -> float:
        """Seconds since the last sign of life over the stream; none where it has nothing to watch any more."""
        return 0.0 if self._directory_gone else time.monotonic() - self._heard

    def _read_line(self, line: str) -> None:
        self._heard = time.monotonic()
        name, _, text = line.partition(" ")
        if name == "deleted":
            self._directory_gone = True
            self._inbox.put(DirectoryGone())
        if name not in ("started", "endpoint", "exit"):
            return  # a sign of life
        with contextlib.suppress(ValueError):
            data = json.loads(text)
            if isinstance(data, dict):
                if name == "started":
                    self._running, self._started_at = True, time.monotonic()
                self._inbox.put(FileAppeared(name, data))

    def _ended(self, reason: str) -> None:
        if not self._directory_gone:
            self._inbox.put(WatchBroke(self, reason))

    def _poll(self) -> None:
        last: object = self
        turn = 0
        while not self._closed:
            asked_at = time.monotonic()
            try:
                status = ask(self._host, self._scheduler, self._job)
            except NoAnswer:
                status = last  # type: ignore[assignment]  # told by nobody: as before
            except Exception as error:  # a thread that dies must not die in silence
                if not self._closed:
                    reason = error.what if isinstance(error, LauncherError) else repr(error)
                    self._inbox.put(WatchBroke(self, reason, isinstance(error, ConnectionLost)))
                return
            if asked_at < self._started_at and isinstance(status, JobStatus) and status.state.waits:
                status = last  # type: ignore[assignment]  # the job has started since: an old answer, no requeue
            if status != last and not self._closed:
                last, turn = status, 0
                self._inbox.put(StatusChanged(status))
            pause = PACE_RUNNING if self._running else PACE_WAITING[min(turn, len(PACE_WAITING) - 1)]
            turn += 1
            self._over.wait(pause)


class NoAnswer(Exception):
    """The scheduler did not answer; nothing is known, which is not the same as "no such job"."""


def ask(host: Host, scheduler: Scheduler, job: JobRef, timeout: float = RUN_TIMEOUT) -> JobStatus | None:
    """Ask once for a job: the queue, then the history. ``None``: forgotten by both. Raises ``NoAnswer``.

    ``timeout``: seconds for each of the two.
    """
    try:
        answers = scheduler.read_query([job], _run(host, scheduler.query([job]), timeout))
        if answers is None:
            raise NoAnswer
        if job.id in answers:
            return answers[job.id]
        history = scheduler.history(job)
        return scheduler.read_history(job, _run(host, history, timeout)) if history else None
    except HostCommandFailed:  # it took too long
        raise NoAnswer from None


def _run(host: Host, argv: list[str], timeout: float) -> Answer:
    return host.run(argv, login_shell=True, timeout=timeout)
