"""The command ``bill``: shows what a session that has ended requested and used."""

from __future__ import annotations

import click

from notebook_launcher.cli.options import Where, session_argument, target_options, user_interface


@click.command()
@target_options
@session_argument
def bill(session: str, *, where: Where) -> int:
    """Show what a session that is over asked for and used (its name, its beginning, or nothing for the last one)."""
    from notebook_launcher.usage import bill_command

    with user_interface(where) as (view, prompts, interrupts):
        bill_command.bill(where.target(), session, view, prompts, interrupts)
    return view.exit_code
