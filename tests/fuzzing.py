"""Settings and strategies for hypothesis: how many examples it tries, and input from the other side.

``make fuzz EXAMPLES=20000`` tries more: it sets ``FUZZ_EXAMPLES``.
"""

from __future__ import annotations

import os
import unicodedata

from hypothesis import strategies as st

#: examples per test before each commit; every run tries others. More would take longer than all other tests
USUAL = 20
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", USUAL))


def examples(usual: int) -> int:
    """Return the number of examples for a test whose usual number is not ``USUAL``."""
    return max(1, usual * EXAMPLES // USUAL)


#: values of JSON and TOML, and those that Python's json also accepts: nan, surrogates, numbers of any length
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**30, -(10**400), 10**4000])
    | st.floats()
    | st.text(st.characters(exclude_categories=())),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(max_size=5), some, max_size=3),
    max_leaves=5,
)

#: times as jobs and schedulers write them, and some that do not exist in every time zone
TIMES = st.datetimes(timezones=st.none() | st.timezones()).map(lambda at: at.isoformat()) | st.sampled_from(
    ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-1200"]
)


def unseen(text: str) -> list[str]:
    """Return the characters that a terminal would interpret, or that are invisible, including newlines."""
    return sorted({sign for sign in text if unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp")})
