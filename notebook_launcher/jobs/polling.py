"""How soon the scheduler is asked again: quick at first and after every change, then ever more rarely. Pure.

What counts is what the scheduler has to do for it. Slurm's controller counts that as RPCs (see ``sdiag``), of which one
command may need several; how many they may be in an hour is fixed by ``Timing``, whatever happens.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from notebook_launcher.core.timing import DEFAULT_TIMING, Timing

#: so many are kept, where that does not take too long, for what is urgent: a change, the time around the estimate,
#: something that broke
RESERVE = 5
#: RPCs that a question may need
QUESTION = 2

JITTER = 1 / 3  # of a pause; so much is added by chance, so that many launchers do not ask at the same moment


class Polling:
    """The pauses between the questions about one session, in seconds; it is told what was asked and what came of it.

    ``clock``: seconds, never set back. ``chance``: for the jitter.
    """

    def __init__(self, clock: Callable[[], float], chance: random.Random, timing: Timing = DEFAULT_TIMING) -> None:
        self._clock, self._chance, self._timing = clock, chance, timing
        self._comes_back = (timing.rpcs_per_hour - timing.rpcs_at_once) / 3600.0  # RPCs a second
        self._pause = self._unanswered_pause = timing.poll_pause
        self._counted, self._counted_at = float(timing.rpcs_at_once), clock()
        self._near_until: float | None = None

    @property
    def left(self) -> float:
        """How many RPCs may be spent at once now."""
        came_back = self._comes_back * (self._clock() - self._counted_at)
        return min(float(self._timing.rpcs_at_once), self._counted + came_back)

    def spend(self, rpcs: int) -> None:
        """Count RPCs. A scheduler that did not answer has not spent any."""
        self._counted, self._counted_at = self.left - rpcs, self._clock()

    def news(self) -> None:
        """Something has changed, so that more may change soon."""
        self._pause = self._timing.poll_pause

    def pause_after_answer(self, start_in: float | None = None) -> float:
        """Return the pause after an answer.

        ``start_in``: seconds until the job is expected to start (negative: since then), ``None`` where that is unknown.
        """
        self._unanswered_pause = self._timing.poll_pause
        pause, urgent = self._pause, self._pause < self._timing.longest_poll_pause
        self._pause = min(2 * pause, self._timing.longest_poll_pause)
        if near_for := self._near_for(start_in):
            pause, urgent = min(pause, max(self._timing.near_start_pause, near_for / max(1.0, self.left))), True
        saving = 0.0 if urgent else min(self._until_left(QUESTION + RESERVE), self._timing.longest_saving_pause)
        return max(self._jittered(pause), saving, self._until_left(QUESTION))

    def pause_after_silence(self) -> float:
        """Return the pause after a question that the scheduler did not answer."""
        pause = self._unanswered_pause
        self._unanswered_pause = min(2 * pause, self._timing.longest_unanswered_pause)
        return min(self._jittered(pause), self._timing.longest_unanswered_pause)

    def pause_when_urgent(self) -> float:
        """Return the pause before a question that cannot wait: none, unless too much was asked already."""
        self.news()
        return self._until_left(QUESTION)

    def _near_for(self, start_in: float | None) -> float:
        """Return for how many seconds more it pays to ask often.

        Slurm's estimate may slide along just ahead of us for hours, which is no reason to ask often for hours.
        """
        if start_in is None or abs(start_in) > self._timing.near_start:
            self._near_until = None
            return 0.0
        if self._near_until is None:
            self._near_until = self._clock() + start_in + self._timing.near_start
        return max(0.0, self._near_until - self._clock())

    def _until_left(self, rpcs: int) -> float:
        return max(0.0, rpcs - self.left) / self._comes_back

    def _jittered(self, pause: float) -> float:
        return pause * self._chance.uniform(1.0, 1.0 + JITTER)
