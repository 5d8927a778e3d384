"""Regular expressions out of profiles, which may be anybody's: no search takes longer than a moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import regex

LONGEST = 200  # signs of a text that is looked at
MOMENT = 0.2  # seconds for one text; other threads run meanwhile


class TooSlow(Exception):
    """Whether a text matches was not found out in time."""


def search(expression: str, text: str, *, whole: bool = False, any_case: bool = False) -> regex.Match[str] | None:
    """Return where an expression matches a text; ``whole``: all of it. Raises ``TooSlow``.

    Python's own would go on, and let no other thread run: ``(a|aa)*b`` needs years for a line of letters.
    """
    import regex  # only for profiles that have an expression

    compiled = regex.compile(expression, regex.IGNORECASE if any_case else 0)
    find = compiled.fullmatch if whole else compiled.search
    try:
        return find(text[:LONGEST], timeout=MOMENT)
    except TimeoutError:
        raise TooSlow from None
