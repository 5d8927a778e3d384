"""The command line: arguments, prompts and views; no decision of its own."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> None:
    """Run ``launch-notebook`` and exit with its documented exit code."""
    # Until there is something to clean up, Ctrl-C simply ends the program, also in the middle of an import.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from notebook_launcher.cli import report  # noqa: F401 - with this it can answer Ctrl-C
    from notebook_launcher.cli.app import run

    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(run(sys.argv[1:] if argv is None else argv))
