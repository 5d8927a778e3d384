"""Walltimes: read in the forms of sbatch, said in words, typed again, and compared, without a limit too."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.walltime import UNLIMITED, Walltime


@pytest.mark.parametrize(
    ("text", "walltime"),
    [
        ("30", Walltime(minutes=30)),
        ("90", Walltime(minutes=90)),
        ("30:15", Walltime(minutes=30, seconds=15)),
        ("2:00:00", Walltime(hours=2)),
        ("0:59:00", Walltime(minutes=59)),
        ("48:00:00", Walltime(days=2)),
        ("1-0", Walltime(days=1)),
        ("1-12", Walltime(days=1, hours=12)),
        ("1-12:30", Walltime(days=1, hours=12, minutes=30)),
        ("2-00:00:01", Walltime(days=2, seconds=1)),
        (" 2:00:00 ", Walltime(hours=2)),
        ("UNLIMITED", UNLIMITED),
        ("infinite", UNLIMITED),
        ("-1", UNLIMITED),
        ("2h", Walltime(hours=2)),
        ("90m", Walltime(minutes=90)),
        ("1h30m", Walltime(minutes=90)),
        ("1d 12h", Walltime(days=1, hours=12)),
        ("45 min", Walltime(minutes=45)),
        ("90s", Walltime(seconds=90)),
    ],
)
def test_walltime_has_the_forms_of_sbatchs_manual_and_units(text: str, walltime: Walltime) -> None:
    assert Walltime.parse(text) == walltime


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "0:00:00",
        "0-0",
        "two hours",
        "0h",
        "h",
        "30m2h",
        "2h30",
        "1:2:3:4",
        "1-",
        "-5",
        "1.5",
        "2:00 ;",
        "٣٠",
        "9" * 30,
        "9" * 5000,
    ],
)
def test_what_is_no_walltime_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Walltime.parse(text)
    assert "is not a walltime" in caught.value.what
    assert "-t 2:00:00" in caught.value.hint


@pytest.mark.parametrize("text", ["2h", "1d 12h", " 90 MIN "])
def test_units_are_told_from_what_a_scheduler_reads(text: str) -> None:
    assert Walltime.is_in_units(text)


@pytest.mark.parametrize("text", ["2:00:00", "30", "2-0", "UNLIMITED", "", "soon", "1d" + " " * 5000 + "x"])
def test_what_has_no_units_goes_as_it_is_typed(text: str) -> None:
    assert not Walltime.is_in_units(text)


@given(st.text(alphabet="0123456789:- \nadintluefhms", max_size=40) | st.text(max_size=20))
def test_a_walltime_is_read_or_refused_and_nothing_else(text: str) -> None:
    try:
        walltime = Walltime.parse(text)
    except UsageError:
        return
    assert timedelta(0) < walltime <= UNLIMITED


@pytest.mark.parametrize(
    ("walltime", "words"),
    [
        (Walltime(minutes=59), "59 minutes"),
        (Walltime(hours=2), "2 hours"),
        (Walltime(hours=1), "1 hour"),
        (Walltime(days=1, hours=3), "1 day 3 hours"),
        (Walltime(days=2, seconds=1), "2 days 1 second"),
        (UNLIMITED, "no limit"),
    ],
)
def test_walltime_in_words(walltime: Walltime, words: str) -> None:
    assert walltime.as_text() == words


@pytest.mark.parametrize(
    ("walltime", "text"),
    [
        (Walltime(minutes=30), "0:30:00"),
        (Walltime(hours=1), "1:00:00"),
        (Walltime(days=10), "10-00:00:00"),
        (Walltime(days=1, hours=2, minutes=3, seconds=4), "1-02:03:04"),
    ],
)
def test_a_walltime_as_it_is_typed(walltime: Walltime, text: str) -> None:
    assert walltime.as_typed() == text
    assert Walltime.parse(text) == walltime


def test_no_limit_is_longer_than_any_other() -> None:
    assert UNLIMITED.is_unlimited and not Walltime(days=9_999_999).is_unlimited
    assert Walltime(days=9_999_999) < UNLIMITED
    assert Walltime.parse(UNLIMITED.as_typed()) == UNLIMITED


def test_minutes_and_seconds_may_have_been_meant_as_hours() -> None:
    assert Walltime.note_on_minutes("25:00") == "-t 25:00 is 25 minutes; 25 hours would be: -t 25h"
    assert Walltime.note_on_minutes("1:30") == "-t 1:30 is 1 minute 30 seconds; 1 hour would be: -t 1h"
    assert [Walltime.note_on_minutes(text) for text in ("25", "25:00:00", "1-2:30", "2h", "")] == [""] * 5
