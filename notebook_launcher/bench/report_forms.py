"""Renders the report of a bench as one self-contained HTML file, Markdown and CSV. Pure: ``report_files`` writes them.

Names come from notebooks and the cluster: in HTML the template escapes all of them, in Markdown and CSV this module.
"""

from __future__ import annotations

import base64
import csv
import functools
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from notebook_launcher.bench.compare import CombinationRun, Row
from notebook_launcher.bench.conclusion import conclusion
from notebook_launcher.bench.report import (
    TO_RECORD,
    Plot,
    Report,
    Table,
    how_measured,
    results_table,
    runs_table,
    shared,
    summary,
)
from notebook_launcher.core.text import one_line, printable

if TYPE_CHECKING:
    import jinja2

NUMBERS = ("median", "interval", "throughput", "speed-up", "energy", "in queue", "run time", "CPU cores", "memory",
           "GPU use", "GPU memory", "GPU energy")  # fmt: skip
HOW_TO_RECORD = (
    "To get times that can be compared, record them in the notebook with these lines (train stands for what is to be "
    "timed). bench sends timing.py along."
)

# --- HTML ---------------------------------------------------------------------------------------------------------


def as_html(report: Report) -> str:
    """Return one self-contained page; a browser loads nothing else."""
    return _template().render(
        zip=zip,
        report=report,
        conclusion=conclusion(report),
        summary=summary(report).capitalize(),
        results=results_table(report),
        runs=runs_table(report),
        numbers=NUMBERS,
        how_to_record=HOW_TO_RECORD if report.records_nothing else "",
        to_record=TO_RECORD,
        pictures=[_picture(plot) for plot in report.plots],
        measured=how_measured(report),
        failed=_failed(report),
        prints=report.prints,
        shared=shared(report),
    )


@functools.cache  # a report is written after each run, and compiling it takes longer than the rest
def _template() -> jinja2.Template:
    import jinja2

    source = (Path(__file__).parent / "report.html.jinja").read_text(encoding="utf-8")
    # an undefined name is our bug, and must not become an empty word in a report
    engine = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return engine.from_string(source)


def _picture(plot: Plot) -> tuple[str, str, str]:
    wide, narrow = (base64.b64encode(svg.encode()).decode() for svg in (plot.svg, plot.narrow))
    return plot.title, wide, narrow


def _failed(report: Report) -> list[CombinationRun]:
    return [ran for ran in report.runs if ran.state == "failed"]


# --- Markdown -----------------------------------------------------------------------------------------------------


def as_markdown(report: Report, folder: str) -> str:
    """Return the report as Markdown. ``folder``: where its plots are, beside it."""
    return "\n".join(_markdown(report, folder)) + "\n"


def _markdown(report: Report, folder: str) -> Iterator[str]:
    yield from (f"# {_plain(conclusion(report))}", "")
    about = f"{report.notebook}, measured {report.made}. {summary(report).capitalize()}."
    yield from (_plain(about), "")
    if shared(report):
        yield from (f"The same for all: {_code(shared(report))}", "")
    if failed := _failed(report):
        yield from ("## What failed", "")
        yield from (f"- **{_plain(ran.shown)}**: {_plain(ran.why)}" for ran in failed)
        yield ""
    for plot in report.plots:
        yield from (f"![{_plain(plot.title)}]({folder}/{plot.name}.svg)", "")
    if report.rows:
        yield from ("## Results", "", *_whole_table(results_table(report)), "")
    yield from ("## What each run used", "", *_whole_table(runs_table(report)), "")
    if report.records_nothing:
        yield from (_plain(HOW_TO_RECORD), "", "```python", "import timing", "", TO_RECORD, "```", "")
    if report.rows:
        yield from ("## How it was measured", "", *(f"- {_plain(sentence)}" for sentence in how_measured(report)), "")
        yield from ("## What it ran on", "")
        yield from _table(("the same for all", ""), report.prints.same)
    if report.prints.rows:
        yield ""
        yield from _table(("combination", *report.prints.columns), [(name, *row) for name, row in report.prints.rows])
    yield from ("", "## Made by", "")
    yield from (f"    {' '.join(printable(report.command).split())}", "")  # a second line would be outside
    yield from (f"Matrix: {_code(report.matrix or 'none')}", "")


def _whole_table(table: Table) -> Iterator[str]:
    """Yield a table's lines, after the values that all its lines share."""
    for name, value in table.same:
        yield f"- {_plain(name)}: {_plain(value)}"
    if table.note:
        yield f"- {_plain(table.note)}"
    yield from ("",) * bool(table.same or table.note)
    with_notes = any(line.note for line in table.lines)
    rows = [(*line.cells, line.note) if with_notes else line.cells for line in table.lines]
    yield from _table((*table.headings, "note") if with_notes else table.headings, rows)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(map(_plain, headings))} |"
    yield f"|{' --- |' * len(headings)}"
    yield from (f"| {' | '.join(map(_plain, row))} |" for row in rows)


def _plain(text: str) -> str:
    """Return text that no Markdown renderer takes for markup, HTML or the end of a cell."""
    return re.sub(r"([\\`*_\[\]<>|#~!$&])", r"\\\1", one_line(text))


def _code(text: str) -> str:
    """Return text as inline code, delimited by more backticks than the text contains."""
    text = one_line(text)
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
    "energy_j",
    "energy_j_per_unit",
    "run_time_s",
    "cpu_cores",
    "memory_peak_mib",
    "gpu_percent",
    "gpu_memory_peak_mib",
    "gpu_energy_wh",
)


def as_csv(report: Report) -> str:
    """Return a row for each result and for each combination without any; the last columns are the axes."""
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
                **_of_run(ran),
                **_of_row(row),
            }
            values = dict(ran.values)
            table.writerow([_cell(columns.get(name)) for name in _CSV] + [_cell(values.get(axis)) for axis in axes])
    return text.getvalue()


def _of_run(ran: CombinationRun) -> Mapping[str, object]:
    use = ran.use
    return {
        "run_time_s": use.wall,
        "cpu_cores": use.cores,
        "memory_peak_mib": use.memory_peak,
        "gpu_percent": use.gpu_percent,
        "gpu_memory_peak_mib": use.gpu_memory_peak,
        "gpu_energy_wh": use.watt_hours,
    }


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
        "energy_j": result.energy,
        "energy_j_per_unit": result.energy_per_unit,
        "speedup": 1.0 if row.baseline else found.ratio if found else None,
        "speedup_low": found.low if found else None,
        "speedup_high": found.high if found else None,
        "against": found.against if found else None,
    }


def _cell(value: object) -> object:
    """Return a value for a cell; a spreadsheet would take a text that begins with one of these for a formula."""
    if not isinstance(value, str):
        return "" if value is None else value
    text = one_line(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) and not re.fullmatch(r"[+-]?[\d.]+", text) else text
