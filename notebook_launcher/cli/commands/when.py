"""The command ``when``: when a request would start, and what would start sooner."""

from __future__ import annotations

import click

from notebook_launcher.cli.options import ASKED_FLAGS, Where, place_options, scheduler_options, user_interface


@click.command(short_help="Show when a launch would start, and what starts sooner.")
@place_options
@scheduler_options
@click.pass_context
def when(ctx: click.Context, *, where: Where) -> int:
    """Ask the scheduler when a launch with these flags would start, and what would start sooner. Queues nothing."""
    from notebook_launcher import forecast
    from notebook_launcher.planning.first_run import settle
    from notebook_launcher.planning.plan import LaunchOptions, LocalMachine, make_plan

    ask = LaunchOptions(
        ctx.obj[ASKED_FLAGS], where.cluster, where.host, where.ssh_config, engine=where.engine, course=where.course
    )
    here = LocalMachine.detect()
    code = 0
    with user_interface(where) as (view, prompts, interrupts):
        plan = make_plan(settle(ask, here, view, prompts), here)
        code = forecast.when(plan, view, prompts, interrupts)
    return code or view.exit_code
