"""Makes the view of a command: JSON objects with ``--json``, sentences otherwise."""

from __future__ import annotations

import sys

from notebook_launcher.cli.views.base import BaseView
from notebook_launcher.cli.views.json_view import JsonView
from notebook_launcher.cli.views.text_view import TextView


def make_view(
    *,
    as_json: bool,
    open_browser: bool = False,
    verbose: bool = False,
    notify: bool = False,
    notes_apart: bool = False,
    notes_are_results: bool = False,
) -> BaseView:
    """Return the view for this output. ``notes_apart``: all sentences go to standard error.

    If standard output is not a terminal, notes and waiting lines always go to standard error, unless
    ``notes_are_results``.
    """
    if as_json:
        return JsonView(open_browser=open_browser, notify=notify)
    from rich.console import Console

    console = Console(stderr=notes_apart, emoji=False)
    return TextView(
        console,
        open_browser=open_browser,
        verbose=verbose,
        notify=notify,
        interactive=sys.stdin.isatty(),
        aside=console if console.is_terminal or notes_are_results else Console(stderr=True, emoji=False),
    )
