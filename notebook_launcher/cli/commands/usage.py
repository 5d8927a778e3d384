"""The command ``usage``: shows what a session has used since it began."""

from __future__ import annotations

from pathlib import Path

import click

from notebook_launcher.cli.options import Where, session_argument, target_options, user_interface


@click.command()
@target_options
@click.option("--force", is_flag=True, help="Replace files that are there already.")
@click.option(
    "--csv",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the samples there.",
)
@click.option(
    "--plot",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Draw a plot: FILE.png, .svg or .pdf.",
)
@session_argument
def usage(session: str, *, where: Where, plot: Path | None, csv: Path | None, force: bool) -> int:
    """Show what a session has used since it began: GPUs, cores, memory."""
    from notebook_launcher.core.errors import UsageError
    from notebook_launcher.usage import inspect

    if plot and csv and plot.resolve() == csv.resolve():
        raise UsageError(f"“{csv}” cannot be both.", why="The plot would replace the samples.", hint="give two names")
    with user_interface(where) as (view, prompts, interrupts):
        inspect.usage(where.target(), session, view, prompts, interrupts, plot=plot, csv=csv, force=force)
    return view.exit_code
