"""The plots of a bench, drawn with matplotlib, which is imported only here."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from notebook_launcher.bench.compare import Row, cores_instead, speedup
from notebook_launcher.bench.report import Plot, Report
from notebook_launcher.usage.plot import NO_MATPLOTLIB, has_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PLOTS = 12
MOST_BARS = 40  # in one plot
MOST_CURVES = 8
MOST_OF_INTERVAL = 1.6  # times the largest value: the most that an axis extends for intervals
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D00")  # Okabe and Ito's
_MARKERS = "os^Dv<>P"
_DOTS = 130  # an inch, of a PNG
_SCALES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_LONGEST = 48  # characters of a label


def plot_error() -> str:
    """Return a sentence on why plots cannot be drawn, "" if they can."""
    return "" if has_matplotlib() else f"{NO_MATPLOTLIB} To have them: pip install 'matplotlib>=3.7'"


def draw_all(report: Report) -> list[Plot]:
    """Return the plots of a report: the times of each result and, if cores vary, the scaling with cores."""
    by_label: dict[str, list[Row]] = {}
    for row in report.rows:
        by_label.setdefault(row.label, []).append(row)
    plots: list[Plot] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about characters that no font here has
        for number, (label, rows) in enumerate(by_label.items(), 1):
            figures = [("times", f"{label}: median time", _bars(label, rows))]
            if curves := _curves(rows):
                figures.append(("cores", f"{label}: speed-up with cores", _scaling(label, curves)))
            plots += [Plot(f"{number}-{kind}", title, *_pictures(figure)) for kind, title, figure in figures]
            if len(plots) >= MOST_PLOTS:
                break
    return plots[:MOST_PLOTS]


def _pictures(figure: Figure) -> tuple[bytes, bytes]:
    from matplotlib import rc_context

    files = io.BytesIO(), io.BytesIO()
    # without a date and with reproducible ids, so that the same results give the same file
    with rc_context({"svg.hashsalt": "bench", "svg.fonttype": "path"}):
        figure.savefig(files[0], format="svg", metadata={"Date": None, "Creator": None})
        figure.savefig(files[1], format="png", dpi=_DOTS, metadata={"Software": None})
    return files[0].getvalue(), files[1].getvalue()


def _figure(height: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes


# --- the times ----------------------------------------------------------------------------------------------------


def _bars(label: str, rows: Sequence[Row]) -> Figure:
    """Draw the median of each combination with its interval."""
    shown = rows[:MOST_BARS]
    names = _short_names([row.ran.values for row in shown])
    scale, unit = next((one for one in _SCALES if max(row.result.median for row in shown) >= one[0]), _SCALES[-1])
    figure, axes = _figure(1.2 + 0.38 * len(shown))
    for index, row in enumerate(shown):
        result = row.result
        known = result.low is not None and result.high is not None
        low, high = (result.low or 0.0, result.high or 0.0) if known else (result.median, result.median)
        error = [[max(0.0, result.median - low) / scale], [max(0.0, high - result.median) / scale]]
        axes.barh(
            index,
            result.median / scale,
            height=0.62,
            color=_COLOURS[0],
            alpha=0.85 if result.synchronised else 0.35,
            hatch="" if result.synchronised else "///",
            xerr=error if known else None,
            error_kw={"ecolor": "0.15", "elinewidth": 1.3, "capsize": 3},
        )
    axes.set_yticks(range(len(shown)), names, fontsize=9)
    for text in axes.get_yticklabels():
        text.set_parse_math(False)
    axes.invert_yaxis()
    longest = max(row.result.median for row in shown)
    widest = max(row.result.high or 0.0 for row in shown)
    # one very wide interval would leave the others no space: it is clipped at the frame
    axes.set_xlim(0, min(max(longest, widest), MOST_OF_INTERVAL * longest) * 1.05 / scale)
    axes.set_xlabel(f"median time of one call ({unit}), with its interval; less is better")
    axes.grid(axis="y", visible=False)
    more = f" (the first {MOST_BARS} of {len(rows)})" if len(rows) > MOST_BARS else ""
    faint = "; hatched: not synchronised" if any(not row.result.synchronised for row in shown) else ""
    axes.set_title(f"{_short(label)}{more}{faint}", fontsize=11, loc="left", parse_math=False)
    return figure


def _short_names(combinations: Sequence[Sequence[tuple[str, str]]]) -> list[str]:
    """Return names for combinations, without the values that they all share."""
    shared = set.intersection(*map(set, combinations)) if len(combinations) > 1 else set()
    return [_short(_named([pair for pair in values if pair not in shared]) or "measured") for values in combinations]


def _named(pairs: Sequence[tuple[str, str]]) -> str:
    """Return values as people write them: ``tf-gpu, 4 cores, no GPU, EPOCHS=1``."""
    parts = []
    for name, value in pairs:
        if name == "env":
            parts.append(value or "no environment named")
        elif name == "cores":
            parts.append("1 core" if value == "1" else f"{value} cores")
        elif name == "gpus":
            kind, _, count = value.rpartition(":")
            plural = "s" if count != "1" and not kind else ""
            parts.append("no GPU" if count == "0" else f"{count} {kind or 'GPU'}{plural}")
        else:
            parts.append(f"{name}={value}")
    return ", ".join(parts)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


# --- scaling with cores -------------------------------------------------------------------------------------------

Curve = tuple[str, list[tuple[int, Row]]]


def _curves(rows: Sequence[Row]) -> list[Curve]:
    """Return the results that differ only in their cores, as named curves with at least two core counts.

    Results that were not synchronised, or had another amount of work than their curve, are left out. There are no
    curves if a result had a different number of cores than its name says, because the plot would be misleading.
    """
    if any(cores_instead(row) for row in rows):
        return []
    groups: dict[tuple[object, ...], list[tuple[int, Row]]] = {}
    for row in rows:
        cores = dict(row.ran.values).get("cores")
        if cores is None or not row.result.synchronised:
            continue
        others = tuple(pair for pair in row.ran.values if pair[0] != "cores")
        groups.setdefault((others, row.result.work, row.result.unit), []).append((int(cores), row))
    curves = [sorted(points, key=lambda point: point[0]) for points in groups.values() if len(points) > 1]
    others_of = [[pair for pair in points[0][1].ran.values if pair[0] != "cores"] for points in curves]
    names = _short_names(others_of) if len(curves) > 1 else ["measured"] * len(curves)
    return list(zip(names, curves, strict=True))


def _scaling(label: str, curves: Sequence[Curve]) -> Figure:
    figure, axes = _figure(4.4)
    shown = curves[:MOST_CURVES]
    least = min(points[0][0] for _, points in shown)
    most = max(points[-1][0] for _, points in shown)
    axes.plot([least, most], [1.0, most / least], color="0.45", linewidth=1.2, linestyle=(0, (5, 4)), label="ideal")
    highest = 0.0
    for (name, points), colour, marker in zip(shown, _COLOURS, _MARKERS, strict=False):
        cores, ratios, errors = zip(*_points(points, least), strict=True)
        highest = max(highest, *ratios)
        axes.plot(cores, ratios, color=colour, marker=marker, markersize=5, linewidth=1.5, label=name)
        for count, ratio, error in zip(cores, ratios, errors, strict=True):
            if error is not None:
                axes.errorbar(count, ratio, yerr=[[error[0]], [error[1]]], color=colour, linewidth=1.5, capsize=3)
    ticks = sorted({count for _, points in shown for count, _ in points})
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_ylim(0, min(axes.get_ylim()[1], MOST_OF_INTERVAL * max(most / least, highest)))
    axes.set_xlabel("cores")
    axes.set_ylabel(f"times as quick as with {'one core' if least == 1 else f'{least} cores'}")
    more = f" (the first {MOST_CURVES} of {len(curves)})" if len(curves) > MOST_CURVES else ""
    later = "; a curve that begins later begins as if ideal" if any(points[0][0] > least for _, points in shown) else ""
    axes.set_title(f"{_short(label)}{more}{later}", fontsize=11, loc="left", parse_math=False)
    for text in axes.legend(fontsize=9, frameon=False).get_texts():
        text.set_parse_math(False)
    return figure


def _points(points: Sequence[tuple[int, Row]], least: int) -> Iterator[tuple[int, float, tuple[float, float] | None]]:
    """Yield cores, the speed-up over the fewest cores of the curve, and its interval as distances down and up.

    The interval is ``None`` if there is none.

    A curve that begins with more cores than another one begins on the ideal line, as if it had scaled up to there.
    """
    first_cores, first = points[0]
    scale = first_cores / least
    for cores, row in points:
        found = speedup(first.result, row.result, "")
        if row is first or found.low is None or found.high is None:
            yield cores, found.ratio * scale, None
        else:
            yield cores, found.ratio * scale, (scale * (found.ratio - found.low), scale * (found.high - found.ratio))
