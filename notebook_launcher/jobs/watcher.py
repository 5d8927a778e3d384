"""Waiting for a session: its files through one stream, its job through a gentle poll, both into one queue.

The files tell first (the job writes when it starts, when Jupyter listens and when it ends); the scheduler is asked
because a job that never started or was killed outright writes nothing.
"""

from __future__ import annotations

import contextlib
import json
import math
import queue
import random
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from notebook_launcher.core.errors import ConnectionLost, HostCommandFailed, LauncherError
from notebook_launcher.core.request import Request
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.core.timing import DEFAULT_TIMING, Timing
from notebook_launcher.core.usage_samples import read_samples
from notebook_launcher.diagnosis.explain import evidence_needed
from notebook_launcher.hosts.base import Host, LineStream
from notebook_launcher.jobs.evidence import gather_evidence
from notebook_launcher.jobs.messages import (
    DirectoryRemoved,
    FileAppeared,
    IdleReported,
    ProgressReported,
    SchedulerUnresponsive,
    StatusChanged,
    UsageSampled,
)
from notebook_launcher.jobs.polling import QUESTION, Polling
from notebook_launcher.jobs.shared_queries import SharedQueries, SharingHost
from notebook_launcher.jobs.status import NoAnswer, last_line, query_status
from notebook_launcher.schedulers.base import JobRef, JobStatus, Scheduler, State
from notebook_launcher.schedulers.cluster_info import Evidence

#: RPCs at Slurm's controller (measured, see docs/politeness.md): for the question about this job while nobody else
#: asks; for the one that is not shared; for each part of the evidence on why it waits, at most, and for all of it
ALONE, OWN, PART, EVIDENCE = 1, 3, 2, 4


@dataclass(frozen=True)
class WatcherStopped:
    """The stream of ``watch`` ended or its host went away; what is known of the cause."""

    watcher: JobWatcher
    reason: str
    connection: bool = False  # whether it is known to be the connection that broke


