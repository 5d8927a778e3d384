"""The user's request: the scheduler's flags by their long names, and what they mean.

A request is data: the profile's defaults with the user's flags on top. The flags are those of ``sbatch``'s manual,
because users and site documentation know these; the properties express them in scheduler-neutral terms, for other
schedulers. Nothing here runs anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import datetime, timedelta

from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.text import whole_number
from notebook_launcher.core.walltime import DEFAULT_WALLTIME, Walltime

# Groups of flags for the same thing: one from the user replaces all of the profile's.
GPU_FLAGS = frozenset({"gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "gres", "tres-per-task"})
MEMORY_FLAGS = frozenset({"mem", "mem-per-cpu", "mem-per-gpu"})
_SAME = (MEMORY_FLAGS, frozenset({"requeue", "no-requeue"}), frozenset({"exclusive", "oversubscribe"}))
# Flags that qualify the requested GPUs, and are refused without any.
_GPU_DETAILS = frozenset({"cpus-per-gpu", "gpu-bind", "gpu-freq", "mem-per-gpu", "ntasks-per-gpu"})

_WALLTIMES = ("time", "time-min")

_CLOCK = re.compile(r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}))?\s*(?P<half>am|pm)?", re.I | re.A)
_NOW_PLUS = re.compile(r"now\+(?P<count>\d{1,9})(?P<unit>seconds?|minutes?|hours?|days?|weeks?)?", re.I | re.A)
_NAMED_CLOCKS = {"midnight": (0, 0), "noon": (12, 0), "elevenses": (11, 0), "fika": (15, 0), "teatime": (16, 0)}


def parse_idle(text: str) -> int:
    """Return an idle time in seconds, from ``30m``, ``2h``, ``90s`` or a format of a walltime; 0, for ``0``: never.

    Raises ``UsageError`` for anything else, and for less than a minute, which leaves no time to react to a warning.
    """
    value = text.strip().lower()
    if value in ("never", "off") or re.fullmatch(r"0+\s*(s|sec|m|min|h)?", value):
        return 0
    try:
        walltime = Walltime.parse(value)
        seconds = 0 if walltime.is_unlimited else int(walltime.total_seconds())
    except UsageError:
        seconds = -1
    if seconds and seconds < 60:
        raise UsageError(
            f"“{text}” is not a time without use.", why="It is a minute at least.", hint="for example: --idle-stop 30m"
        )
    return seconds


class Begin(Frozen):
    """When the job may start. ``at`` is ``None`` if only the scheduler can resolve it (its text is passed on)."""

    text: str
    at: datetime | None
    tomorrow: bool = False


def parse_begin(text: str, now: datetime) -> Begin:
    """Read ``--begin`` as sbatch's manual defines it; ``now`` is the cluster's clock.

    A bare clock time that has passed today means tomorrow (the manual's rule), and sets ``tomorrow``. Forms that only
    the scheduler resolves (``MMDDYY`` dates and the like) give ``at=None``. Raises ``UsageError`` for an invalid clock
    time.
    """
    value = text.strip()
    clock = _clock_of(value)
    if clock is not None:
        at = now.replace(hour=clock[0], minute=clock[1], second=clock[2], microsecond=0)
        past = at <= now
        return Begin(text, at + timedelta(days=1) if past else at, tomorrow=past)
    if match := _NOW_PLUS.fullmatch(value):
        unit = (match["unit"] or "seconds").lower().rstrip("s") + "s"
        try:
            return Begin(text, now + timedelta(**{unit: int(match["count"])}))
        except OverflowError:  # beyond the year 9999
            return Begin(text, None)
    if value.lower() == "now":
        return Begin(text, now)
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return Begin(text, None)
    return Begin(text, at if at.tzinfo else at.replace(tzinfo=now.tzinfo))


def _clock_of(value: str) -> tuple[int, int, int] | None:
    if value.lower() in _NAMED_CLOCKS:
        return (*_NAMED_CLOCKS[value.lower()], 0)
    match = _CLOCK.fullmatch(value)
    if match is None:
        return None
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"] or 0)
    if match["half"] and 1 <= hour <= 12:
        hour = hour % 12 + (12 if match["half"].lower() == "pm" else 0)
    if hour > 23 or minute > 59 or second > 59:
        raise UsageError(f"“{value}” is not a time of day.", hint="for example: -b 15:00")
    return hour, minute, second


def parse_gres(text: str) -> list[tuple[str, int]]:
    """Split a GRES list into names and counts: ``gpu:t4:2,scratch`` → ``[("gpu:t4", 2), ("scratch", 1)]``."""
    items = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        head, separator, last = item.rpartition(":")
        is_count = bool(separator) and re.fullmatch(r"[0-9]{1,20}[kKmMgGtT]?", last) is not None
        count = int(re.sub(r"\D", "", last)) if is_count else 1
        items.append((head if is_count else item, count))
    return items


def _is_gpu(gres_name: str) -> bool:
    return re.fullmatch(r"(gres[/:])?gpu(:.*)?", gres_name) is not None


def gpu_items(flag: str, value: str) -> list[tuple[str | None, int]] | None:
    """Return the GPUs that this flag requests, by type and count, ``None`` if it is not about GPUs.

    A type is ``None`` if any will do: ``--gres=gpu:t4:1,gpu:2`` → ``[("t4", 1), (None, 2)]``.
    """
    if flag == "gres" and value.strip().lower() == "none":
        return []  # sbatch's word for none
    if flag in ("gres", "tres-per-task"):
        items = [item for item in parse_gres(value.replace("gres/", "").replace("=", ":")) if _is_gpu(item[0])]
        return [(name.partition(":")[2] or None, count) for name, count in items] or None
    if flag in GPU_FLAGS:
        # --gpus=4, --gpus=t4:2 and --gpus=t4:1,a100:1 are all legal
        return [(kind, count) for kind, count in map(_typed_count, value.split(",")) if kind != ""]
    return None


def gpus_in(flag: str, value: str) -> int | None:
    """Return how many GPUs this flag requests, ``None`` if it is not about GPUs."""
    items = gpu_items(flag, value)
    return None if items is None else sum(count for _, count in items)


def _typed_count(part: str) -> tuple[str | None, int]:
    kind, _, count = part.strip().rpartition(":")
    number = whole_number(count)
    return (kind or None, number) if number is not None else (part.strip(), 1)


def merge_flags(defaults: Mapping[str, str | None], typed_flags: Mapping[str, str | None]) -> dict[str, str | None]:
    """Merge the user's flags over the profile's defaults.

    A flag of the user replaces the same flag of the profile, and all that mean the same: any GPU flag replaces every
    default GPU request, any memory flag the default memory. A request for zero GPUs (``--gpus 0``,
    ``--gres=gpu:t4:0``) removes the request, because several sites refuse a count of zero; other GRES stay.
    """
    merged = override_flags(defaults, typed_flags)
    for flag in sorted(GPU_FLAGS & merged.keys()):
        if gpus_in(flag, merged[flag] or "") == 0:
            _remove_gpus(merged, flag)
    if merged.get("time") is None:
        merged["time"] = DEFAULT_WALLTIME
    return merged


def override_flags(defaults: Mapping[str, str | None], typed_flags: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the defaults with the user's flags, which replace all that mean the same, and nothing added."""
    merged: dict[str, str | None] = dict(defaults)
    for family in _SAME:
        if family & typed_flags.keys():
            _drop(merged, family)
    if any(gpus_in(flag, value or "") is not None for flag, value in typed_flags.items()):
        for flag in GPU_FLAGS & merged.keys():
            _remove_gpus(merged, flag)
        if all(gpus_in(flag, value or "") in (None, 0) for flag, value in typed_flags.items()):
            _drop(merged, _GPU_DETAILS)
    merged.update(typed_flags)
    return merged


def _drop(flags: dict[str, str | None], names: Iterable[str]) -> None:
    for name in names:
        flags.pop(name, None)


def _remove_gpus(flags: dict[str, str | None], flag: str) -> None:
    if flag not in ("gres", "tres-per-task"):
        flags.pop(flag)
        return
    kept = [item for item in (flags[flag] or "").split(",") if item and not _is_gpu(item.replace("=", ":").strip())]
    if kept:
        flags[flag] = ",".join(kept)
    else:
        flags.pop(flag)


class Request(Frozen):
    """One request: ``flags`` by long name (``None``: a flag without a value), validated on creation.

    A walltime in units (``2h``) is converted to a format of ``sbatch --time``. Raises ``UsageError`` for an invalid
    walltime.
    """

    flags: Mapping[str, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        Walltime.parse(self._time)
        for name in _WALLTIMES:
            text = self.flags.get(name)
            if text is not None and Walltime.is_in_units(text):
                object.__setattr__(self, "flags", {**self.flags, name: Walltime.parse(text).as_typed()})

    @property
    def _time(self) -> str:
        time = self.flags.get("time")
        return DEFAULT_WALLTIME if time is None else time

    @property
    def walltime(self) -> Walltime:
        """How long the job may run."""
        return Walltime.parse(self._time)

    @property
    def begin(self) -> str | None:
        """When it may start, as the user typed it."""
        return self.flags.get("begin")

    @property
    def job_name(self) -> str | None:
        """The job's name, if the user gave one."""
        return self.flags.get("job-name")

    @property
    def clusters(self) -> str | None:
        """The other cluster of a federation or multi-cluster Slurm (``-M``), if any."""
        return self.flags.get("clusters")

    @property
    def gpus(self) -> int:
        """How many GPUs are requested, the largest count of all flags; 0 without any."""
        return max((gpus_in(flag, value or "") or 0 for flag, value in self.flags.items()), default=0)
