"""The command ``when``: shows when a request would start, and what would start sooner."""

from __future__ import annotations

import functools

import click

from notebook_launcher.cli.options import Where, scheduler_options, target_options, user_interface
from notebook_launcher.cli.unlisted_flags import SCHEDULER_FLAGS, TakesSchedulerFlags


@click.command(cls=TakesSchedulerFlags)
@functools.partial(target_options, checks_request=True)
@scheduler_options
@click.pass_context
def when(ctx: click.Context, *, where: Where) -> int:
    """Ask the scheduler when a launch with these flags would start, and what would start sooner. Queues nothing."""
    from notebook_launcher import forecast
    from notebook_launcher.planning.first_run import complete_options
    from notebook_launcher.planning.new_default import with_default_saved
    from notebook_launcher.planning.plan import make_plan
    from notebook_launcher.planning.target import LocalMachine

    launch_options = where.launch_options(ctx.obj[SCHEDULER_FLAGS])
    here = LocalMachine.detect()
    code = 0
    with user_interface(where) as (view, prompts, interrupts):
        plan = make_plan(complete_options(launch_options, here, view, prompts, no_cluster=forecast.NO_CLUSTER), here)
        plan = with_default_saved(plan, view)
        code = forecast.when(plan, view, prompts, interrupts)
    return code or view.exit_code
