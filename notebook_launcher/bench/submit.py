"""Queues the combinations of a bench one after the other, and handles those that are refused."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping

from notebook_launcher.bench.combinations import ReadyCombination
from notebook_launcher.bench.follow import Follower
from notebook_launcher.bench.journal import BenchFolder
from notebook_launcher.bench.matrix import Kind
from notebook_launcher.bench.messages import CONTINUE
from notebook_launcher.bench.request import MOST_AT_ONCE, BenchTiming
from notebook_launcher.core.errors import (
    AccountRefused,
    ClusterRefused,
    ConnectionLost,
    LauncherError,
    LicenceRefused,
    LimitRefused,
    PartitionRefused,
    QosRefused,
    ReservationRefused,
    SchedulerAway,
    SubmitRefused,
    SubmitUncertain,
)
from notebook_launcher.core.text import joined
from notebook_launcher.planning.plan import useless_flags_note
from notebook_launcher.run import queue_run
from notebook_launcher.session.context import Context
from notebook_launcher.session.record import Session
from notebook_launcher.usage.cost_estimate import estimate_price

#: refusals that the next combination would meet as well, unless the matrix varies their cause
_REFUSES_ALL = (AccountRefused, PartitionRefused, QosRefused, ReservationRefused, ClusterRefused, LicenceRefused)


class Submitter:
    """Queues the planned combinations, as many at once as are requested and as the scheduler accepts.

    ``find_again``: looks for sessions that are recorded as queued, and may have a job.
    """

    def __init__(
        self,
        context: Context,
        folder: BenchFolder,
        ready: Mapping[str, ReadyCombination],
        at_once: int,
        follower: Follower,
        find_again: Callable[[], None],
        timing: BenchTiming,
    ) -> None:
        self._context, self._folder, self._ready, self._timing = context, folder, ready, timing
        self._follower, self._find_again = follower, find_again
        self._at_once = at_once
        self._room = MOST_AT_ONCE  # the number of our jobs that the scheduler allows in the queue
        self._retry_at = 0.0
        self._away_since: float | None = None
        self._accepted = False
        self._too_large: dict[str, LauncherError] = {}  # refused by a limit while we had no other job
        follower.on_end = self._make_room

    def planned(self) -> list[str]:
        """Return the combinations that are still to be queued."""
        planned = self._folder.names("planned")
        return [name for name in planned if name in self._ready and name not in self._too_large]

    @property
    def may_submit(self) -> bool:
        """Whether a combination can be queued now."""
        # without a scheduler, jobs share this machine and would slow each other down
        most = 1 if self._context.scheduler.same_machine else min(self._at_once, self._room)
        return bool(self.planned()) and len(self._follower.active) < most and time.monotonic() >= self._retry_at

    @property
    def retry_at(self) -> float | None:
        """When the next attempt is due, on the monotonic clock; ``None`` if there is nothing to wait for."""
        return self._retry_at if self.planned() and self._retry_at > time.monotonic() else None

    def _make_room(self) -> None:
        self._room = max(self._room, len(self._follower.active) + 1)

    def show_price(self) -> None:
        """Show the maximum cost of all planned combinations, and which flags have no effect without a scheduler."""
        names = self.planned()
        if self._context.scheduler.same_machine and names:
            requested = {flag for name in names for flag in self._ready[name].plan.user_flags}
            if note := useless_flags_note(requested):
                self._follower.note(note)
            if len(names) > 1 and self._at_once > 1:
                self._follower.note(
                    "On this machine one job runs at a time, whatever --at-once says: several would slow each other "
                    "down."
                )
        prices = [estimate_price(self._ready[name].plan, self._context.scheduler) for name in names]
        known = [price for price in prices if price is not None]
        if known:
            count = "one job" if len(known) == 1 else f"{len(known)} jobs"
            cost = sum(price.cost for price in known)
            calculation = f"{count}, each until its walltime is over"
            self._context.view.show(dataclasses.replace(known[0], cost=cost, calculation=calculation))

    def submit_next(self) -> None:
        """Queue the next combination. Raises ``ConnectionLost``, and any error that stops the bench."""
        name = self.planned()[0]
        one = self._ready[name]

        def note_session(session: Session) -> None:
            now = self._context.clock().isoformat(timespec="seconds")
            self._folder.change(name, state="queued", session=session.id, queued=now)

        # interrupts stay in our own inbox: they must not prevent a job from being recorded
        context = self._follower.separate_context()
        try:
            session, _ = queue_run(one.plan, context, one.prepared, written=note_session)
        except LauncherError as error:
            self._not_queued(name, error)
            return
        self._accepted, self._away_since = True, None
        self._folder.change(name, job=str(session.job))
        self._follower.follow(name, session)
        self._follower.show(f"{name} is queued: job {session.job}.")

    # --- refused

    def _not_queued(self, name: str, error: LauncherError) -> None:
        """Handle a combination that could not be queued. Raises any error that stops the bench."""
        if isinstance(error, ConnectionLost | SubmitUncertain):
            if isinstance(error, SubmitUncertain) and self._context.host.alive:
                self._find_again()  # by now the job is listed, or certainly does not exist
                return
            raise ConnectionLost(error.what, why=error.why)
        if self._folder[name].state == "queued":
            self._folder.put_back(name)
        active = len(self._follower.active)
        if isinstance(error, SchedulerAway):
            self._retry(error)
        elif isinstance(error, LimitRefused) and active:
            self._room = active
            self._follower.note(f"No more than {self._room} jobs are taken at once: {error.what}")
        elif isinstance(error, LimitRefused) and self._varies("cores", "gpus", "flag"):
            self._too_large[name] = error  # it may be too large by itself: whether others are accepted will show
        elif isinstance(error, LimitRefused) and self._accepted:
            self._retry(error)  # the limit is used up by jobs of another command, which will end
        elif isinstance(error, SubmitRefused) and not (self._refuses_all(error) and not self._accepted):
            self._fail(name, error)
        else:
            raise error

    def _refuses_all(self, error: SubmitRefused) -> bool:
        return isinstance(error, LimitRefused) or (isinstance(error, _REFUSES_ALL) and not self._varies("flag"))

    def _varies(self, *kinds: Kind) -> bool:
        """Whether the matrix has an axis of these kinds with more than one value."""
        axes = next(iter(self._ready.values())).combination.axes
        return any(axis.kind in kinds and len(axis.values) > 1 for axis in axes)

    def fail_too_large(self) -> bool:
        """Give up the combinations that a limit refused, once all others are done; return whether there were any.

        If the scheduler accepted others, these were too large, and have failed. If it accepted none, raises the
        refusal, which then applies to all.
        """
        refused, self._too_large = self._too_large, {}
        for name, error in refused.items():
            if not self._accepted:
                error.hint = joined(error.hint, CONTINUE)
                raise error
            self._fail(name, error)
        return bool(refused)

    def _fail(self, name: str, error: LauncherError) -> None:
        self._folder.change(name, state="failed", why=joined(error.what, error.why), kind=error.kind)
        self._follower.show(f"{name} failed: {error.what}")

    def _retry(self, error: SchedulerAway | LimitRefused) -> None:
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
            self._follower.note(f"{error.what} Trying again.")
        if now - self._away_since > self._timing.retry_for:
            error.hint = CONTINUE
            raise error
        self._retry_at = now + self._timing.retry_pause
