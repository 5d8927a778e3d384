"""Plots what a session used into a file, with matplotlib, which is imported only here, and only to draw."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.events import Series
from notebook_launcher.usage.series import SINGLE_GPUS, Used

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg", ".pdf")
NO_MATPLOTLIB = "Plots need matplotlib, which is not installed here."
VALUES = 1500  # the most values of each line: as many as can be distinguished in print
_INCHES_WIDE, _INCHES_EACH, _INCHES_AROUND = 9.0, 1.55, 1.1
_DOTS = 150  # per inch of a PNG

# the colours of Okabe and Ito, which colour-blind people can distinguish as well
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")


def has_matplotlib() -> bool:
    """Return whether plots can be drawn here."""
    return importlib.util.find_spec("matplotlib") is not None


def check_plot(path: Path) -> None:
    """Raise ``UsageError`` if no plot can be drawn into a file of that name."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(
            f"“{path.name}” is not a name for a plot.",
            why=f"Its ending says the format: {', '.join(FORMATS)}.",
            hint="for example: --plot usage.png",
        )
    if not has_matplotlib():
        raise UsageError(
            NO_MATPLOTLIB,
            hint=f"{sys.executable} -m pip install 'matplotlib>=3.7', or --csv FILE to draw it elsewhere",
        )


def draw(used: Used, title: str, file: Path, kind: str) -> None:
    """Draw the series over a common time axis into a file; ``kind``: one of ``FORMATS``."""
    from matplotlib.figure import Figure

    panels: dict[str, list[Series]] = {}
    for one in used.series:
        panels.setdefault(_quantity(one), []).append(one)
    figure = Figure(figsize=(_INCHES_WIDE, _INCHES_AROUND + _INCHES_EACH * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
    for place, (name, series) in zip(axes, panels.items(), strict=True):
        _panel(place, name, series, used)
    axes[-1].set_xlabel("time since the job's start (minutes)")
    axes[-1].set_xlim(0, _minutes(used, 2)[1] * 1.01 or 1.0)
    if len(next(iter(panels.values()))) > 1:  # one legend is enough: each GPU has the same colour in all panels
        axes[0].legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=SINGLE_GPUS, fontsize=9, frameon=False)
    figure.align_ylabels(axes)
    figure.suptitle(title, fontsize=11)
    figure.savefig(file, format=kind.removeprefix("."), dpi=_DOTS)


def _quantity(series: Series) -> str:
    """Return the label of a series' axis; series with the same label share a panel."""
    if series.unit == "%":
        return "GPU use (%)"
    if series.unit == "W":
        return "GPU power (W)"
    if series.unit == "cores":
        return "CPU (cores)"
    return "GPU memory (GiB)" if "GPU" in series.label else "memory (GiB)"


def _panel(axes: Axes, name: str, series: list[Series], used: Used) -> None:
    for one, colour in zip(series, _COLOURS, strict=False):
        numbers = [float("nan") if value is None else value for value in one.values]
        minutes = _minutes(used, len(numbers))
        marker = "." if len(numbers) < 3 else ""  # too few to be seen as a line
        axes.plot(minutes, numbers, color=colour, linewidth=1.2, marker=marker, label=one.label)
        if len(series) == 1:
            axes.fill_between(minutes, numbers, color=colour, alpha=0.15, linewidth=0)
    most = max((one.capacity for one in series if one.capacity is not None), default=None)
    if most is not None and name != "GPU use (%)":
        axes.axhline(most, color="0.4", linewidth=0.9, linestyle=(0, (4, 3)))
        what = "in all" if "GPU" in name else "asked for"
        axes.annotate(
            f"{most:g} {what}",
            (1.0, most),
            xycoords=("axes fraction", "data"),
            xytext=(-3, 2),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=8,
            color="0.3",
        )
    peak = max((one.peak for one in series if one.peak is not None), default=0.0)
    top = max(1.2 * most if most and name != "GPU use (%)" else 0.0, 1.08 * peak) or 1.0
    axes.set_ylim(-0.03 * top, top)  # so that a line along zero can be seen
    axes.set_ylabel(name.replace(" (", "\n("))
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _minutes(used: Used, count: int) -> list[float]:
    """Return the time of each of ``count`` values, in minutes since the job began."""
    if used.began is None or used.since is None or used.until is None:
        return [0.0] * count
    first = (used.since - used.began).total_seconds() / 60
    span = (used.until - used.since).total_seconds() / 60
    return [first + span * place / max(1, count - 1) for place in range(count)]
