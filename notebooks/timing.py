"""Measure how long work takes, on a CPU and on a GPU, so that the numbers are true.

    import timing

    EPOCHS = timing.setting("EPOCHS", 5)
    timing.use_allotted_threads()
    device = timing.best_device()
    m = timing.measure(lambda: model(x), name="forward", device=device, work=len(x), unit="images")
    m.record()                              # one line more in results.jsonl
    timing.compare(on_cpu, on_gpu).plot()

A GPU works after the call has returned, the first call does what no later one does, and no two calls take equally long.
So calls are made before any is timed, the device is waited for at both ends of what is timed, and what is told is a
median with the interval in which the true one lies. What cannot be told is refused: see ``TimingError``. Where the GPU
or the node has an energy counter that may be read, joules are told as well.

Needs numpy to compare and matplotlib to plot; PyTorch and TensorFlow are used as found. It knows nothing of the
launcher: copy this one file wherever you like. Times are in seconds.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import gc
import html
import importlib
import importlib.metadata
import importlib.util
import itertools
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

try:
    import fcntl
except ImportError:  # Windows has no flock; there one process writes
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "Comparison", "Device", "DifferentWork", "Laps", "Measurement", "Records", "Row", "TimingError", "TooShort",
    "Unsynchronised", "allotted_cores", "best_device", "compare", "cpu_device", "devices", "duration", "fingerprint",
    "from_times", "joules", "measure", "overhead", "rate", "read_records", "record", "results_path", "setting",
    "thread_variables", "use_allotted_threads", "use_threads",
]  # fmt: skip

VERSION = 1  # of a line of results.jsonl
Setting = TypeVar("Setting", bool, int, float, str, list[int], list[float], list[str])

_clock = time.perf_counter
_LEAST_BLOCK = 200e-6  # what is timed at a time, at least: a thousand times what a good clock costs
_SURELY_LONG = 1.0  # a call that takes this is not a short one that something has held up
_QUEUE_SHARE = 0.03  # a queue may hold this much of a series when the clock has stopped
_QUEUE_FLOOR = 500e-6  # … and always this: what an empty queue of a busy machine may take to say so
_LAPS_FLOOR = 20e-3  # the same for rounds, which are not repeated to make sure
_METERED = 1.0  # seconds that joules are told of, at least: a GPU's counter moves every 20 to 100 ms
_MOST_WATTS = 500.0  # of a processor: how soon its counter may have begun anew more than once
_READ_EVERY = 60.0  # seconds between two readings, where calls are not longer: it has begun anew once at most
_RESAMPLES = 2000
_SEED = 20231  # of the bootstrap: the same numbers give the same interval


class TimingError(Exception):
    """Something cannot be measured, compared or read; the message says why, and what to do."""


class Unsynchronised(TimingError):
    """Raised when a device still worked as the clock stopped, or when such times are to be compared."""


class DifferentWork(TimingError):
    """Raised when measurements are to be compared that did not do the same work in one call."""


class TooShort(TimingError):
    """Raised when a call is so short that its time is mostly that of measuring it."""


# ============================================================================================================ settings


def setting(name: str, default: Setting, *, least: float | None = None) -> Setting:
    """Return the environment variable ``name`` as the type of ``default``; without it (or empty), ``default``.

    A bool is 1/0, true/false, yes/no or on/off. A list is written with commas, and its elements are of the type of
    the default's first. ``least`` is the smallest number that makes sense. Raises ``TimingError`` for anything else.
    """
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    if isinstance(default, list):
        kind = type(default[0]) if default else str
        parts: Any = [_parsed(name, text, part, kind, least) for part in re.split(r"[,\s]+", text) if part]
        return cast("Setting", parts)
    return cast("Setting", _parsed(name, text, text, type(default), least))


_KINDS = {bool: "1 or 0, true or false", int: "a whole number", float: "a number"}
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def _parsed(name: str, text: str, part: str, kind: type, least: float | None) -> Any:
    value: Any = part
    try:
        if kind is bool:
            value = {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}[part.lower()]
        elif kind in (int, float):
            value = kind(part)
            if not math.isfinite(value):
                raise ValueError(part)
    except (KeyError, ValueError):
        wanted = _KINDS.get(kind, kind.__name__)
        raise TimingError(f"{name}={text} in the environment is not {wanted}. Set it so, or `unset {name}`.") from None
    if least is not None and value < least:
        raise TimingError(f"{name}={text} in the environment is too small: {least:g} at least.")
    return value


# ==================================================================================================== cores and threads


def allotted_cores() -> int:
    """Return how many cores this process may use: those of the job, not those of the node.

    The smallest of what the scheduler has given on this node, what the cgroup's quota allows (rounded up), and on how
    many cores the kernel lets this process run.
    """
    limits = [_scheduled_cores(), _quota(), _affinity(), os.cpu_count()]
    return max(1, min(limit for limit in limits if limit)) if any(limits) else 1


def _affinity() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def _whole(name: str) -> int | None:
    """An environment variable that is a whole number above 0, perhaps with Slurm's `(x2)` behind it."""
    found = re.match(r"([1-9]\d*)(\(x\d+\))?(,|$)", os.environ.get(name, ""))
    return int(found[1]) if found else None


def _scheduled_cores() -> int | None:
    """What the scheduler has allotted on this node, or None.

    In Slurm's batch script a program has all of the job's cores on the node. In a step (srun) it is one of perhaps
    several tasks, and has those of a task.
    """
    if os.environ.get("SLURM_STEP_ID") and _whole("SLURM_CPUS_PER_TASK"):
        return _whole("SLURM_CPUS_PER_TASK")
    names = ("SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE", "SLURM_CPUS_PER_TASK", "LSB_DJOB_NUMPROC", "NCPUS")
    return next((cores for cores in map(_whole, (*names, "NSLOTS")) if cores), None)


def _quota(processes: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """The whole cores that the cgroups of this process allow, versions 1 and 2; None without a limit."""
    cores = []
    for line in _text(processes).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, inside = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = root / controllers if controllers else root
        place = base / inside.strip("/")
        for folder in (place, *place.parents):
            share = _share(folder)
            if share:
                cores.append(math.ceil(share))
            if folder == base:
                break
    return min(cores) if cores else None


def _share(folder: Path) -> float | None:
    words = _text(folder / "cpu.max").split() or [
        *_text(folder / "cpu.cfs_quota_us").split(),
        *_text(folder / "cpu.cfs_period_us").split(),
    ]
    with contextlib.suppress(ValueError, IndexError, ZeroDivisionError):
        share = int(words[0]) / int(words[1])
        return share if share > 0 else None
    return None


_THREAD_VARIABLES = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "BLIS_NUM_THREADS"),
    *("VECLIB_MAXIMUM_THREADS", "NUMBA_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"),
)


def thread_variables(count: int) -> dict[str, str]:
    """Return the environment variables that give a new process ``count`` threads, whatever library it loads."""
    return dict.fromkeys(_THREAD_VARIABLES, str(count))


_numpy_saw: dict[str, str | None] = {}  # these variables as they were when numpy was there: it reads them once


def _note_numpy() -> None:
    if "numpy" in sys.modules and not _numpy_saw:
        _numpy_saw.update({name: os.environ.get(name) for name in _THREAD_VARIABLES})


_note_numpy()


def use_allotted_threads() -> int:
    """Let the numerical libraries use as many threads as cores are allotted, and return the number.

    Call it first, before anything is loaded: without threadpoolctl numpy does not change its mind later, and TensorFlow
    not once it has computed.
    """
    return use_threads(allotted_cores())


def use_threads(count: int) -> int:
    """Let the numerical libraries, loaded already or later, use ``count`` threads, and return it.

    Raises ``TimingError`` when TensorFlow has begun to compute with another number.
    """
    if count < 1:
        raise TimingError(f"{count} threads cannot compute anything: 1 at least.")
    before = os.environ.get("TF_NUM_INTRAOP_THREADS", "")
    _note_numpy()
    os.environ.update(thread_variables(count))
    with contextlib.suppress(ImportError):  # reaches the BLAS that numpy has loaded; scikit-learn brings it along
        importlib.import_module("threadpoolctl").threadpool_limits(limits=count)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(count)
    if tensorflow := sys.modules.get("tensorflow"):
        _tensorflow_threads(tensorflow, count, before)
    return count


