"""Measures which lines and branches of the package the tests have covered, and prints a table at the end.

With ``BRANCH_COVERAGE`` in the environment, SlipCover instruments each module of the package on import, in each of
xdist's workers. A tracer such as coverage.py's before Python 3.14 would double the processor time of everything, most
of which is pytest and libraries.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from slipcover import Slipcover

PACKAGE = Path(__file__).parent.parent / "notebook_launcher"

EXCLUDED = ["if TYPE_CHECKING:", r"class .*\bProtocol\):", "@abstractmethod"]

#: never remove probes that have fired: they cost next to nothing, and removing them means searching all modules
STAYS = -1


class BranchCoverage:
    """Merges the workers' coverage with this process's, and shows it."""

    def __init__(self, counted: Slipcover) -> None:
        self._counted = counted
        self._by_workers: list[dict[str, Any]] = []
        self._crashed = 0

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["branch_coverage"] = json.dumps(self._counted.get_coverage())

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        counted = getattr(node, "workeroutput", {}).get("branch_coverage")
        if counted:
            self._by_workers.append(json.loads(counted))
        else:
            self._crashed += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        from slipcover import merge_coverage, print_coverage

        self._counted.source = [str(PACKAGE)]  # the table includes modules that were never imported
        coverage = self._counted.get_coverage()
        for counted in self._by_workers:
            merge_coverage(coverage, counted)
        terminalreporter.section("branch coverage of the package")
        print_coverage(coverage, outfile=terminalreporter, skip_covered=True, missing_width=60)
        if self._crashed:
            terminalreporter.write_line(f"too low: without what {self._crashed} crashed worker(s) went through")


class NoBranchCoverage:
    """Prints why there is no table."""

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line("no branch coverage: SlipCover does not know Python 3.15 yet")


def begin() -> BranchCoverage | NoBranchCoverage | None:
    """Start measuring if requested; return the plugin that shows the table."""
    if "BRANCH_COVERAGE" not in os.environ:
        return None
    if sys.version_info >= (3, 15):
        return NoBranchCoverage()
    from slipcover import FileMatcher, ImportManager, Slipcover

    counted = Slipcover(branch=True, d_miss_threshold=STAYS, exclude_also=EXCLUDED)
    ImportManager(counted, FileMatcher([PACKAGE])).__enter__()
    return BranchCoverage(counted)


PLUGIN = begin()  # at import, before any module of the package is imported
