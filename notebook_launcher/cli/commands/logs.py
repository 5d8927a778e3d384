"""The command ``logs``: shows what a session's job printed."""

from __future__ import annotations

import sys

import click

from notebook_launcher.cli.options import Where, session_argument, target_options, user_interface


def _count(ctx: click.Context, _parameter: click.Parameter, value: str) -> int:
    if not (value.isascii() and value.isdecimal()):
        raise click.UsageError(f"“{value}” is not a number of lines.", ctx)
    return int(value)


@click.command()
@target_options
@click.option("--all", "everything", is_flag=True, help="Also the lines that JupyterLab prints in every session.")
@click.option(
    "--lines",
    "-n",
    metavar="N",
    callback=_count,
    default="200",
    show_default=True,
    help="How many of the last lines; 0 for all.",
)
@click.option("--follow", "-f", is_flag=True, help="Keep printing new lines, until the session ends or Ctrl-C.")
@session_argument
def logs(session: str, *, where: Where, follow: bool, lines: int, everything: bool) -> int:
    """Show what a session's job printed."""
    from notebook_launcher.usage import inspect

    with user_interface(where) as (view, prompts, interrupts):
        inspect.logs(
            where.target(), session, view, prompts, interrupts, follow=follow, lines=lines, everything=everything
        )
        if follow and interrupts.exit_requests and sys.stdout.isatty():
            print()  # after the ^C that the terminal shows
    return view.exit_code
