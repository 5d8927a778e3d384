"""Patterns as in file names: what they match, what the last star stands for, and that no pattern takes its time."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.core.glob_match import match_glob


@pytest.mark.parametrize(
    ("pattern", "text", "meant"),
    [
        ("gpu:t4:*", "gpu:t4:2", "2"),
        ("gpu:T4:*", "GPU:t4:2", "2"),
        ("gpu:t4:*", "gpu:a100:2", None),
        ("*:*", "gpu:a100:2", "2"),
        ("*", "", ""),
        ("a*a", "a", None),
        ("a*b*c", "a1b2b3c", "3"),
        ("dev[0-9]", "dev7", "dev7"),
        ("dev[0-9]", "dev", None),
        ("[!0-9]?", "x1", "x1"),
        ("[!0-9]?", "11", None),
        # signs of regular expressions, and brackets that hold nothing
        ("a.b+", "a.b+", "a.b+"),
        ("a.b+", "axbb", None),
        ("[!]", "[!]", "[!]"),
        ("[]", "[]", "[]"),
        ("[", "[", "["),
        ("[\\]", "\\", "\\"),
        ("[z-a]", "m", None),
        ("[a-]", "-", "-"),
    ],
)
def test_what_a_pattern_matches(pattern: str, text: str, meant: str | None) -> None:
    assert match_glob(pattern, text) == meant


@given(st.text("ab*?", max_size=8), st.text("abA", max_size=10))
def test_it_is_what_a_regular_expression_would_say(pattern: str, text: str) -> None:
    expression = pattern.replace("*", "(.*)").replace("?", ".")
    match = re.fullmatch(expression, text, re.I)
    assert match_glob(pattern, text) == (None if match is None else match.groups()[-1] if match.groups() else match[0])


def test_many_stars_are_quick() -> None:
    began = time.process_time()
    assert match_glob("*a" * 60 + "*b*", "a" * 2000) is None
    assert match_glob("*a" * 12, "a" * 80) == ""
    assert time.process_time() - began < 5
