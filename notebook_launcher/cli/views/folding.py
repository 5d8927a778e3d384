"""Folds sentences at the terminal's width: between words, and not within a command."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_COMMAND = re.compile(r"launch-notebook( [^\s;,:()]+)+")
_FIXED = "\ue000"  # stands for a blank at which a line must not be folded; no text contains this character


def fixed(text: str) -> str:
    """Return a text that ``folded`` keeps on one line."""
    return text.replace(" ", _FIXED)


def folded(line: str, width: int, below: str = "") -> list[str]:
    """Fold between words, but not within a command that fits on a line; words that are too long stay whole.

    ``below``: the indentation of the lines after the first one.
    """
    import textwrap

    whole = _COMMAND.sub(lambda found: fixed(found[0]) if len(found[0]) < width - 4 else found[0], line)
    parts = textwrap.wrap(
        whole,
        width,
        subsequent_indent=below,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )
    return [part.replace(_FIXED, " ") for part in parts] or [""]


def print_folded(console: Console, text: str, style: str = "") -> None:
    """Print sentences, folded on a terminal; otherwise as they are, since a program may be reading."""
    for line in text.split("\n"):
        for part in folded(line, console.width, _indentation(line)) if console.is_terminal else [line]:
            console.print(part, style=style, soft_wrap=True, highlight=False, markup=False)


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" "))]
