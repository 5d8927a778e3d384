"""A job's time limit: as ``sbatch --time`` accepts it, as text, and as a duration that can be compared."""

from __future__ import annotations

import re
from datetime import timedelta

from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.quantities import counted

DEFAULT_WALLTIME = "0:59:00"  # if neither the user nor the profile sets one

_FORMS = (  # the six formats in sbatch's manual for --time, in its order
    re.compile(r"(?P<minutes>[0-9]{1,7})"),
    re.compile(r"(?P<minutes>[0-9]{1,7}):(?P<seconds>[0-9]{1,7})"),
    re.compile(r"(?P<hours>[0-9]{1,7}):(?P<minutes>[0-9]{1,7}):(?P<seconds>[0-9]{1,7})"),
    re.compile(r"(?P<days>[0-9]{1,7})-(?P<hours>[0-9]{1,7})"),
    re.compile(r"(?P<days>[0-9]{1,7})-(?P<hours>[0-9]{1,7}):(?P<minutes>[0-9]{1,7})"),
    re.compile(r"(?P<days>[0-9]{1,7})-(?P<hours>[0-9]{1,7}):(?P<minutes>[0-9]{1,7}):(?P<seconds>[0-9]{1,7})"),
)
_MINUTES_AND_SECONDS = _FORMS[1]
_IN_UNITS = re.compile(
    r"(?:(?P<days>[0-9]{1,7})\s*d(?:ays?)?\s*)?(?:(?P<hours>[0-9]{1,7})\s*h(?:ours?)?\s*)?"
    r"(?:(?P<minutes>[0-9]{1,7})\s*m(?:in(?:utes?)?)?\s*)?(?:(?P<seconds>[0-9]{1,7})\s*s(?:ec(?:onds?)?)?)?"
)
_LONGEST_VALUE = 100  # characters; no walltime has more
_UNLIMITED = frozenset({"unlimited", "infinite", "-1"})


class Walltime(timedelta):
    """A duration; ``UNLIMITED``, longer than any other, if there is no limit.

    An unknown walltime is ``None``: ``Walltime | None``.
    """

    @classmethod
    def parse(cls, text: str) -> Walltime:
        """Parse one of the formats of ``sbatch --time``, or a time in units: ``2h``, ``90m``, ``1d 12h``.

        Raises ``UsageError`` for anything else, and for zero, which Slurm reads as "no limit" but no user means.
        """
        value = text.strip().lower()
        if value in _UNLIMITED:
            return UNLIMITED
        for form in () if len(value) > _LONGEST_VALUE else (*_FORMS, _IN_UNITS):
            if match := form.fullmatch(value):
                walltime = cls(**{unit: int(count or 0) for unit, count in match.groupdict().items()})
                if walltime > timedelta(0):
                    return walltime
                break
        raise UsageError(
            f"“{text}” is not a walltime.",
            why="A walltime is minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]], or a "
            "time in units such as 2h or 90m, over 0.",
            hint="for example: -t 2:00:00 or -t 2h for two hours, -t 30 for thirty minutes",
        )

    @staticmethod
    def is_in_units(text: str) -> bool:
        """Whether a walltime is in units (``2h``, ``90m``), which no scheduler accepts."""
        value = text.strip().lower()
        return value != "" and len(value) <= _LONGEST_VALUE and _IN_UNITS.fullmatch(value) is not None

    @classmethod
    def note_on_minutes(cls, text: str) -> str:
        """Return a sentence for ``25:00``, which Slurm reads as minutes and seconds; "" for any other form."""
        if not _MINUTES_AND_SECONDS.fullmatch(text.strip()):
            return ""
        hours = text.strip().partition(":")[0].lstrip("0") or "0"
        return f"-t {text.strip()} is {cls.parse(text).as_text()}; {counted(int(hours), 'hour')} would be: -t {hours}h"

    @property
    def is_unlimited(self) -> bool:
        """Whether there is no limit."""
        return self == UNLIMITED

    def as_text(self) -> str:
        """Return it as text for messages: ``59 minutes``, ``2 hours``, ``1 day 3 hours``, ``no limit``."""
        if self.is_unlimited:
            return "no limit"
        days, hours, minutes, seconds = self._parts()
        counts = [(days, "day"), (hours, "hour"), (minutes, "minute"), (seconds, "second")]
        return " ".join(counted(n, unit) for n, unit in counts if n)

    def as_typed(self) -> str:
        """Return it in a format of ``sbatch --time``: ``1:00:00``, ``2-00:00:00``, ``UNLIMITED``."""
        if self.is_unlimited:
            return "UNLIMITED"
        days, hours, minutes, seconds = self._parts()
        clock = f"{minutes:02}:{seconds:02}"
        return f"{days}-{hours:02}:{clock}" if days else f"{hours}:{clock}"

    def _parts(self) -> tuple[int, int, int, int]:
        seconds = int(self.total_seconds())
        return seconds // 86400, seconds % 86400 // 3600, seconds % 3600 // 60, seconds % 60


UNLIMITED = Walltime(timedelta.max.days, timedelta.max.seconds, timedelta.max.microseconds)
