"""A picture as SVG: rectangles, lines and text, with the little that a plot needs. Pure; all text is escaped."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from notebook_launcher.core.text import printable

SIZE = 13.0  # of text, in pixels
LINE = 17.0  # from one line of text to the next
INK, DIM, GRID, PAPER = "#1c2430", "#566072", "#dfe3ea", "#ffffff"
_WIDE, _USUAL = 1.02, 0.58  # of a character, in sizes of the text: on the safe side for the fonts of all systems


def width_of(text: str, size: float = SIZE) -> float:
    """Return about how wide a text is, and rarely less: which font there is, only the reader's system knows."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return size * (_WIDE * wide + _USUAL * (len(text) - wide))


def wrapped(text: str, width: float, size: float = SIZE) -> list[str]:
    """Return a text in lines that are no wider; a word that is too wide is broken. Nothing is left out."""
    text = " ".join(printable(text).split())
    each = width_of(text, size) / len(text) if text else 1.0
    return textwrap.wrap(text, max(6, int(width / each))) or [""]


class Canvas:
    """A picture while it is drawn, from top to bottom; ``height`` may grow until it is ``done``."""

    def __init__(self, width: float) -> None:
        self.width, self.height = width, 0.0
        self._parts: list[str] = []

    def rectangle(self, x: float, y: float, width: float, height: float, fill: str) -> None:
        """Draw a filled rectangle; ``fill``: a colour, or ``hatched``."""
        fill = "url(#hatched)" if fill == "hatched" else fill
        self._add(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.1f}" height="{height:.1f}" fill="{fill}"/>')

    def line(
        self, points: Sequence[tuple[float, float]], colour: str, width: float = 1.3, *, dashed: bool = False
    ) -> None:
        """Draw a line through points."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashes = ' stroke-dasharray="6 4"' if dashed else ""
        self._add(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}/>')

    def shape(self, points: Sequence[tuple[float, float]], colour: str, *, filled: bool = True) -> None:
        """Draw a closed shape, a marker or the head of an arrow."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        fill = colour if filled else PAPER
        self._add(f'<polygon points="{path}" fill="{fill}" stroke="{colour}" stroke-width="1.5"/>')

    def text(
        self, x: float, y: float, text: str, *, colour: str = INK, anchor: str = "start", bold: bool = False
    ) -> None:
        """Write a text with its base line at ``y``; ``anchor``: start, middle or end, which is at ``x``."""
        weight = ' font-weight="600"' if bold else ""
        words = escape(" ".join(printable(text).split()).encode(errors="replace").decode())
        self._add(f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}"{weight}>{words}</text>')

    def paragraph(self, text: str, *, colour: str = INK, bold: bool = False, margin: float = 0.0) -> None:
        """Write a text in as many lines as it needs, below everything so far."""
        for line in wrapped(text, self.width - 2 * margin):
            self.height += LINE
            self.text(margin, self.height - 4, line, colour=colour, bold=bold)

    def done(self) -> str:
        """Return the picture; the same drawing gives the same text."""
        import jinja2

        source = (Path(__file__).parent / "plot.svg.jinja").read_text(encoding="utf-8")
        # each part was escaped when it was added
        engine = jinja2.Environment(autoescape=False, undefined=jinja2.StrictUndefined)  # noqa: S701
        size = {"width": round(self.width), "height": round(self.height), "size": round(SIZE)}
        return engine.from_string(source).render(**size, paper=PAPER, parts="\n".join(self._parts)) + "\n"

    def _add(self, part: str) -> None:
        self._parts.append(part)
