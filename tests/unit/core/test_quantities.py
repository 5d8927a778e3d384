"""Durations, sizes and counts as people read them."""

from __future__ import annotations

import pytest

from notebook_launcher.core.quantities import (
    amount,
    counted,
    disk_size,
    duration,
    duration_text,
    file_size,
    gigabytes,
    measured_wait,
    memory_as_typed,
    stopwatch,
    three_digits,
    time_left,
    time_left_of_warning,
)

# --- durations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59, "59 s"),
        (61, "1 min"),
        (3600, "1 h"),
        (4320, "1 h 12 min"),
        (86400, "1 day"),
        (180000, "2 days 2 h"),
    ],
)
def test_a_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"),
        (-90000, "0 s"),
        (0, "0 s"),
        (59.9, "59 s"),
        (119, "1 min"),
        (840, "14 min"),
        (3600, "1 h 0 min"),
        (86399, "23 h 59 min"),
        (86400, "1 day 0 h"),
        (183600, "2 days 3 h"),
    ],
)
def test_the_time_left_is_rounded_down(seconds: float, text: str) -> None:
    assert time_left(seconds) == text


def test_a_stopwatch() -> None:
    shown = [stopwatch(seconds) for seconds in (0.4, 65, 3599, 3600, 11100)]
    assert shown == ["0:00", "1:05", "59:59", "1:00:00", "3:05:00"]


def test_a_wait_that_was_measured() -> None:
    assert [measured_wait(seconds) for seconds in (119.4, 120, 7199, 9000)] == ["119 s", "2 min", "119 min", "2.5 h"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1, "1 second"), (59, "59 seconds"), (3599, "1 hour"), (5400, "90 minutes"), (172800, "2 days"), (0, "0 seconds")],
)
def test_a_duration_in_the_unit_that_tells_it_well(seconds: int, text: str) -> None:
    assert duration_text(seconds) == text


def test_a_warning_that_comes_a_moment_late() -> None:
    shown = [time_left_of_warning(seconds) for seconds in (900, 899, 300, 61, 60, 50, 40)]
    assert shown == ["15 min", "15 min", "5 min", "1 min", "1 min", "1 min", "40 s"]


# --- sizes and numbers ---------------------------------------------------------------------------------------------


def test_sizes() -> None:
    assert [file_size(count) for count in (0, 1536, 5 * 1024**4)] == ["0 bytes", "1.5 KiB", "5120.0 GiB"]
    assert [disk_size(kib) for kib in (9, 1536, 12 * 1024**2, 3 * 1024**3)] == ["9 KiB", "1.5 MiB", "12 GiB", "3.0 TiB"]
    assert [memory_as_typed(mib) for mib in (5120, 1500, 2 * 1024.0)] == ["5G", "1500M", "2G"]


@pytest.mark.parametrize(
    ("mib", "text"),
    [
        (5, "0.00"),
        (50, "0.05"),
        (512, "0.5"),
        (4096, "4"),
        (3174, "3.1"),
        (12800, "12.5"),
        (56320, "55"),
        (131100, "128"),
    ],
)
def test_gigabytes(mib: float, text: str) -> None:
    assert gigabytes(mib) == text


def test_counts_and_numbers() -> None:
    assert [counted(count, "job") for count in (0, 1, 2)] == ["0 jobs", "1 job", "2 jobs"]
    assert [amount(number) for number in (0.25, 1.5, 120.4)] == ["0.25", "1.5", "120"]
    assert [three_digits(number) for number in (0.1234, 12.34, 48234)] == [
        "0.123",
        "12.3",
        "48\N{NARROW NO-BREAK SPACE}200",
    ]
