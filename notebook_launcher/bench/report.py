"""The report of a bench: its numbers as they are shown, and its tables. Pure: ``report_files`` writes it.

``conclusion`` sums up the outcome; ``report_forms`` renders all of it as HTML, Markdown and CSV.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from notebook_launcher.bench.compare import (
    CONFIDENCE,
    FEWEST,
    CombinationRun,
    Fingerprints,
    Row,
    compared,
    fingerprints,
    shared_by_all,
    with_shown_names,
)
from notebook_launcher.bench.fastest import Fastest, fastest_of_each
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.quantities import amount, gigabytes, measured_wait, three_digits
from notebook_launcher.core.text import joined

_SCALES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_JOULES = ((1e6, "MJ"), (1e3, "kJ"), (1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"))
NOTHING = "–"
_DIGEST = 12  # digits of a digest that are shown; CSV has all
_SHORT = 15.0  # seconds: a shorter run may end before the first sample is taken
_SAMPLED = "one every 5 s, or as the profile's usage_seconds says"
TO_RECORD = 'timing.measure(lambda: train(), name="train").record()'


class Plot(Frozen):
    """One plot: what it shows, and its picture as SVG. ``name``: of its file, without a suffix.

    ``narrow``: the same for a narrow screen.
    """

    name: str
    title: str
    svg: str
    narrow: str


class Report(Frozen):
    """Everything that a report contains. ``made``: when it was made; ``command``: the command that made it."""

    notebook: str
    matrix: str
    command: str
    made: str
    runs: tuple[CombinationRun, ...]
    rows: tuple[Row, ...]
    prints: Fingerprints
    fastest: tuple[Fastest, ...]
    plots: tuple[Plot, ...] = ()

    @property
    def damaged(self) -> int:
        """How many lines in all files could not be read as a result."""
        return sum(ran.recording.damaged for ran in self.runs)

    @property
    def records_nothing(self) -> bool:
        """Whether runs are done and none of them has recorded anything, not even unreadable lines."""
        return not self.rows and not self.damaged and any(ran.state == "done" for ran in self.runs)


def make_report(
    notebook: str, matrix: str, command: str, made: str, runs: Sequence[CombinationRun], baseline: str = ""
) -> Report:
    """Return the report of these combinations, still without plots."""
    runs = with_shown_names(runs)
    rows = tuple(compared(runs, baseline))
    best = tuple(fastest_of_each(rows))
    return Report(notebook, matrix, command, made, tuple(runs), rows, fingerprints(runs), best)


# --- numbers as they are shown ------------------------------------------------------------------------------------


def unit_for(value: float) -> tuple[float, str]:
    """Return the unit in which to show a time, and its seconds. It suits the rounded time: 1.00 s, not 1 000 ms."""
    return next((one for one in _SCALES if value >= 0.9995 * one[0]), _SCALES[-1])


def seconds(value: float | None) -> str:
    """Return a time with three digits and its unit: ``12.3 ms``."""
    if value is None:
        return NOTHING
    scale, unit = unit_for(value)
    return f"{three_digits(value / scale)} {unit}"


def interval(low: float | None, high: float | None) -> str:
    """Return an interval in one unit: ``12.1 – 12.6 ms``."""
    if low is None or high is None:
        return NOTHING
    scale, unit = unit_for(high)
    return f"{three_digits(low / scale)} – {three_digits(high / scale)} {unit}"


def rate(row: Row) -> str:
    """Return the throughput: ``48 200 images/s``."""
    value = row.result.throughput
    return NOTHING if value is None else f"{three_digits(value)} {row.result.unit}/s".replace(" /s", "/s")


def energy(row: Row) -> str:
    """Return the energy of each unit of work, or of a call: ``1.17 mJ/images``, ``35.2 J per call``."""
    result = row.result
    if result.energy_per_unit is not None:
        per = f"/{result.unit}" if result.unit else " per unit of work"  # written as timing.py does
        return f"{_joules(result.energy_per_unit)}{per}"
    return NOTHING if result.energy is None else f"{_joules(result.energy)} per call"


def _joules(value: float) -> str:
    scale, unit = next((one for one in _JOULES if value >= 0.9995 * one[0]), _JOULES[-1])
    return f"{three_digits(value / scale)} {unit}"


def times_as_quick(row: Row) -> str:
    """Return the speed-up with its interval, or that this is the baseline."""
    if row.baseline:
        return "baseline"
    found = row.speedup
    if found is None:
        return "not compared"
    if found.low is None or found.high is None:
        return f"{three_digits(found.ratio)}×"
    return f"{three_digits(found.ratio)}× ({three_digits(found.low)} – {three_digits(found.high)})"


def waited(value: float | None) -> str:
    """Return a duration, in the queue or of a run, as text."""
    return NOTHING if value is None else measured_wait(value)


def digest(image: str) -> str:
    """Return the beginning of an image's digest."""
    return image.removeprefix("sha256:")[:_DIGEST] or NOTHING


