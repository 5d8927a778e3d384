"""The command ``status``: a session's state, and what it used in its last hour."""

from __future__ import annotations

import click

from notebook_launcher.cli.options import Where, session_argument, target_options, user_interface


@click.command()
@target_options
@click.option("--watch", is_flag=True, help="Keep updating it, until the session ends or Ctrl-C.")
@session_argument
def status(session: str, *, where: Where, watch: bool) -> int:
    """Show a session's state and what it used in its last hour."""
    from notebook_launcher.usage import inspect

    with user_interface(where) as (view, prompts, interrupts):
        inspect.status(where.target(), session, view, prompts, interrupts, watch=watch)
    return view.exit_code
