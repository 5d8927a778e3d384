"""A plot of speed-up against cores, with the ideal line; both axes are logarithmic. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from notebook_launcher.bench.svg import DIM, GRID, LINE, Canvas, width_of, wrapped
from notebook_launcher.core.frozen import Frozen

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B07D00", "#2E8FC7", "#000000", "#8C6D00")  # Okabe and Ito's
_MOST_BEYOND = 1.6  # factor beyond the extreme values by which the axis extends at most to show intervals
_LOWEST, _HIGHEST = 220.0, 440.0  # pixels of the frame
_LEFT, _RIGHT = 44.0, 14.0  # pixels beside the frame, at least
_FEWEST_BETWEEN = 26.0  # pixels between two numbers of the axis


class Point(Frozen):
    """The speed-up with ``cores`` cores. ``interval``: its extent below and above the value; ``None``: unknown."""

    cores: int
    ratio: float
    interval: tuple[float, float] | None = None

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.ratio - self.interval[0] if self.interval else self.ratio

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.ratio + self.interval[1] if self.interval else self.ratio


Curve = tuple[str, Sequence[Point]]


def frame_height(bars: int) -> float:
    """Return a height for the frame that makes the plot about as high as a chart of ``bars`` bars beside it."""
    return min(max(_LOWEST, 24.0 * bars - 100), _HIGHEST)


def draw(title: str, about: str, curves: Sequence[Curve], width: float, height: float = _LOWEST) -> str:
    """Return a plot of the curves; an interval that extends beyond the frame ends in an arrow."""
    points = [point for _, some in curves for point in some]
    cores = sorted({point.cores for point in points})
    frame = _Frame(cores, _range(points, cores[-1] / cores[0]), width, height)
    canvas = Canvas(width)
    canvas.paragraph(title, bold=True)
    if any(frame.is_beyond(point) for point in points):
        about += "; an arrow: the interval goes on beyond it"
    canvas.paragraph(about, colour=DIM)
    for number, (name, _) in enumerate(curves):
        _legend(canvas, name, number)
    canvas.line([(4, canvas.height + 9), (26, canvas.height + 9)], DIM, dashed=True)
    canvas.text(36, canvas.height + 13, "ideal: twice the cores, twice as fast", colour=DIM)
    canvas.height += LINE + 12
    frame.top = canvas.height
    canvas.height += height + 2 * LINE + 4
    frame.draw_axes(canvas)
    canvas.line([frame.place(cores[0], 1.0), frame.place(cores[-1], cores[-1] / cores[0])], DIM, dashed=True)
    for number, (_, some) in enumerate(curves):
        frame.draw_curve(canvas, some, number)
    return canvas.done()


def _legend(canvas: Canvas, name: str, number: int) -> None:
    colour = COLOURS[number % len(COLOURS)]
    canvas.line([(4, canvas.height + 9), (26, canvas.height + 9)], colour, 1.8)
    _mark(canvas, 15, canvas.height + 9, number)
    for line in wrapped(name, canvas.width - 40):
        canvas.text(36, canvas.height + 13, line)
        canvas.height += LINE


def _mark(canvas: Canvas, x: float, y: float, number: int) -> None:
    """Draw the marker of a curve: its shape identifies the curve for readers who cannot tell the colours apart."""
    sides = (8, 4, 3, 5)[number % 4]
    turned = math.pi / 4 if sides == 4 else -math.pi / 2
    corners = [turned + 2 * math.pi * corner / sides for corner in range(sides)]
    shape = [(x + 5 * math.cos(angle), y + 5 * math.sin(angle)) for angle in corners]
    canvas.shape(shape, COLOURS[number % len(COLOURS)], filled=number < 4)


def _range(points: Sequence[Point], ideal: float) -> tuple[float, float]:
    """Return the powers of two that enclose all values, and their intervals up to a limit."""
    least, most = min(1.0, *(point.ratio for point in points)), max(ideal, *(point.ratio for point in points))
    low = max(min(least, *(point.low for point in points)), least / _MOST_BEYOND)
    high = min(max(most, *(point.high for point in points)), most * _MOST_BEYOND)
    bottom, top = math.floor(math.log2(low) + 0.001), math.ceil(math.log2(high) - 0.001)
    return 2.0**bottom, 2.0 ** max(top, bottom + 1)


class _Frame:
    """The plotting area of the curves; ``top`` is set once it is known."""

    def __init__(self, cores: Sequence[int], limits: tuple[float, float], width: float, height: float) -> None:
        self._cores, (self._least, self._most) = cores, limits
        steps = round(math.log2(self._most / self._least))
        self._ratios = [self._least * 2**step for step in range(0, steps + 1, math.ceil(steps / 12))]
        self._left = max(_LEFT, *(width_of(_number(ratio)) + 8 for ratio in self._ratios))
        self._width, self._height = width - self._left - _RIGHT, height
        self.top = 0.0

    def place(self, cores: float, ratio: float) -> tuple[float, float]:
        """Return the position of a value, clipped to the frame."""
        across = math.log2(cores / self._cores[0]) / math.log2(self._cores[-1] / self._cores[0])
        up = math.log2(min(max(ratio, self._least), self._most) / self._least) / math.log2(self._most / self._least)
        return self._left + self._width * (0.02 + 0.96 * across), self.top + self._height * (1 - up)

    def is_beyond(self, point: Point) -> bool:
        """Whether the interval of a point extends beyond the frame."""
        return point.low < self._least or point.high > self._most

    def draw_axes(self, canvas: Canvas) -> None:
        """Draw the grid lines, and their numbers."""
        for ratio in self._ratios:
            y = self.place(self._cores[0], ratio)[1]
            canvas.line([(self._left, y), (self._left + self._width, y)], GRID, 1)
            canvas.text(self._left - 6, y + 4.5, _number(ratio), colour=DIM, anchor="end")
        last = -math.inf
        for cores in self._cores:
            x, _ = self.place(cores, self._least)
            canvas.line([(x, self.top), (x, self.top + self._height)], GRID, 1)
            if x - last >= _FEWEST_BETWEEN:
                canvas.text(x, self.top + self._height + LINE, str(cores), colour=DIM, anchor="middle")
                last = x
        below = self.top + self._height + 2 * LINE
        canvas.text(self._left + self._width / 2, below, "cores", colour=DIM, anchor="middle")

    def draw_curve(self, canvas: Canvas, points: Sequence[Point], number: int) -> None:
        """Draw a curve with a marker and an interval at each point."""
        colour = COLOURS[number % len(COLOURS)]
        canvas.line([self.place(point.cores, point.ratio) for point in points], colour, 1.8)
        for point in points:
            x, y = self.place(point.cores, point.ratio)
            if point.interval:
                self._draw_interval(canvas, point, colour)
            _mark(canvas, x, y, number)

    def _draw_interval(self, canvas: Canvas, point: Point, colour: str) -> None:
        ends = [self.place(point.cores, end) for end in (max(point.low, 1e-9), point.high)]
        canvas.line(ends, colour)
        for (x, y), is_beyond, down in zip(
            ends, (point.low < self._least, point.high > self._most), (-1, 1), strict=True
        ):
            if is_beyond:
                canvas.shape([(x - 4, y + 6 * down), (x, y), (x + 4, y + 6 * down)], colour)
            else:
                canvas.line([(x - 4, y), (x + 4, y)], colour)


def _number(ratio: float) -> str:
    return f"{ratio:.3g}×"
