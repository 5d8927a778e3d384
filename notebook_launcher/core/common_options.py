"""The options that every command has: they may stand in front of a command."""

from __future__ import annotations

from collections.abc import Sequence

HELP = ("-h", "--help", "--usage")

#: each option, and whether a word comes after it
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
    """Return the place behind all options in front that every command has: a command would stand there."""
    place = 0
    while place < len(words) and words[place].partition("=")[0] in COMMON_OPTIONS:
        place += 1 if "=" in words[place] or not COMMON_OPTIONS[words[place]] else 2
    return place
