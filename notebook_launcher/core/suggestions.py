"""Finds the names that a user probably meant by an unknown word, because they are similar to it. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from difflib import SequenceMatcher

CLOSE = 0.6  # from 0 to 1; difflib's default
_MOST_COMPARED = 2000  # names; comparing one takes up to 0.1 ms, and a server may send a million
_MOST_COUNTED, _MOST_NAMED = 20, 3
_BEGINNING = 2  # letters that are enough for the beginning of a name
_LONGEST_WORD = 64  # characters of a word that are compared
_BY_CHANCE = 0.17  # what a single letter that two names of six letters share by chance adds to their similarity
_OTHER_PROCESSOR = 0.25  # subtracted from the similarity of a name for the other kind of processor
_GPU, _CPU = frozenset({"gpu", "cuda"}), frozenset({"cpu"})


def did_you_mean(word: str, known: Iterable[str], form: str = "{}", *, cutoff: float = CLOSE) -> str:
    """Return a hint with the names that were probably meant, empty if none is similar; ``form``: how one is typed."""
    return as_hint(similar(word, known, cutoff=cutoff), form)


def as_hint(names: Iterable[str], form: str = "{}") -> str:
    """Return a hint with the names that ``similar`` has found, empty if there are none."""
    text = " or ".join(form.format(name) for name in names)
    return f"did you mean {text}?" if text else ""


def similar(word: str, known: Iterable[str], *, cutoff: float = CLOSE) -> list[str]:
    """Return the names that were probably meant: the closest, and others about as close; none below ``cutoff``.

    Case is ignored. If names begin with the word, only these are returned, in the order in which they are known. A name
    for another kind of processor (gpu, cpu) counts as less similar.
    """
    known = list(dict.fromkeys(itertools.islice(known, _MOST_COMPARED)))
    if len(word) >= _BEGINNING and (begun := [name for name in known if name.lower().startswith(word.lower())]):
        return begun[:_MOST_NAMED]
    shares: dict[str, float] = {}
    is_any_close, least = False, cutoff - _BY_CHANCE
    for name in known:
        match = _match(word, name)
        if match.real_quick_ratio() >= least and match.quick_ratio() >= least and match.ratio() >= least:
            is_any_close |= match.ratio() >= cutoff
            lost = _OTHER_PROCESSOR if _stand_for_different_processors(word, name) else 0.0
            shares[name] = match.ratio() - lost
    if not is_any_close:
        return []
    first, *others = sorted(shares, key=lambda name: -shares[name])
    most = _slips_in(word, first)
    near = [name for name in others if shares[name] >= shares[first] - _BY_CHANCE][:_MOST_COUNTED]
    return [first, *(name for name in near if _slips_in(word, name) <= most)][:_MOST_NAMED]


def _slips_in(word: str, name: str) -> int:
    """Return the edit distance (``slips``) of a word and a name; another kind of processor counts as two more."""
    return slips(word.lower(), name.lower()) + 2 * _stand_for_different_processors(word, name)


def closeness(word: str, name: str) -> float:
    """Return how similar a name is to a word, from 0 to 1."""
    return _match(word, name).ratio()


def _match(word: str, name: str) -> SequenceMatcher[str]:
    from difflib import SequenceMatcher

    return SequenceMatcher(None, name.lower(), word[:_LONGEST_WORD].lower())


def slips(word: str, other: str) -> int:
    """Return the edit distance of two words, a swap of two neighbouring letters counting as one; 3 if it is over 2."""
    if abs(len(word) - len(other)) > 2:
        return 3
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word):
        above, row = row, [i + 1]
        for j, wanted in enumerate(other):
            row.append(min(above[j] + (letter != wanted), above[j + 1] + 1, row[j] + 1))
            if i and j and letter == other[j - 1] and word[i - 1] == wanted:
                row[-1] = min(row[-1], before[j - 1] + 1)
        before = above
    return min(row[-1], 3)


def _stand_for_different_processors(word: str, name: str) -> bool:
    parts, others = (set(re.split(r"[^a-z]+", text.lower())) for text in (word, name))
    return bool(parts & _GPU and others & _CPU) or bool(parts & _CPU and others & _GPU)
