"""What to ask for next time, from what a session used; pure, and careful: a session that is ended for a limit is worse
than one that asked for too much. Nothing is said of what was not measured, nor after a session of a few minutes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from notebook_launcher.core import events
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.quantities import duration, gigabytes
from notebook_launcher.core.request import MEMORY_FLAGS, Request, parse_gres
from notebook_launcher.core.sbatch_options import as_typed
from notebook_launcher.core.text import whole_number
from notebook_launcher.core.walltime import Walltime
from notebook_launcher.schedulers.base import AccountingRecord, State
from notebook_launcher.usage.totals import Use

SHORT = 300  # seconds; a shorter session says nothing about the next one
WORTH = 3600  # seconds that a shorter walltime must save to be worth a word
GPU_SHORT = 600  # seconds; who looks at a notebook first may come to the GPU later
ENOUGH = 0.8  # of its time must have been sampled, for "never"
SAMPLES = 20  # at least
_GIB = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 192, 256, 384, 512, 768, 1024)
# flags by which the cores, or the memory, are not what is asked for by a number
_BY_GPU = frozenset({"cpus-per-gpu", "ntasks-per-gpu"})
_WHOLE_NODES = frozenset({"exclusive", "ntasks-per-node", "mincpus", "cores-per-socket"}) | _BY_GPU

Flags = Mapping[str, str | None]


class _Fewer(Frozen):
    """How many cores or GPUs are advised, as that is typed, and why."""

    count: int
    typed: str
    why: str


class _Job(Frozen):
    """What a session asked for and used. ``accounted``: by the accounting."""

    bill: events.Bill
    use: Use
    flags: Flags
    accounted: AccountingRecord | None

    @property
    def memory_word(self) -> str:
        """The flag by which memory was asked for; "": none, and what a site gives then may be so much for each core."""
        return next(iter(MEMORY_FLAGS & self.flags.keys()), "")

    @property
    def memory_needed(self) -> float | None:
        """A third more than the peak, in MiB; ``None`` where nobody knows it, or what it would have become."""
        if not self.bill.memory_peak or (
            self.accounted and self.accounted.state in (State.OUT_OF_MEMORY, State.FAILED)
        ):
            return None
        if self.use.memory_peak is None and self.has_several_tasks:
            return None  # the accounting's peak is that of one task
        return 1.3 * self.bill.memory_peak

    @property
    def has_several_tasks(self) -> bool:
        """Whether more than one task was asked for."""
        return any(self.flags.get(name) not in (None, "1") for name in ("ntasks", "ntasks-per-node"))

    @property
    def counts_cores(self) -> bool:
        """Whether cores are asked for by a number, so that no other flag takes any of them away."""
        return bool({"cpus-per-task", "ntasks"} & self.flags.keys()) and not _BY_GPU & self.flags.keys()

    @property
    def cores_requested(self) -> int:
        return (whole_number(self.flags.get("ntasks")) or 1) * (whole_number(self.flags.get("cpus-per-task")) or 1)


def next_time(
    bill: events.Bill, use: Use, flags: Flags, accounted: AccountingRecord | None
) -> tuple[tuple[str, str], ...]:
    """Return flags as they are typed, each with why; in the words of ``flags``, with which the session was queued.

    They fit together: memory that is asked for by core or GPU is that of the cores and GPUs that are advised.
    """
    if not bill.run_time or bill.run_time < SHORT or (accounted and accounted.earlier):
        return ()  # too short to tell, or the last of several runs, which may have had little left to do
    found = [_walltime(bill, accounted)]
    if (accounted.nodes if accounted else None) in (None, 1) and flags.get("nodes") in (None, "1"):
        job = _Job(bill, use, flags, accounted)
        cores, gpus = _cores(job), _gpus(job)
        found += [
            (cores.typed, cores.why) if cores else None,
            _memory(job, cores, gpus),
            (gpus.typed, gpus.why) if gpus else None,
        ]
    return tuple(advice for advice in found if advice)


def _walltime(bill: events.Bill, accounted: AccountingRecord | None) -> tuple[str, str] | None:
    used, requested = bill.run_time, bill.walltime
    if not used or not requested:
        return None
    if (accounted and accounted.state is State.TIMEOUT) or used >= requested - 60:
        return (
            f"-t {Walltime(seconds=_rounded(max(requested, used))).as_typed()}",
            f"it ran into its limit of {_walltime_in_words(requested)}",
        )
    if accounted and accounted.state not in (State.COMPLETED, State.CANCELLED, State.UNKNOWN):
        return None  # it was cut short
    shorter = _rounded(used)
    if requested - shorter < WORTH or shorter > requested / 2:
        return None
    return f"-t {Walltime(seconds=shorter).as_typed()}", f"it took {duration(used)} of {_walltime_in_words(requested)}"


def _rounded(seconds: int) -> int:
    """Return half as much again, rounded up to a time that people would ask for, and half an hour at least."""
    more = max(seconds * 1.5, 1800.0)
    step = 600 if more <= 2 * 3600 else 1800 if more <= 12 * 3600 else 3600
    return math.ceil(more / step) * step


def _memory(job: _Job, cores: _Fewer | None, gpus: _Fewer | None) -> tuple[str, str] | None:
    """Advise what is needed, in the user's word for it, where twice as much was asked for.

    Also where the cores and GPUs that are advised would bring too little memory.
    """
    bill, needed = job.bill, job.memory_needed
    word, count, comes = _memory_of_fewer(job, cores, gpus)
    if not needed or not count:
        return None
    each = _size(needed / count)
    is_much = comes is not None and 2 * 1024 * each * count <= comes and not _WHOLE_NODES & job.flags.keys()
    is_little = bool(cores or gpus) and (comes or 0.0) < needed
    if not is_much and not is_little:
        return None
    of = f" of {gigabytes(bill.memory)}" if bill.memory else ""
    why = f"{gigabytes(bill.memory_peak or 0.0)}{of} GiB were used at most"
    if not job.memory_word:
        why += f", and a site may give less with fewer {'cores' if cores else 'GPUs'}"
    return as_typed({word: f"{each}G"}), why


def _memory_of_fewer(job: _Job, cores: _Fewer | None, gpus: _Fewer | None) -> tuple[str, int, float | None]:
    """Return the flag for memory, for how many of its units, and the MiB that come of it if it stays as it is."""
    bill, word, requested = job.bill, job.memory_word, job.bill.memory
    if word == "mem":
        return word, 1, requested
    if word == "mem-per-cpu" and bill.cores:
        count = cores.count if cores else min(job.cores_requested, bill.cores)
        return word, count, requested / bill.cores * count if requested else None
    if word == "mem-per-gpu" and bill.gpus and not (gpus and gpus.count == 0):
        count = gpus.count if gpus else min(Request(job.flags).gpus, bill.gpus)
        return word, count, requested / bill.gpus * count if requested else None
    return "mem", 1 if (cores and not word) or (gpus and word != "mem-per-cpu") else 0, None


def _size(mib: float) -> int:
    """Return a size in GiB, rounded up to one that people would ask for."""
    return next((gib for gib in _GIB if 1024 * gib >= mib), math.ceil(mib / 1024))


def _cores(job: _Job) -> _Fewer | None:
    """Advise cores for the busiest moment, where less than half of them ever worked.

    Never so few that the memory that is asked for by core would be too little.
    """
    bill, use, flags = job.bill, job.use, job.flags
    requested = {word: whole_number(flags[word]) for word in ("cpus-per-task", "ntasks") if word in flags}
    several = {word: count for word, count in requested.items() if count is None or count > 1}
    if not bill.cores or use.cores_peak is None or not _well_sampled(bill, use.count, use.seconds) or len(several) != 1:
        return None
    word, count = next(iter(several.items()))
    if count != bill.cores or _WHOLE_NODES & flags.keys():  # the site counts otherwise: hyperthreads, whole cores
        return None
    if word == "ntasks" and {"gpus-per-task", "tres-per-task"} & flags.keys():
        return None
    fewer = max(1, math.ceil(1.2 * use.cores_peak))
    if job.memory_word in ("", "mem-per-cpu"):
        if not job.memory_needed or not bill.memory:
            return None
        if not job.memory_word and 1024 * _size(job.memory_needed) > bill.memory:
            return None
        if job.memory_word:
            fewer = max(fewer, math.ceil(job.memory_needed / (bill.memory / bill.cores)))
    if 2 * fewer > bill.cores:
        return None
    why = f"never more than {use.cores_peak:.1f} of {bill.cores} cores were busy"
    return _Fewer(fewer, as_typed({word: str(fewer)}), why)


def _gpus(job: _Job) -> _Fewer | None:
    """Advise fewer GPUs where some never did anything, or none."""
    bill, use, flags = job.bill, job.use, job.flags
    long_enough = (bill.run_time or 0) >= GPU_SHORT and _well_sampled(bill, use.count, use.gpu_seconds)
    if not bill.gpus or not use.idle_gpus or not long_enough:
        return None
    if use.idle_gpus == use.gpus >= bill.gpus:
        left, typed = 0, _with_gpus(flags, 0) or "--gpus 0"
        perhaps = "; another partition may be needed for that" if "partition" in flags else ""
        why = f"no GPU did anything in {duration(bill.run_time or 0)}{perhaps}"
    else:
        left, typed = bill.gpus - use.idle_gpus, _with_gpus(flags, bill.gpus - use.idle_gpus) or ""
        why = f"{use.idle_gpus} of {bill.gpus} GPUs never did anything"
        if use.gpus != bill.gpus:
            return None
    return _Fewer(left, typed, why) if typed and _do_without(job, left) else None


def _do_without(job: _Job, left: int) -> bool:
    """Whether the cores and the memory that come with so many GPUs are enough, or the memory can be asked for."""
    bill, needed = job.bill, job.memory_needed
    if not job.counts_cores:  # then they may come with the GPUs, and one does without any
        cores = (bill.cores or 0) * left // bill.gpus
        if per_gpu := whole_number(job.flags.get("cpus-per-gpu")):
            cores = min(cores, per_gpu * left)  # without the accounting, the bill's are those of --ntasks
        cores = max(1, cores)
        if job.use.cores_peak is None or cores < job.use.cores_peak:
            return False
        if job.memory_word == "mem-per-cpu":
            one = bill.memory / bill.cores if bill.memory and bill.cores else 0.0
            return needed is not None and one * cores >= needed
    return job.memory_word in ("mem", "mem-per-cpu") or needed is not None


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
    return count >= SAMPLES and seconds >= ENOUGH * (bill.run_time or 0)


def _walltime_in_words(seconds: int) -> str:
    return Walltime(seconds=seconds).as_text()
