"""Regular expressions from profiles, which anybody may have written: each search has a time limit."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import regex

LONGEST_TEXT = 200  # characters of a text that are searched
TIME_LIMIT = 0.2  # seconds for one text; other threads keep running meanwhile
LINES_TIME_LIMIT = 1.0  # seconds for all lines of a text


class RegexTimeout(Exception):
    """The search took too long."""


def search(
    expression: str, text: str, *, whole: bool = False, any_case: bool = False, timeout: float = TIME_LIMIT
) -> regex.Match[str] | None:
    """Return the first match of an expression in a text; ``whole``: it must match all of it. Raises ``RegexTimeout``.

    ``timeout``: seconds. Python's own ``re`` has no timeout and blocks all threads: ``(a|aa)*b`` takes years on a line
    of letters.
    """
    import regex  # imported late, because few profiles have expressions

    compiled = regex.compile(expression, regex.IGNORECASE if any_case else 0)
    find = compiled.fullmatch if whole else compiled.search
    try:
        return find(text[:LONGEST_TEXT], timeout=timeout)
    except TimeoutError:
        raise RegexTimeout from None


def search_lines(expression: str, lines: Iterable[str]) -> Iterator[regex.Match[str]]:
    """Yield the match in each line that has one.

    Raises ``RegexTimeout`` when one line, or all of them together, takes too long.
    """
    until = time.monotonic() + LINES_TIME_LIMIT
    for line in lines:
        left = until - time.monotonic()
        if left <= 0:
            raise RegexTimeout
        if match := search(expression, line, timeout=min(left, TIME_LIMIT)):
            yield match
