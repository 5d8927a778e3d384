"""The plots of a bench's results. ``svg`` draws them; no plotting library is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from notebook_launcher.bench import bar_plot, scaling_plot
from notebook_launcher.bench.bar_plot import Bar
from notebook_launcher.bench.compare import CombinationRun, Row, cores_instead, speedup
from notebook_launcher.bench.report import Plot, Report, seconds, unit_for, waited

MOST_PLOTS = 12
MOST_BARS = 40  # in one plot
MOST_CURVES = 8
WIDE, NARROW = 580.0, 340.0  # pixels


def draw_all(report: Report) -> list[Plot]:
    """Return the plots of a report: the times of each result and, if cores vary, the scaling with cores.

    If no results were recorded, plot how long each run took as a whole.
    """
    by_label: dict[str, list[Row]] = {}
    for row in report.rows:
        by_label.setdefault(row.label, []).append(row)
    plots: list[Plot] = [] if report.rows else _run_times(report.runs)
    for number, (label, rows) in enumerate(by_label.items(), 1):
        plots.append(_plot(f"{number}-times", f"{label}: median time", _bars(label, rows)))
        if curves := _curves(rows):
            draw = _scaling(label, curves, scaling_plot.frame_height(len(rows)))
            plots.append(_plot(f"{number}-cores", f"{label}: speed-up with cores", draw))
        if len(plots) >= MOST_PLOTS:
            break
    return plots[:MOST_PLOTS]


def _plot(name: str, title: str, draw: Callable[[float], str]) -> Plot:
    return Plot(name, title, draw(WIDE), draw(NARROW))


# --- the times ----------------------------------------------------------------------------------------------------


def _bars(label: str, rows: Sequence[Row]) -> Callable[[float], str]:
    """Return a function that draws the median of each combination with its interval."""
    shown = rows[:MOST_BARS]
    names = _distinguishing([row.ran.values for row in shown])
    scale, unit = unit_for(max(row.result.median for row in shown))
    drawn = []
    for name, row in zip(names, shown, strict=True):
        result = row.result
        low, high = (end / scale if end is not None else None for end in (result.low, result.high))
        drawn.append(Bar(name, result.median / scale, seconds(result.median), low, high, not result.synchronised))
    about = [f"median time of one call in {unit}; less is better"]
    about += ["the thin lines are the medians' intervals"] if any(bar.low is not None for bar in drawn) else []
    about += ["hatched: not synchronised"] if any(bar.hatched for bar in drawn) else []
    about += [f"the first {MOST_BARS} of {len(rows)}"] if len(rows) > MOST_BARS else []
    return lambda width: bar_plot.draw(label, "; ".join(about), drawn, width)


def _run_times(runs: Sequence[CombinationRun]) -> list[Plot]:
    """Return a plot of how long whole runs took, if at least two times are known."""
    timed = [ran for ran in runs if ran.state == "done" and ran.use.wall]
    if len(timed) < 2:
        return []
    names = _distinguishing([ran.values for ran in timed[:MOST_BARS]])
    drawn = [Bar(name, ran.use.wall or 0.0, waited(ran.use.wall)) for name, ran in zip(names, timed, strict=False)]
    about = "run time of the whole job in s, its start-up included; one run each, so small differences mean nothing"
    about += f"; the first {MOST_BARS} of {len(timed)}" if len(timed) > MOST_BARS else ""
    return [
        _plot("0-runs", "Run time of each combination", lambda width: bar_plot.draw("Whole runs", about, drawn, width))
    ]


def _distinguishing(combinations: Sequence[Sequence[tuple[str, str]]]) -> list[str]:
    """Return names for combinations, without the values that they all share."""
    shared = set.intersection(*map(set, combinations)) if len(combinations) > 1 else set()
    return [_named([pair for pair in values if pair not in shared]) or "measured" for values in combinations]


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
        if cores is None or int(cores) < 1 or not row.result.synchronised:
            continue
        others = tuple(pair for pair in row.ran.values if pair[0] != "cores")
        groups.setdefault((others, row.result.work, row.result.unit), []).append((int(cores), row))
    curves = [sorted(points, key=lambda point: point[0]) for points in groups.values()]
    curves = [points for points in curves if points[0][0] < points[-1][0]]
    others_of = [[pair for pair in points[0][1].ran.values if pair[0] != "cores"] for points in curves]
    names = _distinguishing(others_of) if len(curves) > 1 else ["measured"] * len(curves)
    return list(zip(names, curves, strict=True))


def _scaling(label: str, curves: Sequence[Curve], height: float) -> Callable[[float], str]:
    """Return a function that draws the speed-up against the number of cores."""
    shown = curves[:MOST_CURVES]
    least = min(points[0][0] for _, points in shown)
    drawn = [(name, [scaling_plot.Point(*point) for point in _points(points, least)]) for name, points in shown]
    about = [f"times as fast as with {'one core' if least == 1 else f'{least} cores'}, over the number of cores"]
    if any(points[0][0] > least for _, points in shown):
        about.append("a curve that begins later begins as if ideal")
    if len(curves) > MOST_CURVES:
        about.append(f"the first {MOST_CURVES} of {len(curves)}")
    return lambda width: scaling_plot.draw(label, "; ".join(about), drawn, width, height)


def _points(points: Sequence[tuple[int, Row]], least: int) -> Iterator[tuple[int, float, tuple[float, float] | None]]:
    """Yield the cores, the speed-up over the curve's fewest cores, and its interval (``None``: none) as distances.

    The distances are below and above the speed-up. A curve that begins with more cores than another begins on the
    ideal line, as if it had scaled perfectly up to there.
    """
    first_cores, first = points[0]
    scale = first_cores / least
    for cores, row in points:
        found = speedup(first.result, row.result, "")
        if row is first or found.low is None or found.high is None:
            yield cores, found.ratio * scale, None
        else:
            yield cores, found.ratio * scale, (scale * (found.ratio - found.low), scale * (found.high - found.ratio))