def _tensorflow_threads(tensorflow: Any, count: int, before: str) -> None:
    threading = tensorflow.config.threading
    for which in ("intra_op", "inter_op"):
        now = getattr(threading, f"get_{which}_parallelism_threads")()
        if now == count:
            continue
        try:
            getattr(threading, f"set_{which}_parallelism_threads")(count)
        except RuntimeError:
            if now == 0 and before == str(count):  # it took the number from the environment
                continue
            had = before if now == 0 and before else now or "as many threads as it liked"
            raise TimingError(
                f"TensorFlow computes already, with {had} and not {count} threads, and cannot change that. "
                "Restart the kernel, and set the threads before anything is computed."
            ) from None


def _threads(library: str) -> int | None:
    """How many threads a library uses, or None where nobody says."""
    if library == "torch" and "torch" in sys.modules:
        return int(sys.modules["torch"].get_num_threads())
    if library == "tensorflow" and "tensorflow" in sys.modules:
        told = int(sys.modules["tensorflow"].config.threading.get_intra_op_parallelism_threads())
        return told or _whole("TF_NUM_INTRAOP_THREADS") or _affinity()
    with contextlib.suppress(ImportError):
        libraries = importlib.import_module("threadpoolctl").threadpool_info()
        if blas := [one["num_threads"] for one in libraries if one["user_api"] == "blas"]:
            return int(max(blas))
    if any(os.environ.get(name) != seen for name, seen in _numpy_saw.items()):
        return None  # they were set too late
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return next((threads for threads in map(_whole, names) if threads), None)


# ============================================================================================================= devices


@dataclass(frozen=True)
class Device:
    """Where work is done: ``kind`` is ``cpu`` or ``gpu``, ``name`` the model, ``library`` who gives it the work.

    ``place`` is what that library calls it: ``cuda:0`` for PyTorch, ``/GPU:0`` for TensorFlow.
    """

    kind: str
    name: str
    library: str = ""
    place: str = "cpu"

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU."""
        return self.kind == "gpu"

    @property
    def asynchronous(self) -> bool:
        """Whether a call returns before the device has done the work."""
        return self.is_gpu

    def synchronise(self) -> None:
        """Wait until the device has done everything that it was given."""
        if self.is_gpu and self.library == "torch":
            kind, _, index = self.place.partition(":")
            backend = getattr(sys.modules["torch"], kind)  # torch.cuda (AMD's too), torch.xpu, torch.mps
            backend.synchronize(*([] if kind == "mps" else [int(index or 0)]))
        elif self.is_gpu and self.library == "tensorflow":
            sys.modules["tensorflow"].test.experimental.sync_devices()

    def __str__(self) -> str:
        return f"{self.kind.upper()} {self.name}"


def cpu_device(library: str = "") -> Device:
    """Return the CPU, as ``library`` calls it."""
    return Device("cpu", _cpu_model() or platform.machine(), library, "/CPU:0" if library == "tensorflow" else "cpu")


def devices(library: str | None = None) -> list[Device]:
    """Return what there is to compute on, CPUs first.

    ``library`` is ``torch`` or ``tensorflow``. Without it: those that are imported; if none is, the first that is
    installed. With neither, the CPU alone. Raises ``TimingError`` when the library asked for is not installed.
    """
    if library not in (None, "torch", "tensorflow"):
        raise TimingError(f"No devices are known of “{library}”: it is torch or tensorflow.")
    names = [library] if library else [name for name in ("torch", "tensorflow") if name in sys.modules]
    if not names:
        names = [name for name in ("torch", "tensorflow") if importlib.util.find_spec(name)][:1]
    if not names:
        return [cpu_device()]
    return [cpu_device(name) for name in names] + [gpu for name in names for gpu in _gpus(_imported(name))]


def best_device(library: str | None = None) -> Device:
    """Return the first GPU, or the CPU where there is none; ``library`` as for ``devices``."""
    found = devices(library)
    return next((device for device in found if device.is_gpu), found[0])


def _imported(library: str) -> Any:
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise TimingError(
            f"{library} cannot be imported here ({error}). Choose an environment that has it "
            "(`launch-notebook env list` shows them), or install it."
        ) from None


def _gpus(library: Any) -> list[Device]:
    if library.__name__ == "tensorflow":
        found = library.config.list_physical_devices("GPU")
        details = [library.config.experimental.get_device_details(gpu) for gpu in found]
        return [
            Device("gpu", about.get("device_name", "GPU"), "tensorflow", f"/GPU:{i}") for i, about in enumerate(details)
        ]
    for kind in ("cuda", "xpu"):
        backend = getattr(library, kind, None)
        if backend is not None and backend.is_available():
            names = [backend.get_device_name(i) for i in range(backend.device_count())]
            return [Device("gpu", name, "torch", f"{kind}:{i}") for i, name in enumerate(names)]
    return [Device("gpu", "Apple GPU", "torch", "mps")] if _has_mps(library) else []


def _has_mps(torch: Any) -> bool:
    mps = getattr(getattr(torch, "backends", None), "mps", None)
    return mps is not None and bool(mps.is_available())


def _used_gpus() -> list[Callable[[], None]]:
    """What waits for each GPU that this process has begun to use, whoever says that it was not used."""
    waits: list[Callable[[], None]] = []
    torch: Any = sys.modules.get("torch")
    for kind in ("cuda", "xpu"):
        backend = getattr(torch, kind, None)
        if backend is not None and backend.is_available() and backend.is_initialized():
            # to wait for a device that was never used would make a context on it
            used = {i for i in range(backend.device_count()) if backend.memory_reserved(i)} | {backend.current_device()}
            waits += [functools.partial(backend.synchronize, i) for i in sorted(used)]
    if _has_mps(torch):
        waits.append(torch.mps.synchronize)
    tensorflow: Any = sys.modules.get("tensorflow")
    if hasattr(tensorflow, "config") and tensorflow.config.list_physical_devices("GPU"):
        waits.append(tensorflow.test.experimental.sync_devices)
    return waits


# ============================================================================================================== energy

_POWERCAP = Path("/sys/class/powercap")  # where Linux shows the counters of processors (RAPL)
_NVML = "libnvidia-ml.so.1"  # the driver's library, which tells of NVIDIA's GPUs
_NVML_NOT_SUPPORTED = 3
_NVML_REFUSED = 4  # the GPU is another job's
_METERS = {"NVML": "NVML: the GPUs", "RAPL": "RAPL: the processors of the whole node"}


@dataclass(frozen=True)
class _Counter:
    """A counter of joules. ``source``: NVML or RAPL; ``wraps``: at how many it begins anew, None: it does not."""

    source: str
    read: Callable[[], float | None]
    wraps: float | None = None

    def used(self, before: float | None, after: float | None, seconds: float) -> float | None:
        """Return the joules between two readings; None where they do not tell, or it may have gone round twice."""
        if before is None or after is None or (self.wraps and seconds * _MOST_WATTS >= self.wraps):
            return None
        if after >= before:
            return after - before
        return after - before + self.wraps if self.wraps else None


@dataclass(frozen=True)
class _Reading:
    """When the counters were read, and what each showed."""

    at: float
    shown: Sequence[float | None] = ()


class _Meter:
    """The energy that a device takes, where somebody tells.

    A GPU's is that of all NVIDIA GPUs that this process may use and, where they tell, of the node's processors. A CPU's
    is that of the node's processors alone: what idle GPUs take is left out.
    """

    def __init__(self, device: Device) -> None:
        gpus = _nvml_counters() if device.is_gpu and device.place.partition(":")[0] not in ("xpu", "mps") else []
        self._counters = [*gpus, *_rapl_counters()] if gpus or not device.is_gpu else []
        self._spans: list[tuple[_Reading, _Reading]] = []
        self._last = _Reading(0.0)

    def read(self) -> _Reading:
        """Read all counters. It takes up to some milliseconds: never while a clock runs."""
        shown = [counter.read() for counter in self._counters]
        return _Reading(_clock() if shown else 0.0, shown)

    def start(self) -> None:
        """Count from now on."""
        self._last = self.read()

    def stop(self) -> None:
        """Count what was used since ``start``, or since this was called last."""
        now = self.read()
        self._spans.append((self._last, now))
        self._last = now

    def keep_up(self) -> None:
        """Read the counters if that is due, as one that begins anew would have to be read twice in between."""
        if self._counters and _clock() - self._last.at >= _READ_EVERY:
            self.stop()

    def missing(self) -> float:
        """Return the seconds that have still to be counted for joules to be told; 0 where they never will be."""
        told = self._telling([None if value is None else 1.0 for value in self._last.shown])
        return max(0.0, _METERED - self._seconds(self._spans)) if told else 0.0

    @staticmethod
    def _seconds(spans: Sequence[tuple[_Reading, _Reading]]) -> float:
        return sum(after.at - before.at for before, after in spans)

    def joules(self, calls: int, skipped: int = 0) -> tuple[float | None, tuple[str, ...]]:
        """Return those of each of so many calls, and who told them; None and nobody where that cannot be told.

        ``skipped``: how many of the first stretches do not count.
        """
        spans = self._spans[skipped:]
        if self._seconds(spans) < _METERED:
            return None, ()
        used = [self._used(place, spans) for place in range(len(self._counters))]
        sources = self._telling(used)
        each = sum(joules or 0.0 for counter, joules in zip(self._counters, used) if counter.source in sources)  # noqa: B905 Python 3.9
        return (each / calls, sources) if sources else (None, ())

    def _used(self, place: int, spans: Sequence[tuple[_Reading, _Reading]]) -> float | None:
        """Return what one counter has counted; None where it was lost, or may have begun anew twice."""
        total, counter = 0.0, self._counters[place]
        for before, after in spans:
            used = counter.used(before.shown[place], after.shown[place], after.at - before.at)
            if used is None:
                return None
            total += used
        return total

    def _telling(self, used: Sequence[float | None]) -> tuple[str, ...]:
        """Return the sources all of whose counters tell: one that stands still does not.

        The processors' joules alone are not those of a GPU.
        """
        lost = {counter.source for counter, joules in zip(self._counters, used) if not joules}  # noqa: B905 Python 3.9
        sources = tuple(dict.fromkeys(counter.source for counter in self._counters))
        return () if sources and sources[0] in lost else tuple(source for source in sources if source not in lost)


def _rapl_counters() -> list[_Counter]:
    """The counters of the node's processors; none where there are none, or not all may be read (most let only root)."""
    counters = []
    for zone in sorted(_POWERCAP.glob("intel-rapl:*")):  # AMD's too
        if _text(zone / "name").startswith("package"):  # neither a part of one (core, dram) nor the platform (psys)
            read = functools.partial(_microjoules, zone / "energy_uj")
            wraps = _microjoules(zone / "max_energy_range_uj")
            if read() is None or not wraps:
                return []
            counters.append(_Counter("RAPL", read, wraps))
    return counters


