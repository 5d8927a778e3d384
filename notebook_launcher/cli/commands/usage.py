"""The commands that look at a session: ``status``, ``usage`` and ``logs``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from notebook_launcher.cli.options import Where, place_options, played, session_argument


def _count(ctx: click.Context, _parameter: click.Parameter, value: str) -> int:
    if not (value.isascii() and value.isdecimal()):
        raise click.UsageError(f"“{value}” is no number of lines.", ctx)
    return int(value)


@click.command(short_help="Show how a session is, and what it uses.")
@place_options
@click.option("--watch", is_flag=True, help="Go on showing it, until the session's end or Ctrl-C.")
@session_argument
def status(session: str, *, where: Where, watch: bool) -> int:
    """Show how a session is, and what it used in its last hour."""
    from notebook_launcher.usage import inspect as looking

    with played(where) as (view, prompts, interrupts):
        looking.status(where.place(), session, view, prompts, interrupts, watch=watch)
    return view.exit_code


@click.command(short_help="Show what a session used over all of its time.")
@place_options
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
    """Show what a session used over all of its time: GPUs, cores, memory."""
    from notebook_launcher.core.errors import UsageError
    from notebook_launcher.usage import inspect as looking

    if plot and csv and plot.resolve() == csv.resolve():
        raise UsageError(f"“{csv}” cannot be both.", why="The plot would replace the samples.", mend="give two names")
    with played(where) as (view, prompts, interrupts):
        looking.usage(where.place(), session, view, prompts, interrupts, plot=plot, csv=csv, force=force)
    return view.exit_code


@click.command()
@place_options
@click.option("--all", "everything", is_flag=True, help="Also what JupyterLab says in every session.")
@click.option(
    "--lines", "-n", metavar="N", callback=_count, default="200", show_default=True,
    help="How many of the last lines; 0 for all.",
)  # fmt: skip
@click.option("--follow", "-f", is_flag=True, help="Go on with what is printed, until the session's end or Ctrl-C.")
@session_argument
def logs(session: str, *, where: Where, follow: bool, lines: int, everything: bool) -> int:
    """Show what a session's job printed."""
    from notebook_launcher.usage import inspect as looking

    with played(where) as (view, prompts, interrupts):
        looking.logs(
            where.place(), session, view, prompts, interrupts, follow=follow, lines=lines, everything=everything
        )
        if follow and interrupts.wishes_to_end and sys.stdout.isatty():
            print()  # behind the terminal's ^C
    return view.exit_code


COMMANDS = (status, usage, logs)
