"""Text from elsewhere (a server, a job, a file), made safe to show."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

# complete terminal escape sequences, so that no "[31m" remains
_COMMANDS = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor movements
    # Strings, such as links. Of one that contains a space or is not terminated, only the introducer is removed:
    # otherwise text from elsewhere could open a string in a sentence and swallow the rest of our message. A string
    # cannot contain another: with many introducers, each would be followed to the end of the text, which takes minutes.
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])(?:[^\s\x07\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\|\x9c))?"
    r"|\x1b[ -/]*[0-~]",
)
# Characters that move the cursor, ring the bell, hide or reverse text: control characters, those that set the text
# direction, and invisible ones, with which one name can pass for another. Zero-width joiners stay only within emoji.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
    "\u00ad\u034f\u115f\u1160\u180e\u200b\u200c\u2060-\u2064\u206a-\u206f\u3164\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
    "|(?<![\u2600-\u27bf\ufe0f\U0001f1e6-\U0001faff])\u200d"
)

# what the keys that move the cursor put into a line, such as ESC [ A (CSI) or ESC O A (SS3) for the upward one
_CURSOR_KEYS = re.compile(r"\x1b(?:\[\[?[0-?]*[ -/]*[@-~]|O[0-~])?")


def printable(text: str) -> str:
    """Return text without terminal escape sequences and control characters; line ends and tabs stay."""
    return _CONTROLS.sub("", _COMMANDS.sub("", text.replace("\r\n", "\n")))


def one_line(text: str, most: int | None = None) -> str:
    """Return text as one printable line with single spaces; if it is longer than ``most``, its end becomes “…”."""
    line = " ".join(printable(text).split())
    return line if most is None or len(line) <= most else f"{line[: most - 1]}…"


def without_cursor_keys(line: str) -> str:
    """Return a typed line without the escape sequences of keys such as the arrows."""
    return _CURSOR_KEYS.sub("", line)


def finite(value: object) -> object:
    """Return a value for JSON, with each number that JSON cannot express as text: ``nan``, ``inf``, ``-inf``."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: finite(part) for key, part in value.items()}
    return [finite(part) for part in value] if isinstance(value, list | tuple) else value


def joined(*sentences: str, stop: str = ".") -> str:
    """Join the non-empty sentences, adding a stop to those without one."""
    *first, last = [text.strip() for text in sentences if text.strip()] or [""]
    return " ".join([*(text if text[-1] in ".!?:;…" else text + stop for text in first), last])


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return names as text for a sentence; of more than ``most``, only the first ones, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def whole_number(text: str | None) -> int | None:
    """Return the number in a text of digits; ``None`` for any other text."""
    return int(text) if text and re.fullmatch(r"\d{1,20}", text, re.A) else None


def log_lines(data: object, most: int = 5, longest: int = 200) -> tuple[str, ...]:
    """Return at most ``most`` lines of a log in data from elsewhere, safe to show; anything but text is left out.

    ``longest``: characters of each line.
    """
    lines = data[:most] if isinstance(data, list) else ()
    return tuple(printable(line).replace("\n", " ")[:longest] for line in lines if isinstance(line, str))
