"""The options that every command has, and that may also precede the command's name."""

from __future__ import annotations

from collections.abc import Sequence

HELP = ("-h", "--help", "--usage")

#: each option, and whether its value is a separate word
COMMON_OPTIONS = {
    **dict.fromkeys(HELP, False),
    "--json": False,
    "--cluster": True,
    "--host": True,
    "--ssh-config": True,
    "--engine": True,
    "--course": True,
}


def place_of_command(words: Sequence[str]) -> int:
    """Return the index of the first word after the leading common options, where a command's name would be."""
    place = 0
    while place < len(words) and words[place].partition("=")[0] in COMMON_OPTIONS:
        place += 1 if "=" in words[place] or not COMMON_OPTIONS[words[place]] else 2
    return place
