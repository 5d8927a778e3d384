"""What to ask for next time, from what a session used; pure, and careful: a session that is ended for a limit is worse
than one that asked for too much. Nothing is said of what was not measured, nor after a session of a few minutes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import timedelta

from notebook_launcher import events
from notebook_launcher.flags import as_typed
from notebook_launcher.request import MEMORY_FLAGS, format_walltime, parse_gres
from notebook_launcher.schedulers.base import Accounted, State
from notebook_launcher.tally import Use, gigabytes, span

SHORT = 300  # seconds; a shorter session says nothing about the next one
WORTH = 3600  # seconds that a shorter walltime must save to be worth a word
GPU_SHORT = 600  # seconds; who looks at a notebook first may come to the GPU later
ENOUGH = 0.8  # of its time must have been sampled, for "never"
SAMPLES = 20  # at least
_GIB = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 192, 256, 384, 512, 768, 1024)
# flags by which the cores, or the memory, are not what is asked for by a number
_WHOLE_NODES = frozenset({"exclusive", "ntasks-per-node", "mincpus", "cpus-per-gpu", "cores-per-socket"})

Flags = Mapping[str, str | None]


def next_time(bill: events.Bill, use: Use, flags: Flags, told: Accounted | None) -> tuple[tuple[str, str], ...]:
    """Return flags as they are typed, each with why; in the words of ``flags``, with which the session was queued."""
    if not bill.wall or bill.wall < SHORT:
        return ()
    found = [_walltime(bill, told)]
    one_node = (told.nodes if told else None) in (None, 1) and flags.get("nodes") in (None, "1")
    if one_node and not _WHOLE_NODES & flags.keys():
        found += [_cores(bill, use, flags), _memory(bill, flags, told)]
    if one_node:
        found.append(_gpus(bill, use, flags))
    return tuple(advice for advice in found if advice)


def _walltime(bill: events.Bill, told: Accounted | None) -> tuple[str, str] | None:
    used, asked = bill.wall, bill.walltime
    if not used or not asked:
        return None
    if (told and told.state is State.TIMEOUT) or used >= asked - 60:
        return f"-t {_clock(_rounded(asked))}", f"it ran into its limit of {_in_words(asked)}"
    if told and told.state not in (State.COMPLETED, State.CANCELLED, State.UNKNOWN):
        return None  # it was cut short
    shorter = _rounded(used)
    if asked - shorter < WORTH or shorter > asked / 2:
        return None
    return f"-t {_clock(shorter)}", f"it took {span(used)} of {_in_words(asked)}"


def _rounded(seconds: int) -> int:
    """Return half as much again, rounded up to a time that people would ask for, and half an hour at least."""
    more = max(seconds * 1.5, 1800.0)
    step = 600 if more <= 2 * 3600 else 1800 if more <= 12 * 3600 else 3600
    return math.ceil(more / step) * step


def _memory(bill: events.Bill, flags: Flags, told: Accounted | None) -> tuple[str, str] | None:
    """Advise a third more than the peak, in the user's word for it, where twice as much was asked for."""
    words = MEMORY_FLAGS & flags.keys()
    if not bill.memory_peak or not bill.memory_asked or len(words) != 1:
        return None
    if told and told.state in (State.OUT_OF_MEMORY, State.FAILED):
        return None  # what it would have used, nobody knows
    word = next(iter(words))
    per = {"mem": 1, "mem-per-cpu": bill.cores, "mem-per-gpu": bill.gpus}[word]
    if not per:
        return None
    each = _size(1.3 * bill.memory_peak / per)
    if 2 * 1024 * each * per > bill.memory_asked:
        return None
    why = f"{gigabytes(bill.memory_peak)} of {gigabytes(bill.memory_asked)} GB were used at most"
    return as_typed({word: f"{each}G"}), why


def _size(mib: float) -> int:
    """Return a size in GiB, rounded up to one that people would ask for."""
    return next((gib for gib in _GIB if 1024 * gib >= mib), math.ceil(mib / 1024))


def _cores(bill: events.Bill, use: Use, flags: Flags) -> tuple[str, str] | None:
    """Advise cores for the busiest moment, where less than half of them ever worked.

    Never so few that the memory that comes with them would be too little.
    """
    asked = {word: _number(flags[word]) for word in ("cpus-per-task", "ntasks") if word in flags}
    several = {word: count for word, count in asked.items() if count is None or count > 1}
    if not bill.cores or use.cores_peak is None or not _well_sampled(bill, use.count, use.seconds) or len(several) != 1:
        return None
    word, count = next(iter(several.items()))
    if count != bill.cores:  # the site counts otherwise: hyperthreads, whole cores
        return None
    fewer = max(1, math.ceil(1.2 * use.cores_peak))
    if not MEMORY_FLAGS & flags.keys() or "mem-per-cpu" in flags:
        if not bill.memory_peak or not bill.memory_asked:
            return None
        fewer = max(fewer, math.ceil(1.3 * bill.memory_peak / (bill.memory_asked / bill.cores)))
    if 2 * fewer > bill.cores:
        return None
    return as_typed({word: str(fewer)}), f"never more than {use.cores_peak:.1f} of {bill.cores} cores were busy"


def _gpus(bill: events.Bill, use: Use, flags: Flags) -> tuple[str, str] | None:
    """Advise fewer GPUs where some never did anything, or none."""
    long_enough = (bill.wall or 0) >= GPU_SHORT and _well_sampled(bill, use.count, use.gpu_seconds)
    if not bill.gpus or not use.idle_gpus or not long_enough:
        return None
    if use.idle_gpus == use.gpus >= bill.gpus:
        perhaps = "; another partition may be needed for that" if "partition" in flags else ""
        return _with_gpus(flags, 0) or "--gpus 0", f"no GPU did anything in {span(bill.wall or 0)}{perhaps}"
    words = _with_gpus(flags, bill.gpus - use.idle_gpus)
    if use.gpus != bill.gpus or not words:
        return None
    return words, f"{use.idle_gpus} of {bill.gpus} GPUs never did anything"


def _with_gpus(flags: Flags, count: int) -> str | None:
    """Return the flag that asked for GPUs with another count: ``--gres gpu:t4:0``; ``None`` for other words."""
    for word in ("gpus", "gpus-per-node"):
        value = flags.get(word) or ""
        if match := re.fullmatch(r"(?:([A-Za-z][\w.-]*):)?\d+", value, re.A):
            return as_typed({word: f"{match[1]}:{count}" if match[1] and count else str(count)})
    for name, _ in parse_gres(flags.get("gres") or ""):
        if re.fullmatch(r"gpu(:[A-Za-z][\w.-]*)?", name, re.A) and "," not in (flags.get("gres") or ""):
            return as_typed({"gres": f"{name}:{count}"})
    return None


def _well_sampled(bill: events.Bill, count: int, seconds: float) -> bool:
    return count >= SAMPLES and seconds >= ENOUGH * (bill.wall or 0)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _in_words(seconds: int) -> str:
    return format_walltime(timedelta(seconds=seconds))


def _clock(seconds: int) -> str:
    """Return a walltime as it is typed: ``0:30:00``, ``1-06:00:00``."""
    days, rest = divmod(seconds, 24 * 3600)
    hours, minutes = rest // 3600, rest // 60 % 60
    return f"{days}-{hours:02d}:{minutes:02d}:00" if days else f"{hours}:{minutes:02d}:00"