def _microjoules(path: Path) -> float | None:
    text = _text(path).strip()
    return int(text) / 1e6 if text.isdecimal() and len(text) < 20 else None


def _nvml_counters() -> list[_Counter]:
    """The counters of the NVIDIA GPUs that this process may use; none where one of them does not tell (before Volta).

    Nor of a part of a GPU (MIG): the counter is the whole card's, which others use as well. Other ways to share a card
    (MPS, Slurm's shards) are not seen here.
    """
    nvml = _nvml()
    counters = []
    for card in _visible_cards(nvml) if nvml else []:
        read = functools.partial(_millijoules, nvml, card)
        if _is_divided(nvml, card) or read() is None:
            return []
        counters.append(_Counter("NVML", read))
    return counters


@functools.lru_cache(maxsize=1)
def _nvml() -> Any:
    """NVML, ready to be asked; None where there is no such library, or no driver."""
    ctypes = importlib.import_module("ctypes")
    try:
        nvml = ctypes.CDLL(_NVML)
        return nvml if nvml.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None


def _visible_cards(nvml: Any) -> list[Any]:
    """Return NVML's handles of the GPUs that CUDA lets this process use; none where that cannot be told for sure.

    ``CUDA_VISIBLE_DEVICES`` has their numbers or the beginnings of their UUIDs, and ends at the first that is none.
    """
    cards = _cards(nvml)
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None or not cards:
        return cards
    names = [_told(nvml.nvmlDeviceGetUUID, card) for card in cards]
    found: list[int] = []
    for word in map(str.strip, wanted.split(",")):
        if word.isdecimal():
            fitting = [int(word)] if int(word) < len(cards) else []
        else:  # a part of a GPU, MIG-…, is none of these
            fitting = [place for place, name in enumerate(names) if word.startswith("GPU-") and name.startswith(word)]
        if len(fitting) != 1 or fitting[0] in found:
            break
        found += fitting
    is_numbered = any(word.strip().isdecimal() for word in wanted.split(","))
    if is_numbered and len(found) < len(cards) and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        models = {_told(nvml.nvmlDeviceGetName, card) for card in cards}
        if len(models) > 1:  # CUDA begins with the fastest, NVML with the first on the bus
            return []
    return [cards[place] for place in found]


def _cards(nvml: Any) -> list[Any]:
    """Return the handles of all GPUs that are not another job's; none where one of them does not answer."""
    ctypes = importlib.import_module("ctypes")
    count, cards = ctypes.c_uint(), []
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return []
    for number in range(count.value):
        card = ctypes.c_void_p()
        answer = nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(number), ctypes.byref(card))
        if answer == 0:
            cards.append(card)
        elif answer != _NVML_REFUSED:
            return []
    return cards


def _told(ask: Any, card: Any) -> str:
    text = importlib.import_module("ctypes").create_string_buffer(96)
    return text.value.decode(errors="replace") if ask(card, text, 96) == 0 else ""


def _is_divided(nvml: Any, card: Any) -> bool:
    """Tell whether a GPU is divided (MIG), or may be."""
    ctypes = importlib.import_module("ctypes")
    now, later = ctypes.c_uint(), ctypes.c_uint()
    ask = getattr(nvml, "nvmlDeviceGetMigMode", None)
    if ask is None:  # an older driver, which knows of no MIG
        return False
    answer = ask(card, ctypes.byref(now), ctypes.byref(later))
    return now.value != 0 if answer == 0 else answer != _NVML_NOT_SUPPORTED


def _millijoules(nvml: Any, card: Any) -> float | None:
    """The joules that a GPU has taken since its driver was loaded."""
    ctypes = importlib.import_module("ctypes")
    told, ask = ctypes.c_ulonglong(), getattr(nvml, "nvmlDeviceGetTotalEnergyConsumption", None)
    return told.value / 1e3 if ask is not None and ask(card, ctypes.byref(told)) == 0 else None


# ========================================================================================================= fingerprint


def fingerprint(device: Device | None = None) -> dict[str, Any]:
    """Return what the numbers were measured on, as plain data; what is not known is None.

    Keys: ``cpu`` (model), ``architecture``, ``cores_allotted``, ``cores_node``, ``threads`` (used), ``gpu`` (model,
    where ``device`` is one), ``driver``, ``system``, ``libraries`` (versions), ``onednn`` (whether TensorFlow was told
    to use it, ``1`` or ``0``), ``container`` (digest), ``scheduler``, ``cluster``, ``partition``, ``job``, ``virtual``
    (whether the machine is a virtual one). It names no person, no machine and no address.
    """
    device = device or cpu_device()
    return {
        "cpu": _cpu_model(),
        "architecture": platform.machine() or None,
        "cores_allotted": allotted_cores(),
        "cores_node": os.cpu_count(),
        "threads": _threads(device.library),
        "gpu": device.name if device.is_gpu else None,
        "driver": _driver() if device.is_gpu else None,
        "system": f"{platform.system()} {platform.release()}".strip() or None,
        "libraries": _libraries(),
        "onednn": os.environ.get("TF_ENABLE_ONEDNN_OPTS") if "tensorflow" in sys.modules else None,
        "container": _container(),
        **_job(),
        "virtual": "hypervisor" in flags if (flags := _cpu_facts().get("flags", "").split()) else None,
    }


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


