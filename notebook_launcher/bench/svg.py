"""Writes an SVG picture of rectangles, lines and text: the minimum that a plot needs. Pure.

Matplotlib and NumPy would add 134 MB in 2,280 files to the 57 MB of all other dependencies. ``ElementTree`` escapes all
text; an SVG library would shorten only the few methods of ``Canvas``, because none of them lays out a plot.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from notebook_launcher.core.text import one_line, printable

SIZE = 13.0  # of text, in pixels
LINE = 17.0  # from one line of text to the next
INK, DIM, GRID, PAPER = "#1c2430", "#566072", "#dfe3ea", "#ffffff"
_FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
_WIDE, _USUAL = 1.02, 0.58  # width of a character relative to the text size: on the safe side for all systems' fonts
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def width_of(text: str, size: float = SIZE) -> float:
    """Return the approximate width of a text, rarely too low: only the reader's system knows which font it uses."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return size * (_WIDE * wide + _USUAL * (len(text) - wide))


def wrapped(text: str, width: float) -> list[str]:
    """Return a text in lines no wider than ``width``; a word that is too wide is broken. Nothing is left out."""
    lines = [""]
    for word in printable(text).split():
        longer = f"{lines[-1]} {word}".lstrip()
        if width_of(longer) <= width:
            lines[-1] = longer
        else:
            lines += _pieces(word, width)
    return lines[0 if lines[0] else 1 :] or [""]


def _pieces(word: str, width: float) -> Iterator[str]:
    """Yield a word in parts no wider than ``width``, of at least one character each."""
    piece = ""
    for letter in word:
        if piece and width_of(piece + letter) > width:
            yield piece
            piece = ""
        piece += letter
    yield piece


class Canvas:
    """A picture that is drawn from top to bottom; ``height`` may grow until ``done`` is called."""

    def __init__(self, width: float) -> None:
        self.width, self.height = width, 0.0
        fonts = {"font-size": f"{SIZE:.0f}", "font-family": _FONTS}
        self._picture = ElementTree.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", **fonts})
        square = {"width": "6", "height": "6", "patternTransform": "rotate(45)", "patternUnits": "userSpaceOnUse"}
        defined = ElementTree.SubElement(self._picture, "defs")
        pattern = ElementTree.SubElement(defined, "pattern", {"id": "hatched", **square})
        ElementTree.SubElement(pattern, "rect", {"width": "6", "height": "6", "fill": "#e9edf3"})
        ElementTree.SubElement(pattern, "rect", {"width": "2", "height": "6", "fill": "#8a94a6"})
        self._add("rect", width="100%", height="100%", fill=PAPER)

    def rectangle(self, x: float, y: float, width: float, height: float, fill: str) -> None:
        """Draw a filled rectangle; ``fill``: a colour, or ``hatched``."""
        fill = "url(#hatched)" if fill == "hatched" else fill
        self._add("rect", x=x, y=y, width=max(0.0, width), height=height, fill=fill)

    def line(
        self, points: Sequence[tuple[float, float]], colour: str, width: float = 1.3, *, dashed: bool = False
    ) -> None:
        """Draw a line through points."""
        dashes = {"stroke_dasharray": "6 4"} if dashed else {}
        self._add("polyline", points=_path(points), fill="none", stroke=colour, stroke_width=width, **dashes)

    def shape(
        self, points: Sequence[tuple[float, float]], colour: str, *, filled: bool = True, opacity: float = 1.0
    ) -> None:
        """Draw a closed shape, a marker or the head of an arrow; ``opacity``: 0 to 1, opaque."""
        fill = colour if filled else PAPER
        faint = {"opacity": f"{opacity:.2f}"} if opacity < 1 else {}
        self._add("polygon", points=_path(points), fill=fill, stroke=colour, stroke_width=1.5, **faint)

    def text(
        self, x: float, y: float, text: str, *, colour: str = INK, anchor: str = "start", bold: bool = False
    ) -> None:
        """Write a text with its baseline at ``y``; ``anchor``: which point of it is at ``x``: start, middle or end."""
        weight = {"font_weight": "600"} if bold else {}
        words = one_line(text)
        self._add("text", x=x, y=y, fill=colour, text_anchor=anchor, **weight).text = _NOT_IN_XML.sub("\ufffd", words)

    def paragraph(self, text: str, *, colour: str = INK, bold: bool = False, margin: float = 0.0) -> None:
        """Write a text in as many lines as it needs, below everything drawn so far."""
        for line in wrapped(text, self.width - 2 * margin):
            self.height += LINE
            self.text(margin, self.height - 4, line, colour=colour, bold=bold)

    def done(self) -> str:
        """Return the picture; the same drawing gives the same text."""
        width, height = f"{self.width:.0f}", f"{self.height:.0f}"
        self._picture.attrib |= {"width": width, "height": height, "viewBox": f"0 0 {width} {height}"}
        ElementTree.indent(self._picture)
        return ElementTree.tostring(self._picture, encoding="unicode") + "\n"

    def _add(self, name: str, **attributes: str | float) -> ElementTree.Element:
        texts = {
            key.replace("_", "-"): value if isinstance(value, str) else f"{value:.1f}"
            for key, value in attributes.items()
        }
        return ElementTree.SubElement(self._picture, name, texts)


def _path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
