"""File name patterns, ``*``, ``?`` and ``[…]``, ignoring case, in linear time."""

from __future__ import annotations

import re

_ATOMS = re.compile(r"\*|\[![^\]]+\]|\[[^\]!][^\]]*\]|.", re.S)


def match_glob(pattern: str, text: str) -> str | None:
    """Return what the last ``*`` matches, the whole text if there is no ``*``; ``None`` if the pattern does not match.

    Each ``*`` matches as much as possible, the first one first. All other characters match themselves.
    """
    first, *others = _segments(pattern)
    if not others:
        return text if len(text) == len(first) and _fits(first, text, 0) else None
    *middle, last = others
    end = len(text) - len(last)
    if end < len(first) or not _fits(first, text, 0) or not _fits(last, text, end):
        return None
    star = limit = end
    for number, segment in enumerate(reversed(middle)):  # from the right, so that the earlier stars match the most
        starts = range(limit - len(segment), len(first) - 1, -1)
        limit = next((start for start in starts if _fits(segment, text, start)), -1)
        if limit < 0:
            return None
        star = limit + len(segment) if number == 0 else star
    return text[star if middle else len(first) : end]


def _segments(pattern: str) -> list[list[str]]:
    """Return what is between the stars, each as a list of atoms."""
    segments: list[list[str]] = [[]]
    for atom in _ATOMS.findall(pattern):
        if atom == "*":
            segments.append([])
        else:
            segments[-1].append(atom)
    return segments


def _fits(segment: list[str], text: str, start: int) -> bool:
    return all(_is(atom, text[start + number]) for number, atom in enumerate(segment))


def _is(atom: str, sign: str) -> bool:
    if len(atom) == 1:
        return atom == "?" or atom.lower() == sign.lower()
    inner = atom[1:-1].removeprefix("!").lower()
    ranges = re.findall(r"(.)-(.)|(.)", inner, re.S)
    is_in = any((first or one) <= sign.lower() <= (last or one) for first, last, one in ranges)
    return is_in is not atom.startswith("[!")
