"""The command ``renew``: queues the next job of a running session."""

from __future__ import annotations

import click

from notebook_launcher.cli.options import Where, session_argument, target_options, user_interface


@click.command()
@target_options
@click.option("--yes", "-y", "sure", is_flag=True, help="Do not ask before queueing it.")
@session_argument
def renew(session: str, *, where: Where, sure: bool) -> int:
    """Queue the next job of a running session (its name, its beginning or end, or nothing if there is one).

    It is the same request again, and begins shortly before the walltime of the first is over. If launch-notebook is
    attached, it then moves on to the new job, as does the page in the browser, at the same address. Kernels are new.
    """
    from notebook_launcher import renew as renew_module

    target = where.target()
    with user_interface(where) as (view, prompts, interrupts):
        renew_module.renew(target, session, view, prompts, interrupts, sure=sure)
    return view.exit_code
