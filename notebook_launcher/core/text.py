"""Text that came from elsewhere (a server, a job, a file), made fit to be shown."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

# a terminal's own commands, whole, so that no "[31m" is left of them
_COMMANDS = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor movements
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f]).*?(?:\x07|\x1b\\|\x9c|$)"  # titles and other strings
    r"|\x1b[ -/]*[0-~]",
    re.DOTALL,
)
# what would move the cursor, ring, hide or turn round: control characters, and those that change the reading direction
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def printable(text: str) -> str:
    """Return text without anything that a terminal would obey; line ends and tabs stay."""
    return _CONTROLS.sub("", _COMMANDS.sub("", text.replace("\r\n", "\n")))


def finite(value: object) -> object:
    """Return what is to be JSON with each number that JSON has none of as text: ``nan``, ``inf``, ``-inf``."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: finite(part) for key, part in value.items()}
    return [finite(part) for part in value] if isinstance(value, list | tuple) else value


def joined(*sentences: str, stop: str = ".") -> str:
    """Return what is not empty of some sentences, one after the other, with a stop where one has none of its own."""
    *first, last = [text.strip() for text in sentences if text.strip()] or [""]
    return " ".join([*(text if text[-1] in ".!?:;…" else text + stop for text in first), last])


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return names for a sentence, the first few of many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def whole_number(text: str | None) -> int | None:
    """Return the number that a text of digits stands for; ``None`` for any other text."""
    return int(text) if text and re.fullmatch(r"\d{1,20}", text, re.A) else None
