"""The commands that ask the scheduler and queue nothing: ``when`` and ``queue``."""

from __future__ import annotations

import click

from notebook_launcher.cli.options import ASKED_FLAGS, Where, place_options, played, scheduler_options


@click.command(short_help="Tell when this would start, and what would sooner.")
@place_options
@scheduler_options
@click.pass_context
def when(ctx: click.Context, *, where: Where) -> int:
    """Ask the scheduler when a launch with these flags would start, and what would start sooner. Queues nothing."""
    from notebook_launcher import forecast
    from notebook_launcher.planning.first_run import settle
    from notebook_launcher.planning.plan import Ask, Here, make_plan

    ask = Ask(ctx.obj[ASKED_FLAGS], where.cluster, where.host, where.ssh_config, engine=where.engine,
              course=where.course)  # fmt: skip
    here = Here.look()
    code = 0
    with played(where) as (view, prompts, interrupts):
        plan = make_plan(settle(ask, here, view, prompts), here)
        code = forecast.when(plan, view, prompts, interrupts)
    return code or view.exit_code


@click.command(short_help="Show which GPUs and cores are free, and what waits.")
@place_options
@click.option("--clusters", "-M", metavar="NAME", help="Another cluster of the same Slurm.")
def queue(*, where: Where, clusters: str | None) -> int:
    """Show which GPUs and cores are free and busy, by partition, and what waits."""
    from notebook_launcher import forecast
    from notebook_launcher.profiles.store import default_flags

    place = where.place()
    other = clusters or default_flags(place.profile).get("clusters")
    with played(where) as (view, prompts, interrupts):
        forecast.queue(place, other, view, prompts, interrupts)
    return view.exit_code


COMMANDS = (when, queue)
