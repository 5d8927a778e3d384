"""Decides how soon to query the scheduler again: soon at first and after every change, then less and less often. Pure.

What matters is the scheduler's work. Slurm's controller counts it as RPCs (see sdiag(1)), of which one command may need
several; ``Timing`` limits their number per hour in all cases.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from notebook_launcher.core.timing import DEFAULT_TIMING, Timing

#: RPCs kept, unless the pause becomes too long, for urgent queries: after a change, around the estimated start, after a
#: broken connection
RESERVE = 5
#: the most RPCs of one query
QUERY_RPCS = 2

JITTER = 1 / 3  # a random addition of up to this share of a pause, so that launchers do not query in step


class Polling:
    """Computes the pauses between queries for one session, in seconds; it must be told about each query and its result.

    ``clock``: returns seconds that never go back. ``chance``: for the jitter.
    """

    def __init__(self, clock: Callable[[], float], chance: random.Random, timing: Timing = DEFAULT_TIMING) -> None:
        self._clock, self._chance, self._timing = clock, chance, timing
        self._refill_rate = (timing.rpcs_per_hour - timing.rpcs_at_once) / 3600.0  # RPCs per second
        self._pause = self._unanswered_pause = timing.poll_pause
        self._counted, self._counted_at = float(timing.rpcs_at_once), clock()
        self._near_until: float | None = None

    @property
    def left(self) -> float:
        """How many RPCs may be spent at once now."""
        came_back = self._refill_rate * (self._clock() - self._counted_at)
        return min(float(self._timing.rpcs_at_once), self._counted + came_back)

    def spend(self, rpcs: int) -> None:
        """Count RPCs. A query without an answer does not count."""
        self._counted, self._counted_at = self.left - rpcs, self._clock()

    def note_change(self) -> None:
        """Record that the status has changed, so that more changes may follow soon."""
        self._pause = self._timing.poll_pause

    def pause_after_answer(self, start_in: float | None = None) -> float:
        """Return the pause after an answer.

        ``start_in``: seconds until the expected start of the job, negative if it has passed, ``None`` if not known.
        """
        self._unanswered_pause = self._timing.poll_pause
        pause, urgent = self._pause, self._pause < self._timing.longest_poll_pause
        self._pause = min(2 * pause, self._timing.longest_poll_pause)
        if near_for := self._near_for(start_in):
            pause, urgent = min(pause, max(self._timing.near_start_pause, near_for / max(1.0, self.left))), True
        saving = 0.0 if urgent else min(self._until_available(QUERY_RPCS + RESERVE), self._timing.longest_saving_pause)
        return max(self._jittered(pause), saving, self._until_available(QUERY_RPCS))

    def pause_without_answer(self) -> float:
        """Return the pause after a query without an answer."""
        pause = self._unanswered_pause
        self._unanswered_pause = min(2 * pause, self._timing.longest_unanswered_pause)
        return min(self._jittered(pause), self._timing.longest_unanswered_pause)

    def pause_when_urgent(self) -> float:
        """Return the pause before an urgent query: 0, unless there were too many already."""
        self.note_change()
        return self._until_available(QUERY_RPCS)

    def _near_for(self, start_in: float | None) -> float:
        """Return for how many more seconds frequent queries are worthwhile.

        Slurm's estimate may stay just ahead of the current time for hours, which does not justify frequent queries all
        that time.
        """
        if start_in is None or abs(start_in) > self._timing.near_start:
            self._near_until = None
            return 0.0
        if self._near_until is None:
            self._near_until = self._clock() + start_in + self._timing.near_start
        return max(0.0, self._near_until - self._clock())

    def _until_available(self, rpcs: int) -> float:
        return max(0.0, rpcs - self.left) / self._refill_rate

    def _jittered(self, pause: float) -> float:
        return pause * self._chance.uniform(1.0, 1.0 + JITTER)
