"""The command line: arguments, prompts and views; no decision of its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> None:
    """Run ``launch-notebook`` and exit with its documented exit code."""
    from notebook_launcher.cli.app import run

    sys.exit(run(sys.argv[1:] if argv is None else argv))
