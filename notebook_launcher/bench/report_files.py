"""The files of a bench's report, and the error that lists what failed."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from datetime import datetime

from notebook_launcher.bench.conclusion import conclusion
from notebook_launcher.bench.journal import BenchFolder, write_atomically
from notebook_launcher.bench.plots import draw_all
from notebook_launcher.bench.report import make_report
from notebook_launcher.bench.report_forms import as_csv, as_html, as_markdown
from notebook_launcher.core import events
from notebook_launcher.core.errors import BenchIncomplete, CopyFailed
from notebook_launcher.core.view import View

PLOTS = "report-plots"
_SHOWN = 10  # failed combinations in the error's reason


def write_report(folder: BenchFolder, baseline: str, view: View, *, quietly: bool = False) -> None:
    """Write the report into the bench's folder, in three formats, and show it unless ``quietly``."""
    journal, root = folder.journal, folder.folder
    command = f"launch-notebook bench {journal.command}".strip()
    made = f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}"
    report = make_report(journal.notebook, journal.matrix, command, made, folder.runs(), baseline)
    report = dataclasses.replace(report, plots=tuple(draw_all(report)))
    paths = [root / f"report.{ending}" for ending in ("html", "md", "csv")]
    try:
        for plot in report.plots:
            write_atomically(root / PLOTS / f"{plot.name}.svg", plot.svg.encode())
        for path, text in zip(paths, (as_html(report), as_markdown(report, PLOTS), as_csv(report)), strict=True):
            write_atomically(path, text.encode())
    except OSError as error:
        raise CopyFailed(
            f"The report could not be written into {root}.",
            why=error.strerror or str(error),
            hint="make room, and run the same command again: nothing is run twice",
        ) from None
    if not quietly:
        failed = tuple((ran.name, ran.why) for ran in report.runs if ran.state == "failed")
        html, markdown, table = map(str, paths)
        rows, what = len(report.rows), conclusion(report)
        view.show(events.BenchReported(str(root), html, markdown, table, rows, failed, what))


def raise_for_failed(folder: BenchFolder, names: Collection[str]) -> None:
    """Raise ``BenchIncomplete`` if any of these combinations failed, or if its results were not fetched."""
    failed = [folder[name] for name in folder.names("failed") if name in names]
    left = [folder[name] for name in folder.names("queued") if folder[name].why]
    if not failed and not left:
        return
    incomplete = [*failed, *left]
    reasons = {entry.why.removeprefix(f"Job {entry.job}: ") for entry in incomplete}
    if len(incomplete) > 1 and len(reasons) == 1:
        reasons_shown = [f"all {len(incomplete)}: {reasons.pop()}"]
    else:
        reasons_shown = [f"{entry.name}: {entry.why}" for entry in incomplete[:_SHOWN]]
        reasons_shown += [f"and {len(incomplete) - _SHOWN} more"] if len(incomplete) > _SHOWN else []
    what = [f"{len(failed)} of {len(names)} combinations failed."] if failed else []
    what += [f"The results of {len(left)} could not be fetched."] if left else []
    ways = ["to run what failed once more: the same command with --retry-failed"] if failed else []
    ways += ["to fetch what is missing: the same command; nothing is run twice"] if left else []
    others = ["the report has the others"] if folder.names("done") else []
    raise BenchIncomplete(" ".join(what), why="\n".join(reasons_shown), hint="; ".join([*others, *ways]))
