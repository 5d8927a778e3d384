"""The command ``bill``: what a session that is over asked for and used."""

from __future__ import annotations

import click

from notebook_launcher.cli.completing import complete_session
from notebook_launcher.cli.options import Where, place_options, played


@click.command(short_help="What an ended session asked for and used, and what to ask for next time.")
@place_options
@click.argument("session", default="", shell_complete=complete_session)
def bill(session: str, *, where: Where) -> int:
    """Show what a session that is over asked for and used (its name, its beginning, or nothing for the last one)."""
    from notebook_launcher import billing

    with played(where) as (view, prompts, interrupts):
        billing.bill(where.place(), session, view, prompts, interrupts)
    return view.exit_code


COMMANDS = (bill,)