@functools.lru_cache(maxsize=1)
def _cpu_facts() -> dict[str, str]:
    lines = _text(Path("/proc/cpuinfo")).partition("\n\n")[0].splitlines()
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


@functools.lru_cache(maxsize=1)
def _cpu_model() -> str | None:
    """The processor's model; on Arm only lscpu knows its name, on a Mac only sysctl."""
    told = _cpu_facts().get("model name")
    if not told and sys.platform == "darwin":
        told = _asked("sysctl", "-n", "machdep.cpu.brand_string")
    elif not told:
        found = re.search(r"^Model name:\s*(.+)$", _asked("lscpu"), re.MULTILINE)
        told = found[1] if found else platform.processor()
    return " ".join(told.split()) or None


def _asked(*argv: str) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=10, env=environment, check=False).stdout
    except (OSError, subprocess.SubprocessError, ValueError):
        return ""


@functools.lru_cache(maxsize=1)
def _driver() -> str | None:
    nvidia = re.search(r"Module.*?\s(\d+(?:\.\d+)+)\s", _text(Path("/proc/driver/nvidia/version")))
    amd = _text(Path("/sys/module/amdgpu/version")).strip()
    return f"NVIDIA {nvidia[1]}" if nvidia else f"amdgpu {amd}" if amd else None


def _libraries() -> dict[str, str]:
    """Versions of Python and of the libraries in use, with the CUDA and cuDNN that they were made for."""
    versions = {"python": platform.python_version()}
    for name in ("numpy", "torch", "torchvision", "tensorflow", "keras"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version:
            versions[name] = str(version)
    build = getattr(sys.modules.get("torch"), "version", None)
    for name, attribute in (("cuda", "cuda"), ("rocm", "hip")):
        if getattr(build, attribute, None):
            versions[name] = str(getattr(build, attribute))
    with contextlib.suppress(AttributeError, KeyError):
        about = sys.modules["tensorflow"].sysconfig.get_build_info()
        versions.update(
            {name: str(about[f"{name}_version"]) for name in ("cuda", "cudnn") if f"{name}_version" in about}
        )
    return versions


def _container() -> str | None:
    """The digest of the image that this session runs in, as its job has noted it; None where nobody has."""
    with contextlib.suppress(KeyError, ValueError, AttributeError):
        noted = json.loads(_text(Path(os.environ["NBL_SESSION_DIR"]) / "image.json"))
        return str(noted["digest"]) if noted.get("digest") else None
    return None


def _job() -> dict[str, str | None]:
    known = (("slurm", "SLURM_JOB_ID"), ("lsf", "LSB_JOBID"), ("pbs", "PBS_JOBID"), ("gridengine", "JOB_ID"))
    scheduler, variable = next((pair for pair in known if os.environ.get(pair[1])), (None, "NBL_JOB_ID"))
    job = re.match(r"[\w;\[\]-]+", os.environ.get(variable, ""))  # PBS adds the name of a machine behind a dot
    partition = next((os.environ[name] for name in ("SLURM_JOB_PARTITION", "LSB_QUEUE", "PBS_QUEUE", "QUEUE")
                      if scheduler and os.environ.get(name)), None)  # fmt: skip
    cluster = os.environ.get("SLURM_CLUSTER_NAME") or None
    return {"scheduler": scheduler, "cluster": cluster, "partition": partition, "job": job[0] if job else None}


# ========================================================================================================== statistics


@functools.cache
def _ranks(count: int, confidence: float) -> tuple[int, float]:
    """Return how many times to leave out at each end for the interval of the median, and what that interval covers.

    Each time lies below the true median as a coin falls, whatever the times' distribution: so the k-th smallest and the
    k-th largest of n enclose it unless fewer than k coins of n fall one way. Where even the smallest and the largest
    cover less than ``confidence``, they are the interval all the same, and the coverage says so.
    """
    out, tail = 0, 0.0
    if count <= 1000:
        chance = 0.5**count
    else:  # begin ten standard deviations below the middle: what lies further out does not count
        out = int(count / 2 - 5 * math.sqrt(count))
        ways = math.lgamma(count + 1) - math.lgamma(out + 1) - math.lgamma(count - out + 1)
        chance = math.exp(ways - count * math.log(2))
    while out < (count - 1) // 2:
        following = chance * (count - out) / (out + 1)
        if 1 - 2 * (tail + chance + following) < confidence:
            break
        tail, chance, out = tail + chance, following, out + 1
    return out, max(0.0, 1 - 2 * (tail + chance))


def _interval(times: Sequence[float], confidence: float) -> tuple[float, float, float]:
    """Return the interval of the median (low, high) and what it really covers; a single time has one that covers 0."""
    ordered = sorted(times)
    out, covered = _ranks(len(ordered), confidence)
    return ordered[out], ordered[-1 - out], covered


def _narrow(times: Sequence[float], precision: float, confidence: float) -> bool:
    """Tell whether the interval of the median is within ±``precision`` of it, and covers what was asked for."""
    low, high, covered = _interval(times, confidence)
    return covered >= confidence and (high - low) / 2 <= precision * statistics.median(times)


# ======================================================================================================== measurements


@dataclass(frozen=True)
class Measurement:
    """How long calls took: ``times`` in seconds per call, one for each repeat, in their order.

    ``work`` is how much of ``unit`` one call does; ``synchronised``, whether the device was waited for; ``warmup``, how
    many calls went before; ``calls_per_time``, of how many calls each time is the mean. ``confidence`` and
    ``precision`` are what was asked for, ``covered`` and ``narrow`` what came of it. ``fingerprint`` tells on what.
    ``energy_j`` is the mean of the joules that a call took, None where nobody told; ``energy_sources`` are those who
    did: ``NVML`` of the GPUs, ``RAPL`` of all processors of the node, with what others did there.
    """

    name: str
    times: tuple[float, ...]
    device: Device
    work: float | None = None
    unit: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    synchronised: bool = True
    warmup: int = 0
    calls_per_time: int = 1
    confidence: float = 0.95
    precision: float = 0.02
    fingerprint: Mapping[str, Any] = field(default_factory=dict, repr=False)
    energy_j: float | None = None
    energy_sources: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.times:
            raise TimingError(f"{self.name}: no time was taken.")
        if not all(math.isfinite(seconds) and seconds > 0 for seconds in self.times):
            raise TimingError(f"{self.name}: every time must be a number of seconds above 0.")
        if self.work is not None and not (math.isfinite(self.work) and self.work > 0):
            raise TimingError(f"{self.name}: the work of a call must be above 0, not {self.work:g}.")
        if self.energy_j is not None and not (math.isfinite(self.energy_j) and self.energy_j >= 0):
            raise TimingError(f"{self.name}: the energy of a call cannot be {self.energy_j:g} J.")

    @property
    def median(self) -> float:
        """Seconds per call: as many calls took longer as took less."""
        return statistics.median(self.times)

    @property
    def low(self) -> float:
        """Lower end of the interval of the median, in seconds."""
        return _interval(self.times, self.confidence)[0]

    @property
    def high(self) -> float:
        """Upper end of the interval of the median, in seconds."""
        return _interval(self.times, self.confidence)[1]

    @property
    def covered(self) -> float:
        """How sure it is that the interval encloses the true median: less than ``confidence`` below six repeats."""
        return _interval(self.times, self.confidence)[2]

    @property
    def iqr(self) -> float:
        """Seconds between the quartiles: half of all times lie in it."""
        if len(self.times) < 2:
            return 0.0
        first, _, third = statistics.quantiles(self.times, n=4, method="inclusive")
        return third - first

    @property
    def throughput(self) -> float | None:
        """Work per second, in ``unit``; None where the work is not told."""
        return None if self.work is None else self.work / self.median

    @property
    def energy_j_per_unit(self) -> float | None:
        """Joules for one ``unit`` of the work; None where either is not told."""
        return None if self.energy_j is None or self.work is None else self.energy_j / self.work

    @property
    def narrow(self) -> bool:
        """Whether the interval is as narrow, and as sure, as was asked for."""
        return _narrow(self.times, self.precision, self.confidence)

    @property
    def _spread(self) -> float:
        """What is written behind ±: the longer side of the interval."""
        return max(self.high - self.median, self.median - self.low)

    _TOLD = ("median", "low", "high", "confidence", "covered", "narrow", "iqr", "work", "unit", "throughput",
             "synchronised", "warmup", "calls_per_time")  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data: a line of results.jsonl."""
        energy = {key: _plain(getattr(self, key)) for key in ("energy_j", "energy_j_per_unit", "energy_sources")}
        return {
            "version": VERSION,
            "name": self.name,
            "parameters": _plain(self.parameters),
            "times": [float(f"{seconds:.9g}") for seconds in self.times],
            **{key: _plain(getattr(self, key)) for key in self._TOLD},
            **({} if self.energy_j is None else energy),
            "device": {"kind": self.device.kind, "name": self.device.name, "library": self.device.library},
            "recorded": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "fingerprint": dict(self.fingerprint) or fingerprint(self.device),
        }

    def record(self, path: str | Path | None = None) -> dict[str, Any]:
        """Append it to a file of results, as ``timing.record`` does, and return the line as data."""
        return record(self, path)

    def __str__(self) -> str:
        """Tell it in a line."""
        sure = f"{_percent(min(self.confidence, self.covered))} interval of the median"
        how = f"{sure}, {len(self.times)} times" if len(self.times) > 1 else "one time only, so no interval"
        parts = [f"{self.name}: {duration(self.median, self._spread)} ({how})"]
        if self.throughput is not None:
            parts.append(rate(self.throughput, self.unit))
        parts.append(str(self.device))
        if self.energy_j is not None:
            told_by = "; ".join(_METERS.get(name, name) for name in self.energy_sources)
            parts.append(f"{self._energy} ({told_by})" if told_by else self._energy)
        if len(self.times) > 1 and not self.narrow:
            parts.append(f"not within ±{_percent(self.precision)}")
        if not self.synchronised:
            parts.append("not synchronised")
        return ", ".join(parts)

    @property
    def _energy(self) -> str:
        """The joules of a call and of a unit: ``850 J per call, 14.2 mJ/images``; nothing where none are told."""
        if self.energy_j is None:
            return ""
        each = self.energy_j_per_unit
        unit = f"/{self.unit}" if self.unit else " per unit of work"
        of_each = "" if each is None else f", {joules(each)}{unit}"
        return f"{joules(self.energy_j)} per call{of_each}"


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it: numpy's numbers as Python's, what has no such form as its text."""
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, (list, tuple)) else str(value)


