"""The command ``open``: opens a session in the browser."""

from __future__ import annotations

import click

from notebook_launcher.cli.options import Where, session_argument, target_options, user_interface


@click.command("open")
@target_options
@click.option("--notify", is_flag=True, help="Notify the desktop before the walltime ends.")
@click.option("--verbose", "-v", is_flag=True, help="Show more detail, with timestamps.")
@session_argument
def open_(session: str, *, where: Where, notify: bool, verbose: bool) -> int:
    """Open a session in the browser; if nothing here is attached to it yet, attach first."""
    from notebook_launcher import sessions

    target = where.target()
    with user_interface(where, open_browser=True, verbose=verbose, notify=notify) as (view, prompts, interrupts):
        sessions.open_session(target, session, view, prompts, interrupts)
    return view.exit_code
