"""Patterns as in file names: ``*``, ``?`` and ``[…]``, in any case of letters, in a time that does not run away."""

from __future__ import annotations

import re

_ATOMS = re.compile(r"\*|\[![^\]]+\]|\[[^\]!][^\]]*\]|.", re.S)


def match_glob(pattern: str, text: str) -> str | None:
    """Return what the last ``*`` stands for, all of the text where there is none; ``None`` where it does not match.

    Each ``*`` stands for as much as can be, the first one first. Everything else means itself.
    """
    first, *others = _segments(pattern)
    if not others:
        return text if len(text) == len(first) and _fits(first, text, 0) else None
    *middle, last = others
    end = len(text) - len(last)
    if end < len(first) or not _fits(first, text, 0) or not _fits(last, text, end):
        return None
    star = limit = end
    for number, segment in enumerate(reversed(middle)):  # from the right, so that each star before is long
        places = range(limit - len(segment), len(first) - 1, -1)
        limit = next((place for place in places if _fits(segment, text, place)), -1)
        if limit < 0:
            return None
        star = limit + len(segment) if number == 0 else star
    return text[star if middle else len(first) : end]


def _segments(pattern: str) -> list[list[str]]:
    """Return what stands between the stars, each a list of signs."""
    segments: list[list[str]] = [[]]
    for atom in _ATOMS.findall(pattern):
        if atom == "*":
            segments.append([])
        else:
            segments[-1].append(atom)
    return segments


def _fits(segment: list[str], text: str, place: int) -> bool:
    return all(_is(atom, text[place + number]) for number, atom in enumerate(segment))


def _is(atom: str, sign: str) -> bool:
    if len(atom) == 1:
        return atom == "?" or atom.lower() == sign.lower()
    inner = atom[1:-1].removeprefix("!").lower()
    ranges = re.findall(r"(.)-(.)|(.)", inner, re.S)
    is_in = any((first or one) <= sign.lower() <= (last or one) for first, last, one in ranges)
    return is_in is not atom.startswith("[!")
