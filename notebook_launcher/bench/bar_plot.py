"""A horizontal bar chart with an error bar (the value's interval) on each bar. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from notebook_launcher.bench.svg import DIM, GRID, INK, LINE, Canvas, width_of, wrapped
from notebook_launcher.core.frozen import Frozen

_BLUE = "#3f83b8"
_MOST_OF_INTERVAL = 1.6  # times the longest bar: how far the axis extends at most to show intervals
_NARROW = 500.0  # pixels: in a narrower picture, names are placed above the bars
_MOST_OF_NAMES = 0.4  # of the width
_THICK, _GAP = 14.0, 9.0
_FEW, _MORE = 6, 10.0  # with so few bars or fewer, each is this many pixels taller


class Bar(Frozen):
    """One bar. ``shown``: its value as text; ``low`` and ``high``: its interval; ``hatched``: it is unreliable."""

    name: str
    value: float
    shown: str
    low: float | None = None
    high: float | None = None
    hatched: bool = False


def draw(title: str, about: str, bars: Sequence[Bar], width: float) -> str:
    """Return the bars stacked below a title; an interval that extends beyond the frame ends in an arrow."""
    canvas = Canvas(width)
    most = _most(bars)
    is_beyond = any((bar.high or 0.0) > most for bar in bars)
    canvas.paragraph(title, bold=True)
    canvas.paragraph(f"{about}; an arrow: the interval goes on beyond it" if is_beyond else about, colour=DIM)
    canvas.height += 8
    names = 0.0 if width < _NARROW else min(max(width_of(bar.name) for bar in bars) + 12, _MOST_OF_NAMES * width)
    values = max(width_of(bar.shown) for bar in bars) + 10
    frame = _Frame(canvas, names, width - names - values - 6, most)
    top = canvas.height
    rows = list(_rows(bars, canvas, names))
    if names:
        frame.draw_grid(top)  # names above the bars would be hard to read on a grid
    for row in rows:
        for number, line in enumerate(row.lines):
            canvas.text(0, row.top + LINE * number + 12, line)
        frame.draw_bar(row.bar, row.middle)
    frame.draw_ticks()
    return canvas.done()


def _most(bars: Sequence[Bar]) -> float:
    """Return the value at the end of the axis: it covers all values, and their intervals up to a limit."""
    longest = max(bar.value for bar in bars)
    return min(max(longest, *(bar.high or 0.0 for bar in bars)), _MOST_OF_INTERVAL * longest) * 1.03


class _Row(Frozen):
    """The position of a bar: the ``lines`` of its name begin at ``top``; the bar is centred on ``middle``."""

    bar: Bar
    lines: tuple[str, ...]
    top: float
    middle: float


def _rows(bars: Sequence[Bar], canvas: Canvas, names: float) -> Iterator[_Row]:
    """Yield the rows, and extend the picture by them. ``names``: the width of the names; 0: they are above the bars."""
    gap = _GAP + (_MORE if len(bars) <= _FEW else 0.0)
    for bar in bars:
        lines = tuple(wrapped(bar.name, names - 12 if names else canvas.width))
        above = 0.0 if names else LINE * len(lines)
        yield _Row(bar, lines, canvas.height, canvas.height + above + _THICK / 2)
        canvas.height += above + (max(_THICK, LINE * len(lines)) if names else _THICK) + gap


class _Frame:
    """The plotting area: from ``left``, with ``width`` pixels representing the value ``most``."""

    def __init__(self, canvas: Canvas, left: float, width: float, most: float) -> None:
        self._canvas, self._left, self._width, self._most = canvas, left, width, most
        self._ticks = list(_ticks(most, 3 if width < _NARROW / 2 else 5))

    def _x(self, value: float) -> float:
        return self._left + self._width * min(value, self._most) / self._most

    def draw_grid(self, top: float) -> None:
        """Draw a thin line for each tick, from ``top`` to the bottom."""
        for tick in self._ticks:
            self._canvas.line([(self._x(tick), top), (self._x(tick), self._canvas.height - _GAP / 2)], GRID, 1)

    def draw_bar(self, bar: Bar, y: float) -> None:
        """Draw a bar centred on ``y`` with its interval, and its value to the right of it."""
        canvas, end = self._canvas, self._x(bar.value)
        canvas.rectangle(self._left, y - _THICK / 2, end - self._left, _THICK, "hatched" if bar.hatched else _BLUE)
        if bar.low is not None and bar.high is not None:
            low, high = self._x(bar.low), self._x(bar.high)
            canvas.line([(low, y), (high, y)], INK)
            canvas.line([(low, y - 4), (low, y + 4)], INK)
            if bar.high > self._most:
                canvas.shape([(high - 6, y - 4), (high, y), (high - 6, y + 4)], INK)
            else:
                canvas.line([(high, y - 4), (high, y + 4)], INK)
            end = max(end, high)
        canvas.text(end + 6, y + 4.5, bar.shown, colour=DIM)

    def draw_ticks(self) -> None:
        """Draw the axis below the bars, with its numbers."""
        canvas = self._canvas
        canvas.line(
            [(self._left, canvas.height - _GAP / 2), (self._left + self._width, canvas.height - _GAP / 2)], DIM, 1
        )
        for tick in self._ticks:
            canvas.text(
                self._x(tick), canvas.height + 11, f"{tick:g}", colour=DIM, anchor="middle" if tick else "start"
            )
        canvas.height += LINE


def _ticks(most: float, about: int) -> Sequence[float]:
    """Return about ``about`` round numbers from 0 to ``most``."""
    rough = most / about
    power = 10 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    return [round(step * number, 12) for number in range(int(most / step) + 1)]
