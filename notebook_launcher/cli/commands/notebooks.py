"""The commands ``notebooks list`` and ``notebooks copy``: the bundled notebooks."""

from __future__ import annotations

import click

from notebook_launcher.cli.completion import complete_notebook
from notebook_launcher.cli.options import Where, target_options, user_interface


@click.group()
def notebooks() -> None:
    """Bundled notebooks: to learn with, and to measure CPUs against GPUs.

    \b
      launch-notebook notebooks list
      launch-notebook notebooks copy                   all of them, to ~/notebooks on the cluster
      launch-notebook run beginner-torch -p EPOCHS 1   one as a batch job, without a copy
    """  # \b is click's mark for lines to be left alone


@notebooks.command("list", short_help="List the bundled notebooks.")
@click.option("--json", "as_json", is_flag=True, help="Print events, one JSON object a line.")
def list_(*, as_json: bool) -> int:
    """List the bundled notebooks, a sentence each; nothing is contacted."""
    from notebook_launcher.notebook import bundled_notebooks

    with user_interface(Where(as_json=as_json)) as (view, _prompts, _interrupts):
        bundled_notebooks.list_notebooks(view)
    return view.exit_code


@notebooks.command("copy", short_help="Copy them to a folder of yours on the cluster.")
@target_options
@click.option("--to", metavar="FOLDER", help="The folder; on a cluster it begins at your home. Else: ~/notebooks.")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_notebook)
def copy(names: tuple[str, ...], *, where: Where, to: str | None) -> int:
    """Copy bundled notebooks, all or those you name, to a folder of yours on the cluster.

    What you have changed stays as it is, and a new version is put beside it. Without a cluster: on this machine.
    """
    from notebook_launcher.notebook import bundled_notebooks

    with user_interface(where) as (view, prompts, _interrupts):
        bundled_notebooks.copy_notebooks(
            where.target(), names, bundled_notebooks.FOLDER if to is None else to, view, prompts
        )
    return view.exit_code