def from_times(
    name: str,
    times: Sequence[float],
    *,
    device: Device | None = None,
    work: float | None = None,
    unit: str = "",
    parameters: Mapping[str, Any] | None = None,
    synchronised: bool = False,
    warmup: int = 0,
) -> Measurement:
    """Make a measurement of times (seconds per call) that something else has taken.

    Say ``synchronised=True`` when the device was waited for before each clock was read; else it is never compared.
    """
    device = device or cpu_device()
    return Measurement(name, tuple(map(float, times)), device, work, unit, dict(parameters or {}), synchronised, warmup,
                       fingerprint=fingerprint(device))  # fmt: skip


def measure(
    fn: Callable[[], object],
    *,
    name: str,
    device: Device | None = None,
    work: float | None = None,
    unit: str = "",
    parameters: Mapping[str, Any] | None = None,
    warmup: int = 1,
    min_repeats: int = 5,
    max_repeats: int = 1000,
    precision: float = 0.02,
    confidence: float = 0.95,
    budget: float = 10.0,
    synchronise: bool = True,
    energy: bool = False,
) -> Measurement:
    """Time calls of ``fn`` until the median is known to ±``precision``, or ``budget`` seconds are spent.

    ``fn`` takes nothing and does one piece of work: ``work`` of ``unit``. ``device`` (the CPU if not said) is waited
    for at both ends of what is timed. First ``warmup`` calls are not timed, then a few to learn how long one is: short
    ones are timed several together. ``min_repeats`` times are taken even where the budget does not reach,
    ``max_repeats`` at most. The interval holds the true median with ``confidence``.

    Joules are told of what takes a second or more in all, where there are counters that may be read. With
    ``energy=True`` calls go on, without being timed, until that second is full.

    Raises ``TooShort`` when a call takes little longer than measuring it, ``Unsynchronised`` when a GPU still worked
    after the clock had stopped. With ``synchronise=False`` the device is not waited for, and the result is never
    compared.
    """
    device = device or cpu_device()
    wrong = {
        "warmup must be 0 or more": warmup < 0,
        "min_repeats must be 1 or more, and max_repeats not less": not 1 <= min_repeats <= max_repeats,
        "precision must be above 0: 0.02 is ±2 %": not precision > 0,
        "confidence must lie between 0 and 1: 0.95 is 95 %": not 0 < confidence < 1,
        "budget must be some seconds, above 0": not budget > 0,
    }
    if any(wrong.values()):
        raise TimingError(f"{name}: {next(message for message, applies in wrong.items() if applies)}.")
    wait = device.synchronise if synchronise and device.asynchronous else _nothing
    for _ in range(warmup):
        fn()
    queue = _Queue(name, device)
    block = functools.partial(_block, fn, wait)
    is_waited_for = synchronise or not device.asynchronous
    meter = _Meter(device)
    calls, first = _calls_per_time(block, _least_block(wait), budget, name, queue, meter)
    meter.start()
    times = _series(block, calls, first, (min_repeats, max_repeats), precision, confidence, budget, meter)
    left = queue.drain()
    meter.stop()
    queue.check(len(times) * calls, sum(times) * calls, left, functools.partial(block, calls))
    blocks = len(times) + (_go_on(block, calls, queue, meter) if energy and is_waited_for else 0)
    return Measurement(name, tuple(times), device, work, unit, dict(parameters or {}), is_waited_for, warmup, calls,
                       confidence, precision, fingerprint(device),
                       *(meter.joules(blocks * calls) if is_waited_for else (None, ())))  # fmt: skip


def _go_on(block: Callable[[int], float], calls: int, queue: _Queue, meter: _Meter) -> int:
    """Make calls for as long as joules need, which nobody times, and return how many times so many."""
    blocks, missing = 0, meter.missing()
    if missing:
        meter.start()
        until = _clock() + missing
        while _clock() < until:
            block(calls)
            blocks += 1
        queue.drain()
        meter.stop()
    return blocks


def _nothing() -> None:
    """Wait for nothing: a CPU has done its work when the call returns."""


def _block(fn: Callable[[], object], wait: Callable[[], None], calls: int) -> float:
    """Time so many calls together, in seconds; as timeit does, without the collector of garbage."""
    rounds = itertools.repeat(None, calls)
    collecting = gc.isenabled()
    gc.disable()
    try:
        wait()
        start = _clock()
        for _ in rounds:
            fn()
        wait()
        return _clock() - start
    finally:
        if collecting:
            gc.enable()


def _clock_step() -> float:
    """Seconds between two readings of the clock that differ."""
    steps: list[float] = []
    before = _clock()
    for _ in range(1_000_000):  # a clock may be as coarse as 16 ms
        now = _clock()
        if now > before:
            steps.append(now - before)
            if len(steps) == 20:
                break
        before = now
    return min(steps) if steps else time.get_clock_info("perf_counter").resolution


