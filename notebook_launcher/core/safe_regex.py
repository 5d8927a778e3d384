"""Regular expressions from profiles, which anybody may have written: each search has a time limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import regex

LONGEST = 200  # characters of a text that are searched
TIME_LIMIT = 0.2  # seconds for one text; other threads keep running meanwhile


class RegexTimeout(Exception):
    """The search took too long."""


def search(expression: str, text: str, *, whole: bool = False, any_case: bool = False) -> regex.Match[str] | None:
    """Return the match of an expression in a text; ``whole``: it must match all of it. Raises ``RegexTimeout``.

    Python's own ``re`` has no time limit and blocks all threads: ``(a|aa)*b`` takes years on a line of letters.
    """
    import regex  # only for profiles that have an expression

    compiled = regex.compile(expression, regex.IGNORECASE if any_case else 0)
    find = compiled.fullmatch if whole else compiled.search
    try:
        return find(text[:LONGEST], timeout=TIME_LIMIT)
    except TimeoutError:
        raise RegexTimeout from None
