"""The commands that look at a session: ``status``, ``usage`` and ``logs``."""

from __future__ import annotations

from pathlib import Path

import click

from notebook_launcher.cli.completing import complete_session
from notebook_launcher.cli.options import Where, place_options, played


@click.command()
@place_options
@click.option("--watch", is_flag=True, help="Go on showing it, until the session's end or Ctrl-C.")
@click.argument("session", default="", shell_complete=complete_session)
def status(session: str, *, where: Where, watch: bool) -> int:
    """Show how a session is, and what it used in its last hour."""
    from notebook_launcher import looking

    with played(where) as (view, prompts, interrupts):
        looking.status(where.place(), session, view, prompts, interrupts, watch=watch)
    return view.exit_code


@click.command()
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
@click.argument("session", default="", shell_complete=complete_session)
def usage(session: str, *, where: Where, plot: Path | None, csv: Path | None, force: bool) -> int:
    """Show what a session used over all of its time: GPUs, cores, memory."""
    from notebook_launcher import looking
    from notebook_launcher.errors import UsageError

    if plot and csv and plot.resolve() == csv.resolve():
        raise UsageError(f"“{csv}” cannot be both.", why="The plot would replace the samples.", mend="give two names")
    with played(where) as (view, prompts, interrupts):
        looking.usage(where.place(), session, view, prompts, interrupts, plot=plot, csv=csv, force=force)
    return view.exit_code


@click.command()
@place_options
@click.option("--all", "everything", is_flag=True, help="Also what JupyterLab says in every session.")
@click.option(
    "--lines", "-n", metavar="N", type=click.IntRange(min=0), default=200, show_default=True,
    help="How many of the last lines; 0 for all.",
)  # fmt: skip
@click.option("--follow", "-f", is_flag=True, help="Go on with what is printed, until the session's end or Ctrl-C.")
@click.argument("session", default="", shell_complete=complete_session)
def logs(session: str, *, where: Where, follow: bool, lines: int, everything: bool) -> int:
    """Show what a session's job printed."""
    from notebook_launcher import looking

    with played(where, notes_apart=True) as (view, prompts, interrupts):
        looking.logs(
            where.place(), session, view, prompts, interrupts, follow=follow, lines=lines, everything=everything
        )
    return view.exit_code


COMMANDS = (status, usage, logs)