def _least_block(wait: Callable[[], None]) -> float:
    """Seconds that have to be timed at a time for the clock, and the wait for an idle device, not to matter."""
    waits = []
    if wait is not _nothing:
        wait()
        for _ in range(5):
            start = _clock()
            wait()
            waits.append(_clock() - start)
    return max(_LEAST_BLOCK, 1000 * _clock_step(), 100 * min(waits, default=0.0))


def overhead() -> float:
    """Measure what measuring adds to a call: seconds that an empty function takes, called as ``measure`` calls."""
    return min(_empty_call() for _ in range(20))


def _empty_call() -> float:
    return _block(_nothing, _nothing, 5000) / 5000


def _calls_per_time(
    block: Callable[[int], float], least: float, budget: float, name: str, queue: _Queue, meter: _Meter
) -> tuple[int, float | None]:
    """Return how many calls to time together, and the time of a call that was long enough to count already."""
    calls = 1
    while True:
        meter.start()
        took = block(calls)
        left = queue.drain()
        is_long = calls == 1 and took >= _SURELY_LONG
        if is_long:
            meter.stop()
        queue.check(calls, took, left, functools.partial(block, calls))
        if is_long:
            return calls, took
        if took >= least and (took := min(took, block(calls))) >= least / 2:  # the first may have been held up
            break
        if least > budget or calls > 10**8:
            raise TooShort(
                f"{name}: {calls} calls together took {duration(took)}, and {duration(least)} at a time are needed to "
                "tell anything by this clock. Let one call do more work, or give a larger budget."
            )
        calls = min(10 * calls, max(2 * calls, math.ceil(1.2 * calls * least / took))) if took > 0 else 10 * calls
    if took / calls < 5e-6:
        _check_length(block, calls, name)
    return calls, None


def _check_length(block: Callable[[int], float], calls: int, name: str) -> None:
    """Raise ``TooShort`` if a call takes less than five times what an empty one takes."""
    took, empty = math.inf, math.inf
    for _ in range(7):  # in turn: what else the machine does hits both
        took, empty = min(took, block(calls) / calls), min(empty, _empty_call())
    if took < 5 * empty:
        raise TooShort(
            f"{name}: a call takes {duration(took)}, and to call a function that does nothing takes {duration(empty)}. "
            "Let one call do more work: loop over it inside the function, and say so by work=."
        )


def _series(
    block: Callable[[int], float], calls: int, first: float | None,
    repeats: tuple[int, int], precision: float, confidence: float, budget: float,
    meter: _Meter,
) -> list[float]:  # fmt: skip
    """Take times until their interval is narrow, or the budget or the number of repeats is at its end.

    It is looked at whether they suffice ever more rarely: who stops at the first good moment finds one too early.
    """
    times = [] if first is None else [first]
    began = _clock() - sum(times)
    look = repeats[0]
    while len(times) < repeats[1]:
        times.append(block(calls) / calls)
        meter.keep_up()
        count = len(times)
        if count < repeats[0]:
            continue
        if _clock() - began >= budget:
            break
        if count >= look:
            if _narrow(times, precision, confidence):
                break
            look = max(count + 1, math.ceil(1.25 * count))
    return times


class _Queue:
    """What GPUs still have to do when the clock has stopped: drained, with another clock running.

    Not only that of the device which was named: work may have been sent to another one, unseen.
    """

    def __init__(self, name: str, device: Device) -> None:
        self._name = name
        self._device = device
        self._idle = 0.0
        self.drain()
        self._idle = min(self.drain() for _ in range(3))

    def drain(self) -> float:
        """Wait for every GPU in use, and return the seconds above what an idle one takes."""
        waits = _used_gpus()
        if self._device.asynchronous:
            waits.insert(0, self._device.synchronise)
        start = _clock()
        for wait in waits:
            wait()
        return _clock() - start - self._idle if waits else 0.0

    def check(self, calls: int, took: float, left: float, again: Callable[[], float]) -> None:
        """Raise ``Unsynchronised`` if there was more ``left`` than a few per cent of what was timed.

        ``again`` times a call or more once more, and tells the seconds. A wait may also be long because something else
        had this core; that does not happen three times running.
        """
        first, timed = left, took
        for attempt in range(3):
            if left <= _QUEUE_SHARE * timed + _QUEUE_FLOOR:
                return
            if attempt < 2:
                timed, left = again(), self.drain()
        self.refuse(calls, took, first)

    def refuse(self, calls: int, took: float, left: float) -> None:
        """Raise ``Unsynchronised``: the calls returned after ``took`` seconds, and the work after ``left`` more."""
        what = f"{calls} calls" if calls > 1 else "1 call"
        if self._device.asynchronous:
            hint = "Do not switch off synchronise, or wait for the device before you read a clock."
        else:
            hint = "The work is done by a GPU: say which, by device=timing.best_device()."
        raise Unsynchronised(
            f"{self._name}: {what} returned after {duration(took)}, and the GPU then worked for another "
            f"{duration(left)}. That is the time to queue the work, not to do it. {hint}"
        )


class Laps:
    """Time the rounds of a loop, such as the epochs of a training.

        laps = timing.Laps("fit", EPOCHS, device=device, work=len(x), unit="images")
        for epoch in laps:
            …
        laps.measurement.record()

    The device is waited for at both ends of each round. The first ``warmup`` rounds (1) do not count where there are
    more; a round that is left by ``break`` or by an error does not count. Afterwards ``measurement`` has them, with the
    joules of a round where there are counters that may be read and the rounds take a second or more in all.
    ``seconds`` has every whole round, the first ones too.
    """

    def __init__(
        self,
        name: str,
        count: int,
        *,
        device: Device | None = None,
        work: float | None = None,
        unit: str = "",
        parameters: Mapping[str, Any] | None = None,
        warmup: int = 1,
    ) -> None:
        if count < 1:
            raise TimingError(f"{name}: {count} rounds cannot be timed: 1 at least.")
        self.name, self.count, self.warmup = name, count, warmup
        self.seconds: list[float] = []
        self._device = device or cpu_device()
        self._work, self._unit, self._parameters = work, unit, dict(parameters or {})
        self._meter = _Meter(self._device)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        """Yield 0, 1, … ``count`` - 1, and time what happens in between."""
        self.seconds, self._meter = [], _Meter(self._device)
        wait = self._device.synchronise if self._device.asynchronous else _nothing
        queue, left = _Queue(self.name, self._device), 0.0
        wait()
        self._meter.start()
        for number in range(self.count):
            wait()
            start = _clock()
            yield number
            wait()
            took = _clock() - start
            left += queue.drain()
            self._meter.stop()
            self.seconds.append(took)
            if left > _QUEUE_SHARE * sum(self.seconds) + _LAPS_FLOOR:
                queue.refuse(number + 1, sum(self.seconds), left)

    @property
    def measurement(self) -> Measurement:
        """What was measured; raises ``TimingError`` before a round is at its end."""
        if not self.seconds:
            raise TimingError(f"{self.name}: no round has come to its end yet.")
        warmup = min(self.warmup, len(self.seconds) - 1)
        counted = self.seconds[warmup:]
        energy, sources = self._meter.joules(len(counted), warmup)
        return Measurement(self.name, tuple(counted), self._device, self._work, self._unit, self._parameters, True,
                           warmup, fingerprint=fingerprint(self._device), energy_j=energy,
                           energy_sources=sources)  # fmt: skip


# ============================================================================================================= results


def results_path() -> Path:
    """Return the file of results: ``$NBL_RESULTS``, else ``results.jsonl`` in the working directory."""
    return Path(os.environ.get("NBL_RESULTS") or "results.jsonl")


def record(measurement: Measurement, path: str | Path | None = None) -> dict[str, Any]:
    """Append a measurement to a file of results as one line of JSON, and return it as data.

    The line is on the disk when this returns. Several processes may append to one file. Half a line that a crash has
    left is closed off first, so that it spoils nothing but itself. Raises ``TimingError`` when it cannot be written.
    """
    data = measurement.as_dict()
    line = json.dumps(data, allow_nan=False).encode() + b"\n"
    path = Path(path) if path else results_path()
    try:
        _append(path, line)
    except OSError as error:
        raise TimingError(f"{path}: the result could not be written: {error.strerror or error}.") from error
    return data


