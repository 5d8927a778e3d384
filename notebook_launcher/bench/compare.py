"""Parses and compares the records of runs (JSON Lines of ``notebooks/timing.py``). Pure: text in, data out.

Records are not trusted: a notebook wrote them, and anybody may have written the notebook.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from statistics import median

from notebook_launcher.bench.run_usage import RunUsage
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.text import one_line

CONFIDENCE = 0.95
_RESAMPLES = 2000
FEWEST = 6  # times for a bootstrap: with fewer, the interval would look more certain than it is
_SHORTEST, _LONGEST_TIME = 1e-18, 1e18  # seconds; no measurement is outside, and quotients of such values may overflow
_MOST_TIMES = 400  # of one result that are resampled; if there are more, this many evenly spaced ones
_LONGEST_NAME = 120  # characters of a name
_LONGEST_LABEL = 160  # characters of a name with its parameters
_PER_RUN = frozenset({"job", "job_id", "host", "node"})  # entries of a fingerprint that differ in every run

UNSYNCHRONISED = "not synchronised: the clock may have stopped before the device had done its work"


class Result(Frozen):
    """One measurement in a run's record. Times in seconds per call; ``low`` and ``high``: the interval of the median.

    ``confidence``: the requested confidence of the interval, ``covered`` the actual one, ``narrow`` whether the
    interval is as narrow as requested; ``None``: not recorded. ``work``: units of ``unit`` per call, ``throughput``:
    per second. ``energy``: joules per call, ``energy_per_unit``: joules per unit of work. ``fingerprint``:
    the software and hardware, as a flat mapping.
    """

    name: str
    median: float
    low: float | None = None
    high: float | None = None
    times: tuple[float, ...] = ()
    confidence: float | None = None
    covered: float | None = None
    narrow: bool | None = None
    work: float | None = None
    unit: str = ""
    throughput: float | None = None
    energy: float | None = None
    energy_per_unit: float | None = None
    synchronised: bool = False
    warmup: int | None = None
    device: str = ""
    device_kind: str = ""
    parameters: tuple[tuple[str, str], ...] = ()
    recorded: str = ""
    fingerprint: Mapping[str, str] = field(default_factory=dict)


class Recording(Frozen):
    """The results of one run, and how many lines of its file were damaged."""

    results: tuple[Result, ...] = ()
    damaged: int = 0


def read_recording(text: str) -> Recording:
    """Parse JSON Lines; lines that are not measurements are counted as damaged and skipped."""
    results, damaged = [], 0
    for line in text.split("\n"):
        if not line.strip():
            continue
        try:
            results.append(_result(json.loads(line)))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            damaged += 1
    return Recording(tuple(results), damaged)


def _result(data: object) -> Result:
    """Parse a measurement. Raises ``ValueError``, ``TypeError`` or ``KeyError`` if it is invalid."""
    if not isinstance(data, dict):
        raise TypeError
    recorded, times = data.get("device"), data.get("times")
    device = recorded if isinstance(recorded, dict) else {}
    median, seconds = _time(data["median"]), tuple(map(_time, times)) if isinstance(times, list) else ()
    low, high = (None if data.get(end) is None else _time(data[end]) for end in ("low", "high"))
    if low is None or high is None or len(seconds) < 2 or not low <= median <= high:
        low = high = None  # a single time has no variation
    return Result(
        name=_text(data["name"]) or "a measurement without a name",
        median=median,
        low=low,
        high=high,
        times=seconds,
        confidence=_share(data.get("confidence")),
        covered=_share(data.get("covered")),
        narrow=data["narrow"] if isinstance(data.get("narrow"), bool) else None,
        work=_maybe(data.get("work")),
        unit=_text(data.get("unit") or ""),
        throughput=_maybe(data.get("throughput")),
        energy=_joules(data.get("energy_j")),
        energy_per_unit=_joules(data.get("energy_j_per_unit")),
        synchronised=data.get("synchronised") is True,
        warmup=data["warmup"] if type(data.get("warmup")) is int else None,
        device=_text(device.get("name") or ""),
        device_kind=_text(device.get("kind") or ""),
        parameters=tuple(sorted(_flat(data.get("parameters")).items())),
        recorded=_text(data.get("recorded") or ""),
        fingerprint=_flat(data.get("fingerprint")),
    )


def _positive(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value > 0):
        raise ValueError
    return float(value)


def _time(value: object) -> float:
    seconds = _positive(value)
    if not _SHORTEST <= seconds <= _LONGEST_TIME:
        raise ValueError
    return seconds


def _share(value: object) -> float | None:
    """Return a probability; ``None`` for anything else."""
    is_one = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    return float(value) if is_one else None  # type: ignore[arg-type]


def _maybe(value: object) -> float | None:
    return None if value is None else _positive(value)


def _joules(value: object) -> float | None:
    """Return an energy; ``None`` for anything else, because the time recorded with it is still valid."""
    try:
        return _positive(value)
    except (ValueError, OverflowError):
        return None


def _text(value: object) -> str:
    """Return a value as a short text on one line, without control characters."""
    return one_line(str(value), _LONGEST_NAME)


def _flat(data: object, before: str = "", depth: int = 3) -> dict[str, str]:
    """Return a mapping of texts, with keys such as ``library.torch`` for nested values; empty for anything else."""
    found: dict[str, str] = {}
    for key, value in list(data.items())[:200] if isinstance(data, dict) else ():
        name = _text(f"{before}{key}")
        if isinstance(value, dict) and depth:
            found |= _flat(value, f"{name}.", depth - 1)
        elif value is not None and value != "":
            found[name] = _text(", ".join(map(str, value)) if isinstance(value, list) else value)
    return found


# --- compared -----------------------------------------------------------------------------------------------------


class CombinationRun(Frozen):
    """One combination for a report: its name, its axes, and its results.

    ``state``: done, failed, running, waiting. ``why``: how it failed, in a sentence. ``queued``: seconds in the queue.
    ``image``: the digest of its container image. ``shown``: its name without what all combinations share. ``use``: the
    resources that the whole run used.
    """

    name: str
    values: tuple[tuple[str, str], ...]
    state: str
    recording: Recording = Recording()
    why: str = ""
    queued: float | None = None
    image: str = ""
    session: str = ""
    job: str = ""
    shown: str = ""
    use: RunUsage = RunUsage()


class Speedup(Frozen):
    """How many times as fast as ``against``; ``low`` and ``high``: its interval, ``None`` if there is none."""

    ratio: float
    low: float | None
    high: float | None
    against: str


class Row(Frozen):
    """One result of one combination. ``label``: identifies the result, and is the same in all combinations.

    ``speedup``: ``None`` for the baseline, or if the result is not compared; then ``note`` says why.
    """

    ran: CombinationRun
    label: str
    result: Result
    speedup: Speedup | None = None
    baseline: bool = False
    note: str = ""


def shared_by_all(runs: Sequence[CombinationRun]) -> list[tuple[str, str]]:
    """Return the axes that have a single value, with that value; nothing if there is only one combination."""
    if len(runs) < 2:
        return []
    return [pair for pair in runs[0].values if all(pair in ran.values for ran in runs)]


def with_shown_names(runs: Sequence[CombinationRun]) -> list[CombinationRun]:
    """Return the combinations with names that distinguish them, and no longer than necessary."""
    shared = {name for name, _ in shared_by_all(runs)}
    return [replace(ran, shown=_without(ran, shared)) for ran in runs]


def _without(ran: CombinationRun, shared: set[str]) -> str:
    # as written in the combination's name, where a value may be quoted
    parts = {name: f"{name}={value}" for name, value in ran.values}
    return " ".join(part for name, part in parts.items() if name not in shared) or ran.name


def compared(runs: Sequence[CombinationRun], baseline: str = "") -> list[Row]:
    """Return a row for each result, in the runs' order, compared with the baseline among those of the same label.

    ``baseline``: a combination's name; if it is empty, or that combination has no such result, the first one that has.
    Results that were not synchronised are not compared. A result with a different amount of work is compared with the
    first of the same amount. The note also gives reasons to doubt a result itself.
    """
    of_runs = _of_runs(runs)
    varied = {name for ran in runs for name, _ in ran.values} | of_runs
    rows = [Row(ran, label, result) for ran in runs for label, result in _labelled(ran.recording.results, varied, runs)]
    ordered = sorted(rows, key=lambda row: row.ran.name != baseline)
    first: dict[tuple[str, float | None, str], Row] = {}
    main: dict[str, Row] = {}
    for row in ordered:
        if row.result.synchronised:
            first.setdefault((row.label, row.result.work, row.result.unit), row)
            main.setdefault(row.label, row)
    return [_with_notes(_compared(row, first, main), of_runs) for row in rows]


def _of_runs(runs: Sequence[CombinationRun]) -> set[str]:
    """Return the parameters that are constant within each run, but differ between runs.

    They follow from what the matrix varies (such as threads from cores), and do not distinguish results.
    """
    found: dict[str, list[set[str]]] = {}
    for ran in runs:
        values: dict[str, set[str]] = {}
        for name, value in (pair for result in ran.recording.results for pair in result.parameters):
            values.setdefault(name, set()).add(value)
        for name, some in values.items():
            found.setdefault(name, []).append(some)
    varied = {name for ran in runs for name, _ in ran.values}
    return {
        name
        for name, sets in found.items()
        if name not in varied and all(len(one) == 1 for one in sets) and len(set.union(*sets)) > 1
    }


def _with_notes(row: Row, of_runs: set[str]) -> Row:
    parameters = ", ".join(f"{name}={value}" for name, value in row.result.parameters if name in of_runs)
    notes = (row.note, *_caveats(row.result), _other_cores(row), parameters)
    return replace(row, note="; ".join(filter(None, notes)))


def _other_cores(row: Row) -> str:
    had = cores_instead(row)
    cores = "core was" if had == "1" else "cores were"
    return had and f"warning: {had} {cores} allotted, not the {dict(row.ran.values)['cores']} of its name"


def cores_instead(row: Row) -> str:
    """Return how many cores a result had if that differs from the axis' value; "" otherwise, or if not recorded."""
    requested, had = dict(row.ran.values).get("cores"), row.result.fingerprint.get("cores_allotted", "")
    return had if requested and had.isdecimal() and had.isascii() and int(had) != int(requested) else ""


