"""The conclusion of a bench in a few sentences that are correct without the tables below them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from notebook_launcher.bench.compare import CombinationRun, Row
from notebook_launcher.bench.fastest import Fastest, is_surely_faster
from notebook_launcher.bench.report import Report, seconds, unread, waited
from notebook_launcher.core.quantities import counted, three_digits
from notebook_launcher.core.text import joined


def conclusion(report: Report) -> str:
    """Return the outcome for the first result that is compared, in a few sentences."""
    if not report.rows:
        return _without_results(report)
    if report.fastest:
        more = len(report.fastest) - 1
        below = f"{counted(more, 'more comparison')} below." if more else ""
        return joined(_of_fastest(report.fastest[0], report), _of_others(report), below)
    if not any(row.result.synchronised for row in report.rows):
        return "No times can be compared: none was taken after waiting for the device."
    if len(report.rows) == 1:
        row = report.rows[0]
        return f"{row.label} takes {seconds(row.result.median)}; there is nothing yet to compare it with."
    return f"There are {len(report.rows)} results, but no two of them can be compared."


def _of_fastest(best: Fastest, report: Report) -> str:
    """Return how much faster the fastest row of a result is than its baseline, claiming only what is certain."""
    row = best.row
    of = f"“{row.label}”: " if len({one.label for one in report.rows}) > 1 else ""
    no = "no" if of else "No"
    if row.speedup is None:
        return f"{of}{no} combination was shown to be faster than the baseline, {row.ran.shown}."
    names = {ran.name: ran.shown for ran in report.runs}
    against = names.get(row.speedup.against, row.speedup.against)
    low, high, ratio = row.speedup.low, row.speedup.high, three_digits(row.speedup.ratio)
    if low is None or high is None:
        return f"{of}{row.ran.shown} was {ratio} times as fast as {against}, with too few repeats to be sure."
    span = f"{three_digits(low)} to {three_digits(high)}, in one run each"  # not between runs
    if not is_surely_faster(row):
        seen = f"{row.ran.shown} was {ratio} times as fast ({span})"
        return f"{of}{no} combination was shown to be faster than {against}; {seen}."
    if best.rivals:
        beyond = f"not shown to be faster than {_rivals(best.rivals)}"
        return f"{of}{row.ran.shown} is {ratio} times as fast as {against} ({span}), and {beyond}."
    return f"{of}{row.ran.shown} is fastest, {ratio} times as fast as {against} ({span})."


def _rivals(rivals: Sequence[Row]) -> str:
    first = rivals[0]
    ratio = f" ({three_digits(first.speedup.ratio)} times)" if first.speedup else ""
    others = f" and {counted(len(rivals) - 1, 'other')}" if len(rivals) > 1 else ""
    return f"{first.ran.shown}{ratio}{others}"


def _of_others(report: Report) -> str:
    """Return how many combinations are in no comparison, for instance because they failed or did not synchronise."""
    compared = {row.ran.name for best in report.fastest for row in best.compared}
    left = sum(ran.name not in compared for ran in report.runs)
    has = "has" if left == 1 else "have"
    return f"{left} of {len(report.runs)} combinations {has} no time that can be compared." if left else ""


def _without_results(report: Report) -> str:
    states = [ran.state for ran in report.runs]
    damaged = f"{unread(report.damaged)}, and there are no others." if report.damaged else ""
    if "done" not in states:
        is_over = set(states) <= {"failed"}
        return joined(f"{_all(len(states))} failed." if is_over and states else "There are no results yet.", damaged)
    return _of_whole_runs(report, damaged or "The notebook has recorded no times.")


def _of_whole_runs(report: Report, what: str) -> str:
    """Return ``what``, and how long whole runs took."""
    timed = sorted((ran for ran in report.runs if ran.state == "done" and ran.use.wall), key=_wall)
    if len(timed) < 2:
        return f"{what} As a whole, it ran for {waited(_wall(timed[0]))}." if timed else what
    first, last = timed[0], timed[-1]
    shortest, longest = waited(_wall(first)), waited(_wall(last))
    if shortest == longest:
        return f"{what} As a whole, each run took {shortest}."
    return f"{what} As a whole, {first.shown} ran for {shortest}, and {last.shown} for {longest}."


def _all(count: int) -> str:
    return "The only combination" if count == 1 else f"All {count} combinations"


def _wall(ran: CombinationRun) -> float:
    return ran.use.wall or 0.0
