"""Watches a session: its files through one stream, and its job with few queries; puts both into one inbox.

The files come first (the job writes them when it starts, when Jupyter listens and when it ends); the scheduler is
queried because a job that never started or was killed writes nothing.
"""

from __future__ import annotations

import contextlib
import json
import math
import queue
import random
import threading
import time
from datetime import datetime, timedelta, timezone

from notebook_launcher.core.errors import ConnectionLost, HostCommandFailed, LauncherError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.request import Request
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.core.timing import DEFAULT_TIMING, Timing
from notebook_launcher.core.usage_samples import read_samples
from notebook_launcher.diagnosis.explain import evidence_needed
from notebook_launcher.hosts.base import Host, LineStream
from notebook_launcher.jobs.evidence import gather_evidence
from notebook_launcher.jobs.messages import (
    AppsReported,
    DirectoryRemoved,
    FileAppeared,
    IdleReported,
    NextJobReported,
    NoticeReported,
    ProgressReported,
    RenewalRequested,
    SchedulerUnresponsive,
    StagingReported,
    StatusChanged,
    UnsavedReported,
    UsageSampled,
)
from notebook_launcher.jobs.polling import QUERY_RPCS, Polling
from notebook_launcher.jobs.shared_queries import SharedQueries, SharingHost
from notebook_launcher.jobs.status import NoAnswer, last_line, query_status
from notebook_launcher.schedulers.base import JobRef, JobStatus, Scheduler, State
from notebook_launcher.schedulers.cluster_info import Evidence

#: RPCs to Slurm's controller (measured, see docs/scheduler-load.md): for a query of this job while there is no other
#: launcher; for a query that is not shared; for each part of the evidence on why it is pending; for all parts
ALONE, OWN_QUERY_RPCS, EVIDENCE_PART_RPCS, EVIDENCE = 1, 3, 2, 4


#: the messages for these files; for the others, it is ``FileAppeared``
_REPORTS = {
    "apps": AppsReported,
    "idle": IdleReported,
    "notice": NoticeReported,
    "progress": ProgressReported,
    "renew": RenewalRequested,
    "staging": StagingReported,
    "next_job": NextJobReported,
    "unsaved": UnsavedReported,
}


class WatcherStopped(Frozen):
    """The stream of ``watch.sh`` ended, or its host went away. ``reason``: why, as far as known."""

    watcher: JobWatcher
    reason: str
    connection: bool = False  # whether the connection is known to be broken


