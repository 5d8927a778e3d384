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
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from notebook_launcher.core.command_result import Answer
from notebook_launcher.core.errors import ConnectionLost, HostCommandFailed, LauncherError
from notebook_launcher.core.request import Request
from notebook_launcher.core.timestamps import moment
from notebook_launcher.core.usage_samples import Sample, read_samples
from notebook_launcher.diagnosis.explain import needs
from notebook_launcher.hosts.base import RUN_TIMEOUT, Host, LineStream
from notebook_launcher.jobs.evidence import gather
from notebook_launcher.jobs.polling import LONGEST, QUESTION, Pace
from notebook_launcher.jobs.shared_queries import SharingHost, Together
from notebook_launcher.schedulers.base import JobRef, JobStatus, Scheduler, State
from notebook_launcher.schedulers.cluster_info import Evidence

#: RPCs at Slurm's controller (measured, see docs/politeness.md): for the question about this job while nobody else
#: asks; for the one that is not shared; for each part of the evidence on why it waits, at most, and for all of it
ALONE, OWN, PART, EVIDENCE = 1, 3, 2, 4
EVIDENCE_EVERY = 1200.0  # seconds after which the evidence for the same reason is read again
EVIDENCE_AGE = 300.0  # seconds for which several sessions share it
#: seconds that a job has waited when it is worth counting those ahead of it, by a list of all that wait: most jobs have
#: started by then
SETTLED = 10.0
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


@dataclass(frozen=True)
class Sampled:
    """The newest sample of what the job uses."""

    sample: Sample


@dataclass(frozen=True)
class IdleTold:
    """The job's word on nobody using it, ``idle.json`` (see ``docs/job-script.md``); ``None``: it is used again."""

    data: Mapping[str, object] | None


@dataclass(frozen=True)
class Progressed:
    """The job's word on how far a notebook has come, ``progress.json`` (see ``docs/job-script.md``)."""

    data: Mapping[str, object]