# --- sentences ----------------------------------------------------------------------------------------------------


def how_measured(report: Report) -> list[str]:
    """Return sentences on how the numbers were measured, as far as that is recorded."""
    results = [row.result for row in report.rows]
    if not results:
        return ["Nothing was measured."]
    repeats = sorted(len(result.times) for result in results)
    warmups = sorted({result.warmup for result in results if result.warmup is not None})
    synchronised = sum(result.synchronised for result in results)
    warmup = "not known" if not warmups else " to ".join(dict.fromkeys((str(warmups[0]), str(warmups[-1]))))
    counts = " to ".join(dict.fromkeys((str(repeats[0]), str(repeats[-1]))))
    sentences = [
        "A time is that of one call, measured once" + f"; calls before it to warm up: {warmup}."
        if counts == "1"
        else f"A time is the median of {counts} repeats; repeats before them to warm up: {warmup}.",
        "The interval is that of the median, as the notebook has recorded it; of a single time there is none.",
        f"A speed-up is the baseline's median over the result's; its interval ({CONFIDENCE:.0%}) is a bootstrap of "
        f"both, from {FEWEST} repeats on; with fewer it reaches as far as the extremes of both do.",
        "The device had done its work whenever the clock was read (synchronised)."
        if synchronised == len(results)
        else f"{len(results) - synchronised} of {len(results)} results were not synchronised with their device, and "
        "are compared with nothing.",
    ]
    if report.damaged:
        sentences.append(f"{unread(report.damaged)}, and {'is' if report.damaged == 1 else 'are'} left out.")
    return sentences


def unread(damaged: int) -> str:
    """Return how many lines are not valid results, as the beginning of a sentence."""
    return f"{'One line' if damaged == 1 else f'{damaged} lines'} of the recorded results could not be read"


def summary(report: Report) -> str:
    """Return a sentence on how many combinations are in each state."""
    states = [ran.state for ran in report.runs]
    names_of_states = (
        ("done", "done"),
        ("failed", "failed"),
        ("running", "running"),
        ("not fetched", "not fetched"),
        ("waiting", "not run yet"),
    )
    counts = [f"{states.count(state)} {word}" for state, word in names_of_states if state in states]
    combinations = "one combination" if len(states) == 1 else f"{len(states)} combinations"
    return f"{combinations}: {', '.join(counts)}"


def shared(report: Report) -> str:
    """Return what is the same in all combinations; "" if nothing is."""
    return " ".join(f"{name}={value}" for name, value in shared_by_all(report.runs))


# --- tables, for HTML and Markdown ----------------------------------------------------------------------------------


class Line(Frozen):
    """One line of a table, with a cell for each heading. ``state``: of its combination; ``note``: a remark on it.

    ``group``: its result; lines of the same group can be compared. ``best``: whether it is certainly faster than all
    others of its group.
    """

    cells: tuple[str, ...]
    state: str
    note: str = ""
    group: str = ""
    best: bool = False


class Table(Frozen):
    """Lines below headings. ``same``: columns with a single value, and that value; ``note``: a remark on all lines."""

    headings: tuple[str, ...]
    lines: tuple[Line, ...]
    same: tuple[tuple[str, str], ...] = ()
    note: str = ""

    def groups(self) -> Iterator[tuple[str, list[Line]]]:
        """Yield each group with its lines, which are consecutive."""
        found: dict[str, list[Line]] = {}
        for line in self.lines:
            found.setdefault(line.group, []).append(line)
        yield from found.items()


