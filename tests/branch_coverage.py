"""Which lines and branches of the package a run of the tests has been through: a table at its end.

With ``BRANCH_COVERAGE`` in the environment, SlipCover puts probes into each module of the package as it is imported, in
each of xdist's workers. A tracer, as coverage.py's before Python 3.14, doubles the processor time of all that runs, and
most of that is pytest and libraries.
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

#: a probe that has fired costs next to nothing; to take out those that have, all modules would be searched
STAYS = -1


class BranchCoverage:
    """Takes what the workers have counted to what this process has, and shows it."""

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

        self._counted.source = [str(PACKAGE)]  # modules that nobody has imported are in the table, too
        coverage = self._counted.get_coverage()
        for counted in self._by_workers:
            merge_coverage(coverage, counted)
        terminalreporter.section("branch coverage of the package")
        print_coverage(coverage, outfile=terminalreporter, skip_covered=True, missing_width=60)
        if self._crashed:
            terminalreporter.write_line(f"too low: without what {self._crashed} crashed worker(s) went through")


class NoBranchCoverage:
    """Says why there is no table."""

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line("no branch coverage: SlipCover does not know Python 3.15 yet")


def begin() -> BranchCoverage | NoBranchCoverage | None:
    """Count from now on, if that is wanted; return the plugin that shows it."""
    if "BRANCH_COVERAGE" not in os.environ:
        return None
    if sys.version_info >= (3, 15):
        return NoBranchCoverage()
    from slipcover import FileMatcher, ImportManager, Slipcover

    counted = Slipcover(branch=True, d_miss_threshold=STAYS, exclude_also=EXCLUDED)
    ImportManager(counted, FileMatcher([PACKAGE])).__enter__()
    return BranchCoverage(counted)


PLUGIN = begin()  # with the import of this module: whoever imports the package does it after that