def _caveats(result: Result) -> list[str]:
    """Return reasons why an interval may be misleading."""
    if len(result.times) == 1:
        return ["measured once: how much it varies is not known"]
    if result.low is None:
        return []
    if result.covered is not None and result.confidence is not None and result.covered < result.confidence:
        return [f"few repeats: its interval is {100 * result.covered:.3g} % sure, not {100 * result.confidence:.3g} %"]
    return ["its interval is wider than was asked for"] if result.narrow is False else []


def _compared(row: Row, first: Mapping[tuple[str, float | None, str], Row], main: Mapping[str, Row]) -> Row:
    result = row.result
    if not result.synchronised:
        return replace(row, note=UNSYNCHRONISED)
    against, chief = first[row.label, result.work, result.unit], main[row.label]
    note = ""
    if against is not chief:
        with_what = (
            "a baseline of its own" if against is row else f"compared with “{against.ran.shown or against.ran.name}”"
        )
        note = f"other work than the baseline ({_work(result)}, not {_work(chief.result)}): {with_what}"
    if against is row:
        return replace(row, baseline=True, note=note)
    return replace(row, speedup=speedup(against.result, result, against.ran.name), note=note)


def _work(result: Result) -> str:
    return "work not given" if result.work is None else f"{result.work:g} {result.unit}".strip()


