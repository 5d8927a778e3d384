"""The plot of a class's timings: a row for each configuration, with a box plot, and a dot for each student. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from notebook_launcher.bench.report import seconds
from notebook_launcher.bench.svg import DIM, GRID, INK, LINE, Canvas, width_of, wrapped
from notebook_launcher.classroom.class_times import Configuration

MOST_ROWS = 24
_BOX, _DOT, _FAR = "#b9d3e8", "#1f5f94", "#c0392b"
_CROWD, _FAINTEST = 40, 0.25  # number of students above which dots are transparent, and their lowest opacity
_GAP, _BEYOND = 16.0, 4.0  # pixels: between rows, and by which the median's line extends beyond the box
_THICK = ((6, 54.0), (12, 34.0), (math.inf, 22.0))  # height of a box in pixels, by the number of rows
_MARGIN = 10.0
_MOST_OF_NAMES = 0.36  # of the width
_NARROW = 500.0  # pixels: in a narrower picture, names are placed above the rows


def draw(title: str, configurations: Sequence[Configuration], width: float) -> str:
    """Return the plot as SVG, with a logarithmic axis; a box spans the quartiles, and its line is the median."""
    canvas = Canvas(width)
    shown = configurations[:MOST_ROWS]
    about = "time of one call; each dot is a student, a box has the middle half of them, its line is the median"
    about += "; red: far from the others" if any(one.outliers for one in shown) else ""
    about += f"; the first {MOST_ROWS} of {len(configurations)}" if len(configurations) > MOST_ROWS else ""
    canvas.paragraph(title, bold=True)
    canvas.paragraph(about, colour=DIM)
    canvas.height += 8
    names = [f"{one.what}, {one.where}" for one in shown]
    left = 0.0 if width < _NARROW else min(max(map(width_of, names)) + 14, _MOST_OF_NAMES * width)
    axis = _Axis(shown, left + _MARGIN, width - left - 2 * _MARGIN)
    thick = next(pixels for most, pixels in _THICK if len(shown) <= most)
    top, rows = canvas.height, []
    for one, name in zip(shown, names, strict=True):
        lines = wrapped(name, left - 14 if left else width)
        above = 0.0 if left else LINE * len(lines)
        height = max(thick, LINE * len(lines)) if left else above + thick
        middle = canvas.height + above + (height - above) / 2
        rows.append((one, lines, middle - LINE * len(lines) / 2 if left else canvas.height, middle))
        canvas.height += height + _GAP
    for tick in axis.ticks:
        canvas.line([(axis.x(tick), top), (axis.x(tick), canvas.height - _GAP / 2)], GRID, 1)
    for one, lines, begin, middle in rows:
        for number, line in enumerate(lines):
            canvas.text(0, begin + LINE * number + 13, line)
        _draw_row(canvas, axis, one, middle, thick)
    canvas.line([(axis.left, canvas.height - _GAP / 2), (axis.left + axis.width, canvas.height - _GAP / 2)], DIM, 1)
    canvas.height += LINE
    for tick in axis.ticks:
        canvas.text(axis.x(tick), canvas.height - 6, seconds(tick), colour=DIM, anchor="middle")
    canvas.height += 2
    return canvas.done()


def _draw_row(canvas: Canvas, axis: _Axis, one: Configuration, y: float, thick: float) -> None:
    low, middle, high = map(axis.x, (one.low, one.middle, one.high))
    canvas.rectangle(low, y - thick / 2, max(2.0, high - low), thick, _BOX)
    faint = min(1.0, max(_FAINTEST, _CROWD / len(one.times)))  # so that many dots do not hide the box
    for place, time in enumerate(one.times):
        # deterministic jitter, so that equal times are visible as separate dots
        x, up = axis.x(time.seconds), 0.4 * thick * ((place * 0.618034) % 1.0 * 2 - 1)
        far = time.is_outlier
        canvas.shape(list(_dot(x, y + up)), _FAR if far else _DOT, opacity=1.0 if far else faint)
    top, bottom, right = y - thick / 2, y + thick / 2, max(low + 2.0, high)
    canvas.line([(low, top), (right, top), (right, bottom), (low, bottom), (low, top)], INK, 1)
    canvas.line([(middle, top - _BEYOND), (middle, bottom + _BEYOND)], INK, 2.5)


def _dot(x: float, y: float, radius: float = 1.8) -> Iterator[tuple[float, float]]:
    for corner in range(8):
        angle = math.pi * (corner + 0.5) / 4
        yield x + radius * math.cos(angle), y + radius * math.sin(angle)


class _Axis:
    """A logarithmic axis that covers all times of some configurations."""

    def __init__(self, configurations: Sequence[Configuration], left: float, width: float) -> None:
        every = [time.seconds for one in configurations for time in one.times]
        self.left, self.width = left, width
        self._first, self._last = math.log10(min(every)) - 0.04, math.log10(max(every)) + 0.04
        if self._last - self._first < 0.3:  # less than a factor of two: wide enough for a tick
            middle = (self._first + self._last) / 2
            self._first, self._last = middle - 0.2, middle + 0.2
        self.ticks = list(self._ticks())

    def x(self, value: float) -> float:
        """Return the horizontal position of a time."""
        return self.left + self.width * (math.log10(value) - self._first) / (self._last - self._first)

    def _ticks(self) -> Iterator[float]:
        """Yield round numbers, far enough apart for their labels."""
        decades = self._last - self._first
        most = max(2, int(self.width / 70))
        factors = (1,) if decades > most / 2 else (1, 3) if decades > most / 4 else (1, 2, 5)
        every = max(1, math.ceil(decades * len(factors) / most)) if len(factors) == 1 else 1
        for power in range(math.floor(self._first), math.ceil(self._last) + 1):
            if power % every == 0:
                for factor in factors:
                    tick = factor * 10.0**power
                    if self._first <= math.log10(tick) <= self._last:
                        yield tick
