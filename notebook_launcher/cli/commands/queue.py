"""The command ``queue``: shows which GPUs and cores are free, and which jobs are pending."""

from __future__ import annotations

import click

from notebook_launcher.cli.options import Where, target_options, user_interface


@click.command()
@target_options
@click.option("--clusters", "-M", metavar="NAME", help="Another cluster of the same Slurm.")
def queue(*, where: Where, clusters: str | None) -> int:
    """Show which GPUs and cores are free and busy, by partition, and what waits."""
    from notebook_launcher import forecast
    from notebook_launcher.profiles.store import default_flags

    target = where.target()
    other = clusters or default_flags(target.profile).get("clusters")
    with user_interface(where) as (view, prompts, interrupts):
        forecast.queue(target, other, view, prompts, interrupts)
    return view.exit_code
