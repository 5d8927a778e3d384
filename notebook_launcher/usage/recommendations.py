"""What to request next time, assessed from what a session used. Pure.

It is cautious: a session that is ended by a limit is worse than one that requested too much. Nothing is recommended
about values that were not measured, nor after a session of a few minutes.
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
WORTH = 3600  # seconds that a shorter walltime must save to be recommended
GPU_SHORT = 600  # seconds; in a shorter session, the GPU may just not have been needed yet
ENOUGH = 0.8  # the share of its time that must have been sampled to say "never"
SAMPLES = 20  # the fewest samples for that
_GIB = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 192, 256, 384, 512, 768, 1024)
# flags with which the allocated cores or memory may differ from the requested numbers
_BY_GPU = frozenset({"cpus-per-gpu", "ntasks-per-gpu"})
_WHOLE_NODES = frozenset({"exclusive", "ntasks-per-node", "mincpus", "cores-per-socket"}) | _BY_GPU

Flags = Mapping[str, str | None]


class _Fewer(Frozen):
    """The recommended number of cores or GPUs, the flag to type for it, and why."""

    count: int
    typed: str
    why: str


class _Job(Frozen):
    """What a session requested and used. ``accounted``: its accounting, if any."""

    bill: events.Bill
    use: Use
    flags: Flags
    accounted: AccountingRecord | None

    @property
    def memory_word(self) -> str:
        """The flag that requested memory; empty if none did, so that it may be a site's default per core."""
        return next(iter(MEMORY_FLAGS & self.flags.keys()), "")

    @property
    def memory_needed(self) -> float | None:
        """30 % more than the peak, in MiB; ``None`` if the peak is not known, or the job failed before reaching it."""
        if not self.bill.memory_peak or (
            self.accounted and self.accounted.state in (State.OUT_OF_MEMORY, State.FAILED)
        ):
            return None
        if self.use.memory_peak is None and self.has_several_tasks:
            return None  # the accounting's peak is that of one task
        return 1.3 * self.bill.memory_peak

    @property
    def has_several_tasks(self) -> bool:
        """Whether more than one task was requested."""
        return any(self.flags.get(name) not in (None, "1") for name in ("ntasks", "ntasks-per-node"))

    @property
    def counts_cores(self) -> bool:
        """Whether a number of cores was requested, independently of the number of GPUs."""
        return bool({"cpus-per-task", "ntasks"} & self.flags.keys()) and not _BY_GPU & self.flags.keys()

    @property
    def cores_requested(self) -> int:
        return (whole_number(self.flags.get("ntasks")) or 1) * (whole_number(self.flags.get("cpus-per-task")) or 1)


def next_time(
    bill: events.Bill, use: Use, flags: Flags, accounted: AccountingRecord | None
) -> tuple[tuple[str, str], ...]:
    """Return the recommended flags as they are typed, each with the reason; they are those of ``flags`` if possible.

    ``flags``: those that the session was queued with. The recommendations fit together: memory per core or per GPU
    takes the recommended numbers of cores and GPUs into account.
    """
    if not bill.run_time or bill.run_time < SHORT or (accounted and accounted.earlier):
        return ()  # too short to assess, or the last of several runs, which may have had little left to do
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
        return None  # it ended too early to assess
    shorter = _rounded(used)
    if requested - shorter < WORTH or shorter > requested / 2:
        return None
    return f"-t {Walltime(seconds=shorter).as_typed()}", f"it took {duration(used)} of {_walltime_in_words(requested)}"


def _rounded(seconds: int) -> int:
    """Return 1.5 times the seconds, at least half an hour, rounded up to a time that people would type."""
    more = max(seconds * 1.5, 1800.0)
    step = 600 if more <= 2 * 3600 else 1800 if more <= 12 * 3600 else 3600
    return math.ceil(more / step) * step


def _memory(job: _Job, cores: _Fewer | None, gpus: _Fewer | None) -> tuple[str, str] | None:
    """Recommend the memory that is needed, with the user's own flag, if at least twice as much was requested.

    Also if the recommended numbers of cores and GPUs would come with too little memory.
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
    """Return the flag for memory, the number of cores or GPUs it counts, and the MiB in total if its value stays."""
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
    """Return a size in GiB, rounded up to one that people would type."""
    return next((gib for gib in _GIB if 1024 * gib >= mib), math.ceil(mib / 1024))


def _cores(job: _Job) -> _Fewer | None:
    """Recommend cores for the busiest moment, if less than half of them were ever busy.

    Never so few that memory requested per core would be too little.
    """
    bill, use, flags = job.bill, job.use, job.flags
    requested = {word: whole_number(flags[word]) for word in ("cpus-per-task", "ntasks") if word in flags}
    several = {word: count for word, count in requested.items() if count is None or count > 1}
    if not bill.cores or use.cores_peak is None or not _well_sampled(bill, use.count, use.seconds) or len(several) != 1:
        return None
    word, count = next(iter(several.items()))
    if count != bill.cores or _WHOLE_NODES & flags.keys():  # the site counts differently: hyperthreads, whole cores
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
    """Recommend fewer GPUs if some were never used, or none if all were not."""
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
    """Return whether the cores and the memory that come with ``left`` GPUs suffice, or memory can be requested."""
    bill, needed = job.bill, job.memory_needed
    if not job.counts_cores:  # they may come with the GPUs; without any, there is one
        cores = (bill.cores or 0) * left // bill.gpus
        if per_gpu := whole_number(job.flags.get("cpus-per-gpu")):
            cores = min(cores, per_gpu * left)  # without accounting, the report's cores come from --ntasks
        cores = max(1, cores)
        if job.use.cores_peak is None or cores < job.use.cores_peak:
            return False
        if job.memory_word == "mem-per-cpu":
            one = bill.memory / bill.cores if bill.memory and bill.cores else 0.0
            return needed is not None and one * cores >= needed
    return job.memory_word in ("mem", "mem-per-cpu") or needed is not None


def _with_gpus(flags: Flags, count: int) -> str | None:
    """Return the flag that requested GPUs with another count: ``--gres gpu:t4:0``; ``None`` for other flags."""
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
