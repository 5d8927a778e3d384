"""The report of a bench as texts: one HTML file that needs no network, Markdown, CSV. Pure: it is written elsewhere.

Names come out of notebooks and from the cluster: in HTML a template escapes all of them, in Markdown and CSV we do.
"""

from __future__ import annotations

import base64
import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

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
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.quantities import measured_wait, three_digits
from notebook_launcher.core.text import printable

_SCALES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_NOTHING = "–"
_DIGEST = 12  # digits of a digest that are shown; CSV has all


class Plot(Frozen):
    """One plot: what it shows, and its picture as SVG and PNG. ``name``: of its file, without an ending."""

    name: str
    title: str
    svg: bytes
    png: bytes


class Report(Frozen):
    """All that a report contains. ``made``: when, ``command``: by what; ``missing``: why there are no plots."""

    notebook: str
    matrix: str
    command: str
    made: str
    runs: tuple[CombinationRun, ...]
    rows: tuple[Row, ...]
    prints: Fingerprints
    plots: tuple[Plot, ...] = ()
    missing: str = ""

    @property
    def damaged(self) -> int:
        """How many lines of all files could not be read as a result."""
        return sum(ran.recording.damaged for ran in self.runs)


def make_report(
    notebook: str, matrix: str, command: str, made: str, runs: Sequence[CombinationRun], baseline: str = ""
) -> Report:
    """Return the report of these combinations, without plots yet."""
    runs = with_shown_names(runs)
    return Report(notebook, matrix, command, made, tuple(runs), tuple(compared(runs, baseline)), fingerprints(runs))


# --- numbers as they are shown ------------------------------------------------------------------------------------


def seconds(value: float | None) -> str:
    """Return a time with three digits and its unit: ``12.3 ms``."""
    if value is None:
        return _NOTHING
    scale, unit = next((one for one in _SCALES if value >= 0.9995 * one[0]), _SCALES[-1])
    return f"{three_digits(value / scale)} {unit}"


def interval(low: float | None, high: float | None) -> str:
    """Return an interval in one unit: ``12.1 – 12.6 ms``."""
    if low is None or high is None:
        return _NOTHING
    scale, unit = next((one for one in _SCALES if high >= 0.9995 * one[0]), _SCALES[-1])
    return f"{three_digits(low / scale)} – {three_digits(high / scale)} {unit}"


def rate(row: Row) -> str:
    """Return the throughput: ``48 200 images/s``."""
    value = row.result.throughput
    return _NOTHING if value is None else f"{three_digits(value)} {row.result.unit}/s".replace(" /s", "/s")


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
    """Return how long a combination was in the queue."""
    return _NOTHING if value is None else measured_wait(value)


def how_measured(report: Report) -> list[str]:
    """Return in sentences how the numbers came about, as far as they tell."""
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
        lines = "One line" if report.damaged == 1 else f"{report.damaged} lines"
        sentences.append(f"{lines} of the recorded results could not be read, and {_is(report.damaged)} left out.")
    return sentences


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def summary(report: Report) -> str:
    """Return in a sentence how many combinations came to what."""
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
    """Return what is the same in all combinations, "" for nothing."""
    return " ".join(f"{name}={value}" for name, value in shared_by_all(report.runs))


# --- one table for all forms --------------------------------------------------------------------------------------

HEADINGS = ("combination", "result", "median", "interval", "throughput", "speed-up", "in queue", "image", "state")


class Line(Frozen):
    """One line of the table: a cell for each of ``HEADINGS``; ``note``: what else is to be said of it."""

    cells: tuple[str, ...]
    state: str
    note: str = ""


def lines(report: Report) -> list[Line]:
    """Return the table's lines: of each combination its results, or that there is none."""
    found = []
    for ran in report.runs:
        rows = [row for row in report.rows if row.ran is ran]
        about = (waited(ran.queued), digest(ran.image), ran.state)
        for row in rows:
            result = row.result
            numbers = (seconds(result.median), interval(result.low, result.high), rate(row), times_as_quick(row))
            note = "; ".join(filter(None, (row.note, ran.why)))
            found.append(Line((ran.shown, row.label, *numbers, *about), ran.state, note))
        if not rows:
            why = ran.why or ("It has recorded no results." if ran.state == "done" else "")
            found.append(Line((ran.shown, *[_NOTHING] * 5, *about), ran.state, why))
    return found


def digest(image: str) -> str:
    """Return the beginning of an image's digest."""
    return image.removeprefix("sha256:")[:_DIGEST] or _NOTHING


# --- HTML ---------------------------------------------------------------------------------------------------------


def as_html(report: Report) -> str:
    """Return one page with all that belongs to it; a browser asks nobody for anything."""
    import jinja2

    source = (Path(__file__).parent / "report.html.jinja").read_text(encoding="utf-8")
    # undefined names are a bug of ours, and no empty word in a report
    engine = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    pictures = [(plot.title, base64.b64encode(plot.svg).decode()) for plot in report.plots]
    return engine.from_string(source).render(
        report=report,
        summary=summary(report),
        headings=HEADINGS,
        lines=lines(report),
        pictures=pictures,
        measured=how_measured(report),
        failed=[ran for ran in report.runs if ran.state == "failed"],
        prints=report.prints,
        shared=shared(report),
    )