class JobWatcher:
    """Watches one session from ``start`` until ``close``, and puts messages into ``inbox``.

    ``request`` and ``user``: for the evidence on why the job is pending; without a request, none is read.
    ``submitted_ago``: seconds since the submission, ``None``: long ago. ``polling``: that of an earlier watcher of the
    same session, so that frequent queries do not begin anew whenever a connection breaks.
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
        # answers from before these times are not trusted: they may lack the job, or report it as pending
        self._queued_at = -math.inf if submitted_ago is None else time.monotonic() - submitted_ago
        self._started_at = -math.inf
        self._reporting = threading.Lock()  # so that no answer from before the start is put into the inbox after it
        self._shared = SharedQueries(host, directory)
        self._reported: StatusChanged | None = None  # last
        self._unresponsive = False
        self._evidence: dict[str | None, tuple[float, Evidence]] = {}  # by reason, with the time when it was read

    def start(self) -> None:
        """Start watching. Raises ``ConnectionLost``."""
        self._heard = time.monotonic()
        self._stream = self._host.stream(
            ["bash", f"{self._directory}/watch.sh", self._directory], self._read_line, self._ended
        )
        threading.Thread(target=self._poll, name="poll", daemon=True).start()

    def poll_now(self) -> None:
        """Query the scheduler at once, because something has happened that it may know more about."""
        self._wake.set()

    def close(self) -> None:
        """Stop watching; may be called twice, and before ``start``."""
        self._closed = True
        self._wake.set()
        if self._stream:
            self._stream.close()

    @property
    def silent_for(self) -> float:
        """Seconds since the stream's last line; 0 if there is nothing to watch any more."""
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
        if self._closed or name not in ("started", "endpoint", "exit", *_REPORTS):
            return  # other lines only show that the stream is alive
        with contextlib.suppress(ValueError, RecursionError):
            data = json.loads(text)
            if isinstance(data, dict):
                with self._reporting:
                    if name == "started":
                        self._started_at = time.monotonic()
                    self._inbox.put(_REPORTS[name](data) if name in _REPORTS else FileAppeared(name, data))

    def _ended(self, reason: str) -> None:
        if not self._directory_gone:
            self._inbox.put(WatcherStopped(self, reason))

    # --- the scheduler

    def _poll(self) -> None:
        max_age = self._timing.longest_poll_pause
        try:
            while not self._closed:
                max_age = min(self._timing.longest_poll_pause, self._wait(self._query_once(max_age)))
        except Exception as error:  # a thread must not die silently
            if not self._closed:
                reason = error.what if isinstance(error, LauncherError) else repr(error)
                self._inbox.put(WatcherStopped(self, reason, isinstance(error, ConnectionLost)))

    def _wait(self, pause: float) -> float:
        """Wait ``pause`` seconds or until woken, and return how many seconds old the next answer may be."""
        began = time.monotonic()
        until, urged = began + pause, False
        while not self._closed and (left := until - time.monotonic()) > 0:
            if self._wake.wait(left):
                self._wake.clear()
                urged, until = True, min(until, time.monotonic() + self.polling.pause_when_urgent())
        return 0.0 if urged else time.monotonic() - began

    def _query_once(self, max_age: float) -> float:
        """Query once, report what is new, and return the pause in seconds."""
        try:
            reply = self._shared_query(max_age)
        except ConnectionLost:
            raise
        except Exception as error:
            # an answer that cannot be parsed counts as none, so that it does not end a session
            silence = error if isinstance(error, NoAnswer) else NoAnswer(repr(error))
            if not self._unresponsive and not self._closed:
                self._unresponsive = True
                self._inbox.put(SchedulerUnresponsive(silence.reason))
            return self.polling.pause_without_answer()
        if self._is_outdated(reply):
            return self.polling.pause_after_answer()
        self._report(reply)
        return self.polling.pause_after_answer(reply.start_in)

    def _shared_query(self, max_age: float) -> _QueryReply:
        """Share a query with the other launchers, if the scheduler has one for that. Raises ``NoAnswer``."""
        began, began_utc = time.monotonic(), datetime.now(timezone.utc)
        own = self._scheduler.query_own(self._job.cluster)
        shared = None
        if own is not None:
            max_age = min(max_age, began - self._queued_at, began - self._started_at)
            alone = self._scheduler.query_alone(self._job)
            try:
                shared = self._shared.query(own, max_age, alone=alone)
            except HostCommandFailed as error:  # it took too long
                raise NoAnswer(error.what) from None
        if shared is None:
            return self._query_alone()
        answers = self._scheduler.read_query([self._job], shared.answer)
        if answers is None:
            raise NoAnswer(last_line(shared.answer))
        if shared.age == 0:
            self.polling.spend(ALONE if shared.alone else QUERY_RPCS)
        status = answers.get(self._job.id)
        if status is None or status.state is State.REVOKED:
            # the list of the user's jobs may be incomplete, and in a federation it covers one cluster only
            return self._query_alone()
        age = timedelta(seconds=shared.age)
        return _QueryReply(status, began - shared.age, began_utc - age, _seconds_until(status.start, shared.clock))

    def _query_alone(self) -> _QueryReply:
        """Query this job by itself, and the history. Raises ``NoAnswer``."""
        began, began_utc = time.monotonic(), datetime.now(timezone.utc)
        status = query_status(self._host, self._scheduler, self._job)
        if self._scheduler.query_own(self._job.cluster) is not None:  # else queries cost the scheduler nothing
            self.polling.spend(OWN_QUERY_RPCS)
        return _QueryReply(status, began, began_utc)

    def _is_outdated(self, reply: _QueryReply) -> bool:
        """Whether the reply calls the job pending only because it was queried before the job started."""
        return reply.queried_at < self._started_at and reply.status is not None and reply.status.state.waits

    def _report(self, reply: _QueryReply) -> None:
        before, status = self._reported, reply.status
        if self._unresponsive or before is None or _state_and_reason(before.status) != _state_and_reason(status):
            self.polling.note_change()
        evidence = self._evidence_on(status) if status and status.state.waits else None
        is_new = self._unresponsive or before is None or (before.status, before.evidence) != (status, evidence)
        with self._reporting:  # the job may have started while the evidence was read
            if is_new and not self._closed and not self._is_outdated(reply):
                self._unresponsive, self._reported = False, StatusChanged(status, evidence, reply.read_at)
                self._inbox.put(self._reported)

    def _evidence_on(self, status: JobStatus) -> Evidence | None:
        """Return what else explains why the job is pending; it is read for each new reason, and again now and then."""
        now, cluster_info = time.monotonic(), self._scheduler.cluster_info
        read_at, evidence = self._evidence.get(status.reason, (-math.inf, None))
        is_due = now - read_at >= self._timing.evidence_every and self.polling.left >= EVIDENCE
        if now - self._queued_at < self._timing.settled_after and evidence_needed(status.reason) == {"ahead"}:
            is_due = False
        if cluster_info is None or self._request is None or not is_due or self._closed:
            return evidence
        host = SharingHost(self._host, self._shared, min(self._timing.evidence_shared_for, now - self._queued_at))
        evidence = gather_evidence(host, cluster_info, status, self._request, self._user)
        self.polling.spend(EVIDENCE_PART_RPCS * host.queries_run)
        self._evidence[status.reason] = now, evidence
        return evidence


class _QueryReply(Frozen):
    """One answer. ``status``: ``None`` if the scheduler has forgotten the job.

    ``queried_at``: the earliest time of the query (monotonic); ``read_at``: the same in UTC. ``start_in``: seconds
    until the scheduler expects the job to start.
    """

    status: JobStatus | None
    queried_at: float
    read_at: datetime
    start_in: float | None = None


def _state_and_reason(status: JobStatus | None) -> tuple[State, str | None] | None:
    return (status.state, status.reason) if status else None


def _seconds_until(start: str | None, now: datetime) -> float | None:
    """Return the seconds until a time on the clock that shows ``now``; ``None`` for an invalid time."""
    at = parse_iso(start, now)
    return (at - now).total_seconds() if at else None
