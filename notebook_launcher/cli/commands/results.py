"""The command ``results``: fetches the results of a run."""

from __future__ import annotations

import click

from notebook_launcher.cli.options import Where, session_argument, target_options, user_interface
from notebook_launcher.cli.run_options import output_folder


@click.command()
@target_options
@click.option(
    "--output",
    metavar="DIR",
    help="Where to put the results, in a folder for each run. By default: where that run's already are, or runs.",
)
@session_argument
def results(session: str, *, where: Where, output: str | None) -> int:
    """Fetch the results of a run (its name, a part of it, or nothing for the one that runs, or the last one).

    You may do so while it runs, and as often as you like: only new files are fetched. A file that you have changed
    here stays as it is, and the new one is put beside it.
    """
    from notebook_launcher.run import results as fetch

    target, folder = where.target(), output_folder(output)
    with user_interface(where) as (view, prompts, interrupts):
        fetch(target, session, folder, view, prompts, interrupts)
    return view.exit_code
