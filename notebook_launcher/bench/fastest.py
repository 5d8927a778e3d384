"""Finds the fastest of the results that are compared with each other, and which others may be as fast. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from notebook_launcher.bench.compare import Row, speedup
from notebook_launcher.core.frozen import Frozen

_VISIBLE = 1.005  # times as fast: a smaller ratio is shown as 1.00


class Fastest(Frozen):
    """The fastest of the rows (``compared``) that have the same result and amount of work.

    ``rivals``: the other rows, except the baseline, whose times do not prove that they are slower.
    """

    row: Row
    compared: tuple[Row, ...]
    rivals: tuple[Row, ...]

    @property
    def is_sure(self) -> bool:
        """Whether it is faster than all others beyond doubt, the baseline included."""
        return is_surely_faster(self.row) and not self.rivals


def is_surely_faster(row: Row) -> bool:
    """Whether a result is faster than its baseline beyond doubt, and by more than what is shown as 1.00 times."""
    return row.speedup is not None and row.speedup.low is not None and row.speedup.low >= _VISIBLE


def fastest_of_each(rows: Sequence[Row]) -> list[Fastest]:
    """Return the fastest row for each result and amount of work that has several rows to compare."""
    found: dict[tuple[str, float | None, str], list[Row]] = {}
    for row in rows:
        if row.baseline or row.speedup:
            found.setdefault((row.label, row.result.work, row.result.unit), []).append(row)
    return [_fastest(group) for group in found.values() if len(group) > 1]


def _fastest(group: Sequence[Row]) -> Fastest:
    best = max(group, key=_ratio)
    others = [row for row in group if row is not best and not row.baseline]
    rivals = [row for row in sorted(others, key=_ratio, reverse=True) if _may_be_as_fast(row, best)]
    return Fastest(best, tuple(group), tuple(rivals))


def _ratio(row: Row) -> float:
    return row.speedup.ratio if row.speedup else 1.0


def _may_be_as_fast(row: Row, best: Row) -> bool:
    """Whether a row may be as fast as the fastest, by its times; a single time is taken as exact."""
    one, other = row.speedup, best.speedup
    if one is None or other is None or other.low is None:
        return True
    if (one.ratio if one.high is None else one.high) < other.low:
        return False  # their intervals do not overlap
    found = speedup(row.result, best.result, row.ran.name)
    return found.low is None or found.low < _VISIBLE
