"""How soon the scheduler is asked again: quick at first and after every change, then ever more rarely. Pure.

What counts is what the scheduler has to do for it. Slurm's controller counts that as RPCs (see ``sdiag``), of which one
command may need several; how many they may be in an hour is fixed here, whatever happens.
"""

from __future__ import annotations

import random
from collections.abc import Callable

#: RPCs for one session in any hour, at most
HOURLY = 60
#: so many of them may follow each other at once; they come back one by one
BURST = 16
_COMES_BACK = (HOURLY - BURST) / 3600.0  # RPCs a second
#: so many are kept, where that does not take too long, for what is urgent: a change, the time around the estimate,
#: something that broke
RESERVE = 5
#: RPCs that a question may need
QUESTION = 2

FIRST, LONGEST = 2.0, 60.0  # seconds between two questions: doubled from the first to the longest
JITTER = 1 / 3  # of a pause; so much is added by chance, so that many launchers do not ask at the same moment
SAVING = 150.0  # seconds at most, instead of the longest, while there is less than the reserve
NEAR, NEAR_PAUSE = 60.0, 5.0  # seconds around the estimate in which it pays to ask more often, and how often at most
MUTE_LONGEST = 20.0  # seconds between two questions to a scheduler that does not answer


class Pace:
    """The pauses between the questions about one session, in seconds; it is told what was asked and what came of it.

    ``clock``: seconds, never set back. ``chance``: for the jitter.
    """

    def __init__(self, clock: Callable[[], float], chance: random.Random) -> None:
        self._clock, self._chance = clock, chance
        self._pause = self._mute_pause = FIRST
        self._counted, self._counted_at = float(BURST), clock()
        self._near_until: float | None = None

    @property
    def left(self) -> float:
        """How many RPCs may be spent at once now."""
        return min(float(BURST), self._counted + _COMES_BACK * (self._clock() - self._counted_at))

    def spend(self, rpcs: int) -> None:
        """Count RPCs. A scheduler that did not answer has not spent any."""
        self._counted, self._counted_at = self.left - rpcs, self._clock()

    def news(self) -> None:
        """Something has changed, so that more may change soon."""
        self._pause = FIRST

    def after_answer(self, start_in: float | None = None) -> float:
        """Return the pause after an answer.

        ``start_in``: seconds until the job is expected to start (negative: since then), ``None`` where that is unknown.
        """
        self._mute_pause = FIRST
        pause, urgent = self._pause, self._pause < LONGEST
        self._pause = min(2 * pause, LONGEST)
        if near_for := self._near_for(start_in):
            pause, urgent = min(pause, max(NEAR_PAUSE, near_for / max(1.0, self.left))), True
        saving = 0.0 if urgent else min(self._until_left(QUESTION + RESERVE), SAVING)
        return max(self._jittered(pause), saving, self._until_left(QUESTION))

    def after_silence(self) -> float:
        """Return the pause after a question that the scheduler did not answer."""
        pause = self._mute_pause
        self._mute_pause = min(2 * pause, MUTE_LONGEST)
        return min(self._jittered(pause), MUTE_LONGEST)

    def when_urged(self) -> float:
        """Return the pause before a question that cannot wait: none, unless too much was asked already."""
        self.news()
        return self._until_left(QUESTION)

    def _near_for(self, start_in: float | None) -> float:
        """Return for how many seconds more it pays to ask often.

        Slurm's estimate may slide along just ahead of us for hours, which is no reason to ask often for hours.
        """
        if start_in is None or abs(start_in) > NEAR:
            self._near_until = None
            return 0.0
        if self._near_until is None:
            self._near_until = self._clock() + start_in + NEAR
        return max(0.0, self._near_until - self._clock())

    def _until_left(self, rpcs: int) -> float:
        return max(0.0, rpcs - self.left) / _COMES_BACK

    def _jittered(self, pause: float) -> float:
        return pause * self._chance.uniform(1.0, 1.0 + JITTER)
