"""Durations, sizes and counts as text, in several formats for different uses."""

from __future__ import annotations

# --- durations -----------------------------------------------------------------------------------------------------


def duration(seconds: float) -> str:
    """Return an elapsed time: ``40 s``, ``20 min``, ``1 h 12 min``, ``3 days 4 h``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes = round(whole / 60)
    days, hours, rest = minutes // 1440, minutes // 60 % 24, minutes % 60
    counts = [(days, plural("day", days)), (hours, "h"), (0 if days else rest, "min")]
    return " ".join(f"{count} {unit}" for count, unit in counts if count)


def precise_duration(seconds: float) -> str:
    """Return an elapsed time, to the second below ten minutes: ``40 s``, ``1:14``, ``20 min``, ``1 h 12 min``."""
    return stopwatch(round(seconds)) if 60 <= round(seconds) < 600 else duration(seconds)


def time_left(seconds: float) -> str:
    """Return a remaining time, rounded down: ``40 s``, ``9 min``, ``1 h 0 min``, ``2 days 3 h``; at the end ``0 s``."""
    seconds = max(0.0, seconds)
    minutes = int(seconds) // 60
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    if days:
        return f"{counted(days, 'day')} {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else f"{int(seconds)} s"


def time_left_of_warning(seconds: float) -> str:
    """Return a remaining time to the nearest minute, for a warning, which comes a moment after it is due."""
    return time_left(seconds if seconds < 50 else 60 * round(seconds / 60))


def stopwatch(seconds: float) -> str:
    """Return a time as a stopwatch shows it: ``0:07``, ``12:30``, ``3:05:00``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def largest_unit(seconds: float) -> str:
    """Return a time in one unit, rounded down, in minutes up to two hours: ``40 s``, ``119 min``, ``3 h``."""
    if seconds < 60:
        return f"{max(0, int(seconds))} s"
    if seconds < 2 * 3600:
        return f"{int(seconds // 60)} min"
    return f"{int(seconds // 3600)} h"


def measured_wait(seconds: float) -> str:
    """Return a time for a table of measurements, with more digits: ``119 s``, ``119 min``, ``2.5 h``."""
    whole = round(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min" if whole < 7200 else f"{whole / 3600:.1f} h"


def duration_text(seconds: float) -> str:
    """Return a time in its largest suitable unit, for a sentence: ``2 hours``, ``90 minutes``, ``1 day``."""
    units = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
    size, unit = next(
        (one for one in units if seconds >= 1.9 * one[0] or abs(seconds - one[0]) < 0.01 * one[0]), units[-1]
    )
    return counted(round(seconds / size), unit)


# --- sizes ---------------------------------------------------------------------------------------------------------


def file_size(count: float) -> str:
    """Return a number of bytes, to a tenth: ``1.5 GiB``."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def disk_size(kibibytes: int) -> str:
    """Return the size of a disk, without a fraction from 10 on: ``12 GiB``, ``1.5 TiB``."""
    value = float(kibibytes)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:.0f} {unit}" if value >= 10 or unit == "KiB" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError


def gigabytes(mib: float) -> str:
    """Return memory as a number in Slurm's unit ``G``: ``0.4``, ``12.5``, ``55``, ``128``."""
    number = mib / 1024
    text = f"{number:.2f}" if number < 0.1 else f"{number:.1f}" if number < 100 else f"{number:.0f}"
    return text.removesuffix(".0")


def steady_gigabytes(mib: float) -> str:
    """Return memory in GiB, always to a tenth, for a line that is updated in place: ``3.1``, ``55.0``."""
    return f"{mib / 1024:.1f}"


def memory_as_typed(mib: float) -> str:
    """Return memory as the value of ``--mem``: ``5G``, ``1500M``."""
    return f"{mib / 1024:.0f}G" if mib % 1024 == 0 else f"{mib:.0f}M"


# --- counts and other numbers --------------------------------------------------------------------------------------


def plural(noun: str, count: int | None) -> str:
    """Return a noun in the number that ``count`` needs: ``job``, ``jobs``."""
    return noun if count == 1 else f"{noun}s"


def counted(count: int | None, noun: str) -> str:
    """Return a count with its noun: ``1 job``, ``2 jobs``."""
    return f"{count} {plural(noun, count)}"


def amount(number: float) -> str:
    """Return a cost or an energy: ``0.25``, ``1.5``, ``120``."""
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}" if number >= 1 else f"{number:.2f}"


def three_digits(value: float) -> str:
    """Return a measured number with three digits, in plain notation: 0.123, 12.3, 48 200."""
    rounded = float(f"{value:.3g}")
    if rounded >= 1000:
        return f"{rounded:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}") if value < 1e15 else f"{value:.3g}"
    text = f"{value:#.3g}".rstrip(".")
    return text if "e" not in text else f"{value:.3g}"