class JobWatcher:
    """Follows one session into ``inbox``, from ``start`` until it is closed.

    ``request`` and ``user``: for the evidence on why the job waits; without a request none is read. ``submitted_ago``:
    seconds since the job was queued, ``None``: long ago. ``polling``: that of an earlier watch of the same session, so
    that a connection that breaks often does not begin anew with many questions.
    """

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
        polling: Polling | None = None,
        timing: Timing = DEFAULT_TIMING,
    ) -> None:
        self._host, self._scheduler, self._job, self._directory = host, scheduler, job, directory
        self._inbox, self._request, self._user, self._timing = inbox, request, user, timing
        self.polling = polling or Polling(time.monotonic, random.SystemRandom(), timing)
        self._stream: LineStream | None = None
        self._wake = threading.Event()
        self._closed = False
        self._heard = time.monotonic()
        self._directory_gone = False
        # moments before which an answer is not to be believed: it may miss the job, or call it waiting
        self._queued_at = -math.inf if submitted_ago is None else time.monotonic() - submitted_ago
        self._started_at = -math.inf
        self._together = SharedQueries(host, directory)
        self._reported: StatusChanged | None = None  # last
        self._unresponsive = False
        self._evidence: dict[str | None, tuple[float, Evidence]] = {}  # and when it was read, by reason

    def start(self) -> None:
        """Begin. Raises ``ConnectionLost``."""
        self._heard = time.monotonic()
        self._stream = self._host.stream(
            ["bash", f"{self._directory}/watch.sh", self._directory], self._read_line, self._ended
        )
        threading.Thread(target=self._poll, name="poll", daemon=True).start()

    def poll_now(self) -> None:
        """Ask the scheduler at once: something has happened that it may know more about."""
        self._wake.set()

    def close(self) -> None:
        """Stop; may be called twice, and without having started."""
        self._closed = True
        self._wake.set()
        if self._stream:
            self._stream.close()

    @property
    def silent_for(self) -> float:
        """Seconds since the last sign of life over the stream; none where it has nothing to watch any more."""
        return 0.0 if self._directory_gone else time.monotonic() - self._heard

    # --- the job's files

    def _read_line(self, line: str) -> None:
        self._heard = time.monotonic()
        name, _, text = line.partition(" ")
        if name == "deleted":
            self._directory_gone = True
            self._inbox.put(DirectoryRemoved())
        elif name == "usage":
            for sample in read_samples(text.split("|"))[-1:]:
                self._inbox.put(UsageSampled(sample))
        elif line == "gone idle":
            self._inbox.put(IdleReported(None))
        if name not in ("started", "endpoint", "exit", "idle", "progress"):
            return  # a sign of life
        with contextlib.suppress(ValueError):
            data = json.loads(text)
            if isinstance(data, dict):
                if name == "started":
                    self._started_at = time.monotonic()
                others = {"idle": IdleReported, "progress": ProgressReported}
                self._inbox.put(others[name](data) if name in others else FileAppeared(name, data))

    def _ended(self, reason: str) -> None:
        if not self._directory_gone:
            self._inbox.put(WatcherStopped(self, reason))

    # --- the scheduler

    def _poll(self) -> None:
        max_age = self._timing.longest_poll_pause
        try:
            while not self._closed:
                max_age = min(self._timing.longest_poll_pause, self._wait(self._ask(max_age)))
        except Exception as error:  # a thread that dies must not die in silence
            if not self._closed:
                reason = error.what if isinstance(error, LauncherError) else repr(error)
                self._inbox.put(WatcherStopped(self, reason, isinstance(error, ConnectionLost)))

    def _wait(self, pause: float) -> float:
        """Wait, until somebody urges at most, and return the age in seconds up to which an answer is news then."""
        began = time.monotonic()
        until, urged = began + pause, False
        while not self._closed and (left := until - time.monotonic()) > 0:
            if self._wake.wait(left):
                self._wake.clear()
                urged, until = True, min(until, time.monotonic() + self.polling.pause_when_urgent())
        return 0.0 if urged else time.monotonic() - began

    def _ask(self, max_age: float) -> float:
        """Ask once, tell what is new, and return the pause in seconds."""
        try:
            reply = self._shared_query(max_age)
        except ConnectionLost:
            raise
        except Exception as error:
            # what cannot be made sense of is no answer either: a session is not given up for that
            silence = error if isinstance(error, NoAnswer) else NoAnswer(repr(error))
            if not self._unresponsive and not self._closed:
                self._unresponsive = True
                self._inbox.put(SchedulerUnresponsive(silence.reason))
            return self.polling.pause_after_silence()
        if reply.asked_at < self._started_at and reply.status and reply.status.state.waits:
            return self.polling.pause_after_answer()  # the job has started since: an old answer, no requeue
        self._report(reply)
        return self.polling.pause_after_answer(reply.start_in)

    def _shared_query(self, max_age: float) -> _QueryReply:
        """Ask together with the other launchers, where that is of use. Raises ``NoAnswer``."""
        began, began_utc = time.monotonic(), datetime.now(timezone.utc)
        own = self._scheduler.query_own(self._job.cluster)
        shared = None
        if own is not None:
            max_age = min(max_age, began - self._queued_at, began - self._started_at)
            alone = self._scheduler.query_alone(self._job)
            try:
                shared = self._together.ask(own, max_age, alone=alone)
            except HostCommandFailed as error:  # it took too long
                raise NoAnswer(error.what) from None
        if shared is None:
            return self._own_query()
        answers = self._scheduler.read_query([self._job], shared.answer)
        if answers is None:
            raise NoAnswer(last_line(shared.answer))
        if shared.age == 0:
            self.polling.spend(ALONE if shared.alone else QUESTION)
        status = answers.get(self._job.id)
        if status is None or status.state is State.REVOKED:
            # one's own list may be shorter than all that is known; and of a federation, it is of one cluster only
            return self._own_query()
        age = timedelta(seconds=shared.age)
        return _QueryReply(status, began - shared.age, began_utc - age, _seconds_until(status.start, shared.clock))

    def _own_query(self) -> _QueryReply:
        """Ask for this job by itself, and in the history. Raises ``NoAnswer``."""
        began, began_utc = time.monotonic(), datetime.now(timezone.utc)
        status = query_status(self._host, self._scheduler, self._job)
        if self._scheduler.query_own(self._job.cluster) is not None:  # else it costs nobody
            self.polling.spend(OWN)
        return _QueryReply(status, began, began_utc)

    def _report(self, reply: _QueryReply) -> None:
        before, status = self._reported, reply.status
        if self._unresponsive or before is None or _state_and_reason(before.status) != _state_and_reason(status):
            self.polling.news()
        evidence = self._evidence_on(status) if status and status.state.waits else None
        is_new = self._unresponsive or before is None or (before.status, before.evidence) != (status, evidence)
        if is_new and not self._closed:
            self._unresponsive, self._reported = False, StatusChanged(status, evidence, reply.read_at)
            self._inbox.put(self._reported)

    def _evidence_on(self, status: JobStatus) -> Evidence | None:
        """Return what else is known of why the job waits, read for each new reason, and again from time to time."""
        now, cluster_info = time.monotonic(), self._scheduler.cluster_info
        read_at, evidence = self._evidence.get(status.reason, (-math.inf, None))
        is_due = now - read_at >= self._timing.evidence_every and self.polling.left >= EVIDENCE
        if now - self._queued_at < self._timing.settled_after and evidence_needed(status.reason) == {"ahead"}:
            is_due = False
        if cluster_info is None or self._request is None or not is_due or self._closed:
            return evidence
        host = SharingHost(self._host, self._together, min(self._timing.evidence_shared_for, now - self._queued_at))
        evidence = gather_evidence(host, cluster_info, status, self._request, self._user)
        self.polling.spend(PART * host.queries_run)
        self._evidence[status.reason] = now, evidence
        return evidence


@dataclass(frozen=True)
class _QueryReply:
    """One answer, ``None`` where the job is forgotten.

    ``asked_at``: when it was asked, at the earliest (monotonic); ``read_at``: the same in UTC. ``start_in``: seconds
    until the scheduler expects the job to start.
    """

    status: JobStatus | None
    asked_at: float
    read_at: datetime
    start_in: float | None = None


def _state_and_reason(status: JobStatus | None) -> tuple[State, str | None] | None:
    return (status.state, status.reason) if status else None


def _seconds_until(start: str | None, now: datetime) -> float | None:
    """Return how long it is until a time on the clock that shows ``now``; ``None`` for what is no time."""
    at = parse_iso(start, now)
    return (at - now).total_seconds() if at else None
