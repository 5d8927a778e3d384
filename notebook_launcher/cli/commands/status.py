"""The command ``status``: shows a session's state, and what it used in its last hour."""

from __future__ import annotations

import click

from notebook_launcher.cli.options import Where, session_argument, target_options, user_interface
from notebook_launcher.core.errors import UsageError


@click.command()
@target_options
@click.option("--watch", is_flag=True, help="Keep updating it, until the session ends or Ctrl-C.")
@click.option("--url", "only_url", is_flag=True, help="Print only the address, with its token, for an editor.")
@session_argument
def status(session: str, *, where: Where, watch: bool, only_url: bool) -> int:
    """Show a session's state and what it used in its last hour."""
    from notebook_launcher import sessions
    from notebook_launcher.usage import inspect

    if watch and only_url:
        raise UsageError("--watch and --url exclude each other.", hint="leave out one of them")
    with user_interface(where) as (view, prompts, interrupts):
        if only_url:
            sessions.show_address(where.target(), session, view, prompts, interrupts)
        else:
            inspect.status(where.target(), session, view, prompts, interrupts, watch=watch)
    return view.exit_code