def _append(path: Path, line: bytes) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o600)
    try:
        _lock(descriptor)
        if os.fstat(descriptor).st_size:
            os.lseek(descriptor, -1, os.SEEK_END)  # what is written goes to the end all the same
            if os.read(descriptor, 1) != b"\n":
                line = b"\n" + line
        while line:
            line = line[os.write(descriptor, line) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)  # the lock goes with it


def _lock(descriptor: int, patience: float = 10.0) -> None:
    """Keep other writers off; where a file system knows no locks, or one holds it for ever, O_APPEND has to do."""
    until = time.monotonic() + patience
    while fcntl is not None and time.monotonic() < until:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:
            return


class Records(list[dict[str, Any]]):
    """Recorded measurements, oldest first; ``skipped`` is how many lines could not be read."""

    skipped: int = 0


def read_records(path: str | Path | None = None) -> Records:
    """Read a file of results; without the file there are none.

    Lines that are damaged, or of a later version, are left out; a note on stderr says how many.
    """
    path = Path(path) if path else results_path()
    records = Records()
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return records
    except OSError as error:
        raise TimingError(f"{path} cannot be read: {error.strerror or error}.") from error
    for line in filter(bytes.strip, lines):
        if (found := _read_line(line)) is None:
            records.skipped += 1
        else:
            records.append(found)
    if records.skipped:
        some, were = ("1 line", "was") if records.skipped == 1 else (f"{records.skipped} lines", "were")
        print(f"{path}: {some} could not be read, and {were} left out.", file=sys.stderr)
    return records


def _read_line(line: bytes) -> dict[str, Any] | None:
    try:
        data = json.loads(line)
        told = [data[key] for key in ("median", "low", "high")]
        if data["version"] == VERSION and isinstance(data["recorded"], str) and all(map(math.isfinite, told)):
            _revived(data)
            return dict(data)
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, TimingError, RecursionError):
        pass
    return None


def _revived(data: Mapping[str, Any]) -> Measurement:
    """Make a measurement of a recorded line."""
    about = data["device"]
    device = Device(str(about["kind"]), str(about["name"]), str(about["library"]))
    return Measurement(str(data["name"]), tuple(map(float, data["times"])), device, data["work"], str(data["unit"]),
                       dict(data["parameters"]), data["synchronised"] is True, int(data["warmup"]),
                       int(data.get("calls_per_time", 1)), float(data.get("confidence", 0.95)),
                       fingerprint=dict(data["fingerprint"]), **_revived_energy(data))  # fmt: skip