def _labelled(results: Sequence[Result], varied: set[str], runs: Sequence[CombinationRun]) -> list[tuple[str, Result]]:
    """Return each result with a label that identifies it within its run, without what the matrix varies."""
    several = _several_devices(runs, varied)
    counts: dict[str, int] = {}
    found = []
    for result in results:
        label = _base_label(result, varied)
        if label in several and result.device_kind:
            label = f"{label} on {result.device_kind}"
        counts[label] = counts.get(label, 0) + 1
        found.append((label if counts[label] == 1 else f"{label}, again ({counts[label]})", result))
    return found


def _base_label(result: Result, varied: set[str]) -> str:
    parameters = ", ".join(f"{name}={value}" for name, value in result.parameters if name not in varied)
    label = f"{result.name} ({parameters})" if parameters else result.name
    if len(label) <= _LONGEST_LABEL:
        return label
    digest = hashlib.sha256(label.encode(errors="replace")).hexdigest()[:6]  # for labels with the same beginning
    return f"{label[: _LONGEST_LABEL - 8]}… {digest}"


def _several_devices(runs: Sequence[CombinationRun], varied: set[str]) -> set[str]:
    """Return the labels that one run has for more than one kind of device."""
    found = set()
    for ran in runs:
        kinds: dict[str, set[str]] = {}
        for result in ran.recording.results:
            kinds.setdefault(_base_label(result, varied), set()).add(result.device_kind)
        found |= {label for label, some in kinds.items() if len(some) > 1}
    return found


