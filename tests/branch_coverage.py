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

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["branch_coverage"] = json.dumps(self._counted.get_coverage())

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        counted = getattr(node, "workeroutput", {}).get("branch_coverage")  # nothing of one that crashed
        if counted:
            self._by_workers.append(json.loads(counted))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        from slipcover import merge_coverage, print_coverage

        self._counted.source = [str(PACKAGE)]  # modules that nobody has imported are in the table, too
        coverage = self._counted.get_coverage()
        for counted in self._by_workers:
            merge_coverage(coverage, counted)
        terminalreporter.section("branch coverage of the package")
        print_coverage(coverage, outfile=terminalreporter, skip_covered=True, missing_width=60)


def begin() -> BranchCoverage | None:
    """Count from now on, if that is wanted; return the plugin that shows it."""
    if "BRANCH_COVERAGE" not in os.environ or sys.version_info >= (3, 15):  # which SlipCover does not know yet
        return None
    from slipcover import FileMatcher, ImportManager, Slipcover

    counted = Slipcover(branch=True, d_miss_threshold=STAYS, exclude_also=EXCLUDED)
    ImportManager(counted, FileMatcher([PACKAGE])).__enter__()
    return BranchCoverage(counted)


PLUGIN = begin()  # with the import of this module: whoever imports the package does it after that
