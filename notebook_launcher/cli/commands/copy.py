"""The command ``copy``: copies files to and from the cluster."""

from __future__ import annotations

import click

from notebook_launcher.cli.completion import complete_copied
from notebook_launcher.cli.options import Where, target_options, user_interface


@click.command()
@target_options
@click.option("--force", is_flag=True, help="Replace files that are there already and differ.")
@click.argument(
    "paths", nargs=-1, metavar="SOURCE... DESTINATION", type=click.Path(readable=False), shell_complete=complete_copied
)
def copy(paths: tuple[str, ...], *, where: Where, force: bool) -> int:
    """Copy files and folders to or from the cluster; its paths begin with login: and at your home there.

    \b
      launch-notebook copy data.csv login:course/
      launch-notebook copy login:results .

    To continue an interrupted copy, type the same command again. Nothing is overwritten without --force. As with cp,
    sources go into a folder that exists; a slash at the end of DESTINATION says that it is meant as one.
    """  # \b is click's mark for lines to be left alone
    from notebook_launcher.transfer import copy as copy_module
    from notebook_launcher.transfer.paths import parse_arguments

    arguments = parse_arguments(paths)
    with user_interface(where) as (view, prompts, interrupts):
        copy_module.copy(where.target(), arguments, view, prompts, interrupts, force=force)
    return view.exit_code