def _revived_energy(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the energy in a recorded line; raises ``ValueError`` for what nobody has recorded."""
    energy, each, sources = (data.get(key) for key in ("energy_j", "energy_j_per_unit", "energy_sources"))
    if any(isinstance(value, bool) or not isinstance(value, (int, float, type(None))) for value in (energy, each)):
        raise ValueError(f"{energy!r}, {each!r}: no energies")
    if each is not None and not math.isclose(each, energy / data["work"], rel_tol=1e-6):
        raise ValueError(f"{each!r} J for each unit of work")
    if not (sources is None or (isinstance(sources, (list, tuple)) and all(name in _METERS for name in sources))):
        raise ValueError(f"{sources!r}: no counters")
    return {"energy_j": None if energy is None else float(energy), "energy_sources": tuple(sources or ())}


# ========================================================================================================== comparison


@dataclass(frozen=True)
class Row:
    """One measurement among others: ``speedup`` is how many times as fast as the baseline it is, ``low`` to ``high``.

    Where there are too few times to tell an interval, ``low`` and ``high`` are nan.
    """

    label: str
    measurement: Measurement
    speedup: float
    low: float
    high: float

    @property
    def differs(self) -> bool | None:
        """Whether it is faster or slower than the baseline beyond doubt; None where that cannot be told."""
        return None if math.isnan(self.low) else not self.low <= 1 <= self.high


@dataclass(frozen=True)
class Comparison:
    """Measurements of the same work, side by side: ``rows``, and the index of the ``baseline`` among them."""

    rows: tuple[Row, ...]
    baseline: int
    confidence: float

    _HEAD = ("", "device", "threads", "time per call", "throughput", "speed-up", "energy")

    def _cells(self) -> list[tuple[str, ...]]:
        """Return the heading and the rows, without columns in which nothing is."""
        cells: list[tuple[str, ...]] = [self._HEAD]
        for index, row in enumerate(self.rows):
            m = row.measurement
            speedup = "1 (baseline)" if index == self.baseline else _factor(row)
            throughput = "" if m.throughput is None else rate(m.throughput, m.unit)
            threads, time_per_call = str(m.fingerprint.get("threads") or ""), duration(m.median, m._spread)
            cells.append((row.label, str(m.device), threads, time_per_call, throughput, speedup, m._energy))
        kept = [column for column in range(len(self._HEAD)) if any(line[column] for line in cells[1:])]
        return [tuple(line[column] for column in kept) for line in cells]

    def table(self) -> str:
        """Return it as a table in plain text, with a note for what a reader has to know."""
        cells = self._cells()
        widths = [max(map(len, column)) for column in zip(*cells)]  # noqa: B905 Python 3.9
        lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
        return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:], "", *self.notes()])

    def notes(self) -> list[str]:
        """Return the sentences below the table: what the numbers are, and what is to be doubted."""
        told = [f"Medians; ± and the ranges are {_percent(self.confidence)} intervals."]
        for row in self.rows:
            m = row.measurement
            if m.covered < m.confidence:
                few = "a single time: no interval" if len(m.times) == 1 else f"only {len(m.times)} times"
                told.append(f"{row.label}: {few}{'' if len(m.times) == 1 else f', so ± covers {_percent(m.covered)}'}.")
            elif not m.narrow:
                wide = f"the interval is wider than ±{_percent(m.precision)}"
                told.append(f"{row.label}: {wide}; more times or a quieter machine would narrow it.")
            if row.differs is False and row is not self.rows[self.baseline]:
                told.append(f"{row.label}: no difference from {self.rows[self.baseline].label} can be told.")
        models = {row.measurement.fingerprint.get("cpu") for row in self.rows} - {None}
        if len(models) > 1:
            told.append(f"The CPUs differ: {', '.join(sorted(map(str, models)))}.")
        return told + self._about_energy()

    def _about_energy(self) -> list[str]:
        """Return the sentences on whose energy it is."""
        counters = list(dict.fromkeys(row.measurement.energy_sources for row in self.rows if row.measurement._energy))
        told = []
        if counters:
            told.append("Energy is the mean of all calls.")
        if any("NVML" in sources for sources in counters):
            told.append("NVML counts the GPUs that the process may use.")
        if any("RAPL" in sources for sources in counters):
            told.append("RAPL counts the processors of the whole node, with what others do there.")
        if len(counters) > 1:
            kinds = ", ".join(" + ".join(each) or "?" for each in counters)
            told.append(f"Not all were measured by the same counters ({kinds}): compare only those that were.")
        return [" ".join(told)] if told else []

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        def line(tag: str, words: Sequence[str]) -> str:
            return "<tr>" + "".join(f'<{tag} style="text-align:left">{html.escape(w)}</{tag}>' for w in words) + "</tr>"

        head, *rows = self._cells()
        body = "".join(line("td", words) for words in rows)
        notes = "<br>".join(html.escape(note) for note in self.notes())
        return f"<table><thead>{line('th', head)}</thead><tbody>{body}</tbody></table><p>{notes}</p>"

    def plot(self, ax: Any = None) -> Any:
        """Draw the medians with their intervals, one line each, and return the axes (matplotlib's).

        The axis is logarithmic where the longest is more than 30 times the shortest.
        """
        if ax is None:
            plt = importlib.import_module("matplotlib.pyplot")
            _, ax = plt.subplots(figsize=(8, 1.2 + 0.45 * len(self.rows)), layout="constrained")
        measured = [row.measurement for row in self.rows]
        scale, unit = _unit(max(m.median for m in measured))
        medians = [m.median / scale for m in measured]
        below = [(m.median - m.low) / scale for m in measured]
        above = [(m.high - m.median) / scale for m in measured]
        places = list(range(len(measured)))
        logarithmic = max(medians) > 30 * min(medians)
        if logarithmic:  # a bar has no beginning there
            ax.errorbar(medians, places, xerr=[below, above], fmt="o", capsize=4)
            ax.set_xscale("log")
            ax.grid(axis="x", alpha=0.3)
        else:
            ax.barh(places, medians, xerr=[below, above], capsize=4, height=0.6, color="#7aa6c2")
        for place, row in enumerate(self.rows):
            text = "baseline" if place == self.baseline else f"{_digits(row.speedup)} ×"
            ax.annotate(
                text, (row.measurement.high / scale, place), xytext=(8, 0), textcoords="offset points", va="center"
            )
        ax.set_yticks(places, [row.label for row in self.rows])
        ax.set_ylim(len(places) - 0.4, -0.6)  # the first one on top
        ax.margins(x=0.25)
        if not logarithmic:
            ax.set_xlim(left=0)
        ax.set_xlabel(f"time per call ({unit}): median, {_percent(self.confidence)} interval; shorter is faster")
        return ax


def compare(*measurements: Any, baseline: int | str = 0, confidence: float = 0.95) -> Comparison:
    """Compare measurements, or recorded lines, or a list of them, with the ``baseline``-th (or the one of that name).

    The interval of a speed-up is that of the quotient of two medians, by bootstrap with a fixed seed. Raises
    ``Unsynchronised`` if a GPU was not waited for in one, ``DifferentWork`` if a call did not do the same work in all.
    """
    if len(measurements) == 1 and isinstance(measurements[0], (list, tuple)):
        measurements = tuple(measurements[0])
    measured = [item if isinstance(item, Measurement) else _from_record(item) for item in measurements]
    if len(measured) < 2:
        raise TimingError(f"To compare takes two measurements at least; there {'is 1' if measured else 'is none'}.")
    index = _baseline(measured, baseline)
    _comparable(measured)
    rows = []
    for label, m in zip(_labels(measured), measured):  # noqa: B905 Python 3.9
        speedup, low, high = _speedup(measured[index].times, m.times, confidence)
        if m is measured[index]:
            low = high = 1.0
        rows.append(Row(label, m, speedup, low, high))
    return Comparison(tuple(rows), index, confidence)


def _from_record(item: Any) -> Measurement:
    try:
        return _revived(item)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise TimingError(f"This is neither a measurement nor a recorded one ({error}).") from None


def _baseline(measured: Sequence[Measurement], wanted: int | str) -> int:
    names = [m.name for m in measured]
    if isinstance(wanted, str) and wanted in names:
        return names.index(wanted)
    if isinstance(wanted, int) and -len(names) <= wanted < len(names):
        return wanted % len(names)
    raise TimingError(f"There is no measurement {wanted!r} to compare with. There are: {', '.join(names)}.")


def _comparable(measured: Sequence[Measurement]) -> None:
    for m in measured:
        if not m.synchronised:
            raise Unsynchronised(
                f"{m.name} was timed without waiting for the {m.device.kind.upper()}, so nobody knows how long it "
                "took. Measure it again with timing.measure(…, device=…)."
            )
    first = measured[0]
    for m in measured[1:]:
        if (m.work, m.unit) != (first.work, first.unit):
            raise DifferentWork(
                f"One call of {first.name} does {_work(first)}, and one of {m.name} {_work(m)}: their times cannot be "
                "compared. Measure the same work in both."
            )


def _work(m: Measurement) -> str:
    return "work that is not told (work=, unit=)" if m.work is None else f"{m.work:g} {m.unit}".strip()


def _labels(measured: Sequence[Measurement]) -> list[str]:
    """Return a label for each: the name, and as much else as tells them apart."""
    labels = [m.name for m in measured]
    keys = sorted({key for m in measured for key in m.parameters})
    extras: list[list[str]] = [
        [m.device.kind.upper() for m in measured],
        [m.device.name for m in measured],
        [f"{m.fingerprint.get('threads') or '?'} threads" for m in measured],
        *([f"{key} {m.parameters.get(key, '–')}" for m in measured] for key in keys),
        [f"job {m.fingerprint.get('job') or '–'}" for m in measured],
    ]
    for extra in extras:
        if len(set(labels)) == len(labels):
            break
        if len(set(extra)) > 1:
            labels = [f"{label}, {more}" for label, more in zip(labels, extra)]  # noqa: B905 Python 3.9
    if len(set(labels)) < len(labels):
        labels = [f"{label} ({number})" for number, label in enumerate(labels, 1)]
    return labels


def _speedup(base: Sequence[float], other: Sequence[float], confidence: float) -> tuple[float, float, float]:
    """Return how many times as fast ``other`` is, and the interval of that.

    Below six times a bootstrap only repeats what little it was given and looks surer than it is: there the extremes are
    taken, and of a single time nothing.
    """
    np = importlib.import_module("numpy")
    speedup = statistics.median(base) / statistics.median(other)
    fewest = min(len(base), len(other))
    if fewest == 1:
        return speedup, math.nan, math.nan
    if fewest < 6:
        return speedup, min(base) / max(other), max(base) / min(other)
    chance = np.random.default_rng(_SEED)
    medians = [np.median(chance.choice(np.asarray(t), (_RESAMPLES, len(t))), axis=1) for t in (base, other)]
    low, high = np.quantile(medians[0] / medians[1], [(1 - confidence) / 2, (1 + confidence) / 2])
    return speedup, float(low), float(high)


# ============================================================================================================= numbers

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def _unit(seconds: float) -> tuple[float, str]:
    # what would be rounded to 1000 of a unit is 1 of the next one
    return next(((scale, unit) for scale, unit in _UNITS if seconds >= 0.9995 * scale), _UNITS[-1])


def duration(seconds: float, spread: float | None = None) -> str:
    """Return seconds as people read them, with as many digits as are known: ``12.3 ms ± 0.4``."""
    scale, unit = _unit(abs(seconds))
    value = seconds / scale
    if not spread:
        return f"{_digits(value)} {unit}"
    error = spread / scale
    places = -math.floor(math.log10(error)) if error > 0 else 2
    if round(error, places) * 10**places < 2:  # ± 0.1 may be a third off: 1 is followed by another digit
        places += 1
    places = min(max(places, 0), 3)
    return f"{value:.{places}f} {unit} ± {error:.{places}f}" if error >= 0.0005 else f"{value:.3f} {unit} ± 0.001"


def _digits(value: float) -> str:
    """Three significant digits, and no power of ten."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    places = 2 - math.floor(math.log10(abs(float(f"{value:.3g}"))))
    return f"{round(value, places):,.{max(places, 0)}f}"


def rate(per_second: float, unit: str = "") -> str:
    """Return work per second as people read it: ``12,300 images/s``, ``1.23 TFLOP/s``."""
    prefix = ""
    if per_second >= 1e6:
        scale, prefix = next(
            pair for pair in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")) if per_second >= pair[0]
        )
        per_second /= scale
    joined = f"{prefix}{unit}" if unit in ("FLOP", "B", "") else f"{prefix} {unit}".strip()
    return f"{_digits(per_second)} {joined}/s"


def joules(energy: float) -> str:
    """Return an energy as people read it: ``14.2 mJ``, ``850 J``, ``1.53 MJ``."""
    scales = ((1e6, "MJ"), (1e3, "kJ"), (1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"), (1e-9, "nJ"))
    scale, unit = next((pair for pair in scales if energy >= 0.9995 * pair[0]), scales[-1] if energy else scales[2])
    return f"{_digits(energy / scale)} {unit}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _factor(row: Row) -> str:
    if math.isnan(row.low):
        return f"{_digits(row.speedup)} (one time: no interval)"
    return f"{_digits(row.speedup)} ({_digits(row.low)} to {_digits(row.high)})"
