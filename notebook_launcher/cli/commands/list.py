"""The command ``list``: your sessions, active and recently ended."""

from __future__ import annotations

import click

from notebook_launcher.cli.options import Where, place_options, user_interface


@click.command("list", short_help="List your sessions: active, and recently ended.")
@place_options
@click.option("--all", "-a", "every", is_flag=True, help="Also those that ended more than a day ago.")
def list_(*, where: Where, every: bool) -> int:
    """List your sessions: the active ones, and those that ended in the last 24 hours."""
    from notebook_launcher import sessions

    place = where.place()
    with user_interface(where) as (view, prompts, interrupts):
        sessions.list_sessions(place, view, prompts, interrupts, every=every)
    return view.exit_code
