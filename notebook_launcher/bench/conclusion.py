"""What a bench came to, in a sentence that is true without the tables below it. Pure."""

from __future__ import annotations

from notebook_launcher.bench.compare import CombinationRun, Row
from notebook_launcher.bench.report import Report, fastest, is_surely_faster, seconds, waited
from notebook_launcher.core.quantities import counted, three_digits


def conclusion(report: Report) -> str:
    """Return what came out, of the first result that is compared, in a sentence or two."""
    if not report.rows:
        return _without_results(report)
    best = fastest(report)
    if best:
        more = f" {counted(len(best) - 1, 'more comparison')} below." if len(best) > 1 else ""
        return _of_fastest(best[0], report) + more
    if not any(row.result.synchronised for row in report.rows):
        return "No time can be compared: the device was not waited for when they were taken."
    if len(report.rows) == 1:
        row = report.rows[0]
        return f"{row.label} takes {seconds(row.result.median)}; there is nothing yet to compare it with."
    return f"There are {len(report.rows)} results, and no two that can be compared."


def _of_fastest(row: Row, report: Report) -> str:
    """Return how much faster the fastest of a result's rows is than its baseline."""
    of = f"“{row.label}”: " if len({one.label for one in report.rows}) > 1 else ""
    no = "no" if of else "No"
    if row.speedup is None:
        return f"{of}{no} combination is faster than the baseline, {row.ran.shown}."
    names = {ran.name: ran.shown for ran in report.runs}
    against = names.get(row.speedup.against, row.speedup.against)
    low, high, ratio = row.speedup.low, row.speedup.high, three_digits(row.speedup.ratio)
    if low is None or high is None:
        return f"{of}{row.ran.shown} was {ratio} times as fast as {against}, with too few times to be sure."
    span = f"{three_digits(low)} to {three_digits(high)}"
    if not is_surely_faster(row):
        seen = f"{row.ran.shown} was {ratio} times as fast ({span})"
        return f"{of}{no} combination is faster than {against} beyond doubt; {seen}."
    return f"{of}{row.ran.shown} is fastest, {ratio} times as fast as {against} ({span})."


def _without_results(report: Report) -> str:
    states = [ran.state for ran in report.runs]
    if not report.records_nothing:
        is_over = set(states) <= {"failed"}
        return f"{_all(len(states))} failed." if is_over and states else "There are no results yet."
    timed = sorted((ran for ran in report.runs if ran.state == "done" and ran.use.wall), key=_wall)
    what = "The notebook has recorded no times."
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