HEADINGS = ("combination", "result", "median", "interval", "throughput", "speed-up", "energy")
RUN_HEADINGS = (
    "combination",
    "state",
    "in queue",
    "run time",
    "CPU cores",
    "memory",
    "GPU use",
    "GPU memory",
    "GPU energy",
    "image",
)


def lines(report: Report) -> list[Line]:
    """Return the lines of the results, each with all ``HEADINGS``; comparable ones are next to each other."""
    found: dict[str, list[Line]] = {}
    best = [one.row for one in report.fastest if one.is_sure]
    for row in report.rows:
        result = row.result
        numbers = (seconds(result.median), interval(result.low, result.high), rate(row), times_as_quick(row))
        cells = (row.ran.shown, row.label, *numbers, energy(row))
        line = Line(cells, row.ran.state, row.note, row.label, any(row is one for one in best))
        found.setdefault(row.label, []).append(line)
    return [line for group in found.values() for line in group]


def run_lines(report: Report) -> list[Line]:
    """Return the lines of the runs, each with all ``RUN_HEADINGS``."""
    found = []
    for ran in report.runs:
        use = ran.use
        cells = (
            ran.shown,
            ran.state,
            waited(ran.queued),
            waited(use.wall),
            NOTHING if use.cores is None else f"{use.cores:.1f}",
            _memory(use.memory_peak),
            NOTHING if use.gpu_percent is None else f"{use.gpu_percent:.0f} %",
            _memory(use.gpu_memory_peak),
            NOTHING if use.watt_hours is None else f"{amount(use.watt_hours)} Wh",
            digest(ran.image),
        )
        of_recording = _of_recording(ran) if report.rows else ""
        found.append(Line(cells, ran.state, joined(ran.why, of_recording, _of_samples(ran))))
    return found


def _of_samples(ran: CombinationRun) -> str:
    """Return why the CPU and memory use of a completed run is unknown; "" if it is known."""
    use = ran.use
    if ran.state != "done" or use.wall is None or use.cores is not None or use.memory_peak is not None:
        return ""
    short = f", because the run was short ({_SAMPLED})" if use.wall < _SHORT else ""
    return f"CPU and memory are not known: no sample was taken{short}."


def _of_recording(ran: CombinationRun) -> str:
    """Return a remark if a run's results are damaged or missing, although other runs have some."""
    if ran.recording.damaged:
        return f"{unread(ran.recording.damaged)}."
    return "It has recorded no results." if ran.state == "done" and not ran.recording.results else ""


def _memory(mib: float | None) -> str:
    return NOTHING if mib is None else f"{gigabytes(mib)} GiB"


def results_table(report: Report) -> Table:
    """Return the table of results; the column ``result`` has the name of the group."""
    return folded(HEADINGS, lines(report), keep=("combination", "median", "speed-up"))


def runs_table(report: Report) -> Table:
    """Return the table of the runs: how each ended, and what it used."""
    return folded(RUN_HEADINGS, run_lines(report), keep=("combination", "run time"))


def folded(headings: Sequence[str], found: Sequence[Line], keep: Sequence[str]) -> Table:
    """Return a table without columns that are empty or never vary; a value that never varies is given once."""
    same: list[tuple[str, str]] = []
    places = []
    for place, heading in enumerate(headings):
        values = {line.cells[place] for line in found}
        if heading in keep or len(values) > 1 or (len(found) == 1 and values != {NOTHING} and heading != "result"):
            places.append(place)
        elif found and values != {NOTHING}:
            same.append((heading, values.pop()))
    notes = {line.note for line in found}
    note = notes.pop() if len(found) > 1 and len(notes) == 1 else ""
    kept = [
        Line(tuple(line.cells[place] for place in places), line.state, "" if note else line.note, line.group, line.best)
        for line in found
    ]
    return Table(tuple(headings[place] for place in places), tuple(kept), tuple(same), note)
