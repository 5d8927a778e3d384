"""The command ``list``: shows the user's sessions, active and recently ended."""

from __future__ import annotations

import click

from notebook_launcher.cli.options import Where, target_options, user_interface


@click.command("list")
@target_options
@click.option("--all", "-a", "every", is_flag=True, help="Also those that ended more than a day ago.")
def list_(*, where: Where, every: bool) -> int:
    """List your sessions: the active ones, and those that ended in the last 24 hours.

    Those on the default cluster; for another one add --cluster NAME.
    """
    from notebook_launcher import sessions

    target = where.target()
    with user_interface(where) as (view, prompts, interrupts):
        sessions.list_sessions(target, view, prompts, interrupts, every=every)
    return view.exit_code