class Watch:
    """Follows one session into ``inbox``, from ``start`` until it is closed.

    ``request`` and ``user``: for the evidence on why the job waits; without a request none is read. ``submitted_ago``:
    seconds since the job was queued, ``None``: long ago. ``pace``: that of an earlier watch of the same session, so
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
        pace: Pace | None = None,
    ) -> None:
        self._host, self._scheduler, self._job, self._directory = host, scheduler, job, directory
        self._inbox, self._request, self._user = inbox, request, user
        self.pace = pace or Pace(time.monotonic, random.SystemRandom())
        self._stream: LineStream | None = None
        self._wake = threading.Event()
        self._closed = False
        self._heard = time.monotonic()
        self._directory_gone = False
        # moments before which an answer is not to be believed: it may miss the job, or call it waiting
        self._queued_at = -math.inf if submitted_ago is None else time.monotonic() - submitted_ago
        self._started_at = -math.inf
        self._together = Together(host, directory)
        self._told: StatusChanged | None = None  # last
        self._mute = False
        self._evidence: dict[str | None, tuple[float, Evidence]] = {}  # and when it was read, by reason

    def start(self) -> None:
        """Begin. Raises ``ConnectionLost``."""
        self._heard = time.monotonic()
        self._stream = self._host.stream(
            ["bash", f"{self._directory}/watch.sh", self._directory], self._read_line, self._ended
        )
        threading.Thread(target=self._poll, name="poll", daemon=True).start()

    def ask_soon(self) -> None:
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
            self._inbox.put(DirectoryGone())
        elif name == "usage":
            for sample in read_samples(text.split("|"))[-1:]:
                self._inbox.put(Sampled(sample))
        elif line == "gone idle":
            self._inbox.put(IdleTold(None))
        if name not in ("started", "endpoint", "exit", "idle", "progress"):
            return  # a sign of life
        with contextlib.suppress(ValueError):
            data = json.loads(text)
            if isinstance(data, dict):
                if name == "started":
                    self._started_at = time.monotonic()
                others = {"idle": IdleTold, "progress": Progressed}
                self._inbox.put(others[name](data) if name in others else FileAppeared(name, data))

    def _ended(self, reason: str) -> None:
        if not self._directory_gone:
            self._inbox.put(WatchBroke(self, reason))

    # --- the scheduler

    def _poll(self) -> None:
        max_age = LONGEST
        try:
            while not self._closed:
                max_age = min(LONGEST, self._wait(self._ask(max_age)))
        except Exception as error:  # a thread that dies must not die in silence
            if not self._closed:
                reason = error.what if isinstance(error, LauncherError) else repr(error)
                self._inbox.put(WatchBroke(self, reason, isinstance(error, ConnectionLost)))

    def _wait(self, pause: float) -> float:
        """Wait, until somebody urges at most, and return the age in seconds up to which an answer is news then."""
        began = time.monotonic()
        until, urged = began + pause, False
        while not self._closed and (left := until - time.monotonic()) > 0:
            if self._wake.wait(left):
                self._wake.clear()
                urged, until = True, min(until, time.monotonic() + self.pace.when_urged())
        return 0.0 if urged else time.monotonic() - began

    def _ask(self, max_age: float) -> float:
        """Ask once, tell what is new, and return the pause in seconds."""
        try:
            told = self._question(max_age)
        except ConnectionLost:
            raise
        except Exception as error:
            # what cannot be made sense of is no answer either: a session is not given up for that
            silence = error if isinstance(error, NoAnswer) else NoAnswer(repr(error))
            if not self._mute and not self._closed:
                self._mute = True
                self._inbox.put(SchedulerMute(silence.reason))
            return self.pace.after_silence()
        if told.asked_at < self._started_at and told.status and told.status.state.waits:
            return self.pace.after_answer()  # the job has started since: an old answer, no requeue
        self._tell(told)
        return self.pace.after_answer(told.start_in)

    def _question(self, max_age: float) -> _Told:
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
            return self._own_question()
        answers = self._scheduler.read_query([self._job], shared.answer)
        if answers is None:
            raise NoAnswer(_said(shared.answer))
        if shared.age == 0:
            self.pace.spend(ALONE if shared.alone else QUESTION)
        status = answers.get(self._job.id)
        if status is None or status.state is State.REVOKED:
            # one's own list may be shorter than all that is known; and of a federation, it is of one cluster only
            return self._own_question()
        age = timedelta(seconds=shared.age)
        return _Told(status, began - shared.age, began_utc - age, _seconds_until(status.start, shared.clock))

    def _own_question(self) -> _Told:
        """Ask for this job by itself, and in the history. Raises ``NoAnswer``."""
        began, began_utc = time.monotonic(), datetime.now(timezone.utc)
        status = ask(self._host, self._scheduler, self._job)
        if self._scheduler.query_own(self._job.cluster) is not None:  # else it costs nobody
            self.pace.spend(OWN)
        return _Told(status, began, began_utc)

    def _tell(self, told: _Told) -> None:
        before, status = self._told, told.status
        if self._mute or before is None or _state_and_reason(before.status) != _state_and_reason(status):
            self.pace.news()
        evidence = self._evidence_on(status) if status and status.state.waits else None
        is_new = self._mute or before is None or (before.status, before.evidence) != (status, evidence)
        if is_new and not self._closed:
            self._mute, self._told = False, StatusChanged(status, evidence, told.read_at)
            self._inbox.put(self._told)

    def _evidence_on(self, status: JobStatus) -> Evidence | None:
        """Return what else is known of why the job waits, read for each new reason, and again from time to time."""
        now, outlook = time.monotonic(), self._scheduler.outlook
        read_at, evidence = self._evidence.get(status.reason, (-math.inf, None))
        is_due = now - read_at >= EVIDENCE_EVERY and self.pace.left >= EVIDENCE
        if now - self._queued_at < SETTLED and needs(status.reason) == {"ahead"}:
            is_due = False
        if outlook is None or self._request is None or not is_due or self._closed:
            return evidence
        host = SharingHost(self._host, self._together, min(EVIDENCE_AGE, now - self._queued_at))
        evidence = gather(host, outlook, status, self._request, self._user)
        self.pace.spend(PART * host.asked)
        self._evidence[status.reason] = now, evidence
        return evidence


@dataclass(frozen=True)
class _Told:
    """One answer, ``None`` where the job is forgotten.

    ``asked_at``: when it was asked, at the earliest (monotonic); ``read_at``: the same in UTC. ``start_in``: seconds
    until the scheduler expects the job to start.
    """

    status: JobStatus | None
    asked_at: float
    read_at: datetime
    start_in: float | None = None


class NoAnswer(Exception):
    """The scheduler did not answer; nothing is known, which is not the same as "no such job"."""

    def __init__(self, reason: str = "it said nothing") -> None:
        super().__init__(reason)
        self.reason = reason


def ask(host: Host, scheduler: Scheduler, job: JobRef, timeout: float = RUN_TIMEOUT) -> JobStatus | None:
    """Ask once for a job: the queue, then the history. ``None``: forgotten by both.

    Raises ``NoAnswer``, also where the queue does not show the job and does not say that there is none. ``timeout``:
    seconds for each of the two.
    """
    try:
        answer = _run(host, scheduler.query([job]), timeout)
        answers = scheduler.read_query([job], answer)
        if answers is None:
            raise NoAnswer(_said(answer))
        if job.id in answers:
            return answers[job.id]
        history = scheduler.history(job)
        status = scheduler.read_history(job, _run(host, history, timeout)) if history else None
        if status is None and not scheduler.has_forgotten(job, answer):
            raise NoAnswer(f"it does not show job {job}, and does not say that there is none")
        return status
    except HostCommandFailed as error:  # it took too long
        raise NoAnswer(error.what) from None


def _run(host: Host, argv: list[str], timeout: float) -> Answer:
    return host.run(argv, login_shell=True, timeout=timeout)


def _said(answer: Answer) -> str:
    """Return the last words of a command that failed; what start-up files say comes before them."""
    lines = [line.strip() for line in (answer.stderr or answer.stdout).splitlines() if line.strip()]
    return lines[-1] if lines else f"exit code {answer.exit_code}"


def _state_and_reason(status: JobStatus | None) -> tuple[State, str | None] | None:
    return (status.state, status.reason) if status else None


def _seconds_until(start: str | None, now: datetime) -> float | None:
    """Return how long it is until a time on the clock that shows ``now``; ``None`` for what is no time."""
    at = moment(start, now)
    return (at - now).total_seconds() if at else None