def speedup(before: Result, now: Result, against: str) -> Speedup:
    """Return how many times as fast a result is as another one, by the medians, with the interval of that ratio.

    The interval comes from a bootstrap; with fewer than ``FEWEST`` times it extends to the extremes of both, and for a
    single time there is none. The same times always give the same interval.
    """
    ratio = before.median / now.median
    fewest = min(len(before.times), len(now.times))
    if fewest < 2:
        return Speedup(ratio, None, None, against)
    if fewest < FEWEST:
        low, high = min(before.times) / max(now.times), max(before.times) / min(now.times)
        return Speedup(ratio, min(low, ratio), max(high, ratio), against)
    low, high = _interval_of_ratio(_some(before.times), _some(now.times))
    return Speedup(ratio, min(low, ratio), max(high, ratio), against)


@functools.lru_cache(maxsize=1000)  # a report with all runs so far is made after each run
def _interval_of_ratio(one: tuple[float, ...], other: tuple[float, ...]) -> tuple[float, float]:
    chance = random.Random(7)  # noqa: S311 (no secret)
    ratios = sorted(
        median(chance.choices(one, k=len(one))) / median(chance.choices(other, k=len(other))) for _ in range(_RESAMPLES)
    )
    outside = round((1 - CONFIDENCE) / 2 * _RESAMPLES)
    return ratios[outside], ratios[-1 - outside]


def _some(times: Sequence[float]) -> tuple[float, ...]:
    step = max(1.0, len(times) / _MOST_TIMES)
    return tuple(times[int(place * step)] for place in range(min(len(times), _MOST_TIMES)))


# --- fingerprints -------------------------------------------------------------------------------------------------


class Fingerprints(Frozen):
    """Fingerprint values that all results share (``same``), and those that differ: a row for each combination."""

    same: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


def fingerprints(runs: Sequence[CombinationRun]) -> Fingerprints:
    """Return the fingerprints of all results: what is the same, and what differs, by combination."""
    by_run = {
        ran.shown or ran.name: _of_run(ran)
        for ran in runs
        if any(result.fingerprint for result in ran.recording.results)
    }
    names = list(
        dict.fromkeys(name for fingerprint in by_run.values() for name in fingerprint if not _is_ours_alone(name))
    )
    same: list[str] = []
    differing: list[str] = []
    for name in names:
        values = {fingerprint.get(name, "–") for fingerprint in by_run.values()}
        (same if len(values) == 1 else differing).append(name)
    first = next(iter(by_run.values()), {})
    return Fingerprints(
        tuple((name, first[name]) for name in same),
        tuple(differing),
        tuple(
            (run, tuple(fingerprint.get(name, "–") for name in differing))
            for run, fingerprint in by_run.items()
            if differing
        ),
    )


def _of_run(ran: CombinationRun) -> dict[str, str]:
    """Return a run's fingerprint; if its results differ, both values are given."""
    found: dict[str, list[str]] = {}
    for result in ran.recording.results:
        for name, value in result.fingerprint.items():
            if value not in found.setdefault(name, []):
                found[name].append(value)
    return {name: " / ".join(values) for name, values in found.items()}


def _is_ours_alone(name: str) -> bool:
    return name.rpartition(".")[2] in _PER_RUN
