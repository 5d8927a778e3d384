"""The command ``stop``: ends sessions and their jobs."""

from __future__ import annotations

import click

from notebook_launcher.cli.completion import complete_active_session
from notebook_launcher.cli.options import Where, target_options, user_interface
from notebook_launcher.core.errors import UsageError


@click.command()
@target_options
@click.option("--all", "-a", "every", is_flag=True, help="End all your sessions on that cluster.")
@click.option(
    "--yes", "-y", "sure", is_flag=True, help="Do not ask before ending several sessions, or one with a busy kernel."
)
@click.argument("names", metavar="[SESSION]...", nargs=-1, shell_complete=complete_active_session)
def stop(names: tuple[str, ...], *, where: Where, every: bool, sure: bool) -> int:
    """End sessions and their jobs, from anywhere (by name, a part of it, or nothing if there is one).

    Those on the default cluster; for another one add --cluster NAME.
    """
    from notebook_launcher import stop as stopping

    if names and every:
        raise UsageError("--all ends all sessions, and takes no names.", hint="leave out the names, or --all")
    target = where.target()
    with user_interface(where) as (view, prompts, interrupts):
        stopping.stop(target, names, view, prompts, interrupts, every=every, sure=sure)
    return view.exit_code