# --- Markdown -----------------------------------------------------------------------------------------------------


def as_markdown(report: Report, folder: str) -> str:
    """Return the same as Markdown. ``folder``: where the plots lie beside it, as PNG."""
    return "\n".join(_markdown(report, folder)) + "\n"


def _markdown(report: Report, folder: str) -> Iterator[str]:
    yield from (f"# {_plain(report.notebook)}, measured", "", f"{_plain(summary(report).capitalize())}.", "")
    if failed := [ran for ran in report.runs if ran.state == "failed"]:
        yield from ("## What failed", "")
        yield from (f"- **{_plain(ran.shown)}**: {_plain(ran.why)}" for ran in failed)
        yield ""
    yield from ("## Results", "")
    if shared(report):
        yield from (f"The same for all: {_code(shared(report))}", "")
    rows = lines(report)
    yield from _table((*HEADINGS, "note"), [(*line.cells, line.note) for line in rows])
    for plot in report.plots:
        yield from ("", f"![{_plain(plot.title)}]({folder}/{plot.name}.png)")
    if report.missing:
        yield from ("", report.missing)  # a sentence of ours, with a command to be copied
    yield from ("", "## How it was measured", "", *(f"- {_plain(sentence)}" for sentence in how_measured(report)), "")
    yield from ("## What it ran on", "")
    yield from _table(("the same for all", ""), report.prints.same)
    if report.prints.rows:
        yield ""
        yield from _table(("combination", *report.prints.columns), [(name, *row) for name, row in report.prints.rows])
    yield from ("", "## Made", "", f"{_plain(report.made)}, of the matrix {_code(report.matrix)} by", "")
    yield from (f"    {' '.join(printable(report.command).split())}", "")  # a second line would be none of the code


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(map(_plain, headings))} |"
    yield f"|{' --- |' * len(headings)}"
    yield from (f"| {' | '.join(map(_plain, row))} |" for row in rows)


def _plain(text: str) -> str:
    """Return text that no reader of Markdown takes for markup, HTML or the end of a cell."""
    return re.sub(r"([\\`*_\[\]<>|#~!$&])", r"\\\1", " ".join(printable(text).split()))


def _code(text: str) -> str:
    """Return text as code, in more backticks than it has of its own."""
    text = " ".join(printable(text).split())
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence} {text} {fence}" if "`" in text or not text else f"{fence}{text}{fence}"


# --- CSV ----------------------------------------------------------------------------------------------------------

_CSV = (
    "combination",
    "state",
    "why",
    "result",
    "median_s",
    "low_s",
    "high_s",
    "repeats",
    "warmup",
    "work",
    "unit",
    "throughput_per_s",
    "synchronised",
    "device",
    "speedup",
    "speedup_low",
    "speedup_high",
    "against",
    "note",
    "queued_s",
    "image",
    "session",
    "job",
    "recorded",
)


def as_csv(report: Report) -> str:
    """Return a row for each result, and one for each combination without any; a column for each axis comes last."""
    axes = list(dict.fromkeys(name for ran in report.runs for name, _ in ran.values))
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*_CSV, *map(_cell, axes)])
    for ran in report.runs:
        rows: list[Row | None] = [row for row in report.rows if row.ran is ran]
        for row in rows or [None]:
            columns = {
                "combination": ran.name,
                "state": ran.state,
                "why": ran.why,
                "queued_s": ran.queued,
                "image": ran.image,
                "session": ran.session,
                "job": ran.job,
                **_of_row(row),
            }
            values = dict(ran.values)
            table.writerow([_cell(columns.get(name)) for name in _CSV] + [_cell(values.get(axis)) for axis in axes])
    return text.getvalue()


def _of_row(row: Row | None) -> Mapping[str, object]:
    if row is None:
        return {}
    result, found = row.result, row.speedup
    return {
        "result": row.label,
        "median_s": result.median,
        "low_s": result.low,
        "high_s": result.high,
        "repeats": len(result.times),
        "warmup": result.warmup,
        "work": result.work,
        "unit": result.unit,
        "throughput_per_s": result.throughput,
        "synchronised": "yes" if result.synchronised else "no",
        "device": result.device,
        "note": row.note,
        "recorded": result.recorded,
        "speedup": 1.0 if row.baseline else found.ratio if found else None,
        "speedup_low": found.low if found else None,
        "speedup_high": found.high if found else None,
        "against": found.against if found else None,
    }


def _cell(value: object) -> object:
    """Return a value for a cell; a spreadsheet would take what begins with one of these for a formula."""
    if not isinstance(value, str):
        return "" if value is None else value
    text = " ".join(printable(value).split())
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) and not re.fullmatch(r"[+-]?[\d.]+", text) else text
