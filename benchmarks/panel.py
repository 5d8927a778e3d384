"""Measures the loading of JupyterLab's page with the session's panel, against the same page without it.

    make bench-panel

Two jobs run on this machine, without a scheduler, one with ``panel=no`` in its session.env. Chromium opens the page of
one and then of the other, each time with an empty cache, until the launcher tab can be clicked; the order alternates.
The result is the median of the ratios of the pairs, because both pages of a pair find the machine in the same state.

It takes two minutes. More pairs: ``ARGS="--pairs 40"``.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.cluster_tests.jupyterlab_page import CHROMIUM, FLAGS  # noqa: E402
from tests.unit.jobscripts.job import VENV_BIN, Job, token_of  # noqa: E402

WITH, WITHOUT = "with", "without"


@contextlib.contextmanager
def session(folder: Path, *lines: str) -> Iterator[str]:
    """Run JupyterLab as a job does, and yield the URL of its page."""
    job = Job(folder)
    job.in_a_scheduler()
    job.ask(f"path={VENV_BIN}", *lines)
    job.start()
    try:
        yield f"http://127.0.0.1:{job.endpoint()['port']}/lab?token={token_of(job)}"
    finally:
        job.end()


def seconds_to_open(browser: Browser, url: str, panel: bool) -> float:
    """Open a page with an empty cache; return the seconds until it can be used."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    try:
        page = context.new_page()
        began = time.perf_counter()
        page.goto(url)
        page.locator(".jp-LauncherCard").first.click(trial=True, timeout=60_000)
        took = time.perf_counter() - began
        assert page.locator(".nbl-status").count() == (1 if panel else 0), "the wrong page was measured"
        return took
    finally:
        context.close()


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=20)
    pairs = parser.parse_args().pairs
    took: dict[str, list[float]] = {WITH: [], WITHOUT: []}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        urls = {
            WITH: stack.enter_context(session(folder / WITH)),
            WITHOUT: stack.enter_context(session(folder / WITHOUT, "panel=no")),
        }
        browser = stack.enter_context(sync_playwright()).chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        for number in range(-1, pairs):  # the first pair finds files on disk, and does not count
            for which in (WITH, WITHOUT) if number % 2 else (WITHOUT, WITH):
                seconds = seconds_to_open(browser, urls[which], which == WITH)
                if number >= 0:
                    took[which].append(seconds)
        browser.close()
    ratios = sorted(mine / other for mine, other in zip(took[WITH], took[WITHOUT], strict=True))
    low, high = ratios[len(ratios) // 4], ratios[(3 * len(ratios)) // 4]
    print(f"{pairs} pairs; seconds until the page can be used, the median of each:")
    print("  " + ", ".join(f"{name} the panel {statistics.median(took[name]):.3f}" for name in (WITH, WITHOUT)))
    print(f"  with, beside without: {statistics.median(ratios):.3f} (half of the pairs: {low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
